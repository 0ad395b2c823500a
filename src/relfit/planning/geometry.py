"""Covariances of many draws of l estimates, and the differences between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.procedures.decision import NO_VARIANCE, SAME_VALUE

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# A slope this small beside the terms it is the difference of is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Geometry:
    """V of every draw, diag(u) M diag(u) + N: `still` N and `moving` M are (l, l), `scale` u is (rows, l).

    Without a scale V is N in all draws. What depends on the draw has a first axis of rows, otherwise of 1.
    """

    still: Array
    moving: Array | None = None
    scale: Array | None = None

    def column(self, i: int | Rows) -> Array:
        """(rows, l) Cov(D_i, D_k) for all k; i is one model, or one for every draw."""
        still = np.atleast_2d(self.still[i])
        if self.scale is None or self.moving is None:
            return still
        own = self.scale[np.arange(len(self.scale)), i]
        return np.asarray(own[:, None] * self.moving[i] * self.scale + still)

    @property
    def variance(self) -> Array:
        """(rows, l) V_kk."""
        if self.scale is None or self.moving is None:
            return np.diag(self.still)[None]
        return np.asarray(self.scale**2 * np.diag(self.moving) + np.diag(self.still))

    def against(self, i: int | Rows) -> Against:
        """All differences to model i, or to one for every draw."""
        column, variance = self.column(i), self.variance
        own = np.take_along_axis(column, np.full((len(column), 1), i) if isinstance(i, int) else i[:, None], axis=1)
        total = variance + own
        spread = np.maximum(total - 2.0 * column, 0.0)
        return Against(self, column, own, np.where(spread <= NO_VARIANCE * total, 0.0, np.sqrt(spread)))


@dataclass(frozen=True)
class Against:
    """Differences to a model J: Cov(D_J, D_k) and the standard errors s_kJ (rows, l), exactly 0 where nothing varies.

    `variance` is V_JJ (rows, 1).
    """

    geometry: Geometry
    column: Array
    variance: Array
    error: Array

    def certain(self, gap: Array, k: int) -> Array:
        """p-values of "no worse" for a gap to or from model k that does not vary: 0 or 1."""
        total = self.geometry.variance[:, k] + self.variance[:, 0]
        return np.where(gap > SAME_VALUE * np.sqrt(total), 0.0, 1.0)

    def slopes(self, i: int) -> Array:
        """(rows, l) d_ik = Cov(D_i − D_J, D_k − D_J)/s_iJ², 1 at k = i; 0 where that is rounding.

        NaN where D_k − D_J does not vary: such a model has no part in the test.
        """
        parts = self.geometry.column(i), -self.column, -self.column[:, [i]], self.variance
        joint = parts[0] + parts[1] + parts[2] + parts[3]
        size = np.abs(parts[0]) + np.abs(parts[1]) + np.abs(parts[2]) + np.abs(parts[3])
        own = joint[:, [i]]
        slope = np.where(np.abs(joint) <= _ROUNDING * size, 0.0, joint) / np.where(own > 0.0, own, 1.0)
        slope[:, i] = 1.0
        return np.where(self.error > 0.0, slope, np.nan)


def difference_errors(covariance: Array) -> Array:
    """(l, l) standard errors of all differences, by the rules of `relfit.procedures.differences`."""
    return np.vstack([Geometry(covariance).against(i).error for i in range(len(covariance))])
