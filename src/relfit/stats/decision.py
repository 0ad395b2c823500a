"""What every test decides, and what the tests share: differences of models, ties, corrections, equivalence.

Functions with "…" in their shapes take any leading axes: planning decides thousands of simulated estimates at once with
the same code that decides a single one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from relfit.stats.joint import JointEstimate
from relfit.stats.truncnorm import selective_log_pvalue
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.errors import InputError

# A difference whose variance is this small a part of the two models' variances varies by rounding only.
NO_VARIANCE = 1e-10
# Without variance, a gap above this part of a standard error, and above CERTAIN times the variation left, is real.
SAME_VALUE, CERTAIN = 1e-5, 8.0
# A gap below this part of a standard error is a tie.
SAME_TO_ROUNDING = 1e-9
# A slope this small beside the covariances it is the difference of is rounding.
_NO_SLOPE = 1e-12
# Ratios of differences to standard errors are squared, and a standard error may be 1e-5 of a model's own.
_WIDEST, _LARGEST, _SMALLEST = 1e140, 1e150, 1e-290

CORRECTIONS = ("none", "by", "bh", "holm", "bonferroni", "auto")


@dataclass(frozen=True)
class Decision:
    """The verdicts of one test, with arrays in the order of the models.

    Attributes:
        best: the index of the model that the others are tested against.
        log_pvalue, adjusted_pvalue: (l,), 1 for a best model that is not tested itself.
        worse: (l,) ``adjusted_pvalue ≤ α``: one rule, so a threshold can never disagree with a p-value.
        status: words for each model, such as "tie".
        correction: the correction that was applied, never "auto".
        truncation: (l, 2) limits of the truncated normal law; None where the test has none.
        equivalent: (l,) the models shown to be within the margin; None without a margin.
        beaten_by: for the best set, the index of the model that each rejected one is worst against.
        beaten_under: with several kernels, the index of the kernel under which it is.
        notes: sentences that the reader should see.
    """

    best: int
    log_pvalue: Array
    adjusted_pvalue: Array
    worse: Mask
    status: tuple[tuple[str, ...], ...]
    correction: str = "none"
    truncation: Array | None = None
    equivalent: Mask | None = None
    beaten_by: tuple[int | None, ...] | None = None
    beaten_under: tuple[int | None, ...] | None = None
    notes: tuple[str, ...] = ()


# ── differences ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Covariances:
    """The covariance of one estimate, or one for each of many trials: diag(u) M diag(u) + N.

    `constant` N and `scaled` M are (l, l), `scale` u is (trials, l). Without a scale every trial has the covariance N,
    and arrays have a first axis of length 1.
    """

    constant: Array
    scaled: Array | None = None
    scale: Array | None = None

    def column(self, i: int | Rows) -> Array:
        """(trials, l) Cov(D_i, D_k) for all k; i is one model, or one for each trial."""
        constant = np.atleast_2d(self.constant[i])
        if self.scale is None or self.scaled is None:
            return constant
        own = self.scale[np.arange(len(self.scale)), i]
        return np.asarray(own[:, None] * self.scaled[i] * self.scale + constant)

    @property
    def variance(self) -> Array:
        """(trials, l) V_kk."""
        if self.scale is None or self.scaled is None:
            return np.diag(self.constant)[None]
        return np.asarray(self.scale**2 * np.diag(self.scaled) + np.diag(self.constant))

    def against(self, i: int | Rows) -> Against:
        """The differences of all models to model i, or to one model for each trial."""
        column, variance = self.column(i), self.variance
        own = np.take_along_axis(column, np.full((len(column), 1), i) if isinstance(i, int) else i[:, None], axis=1)
        total = variance + own
        spread = np.maximum(total - 2.0 * column, 0.0)
        return Against(self, column, own, total, spread)


@dataclass(frozen=True)
class Against:
    """The differences D_k − D_J to a model J.

    `column` is Cov(D_J, D_k), `total` V_kk + V_JJ and `spread` the variance of the difference with its rounding,
    (trials, l) each; `variance` is V_JJ (trials, 1).
    """

    covariances: Covariances
    column: Array
    variance: Array
    total: Array
    spread: Array

    @property
    def constant(self) -> Mask:
        """(trials, l) the differences that do not vary, except by rounding."""
        return self.spread <= NO_VARIANCE * self.total

    @property
    def error(self) -> Array:
        """(trials, l) standard errors s_kJ, exactly 0 for constant differences."""
        return np.where(self.constant, 0.0, np.sqrt(self.spread))

    def certain(self, gap: Array, k: int, margin: float = 0.0) -> Array:
        """(trials,) log p of "no worse" for a constant gap D_k − D_J: −inf if it exceeds the margin, otherwise 0.

        A gap within CERTAIN times the variation that is left, or within rounding of 0, exceeds nothing.
        """
        return np.where(gap - margin > self.rounding[:, k], -math.inf, 0.0)

    @property
    def rounding(self) -> Array:
        """(trials, l) the size up to which a constant gap may be rounding."""
        return np.maximum(SAME_VALUE * np.sqrt(self.total), CERTAIN * np.sqrt(self.spread))

    def slopes(self, i: int) -> Array:
        """(trials, l) d_k = Cov(D_i − D_J, D_k − D_J)/s_iJ², exactly 1 at k = i and 0 where that is rounding.

        NaN where D_k − D_J is constant: such a model says nothing about the selection of J.
        """
        parts = self.covariances.column(i), -self.column, -self.column[:, [i]], self.variance
        covariance, size = sum(parts), sum(np.abs(part) for part in parts)
        own = np.asarray(covariance)[:, [i]]
        slope = np.where(np.abs(covariance) <= _NO_SLOPE * size, 0.0, covariance) / np.where(own > 0.0, own, 1.0)
        slope[:, i] = 1.0
        return np.where(self.constant, np.nan, slope)


def difference_variance(covariance: Array, i: int, j: int) -> float:
    """``s² = V_ii + V_jj − 2V_ij``, exactly 0 where it is nothing but rounding."""
    total = float(covariance[i, i] + covariance[j, j])
    variance = total - 2.0 * float(covariance[i, j])
    return variance if variance > NO_VARIANCE * total else 0.0


@dataclass(frozen=True)
class Differences:
    """All ordered pairs (i, j) of l models; every array is (l, l).

    `gap` is D_i − D_j − δ with a margin δ ≥ 0. `error` is s_ij, exactly 0 where the difference is constant. `certain`
    marks the pairs where i is larger by a constant, so that nothing need be tested, and `same` the pairs whose
    difference is 0 up to rounding.
    """

    gap: Array
    error: Array
    certain: Mask
    same: Mask

    @property
    def varies(self) -> Mask:
        """The differences that can be tested."""
        return self.error > 0.0

    @property
    def ratio(self) -> Array:
        """(D_i − D_j − δ)/s_ij; −inf where there is no variance, so that the pair drops out of every maximum."""
        out = np.full(self.gap.shape, -math.inf)
        return np.asarray(np.divide(self.gap, self.error, out=out, where=self.varies))


def differences(joint: JointEstimate, margin: float = 0.0) -> Differences:
    """The differences of all ordered pairs of models."""
    variance = np.diag(joint.covariance)
    total = variance[:, None] + variance
    spread = np.maximum(total - 2.0 * joint.covariance, 0.0)
    constant = spread <= NO_VARIANCE * total
    np.fill_diagonal(constant, True)
    gap = joint.values[:, None] - joint.values
    rounding = np.maximum(SAME_VALUE * np.sqrt(total), CERTAIN * np.sqrt(spread))
    certain, same = constant & (gap - margin > rounding), constant & (np.abs(gap) <= rounding)
    return Differences(gap - margin, np.where(constant, 0.0, np.sqrt(spread)), certain, same)


def lowest(values: Array, variance: Array) -> tuple[Rows, Mask]:
    """The index (…) of the smallest of values (…, l), the first in an exact tie, and the models (…, l) tied for it.

    A gap below SAME_TO_ROUNDING standard errors is a tie too: ties of symmetric or discrete data come out of the sums
    with a few last digits between them, which say nothing about the models.
    """
    best = np.argmin(values, axis=-1)
    at_best = best[..., None]
    gap = values - np.take_along_axis(values, at_best, axis=-1)
    total = variance + np.take_along_axis(np.broadcast_to(variance, values.shape), at_best, axis=-1)
    tied = gap <= SAME_TO_ROUNDING * np.sqrt(total)
    return best, tied & (tied.sum(axis=-1, keepdims=True) > 1)


def constant_word(gap: float, rounding: float) -> str:
    """The status word for a difference without variance: a constant gap, or none."""
    return "indistinguishable" if abs(gap) <= rounding else "deterministic"


def smallest_sample(joint: JointEstimate) -> int | None:
    """The number of independent rows (or groups) in the smallest sample of an estimate; None if it is not known."""
    counts = joint.sizes if joint.groups is None else joint.groups
    if counts is None:
        return psi_rows(joint)
    return min((rows for rows in counts if rows > 0), default=None)


def psi_rows(joint: JointEstimate) -> int | None:
    """The smallest number of ψ rows (pairs of rows in linear designs, batches of a chain); None without ψ rows."""
    if joint.psi is None:
        return None
    reference = () if joint.psi.reference is None else (joint.psi.reference,)
    return min(len(rows) for rows in (*reference, *joint.psi.models))


def check_scale(joint: JointEstimate, margin: float = 0.0) -> None:
    """Refuse values, margins and standard errors whose quotients or squares do not fit into float64.

    >>> check_scale(JointEstimate(("a", "b"), [0.0, 1e9], [[1e-9, 0.0], [0.0, 1e-9]]))
    """
    errors = joint.standard_error[joint.standard_error > 0.0]
    largest = max(float(np.abs(joint.values).max()), margin, float(errors.max(initial=0.0)))
    smallest = float(errors.min(initial=np.inf))
    if largest > _LARGEST or smallest * smallest < _SMALLEST or largest > _WIDEST * smallest:
        raise InputError(
            f"joint_estimate: expected values, margin and standard errors of similar size, got {largest:.3g} and "
            f"{smallest:.3g}; rescale them, and give a model without error a variance of 0"
        )


# ── corrections ──────────────────────────────────────────────────────────────────────────────────────────────────────


def adjust(pvalues: Array, correction: str) -> Array:
    """Adjusted p-values (…, l): reject those at or below α.

    "by" and "bh" control the false discovery rate (Benjamini–Yekutieli under any dependence, Benjamini–Hochberg
    under positive dependence), "holm" and "bonferroni" the probability of any error.
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
        raise InputError(f"correction: expected none, by, bh, holm or bonferroni, got {correction!r}")
    order = np.argsort(pvalues, axis=-1, kind="stable")
    stepped = np.maximum.accumulate(np.take_along_axis(pvalues, order, axis=-1) * np.arange(count, 0, -1), axis=-1)
    adjusted = np.empty_like(pvalues)
    np.put_along_axis(adjusted, order, np.minimum(stepped, 1.0), axis=-1)
    return adjusted


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


