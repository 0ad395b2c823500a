"""The best set: a confidence set for the best model. Each model is tested against all others
simultaneously.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from relfit.stats import maxt
from relfit.stats.close import CloseLaw, Drawing, Noise
from relfit.stats.decision import (
    FAMILY_WISE,
    Decision,
    Differences,
    PairedBinary,
    adjust,
    certain_log_pvalue,
    constant_log_pvalues,
    differences,
    lowest,
)
from relfit.stats.joint import (
    JointEstimate,
    Psi,
    binary_step,
    freedom,
    gram,
    has_psi_covariance,
    smallest_sample,
)
from relfit.stats.maxt import (
    Law,
    NormalPairs,
    Source,
    kept_pairs,
    law,
    maximum_log_pvalues,
    quantile,
    seeded,
    stepdown_log_pvalues,
    streams,
)
from relfit.stats.tests.base import Criteria, Test, Trials, Words
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.errors import InputError
from relfit.util.random import make_seed

DRAWS = 20_000
# With many models fewer: p-values are valid with any number of draws.
DRAW_NUMBERS = 800_000
FEWEST_DRAWS = 4_000
# The part of the error that a first step of the lower bounds spends (Romano, Shaikh and Wolf's
# advice).
FIRST_STEP = 0.1
# With fewer rows than this, moment selection is that of so many: two models' critical value is
# then within its reach.
_FEWEST_SELECTING = 200
# Doublings that find the threshold of a pair, and halvings of the interval in which it lies: p
# is a number of draws, so more of them add no digits.
_DOUBLINGS = 20
_HALVINGS = 14
# Notes name at most this many models.
_MOST_NOTES = 5
# With more models than this, p-values for all models at once are Holm's.
_MANY_AT_ONCE = 200
# What the smaller one of two p-values is multiplied by.
_PENALTY = {
    "none": 1.0,
    "stepdown": 2.0,
    "holm": 2.0,
    "bonferroni": 2.0,
    "bh": 2.0,
    "by": 3.0,
    "auto": 3.0,
}


@dataclass(frozen=True)
class BestSet(Test):
    """The best set: a confidence set for the best model. Each model is tested against all
    others simultaneously.

    With "stepdown", the default, and with "holm" the probability that any best model is
    declared worse is at most α; with "none" this holds for each best model, and so for a
    unique one; with "bh" or "by" the false discovery rate is at most α.
    """

    name = "best-set"
    words = Words(
        name="best set",
        question=(
            "Every model was tested for being as good as all the others{kernels}. The models that "
            "are not rejected form a confidence set for the best."
        ),
        error=(
            "Each model that is truly best{kernels} is declared worse with probability at "
            "most {alpha}: it is in the "
            "confidence set with probability at least {level}."
        ),
        methods=(
            "For each model we tested the hypothesis that it is no worse{margin} than any "
            "other model{kernels} by the "
            "largest studentised difference, with {critical} and moment selection "
            "[andrews2010inference]; the models "
            "not rejected form a confidence set for the best{within} [hansen2011model]."
        ),
        opponent="the best{kernels}",
        intervals=(
            "Each model's difference to the best, whichever model that is, with the interval that "
            "agrees with its verdict."
        ),
        equivalent_to="the best",
        equivalence="for all models jointly",
    )
    default_correction = "stepdown"
    tests_best = True
    draws = True
    both_parts = True
    steps_down = True

    def decide(
        self, joint: JointEstimate, criteria: Criteria, selection: JointEstimate | None = None
    ) -> Decision:
        rng = seeded(criteria.seed, self.name)
        draws = max(FEWEST_DRAWS, min(DRAWS, DRAW_NUMBERS // len(joint.names)))
        return best_set(
            joint,
            criteria.alpha,
            criteria.correction,
            rng=rng,
            draws=draws,
            margin=criteria.margin,
            draws_on=criteria.draws_on,
        )

    def bounds(
        self,
        joint: JointEstimate,
        level: float | Array,
        *,
        best: int,
        truncation: Array | None,
        seed: int,
    ) -> tuple[Array, Array]:
        """Bounds for D_i − min_j D_j, whichever model is best; all hold together."""
        return regret_bounds(joint, float(level), rng=seeded(seed, self.name))

    def log_pvalues(
        self, trials: Trials, models: list[int], alpha: float, *, exact: bool
    ) -> tuple[Rows, Array]:
        """The max-t test with moment selection. All trials share one law of the maximum."""
        values = trials.values
        maxima = trials.maxima()
        p = np.ones((len(values), len(models)))
        for c, i in enumerate(models):
            gaps = trials.covariances.gaps(values, i)
            # The gaps are D_j − D_i, and the statistic is about D_i − D_j.
            ratio = np.where(
                gaps.constant, -math.inf, gaps.gap / np.where(gaps.constant, 1.0, -gaps.error)
            )
            statistic = ratio.max(axis=1)
            members = ratio > _lowest_ratio(trials.rows)
            count = members.sum(axis=1)
            # Φ(−T) ≤ p ≤ |K| Φ(−T), so most verdicts need no law of a maximum.
            union = count * ndtr(-statistic)
            possible = statistic > -ndtri(alpha)
            p[possible, c] = union[possible]
            unsure = np.flatnonzero(possible & (count > 1) & ((union > alpha) | exact))
            if not exact:
                # More members, larger maximum: what all of them leave below α needs no set of
                # its own.
                bound = maxima.tail(i, np.ones(values.shape[1], dtype=bool), statistic[unsure])
                p[unsure, c] = np.minimum(union[unsure], bound)
                unsure = unsure[bound > alpha]
            p[unsure, c] = np.minimum(
                union[unsure], maxima.tails(i, members[unsure], statistic[unsure])
            )
            p[(gaps.constant & (-gaps.gap > gaps.rounding)).any(axis=1), c] = 0.0
        with np.errstate(divide="ignore"):
            return np.argmin(values, axis=1), np.log(p)

    def two_model_power(self, signal: float, alpha: float, correction: str) -> float:
        """Φ(r − z_{1−α}), with α divided by the correction's penalty for two hypotheses."""
        return float(ndtr(signal + ndtri(alpha / _PENALTY[correction])))

    @classmethod
    def resolved_correction(cls, correction: str, covariance: Array, best: int) -> str:
        """The correction that is really applied: "auto" is BY, since no sign condition is
        known for these maxima.
        """
        return "by" if correction == "auto" else correction

    def decide_under_all(
        self, joints: Sequence[JointEstimate], kernels: Sequence[str], criteria: Criteria
    ) -> tuple[JointEstimate, Decision]:
        rng = seeded(criteria.seed, self.name)
        joint, decision = collection_best_set(
            joints, criteria.alpha, criteria.correction, rng=rng
        )
        return joint, replace(
            decision, notes=_kernel_notes(joint, decision, kernels, criteria.alpha)
        )


