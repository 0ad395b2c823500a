"""Tables whose columns hold numbers, dates or text, some cells missing: frames of other libraries, files with names.

A column is turned into `Cells` by the values that differ, so that a million cells of five levels cost little. Nothing
is unpickled, and what a column means is decided later, by `relfit.data.encode`.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.rows import LazyRows, held_rows, joined, parts, some_rows, written_columns, written_rows
from relfit.data.columns import is_missing, raw_columns
from relfit.data.files import FileRows, as_file, find_file
from relfit.data.files.base import reading
from relfit.data.files.text import is_number
from relfit.data.frames import frame_names
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, loaded
from relfit.util.progress import Progress, counted
from relfit.util.text import first_line, is_text, listed

# A date of ISO 8601, with a time or without.
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?)?Z?")
_LONGEST_LEVEL, _MOST_NAMES = 200, 8
# Text with more levels than this is no category. Of a file that is read in parts, all further ones are held as one.
MOST_HELD, _MORE = 100_000, "(a level beyond those that are held)"


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one column.

    Attributes:
        kind: "number", "date" (seconds since 1970) or "text".
        held: float64 with NaN where a cell is missing; of text the places of its level, −1 where it is missing. Or rows
            (n, 1) in a file, with NaN for missing text too.
        levels: of text, the values that differ.
    """

    kind: str
    held: NDArray[Any] | LazyRows
    levels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.held)

    @property
    def values(self) -> NDArray[Any]:
        """The cells in memory."""
        if not isinstance(self.held, LazyRows):
            return self.held
        values = self.held[:][:, 0]
        return np.where(np.isnan(values), -1.0, values).astype(np.intp) if self.kind == "text" else values

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
        """Of text, the levels that cells have: there may be others, which a frame or a file names only."""
        return {level for level, count in zip(self.levels, self.counts.tolist(), strict=True) if count}

    def at(self, rows: Any) -> Cells:
        """The cells of these rows, given by their numbers or as a mask."""
        numbers = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else rows
        return replace(self, held=some_rows(self.held, numbers))

    def stored(self, folder: Path) -> Cells:
        """The same cells in a file in the folder."""
        return replace(self, held=written_rows([np.where(self.missing, np.nan, self.values)[:, None]], folder))

    def as_text(self) -> Cells:
        """The same cells as levels: whole numbers without a decimal point, dates in ISO 8601."""
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
        return Table(self.source, {name: cells.at(rows) for name, cells in self.columns.items()})

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

    def numbers(self) -> Array:
        """The columns as (n, d), where all of them hold numbers."""
        for name, cells in self.columns.items():
            if cells.kind != "number":
                got = {"text": f"text such as {cells.levels[0]!r:.40}" if cells.levels else "text"}.get(
                    cells.kind, "dates"
                )
                raise InputError(f"{self.source}: expected numbers, got {got} in column {name!r}; select other columns")
        return np.stack([cells.values for cells in self.columns.values()], axis=1)


def read_table(argument: str, value: Any, folder: Path | None = None, progress: Progress | None = None) -> Table | None:
    """The table that a frame or a file is; None for anything without names, and for columns that hold lists.

    With a folder, columns are kept in files in it, and a file is never held as a whole.
    """
    if isinstance(value, Table):
        return value
    file = as_file(value)
    if file is not None and folder is not None:
        return _stored(file, folder, progress)
    where, raw = raw_columns(argument, value)
    if not _are_cells(raw):
        return None
    columns = {}
    for name, values in raw or ():
        cells = _read_cells(where, name, values)
        columns[name] = cells if folder is None else cells.stored(folder)
    lengths = sorted({len(cells) for cells in columns.values()})
    if len(lengths) > 1:
        return None
    if not lengths[0]:
        raise InputError(f"{where}: expected at least one row, got a header only")
    return Table(where, columns)


def is_table(argument: str, value: Any) -> bool:
    """True for a data frame whose columns have different names and hold cells, not lists."""
    return frame_names(value) is not None and _are_cells(raw_columns(argument, value)[1])


