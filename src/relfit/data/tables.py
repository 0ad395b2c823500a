"""Tables whose columns hold numbers, dates or text, some cells missing: data frames,
mappings, batches and files.

Data frames are read through narwhals, which is imported when there is one. A column is
turned into `Cells` by the values that differ, so that a million cells of five levels cost
little. Nothing is unpickled, and what a column means is decided later, by
`relfit.data.encode`.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import os
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import Budget, in_words, require_room, spilled, transposed
from relfit.data.files import FileRows, as_file, find_file, read_names, read_rows
from relfit.data.files.arrow import table_rows
from relfit.data.files.base import Selection, column_positions, reading, refuse_not_numeric
from relfit.data.files.text import TEXT, is_long_key, is_number, json_lines, read_json
from relfit.util.arrays import Array, two_dimensional
from relfit.util.errors import InputError, way
from relfit.util.libraries import is_instance, loaded
from relfit.util.progress import Progress, counted
from relfit.util.text import first_line, is_text, listed

JSON_LINES = (".jsonl", ".ndjson")
JSON_RECORDS = ".json"
_ROWS_BETWEEN_CHECKS = 4096
_BYTES_PER_CELL = 80
# The packages whose objects narwhals may know.
_LIBRARIES = {
    "narwhals",
    "pandas",
    "polars",
    "pyarrow",
    "duckdb",
    "_duckdb",
    "dask",
    "modin",
    "cudf",
}
# What no name begins with: the columns of a frame in which names repeat are numbered.
_NUMBERED = "\0"
# The name of a column, and its cells as their library or file has them.
RawColumn = tuple[str, Any]
# A date of ISO 8601, with a time or without; a time may have an offset from UTC.
DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}(Z|[T "
    r"]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?"
)
_LONGEST_LEVEL = 200
_MOST_NAMES = 8
# Text with more levels than this is no category unless it is called one. From so many on, a
# table read in parts compares the bytes that they take while tables are encoded, about so many
# for each, with the limit of memory.
MOST_HELD = 100_000
_BYTES_PER_LEVEL = 250


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one column.

    Attributes:
        kind: "number", "date" (seconds since 1970) or "text".
        held: float64 with NaN where a cell is missing; of text the places of its level, −1
            where it is missing. Cells in a mapped file are float64 for text too, with NaN
            where one is missing.
        levels: of text, the values that differ.
        whole: of whole numbers of which float64 rounds some, the exact range.
    """

    kind: str
    held: NDArray[Any]
    levels: tuple[str, ...] = ()
    whole: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.held)

    @property
    def values(self) -> NDArray[Any]:
        """The cells: numbers, or the places of levels."""
        if self.kind != "text" or self.held.dtype.kind == "i":
            return self.held
        return np.where(np.isnan(self.held), -1.0, self.held).astype(np.intp)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """True where a cell is missing."""
        return np.asarray(self.values < 0 if self.kind == "text" else np.isnan(self.values))

    @property
    def counts(self) -> NDArray[np.intp]:
        """Of text, how many cells each level has."""
        values = self.values
        return np.bincount(values[values >= 0], minlength=len(self.levels))

    @property
    def present(self) -> set[str]:
        """Of text, the levels that cells have: there may be others, which a frame or a file
        names only.
        """
        return {
            level
            for level, count in zip(self.levels, self.counts.tolist(), strict=True)
            if count
        }

    def of_levels(self, values: Iterable[Any], missing: Any, kind: Any = np.float64) -> Any:
        """Of text, for each cell the value that stands for its level; `values` has one for
        each level.
        """
        return np.array([*values, missing], dtype=kind)[self.values]

    def as_text(self) -> Cells:
        """The same cells as levels: whole numbers without a decimal point, dates in ISO
        8601.
        """
        if self.kind == "text":
            return self
        differ, places = np.unique(self.values, return_inverse=True)
        known = differ[~np.isnan(differ)]
        levels = map(_number_level if self.kind == "number" else date_text, known.tolist())
        return Cells("text", np.where(places < len(known), places, -1), tuple(levels))


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one length. `source` is what errors call it."""

    source: str
    columns: Mapping[str, Cells]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, rows: Any) -> Table:
        return self._of([cells.held[rows] for cells in self.columns.values()])

    def spilled(self, folder: Path, rows: Any = slice(None)) -> Table:
        """The same table, or some rows of it, mapped from a file in the folder; one column
        at a time is held.
        """
        columns = (
            np.where(cells.missing, np.nan, cells.values)[rows]
            for cells in self.columns.values()
        )
        return self._of(spilled((cells[None] for cells in columns), folder))

    def _of(self, held: Iterable[NDArray[Any]]) -> Table:
        columns = zip(self.columns.items(), held, strict=True)
        return Table(
            self.source,
            {name: replace(cells, held=values) for (name, cells), values in columns},
        )

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def select(self, positions: Sequence[int]) -> Table:
        """The columns at these positions, in this order."""
        names = self.names
        return Table(self.source, {names[k]: self.columns[names[k]] for k in positions})

    def renamed(self, names: Sequence[str]) -> Table:
        """The same columns under these names."""
        return Table(self.source, dict(zip(names, self.columns.values(), strict=True)))

    def number_columns(self) -> list[Array]:
        """The columns, all of which must hold numbers."""
        for name, cells in self.columns.items():
            if cells.kind != "number":
                got = "dates" if cells.kind == "date" else "text"
                if cells.levels:
                    got = f"text such as {cells.levels[0]!r:.40}"
                raise InputError(
                    f"{self.source}: expected numbers, got {got} in column "
                    f"{name!r}; select other columns"
                )
        return [cells.values for cells in self.columns.values()]


def read_table(
    argument: str,
    value: Any,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Table | None:
    """The table that a frame or a file is; None for anything without names, and for columns
    that hold lists.

    With a budget of memory, columns are mapped from files in its folder, and a file is never
    held as a whole; levels of text are held.
    """
    if isinstance(value, Table):
        return value
    table = _read(argument, value, budget, progress)
    if table is not None and not len(table):
        raise InputError(f"{table.source}: expected at least one row, got a header only")
    return table


def keyed_columns(argument: str, value: Any) -> Mapping[str, Cells] | None:
    """The columns of scores and keys that a frame, a file or a mapping holds; None for
    anything without names.

    >>> columns = keyed_columns("table", {"model": ["a", "b"], "x": [1, None]})
    >>> {name: (cells.kind, cells.values.tolist()) for name, cells in columns.items()}
    {'model': ('text', [0, 1]), 'x': ('number', [1.0, nan])}
    """
    table = _read(argument, value, as_keys=True)
    if table is None:
        return None
    lengths = sorted({len(cells) for cells in table.columns.values()})
    if len(lengths) > 1:
        raise InputError(
            f"{table.source}: expected columns of one length, got {lengths[0]} to {lengths[-1]}"
        )
    return table.columns


def labels_of(cells: Cells) -> NDArray[Any]:
    """The cells as labels: numbers, or text; NaN or None where one is missing."""
    if cells.kind == "number":
        return np.asarray(cells.values)
    text = cells.as_text()
    return np.asarray(text.of_levels(text.levels, None, object))


def is_key(values: Array) -> bool:
    """True for whole numbers that never repeat."""
    return len(np.unique(values)) == len(values) and bool((values == np.rint(values)).all())


def read_labels(source: str | os.PathLike[str]) -> NDArray[Any]:
    """The labels in a file that holds nothing else: one column, with or without a name above
    it.
    """
    columns = keyed_columns("labels", source)
    if columns is None:
        return np.asarray(read_rows(source))
    if len(columns) != 1:
        raise InputError(f"{source}: expected one label per line, got {len(columns)} columns")
    ((name, cells),) = columns.items()
    # A name above numbers is not a label. A name above text looks like one more label, and the
    # wrong count is refused later.
    named = cells.kind == "number" or find_file(source)[0] is not TEXT
    return labels_of(cells) if named else np.array([name, *labels_of(cells)], dtype=object)


def split_labels(source: str | os.PathLike[str], column: str) -> tuple[NDArray[Any], list[int]]:
    """The labels in one column of a file, and the positions of all other columns."""
    path = os.fsdecode(source)
    names = read_names(path)
    rows = None if names else two_dimensional(path, np.asarray(read_rows(path)))
    count = len(names or ()) if rows is None else rows.shape[1]
    selection = Selection(find_file(path)[1].path, columns=(column,))
    (position,) = column_positions(selection, names, count)
    others = [k for k in range(count) if k != position]
    if rows is not None:
        return rows[:, position], others
    columns = keyed_columns(path, FileRows(path, (position,))) or {}
    return labels_of(*columns.values()), others


def is_table(argument: str, value: Any) -> bool:
    """True for a data frame whose columns have different names and hold cells, not lists."""
    return frame_names(value) is not None and _are_cells(_in_memory(argument, value) or [])


def table_of(source: str, rows: Any, folder: Path | None = None) -> Table:
    """Rows of numbers as a table; with a folder its columns are mapped from a file in it."""
    columns = rows.T if folder is None else transposed(rows, folder)
    return Table(source, {str(k): Cells("number", column) for k, column in enumerate(columns)})


# ── reading in parts ──────────────────────────────────────────────────────────────────────────


def _read(
    argument: str,
    value: Any,
    budget: Budget | None = None,
    progress: Progress | None = None,
    *,
    as_keys: bool = False,
) -> Table | None:
    """The named columns of a frame, a file or a mapping; None for anything without names
    and, unless they are keys, for columns of lists or with one name.

    Where some parts of a column are numbers or dates and others are text, all of it is text,
    and is read again: numbers do not say how they were written.
    """
    where, read_parts = _parts_of(argument, value)
    as_text = frozenset[str]()
    while read_parts is not None:
        parts = read_parts(as_text)
        first = next(parts, [])
        if not first or not (as_keys or _are_cells(first)):
            return None
        names = [name for name, _ in first]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(
                f"{where}: expected columns of different names, got {twice!r} more than once"
            )
        tables = (
            _of_part(where, part, as_text, as_keys) for part in itertools.chain([first], parts)
        )
        if as_file(value) is None:
            (table,) = tables
            return table if budget is None else table.spilled(budget.folder)
        table, mixed = _joined(where, tables, budget, progress)
        if not mixed:
            return table
        as_text |= mixed
    return None


def table_in_parts(
    where: str,
    frames: Iterable[Any],
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Table:
    """The table whose rows arrive in data frames with the same columns; budget as in
    `read_table`.
    """
    names: list[str] = []

    def tables() -> Iterator[Table]:
        for number, frame in enumerate(frames):
            columns = dict(_in_memory(where, frame) or ())
            names[:] = names or columns
            if set(names) != set(columns):
                shown = type(frame).__name__
                if columns:
                    shown = listed(list(columns), most=_MOST_NAMES, quote=repr)
                raise InputError(
                    f"{where}: expected batches with the columns of the first, got {shown} in "
                    f"batch {number}"
                )
            yield _of_part(where, [(name, columns[name]) for name in names])

    table, mixed = _joined(where, tables(), budget, progress)
    for name in sorted(mixed):
        raise InputError(
            f"{where}: expected one type in column {name!r}, got numbers or dates and text; "
            f"convert it first"
        )
    if not len(table):
        raise InputError(f"{where}: expected at least one row, got none")
    return table


def _are_cells(columns: Sequence[RawColumn]) -> bool:
    names = {name for name, _ in columns}
    lists = any(_holds_lists(values) for _, values in columns)
    return 0 < len(columns) == len(names) and not lists


def _of_part(
    where: str, part: Iterable[RawColumn], as_text: Collection[str] = (), as_keys: bool = False
) -> Table:
    columns = {
        name: cells_of(where, name, values, as_text=name in as_text, as_keys=as_keys)
        for name, values in part
    }
    return Table(where, columns)


@dataclass
class _Found:
    """What the parts of a column that were read so far hold."""

    kinds: set[str] = field(default_factory=set)
    levels: dict[str, int] = field(default_factory=dict)
    whole: tuple[int, int] | None = None

    def add(self, cells: Cells) -> Array:
        """The cells of one more part, of text the numbers of the levels of all parts."""
        ends = [*(self.whole or ()), *(cells.whole or ())]
        self.whole = (min(ends), max(ends)) if ends else None
        if not cells.missing.all():
            self.kinds.add(cells.kind)
        if cells.kind != "text":
            return cells.values
        counts = cells.counts
        places = [
            self.levels.setdefault(level, len(self.levels)) if counts[k] else None
            for k, level in enumerate(cells.levels)
        ]
        return np.asarray(cells.of_levels(places, None))


def _joined(
    where: str, tables: Iterable[Table], budget: Budget | None, progress: Progress | None
) -> tuple[Table, frozenset[str]]:
    """The rows of all tables, and the columns of which parts are of different kinds."""
    found: dict[str, _Found] = {}

    def blocks() -> Iterator[list[Array]]:
        for table in counted(progress, where, tables):
            block = []
            for name, cells in table.columns.items():
                column = found.setdefault(name, _Found())
                block.append(column.add(cells))
                if budget is not None:
                    _check_levels(where, name, len(column.levels), budget)
            yield block

    held: Iterable[Array]
    if budget is None:
        held = [np.concatenate(column) for column in zip(*blocks(), strict=True)]
    else:
        rows = spilled((np.stack(block, axis=1) for block in blocks()), budget.folder)
        held = transposed(rows, budget.folder)
    columns = {}
    for (name, column), values in zip(found.items(), held, strict=True):
        kind = next(iter(column.kinds), "number")
        columns[name] = Cells(kind, values, tuple(column.levels), column.whole)
    mixed = frozenset(name for name, column in found.items() if len(column.kinds) > 1)
    return Table(where, columns), mixed


def _check_levels(where: str, name: str, count: int, budget: Budget) -> None:
    """Refuse more levels than fit into the memory."""
    if count > MOST_HELD and not budget.holds(count * _BYTES_PER_LEVEL):
        raise InputError(
            f"{where}: column {name!r} has more than {MOST_HELD:,} different values, which do "
            f"not fit into the memory limit of {in_words(budget.total)}; leave it out "
            f"({drop_option([name])}), or raise the limit"
        )


def drop_option(names: Sequence[str]) -> str:
    """How columns are left out."""
    if len(names) > _MOST_NAMES or not all(name.isidentifier() for name in names):
        return way("--drop NAMES", "encode=relfit.Encode(drop=[...])")
    return way(f"--drop {','.join(names)}", f"encode=relfit.Encode(drop={list(names)!r})")


def cells_of(
    where: str, name: str, values: Any, *, as_text: bool = False, as_keys: bool = False
) -> Cells:
    """Any values of one dimension as cells; cells are returned unchanged.

    With `as_text`, text is text even if all of it looks like numbers or dates. With
    `as_keys`, so are whole numbers that float64 rounds, and text is kept as it is.

    >>> cells_of("table", "x", ["a", None, "b", "a"]).values.tolist()
    [0, -1, 1, 0]
    """
    if isinstance(values, Cells):
        return values
    try:
        return _cells(where, name, values, as_text, as_keys)
    except (ArithmeticError, NotImplementedError, TypeError, ValueError) as error:
        # Other libraries raise errors of their own, such as for dates out of range.
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{where}: column {name!r} cannot be read ({first_line(error):.160})"
        ) from None


def _cells(where: str, name: str, values: Any, as_text: bool, as_keys: bool) -> Cells:
    series = as_series(values)
    word = "" if series is None else str(series.dtype).partition("(")[0]
    if word in ("Date", "Datetime"):
        return Cells("date", _seconds(series.dt.timestamp("us")))
    if word == "Duration":
        return Cells("number", _seconds(series.dt.total_microseconds()))
    array: Any = None
    if series is not None and series.dtype.is_numeric():
        array = series.to_numpy()
        whole = series.dtype.is_integer()
    elif isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.ndim == 1:
        array = values
        whole = values.dtype.kind != "f"
    if array is not None:
        # The smallest and the largest of a series, whose missing cells turn an array into floats.
        column = values if series is None else series
        ends = (column.min(), column.max()) if whole and len(array) else ()
        numbers = _numbers(np.asarray(array).astype(np.float64), ends)
        if not (as_text or (as_keys and numbers.whole)):
            return numbers
    if series is not None:
        as_text = as_text or word in ("Categorical", "Enum")
        values = series.to_list()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(
            f"{where}: expected a sequence of cells in column {name!r}, got "
            f"{reprlib.repr(values)}"
        )
    cells = list(values)
    try:
        differ = [cell for cell in dict.fromkeys(cells) if not is_missing(cell)]
    except TypeError:
        raise InputError(
            f"{where}: expected numbers, dates or text in column {name!r}, got other objects"
        ) from None
    place = {cell: k for k, cell in enumerate(differ)}
    places = np.fromiter(map(place.get, cells, itertools.repeat(-1)), np.intp, len(cells))
    if not as_text:
        known = _known_kind(differ, places, read_text=not as_keys)
        if known is not None and not (as_keys and known.whole):
            return known
    # Different values may look the same in text, such as 1 and "1".
    found: dict[str, int] = {}
    renamed = [
        found.setdefault(_level(where, name, each, as_keys), len(found)) for each in differ
    ]
    return Cells("text", np.append(np.array(renamed, dtype=np.intp), -1)[places], tuple(found))


def _seconds(micros: Any) -> Array:
    """A series of microseconds as seconds, NaN where one is missing."""
    return np.asarray(micros.to_numpy()).astype(np.float64) / 1e6


def _numbers(values: Array, ends: Iterable[Any] = ()) -> Cells:
    """Cells of numbers; of whole ones, `ends` has the smallest and the largest, missing if
    all cells are.
    """
    exact = [int(end) for end in ends if not is_missing(end)]
    beyond = any(abs(end) > 2**53 for end in exact)
    return Cells("number", values, whole=(min(exact), max(exact)) if beyond else None)


def _known_kind(differ: list[Any], places: NDArray[Any], read_text: bool) -> Cells | None:
    """Cells by their places among values that differ, if these are numbers or dates, or text
    that looks like them.
    """
    texts = read_text and all(isinstance(each, str) for each in differ)
    dates: Array | None = None
    if all(map(_is_number, differ)) or (texts and all(map(is_number, differ))):
        whole = [
            int(each)
            for each in differ
            if (is_long_key(each) if texts else isinstance(each, int | np.integer))
        ]
        return _numbers(np.array([*map(float, differ), np.nan])[places], whole)
    if all(isinstance(each, datetime.timedelta) for each in differ):
        return _numbers(np.array([*(each.total_seconds() for each in differ), np.nan])[places])
    if all(isinstance(each, datetime.date) for each in differ):
        dates = np.array(list(map(_timestamp, differ)))
    elif texts and all(len(each) < 36 and DATE.fullmatch(each) for each in differ):
        dates = parsed_dates(differ)
    return None if dates is None else Cells("date", np.append(dates, np.nan)[places])


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool | np.bool_)


def parsed_dates(texts: Sequence[str], form: str | None = None) -> Array | None:
    """Seconds since 1970 of dates in ISO 8601, or in a form of `strptime`; None if one of
    them is no date.
    """
    try:
        return np.array(
            [
                _timestamp(
                    datetime.datetime.fromisoformat(text.removesuffix("Z"))
                    if form is None
                    else datetime.datetime.strptime(text, form)
                )
                for text in texts
            ]
        )
    except (ValueError, OverflowError):
        return None


def _timestamp(date: datetime.date) -> float:
    """Seconds since 1970, at UTC unless the date says where it is from."""
    if not isinstance(date, datetime.datetime):
        date = datetime.datetime.combine(date, datetime.time())
    return (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp()


def _level(where: str, name: str, value: Any, exact: bool) -> str:
    if not isinstance(value, str) and _is_number(value):
        whole = isinstance(value, int | np.integer)
        return str(int(value)) if whole else _number_level(float(value))
    text = value if isinstance(value, str) else str(value)
    # Libraries write truth values in different ways.
    if not exact and len(text) < 6 and text.lower() in ("true", "false"):
        return text.capitalize()
    if not is_text(text) or "\0" in text:
        raise InputError(
            f"{where}: expected valid text in column {name!r}, got {text!a:.60}; "
            f"save it as UTF-8"
        )
    # A level is shown in notes and kept in results; the ends of a long one tell it from others.
    half = _LONGEST_LEVEL // 2
    return (
        text
        if exact or len(text) <= _LONGEST_LEVEL
        else f"{text[:half]}…{text[-half:]} ({len(text)} letters)"
    )


def _number_level(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def date_text(seconds: float) -> str:
    """In ISO 8601, without a time if that is 0."""
    return (
        str(np.datetime64(round(seconds * 1e6), "us"))
        .removesuffix(".000000")
        .removesuffix("T00:00:00")
    )


def _holds_lists(values: Any) -> bool:
    if is_instance(values, "pyarrow", "Array", "ChunkedArray") and hasattr(
        values.type, "storage_type"
    ):
        return True
    series = as_series(values)
    return series is not None and str(series.dtype).startswith(("List", "Array"))


# ── data frames ───────────────────────────────────────────────────────────────────────────────


def computed(argument: str, value: Any) -> Any:
    """The result of computing a dask collection; any other value unchanged."""
    dask = loaded("dask")
    if dask is None or not dask.is_dask_collection(value):
        return value
    try:
        return value.compute()
    except Exception as error:
        # The graph runs the user's code, which may raise anything.
        raise InputError(
            f"{argument}: the dask {type(value).__name__} cannot be computed "
            f"({type(error).__name__}: {error})"
        ) from error


def as_series(values: Any) -> Any:
    """A series of another library as one of narwhals; None for any other value."""
    if is_instance(values, "pyarrow", "Array"):
        values = loaded("pyarrow").chunked_array([values])
    series = _narwhals(values)
    return series if hasattr(series, "null_count") else None


def frame_names(value: Any) -> list[str] | None:
    """The names of a frame's columns; None for any other value. The name of a series is not
    the name of a column.
    """
    frame = _narwhals(value)
    if not hasattr(frame, "collect_schema"):
        return None
    return _names(value, frame)


def frame_columns(value: Any, positions: Sequence[int]) -> Any:
    """The frame with the columns at these positions, in this order. The names must differ
    from each other.
    """
    import narwhals.stable.v2 as nw

    return _narwhals(value).select(nw.nth(*positions)).to_native()


def frame_array(argument: str, value: Any) -> Array | None:
    """A data frame or series of numbers as an array; None for any other value."""
    frame = _narwhals(value)
    if hasattr(frame, "to_frame"):
        frame = frame.to_frame()
    if not hasattr(frame, "collect_schema"):
        return None
    frame = _collected(frame)
    native = frame.to_native()
    if is_instance(native, "pyarrow", "Table"):
        # A column may hold lists of numbers.
        return table_rows(argument, native)
    others = [series for series in frame.iter_columns() if not _holds_numbers(series)]
    refuse_not_numeric(argument, [(str(series.name), str(series.dtype)) for series in others])
    # Missing values become NaN, which the check of the rows counts.
    return np.asarray(frame.to_numpy()).astype(np.float64, copy=False)


def _holds_numbers(series: Any) -> bool:
    kind = str(series.dtype)
    # A sparse column of pandas is one of numbers.
    numeric = kind == "Unknown" and series.to_numpy().dtype.kind in "biuf"
    return numeric or kind == "Boolean" or series.dtype.is_numeric()


def _narwhals(value: Any) -> Any:
    """The value as narwhals has it, if it is a frame or a series; others unchanged."""
    packages = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    if not packages & _LIBRARIES:
        return None
    import narwhals.stable.v2 as nw

    if is_instance(value, "pyarrow", "RecordBatch"):
        value = loaded("pyarrow").Table.from_batches([value])
    try:
        return nw.from_native(value, pass_through=True, allow_series=True)
    except nw.exceptions.DuplicateError:
        return nw.from_native(_numbered(value))


def _numbered(value: Any) -> Any:
    """A frame in which several columns have one name, with numbers for names."""
    names = [f"{_NUMBERED}{k}" for k in range(value.shape[1])]
    return (
        value.rename_columns(names)
        if hasattr(value, "rename_columns")
        else value.set_axis(names, axis=1)
    )


def _names(value: Any, frame: Any) -> list[str]:
    names = [str(name) for name in frame.collect_schema().names()]
    if names and names[0].startswith(_NUMBERED):
        names = [str(name) for name in getattr(value, "column_names", None) or value.columns]
    return names


def _collected(frame: Any) -> Any:
    return frame.collect() if hasattr(frame, "collect") else frame


# ── where columns come from ───────────────────────────────────────────────────────────────────


def _parts_of(
    argument: str, value: Any
) -> tuple[str, Callable[[Collection[str]], Iterator[list[RawColumn]]] | None]:
    """What errors call the value, and a function that reads its columns, with their names, in
    parts; None for anything without names.

    The function takes the columns of which text stays text even if it looks like numbers.
    """
    file = as_file(value)
    if file is None:
        columns = _in_memory(argument, value)
        return argument, None if columns is None else lambda _: iter([columns])
    where = file.source
    if where.lower().endswith((*JSON_LINES, JSON_RECORDS)):
        return where, lambda _: iter([_in_json(Path(where))])
    format, selection = find_file(where, file.columns, (JSON_RECORDS, *JSON_LINES))
    read = format.column_parts
    if read is None:
        return where, None

    def parts(as_text: Collection[str]) -> Iterator[list[RawColumn]]:
        with reading(selection.path):
            for part in read(selection, as_text):
                yield [(name.strip(), values) for name, values in part]

    return where, parts


def _in_memory(argument: str, value: Any) -> list[RawColumn] | None:
    value = computed(argument, value)
    columns: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        columns = value.items()
    else:
        frame = _narwhals(value)
        if not hasattr(frame, "collect_schema"):
            return None
        columns = zip(_names(value, frame), _collected(frame).iter_columns(), strict=True)
    return [(str(name).strip(), values) for name, values in columns]


def is_missing(cell: Any) -> bool:
    """None, NaN, or the missing value of a data frame."""
    if cell is None or isinstance(cell, float):
        return cell is None or math.isnan(cell)
    return type(cell).__name__ in ("NAType", "NaTType")


def _in_json(path: Path) -> list[RawColumn]:
    """The columns of a file of objects, one for each row; a key that a row lacks is missing
    there.
    """
    if path.name.lower().endswith(JSON_LINES):
        rows: Any = []
        for number, row in json_lines(path):
            if not number % _ROWS_BETWEEN_CHECKS:
                require_room(path, _ROWS_BETWEEN_CHECKS * _BYTES_PER_CELL * max(1, len(row)))
            rows.append(row)
    else:
        rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(
            f"{path}: expected a JSON list of objects, one for each row, got something else"
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    broken = next((name for name in names if not is_text(name)), None)
    if not names or broken is not None:
        raise InputError(
            f"{path}: expected JSON objects with the names of columns, got {broken!r}"
        )
    return [(name, [_scalar(row.get(name)) for row in rows]) for name in names]


def _scalar(cell: Any) -> Any:
    """A number or text as it is; anything nested as its JSON."""
    if isinstance(cell, str):
        return cell if is_text(cell) else ascii(cell)
    return json.dumps(cell, sort_keys=True) if isinstance(cell, dict | list) else cell
