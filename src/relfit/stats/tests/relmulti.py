"""RelMulti: one share of the data selects the best model, the rest tests the others against it."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from relfit.stats.decision import (
    Decision,
    adjust,
    decide_without_variance,
    difference_variance,
    equivalent_to,
    known_log_equivalence,
    lowest,
    resolve_correction,
)
from relfit.stats.joint import JointEstimate


def relmulti(
    selection: JointEstimate, testing: JointEstimate, alpha: float, correction: str = "by", *, margin: float = 0.0
) -> Decision:
    """RelMulti of Lim, Yamada, Schölkopf and Jitkrittum (2019).

    J = argmin of the selection share's D; for each i ≠ J a one-sided z test of ``D_i ≤ D_J + δ`` on the
    testing share, δ = `margin`, its l − 1 p-values adjusted (Benjamini–Yekutieli unless asked otherwise).
    """
    best, tied = lowest(selection)
    count = len(testing.names)
    log_p, log_equivalence = np.zeros((2, count))
    status: list[tuple[str, ...]] = [("tie",) if tie else () for tie in tied]
    others = [i for i in range(count) if i != best]
    for i in others:
        variance = difference_variance(testing.covariance, i, best)
        gap = float(testing.values[i] - testing.values[best])
        if variance == 0.0:
            log_p[i], word = decide_without_variance(testing, i, best, margin)
            log_equivalence[i] = known_log_equivalence(gap, margin)
            status[i] = (*status[i], word)
            continue
        z = (gap - margin) / math.sqrt(variance)
        log_p[i], log_equivalence[i] = float(log_ndtr(-z)), float(log_ndtr(z))
    used = resolve_correction(correction, testing.covariance, best)
    adjusted = np.ones(count)
    adjusted[others] = adjust(np.exp(log_p[others]), used)
    worse = adjusted <= alpha
    worse[best] = False
    equivalent = equivalent_to(best, log_equivalence, alpha, used) if margin else None
    return Decision(best, log_p, adjusted, worse, tuple(status), used, equivalent=equivalent)
