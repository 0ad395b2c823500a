"""Tables whose columns hold numbers, dates or text, some cells missing: frames of other libraries, files with names.

A column is turned into `Cells` by the values that differ, so that a million cells of five levels cost little. Nothing
is unpickled, and what a column means is decided later, by `relfit.data.encode`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.columns import is_missing, raw_columns
from relfit.data.files.text import is_number
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, loaded
from relfit.util.text import first_line, is_text

# A date of ISO 8601, with a time or without.
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?)?Z?")
_LONGEST_LEVEL = 200


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one column.

    Attributes:
        kind: "number", "date" (seconds since 1970) or "text".
        values: float64 with NaN where a cell is missing; of text the places of its level, −1 where it is missing.
        levels: of text, the values that differ.
    """

    kind: str
    values: NDArray[Any]
    levels: tuple[str, ...] = ()

    @property
    def missing(self) -> NDArray[np.bool_]:
        """True where a cell is missing."""
        return np.asarray(self.values < 0 if self.kind == "text" else np.isnan(self.values))

    @property
    def counts(self) -> NDArray[np.intp]:
        """Of text, how many cells each level has."""
        return np.bincount(self.values[self.values >= 0], minlength=len(self.levels))

    def at(self, rows: Any) -> Cells:
        """The cells of these rows."""
        return Cells(self.kind, self.values[rows], self.levels)

    def as_text(self) -> Cells:
        """The same cells as levels: whole numbers without a decimal point, dates in ISO 8601."""
        if self.kind == "text":
            return self
        differ, places = np.unique(self.values, return_inverse=True)
        known = differ[~np.isnan(differ)]
        levels = map(_number_level if self.kind == "number" else _date_level, known.tolist())
        return Cells("text", np.where(places < len(known), places, -1), tuple(levels))


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one length. `source` is what errors call it."""

    source: str
    columns: Mapping[str, Cells]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).values)

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


def read_table(argument: str, value: Any) -> Table | None:
    """The table that a frame or a file is; None for anything without names, and for columns that hold lists."""
    if isinstance(value, Table):
        return value
    where, raw = raw_columns(argument, value)
    if raw is None or not raw or any(_holds_lists(values) for _, values in raw):
        return None
    columns = {}
    for name, values in raw:
        try:
            columns[name] = cells_of(where, name, values)
        except (ArithmeticError, TypeError, ValueError) as error:
            # Other libraries raise errors of their own, such as for dates out of range.
            if isinstance(error, InputError):
                raise
            raise InputError(f"{where}: column {name!r} cannot be read ({first_line(error):.160})") from None
    lengths = sorted({len(cells.values) for cells in columns.values()})
    if len(columns) < len(raw) or len(lengths) > 1:
        return None
    if not lengths[0]:
        raise InputError(f"{where}: expected at least one row, got a header only")
    return Table(where, columns)


def table_of(source: str, rows: Array) -> Table:
    """Rows of numbers as a table."""
    return Table(source, {str(k): Cells("number", column) for k, column in enumerate(rows.T)})


def cells_of(where: str, name: str, values: Any) -> Cells:
    """Any values of one dimension as cells.

    >>> cells_of("table", "x", ["a", None, "b", "a"]).values.tolist()
    [0, -1, 1, 0]
    """
    if is_instance(values, "pandas", "Series"):
        return _pandas(where, name, values)
    if is_instance(values, "pyarrow", "Array", "ChunkedArray"):
        return _arrow(where, name, values)
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
    return _classified(where, name, places, list(known))


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


def _arrow(where: str, name: str, column: Any) -> Cells:
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
            return _classified(where, name, codes, chunks[0].dictionary.to_pylist(), known=types.is_dictionary(type_))
    return cells_of(where, name, column.to_pylist())


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


def _date_level(seconds: float) -> str:
    return str(np.datetime64(round(seconds * 1e6), "us"))


def _holds_lists(values: Any) -> bool:
    if is_instance(values, "pyarrow", "Array", "ChunkedArray"):
        types = loaded("pyarrow").types
        return bool(types.is_nested(values.type) and not types.is_struct(values.type)) or hasattr(
            values.type, "storage_type"
        )
    return is_instance(values, "polars", "Series") and values.dtype.is_nested()
