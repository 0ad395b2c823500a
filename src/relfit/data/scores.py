"""Scores of several models on the same items, read once from a matrix, a mapping, a frame, a
file or evaluation logs.

Tables are wide, with a column for each model, or long, with a row for each model and item.
Rows are matched by the key of the item where there is one, whatever their order.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from relfit.data.arrays import as_rows, group_labels, is_inference_data
from relfit.data.files import as_file, format_of
from relfit.data.files.base import parse_columns, refuse_not_numeric
from relfit.data.files.text import ROW_NUMBERS
from relfit.data.metrics import direction_needed, known_direction, told_direction
from relfit.data.tables import Cells, frame_names, is_key, keyed_columns, labels_of
from relfit.util.arrays import Array, Mask, Rows, extremes
from relfit.util.checks import check_number, check_whole
from relfit.util.errors import InputError, way
from relfit.util.libraries import is_instance
from relfit.util.text import as_name, is_text, listed

FEWEST_ITEMS = 20
# A model that lacks a larger fraction of the items than this is a doubt, and a larger fraction
# left out is explained.
MAX_MISSING = 0.05
# A typical score so many times the largest score of the other models is on another scale; the
# second is beyond doubt.
OTHER_SCALE = 3.0
SURELY_OTHER_SCALE = 100.0
_LEAVE_OUT = (
    "leave out other columns with drop=, or name model= and score= of a row for each "
    "model and item"
)
# Scores of this size and below 1 / it are measured in a unit of their own: squares and cubes
# must fit into float64.
LARGEST_SCORE = 2.0**200
_MOST_NAMES = 8
_BY_ITEM = ("values", "items", "strata", "groups", "labels", "prompts", "order")
_TRUTH = {"true": 1.0, "false": 0.0}
_KEY = re.compile(r"(^|[_ ])(id|ids|idx|index|uid|uuid|key|item|no|number)$", re.IGNORECASE)

# (n,) keys, or labels of strata or groups.
Labels = NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """The scores of l models on n items, as `relfit.scores` read them.

    Attributes:
        names: the models.
        values: (n, l) as the user gave them divided by `unit`, whichever direction is better;
            NaN where there is none.
        items: (n,) keys of the items, or None.
        strata, groups: (n,) labels, or None.
        weights: the weight of each stratum, or None for equal ones.
        labels: (n, l) scores by people for some items, NaN for the others, divided by `unit`;
            or None.
        prompts: (n,) what was asked, or None.
        order: (n,) where the items stand in the file that they are from; None if they are in
            its order.
        repeats: the most scores that one model has for one item; their mean is its score.
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
    repeats: int = 1
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
        return hashlib.sha256(
            "\0".join(self.names).encode() + self.values.tobytes()
        ).hexdigest()

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
        for name in ("strata", "groups", "labels"):
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
        cubes are numbers.

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
        _refuse_transposed(*self.values.shape)
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
            raise direction_needed(told_direction(self.metric, *_ends(self.values))[1])
        return self.higher_is_better


class ScoreOptions(TypedDict, total=False):
    """The options of `scores` but for `names`, for functions that also accept what it reads."""

    higher_is_better: bool | None
    item: str | None
    model: str | None
    score: str | None
    stratum: str | None
    group: str | None
    strata: Any
    groups: Any
    weights: Mapping[Any, float] | None
    labels: Any
    columns: Any
    drop: Any
    transpose: bool