def best_set(
    joint: JointEstimate,
    alpha: float,
    correction: str = "none",
    *,
    rng: Source,
    draws: int = DRAWS,
    margin: float = 0.0,
    draws_on: bool = True,
) -> Decision:
    """Test, for every i, H_i: "i is as good as every other", D_i ≤ min_j D_j + δ with margin δ.

    ``T_i = max_{j≠i} (D_i − D_j − δ)/s_ij`` is compared with ``max_{j∈K_i} Z_ij``, Z_ij =
    (G_i − G_j)/s_ij, G ~ N(0, V), where moment selection keeps the models that i is not far
    better than: ``K_i = {j : (D_i − D_j − δ)/s_ij > −κ}``, κ = √log n, n at least 200; all j
    where n is not known. ``p_i = (1 + #{max ≥ T_i})/(1 + draws)``, no larger than Σ_{j∈K_i}
    Φ(−T_i), exactly that for a single j (two models: the one-sided z test), and 1 for an
    empty K_i.

    Every ratio is a normal number if the difference is 0: Hall's correction allows for the
    skewness of the ψ rows, and Student's law for few of them (`Differences.ratio`).

    With a margin a model is `equivalent` where its `upper_regret` at level 1 − α is at most
    δ: D_i ≤ min_j D_j + δ for all of these at once.

    {i : p_i > α} holds each best model with probability 1 − α; with "stepdown" or "holm" it
    holds all of them, with "bh" or "by" the models outside it have a false discovery rate of
    α. Corrections count all l hypotheses; "auto" is "by", since no sign condition is known
    for these maxima.

    *Step-down.* S holds the contenders at first, the models with p_i > 2Φ(−κ). T_i of the
    model with the largest one, over j ∈ S, is compared with ``max_{k∈S, j∈S∩K_k} Z_kj``,
    drawn for all models at once; if it is rejected it leaves S, and so on. A model that is
    no contender is compared with them all as if it were one. docs/evidence/derivations.md
    says why all best models are kept with probability 1 − α. Complete estimates of squared
    distances have their distribution at the tie of all models that are left instead
    (`CloseLaw.step_down`).

    *Rare errors.* Two models whose 0/1 losses differ on fewer than 10 items have no normal
    law: their ratio is not taken for larger than the normal point of the exact sign test's
    p-value, and Z_ij for no larger than that of the smallest one possible. Bounds of 0/1
    losses are Tango's score limits (`relfit.stats.decision.PairedBinary`). Other losses that are
    equal on all items are never shown to be equivalent.

    `rng` is a Generator, or a function from a model's rank (None: the reference) to a
    Generator; `draws` are the Monte-Carlo draws, fewer where a p-value is plainly large and
    more where it is near α (`Law.exceedances`) if it `draws_on`.

    >>> joint = JointEstimate(("a", "b", "c"), [0.1, 0.12, 0.9], 0.01 * np.eye(3))
    >>> decision = best_set(joint, 0.05, rng=np.random.default_rng(0))
    >>> decision.worse.tolist(), decision.beaten_by
    ([False, False, True], (None, None, 0))
    """
    pairs = differences(joint, margin)
    ratio = pairs.ratio
    without_margin = differences(joint) if margin else pairs
    near = alpha if draws_on else None
    cap = None
    adjusted = None
    if joint.binary and margin < binary_step(joint):
        ratio, cap = _score_ratios(joint, ratio, margin)
    null_law = law(joint, pairs.error, rng, draws, cap)
    plain = ratio
    rows = smallest_sample(joint)
    # p-values of differences that are the same on all rows.
    constant = np.where(pairs.certain, constant_log_pvalues(joint, margin), 0.0).min(axis=1)
    at_once = None
    if joint.close is not None:
        at_tie = _AtTie.of(joint, joint.close, rng, near)
        log_pvalue, ratio = at_tie.alone(joint.values, margin)
        if len(joint.names) <= _MANY_AT_ONCE:
            at_once = np.maximum(at_tie.together(joint.values, margin), np.exp(log_pvalue))
            at_once = np.minimum(at_once, np.exp(constant))
            adjusted = at_once if correction == "stepdown" else None
        elif correction == "stepdown":
            adjusted = adjust(np.exp(log_pvalue), "holm")
    else:
        offsets = moment_selection(ratio, pairs.varies, rows)
        log_pvalue = maximum_log_pvalues([null_law], [offsets], ratio.max(axis=1), near)
        if correction == "stepdown":
            adjusted = _stepped_down(
                [null_law], [offsets], [ratio], log_pvalue, constant, rows, near
            )
    log_pvalue = np.minimum(log_pvalue, constant)
    decision = _decided(joint, log_pvalue, without_margin, alpha, correction, adjusted)
    # By the model that it is larger than by a constant, if there is one, and otherwise the one
    # with the largest ratio.
    certain = np.argmin(np.where(pairs.certain, joint.values, math.inf), axis=1)
    beaters = np.where(pairs.certain.any(axis=1), certain, np.argmax(ratio, axis=1)).tolist()
    beaten_by = tuple(
        by if worse else None for by, worse in zip(beaters, decision.worse, strict=True)
    )
    equivalent = None
    if margin:
        unseen = without_margin.error == 0.0 if joint.of_items and not joint.binary else None
        equivalent = (
            upper_regret(joint, without_margin, null_law, 1.0 - alpha, unseen=unseen) <= margin
        )
    if at_once is not None:
        if decision.correction not in FAMILY_WISE:
            together = np.maximum(at_once, decision.adjusted_pvalue)
            decision = replace(decision, simultaneous_pvalue=together)
        return replace(decision, beaten_by=beaten_by, equivalent=equivalent)
    # Last, so that it takes no random numbers from what comes before.
    offsets = moment_selection(plain, pairs.varies, rows)
    decision = _at_once(decision, [null_law], [offsets], [plain], constant, rows)
    return replace(decision, beaten_by=beaten_by, equivalent=equivalent)


