"""Logs of language-model evaluations as one record of scores. Nothing is unpickled; each format is one file here.

To add a format, write a file that defines an `EvalFormat`, and add it to `FORMATS`; CONTRIBUTING.md has the recipe.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.evals.base import EvalFormat, Log, Wanted, first_bytes, known_direction
from relfit.data.evals.every_eval_ever import EVERY_EVAL_EVER
from relfit.data.evals.helm import HELM
from relfit.data.evals.inspect import INSPECT
from relfit.data.evals.lm_eval import LM_EVAL
from relfit.data.files.base import check_plain
from relfit.data.losses import LossTable, loss_table
from relfit.util.arrays import Array
from relfit.util.checks import check_whole
from relfit.util.errors import InputError
from relfit.util.libraries import needed
from relfit.util.text import is_text, listed

if TYPE_CHECKING:
    import pandas

FORMATS: tuple[EvalFormat, ...] = (LM_EVAL, INSPECT, HELM, EVERY_EVAL_EVER)
_SUFFIXES = (".jsonl", ".eval", ".json")


@dataclass(frozen=True, eq=False)
class Evals:
    """The scores of several models on the items of some tasks, one entry for each score.

    Attributes:
        model, task, item: what was scored; an item is known by its task and its own name or number.
        score: (n,) scores; NaN where an item was not scored, which is not the same as wrong.
        epoch: (n,) which repetition of the item it was, counted from 1.
        metric: what the scores are called.
        higher_is_better: True if a larger score is better.
        prompts: the prompt of each (task, item), where the log has it; long ones are cut.
        notes: sentences about how the logs were read.
    """

    model: tuple[str, ...] = field(repr=False)
    task: tuple[str, ...] = field(repr=False)
    item: tuple[str, ...] = field(repr=False)
    score: Array = field(repr=False)
    epoch: NDArray[np.int64] = field(repr=False)
    metric: str
    higher_is_better: bool = True
    prompts: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "score", np.asarray(self.score, dtype=float))
        object.__setattr__(self, "epoch", np.asarray(self.epoch, dtype=np.int64))
        lengths = {name: len(getattr(self, name)) for name in ("model", "task", "item", "score", "epoch")}
        if len(set(lengths.values())) > 1:
            raise InputError(f"score: expected a model, a task, an item and an epoch for each score, got {lengths}")

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models, in the order of the logs."""
        return tuple(dict.fromkeys(self.model))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, in the order of the logs."""
        return tuple(dict.fromkeys(self.task))

    def scores(self) -> dict[str, dict[tuple[str, str], float]]:
        """Model → (task, item) → the mean score of the epochs that were scored; items without one are left out."""
        sums: dict[str, dict[tuple[str, str], list[float]]] = {name: {} for name in self.models}
        for model, task, item, score in zip(self.model, self.task, self.item, self.score.tolist(), strict=True):
            if score == score:  # not NaN
                sums[model].setdefault((task, item), []).append(score)
        return {model: {key: sum(held) / len(held) for key, held in items.items()} for model, items in sums.items()}

    def matrix(self) -> tuple[tuple[tuple[str, str], ...], Array]:
        """The (task, item) of every row, and (items, models) mean scores; NaN where a model has none."""
        scores = self.scores()
        keys = tuple(dict.fromkeys(zip(self.task, self.item, strict=True)))
        columns = [[held.get(key, np.nan) for key in keys] for held in scores.values()]
        return keys, np.array(columns, dtype=float).T.reshape(len(keys), len(scores))

    def differing(self, worse: str, better: str, most: int = 20) -> list[dict[str, Any]]:
        """The items on which `better` beats `worse`, the clearest first: task, item, both scores and the prompt.

        Of scores that are 0 or 1 these are the items that the better model solves and the worse one does not.
        """
        check_whole("most", most, 1)
        scores = self.scores()
        for argument, name in (("worse", worse), ("better", better)):
            if name not in scores:
                raise InputError(f"{argument}: expected one of {listed(self.models, 'or', quote=repr)}, got {name!r}")
        sign = 1.0 if self.higher_is_better else -1.0
        losing, winning = scores[worse], scores[better]
        gaps = {key: sign * (winning[key] - score) for key, score in losing.items() if key in winning}
        keys = sorted((key for key, gap in gaps.items() if gap > 0.0), key=lambda key: -gaps[key])
        return [
            {
                "task": task,
                "item": item,
                "worse": losing[task, item],
                "better": winning[task, item],
                "prompt": self.prompts.get((task, item)),
            }
            for task, item in keys[:most]
        ]

    def to_frame(self) -> pandas.DataFrame:
        """The scores as a pandas frame with the columns model, task, item, epoch and score."""
        columns = {"model": self.model, "task": self.task, "item": self.item, "epoch": self.epoch, "score": self.score}
        frame: pandas.DataFrame = needed("to_frame", "pandas", (2, 1)).DataFrame(columns)
        return frame


def evals_table(evals: Evals) -> LossTable:
    """The scores on the items that all models have; several tasks are strata."""
    keys, scores = evals.matrix()
    strata = [task for task, _ in keys] if len(evals.tasks) > 1 else None
    table = loss_table(scores, names=evals.models, strata=strata)
    complete = ~np.isnan(scores).any(axis=1)
    return replace(table, items=np.array([item for _, item in keys], dtype=object)[complete])


def read_evals(paths: Any, *, task: Any = None, metric: str | None = None, filter: str | None = None) -> Evals:
    """Read logs of lm-evaluation-harness, Inspect, HELM or every-eval-ever, of any number of models and tasks.

    Args:
        paths: a file or a folder, in which all logs are found, or several; or a mapping that gives the run or the runs
            under each path a model's name of your own.
        task: the tasks that are read, as one name or several; ``mmlu_*`` is a pattern. None reads all.
        metric: the score that is read; by default the first one that is a number.
        filter: of lm-evaluation-harness, the filter of the answers, by default the first; of HELM, the split or the
            perturbation.

    Items are known by their task and their own name or number. Where the logs have a hash of the question, or the
    question, it must be the same in all of them.
    """
    for argument, value in (("metric", metric), ("filter", filter)):
        if value is not None and not is_text(value):
            raise InputError(f"{argument}: expected a name or None, got {type(value).__name__}")
    tasks = (
        None if task is None else (task,) if isinstance(task, str) or not isinstance(task, Iterable) else tuple(task)
    )
    if tasks is not None and not all(map(is_text, tasks)):
        raise InputError("task: expected a name, several or None, got something else")
    found = list(_found(paths))
    logs = _logs(found, Wanted(tasks, metric, filter))
    if not logs:
        there = sorted({log.task for log in _logs(found, Wanted())}) or ["no task"]
        raise InputError(
            f"task: expected {listed(there, 'or', most=8, quote=repr)}, got {listed(tasks or ['none'], quote=repr)}"
        )
    _check_runs(logs)
    direction, said = _direction(logs)
    return Evals(
        model=tuple(log.model for log in logs for _ in log.scores),
        task=tuple(log.task for log in logs for _ in log.scores),
        item=tuple(each.item for log in logs for each in log.scores),
        score=np.array([each.score for log in logs for each in log.scores]),
        epoch=np.array([each.epoch for log in logs for each in log.scores]),
        metric=listed(list(dict.fromkeys(log.metric for log in logs)), quote=str),
        higher_is_better=direction,
        prompts={(log.task, each.item): each.prompt for log in logs for each in log.scores if each.prompt is not None},
        notes=(*_notes(logs), *said),
    )


def _found(paths: Any) -> Iterator[tuple[str | None, Path, EvalFormat]]:
    """The logs under the paths, each once, with the name that was given to its model."""
    if isinstance(paths, Mapping):
        named = [(name, path) for name, held in paths.items() for path in _several(held)]
    else:
        named = [(None, path) for path in _several(paths)]
    if not named:
        raise InputError("paths: expected at least one file or folder, got none")
    seen = set()
    for name, path in named:
        if name is not None and not (is_text(name) and name):
            raise InputError(f"paths: expected a mapping of names to files or folders, got {name!r} as a name")
        source = Path(os.fsdecode(path))
        if source.is_dir():
            inside = [each for each in sorted(source.rglob("*")) if each.suffix.lower() in _SUFFIXES and each.is_file()]
            files = [(each, format) for each in inside if (format := _format(each)) is not None]
            if not files:
                raise InputError(f"{source}: expected a folder with logs of {_formats()}, got none")
        else:
            check_plain(source)
            format = _format(source)
            if format is None:
                raise InputError(f"{source}: expected a log of {_formats()}, got another file")
            files = [(source, format)]
        for file, format in files:
            if (real := os.path.realpath(file)) not in seen:
                seen.add(real)
                yield name, file, format


def _several(paths: Any) -> Iterable[Any]:
    held = (
        (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths) if isinstance(paths, Iterable) else (None,)
    )
    if not all(isinstance(path, str | os.PathLike) for path in held):
        raise InputError("paths: expected files or folders, or a mapping of names to them, got something else")
    return held


def _format(path: Path) -> EvalFormat | None:
    head = first_bytes(path)
    return next((format for format in FORMATS if format.is_log(path, head)), None)


def _formats() -> str:
    return listed([format.name for format in FORMATS], "or", most=len(FORMATS), quote=str)


def _logs(found: Sequence[tuple[str | None, Path, EvalFormat]], wanted: Wanted) -> list[Log]:
    """The logs of the wanted tasks, of each model under the name that was given to it."""
    logs = []
    models: dict[str, str] = {}
    for name, path, format in found:
        for log in format.read(path, wanted):
            for what, given in (("a model", log.model), ("a task", log.task)):
                if not is_text(given) or not given.strip():
                    raise InputError(f"{path}: expected the name of {what}, got {given!r}; correct it in the log")
            if name is not None and models.setdefault(name, log.model) != log.model:
                both = f"{models[name]!r} and {log.model!r}"
                raise InputError(f"{path}: expected runs of one model under the name {name!r}, got {both}")
            logs.append(log if name is None else replace(log, model=name))
    return logs


def _check_runs(logs: Sequence[Log]) -> None:
    """Refuse two runs of a model, an item twice, and items that are not the same question in all runs."""
    runs: dict[tuple[str, str], Log] = {}
    firsts: dict[str, Log] = {}
    questions: dict[tuple[str, str], tuple[str, Log]] = {}
    for log in logs:
        first = runs.setdefault((log.model, log.task), log)
        if first is not log:
            raise InputError(
                f"{log.path}: is a second run of {log.model!r} on {log.task!r}, besides {first.path}; leave one "
                "out, or give each run a name of its own"
            )
        (again, times), *_ = Counter((each.item, each.epoch) for each in log.scores).most_common(1) or [(("", 0), 1)]
        if times > 1:
            raise InputError(
                f"{log.path}: expected each item once, got {again[0]!r:.60} {times} times; remove the copies"
            )
        first = firsts.setdefault(log.task, log)
        if first.metric != log.metric:
            raise InputError(
                f"metric: expected one for {log.task!r}, got {first.metric!r} in {first.path} and {log.metric!r} in "
                f"{log.path}; choose one"
            )
        other = [
            each.item
            for each in log.scores
            if each.check and questions.setdefault((log.task, each.item), (each.check, log))[0] != each.check
        ]
        if other:
            before = questions[log.task, other[0]][1]
            raise InputError(
                f"{log.path}: item {other[0]!r:.60} of {log.task!r} is not the same question as in {before.path} ("
                f"{len(other)} of {len(log.scores)} items differ); compare runs on the same data"
            )


def _direction(logs: Sequence[Log]) -> tuple[bool, list[str]]:
    """Whether larger scores are better, which all logs must agree on, and a note where no log says so."""
    said = [known_direction(log.metric) if log.higher_is_better is None else log.higher_is_better for log in logs]
    better = [known is not False for known in said]
    if len(set(better)) > 1:
        up, down = logs[better.index(True)], logs[better.index(False)]
        raise InputError(
            f"metric: expected scores of one direction, got {up.metric!r} of {up.task!r}, better when larger, and "
            f"{down.metric!r} of {down.task!r}, better when smaller; choose a metric or tasks"
        )
    unknown = list(dict.fromkeys(log.metric for log, known in zip(logs, said, strict=True) if known is None))
    if not unknown:
        return better[0], []
    metrics = listed(unknown, "or", quote=str)
    return True, [f"the logs do not say whether a larger {metrics} is better; it was assumed to be"]


def _notes(logs: Sequence[Log]) -> list[str]:
    """What the logs hold besides, how many scores are missing, and what the formats noted."""
    notes = list(dict.fromkeys(note for log in logs for note in log.notes))
    besides: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for log in logs:
        if log.others:
            besides.setdefault((log.metric, log.others), []).append(log.task)
    for (metric, others), tasks in besides.items():
        scored = listed(list(dict.fromkeys(tasks)), quote=str)
        notes.append(f"{scored}: scored by {metric}; the logs also have {listed(others, most=6, quote=str)}")
    unscored = Counter(log.model for log in logs for each in log.scores if each.score != each.score)
    if unscored:
        counts = listed([f"{count} of {model}" for model, count in unscored.items()], quote=str)
        notes.append(f"scores that are missing in the logs: {counts}")
    return notes
