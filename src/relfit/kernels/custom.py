"""Kernels of your own: a function of r², with derivatives given or taken by automatic
differentiation; any function of two rows; or the matrix of the values of a kernel of graphs,
strings or sets.

A file cannot hold functions or matrices; what it keeps of such a kernel is its description
(`Recorded`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, NoReturn, cast

import numpy as np

from relfit.kernels.base import Kernel, Length, ScaledKernel, Variable, check_positive
from relfit.util.arrays import Array, Rows, library
from relfit.util.errors import InputError

Profile = Callable[[Any], Any]

# Where a profile is evaluated for the checks: away from round numbers, where profiles of
# compact support tend to end.
_POINTS = np.array([1.3e-3, 0.017, 0.13, 0.37, 0.93, 2.7, 7.1])
_STEP = 1e-4
_DERIVATIVES = ("derivative", "second_derivative")
# A central difference with that step has an error of about 1e-7; a wrong formula almost never
# agrees to 1e-4.
_TOLERANCE = 1e-4
# Rows that are checked at a time, so that the checks need little memory beside the matrix.
_CHECKED_ROWS = 1024
# Steps of differences of a kernel, in median distances: the second differences have about seven
# digits.
_STEPS = 1.0 / 3000.0
# Single pairs come from blocks of so many rows.
_PAIRS_AT_ONCE = 32
# A function may be evaluated to fewer digits than these.
_ASYMMETRY = 1e-8


@dataclass(frozen=True)
class Radial(ScaledKernel):
    """``k = φ(r²/s²)`` with a φ of your own, a function of arrays of squared distances.

    KSD needs φ' and φ'' too: give them, or let a library differentiate φ. They are compared
    with differences of φ once, when the kernel is made. Whether φ gives a positive definite
    kernel in your dimension is not checked.

    Args:
        profile: φ.
        derivative: φ', the derivative by φ's own argument.
        second_derivative: φ''.
        scale: s, a number or "median".
        autodiff: "torch" or "jax": φ takes arrays of that library, which then gives φ' and φ''.
        name: the kernel's name in tables.

    >>> kernel = Radial(
    ...     lambda u: 1 / (1 + u),
    ...     lambda u: -((1 + u) ** -2),
    ...     lambda u: 2 * (1 + u) ** -3,
    ...     scale=2.0,
    ... )
    >>> kernel.phi(np.array([0.0, 4.0]))
    array([1. , 0.5])
    """

    profile: Profile
    derivative: Profile | None = None
    second_derivative: Profile | None = None
    scale: Length = 1.0
    autodiff: str | None = None
    name: str = "radial"
    length_field: ClassVar[str] = "scale"
    writable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("profile", *_DERIVATIVES):
            function = getattr(self, name)
            if not callable(function) and (function is not None or name == "profile"):
                raise InputError(
                    f"{name} of Radial: expected a function of r², got "
                    f"{type(function).__name__}"
                )
        if self.autodiff not in (None, "torch", "jax"):
            raise InputError(
                f'autodiff of Radial: expected "torch", "jax" or None, got {self.autodiff!r}'
            )
        phi, *derivatives = self._functions
        u = np.concatenate([[0.0], _POINTS])
        values = _numbers("profile", phi, u)
        k = int(np.abs(values).argmax())
        if not values[0] > 0.0 or abs(values[k]) > values[0] * (1.0 + 1e-9):
            raise InputError(
                f"profile of Radial: expected φ(0) > 0 and |φ| ≤ φ(0) everywhere, as every "
                f"kernel has, got φ(0) = "
                f"{values[0]:g} and φ({u[k]:g}) = {values[k]:g}"
            )
        for name, antiderivative, derivative in zip(
            _DERIVATIVES, self._functions, derivatives, strict=False
        ):
            if antiderivative is not None and derivative is not None:
                _check_derivative(name, antiderivative, derivative)

    @property
    def smooth(self) -> bool:
        return None not in self._functions

    def phi(self, t: Array) -> Array:
        return self._evaluate(0, t)

    def dphi(self, t: Array) -> Array:
        """φ'(r²/s²)/s²."""
        return self._evaluate(1, t)

    def r2ddphi(self, t: Array) -> Array:
        """r²φ''(r²/s²)/s⁴; φ'' may be infinite at 0, where the product is 0."""
        arrays = library(t)
        positive = arrays.where(t > 0.0, t, arrays.ones_like(t))
        return cast(
            Array,
            arrays.where(t > 0.0, positive * self._evaluate(2, positive), arrays.zeros_like(t)),
        )

    def describe(self) -> str:
        size = self.scale if isinstance(self.scale, str) else f"{self.scale:.3g}"
        return f"{self.name} kernel, scale {size}"

    def _evaluate(self, order: int, t: Array) -> Array:
        """The derivative of this order of φ(r²/s²) by r²."""
        function = self._functions[order]
        if function is None:
            raise InputError(
                f"kernel: {self.describe()} has no derivatives; give them, or "
                f"autodiff=, for KSD"
            )
        return cast(Array, function(t / self.length**2) / self.length ** (2 * order))

    @cached_property
    def _functions(self) -> tuple[Profile, Profile | None, Profile | None]:
        """φ, φ' and φ'' on NumPy arrays, in float64."""
        if self.autodiff is None:
            return self.profile, self.derivative, self.second_derivative
        try:
            import_module(self.autodiff)
        except ImportError:
            raise InputError(
                f'autodiff="{self.autodiff}": {self.autodiff} is not installed; pip install '
                f"{self.autodiff}"
            ) from None
        differentiate = _by_torch if self.autodiff == "torch" else _by_jax
        # A partial of a module's function can be sent to another process, a closure cannot.
        phi, dphi, ddphi = (partial(differentiate, self.profile, order) for order in range(3))
        return phi, self.derivative or dphi, self.second_derivative or ddphi


