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
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from relfit.compute.memory import held_rows, spilled, transposed
from relfit.data.arrays import LARGEST_VALUE
from relfit.data.files.text import ROW_NUMBERS, read_json
from relfit.data.models import Density, Floats
from relfit.data.tables import (
    DATE,
    MOST_HELD,
    Cells,
    Table,
    date_text,
    drop_option,
    is_key,
    parsed_dates,
)
from relfit.util.arrays import Array, cuts, is_mapped, medians, parts, rounds_coarsely
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
# The spread is taken from at most so many rows of a sample, evenly spaced, or from so many for
# each column.
_MOST_ROWS = 4_000
ROWS_PER_COLUMN = 10
# Beyond so many columns the record of a result would be mostly this matrix.
MOST_COLUMNS = 256
# Rows further out than this many times the median squared distance count less, so that no
# outlier decides.
_FAR = 20.0
_ROUNDS = 50
_SETTLED = 1e-9
# Columns with a smaller eigenvalue of their correlations count as combinations of each other.
_SINGULAR = 1e-12

# Differences of larger numbers overflow.
_LARGEST = 1e307

_SDV_KINDS = {
    "numerical": "number",
    "categorical": "category",
    "boolean": "category",
    "datetime": "date",
}
# Of columns of which something is known the kind, or "id", and the form of dates.
Kinds = dict[str, tuple[str, str | None]]
# The table of the reference under None, and those of the models.
Tables = Mapping[str | None, Table]
# One word for all columns, or a scale for each of some columns by name; the others are then
# scaled as by "auto".
Scale = str | Mapping[str, float]


def as_scale(value: Any) -> Scale:
    """The `scale` argument, checked."""
    if isinstance(value, str) and value in SCALES:
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
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(map(is_text, names)):
        raise InputError(f"{argument}: expected names of columns, got {reprlib.repr(value)}")
    return tuple(names)


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

    def kinds(self, names: Sequence[str]) -> Kinds:
        """For columns of which something is known, the kind, or "id", and the form of dates."""
        _check_names("categorical", self.categorical, names)
        known = {} if self.metadata is None else _sdv_kinds(self.metadata, names)
        return {**known, **dict.fromkeys(self.categorical, ("category", None))}


def _check_names(argument: str, given: Iterable[str], names: Sequence[str]) -> None:
    wrong = next((name for name in given if name not in names), None)
    if wrong is not None:
        there = f"{'is' if len(names) == 1 else 'are'} {listed(names, most=8, quote=repr)}"
        raise InputError(f"{argument}: expected names of columns, got {wrong!r}; there {there}")


