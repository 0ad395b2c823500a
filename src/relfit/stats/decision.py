"""What every procedure returns, and the pairs of models that no normal test can tell apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from relfit.stats.joint import JointEstimate
from relfit.stats.truncnorm import selective_log_pvalue
from relfit.util.arrays import Array, Mask
from relfit.util.errors import InputError

# A difference whose variance is this small a part of its models' variances has none but rounding.
NO_VARIANCE = 1e-10
SAME_VALUE = 1e-5
SAME_TO_ROUNDING = 1e-9
CERTAIN = 8.0


@dataclass(frozen=True)
class Decision:
    """One procedure's verdicts, arrays in the order of the models.

    `worse` is ``adjusted_pvalue ≤ α``: one path, so a threshold can never disagree with a p-value.
    `equivalent` says which models are shown to be within the margin; None where no margin was given.
    """

    best: int
    log_pvalue: Array
    adjusted_pvalue: Array
    worse: NDArray[np.bool_]
    status: tuple[tuple[str, ...], ...]
    correction: str = "none"
    truncation: Array | None = None
    equivalent: NDArray[np.bool_] | None = None


def difference_variance(covariance: Array, i: int, j: int) -> float:
    """``s² = V_ii + V_jj − 2V_ij``, exactly 0 where it is nothing but rounding."""
    total = float(covariance[i, i] + covariance[j, j])
    variance = total - 2.0 * float(covariance[i, j])
    return variance if variance > NO_VARIANCE * total else 0.0


def without_variance(covariance: Array, j: int) -> NDArray[np.bool_]:
    """Which models differ from model j by a constant: they say nothing about the selection of j."""
    return np.array([difference_variance(covariance, k, j) == 0.0 for k in range(len(covariance))])


def decide_without_variance(joint: JointEstimate, i: int, j: int, margin: float = 0.0) -> tuple[float, str]:
    """log p and status of "i is no worse than j (by more than the margin)" when their difference does not vary.

    Equal values: the same model twice, p = 1. Otherwise one is the other plus a constant, and the
    larger is worse for certain; a gap within CERTAIN times what little variance is left is not certain.
    """
    gap = float(joint.values[i] - joint.values[j])
    total = float(joint.covariance[i, i] + joint.covariance[j, j])
    left = max(total - 2.0 * float(joint.covariance[i, j]), 0.0)
    rounding = max(SAME_VALUE * math.sqrt(total), CERTAIN * math.sqrt(left))
    if abs(gap) <= rounding:
        return 0.0, "indistinguishable"
    return (-math.inf if gap - margin > rounding else 0.0), "deterministic"


def lowest(joint: JointEstimate) -> tuple[int, NDArray[np.bool_]]:
    """The index of the smallest value (the first, in an exact tie) and which models are tied for it.

    A gap below SAME_TO_ROUNDING standard errors is a tie too: ties of symmetric or discrete data come out of
    the sums with a few last digits between them, which say nothing about the models.
    """
    best = int(np.argmin(joint.values))
    variance = np.diag(joint.covariance)
    tied = joint.values - joint.values[best] <= SAME_TO_ROUNDING * np.sqrt(variance + variance[best])
    return best, tied if tied.sum() > 1 else np.zeros(len(tied), dtype=bool)


# --------------------
# All differences D_i − D_j of l models, over their standard errors.


@dataclass(frozen=True)
class Differences:
    """Ordered pairs (i, j) of l models; every array is (l, l).

    `gap` is D_i − D_j − δ with a margin δ ≥ 0, `error` is s_ij (exactly 0 where the difference has no
    variance but rounding), `certain` says that i is larger by a constant, so that nothing need be tested,
    and `same` that two models have neither a varying nor a constant difference.
    """

    gap: Array
    error: Array
    certain: Mask
    same: Mask

    @property
    def varies(self) -> Mask:
        """Which differences can be tested."""
        return self.error > 0.0

    @property
    def ratio(self) -> Array:
        """(D_i − D_j − δ)/s_ij; −inf where there is no variance, so that the pair leaves every maximum."""
        out = np.full(self.gap.shape, -math.inf)
        return np.asarray(np.divide(self.gap, self.error, out=out, where=self.varies))


def differences(joint: JointEstimate, margin: float = 0.0) -> Differences:
    """Every ordered pair of the models in a joint estimate, by the rules of `decide_without_variance`."""
    variance = np.diag(joint.covariance)
    total = variance[:, None] + variance
    spread = np.maximum(total - 2.0 * joint.covariance, 0.0)
    still = spread <= NO_VARIANCE * total
    np.fill_diagonal(still, True)
    error = np.where(still, 0.0, np.sqrt(spread))
    gap = joint.values[:, None] - joint.values
    rounding = np.maximum(SAME_VALUE * np.sqrt(total), CERTAIN * np.sqrt(spread))
    return Differences(gap - margin, error, still & (gap - margin > rounding), still & (np.abs(gap) <= rounding))


def smallest_sample(joint: JointEstimate) -> int | None:
    """The independent rows (or groups) of the smallest sample behind an estimate; None if they are not known."""
    counts = joint.sizes if joint.groups is None else joint.groups
    if counts is None:
        return psi_rows(joint)
    return min((rows for rows in counts if rows > 0), default=None)


def psi_rows(joint: JointEstimate) -> int | None:
    """The smallest number of ψ rows (pairs of rows in linear designs, batches of a chain); None without them."""
    if joint.psi is None:
        return None
    reference = () if joint.psi.reference is None else (joint.psi.reference,)
    return min(len(rows) for rows in (*reference, *joint.psi.models))


# --------------------
# Whether the numbers of an estimate lie near enough to each other for the arithmetic of the tests.

# Ratios of differences to standard errors are squared, and a standard error may be 1e-5 of a model's own.
_WIDEST = 1e140
_LARGEST, _SMALLEST = 1e150, 1e-290


def check_scale(joint: JointEstimate, margin: float = 0.0) -> None:
    """Refuse values, margins and standard errors whose quotients or squares a float64 cannot hold.

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


