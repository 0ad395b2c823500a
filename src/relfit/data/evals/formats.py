"""The formats of evaluation logs: lm-evaluation-harness, Inspect, HELM and every-eval-ever."""

from __future__ import annotations

import inspect
import math
import re
import reprlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from relfit.compute.memory import require_room
from relfit.data.evals.base import (
    UNSCORED,
    EvalFormat,
    Log,
    Record,
    Scored,
    Wanted,
    chosen,
    dict_at,
    digest,
    list_at,
    score_of,
    shortened,
    text_at,
    text_of,
)
from relfit.data.files.base import check_plain, reading
from relfit.data.files.text import json_lines, read_json
from relfit.util.errors import InputError
from relfit.util.libraries import needed
from relfit.util.text import is_text, listed


def _beside(path: Path, name: str) -> Any:
    """The contents of a JSON file in the same folder; None if there is none."""
    beside = path.with_name(name)
    return read_json(beside) if beside.is_file() else None


# ── lm-evaluation-harness ─────────────────────────────────────────────────────────────────────
# OUT/<model>/samples_<task>_<date>.jsonl, written by --log_samples. A line is one document under
# one filter. `metrics` names its scores, which are keys of the line itself. The results file
# beside it has the model's name, which metrics are better when larger, and the settings.

_SAMPLES = re.compile(
    r"\Asamples_(.+?)(?:_(\d{4}-\d\d-\d\dT[\d.-]+))?\.jsonl\Z", flags=re.DOTALL
)
NO_FILTER = "none"


def _read_lm_eval(path: Path, wanted: Wanted) -> Iterator[Log]:
    ((task, date),) = _SAMPLES.findall(path.name)
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
            held.append(_document(where, line, metric))
    if not scores:
        raise InputError(f"{path}: expected a line for every document, got an empty file")
    asked = None if list(scores) == [NO_FILTER] else wanted.filter
    filter = chosen(path, "filter", scores, asked, next(iter(scores)))
    results = _results(path, date, wanted.held)
    direction = dict_at(dict_at(results, "higher_is_better"), task).get(metric)
    yield Log(
        path,
        model=text_at(results, "model_name") or path.resolve().parent.name,
        task=task,
        metric=_under(metric, filter),
        scores=scores[filter],
        higher_is_better=direction if isinstance(direction, bool) else None,
        metrics=[_under(name, each) for each in scores for name in numbers],
        settings=_run_settings(results, task),
        date=date,
        board=_board(results, task, metric, filter),
    )


def _metrics(where: str, line: Record) -> list[str]:
    metrics = list_at(line, "metrics")
    if not metrics or not all(map(is_text, metrics)):
        raise InputError(
            f"{where}: expected the names of the scores in 'metrics', got none; "
            f"did lm-eval write it?"
        )
    return metrics


def _document(where: str, line: Record, metric: str) -> Scored:
    if metric not in line:
        raise InputError(f"{where}: expected a score under {metric!r}, got none")
    hashes = [text_at(line, "doc_hash"), text_at(line, "target_hash")]
    return Scored(
        text_of(where, line, "doc_id"),
        score_of(where, metric, line[metric]),
        check=" ".join(hashes) if all(hashes) else "",
        prompt=shortened(dict_at(dict_at(line, "arguments"), "gen_args_0").get("arg_0")),
        asked=text_at(line, "prompt_hash"),
        output=_output(line),
    )


def _output(line: Record) -> str | None:
    """The text that a model generated; None for tasks that compare likelihoods."""
    outputs = list_at(line, "filtered_resps")
    if len(outputs) != 1 or not isinstance(outputs[0], str):
        return None
    return shortened(outputs[0]) or ""


def _under(metric: str, filter: str) -> str:
    """The metric's name, with its filter if it has one, as the results file has it."""
    return metric if filter == NO_FILTER else f"{metric},{filter}"


def _results(path: Path, date: str, held: dict[Any, Any]) -> Any:
    """The results of the same run: the file of the same date, or the only one in the folder.
    Each is read once.
    """
    if path.parent not in held:
        held[path.parent] = sorted(path.parent.glob("*.json"))
    beside: list[Path] = held[path.parent]
    same = [each for each in beside if date and each.stem.endswith(f"_{date}")]
    files = same or [each for each in beside if each.name.startswith("results_")]
    if len(files) != 1:
        return None
    if files[0] not in held:
        held[files[0]] = read_json(files[0])
    return held[files[0]]


def _board(results: Any, task: str, metric: str, filter: str) -> float | None:
    """The number of the task in the results file."""
    number = dict_at(dict_at(results, "results"), task).get(f"{metric},{filter}")
    return float(number) if isinstance(number, int | float) else None