def _sdv_kinds(metadata: Any, names: Sequence[str]) -> Kinds:
    """The kinds in SDV's metadata; anything but numbers, categories, truth values and dates
    is an id or personal.
    """
    where = "metadata"
    if not isinstance(metadata, Mapping):
        where = os.fsdecode(metadata)
        metadata = read_json(Path(where))
    tables = _mapping(_mapping(metadata).get("tables", {"": metadata}))
    columns = [_mapping(_mapping(table).get("columns")) for table in tables.values()]
    known = [each for each in columns if each and (len(columns) == 1 or {*names} <= {*each})]
    if not known:
        raise InputError(
            f"{where}: expected SDV's metadata with a table that has these "
            f"columns, got something else"
        )
    kinds: Kinds = {}
    for name in names:
        facts = _mapping(known[0].get(name))
        form = facts.get("datetime_format")
        if isinstance(facts.get("sdtype"), str):
            kind = _SDV_KINDS.get(facts["sdtype"], "id")
            kinds[name] = (kind, form if isinstance(form, str) else None)
    return kinds


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


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
        return len(self.labels)

    def is_valid(self) -> bool:
        """True if all values are of their types, as in a file of results they may not be."""
        return (
            all(map(is_text, (self.name, *self.levels, self.form or "")))
            and self.kind in ("number", "date", "category")
            and all(type(number) in (int, float) for number in (self.centre, self.scale))
            and abs(self.centre) < math.inf
            and 0.0 < self.scale < math.inf
            and all(type(flag) is bool for flag in (self.missing, self.other))
        )

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
        levels = (position.get(level, other) for level in text.levels)
        places = np.asarray(text.of_levels(levels, gap))
        if (places < 0).any():
            raise InputError(
                f"{source}: expected levels of the reference in column "
                f"{self.name!r}, got others"
            )
        return places

    def numbers(self, source: str, cells: Cells) -> Array:
        """Of a number or a date, the values of the cells, NaN where one is missing."""
        if cells.kind == self.kind or (cells.kind != "text" and cells.missing.all()):
            return np.asarray(cells.values)
        got = _KINDS[cells.kind]
        if cells.kind == "text":
            counts = cells.counts
            parsed = [_parsed(level, self.kind, self.form) for level in cells.levels]
            wrong = [k for k, value in enumerate(parsed) if value is None and counts[k]]
            if not wrong:
                return np.asarray(cells.of_levels(parsed, None))
            got = (
                f"{cells.levels[wrong[0]]!r:.60} in {int(counts[wrong].sum())} of "
                f"{len(cells)} rows"
            )
        raise InputError(
            f"{source}: expected {_KINDS[self.kind]} in column {self.name!r}, got {got}; "
            f"fix them, or name the column in categorical or drop"
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
            return self._scaled(rows)
        return spilled((self._scaled(rows[part]) for part in parts(rows.shape)), folder)

    def _scaled(self, rows: Array) -> Array:
        """Rows of numbers (n, d), encoded."""
        # What overflows is refused by the check of the values.
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.asarray((rows - self.centres) / self.scales)
        if self.root is None or not len(rows):
            return scaled
        return np.ascontiguousarray(
            solve_triangular(np.array(self.root), scaled.T, lower=True).T
        )

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

    def _filled(self, columns: Any) -> Array:
        """(n, width) the encoded rows of what `Column.found` gave for every column."""
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
            columns = tuple(
                Column(**{**each, "levels": tuple(each["levels"])}) for each in data["columns"]
            )
            root = data["root"] and tuple(map(tuple, data["root"]))
            encoding = cls(
                data["scale"], columns, dict(data["left_out"]), data["missing"], root
            )
            right = encoding._is_valid()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"encoding: expected what Encoding.to_dict gives ({error})"
            ) from None
        if not right:
            raise ValueError(
                "encoding: expected columns with names, centres and scales above 0, and a root "
                "that is a lower triangle with a diagonal above 0, got others"
            )
        return encoding

    def _is_valid(self) -> bool:
        root = np.eye(len(self.columns)) if self.root is None else np.array(self.root, float)
        return (
            0 < len(self.columns) == len(set(self.names))
            and all(column.is_valid() for column in self.columns)
            and all(map(is_text, self.left_out.values()))
            and self.scale in (*SCALES, "given")
            and self.missing in MISSING
            and root.shape == (len(self.columns),) * 2
            and bool(np.isfinite(root).all() and (np.diag(root) > 0.0).all())
            and np.array_equal(root, np.tril(root))
        )


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
    some_rows = rows[::step]
    count, width = some_rows.shape
    fewer = max(1, _MEDIAN_NUMBERS // count)
    with temporary_folder() as folder:
        columns = some_rows.T
        if is_mapped(rows) and fewer < width:
            columns = transposed(some_rows, folder)
        for some in cuts(width, fewer):
            yield columns[some].T


def _over(
    rows: Any, each: Callable[[Array], Array], join: Callable[[Array, Array], Array]
) -> Array:
    """A statistic of all rows from that of each part, which is small enough for the cache."""
    return reduce(join, (each(rows[part]) for part in parts(rows.shape, _NUMBERS_AT_ONCE)))


# ── tables ────────────────────────────────────────────────────────────────────────────────────


def encoded_tables(
    tables: Tables,
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
        tables = {
            key: _complete_rows(fitted, table, key, folder, notes)
            for key, table in tables.items()
        }
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
        if gaps:
            shown = listed(gaps, quote=repr)
            notes.append(f"missing cells of {shown} count as a value of their own")
        notes += _left_out_notes(fitted, tables)
    rows = {key: fitted.apply(table, folder) for key, table in tables.items()}
    return fitted, rows, tuple(notes)


def _complete_rows(
    encoding: Encoding, table: Table, key: str | None, folder: Path | None, notes: list[str]
) -> Table:
    """The rows of a table without missing cells, and a note on how many the others are."""
    columns = [table.columns[name] for name in encoding.names if name in table.columns]
    gone = reduce(np.logical_or, (cells.missing for cells in columns))
    if not gone.any():
        return table
    notes.append(
        f"{int(gone.sum())} of {len(gone)} rows of {_whose(key)} have missing cells and were "
        f"left out"
    )
    return table[~gone] if folder is None else table.spilled(folder, ~gone)


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
    columns, left_out = fitted_columns(reference, scale, kinds, already_left_out)
    if not columns:
        reasons = listed([f"{name!r} ({why})" for name, why in left_out.items()], quote=str)
        raise InputError(
            f"{reference.source}: no column is left to compare; left out: {reasons}"
        )
    return Encoding("given" if given else str(scale), tuple(columns), left_out, encode.missing)


def fitted_columns(
    table: Table,
    scale: Scale,
    kinds: Kinds,
    already_left_out: Mapping[str, str] | None = None,
) -> tuple[list[Column], dict[str, str]]:
    """The columns of the reference that are compared, and the others with the reason;
    `kinds` are those known.
    """
    before = already_left_out or {}
    columns = []
    left_out = {}
    for name, cells in table.columns.items():
        kind, form = kinds.get(name, (None, None))
        fitted = before.get(name) or _fitted(table.source, name, cells, scale, kind, form)
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
        return _fitted_category(source, name, text, given, scale, guessed=kind is None)
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
    whole = cells.whole
    if whole is not None and whole[0] < whole[1] and rounds_coarsely(low, high):
        raise InputError(
            f"{source}: expected numbers that float64 can tell apart in column {name!r}, got "
            f"whole numbers from {whole[0]} to {whole[1]}; subtract a constant, or leave the "
            f"column out ({drop_option([name])})"
        )
    if low == high and count == len(cells):
        return _CONSTANT
    counts_rows = len(values) >= _FEWEST_NUMBERED and bool((np.diff(values) == 1.0).all())
    if column.kind == "number" and (counts_rows or (name in ROW_NUMBERS and is_key(values))):
        return "row numbers"
    if scale == "none":
        return column
    (centre,), (spread,) = (robust if scale == "robust" else moments)(values[:, None])
    return replace(
        column, centre=float(centre), scale=float(spread if given is None else given)
    )


def _fitted_category(
    source: str, name: str, text: Cells, given: float | None, scale: Scale, guessed: bool
) -> Column | str:
    counts = text.counts
    count = int(counts.sum())
    missing = len(text) - count
    differ = np.count_nonzero(counts)
    if guessed:
        _refuse_mixed(source, name, text, counts)
        if differ > MOST_HELD:
            return f"free text or an id: more than {MOST_HELD} different values"
        if differ > _MOST_FREE and differ > _FREE * count:
            return f"free text or an id: {differ} different values in {count} cells"
    if differ == 1 and not missing:
        return _CONSTANT
    # The most frequent levels; of equally frequent ones the first by name, whatever their
    # order in the table.
    order = sorted(np.flatnonzero(counts).tolist(), key=lambda k: (-counts[k], text.levels[k]))
    kept = order[:MOST_LEVELS]
    if given is None:
        places = np.array([*counts[kept], counts[order[MOST_LEVELS:]].sum(), missing])
        alike = float(np.square(places / len(text)).sum())
        given = 1.0 if scale == "none" else math.sqrt((1.0 - alike) / 2.0)
    return Column(name, "category", 0.0, given, tuple(sorted(text.levels[k] for k in kept)))


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


def _widened(column: Column, tables: Tables, missing: str, notes: list[str]) -> Column:
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
    if empty:
        notes.append(f"{column.name!r} is missing in every row of {listed(empty, quote=str)}")
    if column.kind != "category":
        return column
    there = _present(tables, column.name)
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


def _present(tables: Tables, name: str) -> dict[str | None, set[str]]:
    """The levels that the cells of each table have."""
    return {key: table.columns[name].as_text().present for key, table in tables.items()}


def _left_out_notes(encoding: Encoding, tables: Tables) -> list[str]:
    if not encoding.left_out:
        return []
    shown = listed(
        [f"{name!r} ({why})" for name, why in encoding.left_out.items()], most=8, quote=str
    )
    notes = [f"columns left out: {shown}"]
    for name in (name for name, why in encoding.left_out.items() if why in (_CONSTANT, _EMPTY)):
        held = _present(tables, name)
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


# ── densities ─────────────────────────────────────────────────────────────────────────────────
#
# KSD measures distances between rows with one bandwidth for all columns. If columns have unlike
# units, or go together closely, it sees one direction only. A change of variables is the cure:
# with x = Lx' the score of x' is Lᵀ s(x), and the log density the same up to a constant.


def density_encoding(
    samples: Sequence[Any], scale: Scale, names: Sequence[str] | None
) -> tuple[Encoding, str]:
    """The encoding of the rows of these samples together, and a note where they cannot be
    whitened.

    Nothing is subtracted: a shift changes no distance, and a row close to the edge of a
    support must stay inside. For densities "auto" is "whiten".
    """
    d = samples[0].shape[1]
    most = max(_MOST_ROWS, ROWS_PER_COLUMN * d)
    pooled = np.concatenate([rows[:: max(1, -(-len(rows) // most))] for rows in samples])
    whiten = scale in ("auto", "whiten")
    fitted = fit_rows(pooled, "robust" if whiten else scale, names)
    scales = fitted.scales
    root = None
    why = ""
    if whiten and d > MOST_COLUMNS:
        why = f"{d} columns are too many to be whitened"
    elif whiten and len(pooled) < ROWS_PER_COLUMN * d:
        why = f"{len(pooled)} rows are too few to whiten {d} columns"
    elif whiten:
        scales, correlation = spread(pooled)
        if np.linalg.eigvalsh(correlation)[0] < _SINGULAR:
            why = "some columns are combinations of others, so that they cannot be whitened"
        else:
            root = tuple(map(tuple, np.linalg.cholesky(correlation).tolist()))
    zipped = zip(fitted.names, scales, strict=True)
    columns = tuple(Column(name, scale=float(s)) for name, s in zipped)
    note = f"{why}; each column was divided by its own spread instead" if why else ""
    return Encoding("whiten" if whiten else fitted.scale, columns, root=root), note


def spread(rows: Array) -> tuple[Array, Array]:
    """(d,) the standard deviations of the columns, 1 for a constant one, and their
    correlations (d, d).

    Rows far out count less: w = min(1, 20 median(r²)/r²) with r² = (x − m)ᵀC⁻¹(x − m), in m
    and in C. For normal rows all w are 1, and C is the covariance; one outlier, or a law
    without variances, changes little.

    >>> scales, correlation = spread(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]]))
    >>> scales.tolist(), correlation.round(9).tolist()
    ([1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]])
    """
    centre, unit = robust(rows)
    z = (rows - centre) / unit
    weights = np.ones(len(rows))
    for _ in range(_ROUNDS):
        gaps = z - weights @ z / weights.sum()
        covariance = (gaps.T * weights) @ gaps / len(z)
        deviations = np.sqrt(np.diag(covariance))
        deviations[deviations == 0.0] = 1.0
        correlation = covariance / np.outer(deviations, deviations)
        np.fill_diagonal(correlation, 1.0)
        values, vectors = np.linalg.eigh(correlation)
        squares = np.square(gaps / deviations @ vectors) @ (1.0 / np.maximum(values, _SINGULAR))
        limit = _FAR * float(np.median(squares))
        if not limit > 0.0:
            break
        last = weights
        weights = limit / np.maximum(squares, limit)
        if np.abs(weights / last - 1.0).max() < _SETTLED:
            break
    return unit * deviations, correlation


def encoded_density(density: Density, encoding: Encoding) -> Density:
    """The density of encoded rows, up to a constant: its score is Lᵀ s(Lx').

    A log density without a score stays without: finite differences are better where all
    columns have one size.

    >>> wide = Density(score=lambda x: -x / 100.0)
    >>> encoded_density(wide, Encoding("given", (Column("x", scale=10.0),))).scores(
    ...     np.array([[2.0]])
    ... )
    array([[-2.]])
    """
    forward = np.diag(encoding.scales)
    if encoding.root is not None:
        forward = encoding.scales[:, None] * np.array(encoding.root)
    centres = encoding.centres

    def score(x: Array) -> Floats:
        scores = density.raw_scores(x @ forward.T + centres)
        # In the precision that they were computed in, which says how far they can be trusted.
        return np.asarray(scores @ forward, dtype=scores.dtype)

    return Density(
        None if density.by_finite_differences else score,
        None
        if density.log_prob is None
        else lambda x: density.log_probs(x @ forward.T + centres),
        density.dim,
    )
