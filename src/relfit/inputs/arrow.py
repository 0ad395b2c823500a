"""Columns of Arrow tables (pyarrow, Parquet, Feather) as rows of float64. pyarrow is loaded wherever they exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.columns import refuse_nulls
from relfit.inputs.libraries import loaded
from relfit.inputs.room import require_room

Array = NDArray[np.float64]


def arrow_rows(where: object, names: Sequence[str], batches: Iterable[Any], rows: int) -> Array:
    """The columns of these names from record batches of `rows` rows together, as (rows, d)."""
    out: Array | None = None
    done = 0
    for block in arrow_parts(where, names, batches):
        if out is None:
            require_room(where, 8 * rows * block.shape[1])
            out = np.empty((rows, block.shape[1]))
        out[done : done + len(block)] = block
        done += len(block)
    check_count(where, done, rows)
    return np.empty((0, len(names))) if out is None else out


def arrow_parts(where: object, names: Sequence[str], batches: Iterable[Any]) -> Iterator[NDArray[Any]]:
    """The columns of these names, a batch at a time. Nulls are counted in all batches before they are refused.

    A column of lists of one length w, as embeddings are stored, gives w columns.
    """
    done, width, nulls = 0, 0, Counter[str]()
    for batch in batches:
        # Sizes and offsets in a file are whatever its writer put there, and must not lead past the end of a buffer.
        batch.validate(full=True)
        columns = {name: _storage(batch.column(name)) for name in names}
        nulls.update({name: _nulls(column) for name, column in columns.items()})
        if nulls.total() or not batch.num_rows:
            continue
        block = np.concatenate([_block(where, name, column) for name, column in columns.items()], axis=1)
        if done and block.shape[1] != width:
            raise InputError(f"{where}: expected rows of {width} numbers, got {block.shape[1]} at row {done}")
        done, width = done + len(block), block.shape[1]
        yield block
    refuse_nulls(where, nulls)


def check_count(where: object, found: int, rows: int) -> None:
    """Refuse a file that holds another number of rows than it says."""
    if found != rows:
        raise InputError(f"{where}: expected {rows} rows, got {found}; it is truncated or damaged")


def not_numbers(schema: Any, names: Sequence[str]) -> list[tuple[str, str]]:
    """The columns among these, with their types, that hold neither numbers nor lists of numbers."""
    kinds = [(name, schema.field(name).type) for name in names]
    return [(name, str(kind)) for name, kind in kinds if not _holds_numbers(kind)]


def _holds_numbers(kind: Any) -> bool:
    if isinstance(kind, loaded("pyarrow").BaseExtensionType):
        return _holds_numbers(kind.storage_type)
    return _is_number(kind.value_type if _is_list(kind) else kind)


def _is_list(kind: Any) -> bool:
    types = loaded("pyarrow").types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    types = loaded("pyarrow").types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _storage(column: Any) -> Any:
    return column.storage if isinstance(column, loaded("pyarrow").ExtensionArray) else column


def _nulls(column: Any) -> int:
    return int(column.null_count + (column.flatten().null_count if _is_list(column.type) else 0))


def _block(where: object, name: str, column: Any) -> NDArray[Any]:
    """One column without nulls as (n, 1), or as (n, w) where it holds lists of w numbers."""
    if not _is_list(column.type):
        return _numbers(column)[:, None]
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1:
        raise InputError(f"{where}: expected lists of one length in {name!r}, got {lengths[0]} to {lengths[-1]}")
    return _numbers(column.flatten()).reshape(len(column), int(lengths[0]))


def _numbers(column: Any) -> NDArray[Any]:
    if loaded("pyarrow").types.is_decimal(column.type):
        column = column.cast(loaded("pyarrow").float64())
    return np.asarray(column.to_numpy(zero_copy_only=False))
