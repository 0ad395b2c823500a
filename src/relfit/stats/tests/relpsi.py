"""RelPSI: select the best model and test every other against it, conditional on the selection."""

from __future__ import annotations

import math

import numpy as np

from relfit.stats.decision import (
    Decision,
    adjust,
    decide_without_variance,
    difference_variance,
    equivalent_to,
    known_log_equivalence,
    lowest,
    resolve_correction,
    selective_log_equivalence,
    without_variance,
)
from relfit.stats.joint import JointEstimate
from relfit.stats.truncnorm import selective_log_pvalue, truncation_limits
from relfit.util.arrays import Array


def relpsi(joint: JointEstimate, alpha: float, correction: str = "none", *, margin: float = 0.0) -> Decision:
    """RelPSI of Lim, Yamada, Schölkopf and Jitkrittum (2019).

    J = argmin D. For each i, ``t = D_i − D_J`` is, given that J was selected, a normal truncated to
    [V⁻, V⁺]; ``p = P(N(δ, s²) > t | V⁻, V⁺)`` with the mean at the least favourable value of "D_i − D_J ≤ δ",
    δ = `margin`.
    """
    count = len(joint.names)
    best, tied = lowest(joint)
    still = without_variance(joint.covariance, best)
    log_p, log_equivalence, limits = np.zeros(count), np.zeros(count), np.tile([-math.inf, math.inf], (count, 1))
    status: list[tuple[str, ...]] = [("tie",) if tie else () for tie in tied]
    for i in np.flatnonzero(still).tolist():
        if i != best:
            log_p[i], word = decide_without_variance(joint, i, best, margin)
            log_equivalence[i] = known_log_equivalence(float(joint.values[i] - joint.values[best]), margin)
            status[i] = (*status[i], word)
    tested = np.flatnonzero(~still).tolist()
    for i in tested:
        lower, upper = truncation_limits(joint.values, joint.covariance, i, best, still)
        if tied.any():
            # A model level with the best would set V⁺ = t, and a tie is no evidence against i.
            upper = truncation_limits(joint.values, joint.covariance, i, best, still | tied)[1]
        limits[i] = lower, upper
        if limits[i, 0] == limits[i, 1] and not tied[i]:
            status[i] = (*status[i], "tie")
    s = np.sqrt([difference_variance(joint.covariance, i, best) for i in tested])
    gaps = joint.values[tested] - joint.values[best]
    lower, upper = limits[tested].T
    log_p[tested] = selective_log_pvalue(gaps - margin, s, lower - margin, upper - margin)
    log_equivalence[tested] = selective_log_equivalence(gaps, s, lower, upper, margin)
    # The sign condition is about untruncated differences; BY holds whatever their dependence.
    used = resolve_correction("by" if correction == "auto" else correction, joint.covariance, best)
    adjusted = _adjust_others(np.exp(log_p), best, used)
    worse = adjusted <= alpha
    worse[best] = False
    equivalent = equivalent_to(best, log_equivalence, alpha, used) if margin else None
    return Decision(best, log_p, adjusted, worse, tuple(status), used, limits, equivalent)


def _adjust_others(pvalues: Array, best: int, correction: str) -> Array:
    others = np.arange(len(pvalues)) != best
    adjusted = np.ones(len(pvalues))
    adjusted[others] = adjust(pvalues[others], correction)
    return adjusted
