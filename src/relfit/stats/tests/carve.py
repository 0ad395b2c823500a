"""Carving: select with added noise, test with all the data, given the selection.

*What is conditioned on.* D ~ N(θ, V), and w ~ N(0, V) is drawn independently of D. J = argmin (D + γw). For a
model i ≠ J let η = e_i − e_J, t = ηᵀD, s² = ηᵀVη, c = Vη/s². Then N = D − c t is independent of t (jointly
normal, Cov(N, t) = Vη − c s² = 0), and (t, N) is independent of w. Given J and N, with μ = ηᵀθ = D_i − D_J,

    density of t  ∝  φ((t − μ)/s) · P_w( J = argmin (N + c t + γw) ).

For one w the event on the right is an interval of t: with d_k = c_k − c_J and, at the observed t,
g_k = D_k − D_J + γ(w_k − w_J), it says g_k + (t' − t) d_k ≥ 0 for all k, hence

    a = max_{d_k>0} (t − g_k/d_k),   b = min_{d_k<0} (t − g_k/d_k),   empty if some d_k = 0 has g_k < 0.

So the probability is the share of the draws w_m whose interval [a_m, b_m] holds t, and

    P_μ(t' > t | J, N) = Σ_m [Φ((b_m−μ)/s) − Φ((max(t, a_m)−μ)/s)]₊ / Σ_m [Φ((b_m−μ)/s) − Φ((a_m−μ)/s)].

μ = 0 is least favourable for "i is no worse than J" and gives the p-value. Neither the draws nor the limits
depend on μ: each draw enters with the probability of its own event under μ, which is all the reweighting there is.
Given J and N the law of t is an exponential family in μ, so the sum increases with μ and can be inverted for
confidence bounds. The realised w is one of the draws: its interval holds the observed t, so the denominator is
never 0 (where a fresh draw hardly ever selects J the test becomes the one that is also given w, exact as well).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from relfit.stats.decision import (
    Decision,
    adjust,
    decide_without_variance,
    difference_variance,
    equivalent_to,
    known_log_equivalence,
    without_variance,
)
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import Source, Streams, covariance_root, normal_draws, streams
from relfit.stats.truncnorm import log_mass, selection_slopes
from relfit.util.arrays import Array
from relfit.util.errors import InputError

Status = tuple[tuple[str, ...], ...]

DRAWS = 2000
GAMMA = 1.0


@dataclass(frozen=True)
class CarveDecision(Decision):
    """Verdicts of carving: `best` is the argmin of D + γw, and another seed may select another model."""

    gamma: float = GAMMA
    randomised: bool = True


@dataclass(frozen=True)
class Selection:
    """The selected model, the noise γw (l, 1 + draws; the realised one first), and models that only shift J."""

    best: int
    noise: Array
    still: NDArray[np.bool_]


@dataclass(frozen=True)
class ConditionalLaw:
    """s, t over s, and the interval of every draw over s; a draw that cannot select J has a > b."""

    s: float
    t: float
    a: Array
    b: Array

    def trimmed(self) -> ConditionalLaw:
        """The same law without the draws that cannot select J."""
        possible = self.a <= self.b
        return ConditionalLaw(self.s, self.t, self.a[possible], self.b[possible])

    def log_odds(self, mean: float) -> float:
        """log P(t' < t) − log P(t' > t) when t' has this mean (over s): decreases with the mean.

        −inf where there is no mass below t, or none at all.
        """
        below = _log_total(self.a - mean, np.minimum(self.b, self.t) - mean)
        above = _log_total(np.maximum(self.a, self.t) - mean, self.b - mean)
        return float(below - above) if below > -math.inf else -math.inf

    def log_pvalue(self, mean: float = 0.0) -> float:
        """log P(t' > t) at this mean (over s)."""
        return -float(np.logaddexp(0.0, self.log_odds(mean)))

    def log_equivalence(self, mean: float) -> float:
        """log P(t' < t) at this mean (over s), and no less than without the selection (`equivalence`)."""
        odds = self.log_odds(mean)
        given = -float(np.logaddexp(0.0, -odds)) if odds > -math.inf else 0.0
        return max(given, float(log_ndtr(self.t - mean)))


def carve(
    joint: JointEstimate,
    alpha: float,
    correction: str = "none",
    *,
    rng: Source,
    draws: int = DRAWS,
    gamma: float = GAMMA,
    margin: float = 0.0,
) -> CarveDecision:
    """Select J = argmin (D + γw), w ~ N(0, V), and test "i is no worse than J" given that selection.

    The error rate is controlled given the selected model, as RelPSI's is, but noise in the selection leaves
    most of the data for the test: with γ = 1, the default, the noise is as large as that of D, and the
    selection is about as good as one from half the rows, while every test uses them all. γ → 0 is RelPSI. The module's
    opening derives the p-value. The l − 1 p-values are adjusted by `correction`; "auto" is "by". With a margin δ
    the hypothesis is "D_i ≤ D_J + δ".

    `rng` is a Generator, or a function from a model's name to a Generator. The realised w is drawn first, so
    the same seed selects the same model whatever `draws`, and in `carve_bounds` too.

    >>> joint = JointEstimate(("a", "b"), [0.0, 3.0], 0.5 * np.eye(2))
    >>> decision = carve(joint, 0.05, rng=np.random.default_rng(0))
    >>> decision.best, decision.worse.tolist()
    (0, [False, True])
    """
    selection = select(joint, streams(rng, joint.names), draws, gamma)
    log_p, status = _log_pvalues(joint, selection, margin)
    decision = _decision(selection.best, log_p, status, alpha, correction, gamma)
    if not margin:
        return decision
    shown = equivalent_to(selection.best, _log_equivalence(joint, selection, margin), alpha, decision.correction)
    return replace(decision, equivalent=shown)


def select(joint: JointEstimate, own: Streams, draws: int, gamma: float) -> Selection:
    """J = argmin (D + γw), with the realised w and `draws` fresh ones."""
    if not 0.0 < gamma < math.inf:
        raise InputError(f"gamma: expected a number above 0 (1 is the default), got {gamma!r}")
    root = covariance_root(joint.covariance)
    # The realised noise first: which model is selected does not depend on the number of fresh draws.
    noise = gamma * np.hstack([normal_draws(root, own.models, count) for count in (1, draws)])
    best = int(np.argmin(joint.values + noise[:, 0]))
    return Selection(best, noise, without_variance(joint.covariance, best))


def _log_pvalues(joint: JointEstimate, selection: Selection, margin: float = 0.0) -> tuple[Array, Status]:
    best = selection.best
    log_p = np.zeros(len(joint.names))
    status: list[tuple[str, ...]] = [() for _ in joint.names]
    for i in np.flatnonzero(np.arange(len(log_p)) != best).tolist():
        if selection.still[i]:
            log_p[i], word = decide_without_variance(joint, i, best, margin)
            status[i] = (word,)
        else:
            own = conditional_law(joint, selection, i)
            log_p[i] = own.log_pvalue(margin / own.s)
    return log_p, tuple(status)


def _log_equivalence(joint: JointEstimate, selection: Selection, margin: float) -> Array:
    out = np.zeros(len(joint.names))
    for i in np.flatnonzero(np.arange(len(out)) != selection.best).tolist():
        if selection.still[i]:
            out[i] = known_log_equivalence(float(joint.values[i] - joint.values[selection.best]), margin)
        else:
            own = conditional_law(joint, selection, i)
            out[i] = own.log_equivalence(margin / own.s)
    return out


def _decision(best: int, log_p: Array, status: Status, alpha: float, correction: str, gamma: float) -> CarveDecision:
    used = "none" if len(log_p) <= 2 else "by" if correction == "auto" else correction
    others = np.arange(len(log_p)) != best
    adjusted = np.ones(len(log_p))
    adjusted[others] = adjust(np.exp(log_p[others]), used)
    worse = (adjusted <= alpha) & others
    return CarveDecision(best, log_p, adjusted, worse, status, used, gamma=gamma)


def conditional_law(joint: JointEstimate, selection: Selection, i: int) -> ConditionalLaw:
    """The law of D_i − D_J given the selection of J and what is independent of that difference."""
    best, noise = selection.best, selection.noise
    s = math.sqrt(difference_variance(joint.covariance, i, best))
    t = float(joint.values[i] - joint.values[best]) / s
    slope = selection_slopes(joint.covariance, i, best)
    assert slope is not None  # noqa: S101  (a difference without variance has no law to ask for)
    counted = ~selection.still
    rising, falling, flat = (counted & which for which in (slope > 0.0, slope < 0.0, slope == 0.0))
    g = ((joint.values - joint.values[best])[:, None] + noise - noise[best]) / s
    a = t - np.min(g[rising] / slope[rising, None], axis=0, initial=math.inf)
    b = t - np.max(g[falling] / slope[falling, None], axis=0, initial=-math.inf)
    impossible = (g[flat] < 0.0).any(axis=0)
    # Rounding must not push the observed t out of the realised draw's own interval.
    a[0], b[0], impossible[0] = min(a[0], t), max(b[0], t), False
    return ConditionalLaw(s, t, np.where(impossible, math.inf, a), np.where(impossible, -math.inf, b))


def _log_total(starts: Array, ends: Array) -> float:
    """log Σ_m (Φ(b_m) − Φ(a_m))₊. Differences of Φ where that is accurate, each seen from its nearer tail.

    Rounding is at most 1e−16 of the Φ subtracted from; where the total is no small part of those, it is harmless.
    """
    held = starts < ends
    starts, ends = starts[held], ends[held]
    right = starts > 0.0
    high, low = np.where(right, -starts, ends), np.where(right, -ends, starts)
    # Most intervals have no upper end; the half of all values that are 0 or 1 need not be computed.
    finite = np.isfinite(high), np.isfinite(low)
    above, below = (high > 0.0).astype(float), np.zeros(len(low))
    above[finite[0]], below[finite[1]] = ndtr(high[finite[0]]), ndtr(low[finite[1]])
    total, scale = float((above - below).sum()), float(above.sum())
    if total > 1e-6 * scale and total > 1e-280:
        return math.log(total)
    return float(np.logaddexp.reduce(log_mass(starts, ends), initial=-math.inf))


# --------------------
# Confidence bounds after carving: the conditional law of each difference, inverted in its mean.
#
# *Upper ends.* V is estimated at D̂, and an estimate that came out low has a low variance as well: with D the square
# of a distance, the first-order part of Var D̂_k is proportional to D_k (the witness function scales with the
# distance), and only the share ν_k of second order (`near_degeneracy`) is not. Under the hypothesis D_i − D_J = u the
# most likely D is D̂ + c(u − t), so that there
#
#     Var D̂_k = V_kk f_k,   f_k = 1 + (1 − ν_k) c_k (u − t)/D̂_k,   c = Vη/s²,
#
# and V_kl is multiplied by √(f_k f_l). An upper end u is solved for once more with this V, and the larger of both is
# taken: without it upper bounds miss too often in small samples. Lower ends, which go with the p-values, keep V.

Target = tuple[float, float]
"""The log odds of falling below t that an end solves for, and the end where they are never that."""

# A confidence bound more standard errors away than this is as good as none.
FARTHEST = 1e6
# Under no hypothesis is a variance taken to be less than this share of the estimated one.
SMALLEST_SHARE = 0.05


@dataclass(frozen=True)
class CarveBounds:
    """Given J = `best`, for D_i − D_J: one-sided lower and upper bounds (l,), equal-tailed intervals (l, 2)."""

    best: int
    lower: Array
    upper: Array
    interval: Array
    level: float


def carve_bounds(
    joint: JointEstimate, level: float = 0.95, *, rng: Source, draws: int = DRAWS, gamma: float = GAMMA
) -> CarveBounds:
    """Confidence bounds for D_i − D_J given the selection of J, each with coverage `level`.

    P_μ(t' > t | J, N) of the opening of `carve` increases with μ. The lower bound solves it = 1 − level: it is
    above 0 exactly where the p-value of `carve` is below 1 − level. The upper bound solves it = level, the
    interval's ends solve it = (1 ∓ level)/2; upper ends allow for the variance growing with D (above). Infinite
    where the draws say nothing; a difference without variance is known, or 0 if it is rounding.
    """
    selection = select(joint, streams(rng, joint.names), draws, gamma)
    one, two = math.log(level / (1.0 - level)), math.log((1.0 + level) / (1.0 - level))
    # Lower, upper, and the two ends of the interval: log odds of falling below t, and what to say without them.
    targets = ((one, -math.inf), (-one, math.inf), (two, -math.inf), (-two, math.inf))
    found = np.zeros((len(joint.names), len(targets)))
    for i in np.flatnonzero(np.arange(len(found)) != selection.best).tolist():
        if selection.still[i]:
            found[i] = _constant(joint, i, selection.best)
        else:
            found[i] = _ends(joint, selection, i, targets)
            found[i, [1, 3]] = [_further(joint, selection, i, found[i, k], targets[k]) for k in (1, 3)]
    return CarveBounds(selection.best, found[:, 0], found[:, 1], found[:, 2:], level)


def _ends(joint: JointEstimate, selection: Selection, i: int, targets: Sequence[Target]) -> list[float]:
    own = conditional_law(joint, selection, i).trimmed()
    odds = cache(own.log_odds)
    return [own.s * _mean_at(odds, own.t, *target) for target in targets]


def _further(joint: JointEstimate, selection: Selection, i: int, upper: float, target: Target) -> float:
    """This upper end, or the one with the covariance of the hypothesis that it is the difference, if that is larger."""
    if joint.near_degeneracy is None or not math.isfinite(upper):
        return upper
    share = _variance_shares(joint, joint.near_degeneracy, i, selection.best, upper)
    supposed = replace(joint, covariance=joint.covariance * np.sqrt(np.outer(share, share)))
    return max(upper, *_ends(supposed, selection, i, [target]))


def _variance_shares(joint: JointEstimate, second_order: Array, i: int, best: int, difference: float) -> Array:
    """(l,) f of the module's opening: the variances if D_i − D_J is this `difference`, over the estimated ones."""
    toward = joint.covariance[:, i] - joint.covariance[:, best]
    step = toward * (difference - joint.values[i] + joint.values[best]) / (toward[i] - toward[best])
    # An estimate within its standard error of 0 says little about its own size.
    size = np.maximum(joint.values, joint.standard_error)
    grown = np.divide(step, size, out=np.zeros_like(step), where=size > 0.0)
    return np.asarray(np.maximum(1.0 + (1.0 - np.clip(second_order, 0.0, 1.0)) * grown, SMALLEST_SHARE))


def _mean_at(odds: Callable[[float], float], t: float, wanted: float, default: float) -> float:
    """The mean (over s) at which the log odds of falling below t are as `wanted`; `default` where they never are.

    Bracketed by doubling around t, then Brent.
    """
    start = odds(t) - wanted
    if not math.isfinite(start):
        return default
    near, far = t, math.copysign(1.0, start)
    while (odds(t + far) - wanted) * far > 0.0:
        near, far = t + far, 2.0 * far
        if abs(far) > FARTHEST:
            return default
    return float(brentq(lambda mean: odds(mean) - wanted, near, t + far, xtol=1e-7, rtol=1e-10))


def _constant(joint: JointEstimate, i: int, best: int) -> float:
    known = decide_without_variance(joint, i, best)[1] == "deterministic"
    return float(joint.values[i] - joint.values[best]) if known else 0.0
