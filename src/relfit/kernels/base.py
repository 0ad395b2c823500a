"""What a kernel is: an immutable value with φ, φ' and r²φ'', and ``+``; also the median
distance, the default length.

A radial kernel is ``k(x, y) = φ(r²)`` with ``r² = ‖x − y‖²``; derivatives are by r². MMD
needs φ only, KSD needs φ' and ``r²φ''`` too. Other kernels are functions of the inner
product, ``k(x, y) = φ(x·y)``, and serve MMD only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np

from relfit.util.arrays import Array, library, medians
from relfit.util.checks import check_number
from relfit.util.errors import InputError
from relfit.util.text import plain_number

# The functions of t that sums over a kernel matrix are made of; each is a method of `Kernel`.
Weight = Literal["phi", "dphi", "r2ddphi"]
# What φ is a function of: r² = ‖x − y‖² or x·y.
Variable = Literal["r2", "dot"]
Length = float | Literal["median"]


class Power(NamedTuple):
    """φ(t) = peak · (offset + slope · t)^exponent."""

    peak: float
    offset: float
    slope: float
    exponent: float


class Tilt(Protocol):
    """A positive weight w of the rows."""

    def weights(self, rows: Array, /) -> Array:
        """w(x) for every row (n,)."""

    def gradient(self, rows: Array, /) -> Array:
        """∇ log w at every row (n, d)."""


@dataclass(frozen=True)
class Kernel:
    """A kernel k(x, y) = φ(t), with t = r² = ‖x − y‖² (radial) or t = x·y.

    A radial kernel supplies ``phi``, ``dphi`` and ``r2ddphi`` for arrays of any library
    (`library`), element by element. The other members have defaults that suit a radial
    kernel whose parameters are numbers.
    """

    # True if the kernel is φ(t) and nothing else, so that it can be added to others and tilted.
    plain: ClassVar[bool] = True
    # True if `block` gives the values of all pairs of some rows.
    by_blocks: ClassVar[bool] = False

    def phi(self, t: Array) -> Array:
        """φ(t); refused by kernels that are no functions of t: code that works with φ must
        handle their weight too, through `untilted` and `tilt`.
        """
        raise InputError(f"kernel: expected a plain kernel here, got {self.describe()}")

    def dphi(self, t: Array) -> Array:
        """φ'(t)."""
        raise InputError(f"kernel: {self.describe()} has no derivative by r²")

    def r2ddphi(self, t: Array) -> Array:
        """t φ''(t), which has a limit at t = 0 even where φ'' has none."""
        raise InputError(f"kernel: {self.describe()} has no second derivative by r²")

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """Several of the functions above at once, so that a kernel can share work between
        them.
        """
        return tuple(getattr(self, name)(t) for name in which)

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """The kernels that this one is made of."""
        return ()

    @property
    def variable(self) -> Variable:
        """What φ is a function of: "r2" or "dot"."""
        return "r2"

    @property
    def smooth(self) -> bool:
        """True if φ' and r²φ'' exist for all r ≥ 0, so that KSD can use the kernel."""
        return all(part.smooth for part in self.parts)

    @property
    def length(self) -> float:
        """The shortest distance over which the kernel changes noticeably."""
        return min((part.length for part in self.parts), default=math.inf)

    @property
    def unit_rate(self) -> float | None:
        """The number q with φ(r²) = exp(q r²/length²), or None when φ is not of that form.

        Then φ' = (q/length²)φ, so that every sum KSD needs follows from φ alone.
        """
        return None

    @property
    def power(self) -> Power | None:
        """φ as a power of a linear function of t, or None when φ is not of that form."""
        return None

    def largest_entry(self, dim: int) -> float:
        """The largest |entry| of rows (n, dim) for which φ, and sums of its powers, stay
        within float64.
        """
        return min((part.largest_entry(dim) for part in self.parts), default=math.inf)

    @property
    def needs_median(self) -> bool:
        """True if a length is still the word "median"."""
        return any(part.needs_median for part in self.parts)

    def with_median(self, median: float) -> Kernel:
        """The same kernel with "median" replaced by the number."""
        return self

    def with_dimension(self, dim: int) -> Kernel:
        """The same kernel with whatever depends on the number of columns filled in."""
        return self

    @property
    def tilt(self) -> Tilt | None:
        """The weight w of a kernel w(x) w(y) φ; None for a plain one."""
        return None

    @property
    def untilted(self) -> Kernel:
        """The kernel without its weight: the part that is summed over tiles."""
        return self

    def moved(self, by: Array | float) -> Kernel:
        """The kernel for rows from which the point `by` has been subtracted; only a weight
        depends on it.
        """
        return self

    def diagonal(self, rows: Array) -> Array:
        """k(x, x) for every row."""
        dot = self.variable == "dot"
        return self.phi(
            library(rows).einsum("ij,ij->i", rows, rows) if dot else np.zeros(len(rows))
        )

    def pairs(self, x: Array, y: Array) -> Array:
        """k(x_a, y_a) row by row."""
        einsum = library(x).einsum
        if self.variable == "dot":
            return self.phi(einsum("ij,ij->i", x, y))
        gap = x - y
        return self.phi(einsum("ij,ij->i", gap, gap))

    def describe(self) -> str:
        """The kernel in words, for tables and reports."""
        parameters = ", ".join(f"{f.name} {_show(getattr(self, f.name))}" for f in fields(self))
        return f"{type(self).__name__} kernel, {parameters}"

    @property
    def writable(self) -> bool:
        """True if a file can hold the kernel: it cannot if the kernel is made of functions
        or of a matrix.
        """
        return all(part.writable for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form that `kernel_from_dict` reads back; only the description if the
        kernel is not `writable`.
        """
        if not self.writable:
            return {"type": "Recorded", "words": self.describe()}
        return {"type": type(self).__name__} | {
            f.name: _jsonable(getattr(self, f.name)) for f in fields(self)
        }

    def __add__(self, other: object) -> Sum:
        """The sum of two plain kernels of the same variable, itself a kernel; sums of sums
        are flat.
        """
        if not isinstance(other, Kernel):
            return NotImplemented
        for kernel in (self, other):
            if not kernel.plain:
                raise InputError(
                    f"kernel: cannot add {kernel.describe()}; add plain kernels, "
                    f"then tilt the sum"
                )
        if self.variable != other.variable:
            raise InputError("kernel: cannot add a radial kernel and a function of x·y")
        left, right = (
            kernel.terms if isinstance(kernel, Sum) else (kernel,) for kernel in (self, other)
        )
        return Sum((*left, *right))


class SharedWork(Kernel):
    """A kernel whose φ, φ' and r²φ'' share work: a subclass supplies `weights`, which gives
    them together.
    """

    def phi(self, t: Array) -> Array:
        return self.weights(t, ("phi",))[0]

    def dphi(self, t: Array) -> Array:
        return self.weights(t, ("dphi",))[0]

    def r2ddphi(self, t: Array) -> Array:
        return self.weights(t, ("r2ddphi",))[0]


@dataclass(frozen=True)
class ScaledKernel(Kernel):
    """A radial kernel with one length, the field that `length_field` names, which may be
    "median".
    """

    length_field: ClassVar[str] = "bandwidth"

    def __post_init__(self) -> None:
        check_length(self.length_field, getattr(self, self.length_field))

    @property
    def length(self) -> float:
        return float(known(self.length_field, getattr(self, self.length_field)))

    @property
    def needs_median(self) -> bool:
        return bool(getattr(self, self.length_field) == "median")

    def with_median(self, median: float) -> Self:
        return replace(self, **{self.length_field: median}) if self.needs_median else self


@dataclass(frozen=True)
class Sum(SharedWork):
    """The sum of kernels, made by ``+``."""

    terms: tuple[Kernel, ...]

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        total = self.terms[0].weights(t, which)
        for term in self.terms[1:]:
            total = tuple(a + b for a, b in zip(total, term.weights(t, which), strict=True))
        return total

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return self.terms

    @property
    def variable(self) -> Variable:
        return self.terms[0].variable

    def with_median(self, median: float) -> Sum:
        return Sum(tuple(term.with_median(median) for term in self.terms))

    def with_dimension(self, dim: int) -> Sum:
        return Sum(tuple(term.with_dimension(dim) for term in self.terms))

    def describe(self) -> str:
        return " + ".join(term.describe() for term in self.terms)


def _jsonable(value: Any) -> Any:
    if isinstance(value, Kernel):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_jsonable(item) for item in value] if isinstance(value, tuple) else value


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_show(item) for item in value) + ")"
    return plain_number(value) if isinstance(value, float) else str(value)


def check_length(argument: str, value: object) -> None:
    """Refuse a length that is neither a positive finite number nor "median"."""
    if not (isinstance(value, str) and value == "median"):
        check_positive(argument, value, 'a positive finite number or "median"')


def known(argument: str, value: Any, how: str = "with_median(number)") -> Any:
    """The value of an argument that must no longer be the word "median"."""
    if isinstance(value, str):
        raise InputError(f'{argument}: still "median"; call {how} before using the kernel')
    return value


def check_positive(
    argument: str, value: object, expected: str = "a positive finite number"
) -> None:
    """Refuse anything but a positive finite number."""
    check_number(argument, value, 0.0, math.inf, expected)


def median_distance(points: Any) -> float:
    """The median pairwise distance of the rows (s, d) of an already drawn subsample, an
    array or a tensor.

    With many repeated rows the median is 0; then it is the mean distance of the distinct
    pairs. Rows that all coincide are refused.
    """
    scale = float(abs(points).max()) or 1.0
    # Scaled so that squares neither overflow nor vanish for data of size 1e±300.
    distances = _pairwise_distances(points / scale)
    if not len(distances) or distances.max() == 0.0:
        raise InputError(
            "reference and models: expected at least two distinct rows, all "
            "pooled rows coincide"
        )
    middle = float(medians(distances[:, None])[0])
    return scale * (middle if middle > 0.0 else float(distances[distances > 0.0].mean()))


def _pairwise_distances(rows: Any) -> Any:
    """The distances of all pairs a < b; with many columns a matrix product is faster than
    pdist.
    """
    if not isinstance(rows, np.ndarray):
        return library(rows).nn.functional.pdist(rows)
    if rows.shape[1] <= 64:
        from scipy.spatial.distance import (
            pdist,  # here, because it takes a tenth of a second to import
        )

        return np.asarray(pdist(rows))
    norms = np.einsum("ij,ij->i", rows, rows)
    upper = np.triu(np.ones((len(rows), len(rows)), dtype=bool), 1)
    total = (norms[:, None] + norms)[upper]
    squares = total - 2.0 * (rows @ rows.T)[upper]
    # Equal rows must be at distance 0 exactly, or repeated rows go unnoticed because of
    # rounding.
    near = np.flatnonzero(squares <= 1e-12 * total)
    first, second = (index[near] for index in np.nonzero(upper))
    squares[near] = np.square(rows[first] - rows[second]).sum(axis=1)
    return np.asarray(np.sqrt(squares))