# ── equivalence ──────────────────────────────────────────────────────────────────────────────────────────────────────
# The test of "D_i − D_J ≤ δ" has a twin, the test of "D_i − D_J > δ", whose rejection shows equivalence within δ. At
# the common boundary D_i − D_J = δ its p-value is the probability of a difference at least as *small* as the observed
# one. Only one of the two hypotheses is true, so the two tests together err no more often than either.


def selective_log_equivalence(t: ArrayLike, s: ArrayLike, lower: ArrayLike, upper: ArrayLike, margin: float) -> Array:
    """log P(T ≤ t) for T ~ N(δ, s²) truncated to [V⁻, V⁺], and no less than without the truncation.

    Given the selection, a model can look equivalent because a near tie for best puts V⁻ just below t, however large t
    is. Asking that the plain z test agree excludes such claims, and the level is kept a fortiori. Where t is on a limit
    there is no information: log p = 0.
    """
    t, s, lower, upper = (np.asarray(value, dtype=float) for value in (t, s, lower, upper))
    given = selective_log_pvalue(margin - t, s, margin - upper, margin - lower)
    given = np.where((lower < t) & (t < upper), given, 0.0)
    return np.asarray(np.maximum(given, log_ndtr((t - margin) / s)))


def equivalent_to(best: int, log_equivalence: Array, alpha: float, correction: str) -> Mask:
    """The models (l,) that are equivalent to `best`, with the correction of the verdicts; `best` is one of them."""
    shown = adjust_others(np.exp(log_equivalence), best, correction) <= alpha
    shown[best] = True
    return shown


def known_log_equivalence(gap: float, margin: float) -> float:
    """log p of the same test for a difference without variance: it is within the margin, or it is not."""
    return -math.inf if gap <= margin else 0.0
