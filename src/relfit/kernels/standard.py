"""The named kernels: Gaussian, inverse multiquadric, rational quadratic and Matérn of r²,
polynomial of x·y.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from relfit.kernels.base import (
    Kernel,
    Length,
    Power,
    ScaledKernel,
    SharedWork,
    Variable,
    Weight,
    check_positive,
)
from relfit.util.arrays import Array, library
from relfit.util.checks import check_number, check_whole
from relfit.util.errors import InputError

# Variances (of UME, of tilted kernels) sum the fourth powers of kernel values, which must stay
# within float64.
LARGEST_VALUE = 1e70


@dataclass(frozen=True)
class Gaussian(ScaledKernel, SharedWork):
    """``k = exp(−r²/(2b²))`` with bandwidth b, a number or "median".

    >>> Gaussian(2.0).phi(np.array([0.0, 8.0]))
    array([1.        , 0.36787944])
    """

    bandwidth: Length = "median"
    unit_rate: ClassVar[float] = -0.5

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """With one exponential: φ' = −φ/(2b²) and r²φ'' = r²φ/(4b⁴)."""
        phi = cast(Array, library(t).exp(t / (-2.0 * self.length**2)))
        out = {"phi": phi}
        if "dphi" in which:
            out["dphi"] = -0.5 / self.length**2 * phi
        if "r2ddphi" in which:
            out["r2ddphi"] = t * (0.25 / self.length**4 * phi)
        return tuple(out[name] for name in which)


@dataclass(frozen=True)
class IMQ(ScaledKernel, SharedWork):
    """Inverse multiquadric ``k = (c² + r²)^e`` with scale c (a number or "median") and
    exponent e < 0.

    >>> IMQ().phi(np.array([0.0, 3.0]))
    array([1. , 0.5])
    """

    scale: Length = 1.0
    exponent: float = -0.5
    length_field: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("exponent of IMQ", self.exponent, -math.inf, 0.0, "a number below 0")

    @property
    def power(self) -> Power:
        """c^2e (1 + r²/c²)^e."""
        square = self.length**2
        return Power(square**self.exponent, 1.0, 1.0 / square, self.exponent)

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """φ, φ' and r²φ'' share one power: φ' = eφ/(c²+r²) and r²φ'' = (e−1)φ' r²/(c²+r²)."""
        base = self.length**2 + t
        # np.power is an order of magnitude slower than a square root and a division.
        phi = 1.0 / library(base).sqrt(base) if self.exponent == -0.5 else base**self.exponent
        out: dict[str, Array] = {"phi": phi}
        if "dphi" in which or "r2ddphi" in which:
            out["dphi"] = self.exponent * phi / base
        if "r2ddphi" in which:
            out["r2ddphi"] = (self.exponent - 1.0) * out["dphi"] * (t / base)
        return tuple(out[name] for name in which)


@dataclass(frozen=True)
class RationalQuadratic(ScaledKernel):
    """``k = (1 + r²/(2αb²))^(−α)`` with bandwidth b (a number or "median") and α > 0:
    Gaussians of many widths.

    >>> RationalQuadratic(1.0, 1.0).phi(np.array([0.0, 2.0]))
    array([1. , 0.5])
    """

    bandwidth: Length = "median"
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("alpha of RationalQuadratic", self.alpha)

    @property
    def power(self) -> Power:
        return Power(1.0, 1.0, 0.5 / (self.alpha * self.length**2), -self.alpha)

    def phi(self, t: Array) -> Array:
        return self._base(t) ** -self.alpha

    def dphi(self, t: Array) -> Array:
        """−(1 + r²/(2αb²))^(−α−1) / (2b²)."""
        return -0.5 / self.length**2 * self._base(t) ** (-self.alpha - 1.0)

    def r2ddphi(self, t: Array) -> Array:
        """r² (α+1)/(4αb⁴) (1 + r²/(2αb²))^(−α−2)."""
        return t * (
            (self.alpha + 1.0)
            / (4.0 * self.alpha * self.length**4)
            * self._base(t) ** (-self.alpha - 2.0)
        )

    def _base(self, t: Array) -> Array:
        return 1.0 + t / (2.0 * self.alpha * self.length**2)


