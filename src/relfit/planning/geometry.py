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
    """V of every draw (m, l, l), or m = 1 for all; the standard errors s_ij, exactly 0 where nothing varies."""

    covariance: Array
    error: Array

    def certain(self, gap: Array, i: int, j: int) -> Array:
        """p-values of "i is no worse than j" where their difference does not vary: 0 or 1."""
        return _certain(gap, self.covariance[:, i, i] + self.covariance[:, j, j])

    def against(self, best: Rows) -> Against:
        """Every model's difference to the model that a draw selects."""
        draws = np.arange(len(best)) if len(self.covariance) > 1 else 0
        return Against(self.covariance, self.covariance[draws, best], self.error[draws, best], best)


@dataclass(frozen=True)
class Against:
    """Differences D_k − D_J of every draw to its selected model J: Cov(D_J, D_k) and s_kJ are (rows, l)."""

    covariance: Array
    with_best: Array
    error: Array
    best: Rows

    @property
    def variance(self) -> Array:
        """(rows,) V_JJ."""
        return np.asarray(self.with_best[np.arange(len(self.best)), self.best])

    def certain(self, gap: Array, i: int) -> Array:
        """p-values of "i is no worse than J" where their difference does not vary: 0 or 1."""
        return _certain(gap, self.covariance[:, i, i] + self.variance)

    def slopes(self, i: int) -> Array:
        """(rows, l) d_ik = Cov(D_i − D_J, D_k − D_J)/s_iJ², 1 at k = i; 0 where that is rounding.

        NaN where D_k − D_J does not vary: such a model has no part in the test.
        """
        parts = self.covariance[:, i], -self.with_best, -self.with_best[:, [i]], self.variance[:, None]
        joint = parts[0] + parts[1] + parts[2] + parts[3]
        size = np.abs(parts[0]) + np.abs(parts[1]) + np.abs(parts[2]) + np.abs(parts[3])
        own = joint[:, [i]]
        slope = np.where(np.abs(joint) <= _ROUNDING * size, 0.0, joint) / np.where(own > 0.0, own, 1.0)
        slope[:, i] = 1.0
        return np.where(self.error > 0.0, slope, np.nan)


def _certain(gap: Array, total: Array) -> Array:
    return np.where(gap > SAME_VALUE * np.sqrt(total), 0.0, 1.0)


def geometry_of(covariance: Array) -> Geometry:
    """The geometry of covariances (m, l, l), by the rules of `relfit.procedures.differences`."""
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    total = variance[:, :, None] + variance[:, None, :]
    spread = np.maximum(total - 2.0 * covariance, 0.0)
    still = spread <= NO_VARIANCE * total
    still |= np.eye(covariance.shape[1], dtype=bool)
    return Geometry(covariance, np.where(still, 0.0, np.sqrt(spread)))