def _are_cells(raw: Sequence[tuple[str, Any]] | None) -> bool:
    columns = dict(raw or ())
    return raw is not None and 0 < len(raw) == len(columns) and not any(map(_holds_lists, columns.values()))


def table_of(source: str, rows: Any, folder: Path | None = None) -> Table:
    """Rows of numbers, an array or `LazyRows`, as a table."""
    blocks = (rows[part] for part in parts(rows.shape))
    columns = rows.T if folder is None else written_columns(blocks, folder)
    return Table(source, {str(k): Cells("number", column) for k, column in enumerate(columns)})


def _stored(file: FileRows, folder: Path, progress: Progress | None) -> Table | None:
    """The table in a file, read a part at a time: each column goes to a file of its own.

    Where some parts of a column are numbers or dates and others are text, all of it is text, and is read again.
    """
    format, selection = find_file(file.source, file.columns)
    if format.column_parts is None:
        return None
    where, as_text = file.source, frozenset[str]()
    while True:
        levels: dict[str, dict[str, int]] = {}
        kinds: dict[str, set[str]] = {}
        with reading(selection.path):
            read = format.column_parts(selection, as_text)
            first = next(read, ())
            if not first or any(_holds_lists(values) for _, values in first):
                return None
            blocks = (_coded(where, part, levels, kinds, as_text) for part in itertools.chain([first], read))
            files = written_columns(counted(progress, where, blocks), folder)
        if not len(files[0]):
            raise InputError(f"{where}: expected at least one row, got a header only")
        mixed = _mixed(kinds)
        if not mixed:
            return _table(where, files, levels, kinds)
        as_text |= mixed
        for rows in files:
            Path(rows.path).unlink()


def table_in_parts(
    where: str, frames: Iterable[Any], folder: Path | None = None, progress: Progress | None = None
) -> Table:
    """The table whose rows arrive in data frames with the same columns; with a folder, columns are kept in files."""
    names: list[str] = []
    levels: dict[str, dict[str, int]] = {}
    kinds: dict[str, set[str]] = {}

    def blocks() -> Iterator[Array]:
        for number, frame in enumerate(frames):
            columns = dict(raw_columns(where, frame)[1] or ())
            names[:] = names or columns
            if set(names) != set(columns):
                shown = listed(list(columns), most=_MOST_NAMES, quote=repr) if columns else type(frame).__name__
                raise InputError(
                    f"{where}: expected batches with the columns of the first, got {shown} in batch {number}"
                )
            yield _coded(where, [(name, columns[name]) for name in names], levels, kinds, ())

    read = counted(progress, where, blocks())
    held: Any = held_rows(read).T if folder is None else written_columns(joined(read), folder)
    for name in sorted(_mixed(kinds)):
        raise InputError(
            f"{where}: expected one type in column {name!r}, got numbers or dates and text; convert it first"
        )
    if not len(held[0]):
        raise InputError(f"{where}: expected at least one row, got none")
    return _table(where, held, levels, kinds)


def _mixed(kinds: Mapping[str, set[str]]) -> frozenset[str]:
    """The columns of which parts are of different kinds."""
    return frozenset(name for name, found in kinds.items() if len(found) > 1)


def _table(
    where: str, held: Iterable[Any], levels: Mapping[str, Mapping[str, int]], kinds: Mapping[str, set[str]]
) -> Table:
    """The table of columns that `_coded` has made."""
    columns = {}
    for (name, found), values in zip(kinds.items(), held, strict=True):
        kind = next(iter(found), "number")
        if kind == "text" and not isinstance(values, LazyRows):
            values = np.where(np.isnan(values), -1.0, values).astype(np.intp)
        columns[name] = Cells(kind, values, tuple(levels[name]))
    return Table(where, columns)


