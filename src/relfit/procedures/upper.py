"""Upper bounds for how much worse than the best each model is: Hsu's multiple comparisons with the best."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from relfit.procedures.differences import Differences
from relfit.procedures.maxt import Law

Array = NDArray[np.float64]


def upper_regret(pairs: Differences, reference: Law, level: float, top: Array | None = None) -> Array:
    """(l,) bounds with R_i = D_i − min_j D_j ≤ bound_i for all i, with probability `level` (Hsu 1981).

    Write N_ij = (D̂_i − D̂_j − (D_i − D_j))/s_ij and let k be the best model. If N_ki ≤ d_k for all i, which has
    probability `level` with d_k the quantile of max_i N_ki, then k is in C = {k : D̂_k − D̂_i ≤ d_k s_ki for all i},
    and R_i = D_i − D_k ≤ D̂_i − D̂_k + d_k s_ik for all i. Hence
    ``R_i ≤ max(0, max_{k∈C, k≠i} (D̂_i − D̂_k + d_k s_ik))``. One comparison per model and not all pairs.

    `top` are the law's maxima over all pairs, where they have been drawn already.
    """
    critical = critical_each(reference, all_pairs(pairs), level, top)
    critical = np.where(np.isfinite(critical), np.maximum(critical, 0.0), 0.0)
    possible = ((pairs.gap <= critical[:, None] * pairs.error) | pairs.same).all(axis=1)
    reach = np.where(possible & ~pairs.same, pairs.gap + critical * pairs.error, 0.0)
    return np.asarray(np.maximum(reach.max(axis=1), 0.0))


def all_pairs(pairs: Differences) -> Array:
    """(l, l) offsets that leave out only the pairs without variance."""
    return np.where(pairs.varies, 0.0, -math.inf)


def critical_each(reference: Law, offsets: Array, level: float, top: Array | None = None) -> Array:
    """(l,) for every i the `level` quantile of max_j (Z_ij + offset_ij); −inf where no j is left in."""
    counts = (offsets > -math.inf).sum(axis=1)
    top = reference.maxima(offsets) if top is None else top
    return np.array([reference.critical(row, level, int(k)) for row, k in zip(top, counts, strict=True)])