def scores(
    source: Any,
    *,
    names: Sequence[str] | None = None,
    higher_is_better: bool | None = None,
    item: str | None = None,
    model: str | None = None,
    score: str | None = None,
    stratum: str | None = None,
    group: str | None = None,
    strata: Any = None,
    groups: Any = None,
    weights: Mapping[Any, float] | None = None,
    labels: Any = None,
    columns: Any = None,
    drop: Any = None,
    transpose: bool = False,
) -> Scores:
    """Read the scores of models on the same items, for `compare_losses`, `from_losses`,
    `plan`, `Monitor` and reports.

    Args:
        source: (n, l) scores of l models on the same n items: negative log-likelihoods of
            held-out rows, answers to benchmark questions, forecast losses; or a mapping of
            names to n scores, or to mappings of item keys to scores; or a data frame or a
            file, wide (a column for each model) or long (a row for each model and item); or
            what `relfit.read_evals` returned.
        names: l names; by default a mapping's keys, a frame's columns or the names in a file,
            else m1, m2, ….
        higher_is_better: True for scores such as accuracies, False for losses. None uses the
            direction that the name of the column `score` or an evaluation log tells
            ("accuracy", "val_loss").
        item: the name of a column of a frame or a file that holds the items' keys. Rows are
            matched by it, whatever their order; several scores of a model for one item
            (epochs, seeds) become their mean.
        model: with `score` and `item`, the column of models of a long table.
        score: the column of scores of a long table.
        stratum: the column that holds `strata`.
        group: the column that holds `groups`.
        strata: n labels of the parts (tasks of a benchmark) that a macro average is over: the
            mean of the parts' means.
        groups: n labels of dependent items (questions about one text, days of one week).
        weights: the weight of each stratum, by its label; by default all are equal. They are
            divided by their sum.
        labels: scores by people, of the same shape as `source` with NaN where there is none
            (of a long table the name of a column): `source` are then the scores of a judge,
            which the labels correct.
        columns: of a wide table, the columns of the models; others are left out.
        drop: of a wide table, the columns to leave out.
        transpose: True for a table with a row for each model and a column for each item.

    Returns:
        `Scores`: the names of the models, the (n, l) values with NaN where a model has none,
        the keys of the items, their strata and groups, the direction, and notes on how they
        were read.

    >>> rows = {"item": [1, 2, 1, 2], "model": ["a", "a", "b", "b"], "accuracy": [1, 0, 1, 1]}
    >>> read = scores(rows, item="item", model="model", score="accuracy")
    >>> read.names, read.values.tolist(), read.higher_is_better
    (('a', 'b'), [[1.0, 1.0], [0.0, 1.0]], True)
    """
    given = {"item": item, "model": model, "score": score, "stratum": stratum, "group": group}
    roles = {role: column for role, column in given.items() if column is not None}
    wide_only = {"columns": columns, "drop": drop}
    by_item = {"strata": strata, "groups": groups, "labels": labels}
    if isinstance(source, Scores):
        others = {**roles, "names": names, **by_item, "weights": weights, **wide_only}
        _refuse_given(others, "the scores have it already; leave it out")
        return _with_direction(source, higher_is_better)
    _refuse_folder(source)
    for role, argument in (("stratum", "strata"), ("group", "groups")):
        if role in roles:
            why = f"expected once, got {role}={roles[role]!r} too; leave out one of the two"
            _refuse_given({argument: by_item[argument]}, why)
        if isinstance(by_item[argument], str):
            raise InputError(
                f"{argument}: expected labels, one per item, got text; a column is named by "
                f"{role}={by_item[argument]!r}"
            )
    if transpose:
        models = roles.pop("model", None)
        _refuse_given(
            {**roles, **wide_only},
            "in a transposed table every column is an item; leave it out",
        )
        source = _transposed(source, models)
    if "model" in roles or "score" in roles:
        _refuse_given(
            {"names": names},
            "a table in long form has them in its model column; leave them out",
        )
        _refuse_given(wide_only, "belongs to tables with a column for each model; leave it out")
        read = _long(source, roles, labels)
    else:
        read = _wide(
            source, roles, names, labels, parse_columns(columns), parse_columns(drop) or ()
        )
    count = len(read.values)
    read = replace(
        read,
        strata=read.strata if strata is None else group_labels("strata", strata, count),
        groups=read.groups if groups is None else group_labels("groups", groups, count),
        weights=weights,
    )
    if weights is not None and read.strata is None:
        raise InputError("weights: belongs to strata=, whose parts it weighs; leave it out")
    read = _without_row_numbers(read)
    if (roles or _is_named(source)) and columns is None and read.metric is None:
        read = _with_scale_notes(read)
    return _with_direction(read, higher_is_better)


