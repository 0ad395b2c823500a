"""Anything array-like as rows (n, d) of numbers, or as labels of rows; whatever cannot be
used is refused in one line.

Rows are loaded in one of three ways, with the same checks of shape and values. `as_rows`
gives float64 arrays. `spilled_rows` gives float64 arrays too, mapped from a file, so that
they take no memory of the process. `resident_rows` gives tensors on the CUDA device where
the data live already.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import Budget, in_words
from relfit.compute.rows import PART_NUMBERS, is_mapped, parts, spilled
from relfit.data.files import FileRows, as_file, find_file, read_rows
from relfit.data.files.arrays import is_tensor, tensor_array
from relfit.data.files.base import column_positions, reading
from relfit.data.models import Sample
from relfit.data.tables import Table, computed, frame_array
from relfit.util.arrays import (
    Array,
    extremes,
    host,
    numeric_rows,
    rounds_coarsely,
    two_dimensional,
)
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, loaded
from relfit.util.progress import Progress, counted

# Squares of differences, and their quotients by the squared bandwidth, must stay within
# float64.
LARGEST_VALUE = 1e152
# A file that is read whole, or a chunk of a file, may take the memory budget divided by this.
_BUDGET_DIVISOR = 8
# The code of CUDA in the DLPack protocol, which JAX and CuPy support too.
_CUDA = 2

_Rows = TypeVar("_Rows")


def as_rows(argument: str, value: Any, *, missing: bool = False) -> Array:
    """The value as a C-ordered float64 array of n rows and d columns; a 1-d array is n × 1.

    Accepts arrays, nested lists, data frames of numbers, tensors of other libraries,
    `Sample` and file names. An array that is float64 and C-ordered already, such as a
    memory-mapped file, is not copied, and stays read-only if it was. With `missing`, NaN and
    finite numbers of any size are allowed.
    """
    array = _float64(argument, _array(argument, _unwrapped(value)))
    rows = two_dimensional(argument, array)
    gone = np.isnan(rows) if missing else None
    known = rows if gone is None or not gone.any() else np.where(gone, 0.0, rows)
    checked_rows(argument, known, math.inf if missing else LARGEST_VALUE)
    return np.ascontiguousarray(rows)


def spilled_rows(
    argument: str, value: Any, budget: Budget, progress: Progress | None = None
) -> Array:
    """The value as a mapped array like that of `as_rows`; accepts what `as_rows` accepts.

    A mapped array that is float64 and C-ordered stays where it is. Anything else is written
    to a file in the budget's folder, a part at a time.
    """
    value = _unwrapped(value)
    file = as_file(value)
    if file is not None:
        return checked_rows(argument, _rows_of_file(argument, file, budget, progress))
    if isinstance(value, Table):
        columns = value.number_columns()
        shape = (len(value), len(columns))
        blocks = (
            np.stack([column[part] for column in columns], axis=1) for part in parts(shape)
        )
        return checked_rows(argument, spilled(blocks, budget.folder))
    array = two_dimensional(argument, _numeric(argument, _array(argument, value)))
    return checked_rows(argument, _spilled(array, budget))


def _rows_of_file(
    argument: str, file: FileRows, budget: Budget, progress: Progress | None
) -> Array:
    """The rows of a file, mapped: in place where the format allows it, else from a copy."""
    format, selection = find_file(file.source, file.columns)
    path = selection.path
    with reading(path):
        if format.parts is not None:
            blocks = format.parts(selection, budget.total // _BUDGET_DIVISOR)
            return spilled(counted(progress, str(path), blocks), budget.folder)
        size = (
            path.stat().st_size if format.unpacked_size is None else format.unpacked_size(path)
        )
        if size > budget.total // _BUDGET_DIVISOR:
            raise InputError(
                f"{path}: {path.suffix} files are read whole, and its {in_words(size)} are "
                f"more than an "
                f"eighth of memory={in_words(budget.total)}; save it as .npy, .parquet or .zarr"
            )
        array = numeric_rows(path, format.read(replace(selection, columns=None)))
        _refuse_rounded(argument, array)
        columns = None
        if selection.columns is not None:
            columns = column_positions(selection, None, array.shape[1])
        return _spilled(array, budget, columns)


def _spilled(
    array: NDArray[Any], budget: Budget, columns: Sequence[int] | None = None
) -> Array:
    """The array, or some of its columns, mapped from a file; a mapped array of float64 as it
    is.
    """
    if (
        columns is None
        and is_mapped(array)
        and array.dtype == np.float64
        and array.flags.c_contiguous
    ):
        return np.asarray(array)
    # A file that holds one column after the other is read in places far apart: the fewer blocks
    # the better.
    numbers = None if array.flags.c_contiguous else 4 * PART_NUMBERS
    taken = slice(None) if columns is None else columns
    return spilled(
        (array[part][:, taken] for part in parts(array.shape, numbers)), budget.folder
    )


def batch_rows(argument: str, value: Any, *, single: bool = False) -> Iterator[Array]:
    """A batch of rows, or a single one, in blocks; a mapped file is read a part at a time."""
    if isinstance(value, str | os.PathLike | Mapping):
        came = (
            "a mapping" if isinstance(value, Mapping) else f"the text {os.fspath(value)!r:.60}"
        )
        raise InputError(
            f"{argument}: expected batches of rows, got {came}; yield arrays or data frames"
        )
    array = _array(argument, value)
    if not (array.ndim or single):
        raise InputError(
            f"{argument}: expected batches of rows, got single numbers; yield "
            f"arrays of shape (n, d)"
        )
    rows = two_dimensional(argument, _numeric(argument, array[None] if single else array))
    if not len(rows):
        yield rows
    for part in parts(rows.shape):
        yield _cast(rows[part])


def resident_rows(argument: str, value: Any, device: str) -> Any:
    """The value as a tensor (n, d) of float32 or float64 on the device; accepts what
    `as_rows` accepts.

    Data that live on the device already are not copied, whatever their library, unless they
    must be converted.
    """
    import torch

    value = _unwrapped(value)
    if device_of([value]) is None and not is_tensor(value):
        return torch.as_tensor(as_rows(argument, value), device=device)
    rows = (value.detach() if is_tensor(value) else torch.from_dlpack(value)).to(device)
    if rows.is_complex():
        raise InputError(
            f"{argument}: expected numbers, got complex numbers (dtype {rows.dtype})"
        )
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.to(torch.float32 if rows.is_floating_point() else torch.float64)
    return checked_rows(argument, two_dimensional(argument, rows)).contiguous()


def device_of(values: Iterable[Any]) -> str | None:
    """The CUDA device of the first of the values that lives on one; None if all of them live
    on the host.
    """
    if loaded("torch") is None:
        return None
    for value in map(_unwrapped, values):
        if callable(getattr(value, "__dlpack_device__", None)):
            # JAX raises one of these for an array that is spread over several devices.
            with suppress(BufferError, RuntimeError, TypeError, ValueError):
                kind, number = value.__dlpack_device__()
                if int(kind) == _CUDA:
                    return f"cuda:{int(number)}"
    return None


def _unwrapped(value: Any) -> Any:
    return value.x if isinstance(value, Sample) else value


def checked_rows(argument: str, rows: _Rows, largest: float = LARGEST_VALUE) -> _Rows:
    """The rows (an array or a tensor), refused if they are empty, not finite or too large."""
    blocks: Any = rows
    if 0 in blocks.shape:
        raise InputError(
            f"{argument}: expected at least one row and one column, got shape "
            f"{tuple(blocks.shape)}"
        )
    infinite: list[NDArray[np.intp]] = []
    too_large: list[NDArray[np.intp]] = []
    # A tensor at once: every part would wait for its device.
    for part in (
        parts(blocks.shape) if isinstance(blocks, np.ndarray) else [slice(0, len(blocks))]
    ):
        block = blocks[part]
        # The usual case, without a temporary array; NaN fails both comparisons.
        low, high = extremes(block)
        if low > -largest and high < largest:
            continue
        sizes = abs(block)
        infinite.append(part.start + np.flatnonzero(host(~(sizes < np.inf).all(axis=1))))
        too_large.append(part.start + np.flatnonzero(host((sizes >= largest).any(axis=1))))
    for numbers, expected, got, advice in (
        (infinite, "finite numbers", "NaN or infinity", ""),
        (
            too_large,
            f"numbers below {largest:g} in size",
            "larger ones",
            "; rescale the data or drop these rows",
        ),
    ):
        count = sum(map(len, numbers))
        if count:
            first = next(int(block[0]) for block in numbers if len(block))
            where = f"{count} of {len(blocks)} rows (first: row {first})"
            raise InputError(f"{argument}: expected {expected}, got {got} in {where}{advice}")
    return rows


def refuse_sparse(argument: str, value: Any) -> None:
    """Refuse a sparse matrix of scipy, whose items are no rows."""
    if is_instance(value, "scipy.sparse", "spmatrix", "sparray"):
        raise InputError(
            f"{argument}: expected an array, got a sparse {type(value).__name__}; convert it "
            f"by .toarray()"
        )


def _array(argument: str, value: Any) -> NDArray[Any]:
    refuse_sparse(argument, value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        masked = int(np.ma.getmaskarray(value).sum())
        raise InputError(
            f"{argument}: expected complete rows, got {masked} masked values; fill or drop them"
        )
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if isinstance(value, Table):
        return np.stack(value.number_columns(), axis=1)
    file = as_file(value)
    if file is not None:
        return np.asarray(read_rows(file.source, columns=file.columns))
    value = computed(argument, value)
    frame = frame_array(argument, value)
    if frame is not None:
        return frame
    try:
        return _converted(value)
    # The conversion of another library may raise anything.
    except Exception as error:  # noqa: BLE001
        if isinstance(value, list | tuple) and isinstance(error, ValueError):
            raise InputError(
                f"{argument}: expected a rectangular array, got rows of different lengths"
            ) from None
        raise InputError(
            f"{argument}: expected an array, got a {type(value).__name__} ({error})"
        ) from None


def _converted(value: Any) -> NDArray[Any]:
    if is_tensor(value):
        return tensor_array(value)
    if not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    # np.asarray would wrap an object without __array__ in an array of one object.
    if hasattr(value, "__array__"):
        with suppress(TypeError):  # CuPy raises this for an array that lives on a device.
            return np.asarray(value)
    with suppress(
        TypeError
    ):  # NumPy before 2.1, or a library that implements the first version of the protocol.
        return np.from_dlpack(value, device="cpu")
    return np.from_dlpack(value)


def _float64(argument: str, array: NDArray[Any]) -> Array:
    return _cast(_numeric(argument, array))


def _cast(array: NDArray[Any]) -> Array:
    # What overflows, or is a signalling NaN, is refused by the check of the values.
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float64, copy=False)


def _numeric(argument: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array, refused unless it holds numbers that float64 can tell apart."""
    # A number type that another library added to NumPy, such as bfloat16 and int4, has kind "V"
    # like records.
    dtype = array.dtype
    added = (
        dtype.kind == "V"
        and dtype.names is None
        and dtype.name.lstrip("bu").startswith(("int", "float"))
    )
    if dtype.kind in "biuf" or added:
        _refuse_rounded(argument, array)
        return array
    kinds = {
        "O": "Python objects",
        "U": "text",
        "S": "text",
        "c": "complex numbers",
        "M": "dates",
        "m": "durations",
    }
    kind = kinds.get(dtype.kind, "records")
    raise InputError(
        f"{argument}: expected numbers, got {kind} (dtype {dtype}); convert to float first"
    )


