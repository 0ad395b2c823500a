"""Logs of Inspect, ``.eval`` or ``.json``, read by inspect_ai itself: their form is its own affair and changes."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

from relfit.data.evals.base import UNSCORED, EvalFormat, Log, Scored, Wanted, chosen, digest, score_of, shortened
from relfit.data.files.base import check_plain, reading
from relfit.util.errors import InputError
from relfit.util.libraries import needed
from relfit.util.text import is_text, visible

# Inspect's letters: correct, incorrect, partly correct, no answer.
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_JSON_LOG = re.compile(rb'\s*\{\s*(?:"version"\s*:\s*\d+\s*,)?\s*"status"\s*:.{0,200}?"eval"\s*:\s*\{', flags=re.DOTALL)
# Large parts of a log that hold no scores.
_UNREAD = {"messages", "events", "store", "attachments", "output"}


def _is_log(path: Path, head: bytes) -> bool:
    suffix = path.suffix.lower()
    return suffix == ".eval" or (suffix == ".json" and _JSON_LOG.match(head) is not None)


def _read(path: Path, wanted: Wanted) -> Iterator[Log]:
    check_plain(path)
    needed(path, "inspect_ai", (0, 3, 80))
    library = needed(path, "inspect_ai.log", ())
    # Older versions cannot leave them out.
    less = {"exclude_fields": _UNREAD} if "exclude_fields" in signature(library.read_eval_log).parameters else {}
    with reading(path):
        if wanted.tasks is not None:
            header = library.read_eval_log(str(path.resolve()), header_only=True)
            if not wanted.takes(str(header.eval.task)):
                return
        log = library.read_eval_log(str(path.resolve()), **less)
    values = [(sample, _values(sample)) for sample in log.samples or ()]
    names = [name for name in dict.fromkeys(name for _, scores in values for name in scores) if is_text(name)]
    if not names:
        raise InputError(f"{path}: expected samples with scores, got none; its status is {log.status!r}")
    metric = chosen(path, "metric", names, wanted.metric, names[0])
    # Letters and true or false have a direction, the numbers of a scorer need not have one.
    held = [scores[metric] for _, scores in values if metric in scores]
    words = all(isinstance(value, str | bool) or value != value for value in held)
    notes = (
        () if log.status == "success" else (f"{visible(str(path))} has the status {log.status!r}, and may lack items",)
    )
    yield Log(
        path,
        model=str(log.eval.model),
        task=str(log.eval.task),
        metric=metric,
        scores=[_scored(path, sample, metric, scores.get(metric)) for sample, scores in values],
        higher_is_better=True if words else None,
        others=tuple(name for name in names if name != metric),
        notes=notes,
    )


def _values(sample: Any) -> dict[str, Any]:
    """The values of a sample by scorer; a scorer with several values gives ``scorer/key``."""
    values: dict[str, Any] = {}
    for scorer, score in (sample.scores or {}).items():
        value = score.value
        values |= (
            {f"{scorer}/{key}": part for key, part in value.items()} if isinstance(value, dict) else {scorer: value}
        )
    return values


def _scored(path: Path, sample: Any, metric: str, value: Any) -> Scored:
    where = f"{path}, sample {str(sample.id)!r:.60}"
    prompt = sample.input if isinstance(sample.input, str) else "\n".join(message.text for message in sample.input)
    return Scored(str(sample.id), _number(where, metric, value), int(sample.epoch), digest(prompt), shortened(prompt))


def _number(where: str, metric: str, value: Any) -> float:
    """The value as Inspect's own metrics count it, but an unscored sample stays unscored.

    >>> [_number("", "match", value) for value in ("C", "I", "P", "N", True, "0.25")]
    [1.0, 0.0, 0.5, 0.0, 1.0, 0.25]
    """
    if not isinstance(value, str):
        return score_of(where, metric, value)
    if value in _LETTERS or value.lower() in _LETTERS:
        return _LETTERS.get(value, _LETTERS.get(value.lower(), UNSCORED))
    try:
        number = float(value)
    except ValueError:
        number = math.inf
    if math.isinf(number):
        raise InputError(f"{where}: expected C, I, P, N or a number for {metric!r}, got {reprlib.repr(value)}")
    return number


INSPECT = EvalFormat("Inspect", _is_log, _read)
