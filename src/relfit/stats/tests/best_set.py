"""Upper bounds for how much worse than the best each model is: Hsu's multiple comparisons with the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from relfit.stats.decision import Decision, Differences, adjust, differences, lowest, psi_rows, smallest_sample
from relfit.stats.joint import JointEstimate, Psi
from relfit.stats.maxt import (
    BOOTSTRAP,
    GAUSSIAN,
    SMALL_SAMPLE,
    STUDENT,
    Law,
    Pairs,
    Source,
    covariance_root,
    law,
    seeded,
    streams,
)
from relfit.util.arrays import Array
from relfit.util.checks import check_margin
from relfit.util.errors import InputError
from relfit.util.random import make_seed


def upper_regret(pairs: Differences, reference: Law, level: float, top: Array | None = None) -> Array:
    """(l,) bounds with R_i = D_i − min_j D_j ≤ bound_i for all i, with probability `level` (Hsu 1981).

    Write N_ij = (D̂_i − D̂_j − (D_i − D_j))/s_ij and let k be the best model. If N_ki ≤ d_k for all i, which has
    probability `level` with d_k the quantile of max_i N_ki, then k is in C = {k : D̂_k − D̂_i ≤ d_k s_ki for all i},
    and R_i = D_i − D_k ≤ D̂_i − D̂_k + d_k s_ik for all i. Hence
    ``R_i ≤ max(0, max_{k∈C, k≠i} (D̂_i − D̂_k + d_k s_ik))``. One comparison per model and not all pairs.

    `top` are the law's maxima over all pairs, where they have been drawn already.
    """
    critical = critical_each(reference, all_pairs(pairs), level, top)
    critical = np.where(np.isfinite(critical), np.maximum(critical, 0.0), 0.0)
    possible = ((pairs.gap <= critical[:, None] * pairs.error) | pairs.same).all(axis=1)
    reach = np.where(possible & ~pairs.same, pairs.gap + critical * pairs.error, 0.0)
    return np.asarray(np.maximum(reach.max(axis=1), 0.0))


def all_pairs(pairs: Differences) -> Array:
    """(l, l) offsets that leave out only the pairs without variance."""
    return np.where(pairs.varies, 0.0, -math.inf)


def critical_each(reference: Law, offsets: Array, level: float, top: Array | None = None) -> Array:
    """(l,) for every i the `level` quantile of max_j (Z_ij + offset_ij); −inf where no j is left in."""
    counts = (offsets > -math.inf).sum(axis=1)
    top = reference.maxima(offsets) if top is None else top
    return np.array([reference.critical(row, level, int(k)) for row, k in zip(top, counts, strict=True)])


# --------------------
# The best set: which models could be the best one, each tested against all others at once.

DRAWS = 20_000
# The share of α that the two-step variant spends on its first step (Romano, Shaikh and Wolf's advice).
FIRST_STEP = 0.1


@dataclass(frozen=True)
class BestSetDecision(Decision):
    """Verdicts of the best set. Unlike in other tests the best model has a p-value too, and it is tested.

    `statistic` is T_i; `beaten_by` the index of the model each rejected one is worst against, None for the
    others; `confidence_set` the indices of the models that may be best; `method` that of the draws (`maxt.law`).
    """

    statistic: Array = field(default_factory=lambda: np.empty(0))
    beaten_by: tuple[int | None, ...] = ()
    confidence_set: tuple[int, ...] = ()
    method: str = "gaussian"


def best_set(
    joint: JointEstimate,
    alpha: float,
    correction: str = "none",
    *,
    rng: Source,
    draws: int = DRAWS,
    method: str = "auto",
    two_step: bool = False,
    margin: float = 0.0,
) -> BestSetDecision:
    """Test, for every i, H_i: "i is as good as every other", D_i ≤ min_j D_j + δ with margin δ.

    ``T_i = max_{j≠i} (D_i − D_j − δ)/s_ij`` is compared with ``max_{j∈K_i} Z_ij``, Z_ij = (G_i − G_j)/s_ij,
    G ~ N(0, V), where moment selection keeps the models that i is not far better than:
    ``K_i = {j : (D_i − D_j − δ)/s_ij > −√log n}``, all j where n is not known.
    ``p_i = (1 + #{max ≥ T_i})/(1 + draws)``, no larger than Σ_{j∈K_i} Φ(−T_i), exactly that for a single j
    (two models: the one-sided z test), and 1 for an empty K_i.

    Below 300 rows p_i is the larger of two: that of a percentile-t bootstrap of the ψ rows, which knows their
    skewness, and that of Student's law (`maxt.law`). The bootstrap alone is far too small where a few rows make up a
    difference, as with 0/1 losses: resampled, such a difference moves with its own standard error. Its union bound
    has Student's tails and speaks only where no draw reached T_i, below the resolution of the draws.

    With a margin a model is `equivalent` where its `upper_regret` at level 1 − α is at most δ: D_i ≤ min_j D_j + δ for
    all of these at once.

    {i : p_i > α} holds each best model with probability 1 − α; with "holm" it holds all of them, with "bh"
    or "by" the models outside it have a false discovery rate of α. Corrections count all l hypotheses;
    "auto" is "by", since no sign condition is known for these maxima.

    `two_step` replaces moment selection by Romano, Shaikh and Wolf (2014): upper bounds of all D_i − D_j − δ
    hold with probability 1 − β, are capped at 0 and added to Z_ij, and β is added to the p-value. β is α/10,
    divided by the penalty of the correction.

    Args:
        joint: the estimates.
        alpha: the level.
        correction: "none", "holm", "bonferroni", "bh", "by" or "auto".
        rng: a Generator, or a function from a model's name (None: the reference) to a Generator.
        draws: Monte-Carlo draws at most; fewer where a p-value is plainly large (`Law.exceedances`).
        method: "auto", or one law alone: "gaussian", "student" (needs the number of rows), "bootstrap" (ψ rows).
        two_step: whether to use the two-step variant.
        margin: δ ≥ 0, in the units of D.

    >>> joint = JointEstimate(("a", "b", "c"), [0.1, 0.12, 0.9], 0.01 * np.eye(3))
    >>> decision = best_set(joint, 0.05, rng=np.random.default_rng(0))
    >>> decision.confidence_set, decision.beaten_by
    ((0, 1), (None, None, 0))
    """
    margin = check_margin(margin)
    used = "by" if correction == "auto" else correction
    pairs = differences(joint, margin)
    laws = _laws(joint, pairs, method, rng, draws)
    first = FIRST_STEP * alpha / _penalty(used, len(joint.names)) if two_step else 0.0
    statistic = pairs.ratio.max(axis=1)
    found = []
    for reference in laws:
        offsets = _two_step(pairs, reference, first) if two_step else moment_selection(pairs, smallest_sample(joint))
        found.append(_log_pvalues(reference, offsets, statistic))
    log_p = np.max(found, axis=0)
    log_p = np.minimum(np.logaddexp(log_p, math.log(first)), 0.0) if two_step else log_p
    log_p[pairs.certain.any(axis=1)] = -math.inf
    best, tied = lowest(joint)
    adjusted = adjust(np.exp(log_p), used)
    worse = adjusted <= alpha
    worse[best] = False
    return BestSetDecision(
        best=best,
        log_pvalue=log_p,
        adjusted_pvalue=adjusted,
        worse=worse,
        status=status_words(differences(joint), best, tied),
        correction=used,
        statistic=statistic,
        beaten_by=tuple(_beater(joint, pairs, i) if worse[i] else None for i in range(len(worse))),
        confidence_set=tuple(np.flatnonzero(~worse).tolist()),
        method=laws[0].method,
        equivalent=_equivalent(joint, laws, 1.0 - alpha, margin) if margin else None,
    )


def _laws(joint: JointEstimate, pairs: Differences, method: str, rng: Source, draws: int) -> list[Law]:
    """The law of the differences, and where that is a bootstrap by default Student's as well."""
    first = law(joint, pairs.error, method, rng, draws)
    both = method == "auto" and first.method == BOOTSTRAP
    return [first, law(joint, pairs.error, STUDENT, rng, draws)] if both else [first]


def _equivalent(joint: JointEstimate, laws: list[Law], level: float, margin: float) -> NDArray[np.bool_]:
    """Which models every law shows to be within the margin of the best."""
    bounds = [upper_regret(differences(joint), reference, level) for reference in laws]
    return np.asarray(np.max(bounds, axis=0) <= margin)


def moment_selection(pairs: Differences, n: int | None) -> Array:
    """(l, l) offsets: 0 where j ∈ K_i, −inf elsewhere. Model i cannot lose to a j it is far better than."""
    lowest_ratio = -math.inf if n is None else -math.sqrt(math.log(n))
    return np.where(pairs.varies & (pairs.ratio > lowest_ratio), 0.0, -math.inf)


def _two_step(pairs: Differences, reference: Law, first: float) -> Array:
    """Offsets min(upper bound of (D_i − D_j − δ)/s_ij, 0); −inf throughout where every upper bound is ≤ 0."""
    everything = np.where(pairs.varies, 0.0, -math.inf)
    top = reference.maxima(np.full_like(everything, -math.inf), everything)
    counts = pairs.varies.sum(axis=1)
    reach = np.array([reference.critical(row, 1.0 - first, int(k)) for row, k in zip(top, counts, strict=True)])
    upper = np.where(pairs.varies, pairs.ratio + np.where(counts > 0, reach, 0.0)[:, None], -math.inf)
    upper[(upper <= 0.0).all(axis=1)] = -math.inf
    return np.minimum(upper, 0.0)


def _log_pvalues(reference: Law, offsets: Array, statistic: Array) -> Array:
    members = (offsets > -math.inf).sum(axis=1)
    statistic = np.where(members > 0, statistic, 0.0)
    reached, made = reference.exceedances(offsets, statistic)
    log_p = np.log((1.0 + reached) / (1.0 + made))
    union = reference.log_union(offsets, statistic)
    if reference.method != BOOTSTRAP:
        log_p = np.where(members == 1, union, np.minimum(log_p, union))
    else:
        log_p = np.where(reached == 0, np.minimum(log_p, union), log_p)
    return np.where(members > 0, np.minimum(log_p, 0.0), 0.0)


def _penalty(correction: str, count: int) -> float:
    """What the smallest of `count` p-values is multiplied by."""
    if correction == "none":
        return 1.0
    return float(count * np.reciprocal(np.arange(1.0, count + 1.0)).sum()) if correction == "by" else float(count)


def status_words(pairs: Differences, best: int, tied: NDArray[np.bool_]) -> tuple[tuple[str, ...], ...]:
    """Ties, and differences without variance: known ones and those that are rounding."""
    words = [["tie"] if tie else [] for tie in tied]
    for i, own in enumerate(words):
        if pairs.certain[i].any():
            own.append("deterministic")
        elif i != best and pairs.same[i, best]:
            own.append("indistinguishable")
    return tuple(tuple(own) for own in words)


def _beater(joint: JointEstimate, pairs: Differences, i: int) -> int:
    if pairs.certain[i].any():
        return int(np.argmin(np.where(pairs.certain[i], joint.values, math.inf)))
    return int(np.argmax(pairs.ratio[i]))


# --------------------
# Simultaneous confidence bounds for how much worse than the best each model is.
#
# The regret of model i is R_i = D_i − min_j D_j ≥ 0: 0 for the best, whoever that is. It needs no selected model, so
# its bounds hold without conditioning.


@dataclass(frozen=True)
class RegretBounds:
    """One-sided bounds, (l,) each: all R_i ≥ lower with probability `level`, all R_i ≤ upper likewise.

    A two-sided interval at 95% takes both at level 0.975.
    """

    lower: Array
    upper: Array
    level: float
    method: str


def regret_bounds(
    joint: JointEstimate,
    level: float = 0.95,
    *,
    rng: Source,
    draws: int = DRAWS,
    method: str = "auto",
    simultaneous: bool = True,
) -> RegretBounds:
    """Confidence bounds for R_i = D_i − min_j D_j, in the units of D.

    Write N_ij = (D̂_i − D̂_j − (D_i − D_j))/s_ij.

    *Lower.* If N_ij ≤ d for all pairs, then for every i and j R_i ≥ D_i − D_j ≥ D̂_i − D̂_j − d s_ij, so
    ``R_i ≥ max(0, max_j (D̂_i − D̂_j − d s_ij))``, with d the quantile of max_ij N_ij. But R_i exceeds D_i − D_j
    by R_j: the bound fails only through a pair with N_ij − R_j/s_ij > d. So a first step spends a tenth of
    the error on such bounds r_j of all R_j, and d is the quantile of max_ij (N_ij − r_j/s_ij) at the level that
    is left: where r_j ≤ R_j for all j it is large enough. Models far from the best cost next to nothing. With
    ``simultaneous=False`` each model has its own d_i, from the j ∈ K_i of the best set: the bound is above 0
    exactly where its p-value is below 1 − level.

    *Upper*: `upper_regret`, always simultaneous. A model with upper bound ≤ δ is shown to be as good as the best,
    within δ.

    >>> joint = JointEstimate(("a", "b"), [0.0, 1.0], 0.02 * np.eye(2))
    >>> bounds = regret_bounds(joint, rng=np.random.default_rng(0))
    >>> bounds.upper.round(3).tolist()  # 1 + 1.645 · 0.2; the better one's regret is 0
    [0.0, 1.329]
    """
    pairs = differences(joint)
    reference = law(joint, pairs.error, method, rng, draws)
    top = reference.maxima(all_pairs(pairs))
    if simultaneous:
        lower = _lower(pairs, reference, level, top)
    else:
        offsets = moment_selection(pairs, smallest_sample(joint))
        lower = _above(pairs, critical_each(reference, offsets, level))
    return RegretBounds(lower, upper_regret(pairs, reference, level, top), level, reference.method)


def _lower(pairs: Differences, reference: Law, level: float, top: Array) -> Array:
    count, size = len(pairs.gap), int(pairs.varies.sum())
    spent = FIRST_STEP * (1.0 - level)
    critical = reference.critical(top.max(axis=0), 1.0 - spent, size)
    first = _above(pairs, np.full(count, critical))
    slack = np.divide(first, pairs.error, out=np.zeros_like(pairs.gap), where=pairs.varies)
    if slack.any():
        top = reference.maxima(all_pairs(pairs) - slack)
    critical = reference.critical(top.max(axis=0), level + spent, size)
    return _above(pairs, np.full(count, critical))


def _above(pairs: Differences, critical: Array) -> Array:
    """max(0, max_j (gap_ij − d_i s_ij)); a constant difference is its own bound. d_i = −inf: nothing to test."""
    usable = np.where(np.isfinite(critical), critical, 0.0)[:, None]
    reach = np.where(pairs.varies & np.isfinite(critical)[:, None], pairs.gap - usable * pairs.error, 0.0)
    return np.asarray(np.maximum(np.where(pairs.certain, pairs.gap, reach).max(axis=1), 0.0))


# --------------------
# The best set under several kernels at once: one max-t test over all models and all kernels.
#
# *The hypothesis.* D_i^k is model i's discrepancy under kernel k. H_i: "under every kernel i is as good as every
# other model", D_i^k ≤ D_j^k for all j and k. A model is declared worse when for some kernel some other model is
# significantly better under it.
#
# *The level.* ``T_i = max_{k,j} (D_i^k − D_j^k)/s_ij^k`` is compared with the same maximum of Z_ij^k = (G_i^k −
# G_j^k)/s_ij^k, where G ~ N(0, V) and V is the joint covariance over (model, kernel): the ψ rows of all kernels come
# from the same rows of data, so their stacked Gram matrix is that covariance. Under H_i every (D_i^k − D_j^k)/s_ij^k
# has a mean of at most 0, so T_i is at most its maximum with the means taken out, whose law is the one drawn: P(p_i ≤
# α) → at most α. Moment selection leaves out pairs (j, k) that i is far better than, as in one kernel. Where no model
# is best under every kernel, every H_i is false and nothing can be declared wrongly.


@dataclass(frozen=True)
class CollectionDecision(BestSetDecision):
    """Verdicts of the best set under several kernels.

    `beaten_under` is the index of the kernel under which each rejected model is worst against `beaten_by`, None for
    the others. `best` is the smallest mean over the kernels; `contradicted` says that it, too, is worse than another
    model under some kernel (it is never declared worse).
    """

    beaten_under: tuple[int | None, ...] = ()
    contradicted: bool = False


def collection_best_set(
    joints: Sequence[JointEstimate], alpha: float, correction: str = "none", *, rng: Source, draws: int = DRAWS
) -> tuple[JointEstimate, CollectionDecision]:
    """Test every H_i; the mean of the estimates over the kernels, and the verdicts.

    Args:
        joints: one estimate for each kernel, of the same models from the same rows, with their ψ rows.
        alpha: the level.
        correction: as in `best_set`.
        rng: as in `best_set`.
        draws: Monte-Carlo draws.
    """
    _check(joints)
    source = seeded(make_seed(rng), "collection") if isinstance(rng, np.random.Generator) else rng
    pairs = [differences(joint) for joint in joints]
    families = _collection_laws(joints, pairs, source, draws)
    n = smallest_sample(joints[0])
    offsets = [moment_selection(each, n) for each in pairs]
    ratios = np.stack([each.ratio for each in pairs])
    statistic = ratios.max(axis=(0, 2))
    log_p = np.max([_collection_log_pvalues(laws, offsets, statistic) for laws in families], axis=0)
    certain = np.stack([each.certain for each in pairs])
    log_p[certain.any(axis=(0, 2))] = -math.inf
    used = "by" if correction == "auto" else correction
    adjusted = adjust(np.exp(log_p), used)
    mean = mean_estimate(joints)
    best, tied = lowest(mean)
    worse = adjusted <= alpha
    contradicted, worse[best] = bool(worse[best]), False
    under, by = _worst(ratios, certain)
    return mean, CollectionDecision(
        best=best,
        log_pvalue=log_p,
        adjusted_pvalue=adjusted,
        worse=worse,
        status=status_words(_joined(pairs), best, tied),
        correction=used,
        statistic=statistic,
        beaten_by=_where(by, worse),
        confidence_set=tuple(np.flatnonzero(~worse).tolist()),
        method=families[0][0].method,
        beaten_under=_where(under, worse),
        contradicted=contradicted,
    )


def mean_estimate(joints: Sequence[JointEstimate]) -> JointEstimate:
    """The mean over the kernels: the estimate under the mean kernel, as MMD² and KSD² are linear in the kernel."""
    parts = [joint.psi for joint in joints if joint.psi is not None]
    first = parts[0]
    own = [part.reference for part in parts if part.reference is not None]
    reference = np.mean(own, axis=0) if own else None
    models = tuple(np.mean([part.models[i] for part in parts], axis=0) for i in range(len(first.models)))
    psi = Psi(reference, models, first.shared)
    values = np.mean([joint.values for joint in joints], axis=0)
    whole = {"values": values, "covariance": psi.covariance(), "psi": psi}
    shares = [joint.near_degeneracy for joint in joints if joint.near_degeneracy is not None]
    largest = np.max(shares, axis=0) if len(shares) == len(joints) else None
    return replace(joints[0], **whole, near_degeneracy=largest, second_order=None)


def _joined(pairs: Sequence[Differences]) -> Differences:
    """Certain under any kernel, the same under all of them."""
    certain, same = np.any([each.certain for each in pairs], axis=0), np.all([each.same for each in pairs], axis=0)
    return replace(pairs[0], certain=certain, same=same)


def joint_covariance(parts: Sequence[Psi]) -> Array:
    """(K·l, K·l) covariance of all estimates, kernel by kernel, from the ψ rows they share."""
    size = len(parts) * parts[0].covariance().shape[0]
    reference = [part.reference for part in parts if part.reference is not None]
    total = _gram(np.hstack(reference)) if reference else np.zeros((size, size))
    models = len(parts[0].models)
    if models and parts[0].shared:
        return total + _gram(np.hstack([np.stack(part.models, axis=1) for part in parts]))
    for i in range(models):
        place = np.arange(i, size, models)
        total[np.ix_(place, place)] += _gram(np.stack([part.models[i] for part in parts], axis=1))
    return total


def _collection_laws(
    joints: Sequence[JointEstimate], pairs: Sequence[Differences], source: Source, draws: int
) -> list[list[Law]]:
    """The law of each kernel's differences; their draws belong together, one by one. With few rows two such families.

    Each law makes its random numbers anew from the same streams: in the bootstrap the same resamples, otherwise the
    same G, of which it takes its own kernel's part.
    """
    rows = psi_rows(joints[0])
    few = rows is not None and rows < SMALL_SAMPLE
    root = covariance_root(joint_covariance([joint.psi for joint in joints if joint.psi is not None]))
    method, freedom = (STUDENT, rows - 1) if rows is not None and few else (GAUSSIAN, None)
    parts = [_part(root, len(joints), k, each.error, source, joints[0].names, freedom) for k, each in enumerate(pairs)]
    drawn = [Law(method, draws, rows, each.error, part) for each, part in zip(pairs, parts, strict=True)]
    if not few:
        return [drawn]
    return [
        [law(joint, each.error, BOOTSTRAP, source, draws) for joint, each in zip(joints, pairs, strict=True)],
        drawn,
    ]


def _part(
    root: Array, kernels: int, k: int, error: Array, source: Source, names: Sequence[str], freedom: int | None
) -> Callable[[int], Pairs]:
    own = streams(source, names)
    scale = np.divide(1.0, error, out=np.zeros_like(error), where=error > 0.0)
    mine = root[k * len(names) : (k + 1) * len(names)]

    def chunk(draws: int) -> Pairs:
        normal = np.stack([rng.standard_normal((kernels, draws)) for rng in own.models], axis=1)
        g = mine @ normal.reshape(len(root), draws)
        if freedom is not None:
            g /= np.sqrt(own.reference.chisquare(freedom, draws) / freedom)
        return lambda i, others: np.asarray((g[i] - g[others]) * scale[i, others, None])

    return chunk


def _collection_log_pvalues(laws: Sequence[Law], offsets: Sequence[Array], statistic: Array) -> Array:
    members = sum((each > -math.inf).sum(axis=1) for each in offsets)
    statistic = np.where(members > 0, statistic, 0.0)
    top = np.maximum.reduce([law_.maxima(each) for law_, each in zip(laws, offsets, strict=True)])
    reached = (top >= statistic[:, None]).sum(axis=1)
    log_p = np.log((1.0 + reached) / (1.0 + laws[0].draws))
    unions = [law_.log_union(each, statistic) for law_, each in zip(laws, offsets, strict=True)]
    union = np.logaddexp.reduce(unions, axis=0)
    if laws[0].method != BOOTSTRAP:
        log_p = np.where(members == 1, union, np.minimum(log_p, union))
    else:
        log_p = np.where(reached == 0, np.minimum(log_p, union), log_p)
    return np.where(members > 0, np.minimum(log_p, 0.0), 0.0)


def _worst(ratios: Array, certain: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For every model the kernel and the other model with the largest ratio; a difference without variance first."""
    order = np.where(certain, math.inf, ratios).transpose(1, 0, 2)
    flat = order.reshape(len(order), -1).argmax(axis=1)
    return np.divmod(flat, order.shape[2])


def _where(found: NDArray[np.intp], worse: NDArray[np.bool_]) -> tuple[int | None, ...]:
    return tuple(int(k) if bad else None for k, bad in zip(found, worse, strict=True))


def _check(joints: Sequence[JointEstimate]) -> None:
    for joint in joints:
        own = None if joint.psi is None else joint.psi.covariance()
        scale = np.sqrt(np.diag(joint.covariance))
        if own is None or (np.abs(own - joint.covariance) > 1e-6 * np.outer(scale, scale)).any():
            raise InputError(
                "kernel: several kernels in one test need the covariance of the ψ rows; use "
                'estimator="complete" or "linear", variance="projection"'
            )


def _gram(psi: Array) -> Array:
    n = len(psi)
    return np.asarray(psi.T @ psi / (n * (n - 1)))
