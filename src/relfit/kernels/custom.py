"""Radial kernels of the user's own: φ with its derivatives given, or taken by automatic differentiation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import import_module
from typing import Any, ClassVar, NoReturn

import numpy as np

from relfit.kernels.base import Kernel, Length, ScaledKernel, Variable
from relfit.util.arrays import Array, Rows, library
from relfit.util.errors import InputError

Profile = Callable[[Any], Any]

# Where a profile is tried out: away from round numbers, where compact profiles like to end.
_TRIED = np.array([1.3e-3, 0.017, 0.13, 0.37, 0.93, 2.7, 7.1])
_STEP = 1e-4
_DERIVATIVES = ("derivative", "second_derivative")
# A central difference with that step is right to 1e-7 or so; a wrong formula is hardly ever right to 1e-4.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Radial(ScaledKernel):
    """``k = φ(r²/s²)`` with a φ of your own, a function of arrays of squared distances.

    KSD needs φ' and φ'' too: give them, or let a library differentiate φ. They are compared with differences of φ
    once, when the kernel is made. That φ gives a positive definite kernel in your dimension is for you to know.

    Args:
        profile: φ.
        derivative: φ', by φ's own argument.
        second_derivative: φ''.
        scale: s, a number or "median".
        autodiff: "torch" or "jax": φ takes arrays of that library, which then gives φ' and φ''.
        name: what tables call the kernel.

    >>> kernel = Radial(lambda u: 1 / (1 + u), lambda u: -((1 + u) ** -2), lambda u: 2 * (1 + u) ** -3, scale=2.0)
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

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("profile", *_DERIVATIVES):
            given = getattr(self, name)
            if not callable(given) and (given is not None or name == "profile"):
                raise InputError(f"{name} of Radial: expected a function of r², got {type(given).__name__}")
        phi, *derivatives = self._functions
        _check_profile(phi)
        for name, below, function in zip(_DERIVATIVES, self._functions, derivatives, strict=False):
            if below is not None and function is not None:
                _check_derivative(name, below, function)

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether both derivatives are there, so that KSD may use it."""
        return None not in self._functions

    def phi(self, t: Array) -> Array:
        """φ(r²/s²)."""
        return self._of(0, t)

    def dphi(self, t: Array) -> Array:
        """φ'(r²/s²)/s²."""
        return self._of(1, t)

    def ddphi(self, t: Array) -> Array:
        """φ''(r²/s²)/s⁴."""
        return self._of(2, t)

    def describe(self) -> str:
        """Its name and scale."""
        size = self.scale if isinstance(self.scale, str) else f"{self.scale:.3g}"
        return f"{self.name} kernel, scale {size}"

    @property
    def writable(self) -> bool:
        """Functions cannot be written down."""
        return False

    def _r2ddphi(self, t: Array) -> Array:
        # φ'' may be infinite at 0, where its product with r² is 0.
        arrays = library(t)
        inside = arrays.where(t > 0.0, t, arrays.ones_like(t))
        out: Array = arrays.where(t > 0.0, inside * self.ddphi(inside), arrays.zeros_like(t))
        return out

    def _of(self, order: int, t: Array) -> Array:
        function = self._functions[order]
        if function is None:
            raise InputError(f"kernel: {self.describe()} has no derivatives; give them, or autodiff=, for KSD")
        out: Array = function(t / self.length**2) / self.length ** (2 * order)
        return out

    @cached_property
    def _functions(self) -> tuple[Profile, Profile | None, Profile | None]:
        """φ, φ' and φ'' on NumPy arrays."""
        if self.autodiff is None:
            return self.profile, self.derivative, self.second_derivative
        own = [derivative(self.profile, self.autodiff, order) for order in range(3)]
        return own[0], self.derivative or own[1], self.second_derivative or own[2]


def _check_profile(phi: Profile) -> None:
    """Refuse a φ that no kernel has."""
    u = np.concatenate([[0.0], _TRIED])
    values = _numbers("profile", phi, u)
    k = int(np.abs(values).argmax())
    if not values[0] > 0.0 or abs(values[k]) > values[0] * (1.0 + 1e-9):
        raise InputError(
            f"profile of Radial: expected φ(0) > 0 and |φ| ≤ φ(0) everywhere, as every kernel has, got φ(0) = "
            f"{values[0]:g} and φ({u[k]:g}) = {values[k]:g}"
        )


