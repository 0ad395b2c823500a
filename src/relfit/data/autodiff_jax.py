"""Functions of JAX arrays as functions of NumPy rows, and their gradients by ``jax.grad``.

Runs in float64 whatever ``jax_enable_x64`` says, for the length of the call only. A function that cannot (it mixes in
float32 arrays where JAX does not promote) runs in JAX's own precision, and its float32 results are kept as such, so
that the caller can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.autodiff import first_line
from relfit.util.arrays import Array
from relfit.util.errors import InputError

RowFunction = Callable[..., Any]


def values(function: RowFunction) -> RowFunction:
    """The function on NumPy rows; one written for a single row (d,) is mapped over the rows."""
    return _Lifted(lambda rows: _over_rows(function, rows)(rows))


def gradient(log_prob: RowFunction) -> RowFunction:
    """∇ log p on NumPy rows, for log p of all rows (n, d) → (n,) or of a single row (d,) → ()."""
    import jax

    def slopes(rows: Any) -> Any:
        by_row = _over_rows(log_prob, rows)
        out = jax.eval_shape(by_row, rows)
        if out.shape != rows.shape[:1]:
            raise InputError(f"log_prob: expected shape {rows.shape[:1]} for {len(rows)} rows, got {out.shape}")
        return jax.grad(lambda x: by_row(x).sum())(rows)

    return _Lifted(slopes)


class _Lifted:
    """A JAX function of rows, compiled once, called with NumPy rows in the best precision it allows."""

    def __init__(self, function: RowFunction) -> None:
        import jax

        self._compiled = jax.jit(function)
        self._double = True

    def __call__(self, x: Array) -> NDArray[Any]:
        try:
            return self._run(x)
        except InputError:
            raise
        except (TypeError, ValueError, IndexError) as error:
            if self._double:
                self._double = False
                return self(x)
            raise InputError(f"the JAX function failed on {len(x)} rows: {first_line(error)}") from error

    def _run(self, x: Array) -> NDArray[Any]:
        from jax import numpy as jnp

        with _enable_x64() if self._double else nullcontext():
            return np.asarray(self._compiled(jnp.asarray(x)))


def _enable_x64() -> Any:
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


def is_log_density(function: RowFunction, dim: int) -> bool:
    """Whether the function gives one number for each row of `dim` columns."""
    import jax

    # In float64 as later on: JAX may not trace the same constants in both precisions.
    with _enable_x64():
        rows, row = (jax.ShapeDtypeStruct(shape, np.float64) for shape in ((dim + 1, dim), (dim,)))
        return _shape(function, rows) == (dim + 1,) or _shape(function, row) == ()


def _over_rows(function: RowFunction, rows: Any) -> RowFunction:
    """The function itself if it takes all rows at once, otherwise mapped over the rows."""
    import jax

    d = rows.shape[1]
    count = d + 1  # a number of rows that cannot be taken for the number of columns
    some = jax.ShapeDtypeStruct((count, d), rows.dtype)
    one = jax.ShapeDtypeStruct((d,), rows.dtype)
    if _shape(function, some) in ((count,), (count, d)) or _shape(function, one) not in ((), (d,)):
        return function
    mapped: RowFunction = jax.vmap(function)
    return mapped


def _shape(function: RowFunction, argument: Any) -> tuple[int, ...] | None:
    import jax

    try:
        return tuple(jax.eval_shape(function, argument).shape)
    except (TypeError, ValueError, IndexError, AttributeError):
        return None