def with_score_options(function: F) -> F:
    """Show the options of `scores` in the signature of a function that has them as
    ``**options``.
    """
    signature = inspect.signature(function)
    known = list(signature.parameters.values())
    read = inspect.signature(scores).parameters
    options = [read[name] for name in ScoreOptions.__annotations__]
    named = [each for each in known if each.kind is not inspect.Parameter.VAR_KEYWORD]
    shown = signature.replace(parameters=[*named, *options])
    function.__signature__ = shown  # type: ignore[attr-defined]
    return function


def _refuse_given(options: Mapping[str, Any], why: str) -> None:
    """Refuse the first of these options that is given."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}: {why}")


def _refuse_folder(source: Any) -> None:
    """Refuse a folder that is no table: it is likely to hold the logs of an evaluation."""
    file = as_file(source)
    path = None if file is None else Path(file.source)
    if path is not None and path.is_dir() and format_of(path) is None:
        advice = way(
            f"use  relfit evals {shlex.quote(str(path))}",
            f"use relfit.read_evals({str(path)!r})",
        )
        raise InputError(
            f"{path}: expected a file, got a folder; for the logs of evaluations {advice}"
        )


# ── the forms ─────────────────────────────────────────────────────────────────────────────────


def _is_named(source: Any) -> bool:
    return as_file(source) is not None or frame_names(source) is not None


def _matrix(
    argument: str, value: Any, keys: Labels | None = None
) -> tuple[Array, tuple[str, ...] | None, Labels | None]:
    """The numbers (n, l) with NaN where one is missing, the models' names, and the items'
    keys if there are some: `keys` in their order, or those of the first model.
    """
    _refuse_no_scores(argument, value)
    if isinstance(value, Mapping):
        for name, column in value.items():
            _refuse_no_scores(f"{argument}[{name!r}]", column)
        keyed = {name: column for name, column in value.items() if _has_keys(column)}
        if 0 < len(keyed) == len(value):
            return _of_keys(argument, keyed, keys)
        columns = {
            name: as_rows(f"{argument}[{name!r}]", column, missing=True)
            for name, column in value.items()
        }
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(
                f"{argument}: expected as many losses for every model, got {lengths}"
            )
        wide = next((name for name, column in columns.items() if column.shape[1] > 1), None)
        if wide is not None:
            raise InputError(
                f"{argument}[{wide!r}]: expected one number for each item, got "
                f"an array of shape {columns[wide].shape}"
            )
        rows = np.hstack(list(columns.values())) if columns else as_rows(argument, [])
        return rows, tuple(columns), None
    named = keyed_columns(argument, value) if _is_named(value) else None
    if named is None:
        return as_rows(argument, value, missing=True), None, None
    where = argument if as_file(value) is None else value
    advice = f"name a key of the items as item=, and {_LEAVE_OUT}"
    return _numbers(where, named, advice), tuple(named), None


def _refuse_no_scores(argument: str, value: Any) -> None:
    """Refuse a single number, such as the mean over all items, and the data of a Bayesian
    model.
    """
    if is_inference_data(value):
        raise InputError(
            f"{argument}: expected scores, got {type(value).__name__}; PSIS-LOO gives scores "
            f"of Bayesian models: use "
            'relfit.decide(relfit.from_elpd({"name": data, ...}))'
        )
    if isinstance(value, Real | np.number | np.bool_) or getattr(value, "ndim", None) == 0:
        raise InputError(
            f"{argument}: expected a score for each item, got one number; pass the scores of "
            f"the items, because the "
            "error of their mean is computed from them"
        )


def _has_keys(column: Any) -> bool:
    """True for a mapping or a pandas Series, which give every score its item's key."""
    return isinstance(column, Mapping) or (
        is_instance(column, "pandas", "Series") and column.index.is_unique
    )


