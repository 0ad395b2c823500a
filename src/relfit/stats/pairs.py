"""Pairs of models: the test of one fixed pair (RelMMD and RelKSD, or RelPSI), who beats
whom, and ranks; and an interval for the discrepancy of the model that was selected.

That model was selected because its estimate is the smallest. Write J for it, e_j = D̂_j − D_j
for the errors, and s_j for the standard errors. The smallest of several estimates is too
small on average, so the ordinary interval D̂_J ± t s_J misses D_J too often, and nearly
always because D_J is above it.

*The lower end needs no allowance.* The truly best model b has D_b ≤ D_J and D̂_b ≥ D̂_J.
Hence e_J ≤ e_b: where the selected model's estimate is too large by some amount, the
estimate of b is too large by at least as much. With equal standard errors the ordinary lower
end is therefore missed with probability at most α/2.

*The upper end is found in two steps* (Romano, Shaikh and Wolf 2014), as a locally
simultaneous bound (Zrnic and Fithian 2024).

1. With probability 1 − ν all differences of two models satisfy D_j − D_k ≥ L_jk =
   D̂_j − D̂_k − c s_jk at the same time.
2. Model j has the smallest estimate only if −(e_j − e_J) ≥ D_j − D_J, and so only if
   −(e_j − e_J) ≥ L_jJ. The critical value q is the quantile, over draws of e ~ N(0, V), of
   max_j −e_j/s_j over the models j that satisfy this condition. The upper end is
   D̂_J + q s_J.

Each end uses the error (α − ν)/2. A model that is far behind satisfies the condition in no
draw; if that holds for all models but J, q is the ordinary quantile, and the interval is the
ordinary one at the level 1 − α + ν. If all models tie, q is the quantile of the largest of
all errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp, stdtrit

from relfit.stats.close import reach
from relfit.stats.decision import (
    PairedBinary,
    adjust,
    constant_log_pvalues,
    constant_word,
    differences,
    gaps_to,
    selective_log_equivalence,
)
from relfit.stats.joint import (
    JointEstimate,
    binary_step,
    freedom,
    smallest_sample,
    third_cumulants,
)
from relfit.stats.maxt import Source, covariance_root, kept_pairs, law, quantile, seeded
from relfit.stats.tests.best_set import DRAWS, BestSet, pair_log_pvalue, pair_threshold
from relfit.stats.truncnorm import selective_log_pvalue
from relfit.util.arrays import Array, Mask
from relfit.util.random import stream


@dataclass(frozen=True)
class PairDecision:
    """The outcome for a pair: t = D_a − D_b, its standard error, log p, the threshold, and
    for RelPSI the truncation.

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
        known = "deterministic" in self.status or math.isinf(self.difference)
        return math.copysign(math.inf, self.difference - margin) if known else 0.0


def relative_test(
    joint: JointEstimate, alpha: float, margin: float = 0.0, seed: int = 0
) -> PairDecision:
    """Test D_a ≤ D_b + δ as the best set does with two models."""
    t, s, constant = _difference(joint, margin)
    if constant is not None:
        return constant
    rng = seeded(seed, BestSet.name)
    log_p = pair_log_pvalue(joint, margin, rng, alpha)
    equivalent = reverse_log_pvalue(joint, margin) <= math.log(alpha) if margin else None
    return PairDecision(
        t, s, log_p, pair_threshold(joint, alpha, margin, rng), equivalent=equivalent
    )


def reverse_log_pvalue(joint: JointEstimate, margin: float = 0.0) -> float:
    """log p of D_a ≥ D_b + δ, whose rejection shows that a is no worse than b by more than
    δ; 0 for a constant gap.
    """
    pairs = differences(joint, -margin)
    if not pairs.varies[1, 0] and not joint.binary:
        return 0.0
    ratio = pairs.ratio[1, 0]
    if joint.binary:
        counts = PairedBinary.of(joint)
        score = -counts.score(margin / counts.step)[0, 1]
        ratio = score if margin or not pairs.varies[1, 0] else min(ratio, score)
    return float(log_ndtr(-ratio))