@dataclass(frozen=True, eq=False)
class _AtTie:
    """The tests that use the distribution of the estimates where models tie (`stats.close`)."""

    law: CloseLaw
    varies: Mask
    lowest_ratio: float
    drawing: Drawing

    @classmethod
    def of(
        cls, joint: JointEstimate, law: CloseLaw, rng: Source, alpha: float | None = None
    ) -> _AtTie:
        generators = streams(rng, joint.values)
        noise = Noise.drawn(generators.models, generators.reference, law.drawn)
        return cls(
            law,
            differences(joint).varies,
            _lowest_ratio(smallest_sample(joint)),
            Drawing(law, noise, freedom(joint), alpha),
        )

    def alone(self, values: Array, margin: float) -> tuple[Array, Array]:
        """log p of every model by itself (l,), and the ratios (l, l)."""
        return self.law.test(values, self.varies, margin, self.lowest_ratio, self.drawing)

    def together(self, values: Array, margin: float) -> Array:
        """(l,) adjusted p-values of all models, by step-down."""
        log_p = self.law.step_down(values, self.varies, margin, self.lowest_ratio, self.drawing)
        return np.exp(log_p)


def pair_log_pvalue(
    joint: JointEstimate, margin: float, rng: Source, alpha: float | None = None
) -> float:
    """log p of "the first of two models is no worse than the second": the one that
    `best_set` gives it.
    """
    pairs = differences(joint, margin)
    rows = smallest_sample(joint)
    if pairs.certain[0, 1]:
        return float(constant_log_pvalues(joint, margin)[0, 1])
    if joint.close is not None and pairs.varies[0, 1]:
        at_tie = _AtTie.of(joint, joint.close, rng, alpha)
        return float(at_tie.alone(joint.values, margin)[0][0])
    ratio = pairs.ratio
    if joint.binary and margin < binary_step(joint):
        ratio = _score_ratios(joint, ratio, margin)[0]
    return float(log_ndtr(-ratio[0, 1])) if ratio[0, 1] > _lowest_ratio(rows) else 0.0


