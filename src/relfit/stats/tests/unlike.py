"""Models of similar value whose estimates vary very differently: what conditional tests note."""

from __future__ import annotations

import numpy as np

from relfit.stats.decision import gaps_to
from relfit.stats.joint import JointEstimate
from relfit.util.arrays import Array

# Models within this many standard errors of the selected one are of similar value, and their
# variances are called unequal from this ratio on.
NEAR_ERRORS = 2.0
UNEQUAL_VARIANCES = 8.0


def unlike_notes(joint: JointEstimate, best: int, test: str) -> tuple[str, ...]:
    """A note where two models of similar value have very different variances.

    Squared distances of models that differ from the data in one way have variances in
    proportion to their values. RelPSI and carving use the estimated variances, which follow the
    estimates; where the models' variances differ by much, their p-values can be too small
    (docs/evidence/calibration/relpsi.md).
    """
    # Only squared distances have a second-order part.
    if joint.near_degeneracy is None:
        return ()
    low, high, ratio = most_unlike(joint, best)
    if ratio < UNEQUAL_VARIANCES:
        return ()
    names = joint.names
    return (
        f"the values of {names[high]!r} and {names[low]!r} are similar, but their variances "
        f"differ by a factor of {ratio:.0f}, so the p-values of {test} can be too small "
        '(simulated: error rates up to 0.26 instead of 0.05); use test="best-set"',
    )


def most_unlike(joint: JointEstimate, best: int) -> tuple[int, int, float]:
    """The models of the smallest and of the largest variance among those within two standard
    errors of the best one, and the ratio of their variances; 1 where there is no variance.
    """
    gaps = gaps_to(joint, best)
    variance: Array = np.diag(joint.covariance)
    similar = (np.abs(gaps.gap[0]) <= NEAR_ERRORS * gaps.error[0]) & ~gaps.constant[0]
    similar[best] = True
    similar &= variance > 0.0
    if not similar.any():
        return best, best, 1.0
    low = int(np.argmin(np.where(similar, variance, np.inf)))
    high = int(np.argmax(np.where(similar, variance, -np.inf)))
    return low, high, float(variance[high] / variance[low])
