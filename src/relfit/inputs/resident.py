"""Arrays that live on a CUDA device stay there: they are checked where they are, and only keys leave it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.arrays import LARGEST_VALUE, as_rows
from relfit.inputs.libraries import loaded
from relfit.inputs.tensors import is_tensor
from relfit.models import Sample

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
    _refuse_non_finite(argument, rows)
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


def _refuse_non_finite(argument: str, rows: Any) -> None:
    if bool(rows.amin() > -LARGEST_VALUE) and bool(rows.amax() < LARGEST_VALUE):
        return
    bad = ~(rows.abs() < LARGEST_VALUE).all(dim=1)
    raise InputError(
        f"{argument}: expected finite numbers below {LARGEST_VALUE:g} in size, got others in {int(bad.sum())} of "
        f"{len(rows)} rows (first: row {int(bad.int().argmax())})"
    )