def pair_threshold(joint: JointEstimate, alpha: float, margin: float, rng: Source) -> float:
    """The difference of two estimates above which the first model has p ≤ α; their mean
    stays as it is.
    """
    pairs = differences(joint, margin)
    high = margin + float(pairs.reach(-float(ndtri(alpha)))[0, 1])
    if joint.close is None:
        return high
    at_tie = _AtTie.of(joint, joint.close, rng)
    mean = float(joint.values.mean())

    def found(gap: float) -> bool:
        values = mean + gap * np.array([0.5, -0.5])
        return bool(at_tie.alone(values, margin)[0][0] <= math.log(alpha))

    low = margin
    for _ in range(_DOUBLINGS):
        if found(high):
            break
        low = high
        high = margin + 2.0 * (high - margin)
    else:
        return math.inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def _at_once(
    decision: Decision,
    laws: Sequence[Law],
    offsets: Sequence[Array],
    ratios: Sequence[Array],
    constant: Array,
    rows: int | None,
) -> Decision:
    """The decision with p-values for all models at once, by step-down whatever the
    correction is.

    A correction of that kind has them already. With very many models step-down takes long,
    and Holm's are taken.
    """
    adjusted = decision.adjusted_pvalue
    pvalue = np.exp(decision.log_pvalue)
    if decision.correction in FAMILY_WISE:
        return decision
    if len(pvalue) > _MANY_AT_ONCE:
        at_once = adjust(pvalue, "holm")
    else:
        log_pvalue = maximum_log_pvalues(
            laws, offsets, np.max([each.max(axis=1) for each in ratios], axis=0)
        )
        at_once = _stepped_down(laws, offsets, ratios, log_pvalue, constant, rows)
    return replace(decision, simultaneous_pvalue=np.maximum(at_once, adjusted))


def _stepped_down(
    laws: Sequence[Law],
    offsets: Sequence[Array],
    ratios: Sequence[Array],
    log_pvalue: Array,
    constant: Array,
    rows: int | None,
    alpha: float | None = None,
) -> Array:
    """(l,) adjusted p; models that lose by the same on all rows, with log p `constant` (l,)
    below 0, come first.
    """
    contenders = (constant == 0.0) & (
        log_pvalue > math.log(2.0) + log_ndtr(_lowest_ratio(rows))
    )
    adjusted = stepdown_log_pvalues(laws, offsets, ratios, log_pvalue, contenders, alpha)
    return np.minimum(np.exp(constant), np.exp(adjusted))


def _score_ratios(
    joint: JointEstimate, ratio: Array, margin: float
) -> tuple[Array, Array | None]:
    """The ratios (l, l) of 0/1 losses, and the largest ones possible where few items decide
    (None without such pairs).

    Without a margin, those of pairs with few discordant items are at most the normal point
    of the exact sign test. With one they are at most Tango's score statistic.
    """
    pairs = PairedBinary.of(joint)
    if margin:
        return np.minimum(ratio, pairs.score(margin / pairs.step)), None
    points, largest = pairs.sign_test_points()
    return np.where(ratio > 0.0, np.minimum(ratio, points), ratio), largest if np.isfinite(
        largest
    ).any() else None


