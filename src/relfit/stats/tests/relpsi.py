"""RelPSI: select the best model and test every other one against it, given the selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from relfit.stats.decision import (
    Covariances,
    Decision,
    adjust_others,
    constant_word,
    difference_variance,
    equivalent_to,
    known_log_equivalence,
    lowest,
    selective_log_equivalence,
)
from relfit.stats.joint import JointEstimate
from relfit.stats.tests.base import Test, Trials
from relfit.stats.truncnorm import selective_log_pvalue, selective_lower_bound
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.text import listed

# A model this many standard errors above the best that is not declared worse is masked by a near tie.
MASKED_ERRORS = 4.0
# With 10 samples RelPSI keeps its level, with 50 it does not (docs/calibration/).
MANY_SAMPLES = 20


@dataclass(frozen=True)
class RelPSI(Test):
    """RelPSI of Lim, Yamada, Schölkopf and Jitkrittum (2019): post-selection inference.

    Selects the model with the smallest estimate, and tests every other one given that selection. It controls the false
    positive rate among the models that are as good as the selected one.
    """

    name: ClassVar[str] = "relpsi"

    def decide(
        self,
        joint: JointEstimate,
        *,
        alpha: float,
        correction: str,
        margin: float = 0.0,
        seed: int = 0,
        selection: JointEstimate | None = None,
    ) -> Decision:
        decision = relpsi(joint, alpha, correction, margin=margin)
        masked = _tie_notes(joint, decision) or _masked_notes(joint, decision, margin)
        return replace(decision, notes=(*masked, *_many_samples_notes(joint)))

    def bounds(
        self, joint: JointEstimate, level: float, *, best: int, truncation: Array | None, seed: int
    ) -> tuple[Array, Array]:
        return selective_bounds(joint, level, best, truncation)

    def log_pvalues(self, trials: Trials, models: Sequence[int], alpha: float, *, exact: bool) -> tuple[Rows, Array]:
        tested = [_tested(trials.values, trials.covariances, i, 0.0) for i in models]
        return np.argmin(trials.values, axis=1), np.stack([each.log_pvalue for each in tested], axis=1)

    def two_model_power(self, signal: float, alpha: float, correction: str) -> float:
        """Φ(r − z_{1−α/2}): given the selection the difference is half-normal, as in a two-sided test."""
        return float(ndtr(signal + ndtri(alpha / 2.0)))


def relpsi(joint: JointEstimate, alpha: float, correction: str = "none", *, margin: float = 0.0) -> Decision:
    """The verdicts of RelPSI.

    J = argmin D. For each i, ``t = D_i − D_J`` is, given that J was selected, a normal variable truncated to [V⁻, V⁺];
    ``p = P(N(δ, s²) > t | V⁻, V⁺)`` with the mean at the least favourable value of "D_i − D_J ≤ δ", δ = `margin`.
    """
    count = len(joint.names)
    values, covariances = joint.values[None], Covariances(joint.covariance)
    first, tied = lowest(joint.values, np.diag(joint.covariance))
    best = int(first)
    log_p, log_equivalence, limits = np.zeros(count), np.zeros(count), np.tile([-math.inf, math.inf], (count, 1))
    status: list[tuple[str, ...]] = [("tie",) if tie else () for tie in tied]
    for i in range(count):
        if i == best:
            continue
        each = _tested(values, covariances, i, margin)
        log_p[i], gap = each.log_pvalue[0], float(each.gap[0])
        if each.error[0] == 0.0:
            status[i] = (*status[i], constant_word(gap, float(each.rounding[0])))
            log_equivalence[i] = known_log_equivalence(gap, margin)
            continue
        limits[i] = each.lower[0], each.upper[0]
        log_equivalence[i] = selective_log_equivalence(gap, each.error[0], limits[i, 0], limits[i, 1], margin)
        if limits[i, 0] == limits[i, 1] and not tied[i]:
            status[i] = (*status[i], "tie")
    # The sign condition of BH is about untruncated differences; BY holds whatever their dependence.
    used = RelPSI().resolved_correction(correction, joint.covariance, best)
    adjusted = adjust_others(np.exp(log_p), best, used)
    worse = adjusted <= alpha
    worse[best] = False
    equivalent = equivalent_to(best, log_equivalence, alpha, used) if margin else None
    return Decision(best, log_p, adjusted, worse, tuple(status), used, limits, equivalent)


class _Tested(NamedTuple):
    """One model against the selected one, in every trial: its gap, s, the truncation, log p, and what is rounding."""

    gap: Array
    error: Array
    lower: Array
    upper: Array
    log_pvalue: Array
    rounding: Array


def _tested(values: Array, covariances: Covariances, i: int, margin: float) -> _Tested:
    """Model i against J = argmin D in every trial; values (trials, l).

    Given N = D − c t with c = Vη/s², which is independent of t = D_i − D_J, J is selected where ``D_k − D_J ≥ 0`` for
    all k, which bounds t by ``t − (D_k − D_J)/d_k`` from below (slope d_k > 0) and from above (d_k < 0). Model i itself
    has d_i = 1, so V⁻ ≥ 0. A model tied with J would set V⁺ = t, and a tie is no evidence against i: it does not count
    for the upper limit.
    """
    best, tied = lowest(values, covariances.variance)
    against = covariances.against(best)
    all_gaps = values - np.take_along_axis(values, best[:, None], axis=1)
    gap, error, slope = all_gaps[:, i], against.error[:, i], against.slopes(i)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rising = np.divide(all_gaps, slope, out=np.full(all_gaps.shape, math.inf), where=slope > 0.0).min(axis=1)
        counted = (slope < 0.0) & ~tied
        falling = np.divide(all_gaps, slope, out=np.full(counted.shape, -math.inf), where=counted).max(axis=1)
    lower, upper = np.minimum(gap - rising, gap), np.maximum(gap - falling, gap)
    varies = error > 0.0
    s = np.where(varies, error, 1.0)
    log_p = np.where(
        varies,
        selective_log_pvalue(gap - margin, s, lower - margin, upper - margin),
        against.certain(gap, i, margin),
    )
    return _Tested(gap, error, lower, upper, np.where(best == i, 0.0, log_p), against.rounding[:, i])


def selective_bounds(joint: JointEstimate, level: float, best: int, truncation: Array | None) -> tuple[Array, Array]:
    """Bounds for D_i − D_J from its normal law, truncated to the limits where there are some.

    A difference without variance is known; one that is rounding lies between itself and 0.
    """
    lower, upper = np.zeros((2, len(joint.names)))
    against = Covariances(joint.covariance).against(best)
    for i in range(len(lower)):
        t, s = float(joint.values[i] - joint.values[best]), difference_variance(joint.covariance, i, best) ** 0.5
        if s > 0.0:
            low, high = (-math.inf, math.inf) if truncation is None else truncation[i].tolist()
            lower[i] = selective_lower_bound(t, s, low, high, level)
            upper[i] = -selective_lower_bound(-t, s, -high, -low, level)
        elif constant_word(t, float(against.rounding[0, i])) == "deterministic":
            lower[i] = upper[i] = t
        else:
            lower[i], upper[i] = min(t, 0.0), max(t, 0.0)
    return lower, upper


def _constant(joint: JointEstimate, best: int) -> Mask:
    return np.asarray(Covariances(joint.covariance).against(best).constant[0])


def _tie_notes(joint: JointEstimate, decision: Decision) -> list[str]:
    """A note where a tie for the best, and not the data, decides the other models' p-values."""
    best = decision.best
    tied, constant = lowest(joint.values, np.diag(joint.covariance))[1], _constant(joint, best)
    level = [name for i, name in enumerate(joint.names) if tied[i] and (i == best or not constant[i])]
    if len(level) < 2 or (tied | constant).all():
        return []
    return [
        f"{listed(level)} are tied to the last digit; given such a tie, relpsi has no power against the other "
        'models: use test="best-set", or leave one of them out'
    ]


