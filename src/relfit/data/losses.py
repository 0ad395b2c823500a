"""Scores of several models on the same items, whatever form they come in: a matrix, a mapping, a frame or a file.

Tables are wide, with a column for each model, or long, with a row for each model and item. Rows are matched by the key
of the item where there is one, whatever their order.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.arrays import as_rows, group_labels
from relfit.data.columns import Columns, missing_cells, named_columns, take
from relfit.data.files import as_file, format_of
from relfit.data.files.base import parse_columns
from relfit.data.files.text import ROW_NUMBERS
from relfit.data.frames import frame_names, refuse_not_numeric
from relfit.data.metrics import known_direction, told_direction
from relfit.data.posteriors import is_inference_data
from relfit.util.arrays import Array, Mask, Rows, extremes
from relfit.util.checks import check_number
from relfit.util.errors import InputError, way
from relfit.util.libraries import is_instance
from relfit.util.text import as_name, is_text, listed

FEWEST_ITEMS = 20
# A model that lacks a larger fraction of the items than this is a doubt, and a larger fraction left out is explained.
MAX_MISSING = 0.05
# A typical score so many times the largest score of the other models is on another scale; the second is beyond doubt.
OTHER_SCALE, SURELY_OTHER_SCALE = 3.0, 100.0
_LEAVE_OUT = "leave out other columns with drop=, or name model= and score= of a row for each model and item"
# Scores of this size and below 1 / it are measured in a unit of their own: squares and cubes must fit into float64.
LARGEST_SCORE = 2.0**200
_KEY = re.compile(r"(^|[_ ])(id|ids|idx|index|uid|uuid|key|item|no|number)$", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class LossTable:
    """The scores of l models on n items, which every model has.

    Attributes:
        names: the models.
        scores: (n, l) as the user gave them divided by `unit`, whichever direction is better.
        items: (n,) keys of the items, or None.
        strata, groups: (n,) labels, or None.
        labels: (n, l) scores by people for some items, NaN for the others, divided by `unit`; or None.
        order: (n,) where the items stand in the file that they are from; None if they are in its order.
        unit: 1, or the power of 2 that very large or very small scores are measured in.
        metric: what the scores are called; None if that is not known.
        higher_is_better: whether larger scores are better, where a log records it; otherwise None.
        notes: what the reader should know about how the table was made.
        doubts: those of the notes that make verdicts unreliable.
    """

    names: tuple[str, ...]
    scores: Array
    items: NDArray[Any] | None = None
    strata: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    labels: Array | None = None
    order: Rows | None = None
    unit: float = 1.0
    metric: str | None = None
    higher_is_better: bool | None = None
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def digest(self) -> str:
        """A digest of the models and their scores, the items in the order they are in."""
        return hashlib.sha256("\0".join(self.names).encode() + self.scores.tobytes()).hexdigest()

    def at(self, kept: Mask | Rows) -> LossTable:
        """These items alone."""
        kept_by_item = ("scores", "items", "strata", "groups", "labels", "order")
        each = {name: getattr(self, name) for name in kept_by_item}
        parts: dict[str, Any] = {name: None if value is None else value[kept] for name, value in each.items()}
        return replace(self, **parts)


def loss_table(
    losses: Any,
    *,
    names: Sequence[str] | None = None,
    strata: Any = None,
    groups: Any = None,
    labels: Any = None,
    item: str | None = None,
    model: str | None = None,
    score: str | None = None,
    stratum: str | None = None,
    group: str | None = None,
    columns: Any = None,
    drop: Any = None,
    transpose: bool = False,
    max_missing: float = MAX_MISSING,
) -> LossTable:
    """The table that these arguments of `relfit.compare_losses` describe, checked and complete."""
    check_number("max_missing", max_missing, 0.0, math.nextafter(1.0, 2.0), "a fraction from 0 to 1", low_ok=True)
    if is_instance(losses, "relfit.data.evals", "Evals"):
        losses = losses.table(max_missing)
    _refuse_folder(losses)
    roles = {"item": item, "model": model, "score": score, "stratum": stratum, "group": group}
    given = {role: column for role, column in roles.items() if column is not None}
    if isinstance(losses, LossTable):
        others = {**given, "names": names, "strata": strata, "groups": groups, "labels": labels}
        others |= {"columns": columns, "drop": drop}
        extra = next((name for name, value in others.items() if value is not None), None)
        if extra is not None:
            raise InputError(f"{extra}: the table has it already; leave it out")
        return losses
    if transpose:
        named = given.pop("model", None)
        for argument, value in {**given, "columns": columns, "drop": drop}.items():
            if value is not None:
                raise InputError(f"{argument}: in a transposed table every column is an item; leave it out")
        losses = _transposed(losses, named)
    for role, argument, value in (("stratum", "strata", strata), ("group", "groups", groups)):
        if role in given and value is not None:
            raise InputError(f"{argument}: expected once, got {role}={given[role]!r} too; leave out one of the two")
        if isinstance(value, str):
            raise InputError(
                f"{argument}: expected labels, one per item, got text; a column is named by {role}={value!r}"
            )
    if "model" in given or "score" in given:
        if names is not None:
            raise InputError("names: a table in long form has them in its model column; leave them out")
        if columns is not None or drop is not None:
            argument = "drop" if columns is None else "columns"
            raise InputError(f"{argument}: belongs to tables with a column for each model; leave it out")
        table = replace(_long(losses, roles, labels), metric=score)
    elif given or columns is not None or drop is not None:
        table = _wide(losses, roles, names, labels, parse_columns(columns), parse_columns(drop) or ())
    else:
        table = _plain(losses, names, labels)
    n = len(table.scores)
    strata = table.strata if strata is None else group_labels("strata", strata, n)
    groups = table.groups if groups is None else group_labels("groups", groups, n)
    table = _complete(replace(table, strata=strata, groups=groups), max_missing)
    table = _without_row_numbers(table)
    _refuse_keys(table)
    found = table.metric is None and (as_file(losses) is not None or frame_names(losses) is not None or bool(given))
    if found and columns is None:
        table = _with_scale_notes(table)
    return _in_unit(table)


def direction(table: LossTable, given: bool | None = None) -> tuple[bool | None, str]:
    """Whether larger scores are better, and a note on it, "" if none is needed; or None, and why it is not known.

    It is what was `given`, what a log records, or what the name of the metric tells.
    """
    recorded = table.higher_is_better
    if given is None:
        return told_direction(table.metric, *extremes(table.scores)) if recorded is None else (recorded, "")
    if not isinstance(given, bool | np.bool_):
        raise InputError(f"higher_is_better: expected True or False, got {given!r}")
    usual = known_direction(table.metric) if recorded is None and table.metric is not None else recorded
    if usual in (None, bool(given)):
        return bool(given), ""
    words = ("larger", "smaller") if usual else ("smaller", "larger")
    note = f"{table.metric} is usually better when {words[0]}; {words[1]} is taken as better, as requested"
    return bool(given), note


def _refuse_folder(losses: Any) -> None:
    """Refuse a folder that is no table: it is likely to hold the logs of an evaluation."""
    file = as_file(losses)
    path = None if file is None else Path(file.source)
    if path is not None and path.is_dir() and format_of(path) is None:
        advice = way(f"use  relfit evals {shlex.quote(str(path))}", f"use relfit.read_evals({str(path)!r})")
        raise InputError(f"{path}: expected a file, got a folder; for the logs of evaluations {advice}")


# ── three forms ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _plain(losses: Any, names: Sequence[str] | None, labels: Any) -> LossTable:
    """A matrix, or a table with a column for each model and no others."""
    rows, found, keys = _matrix("losses", losses)
    names = found if names is None else tuple(names)
    people = None
    if labels is not None:
        people, _, their_keys = _matrix("labels", labels)
        if keys is not None and their_keys is not None:
            people = _in_order(people, their_keys, keys)
    return _checked(names, rows, keys, None, None, people)


def _matrix(argument: str, value: Any) -> tuple[Array, tuple[str, ...] | None, NDArray[Any] | None]:
    """The numbers (n, l) with NaN where one is missing, the models' names, and the items' keys if there are some."""
    _refuse_no_scores(argument, value)
    if isinstance(value, Mapping):
        for name, column in value.items():
            _refuse_no_scores(f"{argument}[{name!r}]", column)
        keyed = {name: _keyed(column) for name, column in value.items()}
        if value and all(column is not None for column in keyed.values()):
            return _joined(argument, {name: column for name, column in keyed.items() if column is not None})
        columns = {name: as_rows(f"{argument}[{name!r}]", column, missing=True) for name, column in value.items()}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{argument}: expected as many losses for every model, got {lengths}")
        wide = next((name for name, column in columns.items() if column.shape[1] > 1), None)
        if wide is not None:
            shape = columns[wide].shape
            raise InputError(f"{argument}[{wide!r}]: expected one number for each item, got an array of shape {shape}")
        rows = np.hstack(list(columns.values())) if columns else as_rows(argument, [])
        return rows, tuple(columns), None
    named = named_columns(argument, value) if as_file(value) is not None or frame_names(value) is not None else None
    if named is not None:
        where = argument if as_file(value) is None else value
        _refuse_transposed(len(next(iter(named.values()), ())), len(named))
        refuse_not_numeric(where, _not_numbers(named), f"name a key of the items as item=, and {_LEAVE_OUT}")
        return np.column_stack(list(named.values())), tuple(named), None
    return as_rows(argument, value, missing=True), None, None


def _refuse_no_scores(argument: str, value: Any) -> None:
    """Refuse a single number, such as the mean over all items, and the data of a Bayesian model."""
    if is_inference_data(value):
        raise InputError(
            f"{argument}: expected scores, got {type(value).__name__}; PSIS-LOO gives scores of Bayesian models: use "
            'relfit.decide(relfit.from_elpd({"name": data, ...}))'
        )
    if isinstance(value, Real | np.number | np.bool_) or getattr(value, "ndim", None) == 0:
        raise InputError(
            f"{argument}: expected a score for each item, got one number; pass the scores of the items, because the "
            "error of their mean is computed from them"
        )


def _keyed(column: Any) -> dict[Any, Any] | None:
    """A mapping or a pandas Series, which give every score its item's key; None for anything else."""
    if isinstance(column, Mapping):
        return dict(column)
    return dict(column.items()) if is_instance(column, "pandas", "Series") and column.index.is_unique else None


