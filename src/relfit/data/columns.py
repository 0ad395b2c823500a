"""Tables with named columns of numbers or text, some cells missing: frames of other libraries, and files.

A column is an array of float64, NaN where a cell is missing, or of objects: text, None where a cell is missing.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.files import FileRows, as_file, find_file
from relfit.data.files.base import check_plain, reading
from relfit.data.files.text import LONGEST_LINE
from relfit.data.frames import computed, frame_names
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, loaded
from relfit.util.text import is_text, listed

Columns = dict[str, NDArray[Any]]

JSON_LINES, JSON_RECORDS = (".jsonl", ".ndjson"), ".json"
_ROWS_BETWEEN_CHECKS, _BYTES_PER_CELL = 4096, 80
_MOST_NAMES = 8
_TRUTH = {"true": 1.0, "false": 0.0}


def named_columns(argument: str, value: Any) -> Columns | None:
    """The columns of a frame, of a mapping of names to columns or of a file of such; None for anything without names.

    >>> {
    ...     name: column.tolist()
    ...     for name, column in named_columns("table", {"model": ["a", "b"], "x": [1, None]}).items()
    ... }
    {'model': ['a', 'b'], 'x': [1.0, nan]}
    """
    where, read = raw_columns(argument, value)
    if read is None:
        return None
    names = [name for name, _ in read]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise InputError(f"{where}: expected columns of different names, got {twice!r} more than once")
    columns = {name: _column(values) for name, (_, values) in zip(names, read, strict=True)}
    lengths = sorted({len(column) for column in columns.values()})
    if len(lengths) > 1:
        raise InputError(f"{where}: expected columns of one length, got {lengths[0]} to {lengths[-1]}")
    return columns


def raw_columns(argument: str, value: Any) -> tuple[str, list[tuple[str, Any]] | None]:
    """What errors call the value, and its columns with their names, as their library or file has them."""
    file = as_file(value)
    if file is not None:
        where, read = file.source, _read(file)
    else:
        value = computed(argument, value)
        where, read = argument, list(value.items()) if isinstance(value, Mapping) else _frame(value)
    return where, None if read is None else [(str(name).strip(), values) for name, values in read]


def take(argument: str, columns: Columns, name: Any) -> NDArray[Any]:
    """The column of this name, which the argument asks for."""
    if not isinstance(name, str) or name not in columns:
        known = listed(list(columns), "or", most=_MOST_NAMES, quote=repr) if columns else "none"
        raise InputError(f"{argument}: expected the name of a column ({known}), got {name!r}")
    return columns[name]


def missing_cells(column: NDArray[Any]) -> NDArray[np.bool_]:
    """True where a cell is missing."""
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    return np.array([cell is None for cell in column], dtype=bool)


def _frame(value: Any) -> list[tuple[Any, Any]] | None:
    names = frame_names(value)
    if names is None:
        return None
    if is_instance(value, "polars", "LazyFrame"):
        value = value.collect()
    if is_instance(value, "pandas", "DataFrame"):
        return [(name, value.iloc[:, k]) for k, name in enumerate(names)]
    columns = value.get_columns() if is_instance(value, "polars", "DataFrame") else value.columns
    return list(zip(names, columns, strict=True))


def _column(values: Any) -> NDArray[Any]:
    """Any one-dimensional values as a column."""
    if is_instance(values, "pandas", "Series"):
        numeric = getattr(values.dtype, "kind", "O") in "bf"
        values = values.to_numpy(dtype=np.float64, na_value=np.nan) if numeric else values.tolist()
    elif is_instance(values, "polars", "Series") or is_instance(values, "pyarrow", "Array", "ChunkedArray"):
        values = values.to_pylist() if hasattr(values, "to_pylist") else values.to_list()
    if isinstance(values, np.ndarray) and values.dtype.kind in "bf" and values.ndim == 1:
        return values.astype(np.float64)
    values = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"columns: expected a sequence of cells, got {reprlib.repr(values)}")
    cells = [None if is_missing(cell) else cell for cell in values]
    if all(cell is None or _is_number(cell) for cell in cells):
        return np.array([math.nan if cell is None else float(cell) for cell in cells], dtype=np.float64)
    if all(cell is None or (isinstance(cell, str) and cell.lower() in _TRUTH) for cell in cells):
        # As text files have truth values.
        return np.array([math.nan if cell is None else _TRUTH[cell.lower()] for cell in cells])
    column = np.empty(len(cells), dtype=object)
    column[:] = [cell if cell is None or isinstance(cell, str) else str(cell) for cell in cells]
    return column


def _is_number(cell: Any) -> bool:
    """True for a number that float64 holds: whole numbers of 16 digits and more are keys, and must not be rounded."""
    whole = isinstance(cell, int | np.integer) and not isinstance(cell, bool)
    return abs(cell) <= 2**53 if whole else isinstance(cell, Real | Decimal)


def is_missing(cell: Any) -> bool:
    """None, NaN, or the missing value of a data frame."""
    if cell is None or isinstance(cell, float):
        return cell is None or math.isnan(cell)
    return type(cell).__name__ in ("NAType", "NaTType")


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(file: FileRows) -> list[tuple[str, Any]] | None:
    source = file.source
    if source.lower().endswith((*JSON_LINES, JSON_RECORDS)):
        path = Path(source)
        check_plain(path)
        with reading(path):
            return _json_lines(path) if source.lower().endswith(JSON_LINES) else _json_records(path)
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


def _blocks(parts: Iterable[list[tuple[str, Any]]]) -> list[tuple[str, list[Any]]]:
    """The parts of each column; the first, which has no rows, only if there are no others."""
    columns = zip(*parts, strict=True)
    return [(column[0][0], [block for _, block in column[min(1, len(column) - 1) :]]) for column in columns]


def _whole(blocks: list[Any]) -> Any:
    return np.concatenate(blocks) if isinstance(blocks[0], np.ndarray) else loaded("pyarrow").chunked_array(blocks)


def _json_lines(path: Path) -> list[tuple[str, Any]]:
    """One object a line; a key that a line lacks is missing there."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise InputError(f"{path}: expected a JSON object in every line, got something else in line {number}")
        if not len(rows) % _ROWS_BETWEEN_CHECKS:
            require_room(path, _ROWS_BETWEEN_CHECKS * _BYTES_PER_CELL * max(1, len(row)))
        rows.append(row)
    return _of_records(path, rows)


def _json_records(path: Path) -> list[tuple[str, Any]]:
    """A list of objects, one for each row."""
    # Parsed, a text takes about ten times its length.
    require_room(path, 10 * path.stat().st_size)
    try:
        rows = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: expected a JSON list of objects, one for each row, got something else")
    return _of_records(path, rows)


def _of_records(path: Path, rows: list[dict[str, Any]]) -> list[tuple[str, Any]]:
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


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", newline="") as text:
        try:
            while line := text.readline(LONGEST_LINE + 1):
                if len(line) > LONGEST_LINE:
                    raise InputError(f"{path}: expected lines of at most {LONGEST_LINE} characters, got a longer one")
                yield line
        except UnicodeDecodeError:
            raise InputError(f"{path}: expected UTF-8 text, got other bytes; save it as UTF-8") from None
