"""Two models, one fixed hypothesis "a is no worse than b": RelMMD and RelKSD, and RelPSI with η fixed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import log_ndtr, ndtri

from relfit.estimate import JointEstimate
from relfit.procedures.decision import decide_without_variance, difference_variance
from relfit.truncnorm import selective_log_pvalue


@dataclass(frozen=True)
class PairDecision:
    """The outcome for a pair: t = D_a − D_b, its standard error, log p, threshold and truncation (RelPSI)."""

    difference: float
    standard_error: float
    log_pvalue: float
    threshold: float
    status: tuple[str, ...] = ()
    truncation: tuple[float, float] | None = None


def relative_z(joint: JointEstimate, alpha: float) -> PairDecision:
    """One-sided z test of D_a ≤ D_b: RelMMD (Bounliphone et al. 2016) or RelKSD, by what D is."""
    t, s = _difference(joint)
    if s == 0.0:
        return _constant(joint, t)
    return PairDecision(t, s, float(log_ndtr(-t / s)), -s * float(ndtri(alpha)))


def fixed_relpsi(joint: JointEstimate, alpha: float) -> PairDecision:
    """RelPSI with η = e_a − e_b whichever model is selected: t given its own sign.

    If b is selected t ≥ 0 and the truncation is [0, ∞), threshold sΦ⁻¹(1 − α/2); if a is selected it is
    (−∞, 0], threshold sΦ⁻¹(½ − α/2).
    """
    t, s = _difference(joint)
    if s == 0.0:
        return _constant(joint, t)
    lower, upper = (-math.inf, 0.0) if t <= 0.0 else (0.0, math.inf)
    log_p = float(selective_log_pvalue(t, s, lower, upper)) if t != 0.0 else 0.0
    status = ("tie",) if t == 0.0 else ()
    threshold = s * float(ndtri(0.5 - alpha / 2.0) if t <= 0.0 else -ndtri(alpha / 2.0))
    return PairDecision(t, s, log_p, threshold, status, (lower, upper))


def _difference(joint: JointEstimate) -> tuple[float, float]:
    t = float(joint.values[0] - joint.values[1])
    return t, math.sqrt(difference_variance(joint.covariance, 0, 1))


def _constant(joint: JointEstimate, t: float) -> PairDecision:
    log_p, word = decide_without_variance(joint, 0, 1)
    return PairDecision(t, 0.0, log_p, math.inf if log_p == 0.0 else -math.inf, (word,))