def _joined(argument: str, keyed: Mapping[str, Mapping[Any, Any]]) -> tuple[Array, tuple[str, ...], NDArray[Any]]:
    """The columns matched by key, in the order of the first model's keys."""
    keys = list(dict.fromkeys(key for column in keyed.values() for key in column))
    rows = [[column.get(key) for column in keyed.values()] for key in keys]
    columns = named_columns(argument, dict(zip(keyed, zip(*rows, strict=True), strict=True))) or {}
    refuse_not_numeric(argument, _not_numbers(columns), "give a number for every item")
    labels = np.empty(len(keys), dtype=object)
    labels[:] = keys
    return np.column_stack(list(columns.values())), tuple(columns), labels


def _in_order(rows: Array, keys: NDArray[Any], wanted: NDArray[Any]) -> Array:
    """The rows of these keys in the wanted order; NaN for a key that is not there."""
    place = {key: k for k, key in enumerate(keys)}
    taken = np.full((len(wanted), rows.shape[1]), np.nan)
    for k, key in enumerate(wanted):
        if key in place:
            taken[k] = rows[place[key]]
    return taken


def _wide(
    losses: Any,
    roles: Mapping[str, str | None],
    names: Sequence[str] | None,
    labels: Any,
    kept: Sequence[Any] | None,
    dropped: Sequence[Any],
) -> LossTable:
    """A table with a column for each model, and others that name the item, its stratum or its group or are dropped."""
    columns = _columns_of(losses)
    aside = {role: take(role, columns, column) for role, column in roles.items() if column is not None}
    for name in dropped:
        take("drop", columns, name)
    rest = {name: column for name, column in columns.items() if name not in (*roles.values(), *dropped)}
    if kept is not None:
        rest = {name: take("columns", rest, name) for name in kept}
    _refuse_transposed(len(next(iter(rest.values()), ())), len(rest))
    refuse_not_numeric("losses", _not_numbers(rest), _LEAVE_OUT)
    if not rest:
        raise InputError("losses: expected a column for each model, got none besides those of the items")
    names = tuple(rest) if names is None else tuple(names)
    rows = np.column_stack(list(rest.values()))
    people = None if labels is None else _matrix("labels", labels)[0]
    if people is not None and people.shape != rows.shape:
        raise InputError(f"labels: expected shape {rows.shape} like losses, got {people.shape}")
    if "item" not in aside:
        return _checked(names, rows, None, aside.get("stratum"), aside.get("group"), people)
    found = _found_items(aside, len(rows))
    columns_at = np.tile(np.arange(rows.shape[1]), len(rows))
    means = [found.means(columns_at, each.ravel(), rows.shape) for each in (rows, people) if each is not None]
    return found.table(names, *means)


