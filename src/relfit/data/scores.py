"""Scores of several models on the same items, read once from a matrix, a mapping, a frame, a
file or evaluation logs.

Tables are wide, with a column for each model, or long, with a row for each model and item.
Rows are matched by the key of the item where there is one, whatever their order.
"""

from __future__ import annotations

import inspect
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import numpy as np

from relfit.data.arrays import as_rows, group_labels, is_inference_data
from relfit.data.files import as_file, format_of
from relfit.data.files.base import parse_columns, refuse_not_numeric
from relfit.data.files.text import ROW_NUMBERS
from relfit.data.metrics import known_direction, told_direction
from relfit.data.repeats import (
    by_level,
    check_levels,
    is_dense,
    levels_of,
    mean_levels,
    mean_scores,
    occurrences,
    run_levels,
    run_note,
)
from relfit.data.scored import (
    MISSING,
    Labels,
    Scores,
    as_text,
    ends,
    refuse_transposed,
)
from relfit.data.tables import Cells, frame_names, is_key, keyed_columns, labels_of
from relfit.util.arrays import Array, Rows
from relfit.util.checks import check_choice, check_number
from relfit.util.errors import InputError, way
from relfit.util.libraries import is_instance
from relfit.util.text import as_name, is_text, listed

# A typical score so many times the largest score of the other models is on another scale; the
# second is beyond doubt.
OTHER_SCALE = 3.0
SURELY_OTHER_SCALE = 100.0
_LEAVE_OUT = (
    "leave out other columns with drop=, or name model= and score= of a row for each "
    "model and item"
)
_MOST_NAMES = 8
_TRUTH = {"true": 1.0, "false": 0.0}

F = TypeVar("F", bound=Callable[..., Any])


class ScoreOptions(TypedDict, total=False):
    """The options of `scores` but for `names`, for functions that also accept what it reads."""

    higher_is_better: bool | None
    item: str | Sequence[str] | None
    model: str | None
    score: str | None
    stratum: str | None
    group: str | Sequence[str] | None
    run: str | bool | None
    judge: str | bool | None
    strata: Any
    groups: Any
    weights: Mapping[Any, float] | None
    labels: Any
    columns: Any
    drop: Any
    transpose: bool
    missing: str | None
    min_coverage: float | None


