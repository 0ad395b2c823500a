"""Two models, one fixed hypothesis "a is no worse than b": RelMMD and RelKSD, and RelPSI with η fixed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import log_ndtr, ndtri, ndtri_exp

from relfit.stats.decision import Gaps, constant_word, gaps_to, selective_log_equivalence
from relfit.stats.joint import JointEstimate
from relfit.stats.truncnorm import selective_log_pvalue


@dataclass(frozen=True)
class PairDecision:
    """The outcome for a pair: t = D_a − D_b, its standard error, log p, the threshold, and for RelPSI the truncation.

    `equivalent` is True if t ≤ margin was shown, and None without a margin.
    """

    difference: float
    standard_error: float
    log_pvalue: float
    threshold: float
    status: tuple[str, ...] = ()
    truncation: tuple[float, float] | None = None
    equivalent: bool | None = None

    def statistic(self, margin: float) -> float:
        """(t − δ)/s with margin δ; of a constant ±inf, or 0 where it is rounding."""
        if self.standard_error > 0.0:
            return (self.difference - margin) / self.standard_error
        return math.copysign(math.inf, self.difference - margin) if "deterministic" in self.status else 0.0


def relative_z(joint: JointEstimate, alpha: float, margin: float = 0.0) -> PairDecision:
    """One-sided z test of D_a ≤ D_b + δ: RelMMD (Bounliphone et al. 2016) or RelKSD, by what D is."""
    gaps = gaps_to(joint, 1)
    t, s = float(gaps.gap[0, 0]), float(gaps.error[0, 0])
    if s == 0.0:
        return _constant(gaps, t, margin)
    log_p = float(log_ndtr((margin - t) / s))
    equivalent = float(log_ndtr((t - margin) / s)) <= math.log(alpha) if margin else None
    return PairDecision(t, s, log_p, margin - s * float(ndtri(alpha)), equivalent=equivalent)


def fixed_relpsi(joint: JointEstimate, alpha: float, margin: float = 0.0) -> PairDecision:
    """RelPSI with η = e_a − e_b whichever model is selected: t given its own sign.

    If b is selected t ≥ 0 and the truncation is [0, ∞), threshold δ − sΦ⁻¹(αΦ(δ/s)); if a is selected it is
    (−∞, 0], threshold δ + sΦ⁻¹((1 − α)Φ(−δ/s)). Without a margin these are sΦ⁻¹(1 − α/2) and sΦ⁻¹(½ − α/2).
    """
    gaps = gaps_to(joint, 1)
    t, s = float(gaps.gap[0, 0]), float(gaps.error[0, 0])
    if s == 0.0:
        return _constant(gaps, t, margin)
    lower, upper = (-math.inf, 0.0) if t <= 0.0 else (0.0, math.inf)
    log_p = float(selective_log_pvalue(t - margin, s, lower - margin, upper - margin)) if t != 0.0 else 0.0
    status = ("tie",) if t == 0.0 else ()
    inside = float(log_ndtr(-margin / s if t <= 0.0 else margin / s))
    reach = ndtri_exp(math.log1p(-alpha) + inside) if t <= 0.0 else -ndtri_exp(math.log(alpha) + inside)
    threshold = margin + s * float(reach)
    equivalent = float(selective_log_equivalence(t, s, lower, upper, margin)) <= math.log(alpha) if margin else None
    return PairDecision(t, s, log_p, threshold, status, (lower, upper), equivalent)


def _constant(gaps: Gaps, t: float, margin: float) -> PairDecision:
    log_p = float(gaps.known_log_pvalues(margin)[0, 0])
    word = constant_word(t, float(gaps.rounding[0, 0]))
    threshold = math.inf if log_p == 0.0 else -math.inf
    return PairDecision(t, 0.0, log_p, threshold, (word,), equivalent=t <= margin if margin else None)