def _coded(
    where: str,
    part: Sequence[tuple[str, Any]],
    levels: dict[str, dict[str, int]],
    kinds: dict[str, set[str]],
    as_text: Collection[str],
) -> Array:
    """(m, d) the cells of some rows, of text the numbers of the levels, which are added to those of earlier parts."""
    columns = []
    for name, values in part:
        cells = _read_cells(where, name, values, as_text=name in as_text)
        known = levels.setdefault(name, {})
        kinds.setdefault(name, set()).update(() if cells.missing.all() else (cells.kind,))
        if cells.kind == "text":
            held = [level if level in known or len(known) < MOST_HELD else _MORE for level in cells.levels]
            if name in as_text and _MORE in held:
                raise InputError(
                    f"{where}: column {name!r} holds numbers or dates and text, and more than {MOST_HELD} different "
                    "values; fix it, or drop it"
                )
            places = np.array([*(known.setdefault(level, len(known)) for level in held), np.nan])
            columns.append(places[cells.values])
        else:
            columns.append(cells.values)
    return np.stack(columns, axis=1)


def _read_cells(where: str, name: str, values: Any, *, as_text: bool = False) -> Cells:
    try:
        return cells_of(where, name, values, as_text=as_text)
    except (ArithmeticError, TypeError, ValueError) as error:
        # Other libraries raise errors of their own, such as for dates out of range.
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: column {name!r} cannot be read ({first_line(error):.160})") from None


def cells_of(where: str, name: str, values: Any, *, as_text: bool = False) -> Cells:
    """Any values of one dimension as cells; with `as_text`, text is text even if all of it looks like numbers or dates.

    >>> cells_of("table", "x", ["a", None, "b", "a"]).values.tolist()
    [0, -1, 1, 0]
    """
    if is_instance(values, "pandas", "Series"):
        return _pandas(where, name, values)
    if is_instance(values, "pyarrow", "Array", "ChunkedArray"):
        return _arrow(where, name, values, as_text)
    if is_instance(values, "polars", "Series"):
        polars = loaded("polars")
        if values.dtype.is_numeric():
            return Cells("number", np.array(values.cast(polars.Float64).to_numpy(), dtype=np.float64))
        if values.dtype in (polars.Date, polars.Datetime):
            micros = values.cast(polars.Datetime("us")).to_physical().cast(polars.Float64)
            return Cells("date", np.array(micros.to_numpy(), dtype=np.float64) / 1e6)
        values = values.to_list()
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.ndim == 1:
        return Cells("number", values.astype(np.float64))
    known: dict[Any, int] = {}
    try:
        codes = (-1 if is_missing(cell) else known.setdefault(cell, len(known)) for cell in values)
        places = np.fromiter(codes, np.intp, len(values))
    except TypeError:
        raise InputError(f"{where}: expected numbers, dates or text in column {name!r}, got other objects") from None
    return _classified(where, name, places, list(known), known=as_text)


def _pandas(where: str, name: str, series: Any) -> Cells:
    dtype = series.dtype
    kind = getattr(dtype, "kind", "O")
    if kind in "iuf":
        return Cells("number", np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan)))
    if kind == "M":
        if getattr(dtype, "tz", None) is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return Cells("date", _seconds(series.to_numpy(dtype="datetime64[us]")))
    if kind == "m":
        return Cells("number", _seconds(series.to_numpy(dtype="timedelta64[us]")))
    try:
        codes, differ = loaded("pandas").factorize(series)
    except TypeError:
        raise InputError(f"{where}: expected numbers, dates or text in column {name!r}, got other objects") from None
    return _classified(where, name, codes, differ.tolist(), known=str(dtype) == "category")


