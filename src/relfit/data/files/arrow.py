"""Parquet, Feather and Arrow files, by pyarrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.columns import Wanted, column_places, refuse_not_numbers
from relfit.data.frames import arrow_parts, arrow_rows, check_count, not_numbers
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import needed

# Before this version a file could make pyarrow unpickle what it held (CVE-2023-47248).
_OLDEST = (14, 0, 1)
# Of a file read a part at a time: bytes of a column, and rows.
_BUFFER, _BATCH_ROWS = 2**16, 2**16
# Files up to this size are mapped instead: room for a page would be taken before it is known to be there.
_SMALL_FILE = 2**24


def read_parquet(path: Path, wanted: Wanted | None) -> Array:
    """The wanted columns, row group by row group: besides the result only a part of the file is in memory."""
    needed(path, "pyarrow", _OLDEST)
    parquet = needed(path, "pyarrow.parquet", ())
    with parquet.ParquetFile(os.fspath(path), memory_map=True) as file:
        names = _names(path, file.schema_arrow, wanted)
        require_room(path, 8 * file.metadata.num_rows * _width(file, names))
        return arrow_rows(path, names, file.iter_batches(columns=names), file.metadata.num_rows)


def parquet_names(path: Path) -> list[str]:
    """The names of all columns."""
    needed(path, "pyarrow", _OLDEST)
    with needed(path, "pyarrow.parquet", ()).ParquetFile(os.fspath(path), memory_map=True) as file:
        return list(file.schema_arrow.names)


def _width(file: Any, names: list[str]) -> int:
    """The numbers in a row, by the first one where there are lists: equal numbers take no room in the file.

    Not by the file's notes on its columns, though they count them: pyarrow aborts where those are damaged.
    """
    first = next(file.iter_batches(batch_size=1, columns=names, use_threads=False), None)
    return len(names) if first is None else sum(map(_length, first.columns))


def _length(column: Any) -> int:
    return len(column.flatten()) if hasattr(column, "flatten") else len(column)


def read_arrow(path: Path, wanted: Wanted | None) -> Array:
    """The wanted columns of an Arrow file (Feather is one) or stream."""
    pyarrow = needed(path, "pyarrow", _OLDEST)
    ipc = needed(path, "pyarrow.ipc", ())
    with pyarrow.memory_map(os.fspath(path)) as source:
        names, opened = _wanted(path, ipc, source, wanted)
        table = opened.read_all()
        return arrow_rows(path, names, table.to_batches(), table.num_rows)


def arrow_names(path: Path) -> list[str]:
    """The names of all columns of an Arrow file or stream."""
    pyarrow = needed(path, "pyarrow", _OLDEST)
    ipc = needed(path, "pyarrow.ipc", ())
    with pyarrow.memory_map(os.fspath(path)) as source:
        return list(_opened(ipc, source).schema.names)


def parquet_parts(path: Path, wanted: Wanted | None, numbers: int) -> Iterator[NDArray[Any]]:
    """The wanted columns, at most so many numbers at a time; neither the file nor a row group is held."""
    pyarrow = needed(path, "pyarrow", _OLDEST)
    parquet = needed(path, "pyarrow.parquet", ())
    # A positive buffer size makes pyarrow read a column a little at a time; a mapped file would become resident.
    small = path.stat().st_size <= _SMALL_FILE
    how = {"memory_map": True} if small else {"buffer_size": _BUFFER, "pre_buffer": False}
    with parquet.ParquetFile(os.fspath(path), **how) as file:
        names = _names(path, file.schema_arrow, wanted)
        size = min(_BATCH_ROWS, max(1, numbers // max(1, _width(file, names))))
        batches = file.iter_batches(batch_size=size, columns=names, use_threads=False)
        yield from _counted(path, _released(pyarrow, arrow_parts(path, names, batches)), file.metadata.num_rows)


def ipc_parts(path: Path, wanted: Wanted | None) -> Iterator[NDArray[Any]]:
    """The wanted columns of an Arrow file or stream, a record batch at a time."""
    pyarrow = needed(path, "pyarrow", _OLDEST)
    ipc = needed(path, "pyarrow.ipc", ())
    with pyarrow.OSFile(os.fspath(path)) as source:
        names, opened = _wanted(path, ipc, source, wanted, use_threads=False)
        batches = (
            opened if hasattr(opened, "read_next_batch") else map(opened.get_batch, range(opened.num_record_batches))
        )
        yield from _released(pyarrow, arrow_parts(path, names, batches))


def _wanted(path: Path, ipc: Any, source: Any, wanted: Wanted | None, **options: Any) -> tuple[list[str], Any]:
    """The wanted columns' names, and a reader of those alone."""
    schema = _opened(ipc, source).schema
    names = _names(path, schema, wanted)
    fields = [schema.get_field_index(name) for name in names]
    return names, _opened(ipc, source, ipc.IpcReadOptions(included_fields=fields, **options))


def _counted(path: Path, blocks: Iterator[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    done = 0
    for block in blocks:
        done += len(block)
        yield block
    check_count(path, done, rows)


def _released(pyarrow: Any, blocks: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """The blocks; after each, what pyarrow keeps for later use goes back to the system."""
    for block in blocks:
        yield block
        pyarrow.default_memory_pool().release_unused()


def _opened(ipc: Any, source: Any, options: Any = None) -> Any:
    source.seek(0)
    start = source.read(6)
    source.seek(0)
    return (ipc.open_file if start == b"ARROW1" else ipc.open_stream)(source, options=options)


def _names(path: Path, schema: Any, wanted: Wanted | None) -> list[str]:
    names = list(schema.names)
    chosen = names if wanted is None else [names[k] for k in column_places(path, wanted, names, len(names))]
    twice = next((name for name in chosen if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: expected columns of different names, got {names.count(twice)} called {twice!r}")
    refuse_not_numbers(path, not_numbers(schema, chosen), "choose the columns of numbers (columns=, --columns)")
    return chosen