def relative_z(
    joint: JointEstimate, alpha: float, margin: float = 0.0, _seed: int = 0
) -> PairDecision:
    """One-sided z test of D_a ≤ D_b + δ, as published: RelMMD (Bounliphone et al. 2016) or
    RelKSD, by what D is.
    """
    t, s, constant = _difference(joint, margin)
    if constant is not None:
        return constant
    log_p = float(log_ndtr((margin - t) / s))
    equivalent = float(log_ndtr((t - margin) / s)) <= math.log(alpha) if margin else None
    return PairDecision(t, s, log_p, margin - s * float(ndtri(alpha)), equivalent=equivalent)


def impossible_pair(first: bool, margin: float) -> PairDecision:
    """The outcome where one of the two, the first or not, gives density 0 to some rows: it
    is infinitely worse.
    """
    t = math.inf if first else -math.inf
    equivalent = not first if margin else None
    return PairDecision(t, 0.0, min(0.0, -t), -t, ("impossible rows",), equivalent=equivalent)


def fixed_relpsi(
    joint: JointEstimate, alpha: float, margin: float = 0.0, _seed: int = 0
) -> PairDecision:
    """RelPSI with η = e_a − e_b whichever model is selected: t given its own sign.

    If b is selected t ≥ 0 and the truncation is [0, ∞), threshold δ − sΦ⁻¹(αΦ(δ/s)); if a is
    selected it is (−∞, 0], threshold δ + sΦ⁻¹((1 − α)Φ(−δ/s)). Without a margin these are
    sΦ⁻¹(1 − α/2) and sΦ⁻¹(½ − α/2).
    """
    t, s, constant = _difference(joint, margin)
    if constant is not None:
        return constant
    lower, upper = (-math.inf, 0.0) if t <= 0.0 else (0.0, math.inf)
    log_p = (
        float(selective_log_pvalue(t - margin, s, lower - margin, upper - margin))
        if t != 0.0
        else 0.0
    )
    status = ("tie",) if t == 0.0 else ()
    inside = float(log_ndtr(-margin / s if t <= 0.0 else margin / s))
    reach = (
        ndtri_exp(math.log1p(-alpha) + inside)
        if t <= 0.0
        else -ndtri_exp(math.log(alpha) + inside)
    )
    equivalent = (
        float(selective_log_equivalence(t, s, lower, upper, margin)) <= math.log(alpha)
        if margin
        else None
    )
    return PairDecision(
        t, s, log_p, margin + s * float(reach), status, (lower, upper), equivalent
    )


# What `compare_pair` calls them, and what its results do.
PAIR_TESTS = dict(
    auto=(relative_test, "rel{measure}"),
    z=(relative_z, "rel{measure}"),
    relpsi=(fixed_relpsi, "relpsi"),
)


def _difference(
    joint: JointEstimate, margin: float
) -> tuple[float, float, PairDecision | None]:
    """t = D_a − D_b, its standard error s, and the decision where t is a constant."""
    gaps = gaps_to(joint, 1)
    t = float(gaps.gap[0, 0])
    s = float(gaps.error[0, 0])
    if s > 0.0:
        return t, s, None
    log_p = float(gaps.known_log_pvalues(margin)[0, 0])
    word = constant_word(t, float(gaps.rounding[0, 0]))
    threshold = math.inf if log_p == 0.0 else -math.inf
    equivalent = t <= margin if margin else None
    return t, s, PairDecision(t, 0.0, log_p, threshold, (word,), equivalent=equivalent)


