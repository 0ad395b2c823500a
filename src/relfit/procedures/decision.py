"""What every procedure returns, and the pairs of models that no normal test can tell apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.estimate import JointEstimate

Array = NDArray[np.float64]

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
