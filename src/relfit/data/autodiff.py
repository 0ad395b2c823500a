"""Gradients of log densities at NumPy rows, and functions of torch or JAX arrays as
functions of NumPy rows.

A function belongs to a library: "torch", "jax" or None (plain NumPy). Its gradient is taken
by automatic differentiation in its library, or by finite differences in NumPy. torch and JAX
are imported only for functions that belong to them.

torch: works in the dtype and on the device of the model's own tensors, in evaluation mode, and
    leaves the model as it
was: modes are restored and no parameter's ``.grad`` is touched.

JAX: runs in float64 whatever ``jax_enable_x64`` says, for the duration of the call only. A
function that cannot (it mixes in float32 arrays where JAX does not promote) runs in JAX's
own precision, and its float32 results are kept as such, so that the caller can tell.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from importlib import import_module
from itertools import islice
from types import FunctionType, MethodType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from relfit.data.files.arrays import is_tensor, tensor_array
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance
from relfit.util.text import first_line

RowFunction = Callable[..., Any]

LIBRARIES = ("torch", "jax")
# Networks hold many temporary arrays per row, so torch functions are called with at most this
# many rows at once.
TORCH_BATCH = 8192
# Rows with neighbours outside the support are tried again with steps this much smaller, this
# many times in all.
_SHRINK = 2.0**-6
_TRIES = 4
# The tensors of a model lie near its surface; long lists that a function happens to mention are
# not searched.
_DEEPEST = 6
_MOST_ITEMS = 100


def library_of(function: Any) -> str | None:
    """The library that a function certainly belongs to: torch modules and their methods,
    `jax.jit` functions.
    """
    if is_instance(getattr(function, "__self__", function), "torch.nn", "Module"):
        return "torch"
    return "jax" if is_instance(function, "jax.stages", "Wrapped") else None


def values(function: RowFunction, library: str | None) -> RowFunction:
    """The function of NumPy rows that a function of the library's arrays defines."""
    if library is None:
        return function
    if library == "jax":
        return _jax_function(lambda x: _over_rows(function, x)(x))
    return _torch_function(lambda rows: _call_torch(function, rows), function, grad=False)


def gradient(log_prob: RowFunction, library: str | None) -> RowFunction:
    """∇ log p as a function of NumPy rows: by automatic differentiation in the library, or
    by finite differences.
    """
    if library is None:
        return lambda x: finite_gradient(log_prob, x)
    return _torch_gradient(log_prob) if library == "torch" else _jax_gradient(log_prob)


def _module(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise InputError(
            f'autodiff="{library}": {library} is not installed; install it with  pip install '
            f"{library}"
        ) from None


def real(argument: str, raw: Any, shape: tuple[int, ...]) -> NDArray[np.floating[Any]]:
    """The result of a user's function as floating-point numbers of this shape, in the
    precision it has.
    """
    try:
        array = np.asarray(raw)
    except (ValueError, TypeError, RuntimeError) as error:
        # Tensors that need a gradient or live on another device refuse to become arrays, and
        # say why.
        raise InputError(
            f"{argument}: expected an array, got a {type(raw).__name__} ({first_line(error)})"
        ) from None
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"{argument}: expected real numbers, got a {type(raw).__name__} of "
            f"dtype {array.dtype}"
        )
    if array.shape != shape:
        hint = ""
        if len(shape) == 1 and array.shape == (*shape, 1):
            hint = "; drop the last axis, for example with squeeze(-1)"
        elif array.shape == shape[1:]:
            hint = (
                "; is it a function of one row? Then give  lambda x: np.array([f(row) for "
                "row in x])"
            )
        elif len(shape) == 1 and array.ndim == 2 and array.shape[0] == shape[0]:
            hint = "; it must return one number per row, the log density of the whole row"
        raise InputError(f"{argument}: expected shape {shape}, got {array.shape}{hint}")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def finite_gradient(log_prob: RowFunction, x: Array, *, widen: float = 1.0) -> Array:
    """∇ log p at the rows of x (n, d) from 4d evaluations per row; NaN where log p is not
    finite.

    With D(h) = (f(x + h) − f(x − h))/2h in one coordinate, ``(4D(h) − D(2h))/3`` has an
    error of h⁴f⁽⁵⁾/30. The step h is ε^¼ times the column's scale, where ε is the precision
    in which log_prob computes; rounding then adds an error of order ε^¾. `widen` multiplies
    the step.

    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> finite_gradient(lambda x: -(x[:, 0] ** 4), x).round(9)
    array([[  0.], [ -4.], [-32.]])
    """

    def one_per_row(rows: Array) -> NDArray[Any]:
        return real("log_prob", log_prob(rows), (len(rows),))

    here = one_per_row(x.copy())
    steps = widen * steps_of(x, float(np.finfo(here.dtype).eps))
    x = x.astype(here.dtype).astype(
        np.float64
    )  # the rows at which a function of low precision is evaluated
    slopes = np.full(x.shape, np.nan)
    todo = np.isfinite(here)
    for _ in range(_TRIES):
        if not todo.any():
            break
        slopes[todo] = np.stack(
            [_slope(one_per_row, x[todo], k, h) for k, h in enumerate(steps)], axis=1
        )
        todo &= ~np.isfinite(slopes).all(axis=1)
        steps = _SHRINK * steps
    return slopes