def _run_settings(results: Any, task: str) -> Record:
    """How the run was made, as far as the results file records it."""
    results = results if isinstance(results, dict) else {}
    # The system instruction, or its hash where that alone is recorded.
    systems = ("system_instruction", "system_instruction_sha")
    system = next((key for key in systems if results.get(key)), None)
    system = system or next((key for key in systems if key in results), systems[0])
    places = {
        "shots": (dict_at(results, "n-shot"), task),
        "version": (dict_at(results, "versions"), task),
        "chat-template": (results, "chat_template_sha"),
        "system": (results, system),
        "generation": (dict_at(dict_at(results, "configs"), task), "generation_kwargs"),
    }
    return {name: held[key] for name, (held, key) in places.items() if key in held}


# ── Inspect ───────────────────────────────────────────────────────────────────────────────────
# Logs are .eval or .json, read by inspect_ai itself: their form is its own affair and changes.

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
_INSPECT_GENERATION = [
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "stop_seqs",
    "best_of",
    "num_choices",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "effort",
    "reasoning_effort",
    "reasoning_tokens",
    "response_schema",
]
# Large parts of a log that hold no scores.
_UNREAD = {"messages", "events", "store", "attachments", "output"}


def _is_inspect(path: Path, head: bytes) -> bool:
    suffix = path.suffix.lower()
    return suffix == ".eval" or (suffix == ".json" and _JSON_LOG.match(head) is not None)


def _read_inspect(path: Path, wanted: Wanted) -> Iterator[Log]:
    check_plain(path)
    needed(path, "inspect_ai", (0, 3, 80))
    read_log = needed(path, "inspect_ai.log", ()).read_eval_log
    # Older versions cannot leave them out.
    can_leave_out = "exclude_fields" in inspect.signature(read_log).parameters
    less = {"exclude_fields": _UNREAD} if can_leave_out else {}
    with reading(path):
        if is_zipfile(path):
            with ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
            require_room(path, size, "read on a machine with more memory")
        source = str(path.resolve())
        if wanted.tasks is not None:
            header = read_log(source, header_only=True)
            if not wanted.takes(str(header.eval.task)):
                return
        log = read_log(source, **less)
    values = [(sample, _sample_values(sample)) for sample in log.samples or ()]
    names = list(dict.fromkeys(name for _, held in values for name in held if is_text(name)))
    status = f"its status is {log.status!r}"
    run: Record = dict(
        model=str(log.eval.model),
        task=str(log.eval.task),
        settings=_inspect_settings(log),
        date=_date(str(getattr(log.eval, "created", ""))),
    )
    if not names:
        why = f"it has no scores, and {status}"
        yield Log(path, metric="", scores=(), unfinished=why, **run)
        return
    metric = chosen(path, "metric", names, wanted.metric, names[0])
    # Letters and true or false have a direction, the numbers of a scorer need not have one.
    found = [held[metric] for _, held in values if metric in held]
    words = all(isinstance(value, str | bool) or value != value for value in found)
    yield Log(
        path,
        metric=metric,
        scores=[_sample(path, sample, metric, held.get(metric)) for sample, held in values],
        higher_is_better=True if words else None,
        metrics=names,
        unfinished="" if log.status == "success" else status,
        **run,
    )


def _inspect_settings(log: Any) -> Record:
    """How the run was made: its task, its solvers with their prompts, and how answers were
    generated.
    """
    settings: Record = {}
    for name, key in (("version", "task_version"), ("arguments", "task_args")):
        if hasattr(log.eval, key):
            settings[name] = getattr(log.eval, key) or None
    plan = getattr(log, "plan", None)
    if plan is None:
        return settings
    solvers: dict[str, list[Any]] = {}
    for step in plan.steps:
        solvers.setdefault(str(step.solver), []).append(getattr(step, "params_passed", None))
    # The model's own settings come first, those of the task replace them.
    merged: Record = {}
    for config in (getattr(log.eval, "model_generate_config", None), plan.config):
        merged |= {} if config is None else config.model_dump(exclude_none=True)
    generation = {key: merged[key] for key in _INSPECT_GENERATION if key in merged}
    return {
        **settings,
        "solver": solvers,
        "generation": generation or None,
        "system": merged.get("system_message"),
    }


