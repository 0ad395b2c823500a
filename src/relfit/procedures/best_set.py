"""The best set: which models could be the best one, each tested against all others at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relfit.estimate import JointEstimate
from relfit.inputs import check_margin
from relfit.procedures.corrections import adjust
from relfit.procedures.decision import Decision, lowest
from relfit.procedures.differences import Differences, differences, smallest_sample
from relfit.procedures.maxt import BOOTSTRAP, STUDENT, Law, law
from relfit.procedures.streams import Source
from relfit.procedures.upper import upper_regret

Array = NDArray[np.float64]

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