def rank_sets(
    joint: JointEstimate,
    level: float = 0.95,
    *,
    rng: Source,
    draws: int = DRAWS,
    simultaneous: bool = True,
) -> tuple[Mask, Mask]:
    """The differences that are shown, (l, l) "i is worse than j" and "i is better than j",
    and so sets for the ranks.

    Hypotheses D_i ≤ D_j are tested by the largest (D_i − D_j)/s_ij, against the law of max
    (G_i − G_j)/s_ij over those not yet rejected (step-down, Romano and Wolf 2005), until no
    more are rejected; no error among them with probability `level`. Then with that
    probability, for all models (Mogstad et al. 2024),

        rank_i ∈ [1 + #{j : D_i > D_j shown}, l − #{j : D_j > D_i shown}],

    and the interval holds every rank that ties allow. With ``simultaneous=False`` each
    model's set has probability `level` on its own, from the comparisons with that model
    only: row i of the answers is that of the family of i.

    >>> joint = JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3))
    >>> worse, better = rank_sets(joint, rng=np.random.default_rng(0))
    >>> (1 + worse.sum(axis=1)).tolist(), (3 - better.sum(axis=1)).tolist()
    ([1, 1, 3], [2, 2, 3])
    """
    pairs = differences(joint)
    reference = law(joint, pairs.error, rng, draws)
    worse = pairs.certain
    better = pairs.certain.T
    critical = np.full(len(worse), math.inf)
    while True:
        below = pairs.varies & ~worse
        above = pairs.varies & ~better
        if simultaneous:
            maxima = reference.maxima(kept_pairs(below)).max(axis=0, keepdims=True)
            sizes = [int(below.sum())]
        else:
            maxima = reference.maxima(kept_pairs(below), kept_pairs(above))
            sizes = (below.sum(axis=1) + above.sum(axis=1)).tolist()
        quantiles = [
            quantile(row, level, size) for row, size in zip(maxima, sizes, strict=True)
        ]
        critical = np.minimum(critical, quantiles)
        new_below = below & (pairs.ratio > critical[:, None])
        new_above = above & (critical[:, None] < pairs.ratio.T)
        if not (new_below.any() or new_above.any()):
            return worse, better
        worse = worse | new_below
        better = better | new_above


def pairwise_matrix(
    joint: JointEstimate, alpha: float, correction: str = "holm"
) -> tuple[Array, Array, Mask, str]:
    """One-sided tests of "i is no worse than j" for all l(l − 1) ordered pairs, adjusted
    together.

    ``p_ij = Φ(−z_ij)``, z the ratio (D_i − D_j)/s_ij as a normal number
    (`Differences.ratio`). Gives log p, adjusted p and "i is worse than j", (l, l) each with
    1 and False on the diagonal, and the correction. "auto" is "by": the pairs (i, j) and (j,
    i) are negatively dependent, which BH does not allow for. A difference without variance
    has p = 1/(n + 1) or 1 by its value.

    >>> joint = JointEstimate(("a", "b"), [0.0, 1.0], 0.02 * np.eye(2))
    >>> pairwise_matrix(joint, 0.05)[2].tolist()
    [[False, False], [True, False]]
    """
    pairs = differences(joint)
    used = "by" if correction == "auto" else correction
    log_p = np.where(pairs.varies, log_ndtr(-np.where(pairs.varies, pairs.ratio, 0.0)), 0.0)
    log_p[pairs.certain] = constant_log_pvalues(joint, 0.0)[pairs.certain]
    off = ~np.eye(len(log_p), dtype=bool)
    adjusted = np.ones_like(log_p)
    adjusted[off] = adjust(np.exp(log_p[off]), used)
    return log_p, adjusted, (adjusted <= alpha) & off, used


def pair_intervals(
    joint: JointEstimate, level: float = 0.95, *, rng: Source, draws: int = DRAWS
) -> Array:
    """(l, l, 2) intervals for every D_i − D_j that hold all together with probability `level`.

    ``D̂_i − D̂_j ± d s_ij`` with d the quantile of max_ij (D̂_i − D̂_j − (D_i − D_j))/s_ij
    over all ordered pairs, which is the largest absolute value over the unordered ones
    (Tukey's method, for any covariance); for 0/1 losses Tango's score interval at d. A
    difference without variance is known, or holds 0 if it is rounding.

    >>> joint = JointEstimate(("a", "b"), [0.0, 1.0], 0.02 * np.eye(2))
    >>> pair_intervals(joint, rng=np.random.default_rng(0))[1, 0].round(
    ...     2
    ... ).tolist()  # 1 ± 1.96 · 0.2
    [0.6, 1.4]
    """
    pairs = differences(joint)
    reference = law(joint, pairs.error, rng, draws)
    top = reference.maxima(kept_pairs(pairs.varies)).max(axis=0)
    critical = quantile(top, level, int(pairs.varies.sum()))
    reach = pairs.reach(critical) if pairs.varies.any() else np.zeros_like(pairs.gap)
    ends = np.stack([pairs.gap - reach, pairs.gap + reach.T], axis=2)
    if joint.binary:
        single = float(ndtri((1.0 + level) / 2.0))
        limits = PairedBinary.of(joint).upper(max(critical, single))
        np.fill_diagonal(limits, 0.0)
        return np.stack([-limits.T, limits], axis=2)
    ends[pairs.same] = np.sort(np.stack([pairs.gap, np.zeros_like(pairs.gap)], axis=2), axis=2)[
        pairs.same
    ]
    return np.asarray(ends)