def _date(text: str) -> str:
    """The time as text that sorts by time, "" for anything else."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except ValueError:
        return ""


def _sample_values(sample: Any) -> Record:
    """The values of a sample by scorer; a scorer with several values gives ``scorer/key``."""
    values: Record = {}
    for scorer, score in (sample.scores or {}).items():
        if isinstance(score.value, dict):
            values |= {f"{scorer}/{key}": part for key, part in score.value.items()}
        else:
            values[scorer] = score.value
    return values


def _sample(path: Path, sample: Any, metric: str, value: Any) -> Scored:
    prompt = sample.input
    if not isinstance(prompt, str):
        prompt = "\n".join(message.text for message in prompt)
    where = f"{path}, sample {str(sample.id)!r:.60}"
    score = _number(where, metric, value)
    return Scored(str(sample.id), score, int(sample.epoch), digest(prompt), shortened(prompt))


def _number(where: str, metric: str, value: Any) -> float:
    """The value as Inspect's own metrics count it, but an unscored sample stays unscored.

    >>> [_number("", "match", value) for value in ("C", "I", "P", "N", True, "0.25")]
    [1.0, 0.0, 0.5, 0.0, 1.0, 0.25]
    """
    if not isinstance(value, str):
        return score_of(where, metric, value)
    letter = _LETTERS.get(value, _LETTERS.get(value.lower()))
    if letter is not None:
        return letter
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


# ── HELM ──────────────────────────────────────────────────────────────────────────────────────
# A run is a folder with per_instance_stats.json, and the run's name and the questions in files
# beside it.

# The first of these that a run has is its metric: the others count tokens, seconds and the
# like.
_MAIN = [
    "exact_match",
    "quasi_exact_match",
    "chain_of_thought_correctness",
    "math_equiv_chain_of_thought",
    "math_equiv",
    "ifeval_strict_accuracy",
    "f1_score",
    "rouge_l",
    "ndcg_cut_10",
]
# Of the adapter, which makes requests of instances: what the model is asked, and how its
# answers are generated.
_ADAPTER = {
    "prompts": [
        "method",
        "global_prefix",
        "global_suffix",
        "instructions",
        "input_prefix",
        "input_suffix",
        "reference_prefix",
        "reference_suffix",
        "output_prefix",
        "output_suffix",
        "instance_prefix",
        "chain_of_thought_prefix",
        "chain_of_thought_suffix",
    ],
    "generation": ["temperature", "max_tokens", "num_outputs", "stop_sequences"],
}
_MODEL = re.compile(r"[,:](?:model|model_deployment)=(?P<model>[^,]*)")


def _read_helm(path: Path, wanted: Wanted) -> Iterator[Log]:
    spec = _beside(path, "run_spec.json")
    # Such as ``mmlu:subject=anatomy,model=openai_gpt2``.
    run = text_at(spec, "name") or path.resolve().parent.name
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
    main = [name for name in _MAIN if name in names]
    if not main and wanted.metric is None:
        raise InputError(
            f"metric: expected one of {listed(names, 'or', most=12, quote=repr)} "
            f"for {path}, got none"
        )
    metric = chosen(path, "metric", names, wanted.metric, main[0] if main else "")
    questions = _questions(path)
    scores = []
    for where, record, held in kept:
        item = text_of(where, record, "instance_id")
        trial = record.get("train_trial_index", 0)
        question = questions.get(item)
        epoch = trial + 1 if isinstance(trial, int) and 0 <= trial < 10**6 else 1
        value = score_of(where, metric, held[metric]) if metric in held else UNSCORED
        scores.append(Scored(item, value, epoch, digest(question), shortened(question)))
    left = len(stats) - len(kept)
    note = (
        f"{task}: {left} instances of another split or of a perturbation are left out (filter)"
    )
    adapter = dict_at(spec, "adapter_spec")
    named = _MODEL.search(run)
    yield Log(
        path,
        text_at(adapter, "model") or (named["model"] if named else run),
        task,
        metric,
        scores,
        metrics=main,
        notes=(note,) if left else (),
        settings=_helm_settings(adapter),
    )


def _helm_settings(adapter: Record) -> Record:
    settings: Record = {}
    if "max_train_instances" in adapter:
        settings["shots"] = adapter["max_train_instances"]
    for setting, keys in _ADAPTER.items():
        if adapter:
            settings[setting] = {key: adapter[key] for key in keys if key in adapter} or None
    return settings


def _stats(path: Path, record: Any) -> Record:
    """The instance's numbers by metric; a metric without a value is left out."""
    stats = record.get("stats") if isinstance(record, dict) else None
    if not isinstance(stats, list) or not all(
        isinstance(stat, dict) and isinstance(stat.get("name"), dict) for stat in stats
    ):
        raise InputError(
            f"{path}: expected instances with 'stats', each with a 'name' and a 'mean', got "
            f"something else"
        )
    named = {text_at(stat["name"], "name"): stat.get("mean") for stat in stats}
    return {name: mean for name, mean in named.items() if name and mean is not None}


