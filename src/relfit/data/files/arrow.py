"""Parquet, Feather and Arrow files, read by pyarrow."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.compute.rows import PART_NUMBERS
from relfit.data.files.base import Format, LabelColumn, Selection, column_positions
from relfit.data.frames import arrow_parts, arrow_rows, check_row_count, not_numeric, refuse_not_numeric
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import loaded, needed

# An open file: its schema, the record batches of the columns at some positions, and its number of rows if it states it.
Table = tuple[Any, Callable[[list[int]], Iterator[Any]], int | None]
# Opens a file, to read it whole or (True) with only a part of it in memory at any time.
Open = Callable[[Path, bool], AbstractContextManager[Table]]

# Before this version a file could make pyarrow unpickle what it held (CVE-2023-47248).
_OLDEST = (14, 0, 1)
# For a file read in parts: the bytes of a column, and the rows, that are held at once.
_BUFFER, _BATCH_ROWS = 2**16, 2**16
# Files up to this size are mapped instead: pyarrow would allocate a page before it knows that the page exists.
_SMALL_FILE = 2**24
_BYTES_PER_LABEL = 100


@contextmanager
def _open_parquet(path: Path, in_parts: bool) -> Iterator[Table]:
    needed(path, "pyarrow", _OLDEST)
    # A positive buffer size makes pyarrow read a column a little at a time; a mapped file would become resident.
    mapped = not in_parts or path.stat().st_size <= _SMALL_FILE
    options: dict[str, Any] = {"memory_map": True} if mapped else {"buffer_size": _BUFFER, "pre_buffer": False}
    with needed(path, "pyarrow.parquet", ()).ParquetFile(os.fspath(path), **options) as file:
        schema, count = file.schema_arrow, file.metadata.num_rows

        def batches(positions: list[int]) -> Iterator[Any]:
            names = [schema.names[k] for k in positions]
            # The number of values in a row, according to the first row if there are lists. The file's metadata state it
            # too, but cannot be trusted: pyarrow aborts the process if they are damaged, and equal values take no space
            # in the file.
            first = next(file.iter_batches(batch_size=1, columns=names, use_threads=False), None)
            lists = [] if first is None else [column for column in first.columns if hasattr(column, "flatten")]
            width = len(names) - len(lists) + sum(len(column.flatten()) for column in lists)
            size = _BATCH_ROWS
            if in_parts:
                size = min(size, max(1, PART_NUMBERS // max(1, width)))
            else:
                require_room(path, 8 * count * width)
            return iter(file.iter_batches(batch_size=size, columns=names, use_threads=not in_parts))

        yield schema, batches, count


@contextmanager
def _open_arrow(path: Path, in_parts: bool) -> Iterator[Table]:
    """An Arrow file (a Feather file is one) or stream."""
    pyarrow, ipc = needed(path, "pyarrow", _OLDEST), needed(path, "pyarrow.ipc", ())
    with (pyarrow.OSFile if in_parts else pyarrow.memory_map)(os.fspath(path)) as source:
        open_reader = ipc.open_file if source.read(6) == b"ARROW1" else ipc.open_stream

        def reader(**options: Any) -> Any:
            source.seek(0)
            return open_reader(source, options=ipc.IpcReadOptions(**options))

        def batches(positions: list[int]) -> Iterator[Any]:
            selected = reader(included_fields=positions, use_threads=not in_parts)
            if hasattr(selected, "read_next_batch"):
                return iter(selected)
            return map(selected.get_batch, range(selected.num_record_batches))

        yield reader().schema, batches, None


def _read(opened: Open, selection: Selection) -> Array:
    """The selected columns; besides the result only a part of a Parquet file is in memory."""
    path = selection.path
    with opened(path, False) as (schema, batches, count):
        names, positions = _selected(selection, schema)
        held: Any = batches(positions)
        if count is None:
            held = list(held)
            count = sum(batch.num_rows for batch in held)
        return arrow_rows(path, names, held, count)


def _parts(opened: Open, selection: Selection, _most_bytes: int) -> Iterator[NDArray[Any]]:
    """The selected columns in blocks; neither the whole file nor a row group is held."""
    with opened(selection.path, True) as (schema, batches, expected):
        names, positions = _selected(selection, schema)
        for block in arrow_parts(selection.path, names, batches(positions), expected):
            yield block
            # Return the memory that pyarrow keeps for later use to the system.
            loaded("pyarrow").default_memory_pool().release_unused()


def _names(opened: Open, path: Path) -> list[str]:
    with opened(path, False) as (schema, _, _):
        return list(schema.names)


def _label_column(opened: Open, path: Path, column: str) -> LabelColumn:
    # In parts: pyarrow allocates what the file claims to hold, which may be far more than it holds.
    with opened(path, True) as (schema, batches, expected):
        names = list(schema.names)
        position = column_positions(Selection(path, columns=(column,)), names, len(names))[0]
        # Parquet columns are selected by name, and others may have the same.
        earlier = names[:position].count(names[position])
        labels: list[Any] = []
        for batch in batches([position]):
            require_room(path, (len(labels) + batch.num_rows) * _BYTES_PER_LABEL)
            batch.validate(full=True)
            labels += batch.column(min(earlier, batch.num_columns - 1)).to_pylist()
        check_row_count(path, len(labels), expected)
        return np.array(labels, dtype=object), position, len(names)


def _column_parts(opened: Open, selection: Selection, _text: Collection[str]) -> Iterator[list[tuple[str, Any]]]:
    path, count = selection.path, 0
    with opened(path, True) as (schema, batches, expected):
        names, positions = _positions(selection, schema)
        yield [(name, loaded("pyarrow").array([], schema.field(name).type)) for name in names]
        for batch in batches(positions):
            require_room(path, batch.num_rows * len(names) * _BYTES_PER_LABEL)
            batch.validate(full=True)
            count += batch.num_rows
            yield [(name, batch.column(name)) for name in names]
        check_row_count(path, count, expected)


def _positions(selection: Selection, schema: Any) -> tuple[list[str], list[int]]:
    """The names of the selected columns, which must be unique, and their positions."""
    path, names = selection.path, list(schema.names)
    positions = column_positions(selection, names, len(names))
    selected = [names[k] for k in positions]
    twice = next((name for name in selected if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: expected columns of different names, got {names.count(twice)} called {twice!r}")
    return selected, positions


def _selected(selection: Selection, schema: Any) -> tuple[list[str], list[int]]:
    """The names of the selected columns, which must be unique and hold numbers, and their positions."""
    selected, positions = _positions(selection, schema)
    refuse_not_numeric(selection.path, not_numeric(schema, selected), "select numeric columns (columns=, --columns)")
    return selected, positions


def _format(opened: Open, *suffixes: str) -> Format:
    return Format(
        suffixes,
        partial(_read, opened),
        names=partial(_names, opened),
        parts=partial(_parts, opened),
        label_column=partial(_label_column, opened),
        column_parts=partial(_column_parts, opened),
    )


PARQUET = _format(_open_parquet, ".parquet")
ARROW = _format(_open_arrow, ".feather", ".arrow")
