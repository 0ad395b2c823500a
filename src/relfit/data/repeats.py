"""Several scores of a model for one item: training runs of a method, judges of one answer,
repetitions without a name.

A run belongs to one model: run 1 of a model has nothing to do with run 1 of another. A judge
scores all models. Scores are in arrays (n, l, k) of n items, l models and k runs or judges,
with NaN for a model that has fewer runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import gammaincc

from relfit.data.arrays import as_rows
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.errors import InputError
from relfit.util.text import is_text, listed

# Unnamed repetitions that differ from run to run with a smaller p-value, over all models
# together, have a note.
NOTE_LEVEL = 1e-3
# An array of items, models and runs has at most so many cells for each score, or so many.
SPARSEST = 20
SMALL_CUBE = 2**20
_MOST_NAMES = 6


def mean_scores(place: Rows, values: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The means of the values with each place, NaN where there are none, and their numbers."""
    size = int(np.prod(shape))
    there = ~np.isnan(values)
    counts = np.bincount(place[there], minlength=size).astype(float)
    totals = np.bincount(place[there], weights=values[there], minlength=size)
    means = np.divide(totals, counts, out=np.full(size, np.nan), where=counts > 0.0)
    return means.reshape(shape), counts.reshape(shape)


def by_level(
    role: str, place: Rows, values: Array, shape: tuple[int, int], level: Rows
) -> Array:
    """(n, l, k) mean scores; `place` is that of an item and model, `level` the run or judge."""
    count = int(level.max(initial=0)) + 1
    if not is_dense(shape, count, len(values)):
        raise InputError(
            f"{role}: expected {role}s with scores of many items, got {count} {role}s and "
            f"{len(values)} scores of {shape[0]} items"
        )
    return mean_scores(place * count + level, values, (*shape, count))[0]


def is_dense(shape: tuple[int, int], levels: int, count: int) -> bool:
    """True if so many scores fill a fair part of an array of items, models and levels."""
    return shape[0] * shape[1] * levels <= SPARSEST * count + SMALL_CUBE


def run_levels(runs: Rows, models: Rows) -> Rows:
    """The number of each row's run among the runs of its model, in the order of their labels."""
    pairs = np.stack([models, runs], axis=1)
    different, code = np.unique(pairs, axis=0, return_inverse=True)
    _, first = np.unique(different[:, 0], return_index=True)
    return np.asarray((code - first[different[:, 0]][code]).ravel())


