"""What a function returned, checked: real numbers of the right shape, and what went wrong in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.util.arrays import Array
from relfit.util.errors import InputError


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


# --------------------
# Gradients by central finite differences with one Richardson step, and how far off they may be.

LogProb = Callable[[Array], Any]

# Rows whose neighbours lie outside the support are tried again with steps this much smaller.
_SHRINK = 2.0**-6
_TRIES = 4


def finite_gradient(log_prob: LogProb, x: Array, *, widen: float = 1.0) -> Array:
    """∇ log p at the rows of x (n, d) by 4d evaluations per row; NaN where log p is not finite.

    With D(h) = (f(x + h) − f(x − h))/2h in one coordinate, ``(4D(h) − D(2h))/3`` is off by h⁴f⁽⁵⁾/30. The step is
    ε^¼ of the column's scale, with ε the precision log_prob computes in: rounding then costs ε^¾.
    `widen` multiplies the step.

    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> finite_gradient(lambda x: -(x[:, 0] ** 4), x).round(9)
    array([[  0.], [ -4.], [-32.]])
    """
    here = real("log_prob", log_prob(x.copy()), (len(x),))
    steps = widen * steps_of(x, float(np.finfo(here.dtype).eps))
    x = x.astype(here.dtype).astype(np.float64)  # where a function of low precision really looks
    slopes = np.full(x.shape, np.nan)
    todo = np.isfinite(here)
    for _ in range(_TRIES):
        if not todo.any():
            break
        slopes[todo] = _richardson(log_prob, x[todo], steps)
        todo &= ~np.isfinite(slopes).all(axis=1)
        steps = _SHRINK * steps
    return slopes


def finite_error(log_prob: LogProb, x: Array) -> float:
    """The error of `gradient` at the rows of x, relative to the typical slope: its change when the step is doubled."""
    fine = finite_gradient(log_prob, x)
    change = fine - finite_gradient(log_prob, x, widen=2.0)
    good = np.isfinite(change).all(axis=1)
    if not good.any():
        return float("nan")
    size, moved = (float(np.sqrt(np.mean(part[good] ** 2))) for part in (fine, change))
    return max(moved / size if size > 0.0 else moved, float(np.finfo(float).eps))


def jacobian(score: Callable[[Array], Any], x: Array, *, widen: float = 1.0) -> Array:
    """∂s_i/∂x_j at the rows of x, (n, d, d), by the same differences."""

    def rows_of(rows: Array) -> NDArray[Any]:
        return real("score", score(rows), rows.shape)

    steps = widen * steps_of(x, float(np.finfo(rows_of(x.copy()).dtype).eps))
    return np.stack([_column(rows_of, x, k, h) for k, h in enumerate(steps)], axis=2)


def _richardson(log_prob: LogProb, x: Array, steps: Array) -> Array:
    def one_per_row(rows: Array) -> NDArray[Any]:
        return real("log_prob", log_prob(rows), (len(rows),))

    return np.stack([_column(one_per_row, x, k, h) for k, h in enumerate(steps)], axis=1)


def _column(function: Callable[[Array], NDArray[Any]], x: Array, k: int, h: float) -> Array:
    """∂f/∂x_k at the rows of x, for f with one number or one row of numbers per row."""
    moved = np.repeat(x[None], 4, axis=0)
    moved[:, :, k] += np.array([h, -h, 2.0 * h, -2.0 * h])[:, None]
    came = function(moved.reshape(-1, x.shape[1])).astype(np.float64)
    f = came.reshape(4, len(x), *came.shape[1:])
    # The steps as they were really taken, after rounding.
    near, far = (moved[a, :, k] - moved[a + 1, :, k] for a in (0, 2))
    shape = (-1,) + (1,) * (f.ndim - 2)
    with np.errstate(invalid="ignore"):  # −inf − (−inf) outside the support comes out as NaN
        narrow = (f[0] - f[1]) / near.reshape(shape)
        wide = (f[2] - f[3]) / far.reshape(shape)
        return np.asarray((4.0 * narrow - wide) / 3.0)


def steps_of(x: Array, epsilon: float) -> Array:
    """Each column's step: ε^¼ of its scale, and at least what x can resolve; a power of two, so that x ± h is exact.

    The scale is the median distance to the median, which neither an offset nor an outlier moves; columns
    with an atom there fall back on their standard deviation, constant ones on their size.
    """
    median = np.median(np.abs(x - np.median(x, axis=0)), axis=0)
    size = np.maximum(np.abs(x).max(axis=0), 1e-3)
    deviation = x.std(axis=0)
    scale = np.where(median > 0.0, median, np.where(deviation > 1e-9 * size, deviation, size))
    resolved = 4.0 * size * max(epsilon, float(np.finfo(float).eps))
    return np.asarray(2.0 ** np.round(np.log2(np.maximum(epsilon**0.25 * scale, resolved))))


# --------------------
# Gradients of log densities, and functions that live in another array library, as functions of NumPy rows.
#
# A function belongs to a library: "torch", "jax" or None (plain NumPy). Nothing here is imported until a function of
# that library is met.

RowFunction = Callable[..., Any]

LIBRARIES = ("torch", "jax")


def library_of(function: Any) -> str | None:
    """The library a function certainly belongs to: torch modules and their methods, `jax.jit` functions."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    owner = getattr(function, "__self__", function)
    if torch is not None and isinstance(owner, torch.nn.Module):
        return "torch"
    if jax is not None and isinstance(function, jax.stages.Wrapped):
        return "jax"
    return None


def values(function: RowFunction, library: str | None) -> RowFunction:
    """The function on NumPy rows."""
    return function if library is None else _module(library).values(function)


def gradient(log_prob: RowFunction, library: str | None) -> RowFunction:
    """∇ log p on NumPy rows: automatic differentiation in the library, finite differences without one."""
    if library is None:
        return lambda x: finite_gradient(log_prob, x)
    return _module(library).gradient(log_prob)  # type: ignore[no-any-return]


def _module(library: str) -> Any:
    try:
        import_module(library)
        return import_module(f"relfit.data.autodiff_{library}")
    except ImportError:
        raise InputError(f'autodiff="{library}": {library} is not installed; pip install {library}') from None
