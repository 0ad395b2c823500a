"""What every test decides, and what the tests share: differences of models, ties,
corrections, equivalence.

Arrays with a first axis of `trials` hold several estimates of the same models: planning
decides thousands of simulated estimates with the code that decides a single one, for which
the axis has length 1.

Pairs of models with 0/1 losses have exact tests and score intervals from their discordant
items. Of n items, b are those on which the first model alone is wrong, and c those on which
the second model alone is wrong. The estimated difference is (b − c)/n. Standard errors vanish
where two models agree on all items, although their error rates may differ; those intervals
do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrc, log_ndtr, ndtr, ndtri, stdtr, stdtrit

from relfit.stats.close import followed, reach, skewed, unfollowed
from relfit.stats.joint import (
    SMALL_SAMPLE,
    JointEstimate,
    binary_step,
    psi_rows,
    smallest_sample,
    third_cumulants,
)
from relfit.stats.truncnorm import selective_log_pvalue
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.errors import InputError

# A difference whose variance is this small a part of the two models' variances varies by
# rounding only.
NO_VARIANCE = 1e-10
# Without variance, a gap above this part of a standard error, and above CERTAIN times the
# variation left, is real.
SAME_VALUE = 1e-5
CERTAIN = 8.0
# A gap below this part of a standard error is a tie.
SAME_TO_ROUNDING = 1e-9
# A slope this small beside the covariances it is the difference of is rounding.
_NO_SLOPE = 1e-12
# Ratios of differences to standard errors are squared, and a standard error may be 1e-5 of a
# model's own.
_WIDEST = 1e140
_LARGEST = 1e150
_SMALLEST = 1e-290

# Those of any p-values, and all: "stepdown" needs the joint law of the statistics, which the
# best set has.
PVALUE_CORRECTIONS = ("none", "by", "bh", "holm", "bonferroni", "auto")
CORRECTIONS = (*PVALUE_CORRECTIONS, "stepdown")
# Those that control the probability of any error, and those that control the false discovery
# rate.
FAMILY_WISE = ("holm", "bonferroni", "stepdown")
DISCOVERY_RATE = ("by", "bh")


@dataclass(frozen=True)
class Decision:
    """The verdicts of one test, with arrays in the order of the models.

    Attributes:
        best: the index of the model that the others are tested against.
        log_pvalue, adjusted_pvalue: (l,), p = 1 for a best model that is not tested itself.
        worse: (l,) ``adjusted_pvalue ≤ α``: one rule, so a threshold can never disagree with a
            p-value.
        simultaneous_pvalue: (l,) adjusted so that the verdicts on all models hold at once,
            whatever the correction; at least `adjusted_pvalue`.
        status: words for each model, such as "tie".
        correction: the correction that was applied, never "auto".
        truncation: (l, 2) limits of the truncated normal law; None where the test has none.
        equivalent: (l,) the models shown to be within the margin; None without a margin.
        beaten_by: for the best set, the index of the model that each rejected one is worst
            against.
        beaten_under: with several kernels, the index of the kernel under which it is.
        notes: sentences that the reader should see.
        decided_bounds: (l, l) for the best set, lower bounds for D_i − D_j with the critical
            value at which i was decided: some bound of row i is above the margin exactly where i's
            adjusted p-value is at most α. None with several kernels, of which no single
            difference decides.
        draws: the most draws that were made for a p-value; None where none are made.
    """

    best: int
    log_pvalue: Array
    adjusted_pvalue: Array
    worse: Mask
    simultaneous_pvalue: Array
    status: tuple[tuple[str, ...], ...]
    correction: str = "none"
    truncation: Array | None = None
    equivalent: Mask | None = None
    beaten_by: tuple[int | None, ...] | None = None
    beaten_under: tuple[int | None, ...] | None = None
    notes: tuple[str, ...] = ()
    decided_bounds: Array | None = None
    draws: int | None = None


@dataclass(frozen=True)
class Covariances:
    """The covariance of one estimate, or one for each of many trials: diag(u) M diag(u) + N.

    `constant` N and `scaled` M are (l, l), `scale` u is (trials, l). Without a scale every
    trial has the covariance N, and arrays have a first axis of length 1.
    """

    constant: Array
    scaled: Array | None = None
    scale: Array | None = None

    def rows(self, models: Sequence[int]) -> Array:
        """(trials, models, l) Cov(D_i, D_k) of these models i with all models k."""
        constant = self.constant[models][None]
        if self.scale is None or self.scaled is None:
            return constant
        return np.asarray(
            self.scale[:, models, None] * self.scaled[models] * self.scale[:, None] + constant
        )

    @property
    def variance(self) -> Array:
        """(trials, l) V_kk."""
        if self.scale is None or self.scaled is None:
            return np.diag(self.constant)[None]
        return np.asarray(self.scale**2 * np.diag(self.scaled) + np.diag(self.constant))

    def gaps(self, values: Array, best: int | Rows) -> Gaps:
        """The differences of all models to model J = `best`, or to one J for each trial;
        values (trials, l).
        """
        if isinstance(best, int):
            column = self.rows([best])[:, 0]
            value = values[:, [best]]
            variance = column[:, [best]]
        else:
            column = self.constant[best]
            value = np.take_along_axis(values, best[:, None], axis=1)
            if self.scale is not None and self.scaled is not None:
                u = np.take_along_axis(self.scale, best[:, None], axis=1)
                column = u * self.scaled[best] * self.scale + column
            variance = np.take_along_axis(column, best[:, None], axis=1)
        error, rounding = _error_and_rounding(self.variance + variance, column)
        return Gaps(self, values - value, error, rounding, column, variance)


@dataclass(frozen=True)
class Gaps:
    """The differences D_k − D_J of all models k to one model J, in one or more trials.

    Attributes:
        covariances: those of the estimates.
        gap: (trials, l) D_k − D_J.
        error: (trials, l) their standard errors s_kJ, exactly 0 where a difference varies by
            rounding only.
        rounding: (trials, l) the size up to which a difference that does not vary may be
        rounding. column, variance: (trials, l) Cov(D_J, D_k) and (trials, 1) V_JJ.
        rows: the rows on which a constant difference was observed; None where it is known to be
            constant.
        of_items: True for means over items. Equal on all of them, two models may differ on
            others.

    The first axis of all but `gap` has length 1 where the trials have one covariance and one J.
    """

    covariances: Covariances
    gap: Array
    error: Array
    rounding: Array
    column: Array
    variance: Array
    rows: int | None = None
    of_items: bool = False

    @property
    def constant(self) -> Mask:
        """(trials, l) the differences that do not vary, that of J to itself among them."""
        return np.asarray(self.error == 0.0)

    def known_log_pvalues(self, margin: float = 0.0) -> Array:
        """(trials, l) log p of "D_k ≤ D_J + δ" where D_k − D_J is constant, and 0 elsewhere.

        log 1/(n + 1) where the difference exceeds the margin δ on all n rows, otherwise 0:
        the next row may be the first one to contradict. What may be rounding exceeds
        nothing.
        """
        certain = certain_log_pvalue(self.rows)
        return np.where(self.constant & (self.gap - margin > self.rounding), certain, 0.0)

    def known_log_equivalence(self, margin: float) -> Array:
        """(trials, l) log p of the twin test (see `equivalent_to`) where D_k − D_J is
        constant, and 0 elsewhere.
        """
        shown = self.constant & (self.gap <= margin) & (not self.of_items)
        return np.where(shown, certain_log_pvalue(self.rows), 0.0)

    def z_log_pvalues(self, margin: float = 0.0) -> Array:
        """(trials, l) log p of the one-sided z tests of "D_k ≤ D_J + δ"; 0 for J, and
        constant differences as above.
        """
        return np.where(
            self.constant, self.known_log_pvalues(margin), log_ndtr(-self._z(margin))
        )

    def z_log_equivalence(self, margin: float) -> Array:
        """(trials, l) log p of their twins, which show equivalence (see `equivalent_to`)."""
        return np.where(
            self.constant, self.known_log_equivalence(margin), log_ndtr(self._z(margin))
        )

    def _z(self, margin: float) -> Array:
        return (self.gap - margin) / np.where(self.constant, 1.0, self.error)

    def slopes(self, models: Sequence[int]) -> Array:
        """(trials, models, l) d_k = Cov(D_i − D_J, D_k − D_J)/s_iJ² of these models i and
        all models k.

        Exactly 1 at k = i, and 0 where the covariance is rounding. NaN where D_k − D_J is
        constant: such a model says nothing about the selection of J.
        """
        rows = self.covariances.rows(models)
        column = self.column[:, None]
        variance = self.variance[..., None]
        across = self.column[:, models, None]
        covariance = rows - column - across + variance
        size = np.abs(rows) + np.abs(column) + np.abs(across) + variance
        at_i = slice(None), np.arange(len(models)), models
        spread = covariance[at_i][..., None]
        slope = np.where(np.abs(covariance) <= _NO_SLOPE * size, 0.0, covariance) / np.where(
            spread > 0, spread, 1.0
        )
        slope[at_i] = 1.0
        return np.where(self.constant[:, None], np.nan, slope)


def gaps_to(joint: JointEstimate, best: int, covariance: Array | None = None) -> Gaps:
    """The differences of all models to one, in a single trial; with the covariance of the
    estimates or another one.
    """
    known = joint.covariance if covariance is None else covariance
    gaps = Covariances(known).gaps(joint.values[None], best)
    return replace(gaps, rows=smallest_sample(joint), of_items=joint.of_items)


def certain_log_pvalue(rows: int | None) -> float:
    """log p of a difference that is the same on all rows: 1/(n + 1), and 0 where it is known
    to be constant.
    """
    return -math.inf if rows is None else -math.log1p(rows)


def _error_and_rounding(total: Array, covariance: Array) -> tuple[Array, Array]:
    """s_ij from V_ii + V_jj and V_ij, exactly 0 if it is rounding; and how large rounding
    makes a constant.
    """
    spread = np.maximum(total - 2.0 * covariance, 0.0)
    root = np.sqrt(spread)
    error = np.where(spread <= NO_VARIANCE * total, 0.0, root)
    return error, np.maximum(SAME_VALUE * np.sqrt(total), CERTAIN * root)


def difference_variance(covariance: Array, i: int, j: int) -> float:
    """``s² = V_ii + V_jj − 2V_ij``, exactly 0 where it is nothing but rounding."""
    total = float(covariance[i, i] + covariance[j, j])
    variance = total - 2.0 * float(covariance[i, j])
    return variance if variance > NO_VARIANCE * total else 0.0


def difference_errors(covariance: Array) -> Array:
    """(l, l) standard errors of all differences, exactly 0 where they vary by rounding only."""
    variance = np.diag(covariance)
    return _error_and_rounding(variance[:, None] + variance, covariance)[0]


@dataclass(frozen=True)
class Differences:
    """All ordered pairs (i, j) of l models; every array is (l, l).

    `gap` is D_i − D_j − δ with a margin δ ≥ 0. `error` is s_ij, exactly 0 where the
    difference is constant. `certain` marks the pairs where i is larger by a constant, so
    that nothing need be tested, and `same` the pairs whose difference is 0 up to rounding.
    `skewness` is the third cumulant of the difference over s_ij³; 0 where it is not known.
    `follows` is the same of the part that stands for an s_ij which follows the estimates.
    `freedom` are the degrees of freedom of s_ij, without limit where there are many.
    """

    gap: Array
    error: Array
    certain: Mask
    same: Mask
    skewness: Array
    follows: Array
    freedom: Array

    @property
    def varies(self) -> Mask:
        """The differences that can be tested."""
        return self.error > 0.0

    @property
    def ratio(self) -> Array:
        """(D_i − D_j − δ)/s_ij as normal numbers, if the difference is 0: each on the scale
        of its own p-value.

        The corrections for skewness (`stats.close.followed`, `skewed`) come first, then
        Student's law. −inf where there is no variance, so that the pair drops out of every
        maximum.
        """
        out = np.full(self.gap.shape, -math.inf)
        plain = np.divide(self.gap, self.error, out=out, where=self.varies)
        ratio = skewed(followed(plain, self.follows), self.skewness)
        few = self.varies & np.isfinite(self.freedom)
        ratio[few] = -ndtri(np.maximum(stdtr(self.freedom[few], -ratio[few]), _SMALLEST))
        return ratio

    def reach(self, critical: Array | float) -> Array:
        """How far a bound for D_i − D_j is from the estimate, with a critical value for each
        i or for all.
        """
        points = np.broadcast_to(np.reshape(critical, (-1, 1)), self.gap.shape).copy()
        few = np.isfinite(self.freedom)
        points[few] = -stdtrit(self.freedom[few], ndtr(-points[few]))
        # At a level of 1 the points are infinite, and a difference without variance is still
        # known.
        return np.asarray(
            np.multiply(
                unfollowed(reach(points, self.skewness), self.follows),
                self.error,
                out=np.zeros_like(points),
                where=self.varies,
            )
        )


def differences(joint: JointEstimate, margin: float = 0.0) -> Differences:
    """The differences of all ordered pairs of models."""
    variance = np.diag(joint.covariance)
    error, rounding = _error_and_rounding(variance[:, None] + variance, joint.covariance)
    gap = joint.values[:, None] - joint.values
    constant = error == 0.0
    certain = constant & (gap - margin > rounding)
    same = constant & (np.abs(gap) <= rounding)
    skewness = _skewness(third_cumulants(joint), error)
    follows = _skewness(joint.follows, error)
    return Differences(gap - margin, error, certain, same, skewness, follows, _freedom(joint))


def _skewness(third: Array | None, error: Array) -> Array:
    """(l, l) the third cumulants of the differences over s_ij³."""
    if third is None:
        return np.zeros_like(error)
    own = np.diag(third)
    skewness = own[:, None] - own - 3.0 * (third - third.T)
    # One factor after the other: the cubes of very large errors do not fit into float64.
    for _ in range(3):
        skewness = np.divide(skewness, error, out=np.zeros_like(error), where=error > 0.0)
    return skewness


def _freedom(joint: JointEstimate) -> Array:
    """(l, l) degrees of freedom of the differences' variances: n − 1 below 300 rows, and
    without limit from there on.

    Bartlett's estimate for a series with L lags has about 3n/(2(L + 1)) at every n. Samples
    that have nothing in common have Welch's: a short sample, or a chain that mixes slowly,
    makes its own differences uncertain, and no others. An estimate that has its own, as
    means over strata do, has them at every n.
    """
    if joint.freedom is not None:
        return joint.freedom
    rows = psi_rows(joint) or smallest_sample(joint)
    psi = joint.psi
    count = len(joint.names)
    if rows is None or rows < 2 or (rows >= SMALL_SAMPLE and joint.lags is None):
        return np.full((count, count), math.inf)
    if joint.lags is not None:
        return np.full((count, count), float(max(1, int(1.5 * rows / (joint.lags + 1)))))
    if psi is None or psi.reference is not None or psi.shared:
        return np.full((count, count), rows - 1.0)
    variances = np.diag(joint.covariance)
    each = np.array([len(own) - 1.0 for own in psi.models])[:, None]
    total = variances[:, None] + variances
    parts = np.square(variances)[:, None] / each
    uncertain = parts + parts.T
    return np.asarray(
        np.divide(np.square(total), uncertain, out=np.ones_like(total), where=uncertain > 0.0)
    )


def lowest(values: Array, variance: Array) -> tuple[Rows, Mask]:
    """The index (…) of the smallest of values (…, l), the first in an exact tie, and the
    models (…, l) tied for it.

    A gap below SAME_TO_ROUNDING standard errors is a tie too: ties of symmetric or discrete
    data come out of the sums with a few last digits between them, which say nothing about
    the models.
    """
    best = np.argmin(values, axis=-1)
    at_best = best[..., None]
    gap = values - np.take_along_axis(values, at_best, axis=-1)
    total = variance + np.take_along_axis(
        np.broadcast_to(variance, values.shape), at_best, axis=-1
    )
    tied = gap <= SAME_TO_ROUNDING * np.sqrt(total)
    return best, tied & (tied.sum(axis=-1, keepdims=True) > 1)


def constant_word(gap: float, rounding: float) -> str:
    """The status word for a difference without variance: a constant gap, or none."""
    return "indistinguishable" if abs(gap) <= rounding else "deterministic"


def check_scale(joint: JointEstimate, margin: float = 0.0) -> None:
    """Refuse values, margins and standard errors whose quotients or squares do not fit into
    float64.

    >>> check_scale(JointEstimate(("a", "b"), [0.0, 1e9], [[1e-9, 0.0], [0.0, 1e-9]]))
    """
    errors = joint.standard_error[joint.standard_error > 0.0]
    largest = max(float(np.abs(joint.values).max()), margin, float(errors.max(initial=0.0)))
    smallest = float(errors.min(initial=np.inf))
    if largest > _LARGEST or smallest * smallest < _SMALLEST or largest > _WIDEST * smallest:
        raise InputError(
            f"joint_estimate: expected values, margin and standard errors of similar size, "
            f"got {largest:.3g} and "
            f"{smallest:.3g}; rescale them, and give a model without error a variance of 0"
        )


def decided_against(
    gaps: Gaps,
    best: int,
    log_pvalue: Array,
    log_equivalence: Array | None,
    *,
    alpha: float,
    correction: str,
    tied: Mask | None = None,
    truncation: Array | None = None,
) -> Decision:
    """The verdicts of a test that compares every other model with the selected one, from its
    p-values (l,).

    `gaps` are the differences to the selected model, of a single trial. `log_equivalence` is
    that of the twin tests (see `equivalent_to`), and None without a margin. Models that are
    `tied` for the best, or that differ from it by a constant, have a word about it in their
    status.
    """
    adjusted = adjust_others(np.exp(log_pvalue), best, correction)
    worse = adjusted <= alpha
    worse[best] = False
    status: list[tuple[str, ...]] = [
        () if tied is None or not tied[k] else ("tie",) for k in range(len(worse))
    ]
    for k in np.flatnonzero(gaps.constant[0]).tolist():
        word = constant_word(float(gaps.gap[0, k]), float(gaps.rounding[0, k]))
        if k != best and not (gaps.of_items and word == "indistinguishable"):
            status[k] = (*status[k], word)
    equivalent = (
        None
        if log_equivalence is None
        else equivalent_to(best, log_equivalence, alpha, correction)
    )
    at_once = (
        adjusted
        if correction in FAMILY_WISE
        else adjust_others(np.exp(log_pvalue), best, "holm")
    )
    at_once = np.maximum(at_once, adjusted)
    return Decision(
        best,
        log_pvalue,
        adjusted,
        worse,
        at_once,
        tuple(status),
        correction,
        truncation,
        equivalent,
    )


def adjust(pvalues: Array, correction: str) -> Array:
    """Adjusted p-values (…, l): reject those at or below α.

    "by" and "bh" control the false discovery rate (Benjamini–Yekutieli under any dependence,
    Benjamini–Hochberg under positive dependence), "holm" and "bonferroni" the probability of
    any error.
    """
    count = pvalues.shape[-1]
    if count <= 1 or correction == "none":
        return pvalues.copy()
    if correction in ("by", "bh"):
        # Imported here: scipy.stats takes longer to load than all of relfit.
        from scipy.stats import false_discovery_control

        return np.asarray(false_discovery_control(pvalues, axis=-1, method=correction))
    if correction == "bonferroni":
        return np.asarray(np.minimum(count * pvalues, 1.0))
    if correction != "holm":
        raise InputError(
            f"correction: expected none, by, bh, holm or bonferroni, got {correction!r}"
        )
    order = np.argsort(pvalues, axis=-1, kind="stable")
    stepped = np.maximum.accumulate(
        np.take_along_axis(pvalues, order, axis=-1) * np.arange(count, 0, -1), axis=-1
    )
    adjusted = np.empty_like(pvalues)
    np.put_along_axis(adjusted, order, np.minimum(stepped, 1.0), axis=-1)
    return adjusted


def decisive_levels(pvalues: Array, correction: str, alpha: float) -> Array:
    """(l,) the level at which a correction decides about each p-value: it rejects exactly the
    p-values that are at most their levels.

    Of Holm's steps that of the model, or the one that ended them.

    >>> decisive_levels(np.array([0.01, 0.02, 0.03, 0.9]), "holm", 0.05).round(4).tolist()
    [0.0125, 0.0167, 0.0167, 0.0167]
    """
    count = len(pvalues)
    if correction == "none" or count <= 1:
        return np.full(count, alpha)
    if correction == "bonferroni":
        return np.full(count, alpha / count)
    rejected = int((adjust(pvalues, correction) <= alpha).sum())
    if correction == "holm":
        ranks = np.argsort(np.argsort(pvalues, kind="stable"), kind="stable")
        return np.asarray(alpha / (count - np.minimum(ranks, min(rejected, count - 1))))
    share = float(np.sum(1.0 / np.arange(1, count + 1))) if correction == "by" else 1.0
    return np.full(count, max(rejected, 1) * alpha / (count * share))


def adjust_others(pvalues: Array, best: int, correction: str) -> Array:
    """Adjusted p-values (l,) of all models but the best, whose own is 1."""
    adjusted = np.ones(len(pvalues))
    others = np.arange(len(pvalues)) != best
    adjusted[others] = adjust(pvalues[others], correction)
    return adjusted


def sign_condition(covariance: Array, best: int) -> bool:
    """True if every Cov(D_i − D_J, D_k − D_J) ≥ 0, so that Benjamini–Hochberg is allowed."""
    others = np.delete(np.arange(len(covariance)), best)
    contrast = np.eye(len(covariance))[others] - np.eye(len(covariance))[best]
    joint = contrast @ covariance @ contrast.T
    return bool((joint >= -1e-12 * np.abs(joint).max(initial=0.0)).all())


def equivalent_to(best: int, log_equivalence: Array, alpha: float, correction: str) -> Mask:
    """The models (l,) that are shown to be equivalent to `best` within the margin δ; `best`
    is one of them.

    The test of "D_i − D_J ≤ δ" has a twin, the test of "D_i − D_J > δ", whose rejection
    shows equivalence. At the common boundary D_i − D_J = δ its p-value is the probability of
    a difference at least as *small* as the observed one. Only one of the two hypotheses is
    true, so the two tests together err no more often than either. The p-values of the twins
    have the correction of the verdicts.
    """
    shown = adjust_others(np.exp(log_equivalence), best, correction) <= alpha
    shown[best] = True
    return shown


def selective_log_equivalence(
    t: ArrayLike, s: ArrayLike, lower: ArrayLike, upper: ArrayLike, margin: float
) -> Array:
    """log P(T ≤ t) for T ~ N(δ, s²) truncated to [V⁻, V⁺], and no less than without the
    truncation.

    Given the selection, a model can look equivalent because a near tie for best puts V⁻ just
    below t, however large t is. Asking that the plain z test agree excludes such claims, and
    the level is kept a fortiori. Where t is on a limit there is no information: log p = 0.
    """
    t, s, lower, upper = (np.asarray(value, dtype=float) for value in (t, s, lower, upper))
    selective = selective_log_pvalue(margin - t, s, margin - upper, margin - lower)
    selective = np.where((lower < t) & (t < upper), selective, 0.0)
    return np.asarray(np.maximum(selective, log_ndtr((t - margin) / s)))


# ── 0/1 losses ───────────────────────────────────────────────────────────────────────────────────

# With fewer discordant items than this, differences have no normal distribution.
FEWEST_DISCORDANT = 10
# Halvings of the interval in which a limit lies: beyond float64's digits for rates.
_HALVINGS = 50


@dataclass(frozen=True)
class PairedBinary:
    """The discordant items of all ordered pairs of models.

    Attributes:
        first: (l, l) b, the items on which model i alone is wrong; model j alone is wrong on
            its transpose.
        items: n.
        step: the loss of a wrong item.
    """

    first: Array
    items: float
    step: float

    @classmethod
    def of(cls, joint: JointEstimate) -> PairedBinary:
        """From values and covariance: n(D_i − D_j) = b − c and n(n−1)s_ij² + n(D_i − D_j)² =
        b + c.
        """
        n = float((joint.sizes or (0,))[0])
        step = binary_step(joint)
        gap = (joint.values[:, None] - joint.values) / step
        covariance = joint.covariance / (step * step)
        variance = np.diag(covariance)
        spread = variance[:, None] + variance - 2.0 * covariance
        discordant = np.rint(n * (n - 1.0) * spread + n * np.square(gap))
        return cls(np.rint((discordant + n * gap) / 2.0), n, step)

    @property
    def discordant(self) -> Array:
        """(l, l) b + c."""
        return np.asarray(self.first + self.first.T)

    def sign_test_points(self) -> tuple[Array, Array]:
        """(l, l) the normal points of the exact sign tests of "i is no worse than j", and
        the largest ones possible.

        If both models are equally good, b is binomial(b + c, ½) given b + c. Infinite where
        the items are not few.
        """
        count = self.discordant
        few = (count > 0.0) & (count < FEWEST_DISCORDANT)
        tail = bdtrc(self.first - 1.0, np.where(few, count, 1.0).astype(int), 0.5)
        points = np.where(few, -ndtri(np.where(few, tail, 0.5)), math.inf)
        largest = np.where(
            count < FEWEST_DISCORDANT, -ndtri(0.5 ** np.maximum(count, 1.0)), math.inf
        )
        np.fill_diagonal(largest, math.inf)
        return points, largest

    def score(self, difference: Array | float) -> Array:
        """(l, l) Tango's (1998) score statistic of D_i − D_j = δ, for 0 ≤ |δ| < 1 in units
        of `step`.

        (b − c − nδ)/√(n(2q + δ(1 − δ))), with q the maximum likelihood estimate of the rate
        of c for this δ.
        """
        b = self.first
        c = self.first.T
        n = self.items
        linear = -b - c + (2.0 * n - b + c) * difference
        constant = -c * difference * (1.0 - difference)
        root = np.sqrt(np.maximum(np.square(linear) - 8.0 * n * constant, 0.0))
        rate = (root - linear) / (4.0 * n)
        variance = np.maximum(n * (2.0 * rate + difference * (1.0 - difference)), 0.0)
        excess = b - c - n * difference
        known = np.where(excess == 0.0, 0.0, np.copysign(math.inf, excess))
        return np.where(
            variance > 0.0, excess / np.sqrt(np.where(variance > 0.0, variance, 1.0)), known
        )

    def upper(self, critical: Array | float) -> Array:
        """(l, l) upper limits of D_i − D_j: the δ at which the score statistic is
        −`critical` (≥ 0).

        >>> pair = PairedBinary(np.zeros((2, 2)), 100.0, 1.0)
        >>> pair.upper(1.96)[0, 1].round(4).item()  # z²/(n + z²) without discordant items
        0.037
        """
        low = (self.first - self.first.T) / self.items
        high = np.ones_like(low)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            inside = self.score(middle) >= -critical
            low = np.where(inside, middle, low)
            high = np.where(inside, high, middle)
        return np.asarray(low * self.step)


def constant_log_pvalues(joint: JointEstimate, margin: float) -> Array:
    """(l, l) log p of "i is no worse than j" where j is better by the same on all rows.

    1/(n + 1). 0/1 losses of which only i's are wrong have the sign test's 2⁻ⁿ, and with a
    margin that of the score statistic.
    """
    if not joint.binary or margin >= binary_step(joint):
        count = len(joint.names)
        return np.full((count, count), certain_log_pvalue(smallest_sample(joint)))
    pairs = PairedBinary.of(joint)
    if margin:
        return np.asarray(log_ndtr(-pairs.score(margin / pairs.step)))
    return np.asarray(-math.log(2.0) * pairs.first)
