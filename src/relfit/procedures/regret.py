"""Simultaneous confidence bounds for how much worse than the best each model is.

The regret of model i is R_i = D_i − min_j D_j ≥ 0: 0 for the best, whoever that is. It needs no selected
model, so its bounds hold without conditioning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.estimate import JointEstimate
from relfit.procedures.best_set import DRAWS, FIRST_STEP, moment_selection
from relfit.procedures.differences import Differences, differences, smallest_sample
from relfit.procedures.maxt import Law, law
from relfit.procedures.streams import Source
from relfit.procedures.upper import all_pairs, critical_each, upper_regret

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RegretBounds:
    """One-sided bounds, (l,) each: all R_i ≥ lower with probability `level`, all R_i ≤ upper likewise.

    A two-sided interval at 95% takes both at level 0.975.
    """

    lower: Array
    upper: Array
    level: float
    method: str


def regret_bounds(
    joint: JointEstimate,
    level: float = 0.95,
    *,
    rng: Source,
    draws: int = DRAWS,
    method: str = "auto",
    simultaneous: bool = True,
) -> RegretBounds:
    """Confidence bounds for R_i = D_i − min_j D_j, in the units of D.

    Write N_ij = (D̂_i − D̂_j − (D_i − D_j))/s_ij.

    *Lower.* If N_ij ≤ d for all pairs, then for every i and j R_i ≥ D_i − D_j ≥ D̂_i − D̂_j − d s_ij, so
    ``R_i ≥ max(0, max_j (D̂_i − D̂_j − d s_ij))``, with d the quantile of max_ij N_ij. But R_i exceeds D_i − D_j
    by R_j: the bound fails only through a pair with N_ij − R_j/s_ij > d. So a first step spends a tenth of
    the error on such bounds r_j of all R_j, and d is the quantile of max_ij (N_ij − r_j/s_ij) at the level that
    is left: where r_j ≤ R_j for all j it is large enough. Models far from the best cost next to nothing. With
    ``simultaneous=False`` each model has its own d_i, from the j ∈ K_i of the best set: the bound is above 0
    exactly where its p-value is below 1 − level.

    *Upper*: `upper_regret`, always simultaneous. A model with upper bound ≤ δ is shown to be as good as the best,
    within δ.

    >>> joint = JointEstimate(("a", "b"), [0.0, 1.0], 0.02 * np.eye(2))
    >>> bounds = regret_bounds(joint, rng=np.random.default_rng(0))
    >>> bounds.upper.round(3).tolist()  # 1 + 1.645 · 0.2; the better one's regret is 0
    [0.0, 1.329]
    """
    pairs = differences(joint)
    reference = law(joint, pairs.error, method, rng, draws)
    top = reference.maxima(all_pairs(pairs))
    if simultaneous:
        lower = _lower(pairs, reference, level, top)
    else:
        offsets = moment_selection(pairs, smallest_sample(joint))
        lower = _above(pairs, critical_each(reference, offsets, level))
    return RegretBounds(lower, upper_regret(pairs, reference, level, top), level, reference.method)


def _lower(pairs: Differences, reference: Law, level: float, top: Array) -> Array:
    count, size = len(pairs.gap), int(pairs.varies.sum())
    spent = FIRST_STEP * (1.0 - level)
    critical = reference.critical(top.max(axis=0), 1.0 - spent, size)
    first = _above(pairs, np.full(count, critical))
    slack = np.divide(first, pairs.error, out=np.zeros_like(pairs.gap), where=pairs.varies)
    if slack.any():
        top = reference.maxima(all_pairs(pairs) - slack)
    critical = reference.critical(top.max(axis=0), level + spent, size)
    return _above(pairs, np.full(count, critical))


def _above(pairs: Differences, critical: Array) -> Array:
    """max(0, max_j (gap_ij − d_i s_ij)); a constant difference is its own bound. d_i = −inf: nothing to test."""
    usable = np.where(np.isfinite(critical), critical, 0.0)[:, None]
    reach = np.where(pairs.varies & np.isfinite(critical)[:, None], pairs.gap - usable * pairs.error, 0.0)
    return np.asarray(np.maximum(np.where(pairs.certain, pairs.gap, reach).max(axis=1), 0.0))