def finite_error(log_prob: RowFunction, x: Array) -> float:
    """The error of `finite_gradient` relative to the typical slope, estimated by doubling
    the step.
    """
    fine = finite_gradient(log_prob, x)
    change = fine - finite_gradient(log_prob, x, widen=2.0)
    finite = np.isfinite(change).all(axis=1)
    if not finite.any():
        return float("nan")
    typical, error = (float(np.sqrt(np.mean(part[finite] ** 2))) for part in (fine, change))
    return max(error / typical if typical > 0.0 else error, float(np.finfo(float).eps))


def jacobian(score: RowFunction, x: Array, *, widen: float = 1.0) -> Array:
    """∂s_i/∂x_j at the rows of x, (n, d, d), by the same differences."""
    steps = widen * steps_of(x, float(np.finfo(score(x.copy()).dtype).eps))
    return np.stack([_slope(score, x, k, h) for k, h in enumerate(steps)], axis=2)


def _slope(function: RowFunction, x: Array, k: int, h: float) -> Array:
    """∂f/∂x_k at the rows of x, for f with one number or one row of numbers per row."""
    moved = np.repeat(x[None], 4, axis=0)
    moved[:, :, k] += np.array([h, -h, 2.0 * h, -2.0 * h])[:, None]
    f = function(moved.reshape(-1, x.shape[1])).astype(np.float64)
    f = f.reshape(4, len(x), *f.shape[1:])
    with np.errstate(invalid="ignore"):  # −inf − (−inf), outside the support, gives NaN
        # The steps as they were really taken, after rounding.
        taken = moved[::2, :, k] - moved[1::2, :, k]
        narrow, wide = (f[::2] - f[1::2]) / taken.reshape(2, -1, *[1] * (f.ndim - 2))
        return np.asarray((4.0 * narrow - wide) / 3.0)


def steps_of(x: Array, epsilon: float) -> Array:
    """Each column's step: ε^¼ times its scale, but no less than x can resolve; a power of
    two, so that x ± h is exact.

    The scale is the median distance to the median, which neither an offset nor an outlier
    changes. It is zero for a column with an atom there, whose standard deviation is used
    instead, or its size if the column is constant.
    """
    median = np.median(np.abs(x - np.median(x, axis=0)), axis=0)
    size = np.maximum(np.abs(x).max(axis=0), 1e-3)
    deviation = x.std(axis=0)
    scale = np.where(median > 0.0, median, np.where(deviation > 1e-9 * size, deviation, size))
    resolved = 4.0 * size * max(epsilon, float(np.finfo(float).eps))
    return np.asarray(2.0 ** np.round(np.log2(np.maximum(epsilon**0.25 * scale, resolved))))


def _torch_gradient(log_prob: RowFunction) -> RowFunction:
    """The rows are independent, so that the gradient of the sum of log p holds the gradient
    of every row.
    """
    torch = _module("torch")

    def slope(rows: Any) -> Any:
        rows = rows.requires_grad_()
        log_probs = _call_torch(log_prob, rows)
        shape = tuple(log_probs.shape) if is_tensor(log_probs) else None
        if shape != (len(rows),):
            got = f"a {type(log_probs).__name__}" if shape is None else f"shape {shape}"
            raise InputError(
                f"log_prob: expected a tensor of shape ({len(rows)},) for "
                f"{len(rows)} rows, got {got}"
            )
        grad = None
        if log_probs.requires_grad:
            grad = _call_torch(
                lambda x: torch.autograd.grad(log_probs.sum(), x, allow_unused=True)[0], rows
            )
        if grad is None:
            raise InputError(
                "log_prob: expected a function of x that torch can differentiate, got one "
                "without a gradient; "
                "is it constant, or computed under no_grad or from detached tensors?"
            )
        return grad

    return _torch_function(slope, log_prob, grad=True)


def _call_torch(function: RowFunction, rows: Any) -> Any:
    try:
        return function(rows)
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        # torch reports shapes, dtypes and devices that do not fit as one of these.
        where = f"{len(rows)} rows of {rows.dtype} on {rows.device}"
        raise InputError(
            f"the torch function failed on {where}: {first_line(error)}"
        ) from error


