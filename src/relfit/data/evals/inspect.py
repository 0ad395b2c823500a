"""Logs of Inspect, ``.eval`` or ``.json``, read by inspect_ai itself: their form is its own
affair and changes.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterator
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from relfit.compute.memory import require_room
from relfit.data.evals.base import (
    UNSCORED,
    EvalFormat,
    Log,
    Scored,
    Wanted,
    chosen,
    digest,
    score_of,
    shortened,
)
from relfit.data.files.base import check_plain, reading
from relfit.util.errors import InputError
from relfit.util.libraries import needed
from relfit.util.text import is_text

# Inspect's letters: correct, incorrect, partly correct, no answer.
_LETTERS = {
    "C": 1.0,
    "I": 0.0,
    "P": 0.5,
    "N": 0.0,
    "yes": 1.0,
    "true": 1.0,
    "no": 0.0,
    "false": 0.0,
}
_JSON_LOG = re.compile(
    rb'\s*\{\s*(?:"version"\s*:\s*\d+\s*,)?\s*"status"\s*:.{0,200}?"eval"\s*:\s*\{',
    flags=re.DOTALL,
)
# What decides the answers; other options of a model are about connections and caches.
_GENERATION = (
    *(
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "stop_seqs",
        "best_of",
        "num_choices",
        "frequency_penalty",
    ),
    *(
        "presence_penalty",
        "logit_bias",
        "effort",
        "reasoning_effort",
        "reasoning_tokens",
        "response_schema",
    ),
)
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
    less = (
        {"exclude_fields": _UNREAD}
        if "exclude_fields" in signature(library.read_eval_log).parameters
        else {}
    )
    with reading(path):
        if is_zipfile(path):
            with ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
            require_room(path, size, "read on a machine with more memory")
        if wanted.tasks is not None:
            header = library.read_eval_log(str(path.resolve()), header_only=True)
            if not wanted.takes(str(header.eval.task)):
                return
        log = library.read_eval_log(str(path.resolve()), **less)
    values = [(sample, _values(sample)) for sample in log.samples or ()]
    names = [
        name
        for name in dict.fromkeys(name for _, scores in values for name in scores)
        if is_text(name)
    ]
    status = f"its status is {log.status!r}"
    run: dict[str, Any] = dict(
        model=str(log.eval.model),
        task=str(log.eval.task),
        settings=_settings(log),
        date=_date(str(getattr(log.eval, "created", ""))),
    )
    if not names:
        yield Log(
            path, metric="", scores=(), unfinished=f"it has no scores, and {status}", **run
        )
        return
    metric = chosen(path, "metric", names, wanted.metric, names[0])
    # Letters and true or false have a direction, the numbers of a scorer need not have one.
    held = [scores[metric] for _, scores in values if metric in scores]
    words = all(isinstance(value, str | bool) or value != value for value in held)
    yield Log(
        path,
        metric=metric,
        scores=[_scored(path, sample, metric, scores.get(metric)) for sample, scores in values],
        higher_is_better=True if words else None,
        others=tuple(name for name in names if name != metric),
        unfinished="" if log.status == "success" else status,
        **run,
    )


def _settings(log: Any) -> dict[str, Any]:
    """How the run was made: its task, its solvers with their prompts, and how answers were
    generated.
    """
    settings: dict[str, Any] = {}
    for name, key in (("version", "task_version"), ("arguments", "task_args")):
        if hasattr(log.eval, key):
            settings[name] = getattr(log.eval, key) or None
    plan = getattr(log, "plan", None)
    if plan is not None:
        solvers: dict[str, list[Any]] = {}
        for step in plan.steps:
            solvers.setdefault(str(step.solver), []).append(
                getattr(step, "params_passed", None)
            )
        settings["solver"] = solvers
        configs = (plan.config, getattr(log.eval, "model_generate_config", None))
        # The model's own settings come first, those of the task replace them.
        both = [
            {} if config is None else config.model_dump(exclude_none=True)
            for config in reversed(configs)
        ]
        merged = {**both[0], **both[1]}
        settings["generation"] = {
            key: merged[key] for key in _GENERATION if key in merged
        } or None
        settings["system"] = merged.get("system_message")
    return settings


def _date(text: str) -> str:
    """The time as text that sorts by time, "" for anything else."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except ValueError:
        return ""


def _values(sample: Any) -> dict[str, Any]:
    """The values of a sample by scorer; a scorer with several values gives ``scorer/key``."""
    values: dict[str, Any] = {}
    for scorer, score in (sample.scores or {}).items():
        value = score.value
        values |= (
            {f"{scorer}/{key}": part for key, part in value.items()}
            if isinstance(value, dict)
            else {scorer: value}
        )
    return values


def _scored(path: Path, sample: Any, metric: str, value: Any) -> Scored:
    where = f"{path}, sample {str(sample.id)!r:.60}"
    prompt = (
        sample.input
        if isinstance(sample.input, str)
        else "\n".join(message.text for message in sample.input)
    )
    return Scored(
        str(sample.id),
        _number(where, metric, value),
        int(sample.epoch),
        digest(prompt),
        shortened(prompt),
    )


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
        raise InputError(
            f"{where}: expected C, I, P, N or a number for {metric!r}, got "
            f"{reprlib.repr(value)}"
        )
    return number


INSPECT = EvalFormat("Inspect", _is_log, _read)