def _masked_notes(joint: JointEstimate, decision: Decision, margin: float) -> list[str]:
    """A note about models that a plain z test would call worse beyond doubt, and that RelPSI does not."""
    masked = []
    for i, name in enumerate(joint.names):
        s = difference_variance(joint.covariance, i, decision.best) ** 0.5
        gap = float(joint.values[i] - joint.values[decision.best]) - margin
        if not decision.worse[i] and gap > MASKED_ERRORS * s > 0.0:
            masked.append(name)
    if not masked:
        return []
    return [
        f"{listed(masked)} {'is' if len(masked) == 1 else 'are'} more than {MASKED_ERRORS:g} standard errors above "
        f"{joint.names[decision.best]!r}{' and the margin' if margin else ''}, but relpsi cannot call "
        f"{'it' if len(masked) == 1 else 'them'} worse, because another model is nearly tied with the best; "
        'test="best-set" does not have this weakness'
    ]


def _many_samples_notes(joint: JointEstimate) -> list[str]:
    """A note where RelPSI selects among so many samples that its level suffers."""
    if joint.psi is None or not joint.psi.models or len(joint.names) <= MANY_SAMPLES:
        return []
    return [
        f"relpsi selects among {len(joint.names)} samples, where its error rate can exceed alpha slightly (simulated: "
        '0.064 instead of 0.05 with 50 tied models); test="best-set" keeps it'
    ]
