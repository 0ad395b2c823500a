"""Pairs of models: the test of one fixed pair (RelMMD and RelKSD, or RelPSI), who beats
whom, and ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri, ndtri_exp

from relfit.stats.decision import (
    PairedBinary,
    adjust,
    constant_log_pvalues,
    constant_word,
    differences,
    gaps_to,
    selective_log_equivalence,
)
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import Source, kept_pairs, law, quantile, seeded
from relfit.stats.tests.best_set import DRAWS, BestSet, pair_log_pvalue, pair_threshold
from relfit.stats.truncnorm import selective_log_pvalue
from relfit.util.arrays import Array, Mask


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
    [0.61, 1.39]
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
