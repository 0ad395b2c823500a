"""Tensors, data frames and lazy collections of other libraries as NumPy arrays; none of the libraries is imported here.

Arrow columns become rows of float64 in `arrow_parts`, whether they come from a table in memory or from a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, loaded
from relfit.util.text import listed

_MOST_COLUMNS = 8


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


def is_tensor(value: Any) -> bool:
    """True for a torch tensor."""
    return is_instance(value, "torch", "Tensor")


def tensor_array(tensor: Any) -> NDArray[Any]:
    """A torch tensor as an array: without its gradient, on the CPU, dense; bfloat16 and float8 become float32."""
    tensor = tensor.detach()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    if tensor.is_floating_point() and str(tensor.dtype) not in ("torch.float16", "torch.float32", "torch.float64"):
        tensor = tensor.float()
    return np.asarray(tensor.cpu().numpy(force=True))


def frame_array(argument: str, value: Any) -> Array | None:
    """A data frame or series of numbers as an array; None for any other value."""
    if is_instance(value, "pandas", "DataFrame", "Series"):
        frame = value.to_frame() if is_instance(value, "pandas", "Series") else value
        types = list(zip(frame.columns, frame.dtypes, strict=True))
        others = [(str(name), str(dtype)) for name, dtype in types if getattr(dtype, "kind", "O") not in "biuf"]
        refuse_not_numeric(argument, others)
        # Missing values of nullable types become NaN, which the check of the rows counts.
        nullable = any(not isinstance(dtype, np.dtype) for _, dtype in types)
        return np.asarray(frame.to_numpy(dtype=np.float64, **({"na_value": np.nan} if nullable else {})))
    if is_instance(value, "polars", "DataFrame", "LazyFrame", "Series"):
        polars = loaded("polars")
        frame = value.to_frame() if isinstance(value, polars.Series) else value.lazy().collect()
        numeric = {name: dtype.is_numeric() or dtype == polars.Boolean for name, dtype in frame.schema.items()}
        refuse_not_numeric(argument, [(name, str(frame.schema[name])) for name in numeric if not numeric[name]])
        _refuse_nulls(argument, {column.name: column.null_count() for column in frame.get_columns()})
        return np.asarray(frame.cast(polars.Float64).to_numpy(order="c"))
    if is_instance(value, "pyarrow", "Table", "RecordBatch"):
        table = value if is_instance(value, "pyarrow", "Table") else loaded("pyarrow").Table.from_batches([value])
        if len(set(table.column_names)) < table.num_columns:
            # Columns of the same name would be mistaken for each other.
            table = table.rename_columns([f"{k}: {name}" for k, name in enumerate(table.column_names)])
        refuse_not_numeric(argument, not_numeric(table.schema, table.column_names))
        return arrow_rows(argument, table.column_names, table.to_batches(), table.num_rows)
    return None


def frame_names(value: Any) -> list[str] | None:
    """The names of a frame's columns; None for any other value. The name of a series is not the name of a column."""
    if is_instance(value, "polars", "DataFrame", "LazyFrame"):
        return list(value.lazy().collect_schema().names())
    if is_instance(value, "pyarrow", "Table", "RecordBatch"):
        return list(value.schema.names)
    return list(map(str, value.columns)) if _is_pandas(value) else None


def frame_columns(value: Any, positions: Sequence[int]) -> Any:
    """The frame with the columns at these positions, in this order. The names must differ from each other."""
    if _is_pandas(value):
        return value.iloc[:, list(positions)]
    names = frame_names(value) or []
    return value.select([names[k] for k in positions])


def _is_pandas(value: Any) -> bool:
    """True for a data frame of pandas, or of dask, which has the same interface."""
    return is_instance(value, "pandas", "DataFrame") or is_instance(value, "dask.dataframe", "DataFrame")


def arrow_rows(where: object, names: Sequence[str], batches: Iterable[Any], count: int) -> Array:
    """The columns of these names from record batches with `count` rows in all, as (count, d)."""
    rows: Array | None = None
    done = 0
    for block in arrow_parts(where, names, batches, count):
        if rows is None:
            require_room(where, 8 * count * block.shape[1])
            rows = np.empty((count, block.shape[1]))
        rows[done : done + len(block)] = block
        done += len(block)
    return np.empty((0, len(names))) if rows is None else rows


def arrow_parts(where: object, names: Sequence[str], batches: Iterable[Any], count: int | None) -> Iterator[Array]:
    """The columns of these names, one batch at a time; `count` rows in all, unless that is None.

    Nulls are counted in all batches before they are refused. A column of lists of one length w, as embeddings are
    stored, becomes w columns.
    """
    done, width, nulls = 0, 0, Counter[str]()
    for batch in batches:
        # The sizes and offsets in a file may be wrong, and must not lead past the end of a buffer.
        batch.validate(full=True)
        columns = {name: batch.column(name) for name in names}
        columns = {name: getattr(column, "storage", column) for name, column in columns.items()}
        for name, column in columns.items():
            nulls[name] += column.null_count + (column.flatten().null_count if _is_list(column.type) else 0)
        if nulls.total() or not batch.num_rows:
            continue
        block = np.concatenate([_block(where, name, column) for name, column in columns.items()], axis=1)
        if done and block.shape[1] != width:
            raise InputError(f"{where}: expected rows of {width} numbers, got {block.shape[1]} at row {done}")
        done, width = done + len(block), block.shape[1]
        yield block
    _refuse_nulls(where, nulls)
    check_row_count(where, done, count)


def check_row_count(where: object, count: int, expected: int | None) -> None:
    """Refuse a file whose number of rows is not the one that it states, if it states one."""
    if expected is not None and count != expected:
        raise InputError(f"{where}: expected {expected} rows, got {count}; it is truncated or damaged")


def refuse_not_numeric(where: object, columns: Sequence[tuple[str, str]], advice: str = "drop or convert them") -> None:
    """Refuse these columns, given as (name, type), which do not hold numbers; there may be none."""
    if columns:
        shown = listed([f"{name!r} ({dtype})" for name, dtype in columns], most=_MOST_COLUMNS, quote=str)
        raise InputError(f"{where}: expected columns of numbers, got {shown}; {advice}")


def _refuse_nulls(where: object, nulls: Mapping[str, int]) -> None:
    counts = [f"{count} in {name!r}" for name, count in nulls.items() if count]
    if counts:
        shown = listed(counts, most=_MOST_COLUMNS, quote=str)
        raise InputError(f"{where}: expected complete columns, got nulls: {shown}; fill or drop them")


def not_numeric(schema: Any, names: Sequence[str]) -> list[tuple[str, str]]:
    """The columns among these, with their types, that hold neither numbers nor lists of numbers."""
    types = [(name, schema.field(name).type) for name in names]
    return [(name, str(type_)) for name, type_ in types if not _holds_numbers(type_)]


def _holds_numbers(type_: Any) -> bool:
    types = loaded("pyarrow").types
    if isinstance(type_, loaded("pyarrow").BaseExtensionType):
        return _holds_numbers(type_.storage_type)
    value = type_.value_type if _is_list(type_) else type_
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(is_kind(value) for is_kind in numeric)


def _is_list(type_: Any) -> bool:
    types = loaded("pyarrow").types
    return bool(types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_))


def _block(where: object, name: str, column: Any) -> NDArray[Any]:
    """One column without nulls as (n, 1), or as (n, w) if it holds lists of w numbers."""
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
