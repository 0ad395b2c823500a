"""Whatever has named columns, read in one way: data frames of any library, mappings of columns, and files.

Data frames are read through narwhals, which is imported when there is one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relfit.compute.memory import require_room
from relfit.data.files import FileRows, as_file, find_file
from relfit.data.files.arrow import table_rows
from relfit.data.files.base import reading, refuse_not_numeric
from relfit.data.files.json import json_lines, read_json
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, loaded
from relfit.util.text import is_text

JSON_LINES, JSON_RECORDS = (".jsonl", ".ndjson"), ".json"
_ROWS_BETWEEN_CHECKS, _BYTES_PER_CELL = 4096, 80
# The packages whose objects narwhals may know.
_LIBRARIES = {"narwhals", "pandas", "polars", "pyarrow", "duckdb", "_duckdb", "dask", "modin", "cudf"}

# What no name begins with: the columns of a frame in which names repeat are numbered.
_NUMBERED = "\0"

# The name of a column, and its cells as their library or file has them.
RawColumn = tuple[str, Any]


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
            f"{argument}: the dask {type(value).__name__} cannot be computed ({type(error).__name__}: {error})"
        ) from error


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_series(values: Any) -> Any:
    """A series of another library as one of narwhals; None for any other value."""
    if is_instance(values, "pyarrow", "Array"):
        values = loaded("pyarrow").chunked_array([values])
    series = _narwhals(values)
    return series if hasattr(series, "null_count") else None


def frame_names(value: Any) -> list[str] | None:
    """The names of a frame's columns; None for any other value. The name of a series is not the name of a column."""
    frame = _narwhals(value)
    if not hasattr(frame, "collect_schema"):
        return None
    return _names(value, frame)


def frame_columns(value: Any, positions: Sequence[int]) -> Any:
    """The frame with the columns at these positions, in this order. The names must differ from each other."""
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
    return value.rename_columns(names) if hasattr(value, "rename_columns") else value.set_axis(names, axis=1)


def _names(value: Any, frame: Any) -> list[str]:
    names = [str(name) for name in frame.collect_schema().names()]
    if names and names[0].startswith(_NUMBERED):
        names = [str(name) for name in getattr(value, "column_names", None) or value.columns]
    return names


def _collected(frame: Any) -> Any:
    return frame.collect() if hasattr(frame, "collect") else frame


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def raw_columns(argument: str, value: Any) -> tuple[str, list[RawColumn] | None]:
    """What errors call the value, and its columns with their names; None for anything without names."""
    file = as_file(value)
    if file is not None:
        where = file.source
        columns = _in_file(file)
    else:
        where = argument
        columns = _in_memory(computed(argument, value))
    return where, None if columns is None else [(str(name).strip(), values) for name, values in columns]


def _in_memory(value: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(value, Mapping):
        return list(value.items())
    frame = _narwhals(value)
    if not hasattr(frame, "collect_schema"):
        return None
    return list(zip(_names(value, frame), _collected(frame).iter_columns(), strict=True))


def is_missing(cell: Any) -> bool:
    """None, NaN, or the missing value of a data frame."""
    if cell is None or isinstance(cell, float):
        return cell is None or math.isnan(cell)
    return type(cell).__name__ in ("NAType", "NaTType")


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _in_file(file: FileRows) -> list[RawColumn] | None:
    source = file.source
    if source.lower().endswith((*JSON_LINES, JSON_RECORDS)):
        return _in_json(Path(source))
    format, selection = find_file(source, file.columns, (JSON_RECORDS, *JSON_LINES))
    if format.column_parts is None:
        return None
    with reading(selection.path):
        columns = _blocks(format.column_parts(selection, ()))
        # A column of which only some parts hold text is read again: numbers do not say how they were written.
        kinds = {
            name: {block.dtype.kind for block in blocks if isinstance(block, np.ndarray)} for name, blocks in columns
        }
        text = [name for name, found in kinds.items() if len(found) > 1]
        columns = _blocks(format.column_parts(selection, text)) if text else columns
    return [(name, _whole(blocks)) for name, blocks in columns] or None


def _blocks(parts: Iterable[list[RawColumn]]) -> list[tuple[str, list[Any]]]:
    """The parts of each column; the first, which has no rows, only if there are no others."""
    columns = zip(*parts, strict=True)
    return [(column[0][0], [block for _, block in column[min(1, len(column) - 1) :]]) for column in columns]


def _whole(blocks: list[Any]) -> Any:
    return np.concatenate(blocks) if isinstance(blocks[0], np.ndarray) else loaded("pyarrow").chunked_array(blocks)


def _in_json(path: Path) -> list[RawColumn]:
    """The columns of a file of objects, one for each row; a key that a row lacks is missing there."""
    if path.name.lower().endswith(JSON_LINES):
        rows: Any = []
        for number, (_, row) in enumerate(json_lines(path)):
            if not number % _ROWS_BETWEEN_CHECKS:
                require_room(path, _ROWS_BETWEEN_CHECKS * _BYTES_PER_CELL * max(1, len(row)))
            rows.append(row)
    else:
        rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: expected a JSON list of objects, one for each row, got something else")
    names = list(dict.fromkeys(name for row in rows for name in row))
    broken = next((name for name in names if not is_text(name)), None)
    if not names or broken is not None:
        raise InputError(f"{path}: expected JSON objects with the names of columns, got {broken!r}")
    return [(name, [_scalar(row.get(name)) for row in rows]) for name in names]


def _scalar(cell: Any) -> Any:
    """A number or text as it is; anything nested as its JSON."""
    if isinstance(cell, str):
        return cell if is_text(cell) else ascii(cell)
    return json.dumps(cell, sort_keys=True) if isinstance(cell, dict | list) else cell