def _decided(
    joint: JointEstimate,
    log_pvalue: Array,
    pairs: Differences,
    alpha: float,
    correction: str,
    adjusted: Array | None = None,
) -> Decision:
    """The verdicts from the p-values of all models; the best one is tested, too, but never
    declared worse.

    `adjusted` are the adjusted p-values where they are known already.
    """
    selected, tied = lowest(joint.values, np.diag(joint.covariance))
    best = int(selected)
    correction = BestSet.resolved_correction(correction, joint.covariance, best)
    adjusted = adjust(np.exp(log_pvalue), correction) if adjusted is None else adjusted
    worse = adjusted <= alpha
    worse[best] = False
    status: list[tuple[str, ...]] = [("tie",) if tie else () for tie in tied]
    for i, words in enumerate(status):
        if pairs.certain[i].any():
            status[i] = (*words, "deterministic")
        elif i != best and pairs.same[i, best] and not joint.of_items:
            status[i] = (*words, "indistinguishable")
    return Decision(best, log_pvalue, adjusted, worse, adjusted, tuple(status), correction)


def _lowest_ratio(n: float | None) -> float:
    return -math.inf if n is None else -math.sqrt(math.log(max(n, _FEWEST_SELECTING)))


def moment_selection(ratio: Array, varies: Mask, n: int | None) -> Array:
    """(l, l) offsets: 0 where j ∈ K_i, −inf elsewhere. Model i cannot lose to a j that it is
    far better than.
    """
    return kept_pairs(varies & (ratio > _lowest_ratio(n)))


# ── bounds for how much worse than the best each model is ─────────────────────────────────────


def regret_bounds(
    joint: JointEstimate, level: float = 0.95, *, rng: Source, draws: int = DRAWS
) -> tuple[Array, Array]:
    """(l,) lower and upper confidence bounds for the regret R_i = D_i − min_j D_j, in the
    units of D.

    The regret is 0 for the best model, whichever that is. It needs no selected model, so its
    bounds hold without
    conditioning: all R_i ≥ lower with probability `level`, and all R_i ≤ upper likewise.
    Write N_ij = (D̂_i − D̂_j − (D_i − D_j))/s_ij.

    *Lower.* If N_ij ≤ d for all pairs, then for every i and j R_i ≥ D_i − D_j ≥ D̂_i − D̂_j
    − d s_ij, so ``R_i ≥ max(0, max_j (D̂_i − D̂_j − d s_ij))``, with d the quantile of
    max_ij N_ij. But R_i exceeds D_i − D_j by
    R_j: the bound fails only through a pair with N_ij − R_j/s_ij > d. So a first step spends
    a tenth of the error on such bounds r_j of all R_j, and d is the quantile of max_ij (N_ij
    − r_j/s_ij) at the level that is left: where r_j ≤ R_j for all j it is large enough.
    Models far from the best then cost next to nothing.

    *Upper*: `upper_regret`. A model with upper bound ≤ δ is shown to be as good as the best,
    within δ.

    >>> joint = JointEstimate(("a", "b"), [0.0, 1.0], 0.02 * np.eye(2))
    >>> regret_bounds(joint, rng=np.random.default_rng(0))[1].round(
    ...     3
    ... ).tolist()  # 1 + 1.645 · 0.2; 0 for the better one
    [0.0, 1.329]
    """
    pairs = differences(joint)
    null_law = law(joint, pairs.error, rng, draws)
    offsets = kept_pairs(pairs.varies)
    count = int(pairs.varies.sum())
    all_maxima = maxima = null_law.maxima(offsets)
    spent = FIRST_STEP * (1.0 - level)
    first = _lower_regret(joint, pairs, quantile(maxima.max(axis=0), 1.0 - spent, count))
    slack = np.divide(first, pairs.error, out=np.zeros_like(pairs.gap), where=pairs.varies)
    if slack.any():
        maxima = null_law.maxima(offsets - slack)
    lower = _lower_regret(joint, pairs, quantile(maxima.max(axis=0), level + spent, count))
    return lower, upper_regret(joint, pairs, null_law, level, all_maxima)


