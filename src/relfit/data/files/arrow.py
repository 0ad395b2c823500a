"""Parquet, Feather and Arrow files, read by pyarrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
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

# Before this version a file could make pyarrow unpickle what it held (CVE-2023-47248).
_OLDEST = (14, 0, 1)
# For a file read in parts: the bytes of a column, and the rows, that are held at once.
_BUFFER, _BATCH_ROWS = 2**16, 2**16
# Files up to this size are mapped instead: pyarrow would allocate a page before it knows that the page exists.
_SMALL_FILE = 2**24
_BYTES_PER_LABEL = 100


def _read_parquet(selection: Selection) -> Array:
    """The selected columns, one row group at a time: besides the result only a part of the file is in memory."""
    path = selection.path
    with _open_parquet(path, memory_map=True) as file:
        names = _selected_names(selection, file.schema_arrow)
        require_room(path, 8 * file.metadata.num_rows * _width(file, names))
        return arrow_rows(path, names, file.iter_batches(columns=names), file.metadata.num_rows)


def _parquet_parts(selection: Selection, _most_bytes: int) -> Iterator[NDArray[Any]]:
    """The selected columns in blocks; neither the whole file nor a row group is held."""
    path = selection.path
    # A positive buffer size makes pyarrow read a column a little at a time; a mapped file would become resident.
    small = path.stat().st_size <= _SMALL_FILE
    options = {"memory_map": True} if small else {"buffer_size": _BUFFER, "pre_buffer": False}
    with _open_parquet(path, **options) as file:
        names = _selected_names(selection, file.schema_arrow)
        size = min(_BATCH_ROWS, max(1, PART_NUMBERS // max(1, _width(file, names))))
        batches = file.iter_batches(batch_size=size, columns=names, use_threads=False)
        count = 0
        for block in arrow_parts(path, names, batches):
            count += len(block)
            yield block
            _release_memory()
        check_row_count(path, count, file.metadata.num_rows)


def _parquet_names(path: Path) -> list[str]:
    with _open_parquet(path, memory_map=True) as file:
        return list(file.schema_arrow.names)


def _parquet_label_column(path: Path, column: str) -> LabelColumn:
    with _open_parquet(path, memory_map=True) as file:
        names = list(file.schema_arrow.names)
        position = column_positions(Selection(path, columns=(column,)), names, len(names))[0]
        # In small batches: pyarrow allocates what the file claims to hold, which may be far more than it holds.
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=[names[position]], use_threads=False)
        # Another column may have the same name.
        labels = _labels(path, batches, names[:position].count(names[position]))
        check_row_count(path, len(labels), file.metadata.num_rows)
        return labels, position, len(names)


def _open_parquet(path: Path, **options: Any) -> Any:
    needed(path, "pyarrow", _OLDEST)
    return needed(path, "pyarrow.parquet", ()).ParquetFile(os.fspath(path), **options)


def _width(file: Any, names: list[str]) -> int:
    """The number of values in a row, according to the first row if there are lists.

    The file's metadata state it too, but cannot be trusted: pyarrow aborts the process if they are damaged, and equal
    values take no space in the file.
    """
    first = next(file.iter_batches(batch_size=1, columns=names, use_threads=False), None)
    return len(names) if first is None else sum(map(_length, first.columns))


def _length(column: Any) -> int:
    return len(column.flatten()) if hasattr(column, "flatten") else len(column)


def _read_arrow(selection: Selection) -> Array:
    """The selected columns of an Arrow file (a Feather file is one) or stream."""
    path = selection.path
    with needed(path, "pyarrow", _OLDEST).memory_map(os.fspath(path)) as source:
        names, reader = _selected_reader(selection, source)
        table = reader.read_all()
        return arrow_rows(path, names, table.to_batches(), table.num_rows)


def _arrow_parts(selection: Selection, _most_bytes: int) -> Iterator[NDArray[Any]]:
    """The selected columns of an Arrow file or stream, one record batch at a time."""
    path = selection.path
    with needed(path, "pyarrow", _OLDEST).OSFile(os.fspath(path)) as source:
        names, reader = _selected_reader(selection, source, use_threads=False)
        for block in arrow_parts(path, names, _batches(reader)):
            yield block
            _release_memory()


def _arrow_names(path: Path) -> list[str]:
    with needed(path, "pyarrow", _OLDEST).memory_map(os.fspath(path)) as source:
        return list(_reader(path, source).schema.names)


def _arrow_label_column(path: Path, column: str) -> LabelColumn:
    with needed(path, "pyarrow", _OLDEST).memory_map(os.fspath(path)) as source:
        names = list(_reader(path, source).schema.names)
        position = column_positions(Selection(path, columns=(column,)), names, len(names))[0]
        reader = _reader(path, source, included_fields=[position], use_threads=False)
        return _labels(path, _batches(reader), 0), position, len(names)


def _batches(reader: Any) -> Iterator[Any]:
    """The record batches of an Arrow file or stream."""
    if hasattr(reader, "read_next_batch"):
        return iter(reader)
    return map(reader.get_batch, range(reader.num_record_batches))


def _labels(path: Path, batches: Iterator[Any], position: int) -> NDArray[Any]:
    """The values in one column of the batches."""
    labels: list[Any] = []
    for batch in batches:
        require_room(path, (len(labels) + batch.num_rows) * _BYTES_PER_LABEL)
        batch.validate(full=True)
        labels += batch.column(position).to_pylist()
    return np.array(labels, dtype=object)


def _selected_reader(selection: Selection, source: Any, **options: Any) -> tuple[list[str], Any]:
    """The names of the selected columns, and a reader of those alone."""
    schema = _reader(selection.path, source).schema
    names = _selected_names(selection, schema)
    fields = [schema.get_field_index(name) for name in names]
    return names, _reader(selection.path, source, included_fields=fields, **options)


def _reader(path: Path, source: Any, **options: Any) -> Any:
    ipc = needed(path, "pyarrow.ipc", ())
    source.seek(0)
    start = source.read(6)
    source.seek(0)
    open_reader = ipc.open_file if start == b"ARROW1" else ipc.open_stream
    return open_reader(source, options=ipc.IpcReadOptions(**options))


def _release_memory() -> None:
    """Return the memory that pyarrow keeps for later use to the system."""
    loaded("pyarrow").default_memory_pool().release_unused()


def _selected_names(selection: Selection, schema: Any) -> list[str]:
    names = list(schema.names)
    selected = [names[k] for k in column_positions(selection, names, len(names))]
    twice = next((name for name in selected if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{selection.path}: expected columns of different names, got {names.count(twice)} called {twice!r}"
        )
    refuse_not_numeric(selection.path, not_numeric(schema, selected), "select numeric columns (columns=, --columns)")
    return selected


PARQUET = Format(
    (".parquet",), _read_parquet, names=_parquet_names, parts=_parquet_parts, label_column=_parquet_label_column
)
ARROW = Format(
    (".feather", ".arrow"), _read_arrow, names=_arrow_names, parts=_arrow_parts, label_column=_arrow_label_column
)
