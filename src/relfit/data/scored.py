"""Scores of several models on the same items, as they were read: items that some model lacks,
units, and what errors say of them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from relfit.data.metrics import direction_needed, told_direction
from relfit.data.repeats import is_incomplete
from relfit.data.tables import is_key
from relfit.util.arrays import Array, Mask, Rows, extremes
from relfit.util.checks import check_number, check_whole
from relfit.util.errors import InputError, way
from relfit.util.text import listed, quoted

FEWEST_ITEMS = 20
# A model that lacks a larger fraction of the items than this is a doubt, and a larger fraction
# left out is explained.
MAX_MISSING = 0.05
# What becomes of items that some model has no score for; with "adjust" models that have
# scores of a smaller fraction of the items are left out.
MISSING = ("common", "adjust", "refuse")
MIN_COVERAGE = 0.5
# Scores of this size and below 1 / it are measured in a unit of their own: squares and cubes
# must fit into float64.
LARGEST_SCORE = 2.0**200
_BY_ITEM = (
    "values",
    "items",
    "strata",
    "groups",
    "crossed",
    "labels",
    "prompts",
    "outputs",
    "order",
    "runs",
    "judges",
)
_KEY = re.compile(r"(^|[_ ])(id|ids|idx|index|uid|uuid|key|item|no|number)$", re.IGNORECASE)
# (n,) keys, or labels of strata or groups.
Labels = NDArray[Any]
_BY_MODEL = ("values", "labels", "outputs", "runs", "judges")
_MOST_NAMES = 8


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """The scores of l models on n items, as `relfit.scores` read them.

    Attributes:
        names: the models.
        values: (n, l) as the user gave them divided by `unit`, whichever direction is better;
            NaN where there is none.
        items: (n,) keys of the items, or None.
        strata, groups: (n,) labels, or None.
        crossed: (n,) labels of a second way in which items depend on each other, or None.
        weights: the weight of each stratum, or None for equal ones.
        labels: (n, l) scores by people for some items, NaN for the others, divided by `unit`;
            or None.
        prompts: (n,) what was asked, or None.
        outputs: (n, l) what each model answered, None where that is not known; or None.
        boards: of logs, the task, the model, the number of the log's own summary, the mean of
            the items, and how many they are.
        order: (n,) where the items stand in the file that they are from; None if they are in
            its order.
        repeats: the most scores that one model has for one item; their mean is its score.
        runs, judges: (n, l, k) the scores of each training run of a model, or by each judge,
            NaN for the runs that a model does not have; or None. `values` are their means.
        missing: "common", "adjust" or "refuse", for items that some model has no score for.
        min_coverage: with "adjust", models that have scores of a smaller fraction of the items
            are left out.
        part: what a stratum is called, and several.
        metric: what the scores are called; None if that is not known.
        higher_is_better: whether larger scores are better; None if neither the user nor a name
            or a log tells.
        complete: True if every model has a score for every item; see `common`.
        unit: 1, or the power of 2 that very large or very small scores are measured in.
        notes: what the reader should know about how the scores were read.
        doubts: those of the notes that make verdicts unreliable.
    """

    names: tuple[str, ...]
    values: Array
    items: Labels | None = None
    strata: Labels | None = None
    groups: Labels | None = None
    weights: Mapping[Any, float] | None = None
    labels: Array | None = None
    prompts: Labels | None = None
    order: Rows | None = None
    crossed: Labels | None = None
    repeats: int = 1
    outputs: Labels | None = None
    boards: tuple[tuple[str, str, float, float, int], ...] = ()
    runs: Array | None = None
    judges: Array | None = None
    missing: str = MISSING[0]
    min_coverage: float = MIN_COVERAGE
    part: tuple[str, str] = ("stratum", "strata")
    metric: str | None = None
    higher_is_better: bool | None = None
    complete: bool = False
    unit: float = 1.0
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        models = listed(self.names, most=8, quote=repr)
        return f"Scores of {models} on {len(self.values)} items"

    def digest(self) -> str:
        """A digest of the models and their scores, the items in the order they are in."""
        digest = hashlib.sha256("\0".join(self.names).encode() + self.values.tobytes())
        for cube in (self.runs, self.judges):
            if cube is not None:
                digest.update(cube.tobytes())
        return digest.hexdigest()

    def lacking(self) -> Mask:
        """(n,) True for the items that lack a score of some model, or of a run or a judge."""
        lacking = np.isnan(self.values).any(axis=1)
        for cube in (self.runs, self.judges):
            if cube is not None:
                lacking |= is_incomplete(cube)
        return np.asarray(lacking)

    def of(self, models: Sequence[int] | Rows) -> Scores:
        """These models alone, by their places."""
        by_model = {name: getattr(self, name) for name in _BY_MODEL}
        kept = {name: x[:, models] for name, x in by_model.items() if x is not None}
        return replace(self, names=tuple(self.names[int(j)] for j in models), **kept)

    def noted(self, note: str, doubt: bool = False, **changes: Any) -> Scores:
        """The scores with one more note, which may be a doubt, and other changes."""
        doubts = (*self.doubts, note) if doubt else self.doubts
        return replace(self, notes=(*self.notes, note), doubts=doubts, **changes)

    def at(self, kept: Mask | Rows) -> Scores:
        """These items alone."""
        each = {name: getattr(self, name) for name in _BY_ITEM}
        return replace(self, **{name: x[kept] for name, x in each.items() if x is not None})

    def by_item(self) -> tuple[list[str], dict[str, Array]]:
        """The keys of the items in the order of their file, and each model's scores of them,
        as a `Monitor` needs.
        """
        if self.items is None:
            raise InputError(
                "item: expected scores with the keys of their items, got none; pass item= to "
                "relfit.scores"
            )
        if self.repeats > 1:
            raise InputError(
                f"item: expected one score for each item and model, got up to "
                f"{self.repeats} of one item"
            )
        for name in ("strata", "groups", "labels", "runs", "judges"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"losses: expected scores without {name}, which a monitor does not use; "
                    f"leave them out"
                )
        order = np.arange(len(self.values)) if self.order is None else np.argsort(self.order)
        columns = dict(zip(self.names, self.values[order].T, strict=True))
        return [as_text(key) for key in self.items[order].tolist()], columns

    def common(self, max_missing: float = MAX_MISSING) -> Scores:
        """The items that every model has a score for, checked and in a unit in which their
        cubes are numbers. With missing="adjust" items that some models lack are kept.

        A model that lacks a larger fraction of the items than `max_missing` is a doubt.
        """
        check_number(
            "max_missing",
            max_missing,
            0.0,
            math.nextafter(1.0, 2.0),
            "a fraction from 0 to 1",
            low_ok=True,
        )
        if self.complete:
            return self
        refuse_transposed(*self.values.shape)
        if self.missing == "adjust" and self.lacking().any():
            scores = _with_holes(self)
        else:
            scores = _without_missing(self, max_missing)
        _refuse_keys(scores)
        return replace(_in_unit(scores), complete=True)

    def differing(self, worse: str, better: str, most: int = 20) -> list[dict[str, Any]]:
        """The items on which `better` beats `worse`, the clearest first: stratum, item, both
        scores and the prompt.

        Of scores that are 0 or 1 these are the items that the better model solves and the
        worse one does not.
        """
        check_whole("most", most, 1)
        for argument, name in (("worse", worse), ("better", better)):
            if name not in self.names:
                raise InputError(
                    f"{argument}: expected one of "
                    f"{listed(self.names, 'or', quote=repr)}, got {name!r}"
                )
        losing, winning = (self.values[:, self.names.index(name)] for name in (worse, better))
        gaps = winning - losing if self.larger_is_better() else losing - winning
        ahead = np.flatnonzero(gaps > 0.0)
        ahead = ahead[np.argsort(-gaps[ahead], kind="stable")][:most]
        columns = {
            self.part[0]: self.strata,
            "item": self.items,
            "prompt": self.prompts,
            "worse": losing.tolist(),
            "better": winning.tolist(),
        }
        return [
            {name: None if column is None else column[k] for name, column in columns.items()}
            for k in ahead.tolist()
        ]

    def larger_is_better(self) -> bool:
        """`higher_is_better`; an error if that is not known."""
        if self.higher_is_better is None:
            raise direction_needed(told_direction(self.metric, *ends(self.values))[1])
        return self.higher_is_better


def as_text(cell: Any) -> str:
    """A cell as text, whole numbers without a point."""
    return f"{cell:.15g}" if isinstance(cell, float) else str(cell)


def refuse_transposed(n: int, count: int) -> None:
    """Refuse a table that has so few rows and so many columns that its rows must be models."""
    if n < FEWEST_ITEMS <= count:
        raise InputError(
            f"losses: expected a row for each item and a column for each model, got {n} rows "
            f"and {count} columns; if "
            f"rows are models, {way('use --transpose', 'pass losses.T')}"
        )


def ends(values: Array) -> tuple[float, float]:
    """The smallest and the largest score."""
    known = values[~np.isnan(values)]
    return extremes(known) if len(known) else (0.0, 0.0)


def _without_missing(table: Scores, max_missing: float) -> Scores:
    """The items that every model has a score for, with notes on how many were left out."""
    missing = np.isnan(table.values)
    lacking = table.lacking()
    kept = int((~lacking).sum())
    if table.missing == "refuse" and kept < len(lacking):
        raise InputError(
            f"missing: expected a score of every model for every item, got {len(lacking) - kept} "
            f"of {len(lacking)} items without some: {_held(table)}; score them, or use "
            f"{way('--missing common or --missing adjust', 'missing=common or adjust')}"
        )
    for name, cube in (("run", table.runs), ("judge", table.judges)):
        whole = 0 if cube is None else int((~is_incomplete(cube)).sum())
        if cube is not None and whole < FEWEST_ITEMS <= len(cube):
            raise InputError(
                f"{name}: expected at least {FEWEST_ITEMS} items with scores of every {name} "
                f"of every model, got {whole} of {len(cube)}"
            )
    if kept < FEWEST_ITEMS:
        n = len(missing)
        lost = ""
        if kept < n:
            advice = "score all models on the same items, or leave out a model"
            shared = int(((~missing).sum(axis=1) > 1).sum())
            if shared >= FEWEST_ITEMS:
                adjusted = way("--missing adjust", 'missing="adjust"')
                advice = f"score all models on the same items, or use {adjusted}"
            lost = (
                f" of {n}; the others have NaN or are missing for some model: "
                f"{_held(table)}; {advice}"
            )
        raise InputError(
            f"losses: expected at least {FEWEST_ITEMS} items (rows), got {kept}{lost}"
        )
    # A table in long form does not have the items that no model has a score for.
    there = np.asarray(~missing.all(axis=1))
    empty = int((~there).sum())
    if empty:
        table = table.noted(
            f"{empty} {_items_were(empty)} left out, for which no model has a score"
        )
    table = table.at(there)
    missing = missing[there]
    lacking = lacking[there]
    n = len(missing)
    dropped = n - kept
    if not dropped:
        return table
    note = (
        f"{dropped} of {n} {_items_were(dropped)} left out, for which some model has no score"
    )
    doubt = missing_doubt(table.names, missing, max_missing)
    rest = "those that are left may be easier or harder than the rest"
    if doubt is not None:
        note = f"{note}; {doubt}, and {rest}"
    elif dropped > MAX_MISSING * n:
        note = f"{note}; {rest}"
    return table.at(np.asarray(~lacking)).noted(note, doubt=doubt is not None)


def _with_holes(table: Scores) -> Scores:
    """The items that some model has a score for, with a note on how many scores each model
    lacks and on what is assumed about them.
    """
    for name in ("runs", "judges", "labels"):
        if getattr(table, name) is not None:
            raise InputError(
                f"missing: adjust cannot be combined with {name} yet; leave out one of the two"
            )
    there = ~np.isnan(table.values)
    # Items that no model has a score for are no part of the table.
    coverage = there[there.any(axis=1)].mean(axis=0)
    few = coverage < table.min_coverage
    if few.sum() > len(few) - 2:
        raise InputError(
            f"missing: expected two models with scores of at least {table.min_coverage:.0%} of "
            f"the items, got fewer; pass a smaller {way('--min-coverage', 'min_coverage')}"
        )
    if few.any():
        left_out = [
            f"{quoted(table.names[j])} ({coverage[j]:.1%})" for j in np.flatnonzero(few)
        ]
        table = table.of(np.flatnonzero(~few)).noted(
            f"models left out, which have scores of fewer items than "
            f"min_coverage={table.min_coverage:g} allows: "
            f"{listed(left_out, most=len(left_out), quote=str)}"
        )
        there = there[:, ~few]
    scored = np.asarray(there.any(axis=1))
    table = table.at(scored)
    there = there[scored]
    coverage = there.mean(axis=0)
    shared = int((there.sum(axis=1) > 1).sum())
    if shared < FEWEST_ITEMS:
        raise InputError(
            f"losses: expected at least {FEWEST_ITEMS} items that two models or more have "
            f"scores of, got {shared}"
        )
    _refuse_apart(table, there)
    lacking = [
        f"{quoted(name)} {fraction:.0%}"
        for name, fraction in zip(table.names, coverage.tolist(), strict=True)
    ]
    return table.noted(
        f"{1.0 - coverage.mean():.0%} of the scores are missing and were adjusted for, by an "
        f"effect of each item and a mean of each model; this assumes that an item is as much "
        f"harder for one model as for another, and that scores are not missing for their "
        f"size. Coverage of the {len(there)} items: "
        f"{listed(lacking, most=len(lacking), quote=str)}"
    )


def _refuse_apart(table: Scores, there: Mask) -> None:
    """Refuse models without scores of a stratum, and those that no common items connect; (n,
    l) `there` is True where there is a score.
    """
    strata = np.zeros(len(there)) if table.strata is None else table.strata
    for stratum in np.unique(strata).tolist():
        inside = there[strata == stratum]
        of = "" if table.strata is None else f" in stratum {as_text(stratum)!r}"
        counts = inside.sum(axis=0)
        fewest = int(counts.argmin())
        if counts[fewest] < 2:
            raise InputError(
                f"missing: expected at least 2 scores of every model{of}, got "
                f"{counts[fewest]} of {table.names[fewest]!r}; leave out that model"
            )
        common = inside.astype(float)
        parts, part = connected_components(common.T @ common > 0.0, directed=False)
        if parts > 1:
            names = np.array(table.names, dtype=object)
            each = [listed(list(names[part == k]), quote=repr) for k in range(parts)]
            raise InputError(
                f"missing: expected models that common items connect{of}, got {parts} parts "
                f"without an item in common: "
                f"{listed(each, quote=lambda text: f'({text})')}; compare each part by itself"
            )


def _held(table: Scores) -> str:
    """How many items each model has a score for."""
    counts = (~np.isnan(table.values)).sum(axis=0).tolist()
    held = [f"{name!r} has {count}" for name, count in zip(table.names, counts, strict=True)]
    return listed(held, most=_MOST_NAMES, quote=str)


def _items_were(count: int) -> str:
    return "item was" if count == 1 else "items were"


def missing_doubt(names: Sequence[str], missing: Mask, max_missing: float) -> str | None:
    """A sentence if some model lacks more than this fraction of the items; (n, l) `missing`
    is True where it does.
    """
    fractions = missing.mean(axis=0)
    most = int(fractions.argmax())
    if fractions[most] <= max_missing:
        return None
    lacks = f"{names[most]!r} lacks {fractions[most]:.0%} of the items"
    return f"{lacks}, more than max_missing={max_missing:g} allows"


def _refuse_keys(table: Scores) -> None:
    """Refuse a column that numbers the items: it grows by 1 from row to row, or is called so
    and never repeats.

    Taken for a model, it would be one with losses of its own.
    """
    for name, column in zip(table.names, table.values.T, strict=True):
        column = column[~np.isnan(column)]
        counts = bool((np.diff(column) == 1.0).all())
        called = _KEY.search(name) is not None
        if counts or (called and is_key(column)):
            first = ", ".join(f"{value:g}" for value in column[:3])
            raise InputError(
                f"losses: expected a model's losses in every column, got {first}, … in "
                f"{name!r}, which numbers the "
                f"items; pass item={name!r}, or leave that column out with drop={name!r}"
            )


def _in_unit(table: Scores) -> Scores:
    """The table with very large or very small scores in a unit 2^k, so that the largest is
    between 1 and 2.

    The scores s and s · 2^k then have the same verdicts, p-values and intervals for every k:
    dividing by 2^k is exact.
    """
    low, high = ends(table.values)
    largest = max(-low, high)
    if table.labels is not None:
        largest = float(np.fmax.reduce(np.abs(table.labels), axis=None, initial=largest))
    if largest == 0.0 or 1.0 / LARGEST_SCORE <= largest <= LARGEST_SCORE:
        return table
    if largest < np.finfo(float).tiny:
        raise InputError(
            f"losses: expected scores of at least {np.finfo(float).tiny:.2g} in size, got at "
            f"most {largest:.2g}; use "
            "logarithms, such as log-likelihoods"
        )
    exponent = math.frexp(largest)[1] - 1
    note = (
        f"the largest score is {largest:.2g}, so all scores, differences and margins are "
        f"shown in units of "
        f"2^{exponent}; for likelihoods, compare their logarithms"
    )
    arrays = {name: getattr(table, name) for name in ("values", "labels", "runs", "judges")}
    scaled = {name: np.ldexp(x, -exponent) for name, x in arrays.items() if x is not None}
    return table.noted(
        note,
        **scaled,
        unit=math.ldexp(1.0, exponent),
    )