# ── the winner's own value ───────────────────────────────────────────────────────────────────────

Selection = Literal["other rows", "smallest", "any"]
"""How the model was selected: on rows that are not in the estimate, by the smallest estimate,
or in some other way from the same rows."""

# The part of the error α that the bounds of the first step spend.
FIRST_STEP = 0.02
DRAWS = 20_000
# With many models fewer draws: about as many random numbers.
_DRAW_NUMBERS = 1_600_000
_FEWEST_DRAWS = 4_000
# Measures that are squared distances, and so at least 0.
_SQUARED = ("mmd", "ksd", "ume", "fssd")


def winner_interval(
    joint: JointEstimate, best: int, error: float, selection: Selection = "smallest"
) -> tuple[float, float]:
    """An interval that misses D_J with probability at most `error`, J = `best` being selected.

    A model that was selected on other rows has the ordinary t interval. One that was
    selected in some other way from the same rows has the bounds that hold for all models
    simultaneously. Ends allow for few rows (Student's t), for skewness (Hall), and for 0/1
    losses they are Wilson's. The variance of a squared distance grows with it. It is at least
    0: a lower end below 0 is raised to 0, and an estimate below 0 counts as 0 for the upper
    end, so the interval is never
    empty. Where all losses of the model are the same number, which says nothing about other
    items, the interval has no limits.

    >>> joint = JointEstimate(("a", "b", "c"), [0.0, 0.1, 5.0], 0.01 * np.eye(3))
    >>> low, high = winner_interval(joint, 0, 0.05)
    >>> bool(-0.2 < low < -0.19 and 0.21 < high < 0.24)
    True
    """
    if selection == "other rows":
        points = -float(ndtri(error / 2.0))
        return ends(joint, best, points, points)
    if selection == "any":
        critical = simultaneous_point(joint, error)
        return ends(joint, best, critical, critical)
    tail = (1.0 - FIRST_STEP) * error / 2.0
    critical = local_point(joint, best, FIRST_STEP * error, tail)
    return ends(joint, best, -float(ndtri(tail)), critical)


def local_point(joint: JointEstimate, best: int, first_step: float, tail: float) -> float:
    """q of the module's opening, with the errors of the two steps."""
    apart = lowest_differences(joint, best, first_step)
    errors = error_draws(joint)
    possible = errors[best] - errors >= apart[:, None]
    models = int(np.count_nonzero(possible.any(axis=1)))
    studentised = np.where(possible, -_studentised(errors, joint), -math.inf)
    critical = quantile(studentised.max(axis=0), 1.0 - tail, models)
    return max(critical, -float(ndtri(tail)))


def simultaneous_point(joint: JointEstimate, error: float) -> float:
    """The quantile of the largest |e_j|/s_j."""
    largest = np.abs(_studentised(error_draws(joint), joint)).max(axis=0)
    count = len(joint.names)
    return quantile(largest, 1.0 - error, 2 * count) if count > 1 else -float(ndtri(error / 2))


def lowest_differences(joint: JointEstimate, best: int, error: float) -> Array:
    """(l,) lower bounds L_jJ, which hold for all ordered pairs together by Bonferroni's
    inequality.
    """
    count = len(joint.names)
    if count == 1:
        return np.zeros(1)
    pairs = differences(joint)
    critical = -float(ndtri(error / (count * (count - 1))))
    lowest = pairs.gap[:, best] - pairs.reach(critical)[:, best]
    lowest[best] = 0.0
    return np.asarray(lowest)