def _long(losses: Any, roles: Mapping[str, str | None], labels: Any) -> LossTable:
    """A row for each model and item."""
    for role in ("item", "model", "score"):
        if roles[role] is None:
            raise InputError(
                f"{role}: expected the name of a column, since a table in long form needs item=, model= and score="
            )
    columns = _columns_of(losses)
    aside = {role: take(role, columns, column) for role, column in roles.items() if column is not None}
    scores, models = aside.pop("score"), aside.pop("model")
    refuse_not_numeric("score", _not_numbers({str(roles["score"]): scores}), "convert it to numbers")
    _refuse_missing("model", models)
    people = None
    if labels is not None:
        people = take("labels", columns, labels)
        refuse_not_numeric("labels", _not_numbers({str(labels): people}), "convert it to numbers")
    texts = [as_text(cell) for cell in models.tolist()]
    names = tuple(dict.fromkeys(texts))
    place = {name: k for k, name in enumerate(names)}
    at = np.fromiter((place[text] for text in texts), dtype=np.intp, count=len(texts))
    found = _found_items(aside, len(texts))
    shape = len(texts), len(names)
    return found.table(names, *(found.means(at, each, shape) for each in (scores, people) if each is not None))


def _columns_of(losses: Any) -> Columns:
    columns = named_columns("losses", losses)
    if columns is None:
        raise InputError(
            "losses: expected a data frame, a mapping of columns or a file with column names, got another form"
        )
    if not columns or not len(next(iter(columns.values()))):
        raise InputError("losses: expected rows, got an empty table")
    return columns