def _check_derivative(name: str, below: Profile, function: Profile) -> None:
    if name == "derivative":
        _numbers(name, function, np.zeros(1))
    step = _STEP * _TRIED
    slope = (_numbers(name, below, _TRIED + step) - _numbers(name, below, _TRIED - step)) / (2.0 * step)
    given = _numbers(name, function, _TRIED)
    # Beside the slope itself, what a change of φ over its whole argument would give: rounding is no error.
    size = np.abs(slope) + 1e-4 * np.abs(_numbers(name, below, _TRIED)) / _TRIED
    wrong = np.abs(given - slope) > _TOLERANCE * size
    if wrong.any():
        k = int(wrong.argmax())
        raise InputError(
            f"{name} of Radial: expected the derivative of the function before it, about {slope[k]:.6g} at "
            f"{_TRIED[k]:g}, got {given[k]:.6g}"
        )


def _numbers(name: str, function: Profile, u: Array) -> Array:
    try:
        with np.errstate(all="ignore"):
            out = np.asarray(function(u.copy()), dtype=np.float64)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{name} of Radial: expected a function of an array of r², it failed: {first}") from None
    bad = ~np.isfinite(out)
    if out.shape != u.shape or bad.any():
        came = f"shape {out.shape}" if out.shape != u.shape else f"{out[bad][0]} at {u[bad][0]:g}"
        raise InputError(f"{name} of Radial: expected finite numbers of shape {u.shape}, got {came}")
    return out


# --------------------
# A profile φ written for torch or jax, and its derivatives, as functions of NumPy arrays.

LIBRARIES = ("torch", "jax")


def derivative(profile: Profile, library: str, order: int) -> Profile:
    """φ (order 0), φ' or φ'' in float64; every element depends on its own argument only, so one gradient gives all."""
    if library not in LIBRARIES:
        raise InputError(f'autodiff of Radial: expected "torch", "jax" or None, got {library!r}')
    try:
        import_module(library)
    except ImportError:
        raise InputError(f'autodiff="{library}": {library} is not installed; pip install {library}') from None
    # A partial of a module's function can be sent to another process, a closure cannot.
    return partial(_of_torch if library == "torch" else _of_jax, profile, order)


def _of_torch(profile: Profile, order: int, u: Any) -> Any:
    import torch

    given = torch.as_tensor(u)
    with torch.enable_grad():
        point = given.detach().clone().requires_grad_()
        out = profile(point)
        for _ in range(order):
            out = torch.autograd.grad(out.sum(), point, create_graph=True)[0] if out.requires_grad else point * 0.0
    out = out.detach()
    return out if isinstance(u, torch.Tensor) else out.numpy()


def _of_jax(profile: Profile, order: int, u: Any) -> Any:
    import jax

    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else import_module("jax.experimental").enable_x64
    with enable(True):
        return np.asarray(_compiled(profile, order)(jax.numpy.asarray(u)))


@cache
def _compiled(profile: Profile, order: int) -> Profile:
    import jax

    function = profile
    for _ in range(order):
        function = _slope(function)
    return jax.jit(function)  # type: ignore[no-any-return]


def _slope(function: Profile) -> Profile:
    import jax

    return jax.grad(lambda u: function(u).sum())  # type: ignore[no-any-return]


# --------------------
# A kernel given as the matrix of its values: kernels of graphs, strings, sets, for a few thousand items.


