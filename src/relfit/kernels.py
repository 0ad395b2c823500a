"""Kernels as frozen values, and the median bandwidth.

A radial kernel is ``k(x, y) = φ(r²)`` with ``r² = ‖x − y‖²``. It supplies φ, φ' and φ'' as functions
of r²; MMD needs φ only, KSD needs ``r²φ''`` too. Kernels add: ``Gaussian(1.0) + IMQ()``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from relfit.backends.base import Weight
from relfit.errors import InputError

Array = NDArray[np.float64]
Length = float | Literal["median"]


class Kernel(ABC):
    """A radial kernel φ(r²): an immutable value with ``phi``, ``dphi``, ``ddphi`` and ``+``."""

    @property
    def unit_rate(self) -> float | None:
        """The number q with φ(r²) = exp(q r²/length²), or None when φ is not of that form.

        Then φ' = (q/length²)φ, so that every sum KSD needs follows from φ alone.
        """
        return None

    @property
    @abstractmethod
    def length(self) -> float:
        """The shortest distance over which the kernel changes noticeably."""

    @property
    @abstractmethod
    def needs_median(self) -> bool:
        """Whether a length is still the word "median"."""

    @abstractmethod
    def with_median(self, median: float) -> Kernel:
        """The same kernel with "median" replaced by the number."""

    @abstractmethod
    def phi(self, r2: Array) -> Array:
        """φ(r²)."""

    @abstractmethod
    def dphi(self, r2: Array) -> Array:
        """φ'(r²), the derivative by r²."""

    @abstractmethod
    def ddphi(self, r2: Array) -> Array:
        """φ''(r²), the second derivative by r²."""

    @abstractmethod
    def describe(self) -> str:
        """The kernel in words, for tables and reports."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; `kernel_from_dict` reads it back."""

    def weights(self, r2: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """The asked-for functions of r², on one tile."""
        formulas = {"phi": self.phi, "dphi": self.dphi, "r2ddphi": self._r2ddphi}
        return tuple(formulas[name](r2) for name in which)

    def _r2ddphi(self, r2: Array) -> Array:
        return r2 * self.ddphi(r2)

    def __add__(self, other: object) -> Sum:
        """The sum of two kernels, itself a kernel."""
        if not isinstance(other, Kernel):
            return NotImplemented
        return Sum((*_terms(self), *_terms(other)))


@dataclass(frozen=True)
class Gaussian(Kernel):
    """``k = exp(−r²/(2b²))`` with bandwidth b, a number or "median".

    >>> Gaussian(2.0).phi(np.array([0.0, 8.0]))
    array([1.        , 0.36787944])
    """

    bandwidth: Length = "median"

    def __post_init__(self) -> None:
        _check_length("bandwidth", self.bandwidth)

    @property
    def unit_rate(self) -> float:
        """−1/2."""
        return -0.5

    @property
    def length(self) -> float:
        """The bandwidth b."""
        return _number("bandwidth", self.bandwidth)

    @property
    def needs_median(self) -> bool:
        """Whether the bandwidth is still to be computed from the data."""
        return self.bandwidth == "median"

    def with_median(self, median: float) -> Gaussian:
        """The kernel with bandwidth `median` if it was "median"."""
        return replace(self, bandwidth=median) if self.needs_median else self

    def phi(self, r2: Array) -> Array:
        """exp(−r²/(2b²))."""
        return np.asarray(np.exp(-0.5 * r2 / self.length**2))

    def dphi(self, r2: Array) -> Array:
        """−φ/(2b²)."""
        return -0.5 / self.length**2 * self.phi(r2)

    def ddphi(self, r2: Array) -> Array:
        """φ/(4b⁴)."""
        return 0.25 / self.length**4 * self.phi(r2)

    def describe(self) -> str:
        """For example "Gaussian kernel, bandwidth 1.12"."""
        return f"Gaussian kernel, bandwidth {_show(self.bandwidth)}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        return {"type": "Gaussian", "bandwidth": self.bandwidth}


@dataclass(frozen=True)
class IMQ(Kernel):
    """Inverse multiquadric ``k = (c² + r²)^e`` with scale c (a number or "median") and exponent e < 0.

    >>> IMQ().phi(np.array([0.0, 3.0]))
    array([1. , 0.5])
    """

    scale: Length = 1.0
    exponent: float = -0.5

    def __post_init__(self) -> None:
        _check_length("scale", self.scale)
        if not (isinstance(self.exponent, int | float) and -math.inf < self.exponent < 0):
            raise InputError(f"exponent of IMQ: expected a number below 0, got {self.exponent!r}")

    @property
    def length(self) -> float:
        """The scale c."""
        return _number("scale", self.scale)

    @property
    def needs_median(self) -> bool:
        """Whether the scale is still to be computed from the data."""
        return self.scale == "median"

    def with_median(self, median: float) -> IMQ:
        """The kernel with scale `median` if it was "median"."""
        return replace(self, scale=median) if self.needs_median else self

    def phi(self, r2: Array) -> Array:
        """(c² + r²)^e."""
        return self._power(self.length**2 + r2)

    def dphi(self, r2: Array) -> Array:
        """e (c² + r²)^(e−1)."""
        return self.weights(r2, ("dphi",))[0]

    def ddphi(self, r2: Array) -> Array:
        """e(e−1) (c² + r²)^(e−2)."""
        base = self.length**2 + r2
        return self.exponent * (self.exponent - 1.0) * self._power(base) / base**2

    def weights(self, r2: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """φ, φ' and r²φ'' share one power: φ' = eφ/(c²+r²)."""
        base = self.length**2 + r2
        phi = self._power(base)
        out: dict[str, Array] = {"phi": phi}
        if "dphi" in which or "r2ddphi" in which:
            out["dphi"] = self.exponent * phi / base
        if "r2ddphi" in which:
            out["r2ddphi"] = (self.exponent - 1.0) * out["dphi"] * (r2 / base)
        return tuple(out[name] for name in which)

    def describe(self) -> str:
        """For example "IMQ kernel, scale 1, exponent -0.5"."""
        return f"IMQ kernel, scale {_show(self.scale)}, exponent {self.exponent:g}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        return {"type": "IMQ", "scale": self.scale, "exponent": self.exponent}

    def _power(self, base: Array) -> Array:
        # np.power is an order of magnitude slower than a square root and a division.
        return np.asarray(1.0 / np.sqrt(base) if self.exponent == -0.5 else base**self.exponent)


@dataclass(frozen=True)
class Sum(Kernel):
    """The sum of kernels, made by ``+``."""

    terms: tuple[Kernel, ...]

    @property
    def length(self) -> float:
        """The shortest length among the terms."""
        return min(term.length for term in self.terms)

    @property
    def needs_median(self) -> bool:
        """Whether any term still needs the median."""
        return any(term.needs_median for term in self.terms)

    def with_median(self, median: float) -> Sum:
        """The sum with "median" replaced in every term."""
        return Sum(tuple(term.with_median(median) for term in self.terms))

    def phi(self, r2: Array) -> Array:
        """Σφ."""
        return self.weights(r2, ("phi",))[0]

    def dphi(self, r2: Array) -> Array:
        """Σφ'."""
        return self.weights(r2, ("dphi",))[0]

    def ddphi(self, r2: Array) -> Array:
        """Σφ''."""
        return np.asarray(sum(term.ddphi(r2) for term in self.terms))

    def weights(self, r2: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """Each weight added up over the terms."""
        total = [np.array(w) for w in self.terms[0].weights(r2, which)]
        for term in self.terms[1:]:
            for into, weight in zip(total, term.weights(r2, which), strict=True):
                into += weight
        return tuple(total)

    def describe(self) -> str:
        """The terms in words, joined by "+"."""
        return " + ".join(term.describe() for term in self.terms)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        return {"type": "Sum", "terms": [term.to_dict() for term in self.terms]}


def kernel_from_dict(data: Mapping[str, Any]) -> Kernel:
    """The kernel that ``to_dict`` described."""
    kinds: dict[str, type[Kernel]] = {"Gaussian": Gaussian, "IMQ": IMQ}
    fields = dict(data)
    kind = fields.pop("type", None)
    if kind == "Sum":
        return Sum(tuple(kernel_from_dict(term) for term in fields["terms"]))
    if kind not in kinds:
        raise InputError(f"kernel: expected a type among {sorted(kinds)} or Sum, got {kind!r}")
    return kinds[kind](**fields)


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


def _terms(kernel: Kernel) -> tuple[Kernel, ...]:
    return kernel.terms if isinstance(kernel, Sum) else (kernel,)


def _check_length(argument: str, value: object) -> None:
    if value == "median":
        return
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise InputError(f'{argument}: expected a positive number or "median", got {value!r}')
    if not 0.0 < float(value) < math.inf:
        raise InputError(f"{argument}: expected a positive finite number, got {float(value):g}")


def _number(argument: str, value: Length) -> float:
    if isinstance(value, str):
        raise InputError(f'{argument}: still "median"; call with_median(number) before evaluating the kernel')
    return float(value)


def _show(value: Length) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"