def scores(
    source: Any,
    *,
    names: Sequence[str] | None = None,
    higher_is_better: bool | None = None,
    item: str | Sequence[str] | None = None,
    model: str | None = None,
    score: str | None = None,
    stratum: str | None = None,
    group: str | Sequence[str] | None = None,
    run: str | bool | None = None,
    judge: str | bool | None = None,
    strata: Any = None,
    groups: Any = None,
    weights: Mapping[Any, float] | None = None,
    labels: Any = None,
    columns: Any = None,
    drop: Any = None,
    transpose: bool = False,
    missing: str | None = None,
    min_coverage: float | None = None,
) -> Scores:
    """Read the scores of models on the same items, for `compare_losses`, `from_losses`,
    `plan`, `Monitor` and reports.

    Args:
        source: (n, l) scores of l models on the same n items: negative log-likelihoods of
            held-out rows, answers to benchmark questions, forecast losses; or a mapping of
            names to n scores, or to mappings of item keys to scores; or a data frame or a
            file, wide (a column for each model) or long (a row for each model and item); or
            what `relfit.read_evals` returned. An array (n, l, k), or lists of k runs in a
            mapping, hold k training runs of each model.
        names: l names; by default a mapping's keys, a frame's columns or the names in a file,
            else m1, m2, ….
        higher_is_better: True for scores such as accuracies, False for losses. None uses the
            direction that the name of the column `score` or an evaluation log tells
            ("accuracy", "val_loss").
        item: the name of a column of a frame or a file that holds the items' keys, or several
            names of columns that make up the key. Rows are matched by it, whatever their
            order; several scores of a model for one item (epochs, seeds) become their mean.
        model: with `score` and `item`, the column of models of a long table.
        score: the column of scores of a long table.
        stratum: the column that holds `strata`.
        group: the column that holds `groups`, or two columns for items that depend on each
            other in two ways (prompt and annotator, place and week).
        run: the column of the training run. The runs of a model are then a random sample of
            all that its method gives, and the verdicts are about the methods. True: the runs
            are in an array (n, l, k) or in lists of a mapping, which is the default for these.
        judge: the column of the judge who gave the score, a random sample of judges who all
            score every model. True: as for `run`.
        strata: n labels of the parts (tasks of a benchmark) that a macro average is over: the
            mean of the parts' means.
        groups: n labels of dependent items (questions about one text, days of one week), or
            two such lists.
        weights: the weight of each stratum, by its label; by default all are equal. They are
            divided by their sum.
        labels: scores by people, of the same shape as `source` with NaN where there is none
            (of a long table the name of a column): `source` are then the scores of a judge,
            which the labels correct.
        columns: of a wide table, the columns of the models; others are left out.
        drop: of a wide table, the columns to leave out.
        transpose: True for a table with a row for each model and a column for each item.
        missing: items that some model has no score for are left out ("common", the default),
            adjusted for ("adjust"), or an error ("refuse"). "adjust" estimates an effect of
            each item and a mean of each model from all scores, on the assumption that how
            much harder an item is does not depend on the model.
        min_coverage: with "adjust", models that have scores of a smaller fraction of the items
            are left out, by default 0.5.

    Returns:
        `Scores`: the names of the models, the (n, l) values with NaN where a model has none,
        the keys of the items, their strata and groups, the direction, and notes on how they
        were read.

    >>> rows = {"item": [1, 2, 1, 2], "model": ["a", "a", "b", "b"], "accuracy": [1, 0, 1, 1]}
    >>> read = scores(rows, item="item", model="model", score="accuracy")
    >>> read.names, read.values.tolist(), read.higher_is_better
    (('a', 'b'), [[1.0, 1.0], [0.0, 1.0]], True)
    """
    group, other_group = _one_or_two("group", group)
    named = {
        "item": item,
        "model": model,
        "score": score,
        "stratum": stratum,
        "group": group,
        "crossed": other_group,
        "run": None if isinstance(run, bool) else run,
        "judge": None if isinstance(judge, bool) else judge,
    }
    given = {role: column for role, column in named.items() if column is not None}
    wide_only = {"columns": columns, "drop": drop}
    by_item = {"strata": strata, "groups": groups, "labels": labels}
    if isinstance(source, Scores):
        others = {**given, "names": names, **by_item, "weights": weights, **wide_only}
        _refuse_given(others, "the scores have it already; leave it out")
        return _with_direction(_with_missing(source, missing, min_coverage), higher_is_better)
    _refuse_folder(source)
    source, roles = _with_key(source, given)
    source, cube = levels_of(source)
    if cube is None and (run is True or judge is True):
        which = "run" if run is True else "judge"
        raise InputError(
            f"{which}: expected an array (items, models, {which}s) or a mapping of models to "
            f"lists of {which}s, got a table; name its column"
        )
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
    first, second = _label_lists(groups)
    read = replace(
        read,
        strata=read.strata if strata is None else group_labels("strata", strata, count),
        groups=read.groups if first is None else group_labels("groups", first, count),
        crossed=read.crossed if second is None else group_labels("groups", second, count),
        weights=weights,
    )
    if cube is not None:
        role = "judge" if judge is True else "run"
        check_levels(role, cube, read.names, [str(k) for k in range(1, cube.shape[2] + 1)])
        read = replace(read, **{f"{role}s": cube, "repeats": cube.shape[2]})
    read = _with_missing(read, missing, min_coverage)
    if weights is not None and read.strata is None:
        raise InputError("weights: belongs to strata=, whose parts it weighs; leave it out")
    read = _without_row_numbers(read)
    if (roles or _is_named(source)) and columns is None and read.metric is None:
        read = _with_scale_notes(read)
    return _with_direction(read, higher_is_better)


def _one_or_two(argument: str, names: Any) -> tuple[str | None, str | None]:
    """A name of a column and perhaps a second one."""
    if names is None or isinstance(names, str):
        return names, None
    several = tuple(names) if np.iterable(names) else ()
    if len(several) not in (1, 2) or not all(isinstance(each, str) for each in several):
        raise InputError(f"{argument}: expected the names of one or two columns, got {names!r}")
    if len(set(several)) < len(several):
        raise InputError(f"{argument}: expected different columns, got {several[0]!r} twice")
    return several[0], several[1] if len(several) == 2 else None


def _label_lists(groups: Any) -> tuple[Any, Any]:
    """The labels of one grouping of the items, or of two."""
    columns = groups.T if isinstance(groups, np.ndarray) and groups.ndim == 2 else groups
    if not isinstance(columns, tuple | list | np.ndarray) or len(columns) != 2:
        return groups, None
    lists = [np.iterable(each) and not isinstance(each, str) for each in columns]
    return (columns[0], columns[1]) if all(lists) else (groups, None)


