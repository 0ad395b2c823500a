"""Parquet, Feather and Arrow files, and folders of Parquet files, read by pyarrow."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import held_rows, require_room
from relfit.data.files.base import (
    Format,
    Selection,
    check_plain,
    column_positions,
    reading,
    refuse_not_numeric,
)
from relfit.util.arrays import PART_NUMBERS, Array
from relfit.util.errors import InputError, way
from relfit.util.libraries import loaded, needed
from relfit.util.text import first_line, listed

# An open file: its schema, the record batches of the columns at some positions, and its number
# of rows if it states it.
Table = tuple[Any, Callable[[list[int]], Iterator[Any]], int | None]
# Opens a file, of which only a part is in memory at any time.
Open = Callable[[Path], AbstractContextManager[Table]]

# Before this version a file could make pyarrow unpickle what it held (CVE-2023-47248).
_OLDEST = (14, 0, 1)
# For a file read in parts: the bytes of a column, and the rows, that are held at once.
_BUFFER = 2**16
_BATCH_ROWS = 2**16
# Files up to this size are mapped instead: pyarrow would allocate a page before it knows that
# the page exists.
_SMALL_FILE = 2**24
_BYTES_PER_LABEL = 100
_MOST_NAMES = 8
# How a folder's name says that the value is missing.
_NO_KEY = "__HIVE_DEFAULT_PARTITION__"
# Folders of Delta and Hudi tables, which say which of the Parquet files beside them are still
# part of the table.
_LOGS = ("_delta_log", ".hoodie")


@contextmanager
def _open_parquet(path: Path) -> Iterator[Table]:
    needed(path, "pyarrow", _OLDEST)
    if path.is_dir():
        yield _data_set(path)
        return
    # A positive buffer size makes pyarrow read a column a little at a time; a mapped file would
    # become resident.
    options: dict[str, Any] = {"buffer_size": _BUFFER, "pre_buffer": False}
    if path.stat().st_size <= _SMALL_FILE:
        options = {"memory_map": True}
    with needed(path, "pyarrow.parquet", ()).ParquetFile(os.fspath(path), **options) as file:
        schema = file.schema_arrow
        count = file.metadata.num_rows

        def batches(positions: list[int]) -> Iterator[Any]:
            names = [schema.names[k] for k in positions]
            # The number of values in a row, according to the first row if there are lists. The
            # file's metadata state it too, but cannot be trusted: pyarrow aborts the process if
            # they are damaged, and equal values take no space in the file.
            read = partial(file.iter_batches, columns=names, use_threads=False)
            first = next(read(batch_size=1), None)
            width = 1
            for column in () if first is None else first.columns:
                width += len(column.flatten()) if hasattr(column, "flatten") else 1
            return iter(read(batch_size=min(_BATCH_ROWS, max(1, PART_NUMBERS // width))))

        yield schema, batches, count


def _data_set(folder: Path) -> Table:
    """The Parquet files in a folder as one table; names of folders such as ``year=2024`` are
    columns (Hive).
    """
    pyarrow = loaded("pyarrow")
    files = _parquet_files(folder)
    schemas = []
    count = 0
    for file in files:
        with reading(file), _open_parquet(file) as (schema, _, rows):
            schemas.append(schema)
            count += rows or 0
        differ = sorted(set(schema.names) ^ set(schemas[0].names))
        if differ:
            shown = listed(differ, most=_MOST_NAMES, quote=repr)
            raise InputError(
                f"{file}: expected the columns of {files[0]}, but only one of "
                f"the two has {shown}"
            )
    whole = schemas[0]
    if any(schema != whole for schema in schemas):
        try:
            whole = pyarrow.unify_schemas(schemas, promote_options="permissive")
        except pyarrow.ArrowException as error:
            raise InputError(
                f"{folder}: expected columns of one type in all files "
                f"({first_line(error):.160})"
            ) from None
    keys = _folder_keys(folder, files)
    for name in set(keys) & set(whole.names):
        del keys[name]
    for name, values in keys.items():
        whole = whole.append(pyarrow.field(name, values.type))

    def batches(positions: list[int]) -> Iterator[Any]:
        selected = pyarrow.schema([whole.field(k) for k in positions])
        for number, file in enumerate(files):
            with reading(file), _open_parquet(file) as (schema, read, _):
                stored = [
                    schema.names.index(name) for name in selected.names if name not in keys
                ]
                for batch in read(stored):
                    columns = [
                        pyarrow.repeat(keys[field.name][number], batch.num_rows)
                        if field.name in keys
                        else _cast(batch.column(field.name), field.type)
                        for field in selected
                    ]
                    yield pyarrow.RecordBatch.from_arrays(columns, schema=selected)

    return whole, batches, count


def _cast(column: Any, type_: Any) -> Any:
    if column.type == type_:
        return column
    column.validate(full=True)
    return column.cast(type_)


def _folder_keys(folder: Path, files: list[Path]) -> dict[str, Any]:
    """What names of folders such as ``year=2024`` say of each file: whole numbers if all
    are, else text.
    """
    pyarrow = loaded("pyarrow")
    found = [
        dict(part.split("=", 1) for part in file.relative_to(folder).parts[:-1] if "=" in part)
        for file in files
    ]
    keys = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(found)):
        texts = [some.get(name, _NO_KEY) for some in found]
        values = [None if text == _NO_KEY else unquote(text) for text in texts]
        keys[name] = pyarrow.array(values, pyarrow.string())
        with suppress(pyarrow.ArrowInvalid):
            keys[name] = keys[name].cast(pyarrow.int64())
    return keys


def _parquet_files(folder: Path) -> list[Path]:
    """The files in a folder and in those inside it, but for hidden ones; any that is no
    Parquet file is refused.
    """
    only = f"{folder}: expected a folder of Parquet files only"
    for log in _LOGS:
        if (folder / log).is_dir():
            raise InputError(
                f"{only}, got a table whose log ({log}) says which files count; write its "
                f"rows to other Parquet files"
            )
    files: dict[tuple[int, int], Path] = {}
    for place, folders, names in _visible(folder):
        for path in (Path(place, name) for name in [*folders, *names]):
            shown = repr(os.fspath(path.relative_to(folder)))
            is_link = path.name in folders and path.is_symlink()
            if is_link or (path.name in names and not _is_parquet(path.name)):
                kind = " (a link)" if is_link else ""
                raise InputError(f"{only}, got {shown}{kind}; move it elsewhere")
            if path.name in folders:
                continue
            check_plain(path)
            status = path.stat()
            first = files.setdefault((status.st_dev, status.st_ino), path)
            if first != path:
                raise InputError(
                    f"{folder}: expected each file once, got "
                    f"{os.fspath(first.relative_to(folder))!r} and a link to it, {shown}; "
                    f"remove one of the two"
                )
    if not files:
        raise InputError(f"{folder}: expected a folder of Parquet files, got none in it")
    return list(files.values())


def _visible(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """The folders and files in a folder, sorted, without those that other programs hide
    (``_SUCCESS``, ``.crc``).
    """

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        yield place, folders, sorted(name for name in names if not name.startswith(("_", ".")))


def _is_folder(path: Path) -> bool:
    """True if the first files in a folder, or in the folders in it, are Parquet files."""
    with suppress(OSError):
        if path.is_dir():
            return any(
                map(_is_parquet, next((names for _, _, names in _visible(path) if names), []))
            )
    return False


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet")


@contextmanager
def _open_arrow(path: Path) -> Iterator[Table]:
    """An Arrow file (a Feather file is one) or stream."""
    pyarrow = needed(path, "pyarrow", _OLDEST)
    ipc = needed(path, "pyarrow.ipc", ())
    with pyarrow.OSFile(os.fspath(path)) as source:
        open_reader = ipc.open_file if source.read(6) == b"ARROW1" else ipc.open_stream

        def reader(**options: Any) -> Any:
            source.seek(0)
            return open_reader(source, options=ipc.IpcReadOptions(**options))

        def batches(positions: list[int]) -> Iterator[Any]:
            selected = reader(included_fields=positions, use_threads=False)
            if hasattr(selected, "read_next_batch"):
                return iter(selected)
            return map(selected.get_batch, range(selected.num_record_batches))

        yield reader().schema, batches, None


def _rows(opened: Open, selection: Selection, *, whole: bool) -> Iterator[Array]:
    """The selected columns, which must hold numbers, in blocks."""
    path = selection.path
    with opened(path) as (schema, batches, count):
        names, positions = _positions(selection, schema)
        advice = f"select numeric columns ({way('--columns', 'columns=')})"
        _refuse_not_numeric(path, schema, names, advice)
        for block in _arrow_parts(path, names, batches(positions), count):
            if whole:
                require_room(path, 8 * (count or 0) * block.shape[1])
            yield block
            # Return the memory that pyarrow keeps for later use to the system.
            loaded("pyarrow").default_memory_pool().release_unused()


def _names(opened: Open, path: Path) -> list[str]:
    with opened(path) as (schema, _, _):
        return list(schema.names)


def _column_parts(
    opened: Open, selection: Selection, _text: Collection[str]
) -> Iterator[list[tuple[str, Any]]]:
    path = selection.path
    count = 0
    with opened(path) as (schema, batches, expected):
        names, positions = _positions(selection, schema)
        yield [(name, loaded("pyarrow").array([], schema.field(name).type)) for name in names]
        for batch in batches(positions):
            require_room(path, batch.num_rows * len(names) * _BYTES_PER_LABEL)
            batch.validate(full=True)
            count += batch.num_rows
            yield [(name, batch.column(name)) for name in names]
        _check_row_count(path, count, expected)
    loaded("pyarrow").default_memory_pool().release_unused()


def _positions(selection: Selection, schema: Any) -> tuple[list[str], list[int]]:
    """The names of the selected columns, which must be unique, and their positions."""
    path = selection.path
    names = list(schema.names)
    positions = column_positions(selection, names, len(names))
    selected = [names[k] for k in positions]
    twice = next((name for name in selected if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{path}: expected columns of different names, got "
            f"{names.count(twice)} called {twice!r}"
        )
    return selected, positions


# ── columns as rows of numbers ────────────────────────────────────────────────────────────────


def table_rows(where: object, table: Any) -> Array:
    """The columns of a table in memory, which must hold numbers or lists of numbers, as
    rows.
    """
    _refuse_not_numeric(where, table.schema, table.column_names, "drop or convert them")
    return held_rows(_arrow_parts(where, table.column_names, table.to_batches(), None))


def _arrow_parts(
    where: object, names: Sequence[str], batches: Iterable[Any], count: int | None
) -> Iterator[Array]:
    """The columns of these names, one batch at a time; `count` rows in all, unless that is
    None.

    Nulls are counted in all batches before they are refused. A column of lists of one length
    w, as embeddings are stored, becomes w columns.
    """
    done = 0
    width = 0
    nulls = Counter[str]()
    for batch in batches:
        # The sizes and offsets in a file may be wrong, and must not lead past the end of a
        # buffer.
        batch.validate(full=True)
        columns = [(name, batch.column(name)) for name in names]
        columns = [(name, getattr(column, "storage", column)) for name, column in columns]
        for name, column in columns:
            nulls[name] += column.null_count
            nulls[name] += column.flatten().null_count if _is_list(column.type) else 0
        if nulls.total() or not batch.num_rows:
            continue
        block = np.concatenate([_block(where, *column) for column in columns], axis=1)
        if done and block.shape[1] != width:
            raise InputError(
                f"{where}: expected rows of {width} numbers, got {block.shape[1]} at row {done}"
            )
        done += len(block)
        width = block.shape[1]
        yield block
    if nulls.total():
        counts = [f"{count} in {name!r}" for name, count in nulls.items() if count]
        raise InputError(
            f"{where}: expected complete columns, got nulls: "
            f"{listed(counts, most=_MOST_NAMES, quote=str)}; fill or drop them"
        )
    _check_row_count(where, done, count)


def _check_row_count(where: object, count: int, expected: int | None) -> None:
    """Refuse a file whose number of rows is not the one that it states, if it states one."""
    if expected is not None and count != expected:
        raise InputError(
            f"{where}: expected {expected} rows, got {count}; it is truncated or damaged"
        )


def _refuse_not_numeric(where: object, schema: Any, names: list[str], advice: str) -> None:
    """Refuse columns that hold neither numbers nor lists of numbers."""
    types = [(name, schema.field(name).type) for name in names]
    others = [(name, str(type_)) for name, type_ in types if not _holds_numbers(type_)]
    refuse_not_numeric(where, others, advice)


def _holds_numbers(type_: Any) -> bool:
    types = loaded("pyarrow").types
    if isinstance(type_, loaded("pyarrow").BaseExtensionType):
        return _holds_numbers(type_.storage_type)
    value = type_.value_type if _is_list(type_) else type_
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(is_kind(value) for is_kind in numeric)


def _is_list(type_: Any) -> bool:
    types = loaded("pyarrow").types
    return bool(
        types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    )


def _block(where: object, name: str, column: Any) -> NDArray[Any]:
    """One column without nulls as (n, 1), or as (n, w) if it holds lists of w numbers."""
    if not _is_list(column.type):
        return _numbers(column)[:, None]
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1:
        raise InputError(
            f"{where}: expected lists of one length in {name!r}, got "
            f"{lengths[0]} to {lengths[-1]}"
        )
    return _numbers(column.flatten()).reshape(len(column), int(lengths[0]))


def _numbers(column: Any) -> NDArray[Any]:
    if loaded("pyarrow").types.is_decimal(column.type):
        column = column.cast(loaded("pyarrow").float64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _format(
    opened: Open, *suffixes: str, is_folder: Callable[[Path], bool] | None = None
) -> Format:
    return Format(
        suffixes,
        lambda selection: held_rows(_rows(opened, selection, whole=True)),
        names=partial(_names, opened),
        parts=lambda selection, _most_bytes: _rows(opened, selection, whole=False),
        column_parts=partial(_column_parts, opened),
        is_folder=is_folder,
    )


PARQUET = _format(_open_parquet, ".parquet", is_folder=_is_folder)
ARROW = _format(_open_arrow, ".feather", ".arrow")
