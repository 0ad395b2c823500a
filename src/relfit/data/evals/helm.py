"""Runs of HELM: a folder with ``per_instance_stats.json``, and the run's name and the
questions in files beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    text_of,
)
from relfit.data.files.json import read_json
from relfit.util.errors import InputError
from relfit.util.text import is_text, listed

FILE = "per_instance_stats.json"
# The first of these that a run has is its metric: the others count tokens, seconds and the
# like.
_MAIN = (
    *(
        "exact_match",
        "quasi_exact_match",
        "chain_of_thought_correctness",
        "math_equiv_chain_of_thought",
        "math_equiv",
    ),
    *("ifeval_strict_accuracy", "f1_score", "rouge_l", "ndcg_cut_10"),
)
# Of the adapter, which makes requests of instances: what the model is asked, and how its
# answers are generated.
_PROMPTS = (
    *(
        "method",
        "global_prefix",
        "global_suffix",
        "instructions",
        "input_prefix",
        "input_suffix",
        "reference_prefix",
    ),
    *(
        "reference_suffix",
        "output_prefix",
        "output_suffix",
        "instance_prefix",
        "chain_of_thought_prefix",
    ),
    "chain_of_thought_suffix",
)
_GENERATION = ("temperature", "max_tokens", "num_outputs", "stop_sequences")
_MODEL = re.compile(r"[,:](?:model|model_deployment)=(?P<model>[^,]*)")


def _is_log(path: Path, _head: bytes) -> bool:
    return path.name == FILE


def _read(path: Path, wanted: Wanted) -> Iterator[Log]:
    run, model, settings = _run(path)
    task = _MODEL.sub("", run)
    if not wanted.takes(task):
        return
    records = read_json(path)
    if not isinstance(records, list) or not records:
        raise InputError(
            f"{path}: expected a list of instances, got "
            f"{'none' if records == [] else 'something else'}"
        )
    stats = [
        (f"{path}, instance {number}", record, _stats(path, record))
        for number, record in enumerate(records, 1)
    ]
    kept = _filtered(path, stats, wanted.filter)
    names = list(dict.fromkeys(name for _, _, held in kept for name in held))
    if not names:
        raise InputError(
            f"{path}: expected instances with numbers, got none; did the run finish?"
        )
    default = next((name for name in _MAIN if name in names), None)
    if default is None and wanted.metric is None:
        raise InputError(
            f"metric: expected one of {listed(names, 'or', most=12, quote=repr)} "
            f"for {path}, got none"
        )
    metric = chosen(path, "metric", names, wanted.metric, default or "")
    questions = _questions(path)
    scores = []
    for where, record, held in kept:
        item = text_of(where, record, "instance_id")
        trial = record.get("train_trial_index", 0)
        question = questions.get(item)
        epoch = trial + 1 if isinstance(trial, int) and 0 <= trial < 10**6 else 1
        value = score_of(where, metric, held[metric]) if metric in held else UNSCORED
        scores.append(Scored(item, value, epoch, digest(question), shortened(question)))
    others = tuple(name for name in _MAIN if name in names and name != metric)
    left = len(stats) - len(kept)
    notes = (
        (
            f"{task}: {left} instances of another split or of a perturbation are left "
            f"out (filter)",
        )
        if left
        else ()
    )
    yield Log(path, model, task, metric, scores, others=others, notes=notes, settings=settings)


def _run(path: Path) -> tuple[str, str, dict[str, Any]]:
    """The run's name, such as ``mmlu:subject=anatomy,model=openai_gpt2``, its model and how
    it was made.
    """
    beside = path.with_name("run_spec.json")
    spec = read_json(beside) if beside.is_file() else {}
    spec = spec if isinstance(spec, dict) else {}
    adapter = spec.get("adapter_spec")
    adapter = adapter if isinstance(adapter, dict) else {}
    name = spec["name"] if is_text(spec.get("name")) else path.resolve().parent.name
    found = _MODEL.search(name)
    model = adapter.get("model")
    settings = (
        {"shots": adapter["max_train_instances"]} if "max_train_instances" in adapter else {}
    )
    for setting, keys in (("prompts", _PROMPTS), ("generation", _GENERATION)):
        if adapter:
            settings[setting] = {key: adapter[key] for key in keys if key in adapter} or None
    return (
        name,
        model if is_text(model) and model else found["model"] if found else name,
        settings,
    )


def _stats(path: Path, record: Any) -> dict[str, Any]:
    """The instance's numbers by metric; a metric without a value is left out."""
    stats = record.get("stats") if isinstance(record, dict) else None
    if not isinstance(stats, list) or not all(
        isinstance(stat, dict) and isinstance(stat.get("name"), dict) for stat in stats
    ):
        raise InputError(
            f"{path}: expected instances with 'stats', each with a 'name' and a 'mean', got "
            f"something else"
        )
    named = {
        stat["name"].get("name"): stat.get("mean")
        for stat in stats
        if is_text(stat["name"].get("name"))
    }
    return {name: mean for name, mean in named.items() if mean is not None}


def _filtered(
    path: Path, stats: list[tuple[str, Any, dict[str, Any]]], filter: str | None
) -> list[Any]:
    """The instances of a split or of a perturbation; by default those of the test split, as
    they were written.
    """
    labels = [_labels(record) for _, record, _ in stats]
    if filter is not None:
        held = sorted({name for pair in labels for name in pair if name})
        chosen(path, "filter", held or ["no split"], filter, filter)
        return [each for each, pair in zip(stats, labels, strict=True) if filter in pair]
    whole = any(split == "test" and not perturbation for split, perturbation in labels)
    splits = {"test"} if whole else {split for split, _ in labels}
    return [
        each
        for each, (split, changed) in zip(stats, labels, strict=True)
        if not changed and split in splits
    ]


def _labels(record: Any) -> tuple[str, str]:
    """The split of an instance, and the name of its perturbation, "" if it has none."""
    perturbation = record.get("perturbation")
    name = perturbation.get("name") if isinstance(perturbation, dict) else None
    splits = (stat["name"].get("split") for stat in record["stats"])
    return next((str(split) for split in splits if split), ""), str(name or "")


def _questions(path: Path) -> dict[str, str]:
    """The questions by instance, from instances.json or scenario_state.json."""
    for name, key in (("instances.json", None), ("scenario_state.json", "request_states")):
        if path.with_name(name).is_file():
            held = read_json(path.with_name(name))
            held = held if key is None else held.get(key) if isinstance(held, dict) else None
            held = (
                [each for each in held if isinstance(each, dict)]
                if isinstance(held, list)
                else []
            )
            found = [each if key is None else each.get("instance") for each in held]
            whole = [
                one for one in found if isinstance(one, dict) and not one.get("perturbation")
            ]
            inputs = {one["id"]: one.get("input") for one in whole if is_text(one.get("id"))}
            texts = {
                id: text.get("text") if isinstance(text, dict) else text
                for id, text in inputs.items()
            }
            return {id: text for id, text in texts.items() if isinstance(text, str)}
    return {}


HELM = EvalFormat("HELM", _is_log, _read)