def _check_derivative(name: str, antiderivative: Profile, derivative: Profile) -> None:
    """Refuse a derivative that differs from differences of the function it should be the
    derivative of.
    """
    if name == "derivative":
        _numbers(name, derivative, np.zeros(1))
    step = _STEP * _POINTS
    above = _numbers(name, antiderivative, _POINTS + step)
    below = _numbers(name, antiderivative, _POINTS - step)
    slope = (above - below) / (2.0 * step)
    values = _numbers(name, derivative, _POINTS)
    # Relative to the slope, plus a part of φ/u: where the slope is tiny its difference quotient
    # is mostly rounding.
    size = np.abs(slope) + 1e-4 * np.abs(_numbers(name, antiderivative, _POINTS)) / _POINTS
    wrong = np.abs(values - slope) > _TOLERANCE * size
    if wrong.any():
        k = int(wrong.argmax())
        raise InputError(
            f"{name} of Radial: expected the derivative of the function before it, about "
            f"{slope[k]:.6g} at "
            f"{_POINTS[k]:g}, got {values[k]:.6g}"
        )


def _numbers(name: str, function: Profile, u: Array) -> Array:
    try:
        with np.errstate(all="ignore"):
            out = np.asarray(function(u.copy()), dtype=np.float64)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise InputError(
            f"{name} of Radial: expected a function of an array of r², but it failed: {first}"
        ) from None
    bad = ~np.isfinite(out)
    if out.shape != u.shape or bad.any():
        came = (
            f"shape {out.shape}" if out.shape != u.shape else f"{out[bad][0]} at {u[bad][0]:g}"
        )
        raise InputError(
            f"{name} of Radial: expected finite numbers of shape {u.shape}, got {came}"
        )
    return out


def _by_torch(profile: Profile, order: int, u: Any) -> Any:
    """The derivative of this order of a φ written for torch.

    Every element depends on its own argument only, so the gradient of the sum gives all
    derivatives at once.
    """
    import torch

    with torch.enable_grad():
        point = torch.as_tensor(u).detach().clone().requires_grad_()
        out = profile(point)
        for _ in range(order):
            out = (
                torch.autograd.grad(out.sum(), point, create_graph=True)[0]
                if out.requires_grad
                else point * 0.0
            )
    out = out.detach()
    return out if isinstance(u, torch.Tensor) else out.numpy()


def _by_jax(profile: Profile, order: int, u: Any) -> Any:
    import jax

    enable = (
        jax.enable_x64
        if hasattr(jax, "enable_x64")
        else import_module("jax.experimental").enable_x64
    )
    with enable(True):
        return np.asarray(_compiled(profile, order)(jax.numpy.asarray(u)))


@cache
def _compiled(profile: Profile, order: int) -> Profile:
    import jax

    function = profile
    for _ in range(order):
        function = jax.grad(lambda u, function=function: function(u).sum())
    return jax.jit(function)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Recorded(Kernel):
    """A kernel known by its description only: it can be shown and written again, not
    evaluated.
    """

    words: str
    plain: ClassVar[bool] = False

    def phi(self, t: Array) -> NoReturn:
        raise InputError(f"kernel: {self.words!r} was read from a file and cannot be evaluated")

    def describe(self) -> str:
        return self.words


class Derivatives(NamedTuple):
    """Of pairs of rows: k, ∇_x k and ∇_y k (…, d), and Σ_j ∂²k/∂x_j∂y_j."""

    value: Array
    by_x: Array
    by_y: Array
    trace: Array