def _arrow(where: str, name: str, column: Any, as_text: bool) -> Cells:
    pyarrow = loaded("pyarrow")
    types, type_ = pyarrow.types, column.type
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return Cells(
            "number", np.array(column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
        )
    if types.is_date(type_) or types.is_timestamp(type_):
        micros = column.cast(pyarrow.timestamp("us")).cast(pyarrow.int64()).cast(pyarrow.float64())
        return Cells("date", np.asarray(micros.to_numpy(zero_copy_only=False), dtype=np.float64) / 1e6)
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    if types.is_dictionary(type_) or types.is_string(type_) or types.is_large_string(type_) or types.is_boolean(type_):
        column = column if types.is_dictionary(type_) else column.dictionary_encode()
        chunks = column.chunks if hasattr(column, "chunks") else [column]
        if len(chunks) == 1:
            codes = chunks[0].indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
            known = as_text or types.is_dictionary(type_)
            return _classified(where, name, codes, chunks[0].dictionary.to_pylist(), known=known)
    return cells_of(where, name, column.to_pylist(), as_text=as_text)


def _classified(where: str, name: str, places: NDArray[Any], differ: list[Any], *, known: bool = False) -> Cells:
    """Cells by their places among values that differ: numbers, dates, or text; text if these are `known` as levels."""
    values: Array | None = None
    kind = "text"
    if known:
        pass
    elif all(isinstance(each, Real | Decimal) and not isinstance(each, bool | np.bool_) for each in differ):
        kind, values = "number", np.array([float(each) for each in differ])
    elif all(isinstance(each, datetime.date) for each in differ):
        kind, values = "date", parsed_dates([_plain_date(each) for each in differ])
    elif all(isinstance(each, str) and is_number(each) for each in differ):
        kind, values = "number", np.array([float(each) for each in differ])
    elif all(isinstance(each, str) and len(each) < 30 and DATE.fullmatch(each) for each in differ):
        kind, values = "date", parsed_dates(differ)
    if values is not None:
        return Cells(kind, np.append(values, np.nan)[places])
    # Different values may look the same in text, such as 1 and "1".
    found: dict[str, int] = {}
    renamed = [found.setdefault(_level(where, name, each), len(found)) for each in differ]
    return Cells("text", np.append(np.array(renamed, dtype=np.intp), -1)[places], tuple(found))


def parsed_dates(texts: Sequence[str], form: str | None = None) -> Array | None:
    """Seconds since 1970 of dates in ISO 8601, or in a form of `strptime`; None if one of them is no date."""
    try:
        if form is not None:
            zone = datetime.UTC
            each = [datetime.datetime.strptime(text, form) for text in texts]
            return np.array([(at if at.tzinfo else at.replace(tzinfo=zone)).timestamp() for at in each])
        return _seconds(np.array([text.removesuffix("Z") for text in texts], dtype="datetime64[us]"))
    except (ValueError, OverflowError):
        return None


def _plain_date(date: datetime.date) -> str:
    """In ISO 8601, at UTC if it says where it is from."""
    zone = getattr(date, "tzinfo", None)
    return (date if zone is None else date.astimezone(datetime.UTC).replace(tzinfo=None)).isoformat()  # type: ignore[attr-defined]


def _seconds(times: NDArray[Any]) -> Array:
    return np.where(np.isnat(times), np.nan, times.astype(np.int64) / 1e6)


def _level(where: str, name: str, value: Any) -> str:
    if isinstance(value, Real | Decimal) and not isinstance(value, bool | np.bool_):
        return _number_level(float(value))
    text = value if isinstance(value, str) else str(value)
    if not is_text(text):
        raise InputError(f"{where}: expected valid text in column {name!r}, got {text!a:.60}")
    # A level is shown in notes and kept in results; the ends of a long one tell it from others.
    half = _LONGEST_LEVEL // 2
    return text if len(text) <= _LONGEST_LEVEL else f"{text[:half]}…{text[-half:]} ({len(text)} letters)"


def _number_level(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def date_text(seconds: float) -> str:
    """In ISO 8601, without a time if that is 0."""
    return str(np.datetime64(round(seconds * 1e6), "us")).removesuffix(".000000").removesuffix("T00:00:00")


def _holds_lists(values: Any) -> bool:
    if is_instance(values, "pyarrow", "Array", "ChunkedArray"):
        types = loaded("pyarrow").types
        return bool(types.is_nested(values.type) and not types.is_struct(values.type)) or hasattr(
            values.type, "storage_type"
        )
    return is_instance(values, "polars", "Series") and values.dtype.is_nested()
