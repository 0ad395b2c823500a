"""Carving: select with added noise, and test with all the data, given the selection.

*What is conditioned on.* D ~ N(θ, V), and w ~ N(0, V) is drawn independently of D. J =
argmin (D + w). For a model i ≠ J let η = e_i − e_J, t = ηᵀD, s² = ηᵀVη, c = Vη/s². Then N =
D − c t is independent of t (jointly normal, Cov(N, t) = Vη − c s² = 0), and (t, N) is
independent of w. Given J and N, with μ = ηᵀθ = D_i − D_J,

    density of t  ∝  φ((t − μ)/s) · P_w( J = argmin (N + c t + w) ).

For one w the event on the right is an interval of t: with d_k = c_k − c_J and, at the
observed t, g_k = D_k − D_J + w_k − w_J, it says g_k + (t' − t) d_k ≥ 0 for all k, hence

    a = max_{d_k>0} (t − g_k/d_k),   b = min_{d_k<0} (t − g_k/d_k),   empty if some d_k = 0
    has g_k < 0.

So the probability is the fraction of the draws w_m whose interval [a_m, b_m] holds t, and

    P_μ(t' > t | J, N) = Σ_m [Φ((b_m−μ)/s) − Φ((max(t, a_m)−μ)/s)]₊ / Σ_m [Φ((b_m−μ)/s) −
    Φ((a_m−μ)/s)].

μ = 0 is least favourable for "i is no worse than J" and gives the p-value. Neither the draws
nor the limits depend on
μ: each draw enters with the probability of its own event under μ, which is all the
reweighting there is. Given J and N the law of t is an exponential family in μ, so the sum
increases with μ and can be inverted for confidence bounds. The realised w is one of the
draws: its interval holds the observed t, so the denominator is never 0 (where a fresh draw
hardly ever selects J, the test becomes the one that is also given w, which is exact as
well).

*Upper bounds.* V is estimated at D̂, and an estimate that came out low has a low variance as
well: with D the square of a distance, the first-order part of Var D̂_k is proportional to
D_k (the witness function scales with the distance), and only the fraction ν_k of second
order (`near_degeneracy`) is not. Under the hypothesis D_i − D_J = u the most likely D is D̂
+ c(u − t), so that there

    Var D̂_k = V_kk f_k,   f_k = 1 + (1 − ν_k) c_k (u − t)/D̂_k,

and V_kl is multiplied by √(f_k f_l). An upper bound u is solved for once more with this V,
and the larger of both is
taken: without it upper bounds miss too often in small samples. Lower bounds, which go with the
    p-values, keep V.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from relfit.stats.decision import Decision, Gaps, decided_against, gaps_to
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import Source, covariance_root, normal_draws, seeded, streams
from relfit.stats.tests.base import (
    FALSE_POSITIVE_RATE,
    SAME_ROWS,
    SELECTIVE,
    Criteria,
    Noise,
    Test,
    Trials,
    Words,
)
from relfit.stats.tests.unlike import unlike_notes
from relfit.stats.truncnorm import log_mass
from relfit.util.arrays import Array, Rows

DRAWS = 2000
# The size of the noise beside that of the estimates: 1 makes the selection about as good as one
# from half the rows.
GAMMA = 1.0
# A confidence bound more standard errors away than this is as good as none.
_FARTHEST = 1e6
# No hypothesis makes a variance less than this part of the estimated one.
_SMALLEST_VARIANCE = 0.05
# The power with two models is integrated over this many standard errors either way, at these
# nodes.
_REACH = 9.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)


@dataclass(frozen=True)
class Carve(Test):
    """Carving: RelPSI with noise in the selection, which leaves most of the data for the test.

    It controls the false positive rate given the selected model, as RelPSI does, with far
    more power. The selection is
    randomised: another seed may select another model.
    """

    name = "carve"
    words = Words(
        name="carving",
        question=(
            "Noise as large as that of the estimates was added, the model with the {smallest} "
            "value was selected, and every other model was tested for being no worse than that "
            f"one. {SAME_ROWS}"
        ),
        error=FALSE_POSITIVE_RATE,
        methods=(
            "The model with the {smallest} {measure} was selected after Gaussian noise with "
            "the covariance of the "
            "estimates had been added; for each other model we tested the hypothesis that it "
            "is no worse{margin} than "
            "the selected one, conditionally on that selection [fithian2014optimal; "
            "tian2018selective]."
        ),
        lead="{best} was selected after noise was added (seed {seed})",
        line="--",
        **SELECTIVE,
    )
    selects = True
    randomised = True
    draws = True

    def decide(
        self, joint: JointEstimate, criteria: Criteria, selection: JointEstimate | None = None
    ) -> Decision:
        rng = seeded(criteria.seed, self.name)
        decision = carve(
            joint, criteria.alpha, criteria.correction, rng=rng, margin=criteria.margin
        )
        return replace(decision, notes=unlike_notes(joint, decision.best, self.words.name))

    def bounds(
        self,
        joint: JointEstimate,
        level: float | Array,
        *,
        best: int,
        truncation: Array | None,
        seed: int,
    ) -> tuple[Array, Array]:
        return carve_bounds(joint, level, rng=seeded(seed, self.name))

    def log_pvalues(
        self, trials: Trials, models: list[int], alpha: float, *, exact: bool
    ) -> tuple[Rows, Array]:
        noise = trials.noise()
        packs, draws, _ = noise.constant.shape
        best = np.argmin(trials.values + noise.realised, axis=1)
        gaps = trials.covariances.gaps(trials.values, best)
        pack_of = np.arange(len(best)) % packs
        log_pvalue = gaps.known_log_pvalues()[:, models]
        for c, i in enumerate(models):
            t = gaps.gap[:, i]
            s = gaps.error[:, i]
            slope = gaps.slopes([i])[:, 0]
            # Where no slope is negative, selection makes a large t more likely, so that p ≥
            # Φ(−t/s).
            undecided = (s > 0.0) & ((t > -s * ndtri(alpha)) | (slope < 0.0).any(axis=1))
            for pack in range(packs):
                at = np.flatnonzero(undecided & (pack_of == pack))
                if len(at):
                    shifted = _shifted_gaps(gaps.gap[at], best[at], noise, at, pack)
                    law = conditional_law(t[at], s[at], slope[at], shifted, 1 + draws)
                    log_pvalue[at, c] = law.log_pvalue(np.zeros(len(at)))
        return best, log_pvalue

    def two_model_power(self, signal: float, alpha: float, correction: str) -> float:
        """∫_c^∞ φ(t − r) Φ(t) dt with Φ(c) = √(1−α), by Gauss–Legendre quadrature.

        J = argmin(D + w) selects the better model with probability Φ(t), t = (D_2 − D_1)/s,
        as w_2 − w_1 has the same spread. The p-value is 2∫_t^∞ φΦ = 1 − Φ(t)², at most α
        from c on.
        """
        cut = float(ndtri(math.sqrt(1.0 - alpha)))
        low = max(cut, signal - _REACH)
        high = max(cut, signal) + _REACH
        t = low + (high - low) * (_NODES + 1.0) / 2.0
        density = np.exp(-0.5 * (t - signal) ** 2) / math.sqrt(2.0 * math.pi)
        return float(min(1.0, (high - low) / 2.0 * (_WEIGHTS @ (density * ndtr(t)))))


def _shifted_gaps(
    gap: Array, best: Rows, noise: Noise, trials: Rows, pack: int
) -> Callable[[int], Array]:
    """A function of k with g_k = D_k − D_J + w_k − w_J of these trials, (trials, 1 + draws),
    the realised w first.
    """
    realised = noise.realised[trials]
    fresh_best = noise.fresh(trials, pack, best)
    realised_best = np.take_along_axis(realised, best[:, None], axis=1)[:, 0]

    def shifted(k: int) -> Array:
        g = np.empty((len(trials), 1 + fresh_best.shape[1]))
        g[:, 0] = gap[:, k] + realised[:, k] - realised_best
        np.add(gap[:, k, None], noise.fresh(trials, pack, k) - fresh_best, out=g[:, 1:])
        return g

    return shifted


def carve(
    joint: JointEstimate,
    alpha: float,
    correction: str = "none",
    *,
    rng: Source,
    draws: int = DRAWS,
    margin: float = 0.0,
) -> Decision:
    """Select J = argmin (D + w), w ~ N(0, V), and test "i is no worse than J" given that
    selection.

    The module's opening derives the p-value. The l − 1 p-values are adjusted by
    `correction`; "auto" is "by". With a margin δ the hypothesis is "D_i ≤ D_J + δ". `rng` is
    a Generator, or a function from a model's rank to a Generator. The realised w is drawn
    first, so the same seed selects the same model whatever `draws`, and in `carve_bounds`
    too.

    >>> joint = JointEstimate(("a", "b"), [0.0, 3.0], 0.5 * np.eye(2))
    >>> decision = carve(joint, 0.05, rng=np.random.default_rng(0))
    >>> decision.best, decision.worse.tolist()
    (0, [False, True])
    """
    selection = select(joint, rng, draws)
    log_pvalue = selection.gaps.known_log_pvalues(margin)[0]
    log_equivalence = selection.gaps.known_log_equivalence(margin)[0] if margin else None
    for i in selection.tested:
        law = selection.law(i)
        log_odds = law.log_odds(margin / law.s)
        log_pvalue[i] = -np.logaddexp(0.0, log_odds)[0]
        if log_equivalence is not None:
            log_equivalence[i] = law.log_equivalence(margin / law.s, log_odds)[0]
    gaps = selection.gaps
    best = selection.best
    used = Carve.resolved_correction(correction, joint.covariance, best)
    return decided_against(
        gaps, best, log_pvalue, log_equivalence, alpha=alpha, correction=used
    )


@dataclass(frozen=True)
class Selection:
    """The selected model J, the differences to it, and their noise.

    `gaps` are those of a single trial, and `shifted` (l, 1 + draws) is D_k − D_J + w_k −
    w_J, the realised w first.
    """

    best: int
    gaps: Gaps
    shifted: Array

    @property
    def tested(self) -> list[int]:
        """The models whose difference to J varies."""
        return np.flatnonzero(~self.gaps.constant[0]).tolist()

    def law(self, i: int, supposed: Gaps | None = None) -> ConditionalLaw:
        """The law of D_i − D_J given the selection; `supposed` are differences with another
        covariance.
        """
        gaps = self.gaps if supposed is None else supposed
        # Models that differ from J by a constant have no part in it, whatever the covariance
        # that is supposed.
        slopes = np.where(self.gaps.constant, np.nan, gaps.slopes([i])[:, 0])
        draws = self.shifted.shape[1]
        return conditional_law(
            gaps.gap[:, i], gaps.error[:, i], slopes, lambda k: self.shifted[None, k], draws
        )


def select(joint: JointEstimate, rng: Source, draws: int = DRAWS) -> Selection:
    """J = argmin (D + w), with the realised w and `draws` fresh ones."""
    root = covariance_root(joint.covariance)
    models = streams(rng, joint.values).models
    # The realised noise first: which model is selected does not depend on the number of fresh
    # draws.
    noise = GAMMA * np.hstack([normal_draws(root, models, count) for count in (1, draws)])
    best = int(np.argmin(joint.values + noise[:, 0]))
    gaps = gaps_to(joint, best)
    return Selection(best, gaps, gaps.gap[0][:, None] + noise - noise[best])


@dataclass(frozen=True)
class ConditionalLaw:
    """The law of t = D_i − D_J given the selection, in one or more trials.

    s and t over s, (trials,), and the interval [a, b] of every draw over s, (trials, draws);
    a draw that cannot select J has a ≥ b.
    """

    s: Array
    t: Array
    a: Array
    b: Array

    def possible(self) -> ConditionalLaw:
        """The same law of a single trial without the draws that cannot select J."""
        kept = self.a[0] < self.b[0]
        return ConditionalLaw(self.s, self.t, self.a[:, kept], self.b[:, kept])

    def log_odds(self, mean: Array) -> Array:
        """(trials,) log P(t' < t) − log P(t' > t) when t' has this mean (over s): decreases
        with the mean.

        −inf where there is no mass below t, or none at all. With F the distribution function
        (t below the mean) or 1 minus it (t above), the mass of [a, b] beyond t is |min(F(a),
        F(t)) − min(F(b), F(t))|, and on the mean's side of t |max(F(a), F(t)) − max(F(b),
        F(t))|. Rounding is at most 1e−16 of the F that is subtracted from, which is harmless
        unless the total is a small part of those; then it is computed again, in logs.
        """
        mean = mean[:, None]
        t = self.t[:, None]
        sign = np.where(t < mean, 1.0, -1.0)
        mass_a, mass_b, mass_t = (_mass(sign * (x - mean)) for x in (self.a, self.b, t))
        empty = self.a >= self.b
        if empty.any():
            mass_a[empty], mass_b[empty] = 0.0, 0.0
        beyond, scale = _total(np.minimum(mass_a, mass_t), np.minimum(mass_b, mass_t))
        within, scale_within = _total(np.maximum(mass_a, mass_t), np.maximum(mass_b, mass_t))
        accurate = (
            (np.minimum(beyond, within) > 1e-280)
            & (beyond > 1e-6 * scale)
            & (within > 1e-6 * scale_within)
        )
        odds = sign[:, 0] * np.log(
            np.divide(beyond, within, out=np.ones_like(beyond), where=accurate)
        )
        for k in np.flatnonzero(~accurate).tolist():
            odds[k] = self._exact_log_odds(k, float(mean[k, 0]))
        return odds

    def _exact_log_odds(self, k: int, mean: float) -> float:
        a = self.a[k]
        b = self.b[k]
        t = self.t[k]
        kept = a < b
        below, above = (
            float(np.logaddexp.reduce(log_mass(starts - mean, ends - mean), initial=-math.inf))
            for starts, ends in (
                (a[kept], np.minimum(b[kept], t)),
                (np.maximum(a[kept], t), b[kept]),
            )
        )
        return below - above if below > -math.inf else -math.inf

    def log_pvalue(self, mean: Array) -> Array:
        """(trials,) log P(t' > t) at this mean (over s)."""
        return np.asarray(-np.logaddexp(0.0, self.log_odds(mean)))

    def log_equivalence(self, mean: Array, log_odds: Array) -> Array:
        """(trials,) log P(t' < t) from its log odds at this mean (over s), and no less than
        without the selection.
        """
        selective = np.where(log_odds > -math.inf, -np.logaddexp(0.0, -log_odds), 0.0)
        return np.asarray(np.maximum(selective, log_ndtr(self.t - mean)))

    def mean_at(self, log_odds: float, default: float) -> float:
        """The mean of D_i − D_J at which the log odds of falling below t are these;
        `default` where they never are.

        For a single trial. Bracketed by doubling around t, then Brent.
        """
        s = float(self.s[0])
        t = float(self.t[0])
        excess: Callable[[float], float] = cache(
            lambda mean: float(self.log_odds(np.array([mean]))[0]) - log_odds
        )
        if not math.isfinite(excess(t)):
            return default
        near = t
        far = math.copysign(1.0, excess(t))
        while excess(t + far) * far > 0.0:
            near = t + far
            far = 2.0 * far
            if abs(far) > _FARTHEST:
                return default
        return s * float(brentq(excess, near, t + far, xtol=1e-7, rtol=1e-10))


def _mass(x: Array) -> Array:
    """Φ(x). Where no slope is negative all upper limits are infinite, and Φ need not be
    computed.
    """
    return (x > 0.0).astype(float) if np.isinf(x).all() else np.asarray(ndtr(x))


def _total(masses_a: Array, masses_b: Array) -> tuple[Array, Array]:
    """(trials,) Σ_m |a_m − b_m|, and the sum of the larger ones, which its rounding errors
    are a part of.
    """
    return np.abs(masses_a - masses_b).sum(axis=1), np.maximum(masses_a, masses_b).sum(axis=1)


def conditional_law(
    t: Array, s: Array, slope: Array, shifted: Callable[[int], Array], draws: int
) -> ConditionalLaw:
    """The law of D_i − D_J in each trial, from t = D_i − D_J and s (trials,), and the slopes
    d_k (trials, l).

    `shifted` gives g_k = D_k − D_J + w_k − w_J of model k (trials, draws), the realised w
    first. A slope of 0 decides whether a draw can select J at all; NaN leaves a model out.
    """
    shape = (len(t), draws)
    t = t / s
    low = np.full(shape, math.inf)
    high = np.full(shape, -math.inf)
    reach = np.empty(shape)
    rising = slope > 0.0
    falling = slope < 0.0
    flat = slope == 0.0
    divisor = np.where(rising | falling, slope, 1.0) * s[:, None]
    everywhere = np.asarray(rising.all(axis=0))
    for k in np.flatnonzero(~np.isnan(slope).all(axis=0)).tolist():
        g = shifted(k)
        np.divide(g, divisor[:, k, None], out=reach)
        if everywhere[k]:
            np.minimum(low, reach, out=low)
            continue
        np.minimum(low, reach, out=low, where=rising[:, k, None])
        np.maximum(high, reach, out=high, where=falling[:, k, None])
        # The realised draw selected J; only rounding could say that it did not.
        np.copyto(low[:, 1:], -math.inf, where=flat[:, k, None] & (g[:, 1:] < 0.0))
    a = t[:, None] - low
    b = t[:, None] - high
    # Rounding must not push the observed t out of the interval of the realised draw.
    a[:, 0], b[:, 0] = np.minimum(a[:, 0], t), np.maximum(b[:, 0], t)
    return ConditionalLaw(s, t, a, b)


def carve_bounds(
    joint: JointEstimate, level: float | Array, *, rng: Source, draws: int = DRAWS
) -> tuple[Array, Array]:
    """(l,) lower and upper confidence bounds for D_i − D_J given the selection of J, each
    with coverage `level`.

    P_μ(t' > t | J, N) increases with μ. The lower bound solves it = 1 − level: it is above 0
    exactly where the p-value of `carve` is below 1 − level. The upper bound solves it =
    level, and allows for a variance that grows with D. Bounds are infinite where the draws
    say nothing; a difference without variance is known, or 0 if it is rounding.
    """
    selection = select(joint, rng, draws)
    levels = np.broadcast_to(level, joint.values.shape)
    gaps = selection.gaps
    log_odds = (np.log(levels) - np.log1p(-levels)).tolist()
    known = gaps.constant[0] & (np.abs(gaps.gap[0]) > gaps.rounding[0])
    lower = np.where(known, gaps.gap[0], 0.0)
    upper = lower.copy()
    for i in selection.tested:
        law = selection.law(i).possible()
        lower[i] = law.mean_at(log_odds[i], -math.inf)
        upper[i] = law.mean_at(-log_odds[i], math.inf)
        if joint.near_degeneracy is not None and math.isfinite(upper[i]):
            supposed = _gaps_supposing(
                joint, joint.near_degeneracy, i, selection.best, upper[i]
            )
            upper[i] = max(
                upper[i], selection.law(i, supposed).possible().mean_at(-log_odds[i], math.inf)
            )
    return lower, upper


def _gaps_supposing(
    joint: JointEstimate, second_order: Array, i: int, best: int, difference: float
) -> Gaps:
    """The differences to J with the covariance under the hypothesis that D_i − D_J is this
    `difference`.

    f of the module's opening are the variances there, over the estimated ones.
    """
    toward = joint.covariance[:, i] - joint.covariance[:, best]
    step = (
        toward
        * (difference - joint.values[i] + joint.values[best])
        / (toward[i] - toward[best])
    )
    # An estimate within its standard error of 0 says little about its own size.
    size = np.maximum(joint.values, joint.standard_error)
    growth = np.divide(step, size, out=np.zeros_like(step), where=size > 0.0)
    f = np.maximum(1.0 + (1.0 - np.clip(second_order, 0.0, 1.0)) * growth, _SMALLEST_VARIANCE)
    return gaps_to(joint, best, joint.covariance * np.sqrt(np.outer(f, f)))