def _lower_regret(joint: JointEstimate, pairs: Differences, critical: float) -> Array:
    """(l,) max(0, max_j (gap_ij − d s_ij)) with d = `critical`; a constant difference is its
    own bound.
    """
    finite = critical if math.isfinite(critical) else 0.0
    if joint.binary:
        reached = -PairedBinary.of(joint).upper(max(finite, 0.0)).T
        np.fill_diagonal(reached, 0.0)
        return np.asarray(np.maximum(reached.max(axis=1), 0.0))
    reached = np.where(pairs.varies, pairs.gap - pairs.reach(finite), 0.0)
    return np.asarray(np.maximum(np.where(pairs.certain, pairs.gap, reached).max(axis=1), 0.0))


def upper_regret(
    joint: JointEstimate,
    pairs: Differences,
    null_law: Law,
    level: float,
    maxima: Array | None = None,
    unseen: Mask | None = None,
) -> Array:
    """(l,) bounds with R_i = D_i − min_j D_j ≤ bound_i for all i, with probability `level`
    (Hsu 1981).

    Write N_ij = (D̂_i − D̂_j − (D_i − D_j))/s_ij and let k be the best model. If N_ki ≤ d_k
    for all i, which has probability `level` with d_k the quantile of max_i N_ki, then k is
    in C = {k : D̂_k − D̂_i ≤ d_k s_ki for all i}, and R_i = D_i − D_k ≤ D̂_i − D̂_k + d_k
    s_ik for all i. Hence ``R_i ≤ max(0, max_{k∈C, k≠i} (D̂_i − D̂_k + d_k s_ik))``. One
    comparison per model and not all pairs. For 0/1 losses D̂_i − D̂_k + d_k s_ik is Tango's
    score limit at d_k instead.

    `maxima` are the law's maxima over all pairs, where they have been drawn already. Pairs
    that are `unseen` (l, l) have no bound.
    """
    maxima = null_law.maxima(kept_pairs(pairs.varies)) if maxima is None else maxima
    counts = pairs.varies.sum(axis=1).tolist()
    # A model without any difference that varies has a critical value of −inf, which stands for
    # 0 here.
    quantiles = [quantile(row, level, count) for row, count in zip(maxima, counts, strict=True)]
    critical = np.maximum(quantiles, 0.0)
    if joint.binary:
        # Two models that agree on all items have an interval, too: that of a single pair.
        limits = PairedBinary.of(joint).upper(np.maximum(critical, float(ndtri(level))))
        np.fill_diagonal(limits, 0.0)
        possible = (limits >= 0.0).all(axis=0)
        bounds = np.where(possible, limits, 0.0)
        return np.asarray(np.maximum(bounds.max(axis=1), 0.0))
    reach = pairs.reach(critical)
    possible = ((pairs.gap <= reach) | pairs.same).all(axis=1)
    bounds = np.where(possible & ~pairs.same, pairs.gap + reach.T, 0.0)
    if unseen is not None:
        others = unseen & ~np.eye(len(unseen), dtype=bool)
        bounds = np.where(possible & others, math.inf, bounds)
    return np.asarray(np.maximum(bounds.max(axis=1), 0.0))


