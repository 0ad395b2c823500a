"""Pairs of models with 0/1 losses: exact tests and score intervals from their discordant items.

Of n items, b are those on which the first model alone is wrong, and c those on which the
second model alone is wrong. The estimated difference is (b − c)/n. Standard errors vanish
where two models agree on all items, although their error rates may differ; the intervals
here do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc, log_ndtr, ndtri

from relfit.stats.decision import certain_log_pvalue
from relfit.stats.joint import JointEstimate, binary_step, smallest_sample
from relfit.util.arrays import Array

# With fewer discordant items than this, differences have no normal distribution.
FEWEST_DISCORDANT = 10
# Halvings of the interval in which a limit lies: beyond float64's digits for rates.
_HALVINGS = 50


@dataclass(frozen=True)
class PairedBinary:
    """The discordant items of all ordered pairs of models.

    Attributes:
        first: (l, l) b, the items on which model i alone is wrong; model j alone is wrong on
            its transpose.
        items: n.
        step: the loss of a wrong item.
    """

    first: Array
    items: float
    step: float

    @classmethod
    def of(cls, joint: JointEstimate) -> PairedBinary:
        """From values and covariance: n(D_i − D_j) = b − c and n(n−1)s_ij² + n(D_i − D_j)² =
        b + c.
        """
        n = float((joint.sizes or (0,))[0])
        step = binary_step(joint)
        gap = (joint.values[:, None] - joint.values) / step
        covariance = joint.covariance / (step * step)
        variance = np.diag(covariance)
        spread = variance[:, None] + variance - 2.0 * covariance
        discordant = np.rint(n * (n - 1.0) * spread + n * np.square(gap))
        return cls(np.rint((discordant + n * gap) / 2.0), n, step)

    @property
    def discordant(self) -> Array:
        """(l, l) b + c."""
        return np.asarray(self.first + self.first.T)

    def sign_test_points(self) -> tuple[Array, Array]:
        """(l, l) the normal points of the exact sign tests of "i is no worse than j", and
        the largest ones possible.

        If both models are equally good, b is binomial(b + c, ½) given b + c. Infinite where
        the items are not few.
        """
        count = self.discordant
        few = (count > 0.0) & (count < FEWEST_DISCORDANT)
        tail = bdtrc(self.first - 1.0, np.where(few, count, 1.0).astype(int), 0.5)
        points = np.where(few, -ndtri(np.where(few, tail, 0.5)), math.inf)
        largest = np.where(
            count < FEWEST_DISCORDANT, -ndtri(0.5 ** np.maximum(count, 1.0)), math.inf
        )
        np.fill_diagonal(largest, math.inf)
        return points, largest

    def score(self, difference: Array | float) -> Array:
        """(l, l) Tango's (1998) score statistic of D_i − D_j = δ, for 0 ≤ |δ| < 1 in units
        of `step`.

        (b − c − nδ)/√(n(2q + δ(1 − δ))), with q the maximum likelihood estimate of the rate
        of c for this δ.
        """
        b = self.first
        c = self.first.T
        n = self.items
        linear = -b - c + (2.0 * n - b + c) * difference
        constant = -c * difference * (1.0 - difference)
        root = np.sqrt(np.maximum(np.square(linear) - 8.0 * n * constant, 0.0))
        rate = (root - linear) / (4.0 * n)
        variance = np.maximum(n * (2.0 * rate + difference * (1.0 - difference)), 0.0)
        excess = b - c - n * difference
        known = np.where(excess == 0.0, 0.0, np.copysign(math.inf, excess))
        return np.where(
            variance > 0.0, excess / np.sqrt(np.where(variance > 0.0, variance, 1.0)), known
        )

    def upper(self, critical: Array | float) -> Array:
        """(l, l) upper limits of D_i − D_j: the δ at which the score statistic is
        −`critical` (≥ 0).

        >>> pair = PairedBinary(np.zeros((2, 2)), 100.0, 1.0)
        >>> pair.upper(1.96)[0, 1].round(4).item()  # z²/(n + z²) without discordant items
        0.037
        """
        low = (self.first - self.first.T) / self.items
        high = np.ones_like(low)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            inside = self.score(middle) >= -critical
            low = np.where(inside, middle, low)
            high = np.where(inside, high, middle)
        return np.asarray(low * self.step)


def constant_log_pvalues(joint: JointEstimate, margin: float) -> Array:
    """(l, l) log p of "i is no worse than j" where j is better by the same on all rows.

    1/(n + 1). 0/1 losses of which only i's are wrong have the sign test's 2⁻ⁿ, and with a
    margin that of the score statistic.
    """
    if not joint.binary or margin >= binary_step(joint):
        count = len(joint.names)
        return np.full((count, count), certain_log_pvalue(smallest_sample(joint)))
    pairs = PairedBinary.of(joint)
    if margin:
        return np.asarray(log_ndtr(-pairs.score(margin / pairs.step)))
    return np.asarray(-math.log(2.0) * pairs.first)