def _torch_function(function: RowFunction, owner: RowFunction, *, grad: bool) -> RowFunction:
    """A function of tensors as one of NumPy rows, which it gets in batches in the dtype and
    on the device of the owner's first tensor (float64, CPU).

    Every module that the owner holds is in evaluation mode meanwhile.
    """
    torch = _module("torch")

    def call(x: Array) -> NDArray[Any]:
        held = list(_torch_parts(owner, _DEEPEST, set()))
        tensors = (part for part in held if is_tensor(part) and part.is_floating_point())
        like = next(tensors, torch.empty(0, dtype=torch.float64))
        modules = {each for part in held if not is_tensor(part) for each in part.modules()}
        training = [module for module in modules if module.training]
        results = []
        for module in training:
            module.training = False
        try:
            with torch.inference_mode(False), torch.set_grad_enabled(grad):
                for start in range(0, len(x), TORCH_BATCH):
                    rows = x[start : start + TORCH_BATCH]
                    out = function(torch.tensor(rows, dtype=like.dtype, device=like.device))
                    results.append(tensor_array(out) if is_tensor(out) else np.asarray(out))
        finally:
            for module in training:
                module.training = True
        return np.concatenate(results) if len(results) > 1 else results[0]

    return call


def _torch_parts(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """The tensors and modules in an object: in its attributes, containers, and what its
    functions close over.
    """
    if depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    if is_tensor(value):
        yield value
        return
    if is_instance(value, "torch.nn", "Module"):
        yield value
        yield from value.parameters()
        yield from value.buffers()
    parts: Iterable[Any] = ()
    if isinstance(value, MethodType):
        parts = [value.__self__]
    elif isinstance(value, FunctionType):
        with suppress(ValueError):  # a name that has no value yet
            names = inspect.getclosurevars(value)
            parts = [*names.nonlocals.values(), *names.globals.values()]
    elif isinstance(value, Mapping):
        parts = islice(value.values(), _MOST_ITEMS)
    elif isinstance(value, list | tuple):
        parts = value[:_MOST_ITEMS]
    elif not isinstance(value, type) and not inspect.ismodule(value):
        parts = getattr(value, "__dict__", {}).values()
    for part in list(parts):
        yield from _torch_parts(part, depth - 1, seen)


def _jax_function(function: RowFunction) -> RowFunction:
    """A JAX function of rows, compiled once and called with NumPy rows in the best precision
    that it allows.
    """
    jax = _module("jax")
    double = True
    compiled = jax.jit(function)

    def call(x: Array) -> NDArray[Any]:
        nonlocal double
        try:
            with _enable_x64() if double else nullcontext():
                return np.asarray(compiled(jax.numpy.asarray(x)))
        except InputError:
            raise
        except (TypeError, ValueError, IndexError) as error:
            if double:
                double = False
                return call(x)
            raise InputError(
                f"the JAX function failed on {len(x)} rows: {first_line(error)}"
            ) from error

    return call


def _jax_gradient(log_prob: RowFunction) -> RowFunction:
    """∇ log p on NumPy rows, for log p of all rows (n, d) → (n,) or of a single row (d,) →
    ().
    """
    jax = _module("jax")

    def slopes(rows: Any) -> Any:
        by_row = _over_rows(log_prob, rows)
        shape = jax.eval_shape(by_row, rows).shape
        if shape != rows.shape[:1]:
            raise InputError(
                f"log_prob: expected shape {rows.shape[:1]} for {len(rows)} rows, got {shape}"
            )
        return jax.grad(lambda x: by_row(x).sum())(rows)

    return _jax_function(slopes)


def is_jax_log_density(function: RowFunction, dim: int) -> bool:
    """True if the JAX function returns one number for each row of `dim` columns."""
    # In float64 as in later calls: JAX may not trace the same constants in both precisions.
    with _enable_x64():
        several, single = _jax_shapes(function, dim, np.float64)
    return several == (dim + 1,) or single == ()


def _over_rows(function: RowFunction, rows: Any) -> RowFunction:
    """The function itself if it takes all rows at once; a function of a single row (d,),
    mapped over the rows.
    """
    d = rows.shape[1]
    several, single = _jax_shapes(function, d, rows.dtype)
    if several in ((d + 1,), (d + 1, d)) or single not in ((), (d,)):
        return function
    return cast(RowFunction, _module("jax").vmap(function))


def _jax_shapes(function: RowFunction, d: int, dtype: Any) -> list[tuple[int, ...] | None]:
    """The shapes of the results for d + 1 rows, a number that cannot be mistaken for that of
    the columns, and for a single row; None where the function fails.
    """
    jax = _module("jax")
    shapes: list[tuple[int, ...] | None] = []
    for shape in ((d + 1, d), (d,)):
        try:
            result = jax.eval_shape(function, jax.ShapeDtypeStruct(shape, dtype))
            shapes.append(tuple(result.shape))
        except (TypeError, ValueError, IndexError, AttributeError):
            shapes.append(None)
    return shapes


def _enable_x64() -> Any:
    jax = _module("jax")
    owner = jax if hasattr(jax, "enable_x64") else _module("jax.experimental")
    return owner.enable_x64(True)
