"""All differences D_i − D_j of l models, over their standard errors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.estimate import JointEstimate
from relfit.procedures.decision import CERTAIN, NO_VARIANCE, SAME_VALUE

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


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
