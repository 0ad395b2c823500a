"""What a function returned, checked: real numbers of the right shape, and what went wrong in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError


def real(argument: str, raw: Any, shape: tuple[int, ...]) -> NDArray[np.floating[Any]]:
    """What a user's function returned, as floating-point numbers of this shape, in the precision they came in."""
    try:
        values = np.asarray(raw)
    except (ValueError, TypeError, RuntimeError) as error:
        # Tensors that need a gradient or live on another device refuse to become arrays, and say why.
        raise InputError(f"{argument}: expected an array, got a {type(raw).__name__} ({first_line(error)})") from None
    if values.dtype.kind not in "biuf":
        raise InputError(f"{argument}: expected real numbers, got a {type(raw).__name__} of dtype {values.dtype}")
    if values.shape != shape:
        raise InputError(f"{argument}: expected shape {shape}, got {values.shape}{_hint(values.shape, shape)}")
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def first_line(error: BaseException) -> str:
    """The first line of another library's message, or the error's name where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def _hint(came: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    if len(wanted) == 1 and came == (*wanted, 1):
        return "; drop the last axis, for instance by squeeze(-1)"
    if came == wanted[1:]:
        return "; is it a function of one row? then give  lambda x: np.array([f(row) for row in x])"
    if len(wanted) == 1 and len(came) == 2 and came[0] == wanted[0]:
        return "; one number per row is needed, the log density of the whole row"
    return ""