def occurrences(place: Rows) -> Rows:
    """0 for the first row of each place, 1 for its second, and so on.

    >>> occurrences(np.array([5, 7, 5, 5, 7])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(place, kind="stable")
    held = place[order]
    starts = np.flatnonzero(np.append(True, held[1:] != held[:-1]))
    number = np.arange(len(place)) - np.repeat(starts, np.diff(np.append(starts, len(place))))
    found = np.empty(len(place), dtype=np.intp)
    found[order] = number
    return found


def is_level(table: Array) -> Mask:
    """(l, k) True for the runs that a model has."""
    return np.asarray(~np.isnan(table).all(axis=0))


def is_incomplete(table: Array) -> Mask:
    """(n,) True for the items that lack a score of some run or judge."""
    return np.asarray((np.isnan(table) & is_level(table)).any(axis=(1, 2)))


def check_levels(role: str, table: Array, names: Sequence[str], labels: Sequence[str]) -> None:
    """Refuse a model with a single run, and a judge who does not score all models.

    `labels` are the judges; runs have labels of their own in each model.
    """
    there = is_level(table)
    counts = there.sum(axis=1)
    scored = counts > 0
    if role == "judge":
        lacking = np.argwhere(~there & scored[:, None])
        if len(lacking):
            model, judge = lacking[0].tolist()
            raise InputError(
                f"judge: expected every judge to score every model, got no score of "
                f"{names[model]!r} by {labels[judge]!r}; leave out that judge or that model"
            )
    few = [name for name, count in zip(names, counts.tolist(), strict=True) if count == 1]
    if few:
        who = "every model" if len(few) == len(names) else listed(few, quote=repr)
        advice = "leave out run= to compare these runs" if role == "run" else "leave out judge="
        raise InputError(
            f"{role}: expected at least 2 {role}s of each model, got one of {who}; {advice}"
        )


def mean_levels(cube: Array) -> Array:
    """(n, l) means over the runs or judges that a model has; NaN where it has none."""
    there = ~np.isnan(cube)
    counts = there.sum(axis=2)
    totals = np.where(there, cube, 0.0).sum(axis=2)
    means: Array = np.divide(
        totals, counts, out=np.full(counts.shape, np.nan), where=counts > 0
    )
    return means


def levels_of(source: Any) -> tuple[Any, Array | None]:
    """The mean scores and the array (n, l, k) of an array of three dimensions, or of a mapping
    of models to lists of k runs; any other source unchanged, and None.
    """
    if getattr(source, "ndim", None) == 3:
        n, count, levels = source.shape
        flat = as_rows("losses", np.asarray(source).reshape(n, count * levels), missing=True)
        cube = flat.reshape(n, count, levels)
        return mean_levels(cube), cube
    if not isinstance(source, Mapping):
        return source, None
    lists = {name: _runs(f"losses[{name!r}]", column) for name, column in source.items()}
    if all(each is None for each in lists.values()):
        return source, None
    columns = [
        as_rows(f"losses[{name!r}]", source[name], missing=True) if each is None else each
        for name, each in lists.items()
    ]
    if len({len(column) for column in columns}) > 1:
        return source, None
    most = max(column.shape[1] for column in columns)
    cube = np.full((len(columns[0]), len(columns), most), np.nan)
    for j, column in enumerate(columns):
        cube[:, j, : column.shape[1]] = column
    return dict(zip(lists, mean_levels(cube).T, strict=True)), cube


def _runs(argument: str, column: Any) -> Array | None:
    """(n, k) scores if a model's value is a list of k runs of n > 1 scores each; else None."""
    if not isinstance(column, list | tuple) or not column:
        return None
    if any(is_text(run) or np.ndim(run) != 1 or len(run) < 2 for run in column):
        return None
    lengths = [str(len(run)) for run in column]
    if len(set(lengths)) > 1:
        raise InputError(
            f"{argument}: expected as many scores in every run, got {listed(lengths, quote=str)}"
        )
    return np.hstack(
        [as_rows(f"{argument}[{k}]", run, missing=True) for k, run in enumerate(column)]
    )


def run_note(table: Array, names: Sequence[str], option: str = "") -> str | None:
    """A note if repetitions without a name differ as runs do: the means over all items differ
    by more than the items' own noise allows.

    For each model with k complete repetitions, with residuals from the means of items and of
    repetitions, Σ_r (m_r − m)²/(s²/n) has the χ² distribution with k − 1 degrees of freedom.
    """
    there = is_level(table)
    found = []
    smallest = 1.0
    for j, name in enumerate(names):
        own = table[:, j, there[j]]
        own = own[~np.isnan(own).any(axis=1)]
        n, count = own.shape
        if count < 2 or n < 20:
            continue
        means = own.mean(axis=0)
        rest = own - own.mean(axis=1, keepdims=True) - (means - means.mean())
        noise = float(np.square(rest).sum()) / ((n - 1) * (count - 1)) / n
        if noise <= 0.0:
            continue
        statistic = float(np.square(means - means.mean()).sum()) / noise
        p = float(gammaincc((count - 1) / 2.0, statistic / 2.0))
        if p * len(names) <= NOTE_LEVEL:
            found.append(f"{name!r} ({means.min():.3g} to {means.max():.3g})")
            smallest = min(smallest, p)
    if not found:
        return None
    advice = f"use {option}" if option else "name the column of the run with run="
    return (
        f"the mean scores of the repetitions differ by more than chance: "
        f"{listed(found, most=_MOST_NAMES, quote=str)} (p = {smallest:.1g}); the verdicts are "
        f"about the average of these repetitions. If they are training runs and the question "
        f"is about the methods, {advice}"
    )