def _with_key(source: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
    """The table with a single column for the items' key, and the column of each role."""
    item = given.get("item")
    if item is None or isinstance(item, str):
        return source, dict(given)
    names = list(dict.fromkeys(item))
    others = {role: column for role, column in given.items() if role != "item"}
    columns = dict(_columns_of(source))
    code = np.zeros(len(next(iter(columns.values()))), dtype=np.intp)
    for name in names:
        cells = _take("item", columns, name)
        _labels("item", cells)
        count, own = _codes(cells)
        code = code * count + own
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    texts = [map(as_text, labels_of(columns[name])[first].tolist()) for name in names]
    levels = tuple(map(" ".join, zip(*texts, strict=True)))
    for name in {*names} - {*others.values()}:
        del columns[name]
    joined = ", ".join(names)
    return {**columns, joined: Cells("text", code.ravel(), levels)}, {**others, "item": joined}


def _with_missing(table: Scores, missing: Any, min_coverage: Any) -> Scores:
    """The scores with what becomes of items that some model lacks, where that is given."""
    if missing is not None:
        table = replace(table, missing=check_choice("missing", missing, MISSING))
    if min_coverage is None:
        return table
    if table.missing != "adjust":
        raise InputError('min_coverage: belongs to missing="adjust"; leave it out')
    expected = "a fraction from 0 to 1"
    most = math.nextafter(1.0, 2.0)
    coverage = check_number("min_coverage", min_coverage, 0.0, most, expected, low_ok=True)
    return replace(table, min_coverage=coverage)


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
    for role in ("run", "judge"):
        if role in aside:
            raise InputError(
                f"{role}: expected with item=, the column of the items' keys, by which the "
                f"{role}s of an item are matched"
            )
    labelled = {role: _labels(role, cells) for role, cells in aside.items()}
    read = _checked(names, values, keys, labelled.get("stratum"), labelled.get("group"), people)
    return replace(read, crossed=labelled.get("crossed"))


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
    for role in ("group", "crossed"):
        if role not in aside:
            continue
        group = aside[role].values
        other = group != group[first][code]
        if other.any():
            key = as_text(labels["item"][int(np.argmax(other))])
            raise InputError(f"group: expected one group for each item, got two for item {key}")
    place = np.repeat(code, len(values) // len(code)) * len(names) + models
    shape = (len(first), len(names))
    means, counts = mean_scores(place, values, shape)
    most = int(counts.max(initial=0.0))
    notes: tuple[str, ...] = ()
    cubes: dict[str, Any] = {}
    for role in ("run", "judge"):
        if role in aside:
            _, own = np.unique(_codes(aside[role])[1], return_inverse=True)
            own = np.repeat(own.ravel(), len(values) // len(own.ravel()))
            level = run_levels(own, models) if role == "run" else own
            cube = by_level(role, place, values, shape, level)
            texts = [as_text(label) for label in np.unique(labels[role]).tolist()]
            check_levels(role, cube, names, texts)
            cubes[f"{role}s"] = cube
    if cubes:
        means = mean_levels(next(iter(cubes.values())))
    elif most > 1:
        several = int((counts > 1.0).any(axis=1).sum())
        note = (
            f"{several} of {len(first)} items have up to {most} scores of one model; an item's "
            f"score is their mean"
        )
        differ = None
        if is_dense(shape, most, len(values)):
            repeated = by_level("run", place, values, shape, occurrences(place))
            differ = run_note(repeated, names)
        notes = (note,) if differ is None else (note, differ)
    at_first = {role: column[first] for role, column in labels.items()}
    checked = _checked(
        names,
        means,
        at_first["item"],
        at_first.get("stratum"),
        at_first.get("group"),
        None if people is None else mean_scores(place, people, shape)[0],
    )
    crossed = at_first.get("crossed")
    if crossed is not None:
        crossed = group_labels("group", crossed, len(first))
    return replace(checked, order=first, crossed=crossed, repeats=most, notes=notes, **cubes)


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
        refuse_transposed(len(columns[others[0][0]]), len(columns))
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


def _with_direction(table: Scores, given: Any) -> Scores:
    """The scores with the direction that is given, recorded or told by the name of the
    metric, and a note on it.
    """
    usual = table.higher_is_better
    if given is None:
        if usual is not None or table.metric is None:
            return table
        told, note = told_direction(table.metric, *ends(table.values))
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