@dataclass(frozen=True, eq=False)
class FunctionKernel(Kernel):
    """Any positive definite k(x, y), as a function of two arrays of rows.

    `function(x, y)` gets rows (n, d) and (m, d) and returns the values (n, m). The function
    itself can also be given as ``kernel=``. KSD takes derivatives by central differences: k
    must have two derivatives, and takes about 8d evaluations for each pair of rows. Whether
    k is positive definite is not checked, symmetry is.

    Args:
        function: k.
        name: the kernel's name in tables.
        step: of the differences, in the units of the data; None is 1/3000 of the median
            distance of the rows.

    >>> kernel = FunctionKernel(lambda x, y: 1.0 / (1.0 + np.abs(x[:, None] - y).sum(axis=2)))
    >>> kernel.block(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 2.0]]))
    array([[1.  , 0.25]])
    """

    function: Callable[[Array, Array], Any]
    name: str = "function"
    step: float | None = None
    origin: Array | float = field(default=0.0, repr=False)
    plain: ClassVar[bool] = False
    smooth: ClassVar[bool] = True
    writable: ClassVar[bool] = False
    by_blocks: ClassVar[bool] = True
    # A function may see where the rows are, as one of x·y does.
    variable: ClassVar[Variable] = "dot"

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(
                f"function of FunctionKernel: expected a function of two arrays of rows, got "
                f"{type(self.function).__name__}"
            )
        if self.step is not None:
            check_positive("step of FunctionKernel", self.step)

    def moved(self, by: Array | float) -> FunctionKernel:
        return replace(self, origin=self.origin + by)

    def with_step(self, median: float) -> FunctionKernel:
        """The kernel with a step for rows at this median distance, unless it has one."""
        return self if self.step is not None else replace(self, step=_STEPS * median)

    def block(self, x: Array, y: Array) -> Array:
        """k of every row of x with every row of y: (n, m)."""
        return self._values(x + self.origin, y + self.origin)

    def pairs(self, x: Array, y: Array) -> Array:
        found = np.empty(len(x))
        for start in range(0, len(x), _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            found[part] = self.block(x[part], y[part]).diagonal()
        return found

    def diagonal(self, rows: Array) -> Array:
        return self.pairs(rows, rows)

    def derivatives(self, x: Array, y: Array) -> Derivatives:
        """Of every row of x with every row of y, by central differences."""
        x = x + self.origin
        y = y + self.origin
        value = self._values(x, y)
        by_x, by_y = (np.empty((*value.shape, x.shape[1])) for _ in range(2))
        trace = np.zeros_like(value)
        h = float(self.step or _STEPS)
        for j, along in enumerate(h * np.eye(x.shape[1])):
            by_x[:, :, j] = (self._values(x + along, y) - self._values(x - along, y)) / (2 * h)
            by_y[:, :, j] = (self._values(x, y + along) - self._values(x, y - along)) / (2 * h)
            both = self._values(x + along, y + along) + self._values(x - along, y - along)
            apart = self._values(x + along, y - along) + self._values(x - along, y + along)
            trace += (both - apart) / (4 * h * h)
        return Derivatives(value, by_x, by_y, trace)

    def _values(self, x: Array, y: Array) -> Array:
        # Copies: a function that works in place must not change the data.
        values = np.asarray(self.function(x.copy(), y.copy()), dtype=np.float64)
        expected = (len(x), len(y))
        if values.shape != expected:
            raise InputError(
                f"{self.describe()}: expected values of shape {expected} for {len(x)} and "
                f"{len(y)} rows, got shape {values.shape}"
            )
        if not np.isfinite(values).all():
            raise InputError(f"{self.describe()}: expected finite values, got NaN or infinity")
        return values

    def check_symmetric(self, rows: Array) -> None:
        """Refuse a function with k(x, y) ≠ k(y, x) at some of these rows."""
        values = self._values(rows, rows)
        if np.abs(values - values.T).max() > _ASYMMETRY * np.abs(values).max():
            raise InputError(f"{self.describe()}: expected k(x, y) = k(y, x), got other values")

    def describe(self) -> str:
        return f"{self.name} kernel"


@dataclass(frozen=True, eq=False)
class Precomputed(Kernel):
    """``k(a, b) = matrix[a, b]``: a row of data is the number of an item. For MMD.

    In `compare`, `reference` and `models` then say which items are theirs: either counts,
    taken from the matrix in that order (the reference's items first), or arrays of row
    numbers of the matrix, from 0. The matrix is held in memory: 8N² bytes for N items in
    all, 800 MB for 10,000.

    >>> kernel = Precomputed(np.eye(60) + 1.0)
    >>> kernel.pairs(np.array([[0.0], [0.0]]), np.array([[0.0], [1.0]]))
    array([2., 1.])
    """

    matrix: Array = field(repr=False)
    plain: ClassVar[bool] = False
    by_blocks: ClassVar[bool] = True
    smooth: ClassVar[bool] = False
    writable: ClassVar[bool] = False
    # Row numbers must not be shifted, as the rows of a radial kernel may be.
    variable: ClassVar[Variable] = "dot"

    # Two kernels are equal if they are the same object: comparing all entries would cost as
    # much as a test.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        matrix = _matrix(self.matrix)
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    def block(self, x: Array, y: Array) -> Array:
        """k between the items numbered x (n, 1) and those numbered y (m, 1): (n, m)."""
        return self.matrix[np.ix_(_items(x), _items(y))]

    def diagonal(self, rows: Array) -> Array:
        return self.pairs(rows, rows)

    def pairs(self, x: Array, y: Array) -> Array:
        return np.asarray(self.matrix[_items(x), _items(y)])

    def describe(self) -> str:
        return f"kernel matrix of {len(self.matrix)} items"

    def inputs(self, reference: Any, models: Any) -> tuple[Rows, dict[str, Rows]]:
        """The reference and the models, which are counts of items or row numbers, as row
        numbers of the matrix.
        """
        named = (
            dict(models)
            if isinstance(models, Mapping)
            else {f"m{k}": model for k, model in enumerate(models, 1)}
        )
        labels = ["reference", *(f"model {name!r}" for name in named)]
        values = [reference, *named.values()]
        is_count = [
            isinstance(value, int | np.integer) and not isinstance(value, bool)
            for value in values
        ]
        if all(is_count):
            first, *others = self._counted(values)
        elif any(is_count):
            odd = is_count.index(False)
            raise InputError(
                f"{labels[odd]}: expected a number of items like the others, got "
                f"{type(values[odd]).__name__}; give "
                "numbers for all or arrays of row numbers for all"
            )
        else:
            first, *others = map(self._checked, labels, values)
        return first, dict(zip(named, others, strict=True))

    def _counted(self, counts: Sequence[int]) -> list[Rows]:
        ends = np.cumsum(counts)
        if min(counts) < 1 or ends[-1] != len(self.matrix):
            raise InputError(
                f"reference and models: expected numbers of items that add up to the "
                f"{len(self.matrix)} rows of the "
                f"kernel matrix, got {' + '.join(map(str, counts))} = {ends[-1]}"
            )
        return np.split(np.arange(len(self.matrix)), ends[:-1])

    def _checked(self, label: str, value: Any) -> Rows:
        rows = np.asarray(value)
        size = len(self.matrix)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size:
            came = type(value).__name__
            if rows.dtype != object:
                came = f"{rows.dtype} of shape {rows.shape}"
            raise InputError(
                f"{label}: expected row numbers of the kernel matrix (a 1-d array of whole "
                f"numbers) or a count, got {came}"
            )
        if rows.min() < 0 or rows.max() >= size:
            wrong = rows[(rows < 0) | (rows >= size)][0]
            raise InputError(
                f"{label}: expected row numbers of the kernel matrix from 0 to "
                f"{size - 1}, got {wrong}"
            )
        if len(np.unique(rows)) < len(rows):
            raise InputError(
                f"{label}: expected different row numbers of the kernel matrix, "
                f"got one more than once"
            )
        return rows


def _items(rows: Array) -> Rows:
    return rows[:, 0].astype(np.intp)


def _matrix(value: Any) -> Array:
    """The matrix in float64, if it can hold the values of a kernel."""
    array = np.asarray(value)
    if (
        array.dtype.kind not in "biuf"
        or array.ndim != 2
        or array.shape[0] != array.shape[1]
        or not array.size
    ):
        came = f"{array.dtype} of shape {array.shape}"
        raise InputError(
            f"matrix of Precomputed: expected a square matrix of numbers over "
            f"all items, got {came}"
        )
    matrix = array.astype(np.float64, copy=False).view()
    size = max(float(matrix.max()), -float(matrix.min()))
    if not math.isfinite(size):
        raise InputError("matrix of Precomputed: expected finite numbers, got NaN or infinity")
    root = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    tolerance = 1e-8 * size
    for start in range(0, len(matrix), _CHECKED_ROWS):
        part = slice(start, start + _CHECKED_ROWS)
        if (np.abs(matrix[part] - matrix[:, part].T) > tolerance).any():
            raise InputError(
                "matrix of Precomputed: expected a symmetric matrix over all "
                "items, got one that is not"
            )
        # The Cauchy–Schwarz inequality, for the diagonal too: a negative k(a,a) has root 0.
        if (np.abs(matrix[part]) > np.outer(root[part], root) + tolerance).any():
            raise InputError(
                "matrix of Precomputed: expected kernel values, |k(a,b)| ≤ √(k(a,a) k(b,b)), "
                "got larger ones; are "
                "these distances?"
            )
    return matrix
