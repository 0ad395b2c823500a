"""Columns of unlike units and kinds as rows of numbers: an encoding, fitted on the
reference, applied to all samples.

A number or a date becomes (x − centre)/scale. A category of L levels becomes L numbers, w/√2
for the level of a row and 0 for the others, so that two different levels are w apart. With
w² = 2/(1 − Σp²) for levels of frequencies p in the reference, the mean squared distance of
two of its cells is 2, as it is for standardised numbers: a truth value counts as the numbers
0 and 1 would. A Gaussian kernel of such rows is a Gaussian kernel of the numbers times a
kernel of which categories differ (Hamming). A missing cell is a level of its own, or the
centre with a flag beside it, √2 away. The encoding is a small record that results keep, so
that the same rows can be made again.
"""

from __future__ import annotations

import itertools
import math
import os
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from relfit.compute.memory import cuts, held_rows, is_mapped, parts, spilled, transposed
from relfit.data.arrays import LARGEST_VALUE
from relfit.data.files.json import read_json
from relfit.data.files.text import ROW_NUMBERS
from relfit.data.tables import (
    DATE,
    MOST_HELD,
    Cells,
    Table,
    date_text,
    drop_option,
    parsed_dates,
)
from relfit.util.arrays import Array, host, medians, rounds_coarsely
from relfit.util.checks import Choice, check_number, checked, described, option
from relfit.util.errors import InputError
from relfit.util.files import temporary_folder
from relfit.util.text import is_text, listed

# "whiten" is for densities: the score must be transformed with the rows.
SCALES = ("auto", "none", "robust", "whiten")
MISSING = ("flag", "drop", "refuse")
# The most levels of a category that have a place of their own.
MOST_LEVELS = 100
# Text is free, or an id, from so many different values on, if they are more than this fraction
# of the cells. Text of which most cells are numbers is a category up to so many different ones.
# Row numbers are told from so many rows on.
_MOST_FREE = 50
_FREE = 0.5
_FEW_LEVELS = 20
_FEWEST_NUMBERED = 20
_ROWS_AT_ONCE = 4096
_NUMBERS_AT_ONCE = 2**16
# The rows, and the numbers, by which the spreads of columns are compared.
_SPREAD_ROWS = 1000
_SPREAD_NUMBERS = 2**18
# Columns whose standard deviations differ by a larger factor are not alike.
_UNEVEN = 1.5
# How far a missing number is from the centre: as far as two cells are from each other, in the
# mean square.
_GAP = math.sqrt(2.0)
_CONSTANT = "constant in the reference"
_EMPTY = "every cell is missing"
_KINDS = {"number": "numbers", "date": "dates", "text": "text"}
# Medians are taken over at most so many rows, evenly spaced, and of so many numbers at once.
# The MAD of a normal law times this is its standard deviation.
_MEDIAN_ROWS = 1_000_000
_MEDIAN_NUMBERS = 2**21
_MAD = 1.482602218505602

# Differences of larger numbers overflow.
_LARGEST = 1e307

# One word for all columns, or a scale for each of some columns by name; the others are then
# scaled as by "auto".
Scale = str | Mapping[str, float]


def as_scale(value: Any) -> Scale | None:
    """The `scale` argument, checked; None stands for "auto" where columns have names, and
    for "none" elsewhere.
    """
    if value is None or (isinstance(value, str) and value in SCALES):
        return value
    if isinstance(value, Mapping) and value:
        return {
            str(name): check_number(f"scale[{name!r}]", s, 0.0, math.inf, "a number above 0")
            for name, s in value.items()
        }
    words = ", ".join(SCALES)
    raise InputError(
        f"scale: expected one of {words}, or a mapping of columns to scales, got "
        f"{reprlib.repr(value)}"
    )


def _column_names(argument: str, value: Any) -> tuple[str, ...]:
    names = (
        (value,)
        if isinstance(value, str)
        else tuple(value)
        if isinstance(value, Sequence)
        else (None,)
    )
    if not all(map(is_text, names)):
        raise InputError(f"{argument}: expected names of columns, got {reprlib.repr(value)}")
    return names