# Rows looked at together: the checks need little memory beside the matrix.
_CHECKED_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Precomputed(Kernel):
    """``k(a, b) = matrix[a, b]``: rows are numbers of items. For MMD.

    In `compare`, `reference` and `models` then say which items are theirs: either how many, taken from the matrix in
    that order (the reference's first), or arrays of row numbers of the matrix, from 0. The matrix is held whole:
    8N² bytes for N items in all, 800 MB for 10,000.

    >>> kernel = Precomputed(np.eye(60) + 1.0)
    >>> kernel.pairs(np.array([[0.0], [0.0]]), np.array([[0.0], [1.0]]))
    array([2., 1.])
    """

    matrix: Array = field(repr=False)
    plain: ClassVar[bool] = False
    smooth: ClassVar[bool] = False

    # One matrix is one kernel: comparing all entries would be no cheaper than a test.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        matrix = _matrix(self.matrix)
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    @property
    def variable(self) -> Variable:
        """Row numbers must not be shifted, as rows of distances may."""
        return "dot"

    def phi(self, t: Array) -> NoReturn:
        """Refused: the kernel is no function of a distance."""
        raise InputError("kernel: Precomputed is no function of r² or x·y")

    def block(self, x: Array, y: Array) -> Array:
        """k between the items numbered x (n, 1) and those numbered y (m, 1): (n, m)."""
        return self.matrix[np.ix_(_items(x), _items(y))]

    def diagonal(self, rows: Array) -> Array:
        """k(a, a)."""
        return self.pairs(rows, rows)

    def pairs(self, x: Array, y: Array) -> Array:
        """k(x_a, y_a)."""
        return np.asarray(self.matrix[_items(x), _items(y)])

    def describe(self) -> str:
        """Its size."""
        return f"kernel matrix of {len(self.matrix)} items"

    @property
    def writable(self) -> bool:
        """The matrix is not written down."""
        return False

    def inputs(self, reference: Any, models: Any) -> tuple[Rows, Any]:
        """The reference and the models as arrays of row numbers of the matrix."""
        values = list(models.values()) if isinstance(models, Mapping) else list(models)
        names = list(models) if isinstance(models, Mapping) else [f"m{k}" for k in range(1, len(values) + 1)]
        labels = ["reference", *(f"model {name!r}" for name in names)]
        found = self._numbered(labels, [reference, *values])
        return found[0], dict(zip(names, found[1:], strict=True))

    def _numbered(self, labels: Sequence[str], given: Sequence[Any]) -> list[Rows]:
        counts = [isinstance(value, int | np.integer) and not isinstance(value, bool) for value in given]
        if not any(counts):
            return [self._checked(label, value) for label, value in zip(labels, given, strict=True)]
        if not all(counts):
            raise InputError(
                f"{labels[counts.index(False)]}: expected a number of items like the others, got "
                f"{type(given[counts.index(False)]).__name__}; give numbers for all or arrays of row numbers for all"
            )
        ends = np.cumsum([int(value) for value in given])
        if min(given) < 1 or ends[-1] != len(self.matrix):
            raise InputError(
                f"reference and models: expected numbers of items that add up to the {len(self.matrix)} rows of the "
                f"kernel matrix, got {' + '.join(str(value) for value in given)} = {ends[-1]}"
            )
        return list(np.split(np.arange(len(self.matrix)), ends[:-1]))

    def _checked(self, label: str, value: Any) -> Rows:
        rows = np.asarray(value)
        size = len(self.matrix)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size:
            raise InputError(
                f"{label}: expected row numbers of the kernel matrix (a 1-d array of whole numbers) or how many, got "
                f"{f'{rows.dtype} of shape {rows.shape}' if rows.dtype != object else type(value).__name__}"
            )
        if rows.min() < 0 or rows.max() >= size:
            wrong = rows[(rows < 0) | (rows >= size)][0]
            raise InputError(f"{label}: expected row numbers of the kernel matrix from 0 to {size - 1}, got {wrong}")
        if len(np.unique(rows)) < len(rows):
            raise InputError(f"{label}: expected different row numbers of the kernel matrix, got one more than once")
        return rows


def _items(rows: Array) -> Rows:
    return rows[:, 0].astype(np.intp)


def _matrix(value: Any) -> Array:
    given = np.asarray(value)
    if given.dtype.kind not in "biuf" or given.ndim != 2 or given.shape[0] != given.shape[1] or not given.size:
        came = f"{given.dtype} of shape {given.shape}"
        raise InputError(f"matrix of Precomputed: expected a square matrix of numbers over all items, got {came}")
    matrix = given.astype(np.float64, copy=False).view()
    diagonal = np.diag(matrix)
    size = max(float(matrix.max()), -float(matrix.min()))
    if not math.isfinite(size):
        raise InputError("matrix of Precomputed: expected finite numbers, got NaN or infinity")
    for start in range(0, len(matrix), _CHECKED_AT_ONCE):
        part = slice(start, start + _CHECKED_AT_ONCE)
        _check_rows(matrix[part], matrix[:, part].T, np.sqrt(np.maximum(diagonal, 0.0)), part, 1e-8 * size)
    return matrix


def _check_rows(rows: Array, mirrored: Array, root: Array, part: slice, tolerance: float) -> None:
    if (np.abs(rows - mirrored) > tolerance).any():
        raise InputError("matrix of Precomputed: expected a symmetric matrix over all items, got one that is not")
    # Cauchy and Schwarz, for the diagonal too: a negative k(a,a) has root 0.
    if (np.abs(rows) > np.outer(root[part], root) + tolerance).any():
        raise InputError(
            "matrix of Precomputed: expected kernel values, |k(a,b)| ≤ √(k(a,a) k(b,b)), got larger ones; are these "
            "distances?"
        )


# --------------------
# What is left of a kernel made of functions or of a matrix once a result has been written to a file.


@dataclass(frozen=True)
class Recorded(Kernel):
    """A kernel known by its description only: it can be shown and written again, not evaluated."""

    words: str
    plain: ClassVar[bool] = False
    smooth: ClassVar[bool] = False

    def phi(self, t: Array) -> NoReturn:
        """Refused."""
        raise InputError(f"kernel: {self.words!r} was read from a file, which holds no functions; give it anew")

    def describe(self) -> str:
        """The description."""
        return self.words