def _of_keys(
    argument: str, keyed: Mapping[str, Any], keys: Labels | None
) -> tuple[Array, tuple[str, ...], Labels]:
    """The columns matched by key."""
    of_models = [dict(column.items()) for column in keyed.values()]
    if keys is None:
        found = list(dict.fromkeys(key for column in of_models for key in column))
        keys = np.empty(len(found), dtype=object)
        keys[:] = found
    columns = {
        name: [column.get(key) for key in keys]
        for name, column in zip(keyed, of_models, strict=True)
    }
    cells = keyed_columns(argument, columns) or {}
    return _numbers(argument, cells, "give a number for every item"), tuple(cells), keys


def _wide(
    source: Any,
    roles: Mapping[str, str],
    names: Sequence[str] | None,
    labels: Any,
    kept: Sequence[Any] | None,
    dropped: Sequence[Any],
) -> Scores:
    """A matrix, or a table with a column for each model, and others that name the item, its
    stratum or its group or are dropped.
    """
    aside: dict[str, Cells] = {}
    if roles or kept is not None or dropped:
        columns = _columns_of(source)
        aside = {role: _take(role, columns, column) for role, column in roles.items()}
        for name in dropped:
            _take("drop", columns, name)
        others = {*roles.values(), *dropped}
        rest = {name: column for name, column in columns.items() if name not in others}
        if kept is not None:
            rest = {name: _take("columns", rest, name) for name in kept}
        if not rest:
            raise InputError(
                "losses: expected a column for each model, got none besides those of the items"
            )
        values = _numbers("losses", rest, _LEAVE_OUT)
        found: tuple[str, ...] | None = tuple(rest)
        keys = None
    else:
        values, found, keys = _matrix("losses", source)
    people = None if labels is None else _matrix("labels", labels, keys)[0]
    if people is not None and people.shape != values.shape:
        raise InputError(
            f"labels: expected shape {values.shape} like losses, NaN where there is none, got "
            f"{people.shape}"
        )
    names = found if names is None else names
    if "item" in aside:
        models = np.tile(np.arange(values.shape[1]), len(values))
        each = None if people is None else people.ravel()
        return _by_item(aside, names or (), models, values.ravel(), each)
    labelled = {role: _labels(role, cells) for role, cells in aside.items()}
    return _checked(names, values, keys, labelled.get("stratum"), labelled.get("group"), people)


def _long(source: Any, roles: Mapping[str, str], labels: Any) -> Scores:
    """A row for each model and item."""
    for role in ("item", "model", "score"):
        if role not in roles:
            raise InputError(
                f"{role}: expected the name of a column, since a table in long form needs "
                f"item=, model= and score="
            )
    columns = _columns_of(source)
    if labels is not None:
        roles = {**roles, "labels": labels}
    aside = {role: _take(role, columns, column) for role, column in roles.items()}
    numbers = {
        role: _numbers(role, {roles[role]: aside.pop(role)}, "convert it to numbers").ravel()
        for role in ("score", "labels")
        if role in aside
    }
    texts = [as_text(cell) for cell in _labels("model", aside.pop("model")).tolist()]
    place = {name: k for k, name in enumerate(dict.fromkeys(texts))}
    models = np.array([place[text] for text in texts])
    read = _by_item(aside, tuple(place), models, numbers["score"], numbers.get("labels"))
    return replace(read, metric=roles["score"])


def _columns_of(source: Any) -> Mapping[str, Cells]:
    columns = keyed_columns("losses", source)
    if columns is None:
        raise InputError(
            "losses: expected a data frame, a mapping of columns or a file with column names, "
            "got another form"
        )
    if not columns or not len(next(iter(columns.values()))):
        raise InputError("losses: expected rows, got an empty table")
    return columns


