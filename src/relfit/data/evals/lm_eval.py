"""Logs of lm-evaluation-harness: ``OUT/<model>/samples_<task>_<date>.jsonl``, written by
``--log_samples``.

A line is one document under one filter. `metrics` names its scores, which are keys of the
line itself. The results file beside it has the model's name, which metrics are better when
larger, and the settings of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relfit.data.evals.base import (
    EvalFormat,
    Log,
    Scored,
    Wanted,
    chosen,
    score_of,
    shortened,
    text_of,
)
from relfit.data.files.json import json_lines, read_json
from relfit.util.errors import InputError
from relfit.util.text import is_text

_NAME = re.compile(
    r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+))?\.jsonl", flags=re.DOTALL
)
NO_FILTER = "none"


def _is_log(path: Path, _head: bytes) -> bool:
    return _NAME.fullmatch(path.name) is not None


def _read(path: Path, wanted: Wanted) -> Iterator[Log]:
    named = _NAME.fullmatch(path.name)
    task, date = (path.stem, None) if named is None else named.group("task", "date")
    if not wanted.takes(task):
        return
    # Of the lines under other filters than the wanted one, which is by default the first, only
    # the filter is kept.
    target = wanted.filter
    metric = ""
    numbers: list[str] = []
    scores: dict[str, list[Scored]] = {}
    for number, line in json_lines(path):
        where = f"{path}, line {number}"
        filter = text_of(where, line, "filter")
        target = target or filter
        held = scores.setdefault(filter, [])
        # Most tasks have no filter to choose.
        if filter in (target, NO_FILTER):
            if not held:
                metrics = _metrics(where, line)
                numbers = [
                    name for name in metrics if isinstance(line.get(name), int | float | None)
                ]
                metric = chosen(path, "metric", metrics, wanted.metric, (numbers or metrics)[0])
            held.append(_scored(where, line, metric))
    if not scores:
        raise InputError(f"{path}: expected a line for every document, got an empty file")
    asked = None if list(scores) == [NO_FILTER] else wanted.filter
    filter = chosen(path, "filter", scores, asked, next(iter(scores)))
    results = _results(path, date, wanted.held)
    direction = _of_task(_of_task(results, "higher_is_better"), task).get(metric)
    yield Log(
        path,
        model=results["model_name"]
        if is_text(results.get("model_name"))
        else path.resolve().parent.name,
        task=task,
        metric=_key(metric, filter),
        scores=scores[filter],
        higher_is_better=direction if isinstance(direction, bool) else None,
        others=tuple(_key(m, f) for f in scores for m in numbers if (m, f) != (metric, filter)),
        settings=_settings(results, task),
        date=date or "",
    )


def _metrics(where: str, line: dict[str, Any]) -> list[str]:
    metrics = line.get("metrics")
    if not isinstance(metrics, list) or not metrics or not all(map(is_text, metrics)):
        raise InputError(
            f"{where}: expected the names of the scores in 'metrics', got none; "
            f"did lm-eval write it?"
        )
    return metrics


def _scored(where: str, line: dict[str, Any], metric: str) -> Scored:
    if metric not in line:
        raise InputError(f"{where}: expected a score under {metric!r}, got none")
    arguments = line.get("arguments")
    call = arguments.get("gen_args_0") if isinstance(arguments, dict) else None
    hashes: list[Any] = [line.get("doc_hash"), line.get("target_hash")]
    return Scored(
        text_of(where, line, "doc_id"),
        score_of(where, metric, line[metric]),
        check=" ".join(hashes) if all(map(is_text, hashes)) else "",
        prompt=shortened(call.get("arg_0") if isinstance(call, dict) else None),
        asked=line["prompt_hash"] if is_text(line.get("prompt_hash")) else "",
    )


def _key(metric: str, filter: str) -> str:
    """The metric's name, with its filter if it has one, as the results file has it."""
    return metric if filter == NO_FILTER else f"{metric},{filter}"


def _results(path: Path, date: str | None, held: dict[Any, Any]) -> dict[str, Any]:
    """The results of the same run: the file of the same date, or the only one in the folder.
    Each is read once.
    """
    if path.parent not in held:
        held[path.parent] = sorted(path.parent.glob("*.json"))
    beside: list[Path] = held[path.parent]
    same = [] if date is None else [each for each in beside if each.stem.endswith(f"_{date}")]
    files = same or [each for each in beside if each.name.startswith("results_")]
    if len(files) != 1:
        return {}
    if files[0] not in held:
        held[files[0]] = read_json(files[0])
    contents = held[files[0]]
    return contents if isinstance(contents, dict) else {}


def _of_task(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _settings(results: dict[str, Any], task: str) -> dict[str, Any]:
    """How the run was made, as far as the results file records it."""
    places = {
        "shots": (_of_task(results, "n-shot"), task),
        "version": (_of_task(results, "versions"), task),
        "chat-template": (results, "chat_template_sha"),
        "system": (results, _system_key(results)),
        "generation": (_of_task(_of_task(results, "configs"), task), "generation_kwargs"),
    }
    return {name: held[key] for name, (held, key) in places.items() if key in held}


def _system_key(results: dict[str, Any]) -> str:
    """The key of the system instruction; of its hash where that alone is recorded."""
    keys = ("system_instruction", "system_instruction_sha")
    told = [key for key in keys if results.get(key)] or [key for key in keys if key in results]
    return next(iter(told), keys[0])


LM_EVAL = EvalFormat("lm-evaluation-harness", _is_log, _read)