def decided_lower(
    joint: JointEstimate, log_pvalue: Array, log_decisive: Array, alpha: float, margin: float
) -> Array:
    """(l, l) lower bounds for D_i − D_j, with the critical value c_i at which the verdict on
    model i was decided.

    Some bound of row i is above the margin exactly where the decisive p-value q_i is at most
    α, which is p_i times a factor f_i ≥ 1 of a correction or of step-down: the largest of
    them is the bound for D_i − min_j D_j that belongs to this verdict. Every one holds with
    probability 1 − α at least, and those of a row together do.

    *The critical value.* The verdict compares T_i = max_j (D_i − D_j − δ)/s_ij with a
    maximum of about k normal numbers, whose tail is k Φ(−c): from T_i and p_i, k =
    p_i/Φ(−T_i), which lies from 1 to l − 1 and grows with T_i. So c_i, with k Φ(−c_i) =
    α/f_i, is no smaller than it should be where T_i is beyond it. Where p_i or q_i came from
    another law (`relfit.stats.close`), s_ij is taken to be larger or smaller by what is
    left: c_i is multiplied by T_i/z with k Φ(−z) = q_i/f_i, f_i being l² at most. A model
    that is not worse gets k = l − 1.
    """
    pairs = differences(joint, margin)
    ratio = pairs.ratio
    most = math.log(max(len(ratio) - 1, 1))
    largest = ratio.max(axis=1, initial=-math.inf)
    certain = np.asarray(pairs.certain.any(axis=1))
    rejected = (log_decisive <= math.log(alpha)) & ~certain & (largest > 0.0)
    log_factor = np.zeros_like(largest)
    log_factor[rejected] = np.clip(
        log_decisive[rejected] - log_pvalue[rejected], 0.0, 2.0 * math.log(len(ratio))
    )
    own = np.where(rejected, log_decisive - log_factor, 0.0)
    comparisons = np.where(
        rejected, np.clip(own - log_ndtr(-np.where(rejected, largest, 0.0)), 0.0, most), most
    )
    critical = -ndtri_exp(math.log(alpha) - log_factor - comparisons)
    implied = -ndtri_exp(np.where(rejected, own - comparisons, -1.0))
    scaled = rejected & (implied > 0.0)
    critical = np.where(scaled, critical * largest / np.where(scaled, implied, 1.0), critical)
    critical = np.where(rejected | certain, critical, np.maximum(critical, largest))
    finite = np.isfinite(ratio) & (np.abs(ratio) > 1e-6)
    error = np.where(finite, pairs.gap / np.where(finite, ratio, 1.0), pairs.error)
    lower = np.where(pairs.varies, pairs.gap - critical[:, None] * error, -math.inf)
    lower[pairs.certain] = pairs.gap[pairs.certain]
    return np.asarray(lower + margin)


# ── several kernels at once ───────────────────────────────────────────────────────────────────
# *The hypothesis.* D_i^k is model i's discrepancy under kernel k. H_i: "under every kernel i is
# as good as every other model", D_i^k ≤ D_j^k for all j and k. A model is declared worse if
# under some kernel some other model is significantly better.
#
# *The level.* T_i = max_{k,j} (D_i^k − D_j^k)/s_ij^k is compared with the same maximum of
# Z_ij^k = (G_i^k − G_j^k)/s_ij^k, where G ~ N(0, V) and V is the joint covariance over (model,
# kernel): the ψ rows of all kernels come from the same rows of data, so their stacked Gram
# matrix is that covariance. Under H_i every (D_i^k − D_j^k)/s_ij^k has a mean of at most 0, so
# T_i is at most its maximum with the means taken out, whose law is the one drawn: P(p_i ≤ α) →
# at most α. Moment selection leaves out pairs (j, k) that i is far better than, as with one
# kernel. Where no model is best under every kernel, every H_i is false and nothing can be
# declared wrongly.


def collection_best_set(
    joints: Sequence[JointEstimate],
    alpha: float,
    correction: str = "none",
    *,
    rng: Source,
    draws: int = DRAWS,
) -> tuple[JointEstimate, Decision]:
    """Test every H_i under all kernels: the mean of the estimates over the kernels, and the
    verdicts.

    `joints` has one estimate for each kernel, of the same models from the same rows, with
    their ψ rows. The best model is the one with the smallest mean over the kernels, and is
    never declared worse.
    """
    if not all(map(has_psi_covariance, joints)):
        raise InputError(
            "kernel: several kernels in one test need the covariance of the ψ rows; use "
            'estimator="complete" or "linear", with variance="projection"'
        )
    if isinstance(rng, np.random.Generator):
        # Every law draws its numbers anew, and all need the same ones.
        rng = seeded(make_seed(rng), "collection")
    pairs = [differences(joint) for joint in joints]
    n = smallest_sample(joints[0])
    ratios, certain = (
        np.stack([getattr(each, name) for each in pairs]) for name in ("ratio", "certain")
    )
    offsets = [
        moment_selection(ratio, each.varies, n)
        for ratio, each in zip(ratios, pairs, strict=True)
    ]
    laws = _kernel_laws(joints, pairs, rng, draws)
    adjusted = None
    constant = np.where(certain.any(axis=(0, 2)), certain_log_pvalue(n), 0.0)
    log_pvalue = maximum_log_pvalues(laws, offsets, ratios.max(axis=(0, 2)))
    if correction == "stepdown":
        adjusted = _stepped_down(laws, offsets, list(ratios), log_pvalue, constant, n)
    log_pvalue = np.minimum(log_pvalue, constant)
    mean = mean_estimate(joints)
    same = np.all([each.same for each in pairs], axis=0)
    under_all = replace(pairs[0], certain=np.asarray(certain.any(axis=0)), same=same)
    decision = _decided(mean, log_pvalue, under_all, alpha, correction, adjusted)
    decision = _at_once(decision, laws, offsets, list(ratios), constant, n)
    # For every model the kernel and the other model with the largest ratio; a difference
    # without variance comes first.
    order = np.where(certain, math.inf, ratios).transpose(1, 0, 2)
    under, by = np.divmod(order.reshape(len(order), -1).argmax(axis=1), order.shape[2])
    return mean, replace(
        decision,
        beaten_by=tuple(
            int(j) if worse else None for j, worse in zip(by, decision.worse, strict=True)
        ),
        beaten_under=tuple(
            int(k) if worse else None for k, worse in zip(under, decision.worse, strict=True)
        ),
    )