@described
@dataclass(frozen=True)
class Encode:
    """What the columns of tables mean, where that is not to be guessed."""

    categorical: Sequence[str] = option(
        (),
        lambda value: _column_names("categorical", value),
        "Columns whose values are levels, such as codes written as numbers.",
        flag="--categorical LIST",
    )
    drop: Sequence[str] = option(
        (),
        lambda value: _column_names("drop", value),
        "Columns to leave out, by name.",
        flag="--drop LIST",
    )
    missing: str = option(
        "flag",
        Choice(MISSING),
        "Missing cells: flag makes them values of their own, drop leaves out rows with one.",
        flag="--missing",
    )
    metadata: Any = option(
        None,
        help="SDV's metadata, which say what the columns hold.",
        flag="--metadata FILE.json",
        python="A JSON file or a dictionary.",
    )

    def __post_init__(self) -> None:
        checked(self)
        if self.metadata is not None and not isinstance(
            self.metadata, str | os.PathLike | Mapping
        ):
            raise InputError(
                f"metadata: expected a JSON file or a dictionary, got "
                f"{reprlib.repr(self.metadata)}"
            )

    def kinds(self, names: Sequence[str]) -> dict[str, tuple[str, str | None]]:
        """For columns of which something is known, the kind, or "id", and the form of dates."""
        _check_names("categorical", self.categorical, names)
        known = {} if self.metadata is None else _sdv_kinds(self.metadata, names)
        return {**known, **dict.fromkeys(self.categorical, ("category", None))}


def _check_names(argument: str, given: Iterable[str], names: Sequence[str]) -> None:
    wrong = next((name for name in given if name not in names), None)
    if wrong is not None:
        there = f"{'is' if len(names) == 1 else 'are'} {listed(names, most=8, quote=repr)}"
        raise InputError(f"{argument}: expected names of columns, got {wrong!r}; there {there}")