@dataclass(frozen=True)
class _Items:
    """Which item each row of a table belongs to: its place among the sorted keys, and the first row of each item."""

    code: Rows
    first: Rows
    items: NDArray[Any]
    strata: NDArray[Any] | None
    groups: NDArray[Any] | None

    def means(self, at: Rows, values: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
        """(items, l) means of the values of each item and model, NaN where there are none, and their counts.

        The values are those of `shape` = (rows, l) cells, or one for each row; `at` says which model each one is of.
        """
        code = self.code if len(values) == len(self.code) else np.repeat(self.code, shape[1])
        there = ~np.isnan(values)
        cell, size = (code * shape[1] + at)[there], len(self.first) * shape[1]
        counts = np.bincount(cell, minlength=size).astype(float)
        totals = np.bincount(cell, weights=values[there], minlength=size)
        means = np.divide(totals, counts, out=np.full(size, np.nan), where=counts > 0.0)
        return means.reshape(-1, shape[1]), counts.reshape(-1, shape[1])

    def table(
        self, names: Sequence[str], scores: tuple[Array, Array], labels: tuple[Array, Array] | None = None
    ) -> LossTable:
        """The means as a table, with a note if items have several scores."""
        means, counts = scores
        most, notes = int(counts.max(initial=0.0)), tuple[str, ...]()
        if most > 1:
            several = f"{int((counts > 1.0).any(axis=1).sum())} of {len(counts)} items have up to {most} scores"
            notes = (f"{several} of one model; an item's score is their mean",)
        people = None if labels is None else labels[0]
        table = _checked(names, means, self.items, self.strata, self.groups, people, notes)
        return replace(table, order=self.first)


def _found_items(aside: Mapping[str, NDArray[Any]], count: int) -> _Items:
    """The items of a table's rows, which their stratum and their key name."""
    for role, column in aside.items():
        _refuse_missing(role, column)
    keys, of_key = _codes(aside["item"])
    _, of_stratum = _codes(aside["stratum"]) if "stratum" in aside else (1, np.zeros(count, dtype=np.intp))
    _, first, code = np.unique(of_stratum * keys + of_key, return_index=True, return_inverse=True)
    code = code.ravel()
    groups = None
    if "group" in aside:
        _, of_group = _codes(aside["group"])
        groups, other = aside["group"][first], of_group != of_group[first][code]
        if other.any():
            key = as_text(aside["item"][int(np.argmax(other))])
            raise InputError(f"group: expected one group for each item, got two for item {key}")
    strata = aside["stratum"][first] if "stratum" in aside else None
    return _Items(code, first, aside["item"][first], strata, groups)


def _codes(column: NDArray[Any]) -> tuple[int, Rows]:
    """The number of different values, and for each cell the place of its own among them, sorted."""
    if column.dtype.kind == "f":
        values, codes = np.unique(column, return_inverse=True)
        return len(values), np.asarray(codes.ravel(), dtype=np.intp)
    cells = column.tolist()
    place = {value: k for k, value in enumerate(sorted(set(cells)))}
    return len(place), np.fromiter((place[cell] for cell in cells), dtype=np.intp, count=len(cells))


def _transposed(losses: Any, model: str | None) -> Any:
    """A table with a row for each model as a mapping of models to scores of items; of numbers alone, as an array.

    The column `model` holds the names; None is the only column of text.
    """
    columns = named_columns("losses", losses)
    if columns is None:
        return as_rows("losses", losses, missing=True).T
    texts = [name for name, column in columns.items() if column.dtype.kind != "f"]
    if model is None and len(texts) != 1:
        raise InputError(
            f"losses: expected one column of text, the names of the models, got {len(texts)}; name the column of the "
            "models by model="
        )
    models = take("model", columns, texts[0] if model is None else model)
    _refuse_missing("model", models)
    numbers = {name: column for name, column in columns.items() if name not in (model, *texts)}
    rows = np.column_stack(list(numbers.values())) if numbers else np.empty((len(models), 0))
    called = [as_text(model) for model in models.tolist()]
    twice = next((name for name in called if called.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"losses: expected one row for each model in a transposed table, got two of {twice!r}")
    return {name: dict(zip(numbers, row, strict=True)) for name, row in zip(called, rows.tolist(), strict=True)}


# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _checked(
    names: Sequence[str] | None,
    rows: Array,
    items: NDArray[Any] | None,
    strata: NDArray[Any] | None,
    groups: NDArray[Any] | None,
    labels: Array | None,
    notes: tuple[str, ...] = (),
) -> LossTable:
    """The table with a name for every column."""
    n, count = rows.shape
    as_rows("losses", rows, missing=True)
    names = tuple(f"m{k}" for k in range(1, count + 1)) if names is None else tuple(map(as_name, names))
    if len(names) != count:
        raise InputError(f"names: expected {count}, one per column of losses, got {len(names)}")
    if not all(map(is_text, names)) or len(set(names)) < len(names):
        raise InputError(f"names: expected different texts, got {listed(list(names), quote=repr)}")
    if labels is not None and labels.shape != rows.shape:
        raise InputError(
            f"labels: expected shape {rows.shape} like losses, NaN where there is none, got {labels.shape}"
        )
    _refuse_transposed(n, count)
    strata = None if strata is None else group_labels("stratum", strata, n)
    groups = None if groups is None else group_labels("group", groups, n)
    return LossTable(names, rows, items, strata, groups, labels, notes=notes)


def _refuse_transposed(n: int, count: int) -> None:
    """Refuse a table that has so few rows and so many columns that its rows must be models."""
    if n < FEWEST_ITEMS <= count:
        raise InputError(
            f"losses: expected a row for each item and a column for each model, got {n} rows and {count} columns; if "
            f"rows are models, {way('use --transpose', 'pass losses.T')}"
        )


def _complete(table: LossTable, max_missing: float) -> LossTable:
    """The items that every model has a score for, with a note on how many were left out."""
    kept = int((~np.isnan(table.scores).any(axis=1)).sum())
    if kept < FEWEST_ITEMS:
        n = len(table.scores)
        lost = f" of {n}; the others have NaN or are missing for some model" if kept < n else ""
        raise InputError(f"losses: expected at least {FEWEST_ITEMS} items (rows), got {kept}{lost}")
    table = _without_empty(table)
    missing = np.isnan(table.scores)
    gone, n = np.asarray(missing.any(axis=1)), len(missing)
    dropped = n - kept
    if not dropped:
        return table
    are = "item was" if dropped == 1 else "items were"
    note = f"{dropped} of {n} {are} left out, for which some model has no score"
    lacking = missing_doubt(table.names, missing, max_missing)
    rest = "those that are left may be easier or harder than the rest"
    if lacking is None and dropped > MAX_MISSING * n:
        note = f"{note}; {rest}"
    elif lacking is not None:
        note = f"{note}; {lacking}, and {rest}"
    doubts = table.doubts if lacking is None else (*table.doubts, note)
    return replace(table.at(~gone), notes=(*table.notes, note), doubts=doubts)


def _without_empty(table: LossTable) -> LossTable:
    """The table without the items that no model has a score for, which a table in long form does not have either."""
    empty = np.asarray(np.isnan(table.scores).all(axis=1))
    count = int(empty.sum())
    if not count:
        return table
    are = "item was" if count == 1 else "items were"
    note = f"{count} {are} left out, for which no model has a score"
    return replace(table.at(~empty), notes=(*table.notes, note))


def missing_doubt(names: Sequence[str], missing: Mask, max_missing: float) -> str | None:
    """A sentence if some model lacks more than this fraction of the items; (n, l) `missing` is True where it does."""
    fractions = missing.mean(axis=0)
    most = int(fractions.argmax())
    if fractions[most] <= max_missing:
        return None
    lacks = f"{names[most]!r} lacks {fractions[most]:.0%} of the items"
    return f"{lacks}, more than max_missing={max_missing:g} allows"


def _with_scale_notes(table: LossTable) -> LossTable:
    """The table with a note if some columns are on another scale than most: they may be no models, such as n_tokens.

    A column is, if its typical size (the mean of |x|) is 3 times the largest |x| of the others; so is a column if the
    typical sizes of all others are 3 times its largest.
    """
    sizes = np.abs(table.scores)
    typical, largest = sizes.mean(axis=0), sizes.max(axis=0)
    order = np.argsort(typical)
    below = np.maximum.accumulate(largest[order])[:-1]
    ratio = np.divide(typical[order][1:], below, out=np.zeros_like(below), where=below > 0.0)
    cut = int(ratio.argmax()) + 1 if len(ratio) else 0
    if not len(ratio) or ratio[cut - 1] < OTHER_SCALE:
        return table
    above = cut >= len(order) / 2
    odd, rest = (order[cut:], order[:cut]) if above else (order[:cut], order[cut:])
    names = listed([table.names[j] for j in sorted(odd)], quote=repr)
    verb = "are" if len(odd) > 1 else "is"
    note = (
        f"{names} {verb} on another scale than the other columns (mean size {typical[odd].max():.3g} and "
        f"{typical[rest].max():.3g}), so {names} may not be scores of a model: leave out such columns with drop=, or "
        "name the models with columns="
    )
    sure = above and ratio[cut - 1] >= SURELY_OTHER_SCALE
    return replace(table, notes=(*table.notes, note), doubts=(*table.doubts, note) if sure else table.doubts)


def _without_row_numbers(table: LossTable) -> LossTable:
    """The table without the row numbers that pandas writes under a name of its own, and a note."""
    columns = zip(table.names, table.scores.T, strict=True)
    numbers = [name for name, column in columns if name in ROW_NUMBERS and _is_key(column)]
    if not numbers:
        return table
    kept = [j for j, name in enumerate(table.names) if name not in numbers]
    return replace(
        table,
        names=tuple(table.names[j] for j in kept),
        scores=table.scores[:, kept],
        labels=None if table.labels is None else table.labels[:, kept],
        notes=(*table.notes, f"columns left out: {listed(numbers, quote=repr)} (row numbers)"),
    )


def _is_key(column: Array) -> bool:
    """True for whole numbers that never repeat."""
    return len(np.unique(column)) == len(column) and bool((column == np.rint(column)).all())


def _refuse_keys(table: LossTable) -> None:
    """Refuse a column that numbers the items: it grows by 1 from row to row, or is called so and never repeats.

    Taken for a model, it would be one with losses of its own.
    """
    for name, column in zip(table.names, table.scores.T, strict=True):
        counts = bool((np.diff(column) == 1.0).all())
        called = _KEY.search(name) is not None
        if counts or (called and _is_key(column)):
            first = ", ".join(f"{value:g}" for value in column[:3])
            raise InputError(
                f"losses: expected a model's losses in every column, got {first}, … in {name!r}, which numbers the "
                f"items; pass item={name!r}, or leave that column out with drop={name!r}"
            )


def _in_unit(table: LossTable) -> LossTable:
    """The table with very large or very small scores in a unit 2^k, so that the largest is between 1 and 2.

    The scores s and s · 2^k then have the same verdicts, p-values and intervals for every k: dividing by 2^k is exact.
    """
    low, high = extremes(table.scores)
    largest = max(-low, high)
    if table.labels is not None:
        largest = float(np.fmax.reduce(np.abs(table.labels), axis=None, initial=largest))
    if largest == 0.0 or 1.0 / LARGEST_SCORE <= largest <= LARGEST_SCORE:
        return table
    if largest < np.finfo(float).tiny:
        raise InputError(
            f"losses: expected scores of at least {np.finfo(float).tiny:.2g} in size, got at most {largest:.2g}; use "
            "logarithms, such as log-likelihoods"
        )
    exponent = math.frexp(largest)[1] - 1
    note = (
        f"the largest score is {largest:.2g}, so all scores, differences and margins are shown in units of "
        f"2^{exponent}; for likelihoods, compare their logarithms"
    )
    return replace(
        table,
        scores=np.ldexp(table.scores, -exponent),
        labels=None if table.labels is None else np.ldexp(table.labels, -exponent),
        unit=math.ldexp(1.0, exponent),
        notes=(*table.notes, note),
    )


def _refuse_missing(role: str, column: NDArray[Any]) -> None:
    missing = np.flatnonzero(missing_cells(column))
    if len(missing):
        raise InputError(f"{role}: expected a value in every row, got none in row {int(missing[0])}")


def _not_numbers(columns: Columns) -> list[tuple[str, str]]:
    return [(name, "text") for name, column in columns.items() if column.dtype.kind != "f"]


def as_text(cell: Any) -> str:
    """A cell as text, whole numbers without a point."""
    return f"{cell:.15g}" if isinstance(cell, float) else str(cell)


def item_scores(
    table: Any, item: str, model: str | None = None, score: str | None = None
) -> tuple[list[str], dict[str, Array]]:
    """The keys of a table's items in the order of its rows, and each model's scores, NaN where it has none.

    With `model` and `score` the table has a row for each model and item, otherwise a column for each model.
    """
    columns = _columns_of(table)
    keys = take("item", columns, item)
    _refuse_missing("item", keys)
    texts = [as_text(key) for key in keys.tolist()]
    if model is None and score is None:
        rest = {name: column for name, column in columns.items() if name != item}
        refuse_not_numeric("losses", _not_numbers(rest), "leave out other columns")
        return texts, rest
    models, scores = take("model", columns, model), take("score", columns, score)
    _refuse_missing("model", models)
    refuse_not_numeric("score", _not_numbers({str(score): scores}), "convert it to numbers")
    names = [as_text(cell) for cell in models.tolist()]
    place = {key: k for k, key in enumerate(dict.fromkeys(texts))}
    rows = {name: np.full(len(place), np.nan) for name in dict.fromkeys(names)}
    for key, name, value in zip(texts, names, scores.tolist(), strict=True):
        if not np.isnan(rows[name][place[key]]):
            raise InputError(f"item: expected one score for each item and model, got two of {name!r} for {key!r:.60}")
        rows[name][place[key]] = value
    return list(place), rows
