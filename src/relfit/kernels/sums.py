"""Sums of kernels, and one kernel summed over a grid of bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from relfit.backends.base import Variable, Weight
from relfit.errors import InputError
from relfit.kernels.base import Array, Kernel, Length, ScaledKernel, check_positive, library


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


@dataclass(frozen=True)
class Squared(Kernel):
    """``k²``: the sums of squares that weighed kernels need are sums over this kernel. Not for users."""

    kernel: Kernel

    @property
    def variable(self) -> Variable:
        """That of the kernel."""
        return self.kernel.variable

    @property
    def unit_rate(self) -> float | None:
        """Twice the kernel's."""
        return None if self.kernel.unit_rate is None else 2.0 * self.kernel.unit_rate

    @property
    def length(self) -> float:
        """That of the kernel."""
        return self.kernel.length

    def phi(self, t: Array) -> Array:
        """φ²."""
        return self.kernel.phi(t) ** 2


@dataclass(frozen=True)
class MultiScale(ScaledKernel):
    """``k = Σ_f exp(−r²/(2(fb)²))``: Gaussians whose bandwidths are multiples of b (a number or "median").

    It sees differences at several scales at once, where a single median bandwidth sees the coarse ones only.

    >>> import numpy as np
    >>> MultiScale((1.0, 2.0), 1.0).phi(np.array([0.0, 8.0])).round(4)
    array([2.    , 0.3862])
    """

    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    bandwidth: Length = "median"
    length_field: ClassVar[str] = "bandwidth"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "factors", tuple(self.factors))
        if not self.factors:
            raise InputError("factors of MultiScale: expected at least one, got none")
        for factor in self.factors:
            check_positive("factors of MultiScale", factor)

    @property
    def length(self) -> float:
        """The shortest bandwidth."""
        return super().length * min(self.factors)

    def phi(self, t: Array) -> Array:
        """Σφ."""
        return self.weights(t, ("phi",))[0]

    def dphi(self, t: Array) -> Array:
        """Σφ'."""
        return self.weights(t, ("dphi",))[0]

    def ddphi(self, t: Array) -> Array:
        """Σφ''."""
        total: Array = library(t).zeros_like(t)
        for b in self._bandwidths():
            total = total + 0.25 / b**4 * library(t).exp((-0.5 / b**2) * t)
        return total

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """One exponential a bandwidth gives every weight."""
        arrays = library(t)
        total = {name: arrays.zeros_like(t) for name in which}
        for b in self._bandwidths():
            phi = arrays.exp((-0.5 / b**2) * t)
            for name, into in total.items():
                into += phi if name == "phi" else phi * (-0.5 / b**2) if name == "dphi" else phi * t * (0.25 / b**4)
        return tuple(total[name] for name in which)

    def _bandwidths(self) -> list[float]:
        return [factor * super(MultiScale, self).length for factor in self.factors]


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
