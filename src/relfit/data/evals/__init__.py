"""Logs of language-model evaluations as one record of scores. Nothing is unpickled.

To add a format, define an `EvalFormat` in `formats.py`; CONTRIBUTING.md has the recipe.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from relfit.data.evals.base import SETTINGS, EvalFormat, Log, Wanted, differences
from relfit.data.evals.formats import FORMATS
from relfit.data.files.base import check_plain
from relfit.data.metrics import told_direction
from relfit.data.repeats import (
    by_level,
    check_levels,
    is_dense,
    mean_levels,
    mean_scores,
    occurrences,
    run_note,
)
from relfit.data.scored import Scores
from relfit.util.checks import check_choice
from relfit.util.errors import InputError, way
from relfit.util.text import as_name, is_text, listed, visible

_SUFFIXES = (".jsonl", ".eval", ".json")
# What tables of scores are called, which are no logs.
_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
_FORMATS = listed([format.name for format in FORMATS], "or", quote=str)
RUNS = ("newest", "all", "random")
# The name given to the model, the file, its format, and whether the file itself was given
# instead of a folder.
_Found = tuple[str | None, Path, EvalFormat, bool]


def read_evals(
    paths: Any,
    *,
    task: Any = None,
    metric: str | None = None,
    filter: str | None = None,
    runs: str = "newest",
    allow_different: Any = (),
) -> Scores:
    """Read logs of lm-evaluation-harness, Inspect, HELM or every-eval-ever, of any number of
    models and tasks.

    Args:
        paths: a file or a folder, in which all logs are found, or several; or a mapping that
            gives the run or the runs under each path a model's name of your own.
        task: the tasks that are read, as one name or several; ``mmlu_*`` is a pattern. None
            reads all.
        metric: the score that is read; by default the first one that is a number.
        filter: of lm-evaluation-harness, the filter of the answers, by default the first; of
            HELM, the split or the perturbation.
        runs: "newest" reads the newest of several runs of a model on a task in one folder;
            "all" reads all of them, and an item's score is the mean over the runs; "random"
            takes them for a random sample of the model's training runs (at least 2 of each
            model), so that verdicts are about the methods.
        allow_different: settings that may differ between the runs, as one name or several:
            "shots", "version", "arguments", "solver", "chat-template", "system",
            "generation" or "prompts". Other differences that the logs record are `doubts`,
            for which a gate raises an error.

    Items are known by their task and their own name or number. Where the logs have a hash of
    the question, or the question, it must be the same in all of them. In a folder, runs that
    did not finish are left out.

    Returns:
        `Scores`: a row for each item that a log names, NaN where a model has no score for
        it. Several tasks are strata. Repetitions of an item are averaged.
    """
    for argument, value in (("metric", metric), ("filter", filter)):
        if value is not None and not is_text(value):
            raise InputError(f"{argument}: expected a name or None, got {type(value).__name__}")
    tasks = None if task is None else _several(task)
    allowed = _several(allow_different)
    for argument, names in (("task", tasks or ()), ("allow_different", allowed)):
        if not all(map(is_text, names)):
            raise InputError(
                f"{argument}: expected a name, several or None, got something else"
            )
    for name in allowed:
        check_choice("allow_different", name, tuple(SETTINGS))
    check_choice("runs", runs, RUNS)
    found = list(_found(paths))
    logs, left_out = _logs(found, Wanted(tasks, metric, filter))
    if not logs and left_out:
        raise InputError(
            f"{left_out[0].path}: expected a finished run with scores, but "
            f"{left_out[0].unfinished}"
        )
    if not logs:
        there = sorted({log.task for log in _logs(found, Wanted())[0]}) or ["no task"]
        raise InputError(
            f"task: expected {listed(there, 'or', most=8, quote=repr)}, got "
            f"{listed(tasks or ['none'], quote=repr)}"
        )
    logs, of_runs = _chosen_runs(logs, runs)
    _check_runs(logs)
    better, told = _direction(logs)
    unfinished, doubts = _unfinished(logs, left_out)
    different, unlike = differences(logs, allowed)
    metric = listed(list(dict.fromkeys(log.metric for log in logs)), quote=str)
    scores = _as_scores(logs, runs == "random")
    return replace(
        scores,
        metric=metric,
        higher_is_better=better,
        notes=(
            f"the score is {metric}",
            *_notes(logs),
            *scores.notes,
            *told,
            *of_runs,
            *unfinished,
            *different,
        ),
        doubts=(*doubts, *unlike),
    )


def _as_scores(logs: Sequence[Log], random: bool) -> Scores:
    """The mean scores of every model on every item of the logs; with `random` those of each
    run, too.
    """
    models = {name: k for k, name in enumerate(dict.fromkeys(log.model for log in logs))}
    prompts: dict[tuple[str, str], str | None] = {}
    for log in logs:
        for each in log.scores:
            key = log.task, each.item
            prompts[key] = each.prompt or prompts.get(key)
    rows = {key: k for k, key in enumerate(prompts)}
    places = [
        rows[log.task, each.item] * len(models) + models[log.model]
        for log in logs
        for each in log.scores
    ]
    numbers = [each.score for log in logs for each in log.scores]
    place = np.array(places, np.intp)
    values = np.array(numbers, float)
    shape = (len(rows), len(models))
    means, counts = mean_scores(place, values, shape)
    most = int(counts.max(initial=1))
    cube = None
    notes: tuple[str, ...] = ()
    if random:
        level = np.repeat(_run_numbers(logs), [len(log.scores) for log in logs])
        cube = by_level("run", place, values, shape, level)
        check_levels("run", cube, tuple(models), ())
        means = mean_levels(cube)
    elif most > 1 and is_dense(shape, most, len(values)):
        repeated = by_level("run", place, values, shape, occurrences(place))
        differ = run_note(repeated, tuple(models), way("--runs random", 'runs="random"'))
        notes = () if differ is None else (differ,)
    tasks = [task for task, _ in prompts]
    return Scores(
        tuple(models),
        means,
        items=np.array([item for _, item in prompts], dtype=object),
        strata=np.array(tasks) if len(set(tasks)) > 1 else None,
        prompts=np.array(list(prompts.values()), dtype=object),
        outputs=_outputs(logs, rows, models),
        boards=tuple(_boards(logs)),
        repeats=most,
        runs=cube,
        notes=notes,
        part=("task", "tasks"),
    )


def _run_numbers(logs: Sequence[Log]) -> list[int]:
    """The number of each log among those of its model and task, by date."""
    order = sorted(range(len(logs)), key=lambda k: (logs[k].date, str(logs[k].path)))
    seen: Counter[tuple[str, str]] = Counter()
    numbers = [0] * len(logs)
    for k in order:
        numbers[k] = seen[logs[k].model, logs[k].task]
        seen[logs[k].model, logs[k].task] += 1
    return numbers


def _outputs(
    logs: Sequence[Log], rows: Mapping[tuple[str, str], int], models: Mapping[str, int]
) -> Any:
    """(items, models) what each model answered, the last time; None if no log has outputs."""
    held = np.full((len(rows), len(models)), None, dtype=object)
    for log in logs:
        for each in log.scores:
            held[rows[log.task, each.item], models[log.model]] = each.output
    return held if any(text is not None for text in held.ravel()) else None


def _boards(logs: Sequence[Log]) -> Iterator[tuple[str, str, float, float, int]]:
    """What `Scores.boards` holds, of scores from 0 to 1: other summaries may be no means."""
    for log in logs:
        known = [each.score for each in log.scores if each.score == each.score]
        fractions = known and min(known) >= 0.0 and max(known) <= 1.0
        if log.board is not None and fractions:
            yield log.task, log.model, log.board, sum(known) / len(known), len(known)


def _several(value: Any) -> tuple[Any, ...]:
    """Several values, or a single one."""
    single = isinstance(value, str | os.PathLike) or not isinstance(value, Iterable)
    return (value,) if single else tuple(value)


def _found(paths: Any) -> Iterator[_Found]:
    """The logs under the paths, each once, with the name that was given to its model."""
    held = paths if isinstance(paths, Mapping) else {None: paths}
    named = [(as_name(name), path) for name, some in held.items() for path in _several(some)]
    if not named:
        raise InputError("paths: expected at least one file or folder, got none")
    if not all(isinstance(path, str | os.PathLike) for _, path in named):
        raise InputError(
            "paths: expected files or folders, or a mapping of names to them, "
            "got something else"
        )
    seen = set()
    for name, path in named:
        if isinstance(paths, Mapping) and not (is_text(name) and name):
            raise InputError(
                f"paths: expected a mapping of names to files or folders, got "
                f"{name!r} as a name"
            )
        source = Path(os.fsdecode(path))
        if source.is_dir():
            inside = [
                each
                for each in sorted(source.rglob("*"))
                if each.suffix.lower() in _SUFFIXES and each.is_file()
            ]
            files = [(each, format) for each in inside if (format := _format(each)) is not None]
            if not files:
                raise InputError(
                    f"{source}: expected a folder with logs of {_FORMATS}, got "
                    f"none{_advice(source)}"
                )
        else:
            check_plain(source)
            format = _format(source)
            if format is None:
                raise InputError(
                    f"{source}: expected a log of {_FORMATS}, got another file{_advice(source)}"
                )
            files = [(source, format)]
        for file, format in files:
            if (real := os.path.realpath(file)) not in seen:
                seen.add(real)
                yield name, file, format, file == source


def _advice(path: Path) -> str:
    """What to do with a file that is no log, or with a folder without logs, by the first file
    in it that holds averages or may be a table of scores.
    """
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else []
    files = files or [path]
    for file in files:
        if file.name.startswith("results") and file.suffix.lower() == ".json":
            return (
                f"; {file.name} has averages only: pass samples_*.jsonl, which lm_eval writes "
                f"beside that file with --log_samples"
            )
    table = next((file for file in files if file.suffix.lower() in _TABLES), None)
    if table is None:
        return ""
    name = visible(str(table))
    command = f"relfit losses {shlex.quote(name)} --item COLUMN --model COLUMN --score COLUMN"
    call = f'relfit.compare_losses({name!r}, item="column", model="column", score="column")'
    return f"; for a table of scores use  {way(command, call)}"


def _format(path: Path) -> EvalFormat | None:
    """The format of a log, by its name and its first bytes."""
    try:
        with path.open("rb") as stream:
            head = stream.read(2**16)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    return next((format for format in FORMATS if format.is_log(path, head)), None)


def _logs(found: Sequence[_Found], wanted: Wanted) -> tuple[list[Log], list[Log]]:
    """The logs of the wanted tasks, of each model under the name that was given to it, and
    those that are left out.

    A log in a folder that is not complete is left out; one without scores that was named
    itself is refused.
    """
    logs: list[Log] = []
    left_out: list[Log] = []
    models: dict[str, str] = {}
    for name, path, format, itself in found:
        for log in format.read(path, wanted):
            for what, given in (("a model", log.model), ("a task", log.task)):
                if not is_text(given) or not given.strip():
                    raise InputError(
                        f"{path}: expected the name of {what}, got {given!r}; "
                        f"correct it in the log"
                    )
            if name is not None and models.setdefault(name, log.model) != log.model:
                both = f"{models[name]!r} and {log.model!r}"
                raise InputError(
                    f"{path}: expected runs of one model under the name {name!r}, got {both}"
                )
            log = log if name is None else replace(log, model=name)
            kept = not log.unfinished or (itself and len(log.scores) > 0)
            (logs if kept else left_out).append(log)
    return logs, left_out


def _chosen_runs(logs: Sequence[Log], runs: str) -> tuple[list[Log], list[str]]:
    """Of several runs of a model on a task the newest, or all of them as repetitions, and
    notes on it.
    """
    groups: dict[tuple[str, str], list[Log]] = {}
    for log in logs:
        groups.setdefault((log.model, log.task), []).append(log)
    chosen: list[Log] = []
    repeated: dict[str, list[Log]] = {}
    for (model, task), held in groups.items():
        newest = max(held, key=lambda log: log.date)
        if len(held) > 1:
            repeated.setdefault(model, []).append(newest)
        if runs != "newest":
            chosen += held
            continue
        dates = {log.date for log in held}
        places = {log.path.parent for log in held}
        if len(held) > 1 and not (len(dates) == len(held) and all(dates) and len(places) == 1):
            raise InputError(
                f"{held[1].path}: is a second run of {model!r} on {task!r}, besides "
                f"{held[0].path}; leave one out, "
                "give each run a name of its own, or average them with runs='all'"
            )
        chosen.append(newest)
    notes = []
    for model, latest in repeated.items():
        tasks = listed([log.task for log in latest], most=3, quote=str)
        used = "an item's score is the mean over the runs"
        if runs == "random":
            used = "they are taken for a random sample of its training runs"
        if runs == "newest":
            date = max(log.date for log in latest)
            used = f"the newest was read ({date}); runs='all' averages over the runs"
        notes.append(f"{model} has several runs of {tasks}; {used}")
    return chosen, notes


def _unfinished(logs: Sequence[Log], left_out: Sequence[Log]) -> tuple[list[str], list[str]]:
    """Notes on runs that did not finish, and which of them are doubts: all but those that
    another run replaces.
    """
    there = {(log.model, log.task) for log in logs}
    notes: list[str] = []
    doubts: list[str] = []
    for log in left_out:
        advice = (
            "run it again, or pass the file itself to use its scores"
            if log.scores
            else "run it again"
        )
        notes.append(
            f"{visible(str(log.path))} of {log.model} was left out, because "
            f"{log.unfinished}; {advice}"
        )
        if (log.model, log.task) not in there:
            doubts.append(notes[-1])
    for log in logs:
        if log.unfinished:
            notes.append(
                f"{visible(str(log.path))} may lack items, because {log.unfinished}; "
                f"run it again"
            )
            doubts.append(notes[-1])
    return notes, doubts


def _check_runs(logs: Sequence[Log]) -> None:
    """Refuse an item twice, and items that are not the same question in all runs."""
    firsts: dict[str, Log] = {}
    questions: dict[tuple[str, str], tuple[str, Log]] = {}
    for log in logs:
        times = Counter((each.item, each.epoch) for each in log.scores)
        for (item, _), count in times.most_common(1):
            if count > 1:
                raise InputError(
                    f"{log.path}: expected each item once, got {item!r:.60} {count} times; "
                    f"remove the copies"
                )
        first = firsts.setdefault(log.task, log)
        if first.metric != log.metric:
            raise InputError(
                f"metric: expected one for {log.task!r}, got {first.metric!r} in {first.path} "
                f"and {log.metric!r} in "
                f"{log.path}; choose one"
            )
        other = [
            each.item
            for each in log.scores
            if each.check
            and questions.setdefault((log.task, each.item), (each.check, log))[0] != each.check
        ]
        if other:
            before = questions[log.task, other[0]][1]
            raise InputError(
                f"{log.path}: item {other[0]!r:.60} of {log.task!r} is not the same question "
                f"as in {before.path} ("
                f"{len(other)} of {len(log.scores)} items differ); compare runs on the "
                f"same data"
            )


def _direction(logs: Sequence[Log]) -> tuple[bool | None, list[str]]:
    """Whether larger scores are better, which all logs must agree on, and a note where only
    the name tells it.
    """
    known: dict[bool | None, Log] = {}
    told: dict[str, None] = {}
    for log in logs:
        better = log.higher_is_better
        if better is None:
            numbers = [each.score for each in log.scores if each.score == each.score] or [0.0]
            better, why = told_direction(log.metric, min(numbers), max(numbers))
            if better is not None:
                told[why] = None
        known.setdefault(better, log)
    if True in known and False in known:
        up = known[True]
        down = known[False]
        raise InputError(
            f"metric: expected scores of one direction, got {up.metric!r} of {up.task!r}, "
            f"better when larger, and "
            f"{down.metric!r} of {down.task!r}, better when smaller; choose a metric or tasks"
        )
    return None if None in known else next(iter(known)), list(told)


def _notes(logs: Sequence[Log]) -> list[str]:
    """What the logs hold besides, how many scores are missing, and what the formats noted."""
    notes = list(dict.fromkeys(note for log in logs for note in log.notes))
    besides: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for log in logs:
        others = tuple(name for name in log.metrics if name != log.metric)
        if others:
            besides.setdefault((log.metric, others), []).append(log.task)
    for (metric, others), tasks in besides.items():
        scored = listed(list(dict.fromkeys(tasks)), quote=str)
        notes.append(
            f"{scored}: scored by {metric}; the logs also have "
            f"{listed(others, most=6, quote=str)}"
        )
    unscored = Counter(
        log.model for log in logs for each in log.scores if each.score != each.score
    )
    if unscored:
        counts = listed([f"{count} of {model}" for model, count in unscored.items()], quote=str)
        notes.append(f"scores that are missing in the logs: {counts}")
    return notes
