"""Simultaneous confidence bounds for how much worse than the best each model is.

The regret of model i is R_i = D_i − min_j D_j ≥ 0: 0 for the best, whoever that is. It needs no selected
model, so its bounds hold without conditioning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.estimate import JointEstimate
from relfit.procedures.best_set import DRAWS, FIRST_STEP, moment_selection
from relfit.procedures.differences import Differences, differences, smallest_sample
from relfit.procedures.maxt import Law, law
from relfit.procedures.streams import Source

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

    *Upper* (Hsu's multiple comparisons with the best; always simultaneous). Let k be the best model. If
    N_ki ≤ d_k for all i, which has probability `level` with d_k the quantile of max_i N_ki, then k is in
    C = {k : D̂_k − D̂_i ≤ d_k s_ki for all i}, and R_i = D_i − D_k ≤ D̂_i − D̂_k + d_k s_ik for all i. Hence
    ``R_i ≤ max(0, max_{k∈C, k≠i} (D̂_i − D̂_k + d_k s_ik))``. One comparison per model and not all pairs.
    A model with upper bound ≤ δ is shown to be as good as the best, within δ.

    >>> joint = JointEstimate(("a", "b"), [0.0, 1.0], 0.02 * np.eye(2))
    >>> bounds = regret_bounds(joint, rng=np.random.default_rng(0))
    >>> bounds.upper.round(3).tolist()  # 1 + 1.645 · 0.2; the better one's regret is 0
    [0.0, 1.329]
    """
    pairs = differences(joint)
    reference = law(joint, pairs.error, method, rng, draws)
    if simultaneous:
        lower = _lower(pairs, reference, level)
    else:
        offsets = moment_selection(pairs, smallest_sample(joint))
        lower = _above(pairs, _critical_each(reference, offsets, level))
    return RegretBounds(lower, _upper(pairs, reference, level), level, reference.method)


def _lower(pairs: Differences, reference: Law, level: float) -> Array:
    count, size = len(pairs.gap), int(pairs.varies.sum())
    spent = FIRST_STEP * (1.0 - level)
    everything = np.where(pairs.varies, 0.0, -math.inf)
    critical = reference.critical(reference.maxima(everything).max(axis=0), 1.0 - spent, size)
    first = _above(pairs, np.full(count, critical))
    slack = np.divide(first, pairs.error, out=np.zeros_like(pairs.gap), where=pairs.varies)
    critical = reference.critical(reference.maxima(everything - slack).max(axis=0), level + spent, size)
    return _above(pairs, np.full(count, critical))


def _critical_each(reference: Law, offsets: Array, level: float) -> Array:
    counts = (offsets > -math.inf).sum(axis=1)
    top = reference.maxima(offsets)
    return np.array([reference.critical(row, level, int(k)) for row, k in zip(top, counts, strict=True)])


def _above(pairs: Differences, critical: Array) -> Array:
    """max(0, max_j (gap_ij − d_i s_ij)); a constant difference is its own bound. d_i = −inf: nothing to test."""
    usable = np.where(np.isfinite(critical), critical, 0.0)[:, None]
    reach = np.where(pairs.varies & np.isfinite(critical)[:, None], pairs.gap - usable * pairs.error, 0.0)
    return np.asarray(np.maximum(np.where(pairs.certain, pairs.gap, reach).max(axis=1), 0.0))


def _upper(pairs: Differences, reference: Law, level: float) -> Array:
    critical = _critical_each(reference, np.where(pairs.varies, 0.0, -math.inf), level)
    critical = np.where(np.isfinite(critical), np.maximum(critical, 0.0), 0.0)
    possible = ((pairs.gap <= critical[:, None] * pairs.error) | pairs.same).all(axis=1)
    reach = np.where(possible & ~pairs.same, pairs.gap + critical * pairs.error, 0.0)
    return np.asarray(np.maximum(reach.max(axis=1), 0.0))
