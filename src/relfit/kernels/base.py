"""The narrow interface between the plan of tiles and the library that does the arithmetic."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
from scipy.spatial.distance import pdist

from relfit.util.arrays import Array, host, library
from relfit.util.errors import InputError

Weight = Literal["phi", "dphi", "r2ddphi"]
Variable = Literal["r2", "dot"]


class Power(NamedTuple):
    """φ(t) = peak · (offset + slope · t)^exponent."""

    peak: float
    offset: float
    slope: float
    exponent: float


# --------------------
# What a kernel is: an immutable value with φ, φ' and φ'', and ``+``.

Length = float | Literal["median"]


@dataclass(frozen=True)
class Kernel(ABC):
    """A kernel k(x, y) = φ(t), with t = r² = ‖x − y‖² (radial) or t = x·y; an immutable value that adds.

    Radial kernels supply φ' and φ'' by r² too, which KSD needs.
    """

    # Whether r²φ'' exists at r = 0, so that KSD may use the kernel.
    smooth: ClassVar[bool] = True
    # Whether the kernel is φ(t) and nothing else, so that it can be added to others and tilted.
    plain: ClassVar[bool] = True

    @property
    def variable(self) -> Variable:
        """What φ is a function of: "r2" or "dot"."""
        return "r2"

    @property
    def unit_rate(self) -> float | None:
        """The number q with φ(r²) = exp(q r²/length²), or None when φ is not of that form.

        Then φ' = (q/length²)φ, so that every sum KSD needs follows from φ alone.
        """
        return None

    @property
    def power(self) -> Power | None:
        """φ as a power of t, or None when it is none."""
        return None

    @property
    def length(self) -> float:
        """The shortest distance over which the kernel changes noticeably."""
        return math.inf

    def largest_entry(self, dim: int) -> float:
        """Rows (n, dim) of numbers up to this size keep φ, and sums of its powers, within float64."""
        return math.inf

    @property
    def needs_median(self) -> bool:
        """Whether a length is still the word "median"."""
        return False

    def with_median(self, median: float) -> Kernel:
        """The same kernel with "median" replaced by the number."""
        return self

    @property
    def needs_centre(self) -> bool:
        """Whether the centre of a weight is still the word "median"."""
        return False

    def with_centre(self, centre: Array) -> Kernel:
        """The same kernel with that "median" replaced by a point (d,)."""
        return self

    @property
    def tilt(self) -> Tilt | None:
        """The weight w of a kernel w(x) w(y) φ; None for a plain one."""
        return None

    @property
    def untilted(self) -> Kernel:
        """The kernel without its weight, which is what tiles are made of."""
        return self

    def moved(self, by: Array | float) -> Kernel:
        """The kernel for rows from which the point `by` has been subtracted; only a weight notices."""
        return self

    @property
    def writable(self) -> bool:
        """Whether a file can hold the kernel: not if it is made of functions or of a matrix."""
        return True

    def with_dimension(self, dim: int) -> Kernel:
        """The same kernel with whatever depends on the number of columns filled in."""
        return self

    @abstractmethod
    def phi(self, t: Array) -> Array:
        """φ(t)."""

    def dphi(self, t: Array) -> Array:
        """φ'(t)."""
        raise InputError(f"kernel: {self.describe()} has no derivative by r²")

    def ddphi(self, t: Array) -> Array:
        """φ''(t)."""
        raise InputError(f"kernel: {self.describe()} has no second derivative by r²")

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """The asked-for functions of t, on one tile."""
        formulas = {"phi": self.phi, "dphi": self.dphi, "r2ddphi": self._r2ddphi}
        return tuple(formulas[name](t) for name in which)

    def diagonal(self, rows: Array) -> Array:
        """k(x, x) for every row."""
        dot = self.variable == "dot"
        return self.phi(host(library(rows).einsum("ij,ij->i", rows, rows)) if dot else np.zeros(len(rows)))

    def pairs(self, x: Array, y: Array) -> Array:
        """k(x_a, y_a) row by row."""
        if self.variable == "dot":
            return self.phi(np.einsum("ij,ij->i", x, y))
        gap = x - y
        return self.phi(np.einsum("ij,ij->i", gap, gap))

    def describe(self) -> str:
        """The kernel in words, for tables and reports."""
        words = ", ".join(f"{item.name} {_show(getattr(self, item.name))}" for item in fields(self))
        return f"{type(self).__name__} kernel, {words}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; `kernel_from_dict` reads it back, as its words alone where it is not `writable`."""
        if not self.writable:
            return {"type": "Recorded", "words": self.describe()}
        return {"type": type(self).__name__, **{item.name: _plain(getattr(self, item.name)) for item in fields(self)}}

    def __add__(self, other: object) -> Sum:
        """The sum of two kernels, itself a kernel."""
        pass

        return add(self, other) if isinstance(other, Kernel) else NotImplemented

    def _r2ddphi(self, t: Array) -> Array:
        return t * self.ddphi(t)


@dataclass(frozen=True)
class ScaledKernel(Kernel):
    """A radial kernel with one length, which may be "median"."""

    length_field: ClassVar[str] = "length"

    def __post_init__(self) -> None:
        check_length(self.length_field, getattr(self, self.length_field))

    @property
    def length(self) -> float:
        """The kernel's length."""
        value = getattr(self, self.length_field)
        if isinstance(value, str):
            raise InputError(f'{self.length_field}: still "median"; call with_median(number) before using the kernel')
        return float(value)

    @property
    def needs_median(self) -> bool:
        """Whether the length is still to be computed from the data."""
        return bool(getattr(self, self.length_field) == "median")

    def with_median(self, median: float) -> Self:
        """The kernel with length `median` if it was "median"."""
        changes: dict[str, Any] = {self.length_field: median}
        return replace(self, **changes) if self.needs_median else self


