"""Tensors and lazy arrays of other libraries as NumPy arrays, recognised without importing those libraries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.columns import refuse_not_numbers, refuse_nulls
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import loaded


def computed(argument: str, value: Any) -> Any:
    """What a dask collection stands for, computed; anything else as it is."""
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
    """Whether the value is a torch tensor."""
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_array(tensor: Any) -> NDArray[Any]:
    """A torch tensor as an array: without its gradient, on the CPU, dense; bfloat16 and float8 as float32."""
    tensor = tensor.detach()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    if tensor.is_floating_point() and str(tensor.dtype) not in ("torch.float16", "torch.float32", "torch.float64"):
        tensor = tensor.float()
    return np.asarray(tensor.cpu().numpy(force=True))


def exchanged(value: Any) -> NDArray[Any]:
    """An object with ``__dlpack__``, copied to the CPU where it lives elsewhere."""
    try:
        return np.from_dlpack(value, device="cpu")
    except TypeError:
        # NumPy before 2.1, or a library that implements the first version of the protocol.
        return np.from_dlpack(value)


# --------------------
# Columns of Arrow tables (pyarrow, Parquet, Feather) as rows of float64. pyarrow is loaded wherever they exist.


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


# --------------------
# Data frames as arrays: pandas, polars and Arrow tables, recognised without importing those libraries.

_MEND = "drop or convert them"


def frame_array(argument: str, value: Any) -> Array | None:
    """A frame or series of numbers as an array; None for anything that is neither."""
    for convert in (_pandas, _polars, _arrow):
        array = convert(argument, value)
        if array is not None:
            return array
    return None


def frame_names(value: Any) -> list[str] | None:
    """The names of a frame's columns; None for anything that is none. What a series is called is no column's name."""
    polars, pyarrow = loaded("polars"), loaded("pyarrow")
    if polars is not None and isinstance(value, polars.DataFrame | polars.LazyFrame):
        return list(value.lazy().collect_schema().names())
    if pyarrow is not None and isinstance(value, pyarrow.Table | pyarrow.RecordBatch):
        return list(value.schema.names)
    return list(map(str, value.columns)) if _is_pandas(value) else None


def frame_columns(value: Any, places: Sequence[int]) -> Any:
    """The frame with these of its columns, in this order. Names are known to differ."""
    if _is_pandas(value):
        return value.iloc[:, list(places)]
    names = frame_names(value) or []
    return value.select([names[k] for k in places])


def _is_pandas(value: Any) -> bool:
    """Whether the value is a frame of pandas, or of dask, which has the same columns."""
    libraries = (loaded("pandas"), loaded("dask.dataframe"))
    return any(library is not None and isinstance(value, library.DataFrame) for library in libraries)


def _pandas(argument: str, value: Any) -> Array | None:
    pandas = loaded("pandas")
    if pandas is None or not isinstance(value, pandas.DataFrame | pandas.Series):
        return None
    frame = value.to_frame() if isinstance(value, pandas.Series) else value
    kinds = list(zip(frame.columns, frame.dtypes, strict=True))
    wrong = [(str(name), str(kind)) for name, kind in kinds if getattr(kind, "kind", "O") not in "biuf"]
    refuse_not_numbers(argument, wrong, _MEND)
    if all(isinstance(kind, np.dtype) for _, kind in kinds):
        return np.asarray(frame.to_numpy(dtype=np.float64))
    # Nullable types: what is missing becomes NaN, which the check of the rows counts.
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))


def _polars(argument: str, value: Any) -> Array | None:
    polars = loaded("polars")
    if polars is None or not isinstance(value, polars.DataFrame | polars.LazyFrame | polars.Series):
        return None
    frame = value.to_frame() if isinstance(value, polars.Series) else value.lazy().collect()
    kinds = frame.schema.items()
    wrong = [(name, str(kind)) for name, kind in kinds if not (kind.is_numeric() or kind == polars.Boolean)]
    refuse_not_numbers(argument, wrong, _MEND)
    refuse_nulls(argument, {column.name: column.null_count() for column in frame.get_columns()})
    return np.asarray(frame.cast(polars.Float64).to_numpy(order="c"))


def _arrow(argument: str, value: Any) -> Array | None:
    pyarrow = loaded("pyarrow")
    if pyarrow is None or not isinstance(value, pyarrow.Table | pyarrow.RecordBatch):
        return None
    table = pyarrow.Table.from_batches([value]) if isinstance(value, pyarrow.RecordBatch) else value
    if len(set(table.column_names)) < table.num_columns:
        # Columns of one name would be taken for each other.
        table = table.rename_columns([f"{k}: {name}" for k, name in enumerate(table.column_names)])
    refuse_not_numbers(argument, not_numbers(table.schema, table.column_names), _MEND)
    return arrow_rows(argument, table.column_names, table.to_batches(), table.num_rows)