def _by_item(
    aside: Mapping[str, Cells],
    names: Sequence[str],
    models: Rows,
    values: Array,
    people: Array | None,
) -> Scores:
    """The mean score of each item and model, with a note if there are several.

    Items are known by their stratum and their key, the columns `aside` of a table. `values`
    are one or several for each row of it; `models` says which model each of them is of.
    """
    labels = {role: _labels(role, cells) for role, cells in aside.items()}
    count, code = _codes(aside["item"])
    if "stratum" in aside:
        code = _codes(aside["stratum"])[1] * count + code
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    code = code.ravel()
    if "group" in aside:
        group = aside["group"].values
        other = group != group[first][code]
        if other.any():
            key = as_text(labels["item"][int(np.argmax(other))])
            raise InputError(f"group: expected one group for each item, got two for item {key}")
    place = np.repeat(code, len(values) // len(code)) * len(names) + models
    shape = (len(first), len(names))
    means, counts = mean_scores(place, values, shape)
    most = int(counts.max(initial=0.0))
    notes: tuple[str, ...] = ()
    if most > 1:
        several = int((counts > 1.0).any(axis=1).sum())
        notes = (
            f"{several} of {len(first)} items have up to {most} scores of one model; an item's "
            f"score is their mean",
        )
    at_first = {role: column[first] for role, column in labels.items()}
    checked = _checked(
        names,
        means,
        at_first["item"],
        at_first.get("stratum"),
        at_first.get("group"),
        None if people is None else mean_scores(place, people, shape)[0],
    )
    return replace(checked, order=first, repeats=most, notes=notes)


def mean_scores(place: Rows, values: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    """The means of the values with each place, NaN where there are none, and their numbers."""
    size = shape[0] * shape[1]
    there = ~np.isnan(values)
    counts = np.bincount(place[there], minlength=size).astype(float)
    totals = np.bincount(place[there], weights=values[there], minlength=size)
    means = np.divide(totals, counts, out=np.full(size, np.nan), where=counts > 0.0)
    return means.reshape(shape), counts.reshape(shape)


def _codes(cells: Cells) -> tuple[int, Rows]:
    """The number of different values, and for each cell the place of its own among them,
    sorted.
    """
    if cells.kind != "text":
        values, codes = np.unique(cells.values, return_inverse=True)
        return len(values), np.asarray(codes.ravel(), dtype=np.intp)
    place = np.argsort(np.argsort(np.array(cells.levels, dtype=object)))
    return len(place), np.asarray(place[cells.values])


def _transposed(source: Any, model: str | None) -> Any:
    """A table with a row for each model as a mapping of models to scores of items; of
    numbers alone, as an array.

    The column `model` holds the names; None is the only column of text.
    """
    columns = keyed_columns("losses", source)
    if columns is None:
        return as_rows("losses", source, missing=True).T
    texts = [name for name, cells in columns.items() if _as_numbers(cells) is None]
    if model is None and len(texts) != 1:
        raise InputError(
            f"losses: expected one column of text, the names of the models, got {len(texts)}; "
            f"name the column of the models by model="
        )
    cells = _take("model", columns, texts[0] if model is None else model)
    called = [as_text(name) for name in _labels("model", cells).tolist()]
    twice = next((name for name in called if called.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"losses: expected one row for each model in a transposed table, got "
            f"two of {twice!r}"
        )
    items = {name: cells for name, cells in columns.items() if name not in (model, *texts)}
    rows = _numbers("losses", items, _LEAVE_OUT).tolist() if items else [()] * len(called)
    keyed = [dict(zip(items, row, strict=True)) for row in rows]
    return dict(zip(called, keyed, strict=True))


# ── columns ───────────────────────────────────────────────────────────────────────────────────


def _take(argument: str, columns: Mapping[str, Cells], name: Any) -> Cells:
    """The column of this name, which the argument asks for."""
    if not isinstance(name, str) or name not in columns:
        known = listed(list(columns), "or", most=_MOST_NAMES, quote=repr) if columns else "none"
        raise InputError(f"{argument}: expected the name of a column ({known}), got {name!r}")
    return columns[name]


def _labels(role: str, cells: Cells) -> Labels:
    """The keys or labels in a column, none of which may be missing."""
    missing = np.flatnonzero(cells.missing)
    if len(missing):
        raise InputError(
            f"{role}: expected a value in every row, got none in row {int(missing[0])}"
        )
    return labels_of(cells)


def _numbers(where: object, columns: Mapping[str, Cells], advice: str) -> Array:
    """(n, l) the numbers in columns, NaN where one is missing; text is refused."""
    numbers = {name: _as_numbers(cells) for name, cells in columns.items()}
    others = [(name, columns[name].kind) for name, values in numbers.items() if values is None]
    if others:
        _refuse_transposed(len(columns[others[0][0]]), len(columns))
        refuse_not_numeric(where, others, advice)
    return np.column_stack([values for values in numbers.values() if values is not None])


def _as_numbers(cells: Cells) -> Array | None:
    """The numbers or truth values in a column; None for text and dates."""
    if cells.kind == "number":
        return np.asarray(cells.values)
    truth = [_TRUTH.get(level.lower(), np.nan) for level in cells.levels]
    if cells.kind != "text" or np.isnan(truth).any():
        return None
    return np.asarray(cells.of_levels(truth, np.nan))


def as_text(cell: Any) -> str:
    """A cell as text, whole numbers without a point."""
    return f"{cell:.15g}" if isinstance(cell, float) else str(cell)


# ── checks ────────────────────────────────────────────────────────────────────────────────────


def _checked(
    names: Sequence[str] | None,
    values: Array,
    items: Labels | None = None,
    strata: Labels | None = None,
    groups: Labels | None = None,
    labels: Array | None = None,
) -> Scores:
    """The scores with a name for every column."""
    n, count = values.shape
    as_rows("losses", values, missing=True)
    names = (
        tuple(f"m{k}" for k in range(1, count + 1))
        if names is None
        else tuple(map(as_name, names))
    )
    if len(names) != count:
        raise InputError(f"names: expected {count}, one per column of losses, got {len(names)}")
    if not all(map(is_text, names)) or len(set(names)) < len(names):
        raise InputError(
            f"names: expected different texts, got {listed(list(names), quote=repr)}"
        )
    strata = None if strata is None else group_labels("stratum", strata, n)
    groups = None if groups is None else group_labels("group", groups, n)
    return Scores(names, values, items, strata, groups, labels=labels)


def _refuse_transposed(n: int, count: int) -> None:
    """Refuse a table that has so few rows and so many columns that its rows must be models."""
    if n < FEWEST_ITEMS <= count:
        raise InputError(
            f"losses: expected a row for each item and a column for each model, got {n} rows "
            f"and {count} columns; if "
            f"rows are models, {way('use --transpose', 'pass losses.T')}"
        )


def _ends(values: Array) -> tuple[float, float]:
    """The smallest and the largest score."""
    known = values[~np.isnan(values)]
    return extremes(known) if len(known) else (0.0, 0.0)


def _with_direction(table: Scores, given: Any) -> Scores:
    """The scores with the direction that is given, recorded or told by the name of the
    metric, and a note on it.
    """
    usual = table.higher_is_better
    if given is None:
        if usual is not None or table.metric is None:
            return table
        told, note = told_direction(table.metric, *_ends(table.values))
        return (
            table
            if told is None
            else replace(table, higher_is_better=told, notes=(note, *table.notes))
        )
    if not isinstance(given, bool | np.bool_):
        raise InputError(f"higher_is_better: expected True or False, got {given!r}")
    if usual is None and table.metric is not None:
        usual = known_direction(table.metric)
    notes = table.notes
    if usual not in (None, bool(given)):
        words = ("larger", "smaller") if usual else ("smaller", "larger")
        note = (
            f"{table.metric} is usually better when {words[0]}; {words[1]} is taken as "
            f"better, as requested"
        )
        notes = (note, *notes)
    return replace(table, higher_is_better=bool(given), notes=notes)


def _without_missing(table: Scores, max_missing: float) -> Scores:
    """The items that every model has a score for, with notes on how many were left out."""
    missing = np.isnan(table.values)
    kept = int((~missing.any(axis=1)).sum())
    if kept < FEWEST_ITEMS:
        n = len(missing)
        lost = ""
        if kept < n:
            advice = "score all models on the same items, or leave out a model"
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
    n = len(missing)
    dropped = n - kept
    if not dropped:
        return table
    note = (
        f"{dropped} of {n} {_items_were(dropped)} left out, for which some model has no score"
    )
    lacking = missing_doubt(table.names, missing, max_missing)
    rest = "those that are left may be easier or harder than the rest"
    if lacking is not None:
        note = f"{note}; {lacking}, and {rest}"
    elif dropped > MAX_MISSING * n:
        note = f"{note}; {rest}"
    complete = table.at(np.asarray(~missing.any(axis=1)))
    return complete.noted(note, doubt=lacking is not None)


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


def _with_scale_notes(table: Scores) -> Scores:
    """The table with a note if some columns are on another scale than most: they may be no
    models, such as n_tokens.

    A column is, if its typical size (the mean of |x|) is 3 times the largest |x| of the
    others; so is a column if the typical sizes of all others are 3 times its largest.
    """
    there = ~np.isnan(table.values)
    sizes = np.abs(np.nan_to_num(table.values))
    typical = sizes.sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    largest = sizes.max(axis=0, initial=0.0)
    order = np.argsort(typical)
    below = np.maximum.accumulate(largest[order])[:-1]
    ratio = np.divide(typical[order][1:], below, out=np.zeros_like(below), where=below > 0.0)
    if not (ratio >= OTHER_SCALE).any():
        return table
    cut = int(ratio.argmax()) + 1
    above = cut >= len(order) / 2
    odd, rest = (order[cut:], order[:cut]) if above else (order[:cut], order[cut:])
    names = listed([table.names[j] for j in sorted(odd)], quote=repr)
    verb = "are" if len(odd) > 1 else "is"
    note = (
        f"{names} {verb} on another scale than the other columns (mean size "
        f"{typical[odd].max():.3g} and "
        f"{typical[rest].max():.3g}), so {names} may not be scores of a model: leave out such "
        f"columns with drop=, or "
        "name the models with columns="
    )
    return table.noted(note, doubt=bool(above and ratio[cut - 1] >= SURELY_OTHER_SCALE))


def _without_row_numbers(table: Scores) -> Scores:
    """The table without the row numbers that pandas writes under a name of its own, and a
    note.
    """
    columns = zip(table.names, table.values.T, strict=True)
    numbers = [name for name, column in columns if name in ROW_NUMBERS and is_key(column)]
    if not numbers:
        return table
    kept = [j for j, name in enumerate(table.names) if name not in numbers]
    return table.noted(
        f"columns left out: {listed(numbers, quote=repr)} (row numbers)",
        names=tuple(table.names[j] for j in kept),
        values=table.values[:, kept],
        labels=None if table.labels is None else table.labels[:, kept],
    )


def _refuse_keys(table: Scores) -> None:
    """Refuse a column that numbers the items: it grows by 1 from row to row, or is called so
    and never repeats.

    Taken for a model, it would be one with losses of its own.
    """
    for name, column in zip(table.names, table.values.T, strict=True):
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
    low, high = extremes(table.values)
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
    return table.noted(
        note,
        values=np.ldexp(table.values, -exponent),
        labels=None if table.labels is None else np.ldexp(table.labels, -exponent),
        unit=math.ldexp(1.0, exponent),
    )