def mean_estimate(joints: Sequence[JointEstimate]) -> JointEstimate:
    """The mean over the kernels: the estimate under the mean kernel, as MMD² and KSD² are
    linear in the kernel.
    """
    parts = [joint.psi for joint in joints if joint.psi is not None]
    references = [part.reference for part in parts if part.reference is not None]
    models = tuple(
        np.mean([part.models[i] for part in parts], axis=0) for i in range(len(parts[0].models))
    )
    psi = Psi(np.mean(references, axis=0) if references else None, models, parts[0].shared)
    fractions = [joint.near_degeneracy for joint in joints if joint.near_degeneracy is not None]
    return replace(
        joints[0],
        values=np.mean([joint.values for joint in joints], axis=0),
        covariance=psi.covariance(),
        psi=psi,
        near_degeneracy=np.max(fractions, axis=0) if len(fractions) == len(joints) else None,
        second_order=None,
    )


def joint_covariance(parts: Sequence[Psi]) -> Array:
    """(K·l, K·l) covariance of all estimates, kernel by kernel, from the ψ rows they share."""
    size = len(parts) * parts[0].covariance().shape[0]
    references = [part.reference for part in parts if part.reference is not None]
    total = gram(np.hstack(references)) if references else np.zeros((size, size))
    models = len(parts[0].models)
    if models and parts[0].shared:
        return total + gram(np.hstack([np.stack(part.models, axis=1) for part in parts]))
    for i in range(models):
        place = np.arange(i, size, models)
        total[np.ix_(place, place)] += gram(
            np.stack([part.models[i] for part in parts], axis=1)
        )
    return total


def _kernel_laws(
    joints: Sequence[JointEstimate], pairs: Sequence[Differences], source: Source, draws: int
) -> list[Law]:
    """The law of each kernel's differences, whose draws belong together.

    Each law makes its random numbers anew from the same streams: the same G, of which it
    takes its own kernel's part.
    """
    names = joints[0].names
    values = joints[0].values
    root = maxt.covariance_root(
        joint_covariance([joint.psi for joint in joints if joint.psi is not None])
    )

    def normal(k: int) -> Law:
        generators = streams(source, values)
        part = root[k * len(names) : (k + 1) * len(names)]

        def chunk(draws: int) -> NormalPairs:
            shared = np.stack(
                [rng.standard_normal((len(joints), draws)) for rng in generators.models], axis=1
            )
            return maxt.studentised(part @ shared.reshape(len(root), draws), pairs[k].error)

        return Law(draws, chunk)

    return [normal(k) for k in range(len(joints))]


def _kernel_notes(
    joint: JointEstimate, decision: Decision, kernels: Sequence[str], alpha: float
) -> tuple[str, ...]:
    """What the reader should know: under which kernel a model is worse, and whether the
    kernels disagree.
    """
    notes = [
        f"{len(kernels)} kernels in one test: a model is called worse if it is worse than "
        f"another one under any of "
        "them; the discrepancies shown are means over the kernels"
    ]
    beaten = [
        f"{name!r} is worse than {joint.names[by]!r} under the {kernels[under]}"
        for name, by, under in zip(
            joint.names, decision.beaten_by or (), decision.beaten_under or (), strict=True
        )
        if by is not None and under is not None
    ]
    notes += beaten[:_MOST_NOTES]
    if len(beaten) > _MOST_NOTES:
        notes.append(f"{len(beaten) - _MOST_NOTES} more models are worse under some kernel")
    if decision.adjusted_pvalue[decision.best] <= alpha:
        notes.append(
            f"even {joint.names[decision.best]!r}, the best on average, is worse than another "
            f"model under some kernel: "
            "the kernels disagree about which model is best"
        )
    return tuple(notes)
