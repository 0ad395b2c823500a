"""Anything array-like into float64 rows (n, d), or one clear refusal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from relfit.compute.rows import LazyRows
from relfit.data.files import as_file, read_rows
from relfit.data.frames import computed, exchanged, frame_array, is_tensor, tensor_array
from relfit.data.models import Sample
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import loaded

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


# --------------------
# Arrays that live on a CUDA device stay there: they are checked where they are, and only keys leave it.

Keys = NDArray[np.uint64]

# The code of CUDA in the DLPack protocol, which JAX and CuPy speak too.
_CUDA = 2
# Rows hashed at once.
_CHUNK = 2**20


def device_of(values: Iterable[Any]) -> str | None:
    """The CUDA device that the first of the values to live on one lives on; None where all are on the host."""
    if loaded("torch") is None:
        return None
    places = (_place(_unwrapped(value)) for value in values)
    return next((f"cuda:{number}" for kind, number in places if kind == _CUDA), None)


def resident_rows(argument: str, value: Any, device: str) -> Any:
    """The value as a tensor of n rows and d columns on the device, float32 or float64; checked like `as_rows`.

    What lives there already is not copied, whatever its library, unless it has to be cast.
    """
    import torch

    value = _unwrapped(value)
    if device_of([value]) is None and not is_tensor(value):
        return torch.as_tensor(as_rows(argument, value), device=device)
    rows = (value.detach() if is_tensor(value) else torch.from_dlpack(value)).to(device)
    if rows.is_complex():
        raise InputError(f"{argument}: expected numbers, got complex numbers (dtype {rows.dtype})")
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.to(torch.float32 if rows.is_floating_point() else torch.float64)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2:
        shape = tuple(rows.shape)
        raise InputError(f"{argument}: expected rows and columns, got a tensor of shape {shape}; flatten each item")
    if rows.numel() == 0:
        raise InputError(f"{argument}: expected at least one row and one column, got shape {tuple(rows.shape)}")
    _refuse_non_finite_tensor(argument, rows)
    return rows.contiguous()


def row_keys(rows: Any, odd: Keys) -> tuple[Keys, Keys]:
    """The keys of `overlap` for every row of a tensor, in the rows' order and sorted.

    A tensor's 64-bit integers are signed: right shifts are masked, and sorting flips the highest bit.
    """
    import torch

    factors = torch.as_tensor(odd.view(np.int64), device=rows.device)
    keys = torch.cat([_mixed(rows[start : start + _CHUNK], factors) for start in range(0, len(rows), _CHUNK)])
    highest = torch.iinfo(torch.int64).min
    ordered = torch.sort(keys ^ highest).values ^ highest
    first, second = (part.cpu().numpy().view(np.uint64) for part in (keys, ordered))
    return first, second


def _mixed(rows: Any, factors: Any) -> Any:
    import torch

    bits = (rows.double() + 0.0).contiguous().view(torch.int64)
    mixed = (bits ^ ((bits >> 32) & (2**32 - 1))) * factors
    mixed ^= (mixed >> 29) & (2**35 - 1)
    return mixed.sum(dim=1)


def _place(value: Any) -> tuple[int, int]:
    """Kind and number of the device an array lives on; (0, 0) for what does not say."""
    if not callable(getattr(value, "__dlpack_device__", None)):
        return 0, 0
    try:
        kind, number = value.__dlpack_device__()
    except (BufferError, RuntimeError, TypeError, ValueError):
        # JAX's way of saying that an array is spread over several devices.
        return 0, 0
    return int(kind), int(number)


def _unwrapped(value: Any) -> Any:
    return value.x if isinstance(value, Sample) else value


def _refuse_non_finite_tensor(argument: str, rows: Any) -> None:
    if bool(rows.amin() > -LARGEST_VALUE) and bool(rows.amax() < LARGEST_VALUE):
        return
    bad = ~(rows.abs() < LARGEST_VALUE).all(dim=1)
    raise InputError(
        f"{argument}: expected finite numbers below {LARGEST_VALUE:g} in size, got others in {int(bad.sum())} of "
        f"{len(rows)} rows (first: row {int(bad.int().argmax())})"
    )
