"""Anything array-like into float64 rows (n, d), or one clear refusal."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.files import read_rows
from relfit.inputs.files.opened import as_file
from relfit.inputs.frames import frame_array
from relfit.inputs.tensors import computed, exchanged, is_tensor, tensor_array
from relfit.models import Sample
from relfit.stored import LazyRows

Array = NDArray[np.float64]

# Squares of differences, and their quotients by the kernel's squared length, must stay within float64.
LARGEST_VALUE = 1e152


def as_rows(argument: str, value: Any) -> Array:
    """The value as a C-ordered float64 array of n rows and d columns; a 1-d array is n × 1.

    Accepts arrays, nested lists, data frames of numbers, tensors of other libraries, `Sample` and file names. What
    is float64 and C-ordered already, a memory-mapped file too, is not copied and stays read-only if it was. Rows that
    stay in their file were checked when it was opened, and stay there.
    """
    if isinstance(value, LazyRows):
        return cast(Array, value)
    if isinstance(value, Sample):
        value = value.x
    file = as_file(value)
    if file is not None:
        value = read_rows(file.source, columns=file.columns)
    rows = _numeric(argument, _array(argument, value))
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2:
        raise InputError(
            f"{argument}: expected rows and columns, got an array of shape {rows.shape}; flatten each item to one row"
        )
    if rows.size == 0:
        raise InputError(f"{argument}: expected at least one row and one column, got shape {rows.shape}")
    _refuse_non_finite(argument, rows)
    return np.ascontiguousarray(rows)


def _array(argument: str, value: Any) -> NDArray[Any]:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        masked = int(np.ma.getmaskarray(value).sum())
        raise InputError(f"{argument}: expected complete rows, got {masked} masked values; fill or drop them")
    value = computed(argument, value)
    frame = frame_array(argument, value)
    if frame is not None:
        return frame
    try:
        return _converted(value)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  (another library's conversion may raise anything, and says why)
        if isinstance(value, list | tuple) and isinstance(error, ValueError):
            raise InputError(f"{argument}: expected a rectangular array, got rows of different lengths") from None
        raise InputError(f"{argument}: expected an array, got a {type(value).__name__} ({error})") from None


def _converted(value: Any) -> NDArray[Any]:
    if is_tensor(value):
        return tensor_array(value)
    if not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    try:
        # An object without __array__ would become an array of one object, so it must not be asked.
        return np.asarray(value) if hasattr(value, "__array__") else exchanged(value)
    except TypeError:
        # CuPy's way of saying that the array lives on a device.
        return exchanged(value)


def _numeric(argument: str, array: NDArray[Any]) -> Array:
    if array.dtype.kind in "biuf" or _added_number(array.dtype):
        with np.errstate(over="ignore"):
            return array.astype(np.float64, copy=False)
    what = {"O": "Python objects", "U": "text", "S": "text", "c": "complex numbers", "M": "dates", "m": "durations"}
    came = what.get(array.dtype.kind, "records")
    raise InputError(f"{argument}: expected numbers, got {came} (dtype {array.dtype}); convert to float first")


def _added_number(dtype: np.dtype[Any]) -> bool:
    """Whether another library added this type of number to NumPy: bfloat16 and int4 are of kind "V", like records."""
    return dtype.kind == "V" and dtype.names is None and dtype.name.lstrip("bu").startswith(("int", "float"))


def _refuse_non_finite(argument: str, rows: Array) -> None:
    # Two passes without a temporary the size of the data; NaN comes through both and fails the test.
    if rows.min() > -LARGEST_VALUE and rows.max() < LARGEST_VALUE:
        return
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise non_finite_error(argument, int(bad.sum()), len(rows), int(bad.argmax()))
    large = (np.abs(rows) >= LARGEST_VALUE).any(axis=1)
    raise too_large_error(argument, int(large.sum()), len(rows), int(large.argmax()))


def non_finite_error(argument: str, count: int, rows: int, first: int) -> InputError:
    """The refusal of so many rows with NaN or infinity."""
    return InputError(
        f"{argument}: expected finite numbers, got NaN or infinity in {count} of {rows} rows (first: row {first})"
    )


def too_large_error(argument: str, count: int, rows: int, first: int) -> InputError:
    """The refusal of so many rows with numbers whose squares would overflow."""
    return InputError(
        f"{argument}: expected numbers below {LARGEST_VALUE:g} in size, got larger ones in {count} of "
        f"{rows} rows (first: row {first}); rescale the data or drop these rows"
    )
