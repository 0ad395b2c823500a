"""Kernels of the inner product: the polynomial kernel of KID."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from relfit.backends.base import Power, Variable
from relfit.errors import InputError
from relfit.kernels.base import Array, Kernel, check_positive

# Kernel values up to this: sums of their fourth powers, which variances take (UME, tilted), stay within float64.
LARGEST_VALUE = 1e70


@dataclass(frozen=True)
class Polynomial(Kernel):
    """``k = (γ x·y + c)^p``, with γ = 1/d unless given; the default is the cubic kernel of KID.

    ``Polynomial(1, offset=0.0)`` is linear. For MMD only, and it compares moments up to order p only: models
    that agree in those are level, however different they are.

    >>> Polynomial(scale=0.5).phi(np.array([2.0]))
    array([8.])
    """

    degree: int = 3
    offset: float = 1.0
    scale: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or self.degree < 1:
            raise InputError(f"degree of Polynomial: expected a whole number of at least 1, got {self.degree!r}")
        if isinstance(self.offset, str) or not 0.0 <= self.offset < np.inf:
            raise InputError(f"offset of Polynomial: expected a number of at least 0, got {self.offset!r}")
        if self.scale is not None:
            check_positive("scale of Polynomial", self.scale)

    @property
    def variable(self) -> Variable:
        """A function of x·y."""
        return "dot"

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """KSD is written for radial kernels."""
        return False

    def with_dimension(self, dim: int) -> Polynomial:
        """The kernel with γ = 1/dim if it was not given."""
        return self if self.scale is not None else replace(self, scale=1.0 / dim)

    def largest_entry(self, dim: int) -> float:
        """The A for which (γ dim A² + c)^p, the most that |k| can be, is LARGEST_VALUE; 0 where c alone is too much.

        >>> f"{Polynomial(2, offset=0.0).with_dimension(7).largest_entry(7):.3g}"  # A⁴ = 1e70
        '3.16e+17'
        """
        room = max(LARGEST_VALUE ** (1.0 / self.degree) - self.offset, 0.0)
        # However small γ is, A² must be within float64 too.
        return min(math.sqrt(room) / math.sqrt(self.power.slope) / math.sqrt(dim), LARGEST_VALUE)

    @property
    def power(self) -> Power:
        """φ is one."""
        if self.scale is None:
            raise InputError("scale of Polynomial: not known yet; call with_dimension(d) before using the kernel")
        return Power(1.0, self.offset, self.scale, float(self.degree))

    def phi(self, t: Array) -> Array:
        """(γt + c)^p."""
        base = self.power.slope * t + self.offset
        out = base * 1.0
        for _ in range(self.degree - 1):
            out *= base  # np.power is far slower for small whole powers
        return out
