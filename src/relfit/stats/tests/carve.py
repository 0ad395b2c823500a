"""Carving: select with added noise, and test with all the data, given the selection.

*What is conditioned on.* D ~ N(θ, V), and w ~ N(0, V) is drawn independently of D. J = argmin (D + w). For a model
i ≠ J let η = e_i − e_J, t = ηᵀD, s² = ηᵀVη, c = Vη/s². Then N = D − c t is independent of t (jointly normal,
Cov(N, t) = Vη − c s² = 0), and (t, N) is independent of w. Given J and N, with μ = ηᵀθ = D_i − D_J,

    density of t  ∝  φ((t − μ)/s) · P_w( J = argmin (N + c t + w) ).

For one w the event on the right is an interval of t: with d_k = c_k − c_J and, at the observed t,
g_k = D_k − D_J + w_k − w_J, it says g_k + (t' − t) d_k ≥ 0 for all k, hence

    a = max_{d_k>0} (t − g_k/d_k),   b = min_{d_k<0} (t − g_k/d_k),   empty if some d_k = 0 has g_k < 0.

So the probability is the fraction of the draws w_m whose interval [a_m, b_m] holds t, and

    P_μ(t' > t | J, N) = Σ_m [Φ((b_m−μ)/s) − Φ((max(t, a_m)−μ)/s)]₊ / Σ_m [Φ((b_m−μ)/s) − Φ((a_m−μ)/s)].

μ = 0 is least favourable for "i is no worse than J" and gives the p-value. Neither the draws nor the limits depend on
μ: each draw enters with the probability of its own event under μ, which is all the reweighting there is. Given J and N
the law of t is an exponential family in μ, so the sum increases with μ and can be inverted for confidence bounds. The
realised w is one of the draws: its interval holds the observed t, so the denominator is never 0 (where a fresh draw
hardly ever selects J, the test becomes the one that is also given w, which is exact as well).

*Upper bounds.* V is estimated at D̂, and an estimate that came out low has a low variance as well: with D the square of
a distance, the first-order part of Var D̂_k is proportional to D_k (the witness function scales with the distance), and
only the fraction ν_k of second order (`near_degeneracy`) is not. Under the hypothesis D_i − D_J = u the most likely D
is D̂ + c(u − t), so that there

    Var D̂_k = V_kk f_k,   f_k = 1 + (1 − ν_k) c_k (u − t)/D̂_k,

and V_kl is multiplied by √(f_k f_l). An upper bound u is solved for once more with this V, and the larger of both is
taken: without it upper bounds miss too often in small samples. Lower bounds, which go with the p-values, keep V.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from relfit.stats.decision import (
    Against,
    Covariances,
    Decision,
    adjust_others,
    constant_word,
    equivalent_to,
    known_log_equivalence,
)
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import Source, covariance_root, normal_draws, seeded, streams
from relfit.stats.tests.base import Noise, Test, Trials
from relfit.stats.truncnorm import log_mass
from relfit.util.arrays import Array, Rows

DRAWS = 2000
# The size of the noise beside that of the estimates: 1 makes the selection about as good as one from half the rows.
GAMMA = 1.0
# Numbers that one step over several trials works on.
_NUMBERS = 2_000_000
# A confidence bound more standard errors away than this is as good as none.
_FARTHEST = 1e6
# No hypothesis makes a variance less than this part of the estimated one.
_SMALLEST_VARIANCE = 0.05
# Gauss–Legendre nodes for the power with two models, which is integrated over this many standard errors either way.
_REACH = 9.0


@dataclass(frozen=True)
class Carve(Test):
    """Carving: RelPSI with noise in the selection, which leaves most of the data for the test.

    It controls the false positive rate given the selected model, as RelPSI does, with far more power. The selection is
    randomised: another seed may select another model.
    """

    name: ClassVar[str] = "carve"
    selects: ClassVar[bool] = True
    randomised: ClassVar[bool] = True
    draws: ClassVar[bool] = True

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
        return carve(joint, alpha, correction, rng=seeded(seed, self.name), margin=margin)

    def bounds(
        self, joint: JointEstimate, level: float, *, best: int, truncation: Array | None, seed: int
    ) -> tuple[Array, Array]:
        return carve_bounds(joint, level, rng=seeded(seed, self.name))

    def log_pvalues(self, trials: Trials, models: Sequence[int], alpha: float, *, exact: bool) -> tuple[Rows, Array]:
        noise, values = trials.noise(), trials.values
        best = np.argmin(values + noise.realised, axis=1)
        against = trials.covariances.against(best)
        gap = values - np.take_along_axis(values, best[:, None], axis=1)
        log_p = np.zeros((len(values), len(models)))
        for c, i in enumerate(models):
            slope, s = against.slopes(i), np.broadcast_to(against.error[:, i], best.shape)
            log_p[:, c] = np.where((s > 0.0) | (best == i), 0.0, against.certain(gap[:, i], i))
            # Where no slope is negative, selection makes a large t more likely, so that p ≥ Φ(−t/s).
            undecided = (s > 0.0) & (best != i)
            undecided &= (gap[:, i] > -s * ndtri(alpha)) | (slope < 0.0).any(axis=1)
            slope = np.broadcast_to(slope, gap.shape)
            for at, pack in _chunks(np.flatnonzero(undecided), noise):
                at_best = best[at, None, None]
                fresh = np.broadcast_to(noise.fresh(at, pack), (len(at), gap.shape[1], noise.constant.shape[1]))
                drawn = np.concatenate([noise.realised[at, :, None], fresh], axis=2)
                drawn = drawn - np.take_along_axis(drawn, at_best, axis=1)
                log_p[at, c] = _laws(gap[at], slope[at], s[at], drawn, i).log_pvalue(np.zeros(len(at)))
        return best, log_p

    def two_model_power(self, signal: float, alpha: float, correction: str) -> float:
        """∫_c^∞ φ(t − r) Φ(t) dt with Φ(c) = √(1−α).

        J = argmin(D + w) selects the better model with probability Φ(t), t = (D_2 − D_1)/s, as w_2 − w_1 has the same
        spread. The p-value is 2∫_t^∞ φΦ = 1 − Φ(t)², at most α from c on.
        """
        nodes, weights = np.polynomial.legendre.leggauss(80)
        cut = float(ndtri(math.sqrt(1.0 - alpha)))
        low, high = max(cut, signal - _REACH), max(cut, signal) + _REACH
        t = low + (high - low) * (nodes + 1.0) / 2.0
        density = np.exp(-0.5 * (t - signal) ** 2) / math.sqrt(2.0 * math.pi)
        return float(min(1.0, (high - low) / 2.0 * (weights @ (density * ndtr(t)))))


def _chunks(trials: Rows, noise: Noise) -> list[tuple[Rows, int]]:
    """The trials by the pack of noise that they use, in parts that a few million numbers do for."""
    packs, draws, models = noise.constant.shape
    size = max(1, _NUMBERS // (models * (1 + draws)))
    by_pack = [(trials[trials % packs == pack], pack) for pack in range(packs)]
    return [(own[a : a + size], pack) for own, pack in by_pack for a in range(0, len(own), size)]


def carve(
    joint: JointEstimate,
    alpha: float,
    correction: str = "none",
    *,
    rng: Source,
    draws: int = DRAWS,
    margin: float = 0.0,
) -> Decision:
    """Select J = argmin (D + w), w ~ N(0, V), and test "i is no worse than J" given that selection.

    The module's opening derives the p-value. The l − 1 p-values are adjusted by `correction`; "auto" is "by". With a
    margin δ the hypothesis is "D_i ≤ D_J + δ". `rng` is a Generator, or a function from a model's name to a Generator.
    The realised w is drawn first, so the same seed selects the same model whatever `draws`, and in `carve_bounds` too.

    >>> joint = JointEstimate(("a", "b"), [0.0, 3.0], 0.5 * np.eye(2))
    >>> decision = carve(joint, 0.05, rng=np.random.default_rng(0))
    >>> decision.best, decision.worse.tolist()
    (0, [False, True])
    """
    selection = select(joint, rng, draws)
    best = selection.best
    log_p, log_equivalence = np.zeros((2, len(joint.names)))
    status: list[tuple[str, ...]] = [() for _ in joint.names]
    for i in selection.others():
        gap = float(joint.values[i] - joint.values[best])
        if selection.constant[i]:
            log_p[i] = selection.against.certain(np.array([gap]), i, margin)[0]
            log_equivalence[i] = known_log_equivalence(gap, margin)
            status[i] = (constant_word(gap, float(selection.against.rounding[0, i])),)
            continue
        law = conditional_law(joint, selection, i)
        log_p[i] = law.log_pvalue(margin / law.s)[0]
        log_equivalence[i] = law.log_equivalence(margin / law.s)[0] if margin else 0.0
    used = Carve().resolved_correction(correction, joint.covariance, best)
    adjusted = adjust_others(np.exp(log_p), best, used)
    worse = adjusted <= alpha
    worse[best] = False
    equivalent = equivalent_to(best, log_equivalence, alpha, used) if margin else None
    return Decision(best, log_p, adjusted, worse, tuple(status), used, equivalent=equivalent)


@dataclass(frozen=True)
class Selection:
    """The selected model and the noise w (l, 1 + draws), the realised draw first."""

    best: int
    noise: Array
    covariances: Covariances

    @property
    def against(self) -> Against:
        """The differences to the selected model."""
        return self.covariances.against(self.best)

    @property
    def constant(self) -> Array:
        """(l,) the models that differ from the selected one by a constant."""
        return np.asarray(self.against.constant[0])

    def others(self) -> list[int]:
        """The models that were not selected."""
        return [i for i in range(len(self.noise)) if i != self.best]


def select(joint: JointEstimate, rng: Source, draws: int = DRAWS) -> Selection:
    """J = argmin (D + w), with the realised w and `draws` fresh ones."""
    root, models = covariance_root(joint.covariance), streams(rng, joint.names).models
    # The realised noise first: which model is selected does not depend on the number of fresh draws.
    noise = GAMMA * np.hstack([normal_draws(root, models, count) for count in (1, draws)])
    return Selection(int(np.argmin(joint.values + noise[:, 0])), noise, Covariances(joint.covariance))


@dataclass(frozen=True)
class ConditionalLaw:
    """The law of t = D_i − D_J given the selection, in one or more trials.

    s and t over s, (trials,), and the interval [a, b] of every draw over s, (trials, draws); a draw that cannot select
    J has a > b.
    """

    s: Array
    t: Array
    a: Array
    b: Array

    def possible(self) -> ConditionalLaw:
        """The same law of a single trial without the draws that cannot select J."""
        kept = self.a[0] <= self.b[0]
        return replace(self, a=self.a[:, kept], b=self.b[:, kept])

    def log_odds(self, mean: Array) -> Array:
        """(trials,) log P(t' < t) − log P(t' > t) when t' has this mean (over s): decreases with the mean.

        −inf where there is no mass below t, or none at all.
        """
        t, shift = self.t[:, None], np.asarray(mean)[:, None]
        below = _log_total(self.a - shift, np.minimum(self.b, t) - shift)
        above = _log_total(np.maximum(self.a, t) - shift, self.b - shift)
        return np.where(below > -math.inf, below - np.where(below > -math.inf, above, 0.0), -math.inf)

    def log_pvalue(self, mean: Array) -> Array:
        """(trials,) log P(t' > t) at this mean (over s)."""
        return np.asarray(-np.logaddexp(0.0, self.log_odds(mean)))

    def log_equivalence(self, mean: Array) -> Array:
        """(trials,) log P(t' < t) at this mean (over s), and no less than without the selection."""
        odds = self.log_odds(mean)
        given = np.where(odds > -math.inf, -np.logaddexp(0.0, -odds), 0.0)
        return np.asarray(np.maximum(given, log_ndtr(self.t - mean)))


def conditional_law(joint: JointEstimate, selection: Selection, i: int) -> ConditionalLaw:
    """The law of D_i − D_J given the selection of J and what is independent of that difference."""
    against, gap = selection.against, joint.values - joint.values[selection.best]
    drawn = selection.noise - selection.noise[selection.best]
    return _laws(gap[None], against.slopes(i), against.error[:, i], drawn[None], i)


def _laws(gap: Array, slope: Array, s: Array, drawn: Array, i: int) -> ConditionalLaw:
    """The law for each trial: gaps to J and slopes (trials, l), s (trials,), and noise w − w_J (trials, l, draws).

    The realised noise is the first draw. A slope of 0 decides whether a draw can select J at all; NaN leaves a model
    out.
    """
    t, slope = gap[:, i] / s, slope[..., None]
    g = (gap[..., None] + drawn) / s[:, None, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reach = g / slope
    a = t[:, None] - np.min(reach, axis=1, initial=math.inf, where=slope > 0.0)
    b = t[:, None] - np.max(reach, axis=1, initial=-math.inf, where=slope < 0.0)
    impossible = ((slope == 0.0) & (g < 0.0)).any(axis=1)
    # Rounding must not push the observed t out of the interval of the realised draw.
    a[:, 0], b[:, 0], impossible[:, 0] = np.minimum(a[:, 0], t), np.maximum(b[:, 0], t), False
    return ConditionalLaw(s, t, np.where(impossible, math.inf, a), np.where(impossible, -math.inf, b))


def _log_total(starts: Array, ends: Array) -> Array:
    """(trials,) log Σ_m (Φ(b_m) − Φ(a_m))₊. Differences of Φ where that is accurate, each seen from its nearer tail.

    Rounding is at most 1e−16 of the Φ that is subtracted from; it is harmless where the total is no small part of
    those.
    """
    held = starts < ends
    right = starts > 0.0
    high, low = np.where(right, -starts, ends), np.where(right, -ends, starts)
    # Half of all limits are infinite, where Φ is 0 or 1 and need not be computed.
    above, below = (high > 0.0).astype(float), np.zeros(low.shape)
    for limits, masses in ((high, above), (low, below)):
        finite = held & np.isfinite(limits)
        masses[finite] = ndtr(limits[finite])
    above[~held], below[~held] = 0.0, 0.0
    total, scale = (above - below).sum(axis=1), above.sum(axis=1)
    accurate = (total > 1e-6 * scale) & (total > 1e-280)
    out = np.log(np.where(accurate, total, 1.0))
    for k in np.flatnonzero(~accurate).tolist():
        part = held[k]
        out[k] = np.logaddexp.reduce(log_mass(starts[k, part], ends[k, part]), initial=-math.inf)
    return out


def carve_bounds(joint: JointEstimate, level: float, *, rng: Source, draws: int = DRAWS) -> tuple[Array, Array]:
    """(l,) lower and upper confidence bounds for D_i − D_J given the selection of J, each with coverage `level`.

    P_μ(t' > t | J, N) increases with μ. The lower bound solves it = 1 − level: it is above 0 exactly where the p-value
    of `carve` is below 1 − level. The upper bound solves it = level, and allows for a variance that grows with D.
    Bounds are infinite where the draws say nothing; a difference without variance is known, or 0 if it is rounding.
    """
    selection = select(joint, rng, draws)
    best, odds = selection.best, math.log(level / (1.0 - level))
    lower, upper = np.zeros((2, len(joint.names)))
    for i in selection.others():
        gap = float(joint.values[i] - joint.values[best])
        if selection.constant[i]:
            known = constant_word(gap, float(selection.against.rounding[0, i])) == "deterministic"
            lower[i] = upper[i] = gap if known else 0.0
            continue
        lower[i] = _mean_at_odds(joint, selection, i, odds, -math.inf)
        upper[i] = _upper_bound(joint, selection, i, odds)
    return lower, upper


def _upper_bound(joint: JointEstimate, selection: Selection, i: int, odds: float) -> float:
    """The upper bound: the larger of that with V and that with the covariance under the bound itself."""
    bound = _mean_at_odds(joint, selection, i, -odds, math.inf)
    if joint.near_degeneracy is None or not math.isfinite(bound):
        return bound
    factor = _variance_factors(joint, joint.near_degeneracy, i, selection.best, bound)
    covariance = joint.covariance * np.sqrt(np.outer(factor, factor))
    supposed = replace(selection, covariances=Covariances(covariance))
    return max(bound, _mean_at_odds(replace(joint, covariance=covariance), supposed, i, -odds, math.inf))


def _variance_factors(joint: JointEstimate, second_order: Array, i: int, best: int, difference: float) -> Array:
    """(l,) f of the module's opening: the variances if D_i − D_J is this `difference`, over the estimated ones."""
    toward = joint.covariance[:, i] - joint.covariance[:, best]
    step = toward * (difference - joint.values[i] + joint.values[best]) / (toward[i] - toward[best])
    # An estimate within its standard error of 0 says little about its own size.
    size = np.maximum(joint.values, joint.standard_error)
    growth = np.divide(step, size, out=np.zeros_like(step), where=size > 0.0)
    return np.asarray(np.maximum(1.0 + (1.0 - np.clip(second_order, 0.0, 1.0)) * growth, _SMALLEST_VARIANCE))


def _mean_at_odds(joint: JointEstimate, selection: Selection, i: int, target: float, default: float) -> float:
    """The mean at which the log odds of falling below t are `target`; `default` where they never are.

    Bracketed by doubling around t, then Brent.
    """
    law = conditional_law(joint, selection, i).possible()
    s, t = float(law.s[0]), float(law.t[0])
    excess: Callable[[float], float] = cache(lambda mean: float(law.log_odds(np.array([mean]))[0]) - target)
    if not math.isfinite(excess(t)):
        return default
    near, far = t, math.copysign(1.0, excess(t))
    while excess(t + far) * far > 0.0:
        near, far = t + far, 2.0 * far
        if abs(far) > _FARTHEST:
            return default
    return s * float(brentq(excess, near, t + far, xtol=1e-7, rtol=1e-10))