# --------------------
# Adjusting the p-values of several hypotheses.

CORRECTIONS = ("none", "by", "bh", "holm", "bonferroni", "auto")


def adjust(pvalues: Array, correction: str) -> Array:
    """Adjusted p-values: reject those at or below α.

    "by" and "bh" control the false discovery rate (Benjamini–Yekutieli for any dependence,
    Benjamini–Hochberg for positive dependence), "holm" and "bonferroni" the chance of any error.
    """
    count = len(pvalues)
    if count <= 1 or correction == "none":
        return pvalues.copy()
    if correction in ("by", "bh"):
        # Imported here: scipy.stats takes longer to load than all of relfit.
        from scipy.stats import false_discovery_control

        return np.asarray(false_discovery_control(pvalues, method=correction))
    if correction == "bonferroni":
        return np.minimum(count * pvalues, 1.0)
    if correction != "holm":
        raise InputError(f"correction: expected none, by, bh, holm or bonferroni, got {correction!r}")
    order = np.argsort(pvalues, kind="stable")
    stepped = np.maximum.accumulate(pvalues[order] * np.arange(count, 0, -1))
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def sign_condition(covariance: Array, best: int) -> bool:
    """Whether every Cov(D_i − D_J, D_k − D_J) ≥ 0, so that Benjamini–Hochberg is allowed."""
    others = np.delete(np.arange(len(covariance)), best)
    contrast = np.eye(len(covariance))[others] - np.eye(len(covariance))[best]
    joint = contrast @ covariance @ contrast.T
    return bool((joint >= -1e-12 * np.abs(joint).max(initial=0.0)).all())


def resolve_correction(correction: str, covariance: Array, best: int) -> str:
    """The correction really used: "auto" is BH where the sign condition holds, else BY; none for two models."""
    if len(covariance) <= 2:
        return "none"
    if correction == "auto":
        return "bh" if sign_condition(covariance, best) else "by"
    return correction


# --------------------
# Showing that a model is no worse than another by more than a margin δ > 0: the other side of the same test.
#
# The test of "D_i − D_J ≤ δ" has a twin, of "D_i − D_J > δ", whose rejection shows equivalence within δ. At the
# common boundary D_i − D_J = δ its p-value is the probability of a difference at least as *small* as the one seen.
# Only one of the two hypotheses is true, so the two tests together err no more often than either.


def selective_log_equivalence(t: ArrayLike, s: ArrayLike, lower: ArrayLike, upper: ArrayLike, margin: float) -> Array:
    """log P(T ≤ t) for T ~ N(δ, s²) truncated to [V⁻, V⁺], and no less than without the truncation.

    Given the selection a model can look equivalent because a near tie for best sets V⁻ just below t, however
    large t is. Asking that the plain z test agree leaves no such claim, and the level is kept a fortiori. Where t
    is on a limit there is no information: log p = 0.
    """
    t, s, lower, upper = (np.asarray(value, dtype=float) for value in (t, s, lower, upper))
    given = selective_log_pvalue(margin - t, s, margin - upper, margin - lower)
    given = np.where((lower < t) & (t < upper), given, 0.0)
    return np.asarray(np.maximum(given, log_ndtr((t - margin) / s)))


def equivalent_to(best: int, log_equivalence: Array, alpha: float, correction: str) -> NDArray[np.bool_]:
    """Which models are equivalent to `best`, by the same correction as the verdicts; `best` itself is."""
    others = np.arange(len(log_equivalence)) != best
    shown = np.ones(len(log_equivalence), dtype=bool)
    shown[others] = adjust(np.exp(log_equivalence[others]), correction) <= alpha
    return shown


def known_log_equivalence(gap: float, margin: float) -> float:
    """The same for a difference without variance: it is within the margin, or it is not."""
    return -math.inf if gap <= margin else 0.0