def _refuse_rounded(argument: str, array: NDArray[Any]) -> None:
    """Refuse columns of whole numbers beyond 2^53 of which different ones become equal in
    float64.
    """
    if (
        array.dtype.kind not in "iu"
        or array.dtype.itemsize < 8
        or not array.size
        or array.ndim not in (1, 2)
    ):
        return
    lows = np.atleast_1d(array.min(axis=0)).tolist()
    highs = np.atleast_1d(array.max(axis=0)).tolist()
    for low, high in zip(lows, highs, strict=True):
        if low < high and rounds_coarsely(low, high):
            raise InputError(
                f"{argument}: expected numbers that float64 can tell apart, got whole numbers "
                f"from {low} to {high} in "
                "one column; subtract a constant"
            )


def group_labels(argument: str, labels: Any, rows: int) -> NDArray[Any]:
    """The labels that say which of `rows` rows belong together: (rows,) numbers or text,
    none missing.

    >>> group_labels("groups", ["a", "a", "b"], 3).tolist()
    ['a', 'a', 'b']
    """
    try:
        array = np.asarray(labels)
    except (TypeError, ValueError):
        array = np.empty(())
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        shape = f"an array of shape {array.shape}" if array.ndim else type(labels).__name__
        raise InputError(f"{argument}: expected one label per row, got {shape}")
    if len(array) != rows:
        hint = ", one more than rows; is the first a header?" if len(array) == rows + 1 else ""
        raise InputError(
            f"{argument}: expected {rows} labels, one per row, got {len(array)}{hint}"
        )
    if array.dtype.kind == "O":
        missing = [k for k, label in enumerate(array) if label is None or label != label]
        array = array if missing else array.astype(str)
    else:
        missing = np.flatnonzero(np.isnan(array)).tolist() if array.dtype.kind == "f" else []
    if missing:
        raise InputError(
            f"{argument}: expected a label for every row, got none in row {missing[0]}"
        )
    if array.dtype.kind not in "biufUS":
        raise InputError(f"{argument}: expected numbers or text, got {array.dtype}")
    return array