class Tilt(Protocol):
    """A positive weight of the rows."""

    def weights(self, rows: Array, /) -> Array:
        """w(x) for every row (n,)."""

    def gradient(self, rows: Array, /) -> Array:
        """∇ log w at every row (n, d)."""


def check_length(argument: str, value: object) -> None:
    """Refuse a length that is neither a positive number nor "median"."""
    if isinstance(value, str) and value == "median":
        return
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise InputError(f'{argument}: expected a positive number or "median", got {value!r}')
    if not 0.0 < float(value) < math.inf:
        raise InputError(f"{argument}: expected a positive finite number, got {float(value):g}")


def check_positive(argument: str, value: object) -> None:
    """Refuse anything but a positive finite number."""
    if isinstance(value, str):
        raise InputError(f"{argument}: expected a positive number, got {value!r}")
    check_length(argument, value)


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_show(item) for item in value) + ")"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


# --------------------
# Sums of kernels, and one kernel summed over a grid of bandwidths.


@dataclass(frozen=True)
class Sum(Kernel):
    """The sum of kernels, made by ``+``."""

    terms: tuple[Kernel, ...]

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether every term is."""
        return all(term.smooth for term in self.terms)

    @property
    def variable(self) -> Variable:
        """The variable its terms share."""
        return self.terms[0].variable

    @property
    def length(self) -> float:
        """The shortest length among the terms."""
        return min(term.length for term in self.terms)

    def largest_entry(self, dim: int) -> float:
        """The smallest among the terms'."""
        return min(term.largest_entry(dim) for term in self.terms)

    @property
    def writable(self) -> bool:
        """Whether every term is."""
        return all(term.writable for term in self.terms)

    @property
    def needs_median(self) -> bool:
        """Whether any term still needs the median."""
        return any(term.needs_median for term in self.terms)

    def with_median(self, median: float) -> Sum:
        """The sum with "median" replaced in every term."""
        return Sum(tuple(term.with_median(median) for term in self.terms))

    def with_dimension(self, dim: int) -> Sum:
        """The sum with the dimension filled in in every term."""
        return Sum(tuple(term.with_dimension(dim) for term in self.terms))

    def phi(self, t: Array) -> Array:
        """Σφ."""
        return self.weights(t, ("phi",))[0]

    def dphi(self, t: Array) -> Array:
        """Σφ'."""
        return self.weights(t, ("dphi",))[0]

    def ddphi(self, t: Array) -> Array:
        """Σφ''."""
        first, *others = (term.ddphi(t) for term in self.terms)
        return sum(others, start=first)

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """Each weight added up over the terms."""
        total = self.terms[0].weights(t, which)
        for term in self.terms[1:]:
            total = tuple(a + b for a, b in zip(total, term.weights(t, which), strict=True))
        return total

    def describe(self) -> str:
        """The terms in words, joined by "+"."""
        return " + ".join(term.describe() for term in self.terms)


def add(first: Kernel, second: Kernel) -> Sum:
    """The flat sum of two plain kernels of the same variable."""
    for kernel in (first, second):
        if not kernel.plain:
            raise InputError(f"kernel: cannot add {kernel.describe()}; add plain kernels, then tilt the sum if wanted")
    if first.variable != second.variable:
        raise InputError("kernel: cannot add a radial kernel and a function of x·y")
    return Sum((*_terms(first), *_terms(second)))


def _terms(kernel: Kernel) -> tuple[Kernel, ...]:
    return kernel.terms if isinstance(kernel, Sum) else (kernel,)


# --------------------
# The median distance, the default bandwidth.


def median_distance(points: Array) -> float:
    """The median pairwise distance of the rows (s, d) of an already drawn subsample.

    With many repeated rows the median is 0; then it is the mean distance of the distinct pairs. Rows
    that all coincide are refused.
    """
    scale = float(np.abs(points).max()) or 1.0
    # Scaled so that squares neither overflow nor vanish for data of size 1e±300.
    distances = _pairwise_distances(points / scale)
    if not distances.size or distances.max() == 0.0:
        raise InputError("reference and models: expected at least two distinct rows, all pooled rows coincide")
    middle = float(np.median(distances))
    return scale * (middle if middle > 0.0 else float(distances[distances > 0.0].mean()))


def _pairwise_distances(rows: Array) -> Array:
    if rows.shape[1] <= 64:
        return np.asarray(pdist(rows))
    norms = np.einsum("ij,ij->i", rows, rows)
    upper = np.triu(np.ones((len(rows), len(rows)), dtype=bool), 1)
    total = (norms[:, None] + norms)[upper]
    squares = total - 2.0 * (rows @ rows.T)[upper]
    # Equal rows must be at distance 0 exactly, or atoms are not seen through the rounding.
    near = np.flatnonzero(squares <= 1e-12 * total)
    first, second = (index[near] for index in np.nonzero(upper))
    squares[near] = np.square(rows[first] - rows[second]).sum(axis=1)
    return np.asarray(np.sqrt(squares))
