"""Showing that a model is no worse than another by more than a margin δ > 0: the other side of the same test.

The test of "D_i − D_J ≤ δ" has a twin, of "D_i − D_J > δ", whose rejection shows equivalence within δ. At the
common boundary D_i − D_J = δ its p-value is the probability of a difference at least as *small* as the one seen.
Only one of the two hypotheses is true, so the two tests together err no more often than either.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from relfit.procedures.corrections import adjust
from relfit.truncnorm import selective_log_pvalue

Array = NDArray[np.float64]


def selective_log_equivalence(t: ArrayLike, s: ArrayLike, lower: ArrayLike, upper: ArrayLike, margin: float) -> Array:
    """log P(T ≤ t) for T ~ N(δ, s²) truncated to [V⁻, V⁺], and no less than without the truncation.

    Given the selection a model can look equivalent because a near tie for best sets V⁻ just below t, however
    large t is. Asking that the plain z test agree leaves no such claim, and the level is kept a fortiori. Where t
    is on a limit there is no information: log p = 0.
    """
    t, s, lower, upper = (np.asarray(value, dtype=float) for value in (t, s, lower, upper))
    given = selective_log_pvalue(margin - t, s, margin - upper, margin - lower)
    given = np.where((lower < t) & (t < upper), given, 0.0)
    return np.asarray(np.maximum(given, log_ndtr((t - margin) / s)))


def equivalent_to(best: int, log_equivalence: Array, alpha: float, correction: str) -> NDArray[np.bool_]:
    """Which models are equivalent to `best`, by the same correction as the verdicts; `best` itself is."""
    others = np.arange(len(log_equivalence)) != best
    shown = np.ones(len(log_equivalence), dtype=bool)
    shown[others] = adjust(np.exp(log_equivalence[others]), correction) <= alpha
    return shown


def known_log_equivalence(gap: float, margin: float) -> float:
    """The same for a difference without variance: it is within the margin, or it is not."""
    return -math.inf if gap <= margin else 0.0