@dataclass(frozen=True)
class Matern(ScaledKernel, SharedWork):
    """Matérn kernel of smoothness ν = ½, 3/2 or 5/2; with a = √(2ν) r/b, k is e^−a,
    (1+a)e^−a or (1+a+a²/3)e^−a.

    KSD takes 3/2 and 5/2. For 3/2 φ'' is infinite at r = 0 while r²φ'' = 3a e^−a/(4b²) is 0
    there.

    >>> Matern(0.5, 1.0).phi(np.array([0.0, 1.0]))
    array([1.        , 0.36787944])
    """

    smoothness: float = 1.5
    bandwidth: Length = "median"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smoothness not in (0.5, 1.5, 2.5):
            raise InputError(
                f"smoothness of Matern: expected 0.5, 1.5 or 2.5, got {self.smoothness!r}"
            )

    @property
    def smooth(self) -> bool:
        return self.smoothness > 0.5

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """φ, φ' and r²φ'' are polynomials of a times e^−a.

        φ' is −3e^−a/(2b²) for 3/2 and −5(1+a)e^−a/(6b²) for 5/2; r²φ'' is 3a e^−a/(4b²) and
        5a²e^−a/(12b²).
        """
        a = library(t).sqrt(2.0 * self.smoothness * t) / self.length
        decay = library(a).exp(-a)
        return tuple(self._polynomial(name, a) * decay for name in which)

    def _polynomial(self, name: Weight, a: Array) -> Array | float:
        once = self.smoothness == 1.5
        if name == "phi":
            if self.smoothness == 0.5:
                return 1.0
            return 1.0 + a if once else 1.0 + a + a**2 / 3.0
        if not self.smooth:
            raise InputError(
                "kernel: Matern with smoothness 0.5 has no derivative at 0; KSD "
                "takes 1.5 or 2.5"
            )
        if name == "dphi":
            factor = -1.5 if once else -5.0 / 6.0 * (1.0 + a)
        else:
            factor = 0.75 * a if once else 5.0 / 12.0 * a**2
        return factor / self.length**2


@dataclass(frozen=True)
class Polynomial(Kernel):
    """``k = (γ x·y + c)^p``, with γ = 1/d unless given; the default is the cubic kernel of KID.

    ``Polynomial(1, offset=0.0)`` is linear. For MMD only. It compares moments up to order p
    and nothing else: models that agree in those have the same discrepancy, however different
    they are.

    >>> Polynomial(scale=0.5).phi(np.array([2.0]))
    array([8.])
    """

    degree: int = 3
    offset: float = 1.0
    scale: float | None = None
    variable: ClassVar[Variable] = "dot"
    smooth: ClassVar[bool] = False  # KSD is written for radial kernels

    def __post_init__(self) -> None:
        check_whole("degree of Polynomial", self.degree, 1)
        check_number(
            "offset of Polynomial",
            self.offset,
            0.0,
            np.inf,
            "a number of at least 0",
            low_ok=True,
        )
        if self.scale is not None:
            check_positive("scale of Polynomial", self.scale)

    def with_dimension(self, dim: int) -> Polynomial:
        return self if self.scale is not None else replace(self, scale=1.0 / dim)

    def largest_entry(self, dim: int) -> float:
        """The A for which (γ dim A² + c)^p, the largest possible |k|, is LARGEST_VALUE; 0 if
        c alone is too large.

        >>> f"{Polynomial(2, offset=0.0).with_dimension(7).largest_entry(7):.3g}"  # A⁴ = 1e70
        '3.16e+17'
        """
        largest_dot = max(LARGEST_VALUE ** (1.0 / self.degree) - self.offset, 0.0)
        # However small γ is, A² must be within float64 too.
        return min(
            math.sqrt(largest_dot) / math.sqrt(self.power.slope) / math.sqrt(dim), LARGEST_VALUE
        )

    @property
    def power(self) -> Power:
        if self.scale is None:
            raise InputError(
                "scale of Polynomial: depends on the data; call "
                "with_dimension(d) before using the kernel"
            )
        return Power(1.0, self.offset, self.scale, float(self.degree))

    def phi(self, t: Array) -> Array:
        base = self.power.slope * t + self.offset
        out = base * 1.0
        for _ in range(self.degree - 1):
            out *= base  # np.power is far slower for small whole powers
        return out