def _filtered(
    path: Path, stats: list[tuple[str, Any, Record]], filter: str | None
) -> list[Any]:
    """The instances of a split or of a perturbation; by default those of the test split, as
    they were written.
    """
    labels = [_labels(record) for _, record, _ in stats]
    if filter is not None:
        held = sorted({name for pair in labels for name in pair if name})
        chosen(path, "filter", held or ["no split"], filter, filter)
        return [each for each, pair in zip(stats, labels, strict=True) if filter in pair]
    splits = {split for split, perturbation in labels if not perturbation}
    splits = {"test"} if "test" in splits else splits
    return [
        each
        for each, (split, perturbation) in zip(stats, labels, strict=True)
        if not perturbation and split in splits
    ]


def _labels(record: Any) -> tuple[str, str]:
    """The split of an instance, and the name of its perturbation, "" if it has none."""
    splits = (stat["name"].get("split") for stat in record["stats"])
    name = dict_at(record, "perturbation").get("name")
    return next((str(split) for split in splits if split), ""), str(name or "")


def _questions(path: Path) -> dict[str, str]:
    """The questions by instance, from instances.json or scenario_state.json."""
    instances = _beside(path, "instances.json")
    if instances is None:
        states = list_at(_beside(path, "scenario_state.json"), "request_states")
        instances = [dict_at(state, "instance") for state in states]
    questions = {}
    for one in instances if isinstance(instances, list) else ():
        text = one.get("input") if isinstance(one, dict) else None
        text = text.get("text") if isinstance(text, dict) else text
        if isinstance(text, str) and text_at(one, "id") and not one.get("perturbation"):
            questions[one["id"]] = text
    return questions


# ── every-eval-ever ───────────────────────────────────────────────────────────────────────────
# The common form of the project: ID.jsonl or ID_samples.jsonl has one JSON object for each
# sample, with model_id, evaluation_name, sample_id, sample_hash and evaluation.score. The file
# ID.json beside it says what the score is called and whether a smaller one is better.

_KEYS = (b'"model_id"', b'"evaluation_name"', b'"sample_id"')
CORRECT = "is_correct"
SCORE = "score"


def _is_every_eval_ever(path: Path, head: bytes) -> bool:
    first = head.partition(b"\n")[0]
    return path.suffix.lower() == ".jsonl" and all(key in first for key in _KEYS)


def _read_every_eval_ever(path: Path, wanted: Wanted) -> Iterator[Log]:
    configs = _configs(path)
    # By model and task, then by result: a sample may be scored in several ways.
    runs: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for number, line in json_lines(path):
        where = f"{path}, line {number}"
        task = text_of(where, line, "evaluation_name")
        if wanted.takes(task):
            by_result = runs.setdefault((text_of(where, line, "model_id"), task), {})
            result = text_at(line, "evaluation_result_id") or task
            by_result.setdefault(result, []).append((where, line))
    for (model, task), by_result in runs.items():
        known = {result: configs.get(result, configs.get(task, {})) for result in by_result}
        metrics = {
            result: text_at(config, "metric_name") or text_at(config, "metric_id") or SCORE
            for result, config in known.items()
        }
        # Results of one metric, such as those of two splits, are told apart by their ids.
        results = {
            name if list(metrics.values()).count(name) == 1 else result: result
            for result, name in metrics.items()
        }
        names = list(dict.fromkeys([*results, CORRECT]))
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
            metrics=list(results),
        )


def _scored(where: str, line: Record, key: str) -> Scored:
    evaluation = dict_at(line, "evaluation")
    if key not in evaluation:
        raise InputError(f"{where}: expected {key!r} in 'evaluation', got none")
    return Scored(
        text_of(where, line, "sample_id"),
        score_of(where, key, evaluation[key]),
        check=text_at(line, "sample_hash"),
        prompt=shortened(dict_at(line, "input").get("raw")),
    )


def _configs(path: Path) -> dict[str, Record]:
    """What is known of each result of the run, by its id and by its name."""
    about = _beside(path, f"{path.stem.removesuffix('_samples')}.json")
    configs: dict[str, Record] = {}
    for result in list_at(about, "evaluation_results"):
        for key in ("evaluation_result_id", "evaluation_name"):
            if text_at(result, key):
                configs.setdefault(result[key], dict_at(result, "metric_config"))
    return configs


FORMATS = (
    EvalFormat(
        "lm-evaluation-harness",
        lambda path, _: _SAMPLES.match(path.name) is not None,
        _read_lm_eval,
    ),
    EvalFormat("Inspect", _is_inspect, _read_inspect),
    EvalFormat("HELM", lambda path, _: path.name == "per_instance_stats.json", _read_helm),
    EvalFormat("every-eval-ever", _is_every_eval_ever, _read_every_eval_ever),
)