def _sdv_kinds(metadata: Any, names: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """The kinds in SDV's metadata; anything but numbers, categories, truth values and dates
    is an id or personal.
    """
    where = "metadata"
    if not isinstance(metadata, Mapping):
        where = os.fsdecode(metadata)
        metadata = read_json(Path(where))
    tables = metadata.get("tables", {"": metadata}) if isinstance(metadata, Mapping) else {}
    tables = tables if isinstance(tables, Mapping) else {}
    columns = [
        t["columns"]
        for t in tables.values()
        if isinstance(t, Mapping) and isinstance(t.get("columns"), Mapping)
    ]
    chosen = next(
        (each for each in columns if set(names) <= set(each)),
        columns[0] if len(columns) == 1 else None,
    )
    if chosen is None:
        raise InputError(
            f"{where}: expected SDV's metadata with a table that has these "
            f"columns, got something else"
        )
    kinds = {
        "numerical": "number",
        "categorical": "category",
        "boolean": "category",
        "datetime": "date",
    }
    known = {}
    for name in names:
        facts = chosen.get(name)
        if isinstance(facts, Mapping) and isinstance(facts.get("sdtype"), str):
            form = facts.get("datetime_format")
            known[name] = (
                kinds.get(facts["sdtype"], "id"),
                form if isinstance(form, str) else None,
            )
    return known


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    Attributes:
        name: its name; "column 0", "column 1", … where columns have none.
        kind: "number", "date" (seconds since 1970) or "category".
        centre, scale: a number x becomes (x − centre)/scale. Two levels are 1/scale apart.
        levels: of a category, those of the reference that have a place of their own.
        missing: missing cells have a place of their own; the number is then the centre.
        other: all other levels share a place.
        form: how dates are written, where that is not ISO 8601.
    """

    name: str
    kind: str = "number"
    centre: float = 0.0
    scale: float = 1.0
    levels: tuple[str, ...] = ()
    missing: bool = False
    other: bool = False
    form: str | None = None

    @property
    def labels(self) -> list[str]:
        """What each of the numbers that it becomes stands for."""
        known = (
            [f"{self.name} = {level}" for level in self.levels]
            if self.kind == "category"
            else [self.name]
        )
        other = [f"{self.name} = another level"] if self.other else []
        return [*known, *other, *([f"{self.name} is missing"] if self.missing else [])]

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return (len(self.levels) if self.kind == "category" else 1) + self.other + self.missing

    def found(self, source: str, cells: Cells) -> Array:
        """(n,) the place of each cell's level among the numbers that it becomes; of a number
        or a date its value.
        """
        if self.kind == "category":
            return self._places(source, _as_levels(source, self.name, cells))
        values = self.numbers(source, cells)
        gaps = 0 if self.missing else int(np.isnan(values).sum())
        if gaps:
            raise InputError(
                f"{source}: expected complete cells, got {gaps} missing in column {self.name!r}"
            )
        with np.errstate(over="ignore"):
            far = int((np.abs(values - self.centre) >= LARGEST_VALUE * self.scale).sum())
        if far:
            came = f"larger ones in {far} of {len(cells)} rows"
            raise InputError(
                f"{source}: expected numbers below {LARGEST_VALUE:g} in size in column "
                f"{self.name!r}, got {came}"
            )
        return values

    def _places(self, source: str, text: Cells) -> Array:
        position = {level: k for k, level in enumerate(self.levels)}
        other = len(self.levels) if self.other else -1
        gap = len(self.levels) + self.other if self.missing else other
        found = np.array(
            [*(position.get(level, other) for level in text.levels), gap], dtype=np.float64
        )
        places = np.asarray(found[text.values])
        if (places < 0).any():
            raise InputError(
                f"{source}: expected levels of the reference in column "
                f"{self.name!r}, got others"
            )
        return places

    def numbers(self, source: str, cells: Cells) -> Array:
        """Of a number or a date, the values of the cells, NaN where one is missing."""
        if cells.kind == self.kind or cells.missing.all():
            return (
                np.full(len(cells), np.nan)
                if cells.kind == "text"
                else np.asarray(cells.values)
            )
        expected = _KINDS[self.kind]
        got = _KINDS[cells.kind]
        if cells.kind == "text":
            counts = cells.counts
            values = [_parsed(level, self.kind, self.form) for level in cells.levels]
            wrong = [k for k, value in enumerate(values) if value is None and counts[k]]
            if not wrong:
                known = np.array(
                    [*(math.nan if value is None else value for value in values), math.nan]
                )
                return np.asarray(known[cells.values])
            got = (
                f"{cells.levels[wrong[0]]!r:.60} in {int(counts[wrong].sum())} of "
                f"{len(cells)} rows"
            )
        raise InputError(
            f"{source}: expected {expected} in column {self.name!r}, got {got}; fix them, or "
            f"name the column in "
            "categorical or drop"
        )


def _as_levels(source: str, name: str, cells: Cells) -> Cells:
    """The cells of a category as text; whole numbers that float64 rounds are refused."""
    if cells.whole is not None:
        raise InputError(
            f"{source}: expected levels that float64 can tell apart in column {name!r}, got "
            f"whole numbers up to "
            f"{cells.whole[1]}; write them as text, with a letter in front"
        )
    return cells.as_text()


def _parsed(text: str, kind: str, form: str | None = None) -> float | None:
    """The text as a number or a date."""
    if kind == "date":
        date = parsed_dates([text], form) if form is not None or DATE.fullmatch(text) else None
        return None if date is None else float(date[0])
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become rows of numbers.

    Attributes:
        scale: "auto" (mean and standard deviation of the reference), "robust" (median and
            scaled median absolute deviation), "none", or "given" where some scales were
            given.
        columns: the columns in use, in order.
        left_out: the other columns, each with the reason.
        missing: what is done with missing cells, as in `Encode`.
        root: (d, d) the lower triangle R with RRᵀ the correlations of the scaled columns,
            for "whiten": the scaled row z becomes R⁻¹z.
    """

    scale: str
    columns: tuple[Column, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    missing: str = "flag"
    root: tuple[tuple[float, ...], ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in use."""
        return tuple(column.name for column in self.columns)

    @property
    def centres(self) -> Array:
        """(d,) the centres of columns of numbers."""
        return np.array([column.centre for column in self.columns])

    @property
    def scales(self) -> Array:
        """(d,) the scales of columns of numbers."""
        return np.array([column.scale for column in self.columns])

    @property
    def labels(self) -> list[str]:
        """(d,) what each number of a row stands for."""
        return [label for column in self.columns for label in column.labels]

    @cached_property
    def slices(self) -> list[slice]:
        """For every column the numbers of a row that it became."""
        ends = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        return [slice(a, b) for a, b in itertools.pairwise(ends)]

    def apply(self, rows: Any, folder: Path | None = None) -> Any:
        """A `Table`, or rows (n, d) of numbers, encoded; with a folder they are mapped from
        a file in it.
        """
        if isinstance(rows, Table):
            return self._of_table(rows, folder)
        if self.scale == "none":
            return rows
        if folder is None:
            return self.encoded(rows)
        return spilled((self.encoded(rows[part]) for part in parts(rows.shape)), folder)

    def _of_table(self, table: Table, folder: Path | None) -> Array:
        absent = next((name for name in self.names if name not in table.columns), None)
        if absent is not None:
            raise InputError(f"{table.source}: expected a column called {absent!r}, got none")
        found = (
            column.found(table.source, table.columns[column.name]) for column in self.columns
        )
        # With a folder one column is held at a time.
        held = (
            list(found) if folder is None else spilled((cells[None] for cells in found), folder)
        )
        # Some rows at a time: they stay in the cache until all of their columns are written.
        blocks = (
            self._filled([cells[some] for cells in held])
            for some in cuts(len(table), _ROWS_AT_ONCE)
        )
        return held_rows(blocks) if folder is None else spilled(blocks, folder)

    def encoded(self, rows: Array) -> Array:
        """(n, width) the encoded rows of cells (n, d), which are numbers (NaN if missing) or
        the places of levels.
        """
        if self.slices[-1].stop > len(self.columns) or any(
            column.kind == "category" for column in self.columns
        ):
            return self._filled(rows.T)
        # What overflows is refused by the check of the values.
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.asarray((rows - self.centres) / self.scales)
        if self.root is None or not len(rows):
            return scaled
        return np.ascontiguousarray(
            solve_triangular(np.array(self.root), scaled.T, lower=True).T
        )

    def _filled(self, columns: Any) -> Array:
        """(n, width) the encoded rows of the cells of every column."""
        out = np.zeros((len(columns[0]), self.slices[-1].stop))
        flat = out.reshape(-1)
        first = np.arange(len(out)) * out.shape[1]
        for column, part, cells in zip(self.columns, self.slices, columns, strict=True):
            if column.kind == "category":
                flat[first + part.start + cells.astype(np.intp)] = 1.0 / (
                    math.sqrt(2.0) * column.scale
                )
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = (cells - column.centre) / column.scale
            if column.missing:
                gaps = np.flatnonzero(np.isnan(cells))
                scaled[gaps], out[gaps, part.start + 1] = 0.0, _GAP
            out[:, part.start] = scaled
        return out

    def in_words(self, row: Array) -> list[str]:
        """What the cells of an encoded row held, as text; of levels without a place of their
        own only that.

        >>> Encoding(
        ...     "auto",
        ...     (Column("x", "number", 10.0, 2.0), Column("c", "category", levels=("a", "b"))),
        ... ).in_words(np.array([1.5, 0.0, 0.7]))
        ['x = 13', 'c = b']
        """
        words = []
        for column, part in zip(self.columns, self.slices, strict=True):
            cells = row[part]
            if column.kind == "category" or (column.missing and cells[-1] > 0.0):
                words.append(column.labels[int(cells.argmax())])
                continue
            value = float(cells[0]) * column.scale + column.centre
            shown = date_text(round(value, 3)) if column.kind == "date" else f"{value:.6g}"
            whole = (
                column.kind == "number"
                and abs(value - round(value)) < 1e-9 * max(1.0, abs(value)) < 1e6
            )
            words.append(f"{column.name} = {round(value) if whole else shown}")
        return words

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Encoding:
        """The encoding that `to_dict` described; anything else is refused."""
        try:
            known = {item.name for item in fields(Column)}
            dicts = [
                {key: value for key, value in each.items() if key in known}
                for each in data["columns"]
            ]
            columns = tuple(
                Column(**{**each, "levels": tuple(each.get("levels", ()))}) for each in dicts
            )
            encoding = cls(
                data["scale"],
                columns,
                dict(data.get("left_out", {})),
                data.get("missing", "flag"),
            )
            words = [
                *encoding.names,
                *encoding.left_out.values(),
                *(level for c in columns for level in c.levels),
            ]
            numbers = [number for column in columns for number in (column.centre, column.scale)]
            right = (
                *(all(map(is_text, words)), len(set(encoding.names)) == len(columns) > 0),
                all(
                    type(number) in (int, float) and abs(number) < math.inf
                    for number in numbers
                ),
                all(
                    column.scale > 0.0 and column.kind in ("number", "date", "category")
                    for column in columns
                ),
                all(
                    type(flag) is bool
                    for column in columns
                    for flag in (column.missing, column.other)
                ),
                all(column.form is None or is_text(column.form) for column in columns),
                encoding.scale in (*SCALES, "given") and encoding.missing in MISSING,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"encoding: expected what Encoding.to_dict gives ({error})"
            ) from None
        if not all(right):
            raise ValueError(
                "encoding: expected columns with names, centres and scales above 0, got others"
            )
        if data.get("root") is None:
            return encoding
        root = np.array(data["root"], dtype=np.float64)
        if (
            root.shape != (len(columns),) * 2
            or not (np.isfinite(root).all() and (np.diag(root) > 0.0).all())
            or not np.array_equal(root, np.tril(root))
        ):
            raise ValueError(
                "encoding: expected a root that is a lower triangle with a "
                "diagonal above 0, got another"
            )
        return replace(encoding, root=tuple(map(tuple, root.tolist())))


def fit_rows(reference: Any, scale: Scale, names: Sequence[str] | None = None) -> Encoding:
    """The encoding of columns of numbers, from the reference rows (n, d).

    >>> fit_rows(np.array([[0.0, 5.0], [4.0, 5.0]]), "auto").scales
    array([2., 1.])
    """
    names = [f"column {k}" for k in range(reference.shape[1])] if names is None else names
    given = scale if isinstance(scale, Mapping) else {}
    _check_names("scale", given, names)
    if scale == "none":
        return Encoding("none", tuple(map(Column, names)))
    word = "given" if given else str(scale)
    centres, scales = (robust if word == "robust" else moments)(reference)
    columns = (
        Column(name, "number", float(c), float(given.get(name, s)))
        for name, c, s in zip(names, centres, scales, strict=True)
    )
    return Encoding(word, tuple(columns))


def moments(rows: Any) -> tuple[Array, Array]:
    """(d,) the mean and the standard deviation of each column; 1 for a constant one. Rows
    are read in parts.
    """
    first = rows[:1][0]
    largest = _over(rows, lambda block: np.abs(block - first).max(axis=0), np.maximum)
    unit = np.where(largest > 0.0, largest, 1.0)
    mean = _over(rows, lambda block: ((block - first) / unit).sum(axis=0), np.add) / len(rows)
    squares = _over(
        rows, lambda block: np.square((block - first) / unit - mean).sum(axis=0), np.add
    ) / len(rows)
    return first + unit * mean, np.where(largest > 0.0, unit * np.sqrt(squares), 1.0)


def uneven_columns(rows: Any) -> int | None:
    """The number of columns of rows (n, d) if their standard deviations differ by more than
    a half, else None.

    Constant columns do not count. About a thousand evenly spaced rows are enough, and may be
    tensors.

    A table of the same numbers is standardised, and gives other estimates.

    >>> (
    ...     uneven_columns(np.array([[0.0, 5.0], [4.0, 6.0]])),
    ...     uneven_columns(np.array([[0.0, 5.0], [1.0, 6.0]])),
    ... )
    (2, None)
    """
    count = min(_SPREAD_ROWS, max(20, _SPREAD_NUMBERS // rows.shape[1]))
    some = host(rows[:: max(1, len(rows) // count)]).astype(np.float64)
    some = some / (np.abs(some).max() or 1.0)
    variance = some.var(axis=0)
    variance = variance[variance > 0.0]
    return (
        int(rows.shape[1])
        if len(variance) > 1 and variance.max() > _UNEVEN**2 * variance.min()
        else None
    )


def robust(rows: Any) -> tuple[Array, Array]:
    """(d,) the median of each column and its scaled median absolute deviation (where that is
    0, the standard one).
    """
    centres: list[Array] = []
    spreads: list[Array] = []
    for columns in _some_columns(rows, max(1, -(-len(rows) // _MEDIAN_ROWS))):
        centre = medians(columns)
        centres.append(centre)
        spreads.append(_MAD * medians(np.abs(columns - centre)))
    spread = np.concatenate(spreads)
    known = spread > 0.0
    if not known.all():
        spread = np.where(known, spread, moments(rows)[1])
    return np.concatenate(centres), spread


def _some_columns(rows: Any, step: int) -> Iterator[Array]:
    """All columns of every `step`-th row, at most _MEDIAN_NUMBERS numbers or one column at a
    time.

    Those of a mapped file are copied to a temporary file first, so that the rows are read once.
    """
    count = -(-len(rows) // step)
    width = rows.shape[1]
    fewer = max(1, _MEDIAN_NUMBERS // count)
    if fewer >= width:
        yield rows[::step]
    elif not is_mapped(rows):
        for some in cuts(width, fewer):
            yield rows[::step, some]
    else:
        with temporary_folder() as folder:
            columns = transposed(rows[::step], folder)
            for some in cuts(width, fewer):
                yield columns[some].T


def _over(
    rows: Any, each: Callable[[Array], Array], join: Callable[[Array, Array], Array]
) -> Array:
    """A statistic of all rows from that of each part, which is small enough for the cache."""
    return reduce(join, (each(rows[part]) for part in parts(rows.shape, _NUMBERS_AT_ONCE)))


# ── tables ────────────────────────────────────────────────────────────────────────────────────


def encoded_tables(
    tables: Mapping[str | None, Table],
    scale: Scale,
    encode: Encode,
    encoding: Encoding | None = None,
    folder: Path | None = None,
) -> tuple[Encoding, dict[str | None, Any], tuple[str, ...]]:
    """The encoding of the reference (under None), unless a finished one is given, the rows
    of all tables, and notes.

    With a folder the rows are mapped from files in it, and one column at a time is held in
    memory.
    """
    notes: list[str] = []
    fitted = encoding or fit_table(tables[None], scale, encode)
    if fitted.missing == "drop":
        complete = {key: ~_any_missing(fitted, table) for key, table in tables.items()}
        notes += [
            f"{int((~kept).sum())} of {len(kept)} rows of {_whose(key)} have missing cells "
            f"and were left out"
            for key, kept in complete.items()
            if not kept.all()
        ]
        tables = {key: _kept(table, complete[key], folder) for key, table in tables.items()}
        empty = next((table.source for table in tables.values() if not len(table)), None)
        if empty is not None:
            raise InputError(
                f'{empty}: every row has a missing cell; use missing="flag", or drop a column'
            )
        fitted = encoding or fit_table(tables[None], scale, encode, fitted.left_out)
    if encoding is None:
        columns = tuple(
            _widened(column, tables, fitted.missing, notes) for column in fitted.columns
        )
        fitted = replace(fitted, columns=columns)
        gaps = [column.name for column in columns if column.missing]
        notes += (
            [f"missing cells of {listed(gaps, quote=repr)} count as a value of their own"]
            if gaps
            else []
        )
        notes += _left_out_notes(fitted, tables)
    return (
        fitted,
        {key: fitted.apply(table, folder) for key, table in tables.items()},
        tuple(notes),
    )


def fit_table(
    reference: Table,
    scale: Scale,
    encode: Encode,
    already_left_out: Mapping[str, str] | None = None,
) -> Encoding:
    """The encoding of a table's columns; those that say nothing of a distribution are left
    out.
    """
    given = scale if isinstance(scale, Mapping) else {}
    _check_names("scale", given, reference.names)
    if len(reference) < 2:
        # Every column of a single row is constant, which is not what is wrong with it.
        raise InputError(f"{reference.source}: expected at least 2 rows, got {len(reference)}")
    kinds = encode.kinds(reference.names)
    before = already_left_out or {}
    rest = reference.select([k for k, name in enumerate(reference.names) if name not in before])
    columns, left_out = fitted_columns(rest, scale, kinds)
    left_out = {
        name: {**before, **left_out}[name]
        for name in reference.names
        if name in before or name in left_out
    }
    if not columns:
        reasons = listed([f"{name!r} ({why})" for name, why in left_out.items()], quote=str)
        raise InputError(
            f"{reference.source}: no column is left to compare; left out: {reasons}"
        )
    return Encoding("given" if given else str(scale), tuple(columns), left_out, encode.missing)


def fitted_columns(
    table: Table, scale: Scale, kinds: Mapping[str, tuple[str, str | None]]
) -> tuple[list[Column], dict[str, str]]:
    """The columns of the reference that are compared, and the others with the reason;
    `kinds` are those known.
    """
    columns = []
    left_out = {}
    for name, cells in table.columns.items():
        fitted = _fitted(table.source, name, cells, scale, *kinds.get(name, (None, None)))
        if isinstance(fitted, Column):
            columns.append(fitted)
        else:
            left_out[name] = fitted
    return columns, left_out


def _fitted(
    source: str, name: str, cells: Cells, scale: Scale, kind: str | None, form: str | None
) -> Column | str:
    """How a column of the reference is encoded, or why it is left out."""
    given = scale.get(name) if isinstance(scale, Mapping) else None
    there = ~cells.missing
    count = int(there.sum())
    if kind == "id":
        return "an id or personal data, by the metadata"
    if not count:
        return _EMPTY
    if kind == "category" or (kind is None and cells.kind == "text"):
        text = _as_levels(source, name, cells)
        counts = text.counts
        differ = np.count_nonzero(counts)
        if kind is None:
            _refuse_mixed(source, name, text, counts)
            if differ > MOST_HELD:
                return f"free text or an id: more than {MOST_HELD} different values"
            if differ > _MOST_FREE and differ > _FREE * count:
                return f"free text or an id: {differ} different values in {count} cells"
        if differ == 1 and there.all():
            return _CONSTANT
        # The most frequent levels; of equally frequent ones the first by name, whatever their
        # order in the table.
        kept = sorted(
            (k for k in range(len(counts)) if counts[k]),
            key=lambda k: (-counts[k], text.levels[k]),
        )
        levels = tuple(sorted(text.levels[k] for k in kept[:MOST_LEVELS]))
        if given is None:
            places = [
                *counts[kept[:MOST_LEVELS]],
                counts[kept[MOST_LEVELS:]].sum(),
                len(there) - count,
            ]
            alike = float(np.square(np.array(places) / len(there)).sum())
            given = 1.0 if scale == "none" else math.sqrt((1.0 - alike) / 2.0)
        return Column(name, "category", 0.0, given, levels)
    column = Column(name, kind or cells.kind, form=form)
    values = column.numbers(source, cells)
    values = values if count == len(cells) else values[there]
    low = float(values.min())
    high = float(values.max())
    if not -_LARGEST < low <= high < _LARGEST:
        others = int((~(np.abs(values) < _LARGEST)).sum())
        raise InputError(
            f"{source}: expected finite numbers in column {name!r}, got {others} others"
        )
    if (
        cells.whole is not None
        and cells.whole[0] < cells.whole[1]
        and rounds_coarsely(low, high)
    ):
        raise InputError(
            f"{source}: expected numbers that float64 can tell apart in column {name!r}, got "
            f"whole numbers from "
            f"{cells.whole[0]} to {cells.whole[1]}; subtract a constant, or leave the "
            f"column out "
            f"({drop_option([name])})"
        )
    if low == high and count == len(cells):
        return _CONSTANT
    if column.kind == "number" and _are_row_numbers(name, values):
        return "row numbers"
    if scale == "none":
        return column
    (centre,), (spread,) = (robust if scale == "robust" else moments)(values[:, None])
    return replace(
        column, centre=float(centre), scale=float(spread if given is None else given)
    )


def _are_row_numbers(name: str, values: Array) -> bool:
    """True for numbers that count the rows, and for whole numbers that never repeat under a
    name for row numbers.
    """
    if name in ROW_NUMBERS:
        return bool((values == np.rint(values)).all()) and len(np.unique(values)) == len(values)
    enough = len(values) >= _FEWEST_NUMBERED
    return enough and all(
        bool((np.diff(some) == 1.0).all()) for some in (values[:_FEWEST_NUMBERED], values)
    )


def _refuse_mixed(source: str, name: str, text: Cells, counts: NDArray[np.intp]) -> None:
    """Refuse text of which most cells are dates or many different numbers: a few broken
    cells would hide the rest.
    """
    for kind, fewest in (("date", 1), ("number", _FEW_LEVELS)):
        like = np.array([_parsed(level, kind) is not None for level in text.levels])
        if (
            not like.all()
            and counts[like].sum() > 0.5 * counts.sum()
            and np.count_nonzero(like) > fewest
        ):
            wrong = next(level for k, level in enumerate(text.levels) if not like[k])
            raise InputError(
                f"{source}: column {name!r} holds {_KINDS[kind]}, but {wrong!r:.60} and "
                f"the like in "
                f"{int(counts[~like].sum())} of {int(counts.sum())} cells; fix them, or name "
                f"the column in categorical "
                "or drop"
            )


def _any_missing(encoding: Encoding, table: Table) -> NDArray[np.bool_]:
    return reduce(
        np.logical_or,
        (table.columns[name].missing for name in encoding.names if name in table.columns),
    )


def _kept(table: Table, rows: NDArray[np.bool_], folder: Path | None) -> Table:
    if rows.all():
        return table
    return table[rows] if folder is None else table.spilled(folder, rows)


def _widened(
    column: Column, tables: Mapping[str | None, Table], missing: str, notes: list[str]
) -> Column:
    """The column with places for missing cells and other levels, if any table has some;
    notes on rare and new levels.

    New are levels that the reference lacks.
    """
    gaps = {key: int(table.columns[column.name].missing.sum()) for key, table in tables.items()}
    first = next((key for key, count in gaps.items() if count), None)
    if missing == "refuse" and any(gaps.values()):
        raise InputError(
            f"{tables[first].source}: expected complete cells, got {gaps[first]} missing in "
            f"column {column.name!r}; "
            'fill them, or use missing="flag" or "drop"'
        )
    column = replace(column, missing=any(gaps.values()))
    empty = [_whose(key) for key, count in gaps.items() if count == len(tables[key])]
    notes += (
        [f"{column.name!r} is missing in every row of {listed(empty, quote=str)}"]
        if empty
        else []
    )
    if column.kind != "category":
        return column
    there = {key: table.columns[column.name].as_text().present for key, table in tables.items()}
    every = there.pop(None)
    rare = len(every) - len(column.levels)
    new = set[str]().union(*there.values()) - every
    if rare:
        notes.append(
            f"{column.name!r}: {len(column.levels)} levels are kept, and {rare} "
            f"rarer ones count as one"
        )
    if new:
        models = listed(
            [_whose(key) for key, levels in there.items() if not levels <= every], quote=str
        )
        shown = listed(sorted(new), quote=repr)
        notes.append(
            f"{column.name!r}: {shown} of {models} not in the reference; counted as "
            f"one level of its own"
        )
    return replace(column, other=bool(rare or new))


def _left_out_notes(encoding: Encoding, tables: Mapping[str | None, Table]) -> list[str]:
    if not encoding.left_out:
        return []
    shown = listed(
        [f"{name!r} ({why})" for name, why in encoding.left_out.items()], most=8, quote=str
    )
    notes = [f"columns left out: {shown}"]
    for name in (name for name, why in encoding.left_out.items() if why in (_CONSTANT, _EMPTY)):
        held = {key: table.columns[name].as_text().present for key, table in tables.items()}
        others = [_whose(key) for key, levels in held.items() if levels != held[None]]
        if others:
            value = f"{next(iter(held[None])):.60}" if held[None] else "missing"
            notes.append(
                f"{name!r} is {value} in every reference row, but not in "
                f"{listed(others, quote=str)}"
            )
    return notes


def _whose(key: str | None) -> str:
    return "the reference" if key is None else repr(key)