def error_draws(joint: JointEstimate) -> Array:
    """(l, draws) draws of the errors N(0, V).

    Random numbers belong to the ranks of the estimates: other names, or another order of the
    models, change nothing.
    """
    count = len(joint.names)
    draws = max(_FEWEST_DRAWS, min(DRAWS, _DRAW_NUMBERS // count))
    order = np.argsort(joint.values, kind="stable")
    normal = stream(0, "winner").standard_normal((count, draws))
    errors = np.empty_like(normal)
    errors[order] = covariance_root(joint.covariance[np.ix_(order, order)]) @ normal
    return errors


def ends(joint: JointEstimate, best: int, below: float, above: float) -> tuple[float, float]:
    """The ends at normal points `below` and `above` the estimate of one model."""
    if joint.binary:
        return _wilson(joint, best, below, above)
    value = float(joint.values[best])
    error = float(joint.standard_error[best])
    if error == 0.0 and joint.of_items:
        return -math.inf, math.inf
    points = np.array([below, above])
    degrees = own_freedom(joint)[best]
    if math.isfinite(degrees):
        points = -stdtrit(degrees, ndtr(-points))
    third = third_cumulants(joint)
    skewness = 0.0
    if third is not None and error > 0.0:
        # One factor after the other: cubes of very large errors do not fit into float64.
        skewness = float(third[best, best]) / error / error / error
    below, above = reach(points, skewness * np.array([1.0, -1.0])).tolist()
    if joint.measure not in _SQUARED:
        return value - error * below, value + error * above
    low = _squared_ends(joint, best, value, below)[0]
    high = _squared_ends(joint, best, max(value, 0.0), above)[1]
    return max(low, 0.0), high


def _squared_ends(
    joint: JointEstimate, best: int, value: float, points: float
) -> tuple[float, float]:
    """``D̂ + q²c/4 ∓ q √(S2 + cD̂)``, the D for which D̂ is a point q of its distribution.

    D̂ = (√D + e)² + w with Var(e) = c/4 and Var(w) = S2, the second-order part: without it the
    ends are (√D̂ ∓ q√c/2)². Where the parts are not known the variance is that of the
    estimate. The best model's own estimate is small by chance, and its first-order variance is
    that at the models' mean: c is at most the ratio of their means.
    """
    variances = np.diag(joint.covariance)
    if joint.second_order is None or joint.follows is None:
        error = points * math.sqrt(float(variances[best]))
        return value - error, value + error
    second = np.minimum(np.diag(joint.second_order), variances)
    lengths = (joint.values + np.sqrt(np.square(joint.values) + second)) / 2.0
    first = variances - second
    slope = 0.0
    if lengths[best] > 0.0:
        slope = float(min(first[best] / lengths[best], first.sum() / lengths.sum()))
    middle = value + points**2 * slope / 4.0
    spread = math.sqrt(max(slope * value + float(second[best]), 0.0))
    # Below this no positive D is left out.
    low = middle - points * spread if spread > points * slope / 2.0 else 0.0
    return low, middle + points * spread


def own_freedom(joint: JointEstimate) -> Array:
    """(l,) degrees of freedom of the variances of the estimates themselves."""
    if joint.freedom is not None and (np.diag(joint.freedom) > 0.0).all():
        return np.diag(joint.freedom)
    rows = smallest_sample(joint)
    if joint.lags is not None and rows is not None:
        return np.full(len(joint.names), max(1.0, 1.5 * rows / (joint.lags + 1)))
    return freedom(joint)


def _wilson(joint: JointEstimate, best: int, below: float, above: float) -> tuple[float, float]:
    """Wilson's score limits of a mean of 0/1 losses, or of minus 0/1 scores."""
    value = float(joint.values[best])
    step = math.copysign(binary_step(joint), float(joint.values.sum()))
    n = float((joint.sizes or (0,))[0])
    rate = value / step
    points = (-below, above) if step > 0.0 else (-above, below)
    limits = [_wilson_limit(rate, z, n) for z in points]
    low, high = sorted(step * limit for limit in limits)
    return low, high


def _wilson_limit(rate: float, z: float, n: float) -> float:
    variance = max(rate * (1.0 - rate), 0.0) / n + z * z / (4.0 * n * n)
    return (rate + z * z / (2.0 * n) + z * math.sqrt(variance)) / (1.0 + z * z / n)


def _studentised(errors: Array, joint: JointEstimate) -> Array:
    """e_j/s_j; 0 where a model has no error."""
    scale = joint.standard_error[:, None]
    return np.divide(errors, scale, out=np.zeros_like(errors), where=scale > 0.0)
