"""The common form of the project every-eval-ever: one JSON object for each sample, and a
JSON file about the run.

``ID.jsonl`` or ``ID_samples.jsonl`` has model_id, evaluation_name, sample_id, sample_hash
and evaluation.score; the file ``ID.json`` beside it says what the score is called and
whether a smaller one is better.
"""

from __future__ import annotations

from collections.abc import Iterator
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

_KEYS = (b'"model_id"', b'"evaluation_name"', b'"sample_id"')
CORRECT = "is_correct"
SCORE = "score"


def _is_log(path: Path, head: bytes) -> bool:
    return path.suffix.lower() == ".jsonl" and all(
        key in head.partition(b"\n")[0] for key in _KEYS
    )


def _read(path: Path, wanted: Wanted) -> Iterator[Log]:
    configs = _configs(path)
    # By model and task, then by result: a sample may be scored in several ways.
    runs: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for number, line in json_lines(path):
        where = f"{path}, line {number}"
        task = text_of(where, line, "evaluation_name")
        result = line.get("evaluation_result_id")
        if wanted.takes(task):
            key = result if is_text(result) else task
            runs.setdefault((text_of(where, line, "model_id"), task), {}).setdefault(
                key, []
            ).append((where, line))
    for (model, task), by_result in runs.items():
        known = {result: configs.get(result, configs.get(task, {})) for result in by_result}
        metrics = {result: _metric(config) for result, config in known.items()}
        # Results of one metric, such as those of two splits, are told apart by their ids.
        results = {
            name if list(metrics.values()).count(name) == 1 else result: result
            for result, name in metrics.items()
        }
        names = [*results, *([] if CORRECT in results else [CORRECT])]
        metric = chosen(path, "metric", names, wanted.metric, names[0])
        result = results.get(metric, next(iter(by_result)))
        key = SCORE if metric in results else CORRECT
        lower = known[result].get("lower_is_better") if key == SCORE else False
        yield Log(
            path,
            model,
            task,
            metric,
            [_scored(where, line, key) for where, line in by_result[result]],
            higher_is_better=not lower if isinstance(lower, bool) else None,
            others=tuple(name for name in results if name != metric),
        )


def _scored(where: str, line: dict[str, Any], key: str) -> Scored:
    evaluation = line.get("evaluation")
    asked = line.get("input")
    if not isinstance(evaluation, dict) or key not in evaluation:
        raise InputError(f"{where}: expected {key!r} in 'evaluation', got none")
    prompt = asked.get("raw") if isinstance(asked, dict) else None
    hashed = line.get("sample_hash")
    return Scored(
        text_of(where, line, "sample_id"),
        score_of(where, key, evaluation[key]),
        check=hashed if is_text(hashed) else "",
        prompt=shortened(prompt),
    )


def _configs(path: Path) -> dict[Any, dict[str, Any]]:
    """What is known of each result of the run, by its id and by its name."""
    beside = path.with_name(f"{path.stem.removesuffix('_samples')}.json")
    whole = read_json(beside) if beside.is_file() else {}
    results = whole.get("evaluation_results") if isinstance(whole, dict) else None
    configs: dict[Any, dict[str, Any]] = {}
    for result in results if isinstance(results, list) else ():
        config = result.get("metric_config") if isinstance(result, dict) else None
        if isinstance(config, dict):
            for key in (result.get("evaluation_result_id"), result.get("evaluation_name")):
                if is_text(key):
                    configs.setdefault(key, config)
    return configs


def _metric(config: dict[str, Any]) -> str:
    names = (config.get(key) for key in ("metric_name", "metric_id"))
    return next((name for name in names if is_text(name) and name), SCORE)


EVERY_EVAL_EVER = EvalFormat("every-eval-ever", _is_log, _read)
