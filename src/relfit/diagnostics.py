"""What a reader should be told about an estimate: too many models, near-degeneracy, near copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relfit.estimate import JointEstimate
from relfit.measure import Plan

NEAR_DEGENERATE = 0.3
NEAR_COPY = 0.99
_MOST_PAIRS = 3


def joint_warnings(joint: JointEstimate, plan: Plan) -> list[str]:
    """Everything worth saying about an estimate made with this plan."""
    notes = size_warnings(joint)
    if not joint.covariance.any():
        notes.append(
            "the kernel takes one value on all pairs of rows, so no model can be told from another; "
            "choose a bandwidth near the median distance"
        )
    if joint.near_degeneracy is not None:
        close = [name for name, rho in zip(joint.names, joint.near_degeneracy, strict=True) if rho > NEAR_DEGENERATE]
        if close:
            notes.append(
                f"{_list(close)} cannot be told from the data at this size, so the test is conservative there: "
                'real differences may be missed; estimator="linear" is exact but needs more rows'
            )
    if plan.dependence == "independent" and plan.estimator == "complete":
        notes += _near_copies(joint)
    if plan.estimator == "linear" and joint.sizes is not None and joint.sizes[0] % 2:
        notes.append("the linear estimator pairs rows: one row was left over and not used")
    return notes


def size_warnings(joint: JointEstimate) -> list[str]:
    """Whether there are too many models for the covariance to be trusted."""
    if joint.sizes is None or len(joint.names) <= joint.sizes[0] / 5:
        return []
    return [
        f"{len(joint.names)} models are many for {joint.sizes[0]} reference rows: their covariance is noisy and the "
        "error rate can exceed alpha; use at least 5 rows per model"
    ]


def _near_copies(joint: JointEstimate) -> list[str]:
    rows = () if joint.psi is None else joint.psi.models
    pairs = []
    for size in sorted({len(row) for row in rows}):
        same = [i for i, row in enumerate(rows) if len(row) == size]
        unit = np.array([rows[i] / (np.linalg.norm(rows[i]) or 1.0) for i in same])
        pairs += [(same[a], same[b]) for a, b in np.argwhere(np.triu(unit @ unit.T > NEAR_COPY, 1))]
    notes = [_near_copy(joint.names[a], joint.names[b]) for a, b in pairs[:_MOST_PAIRS]]
    if len(pairs) > _MOST_PAIRS:
        notes.append(f"{len(pairs) - _MOST_PAIRS} more pairs of samples are nearly the same rows")
    return notes


def _near_copy(a: str, b: str) -> str:
    return (
        f"the samples of {a!r} and {b!r} are nearly the same rows; if they come from common random numbers, say "
        'dependence="shared", or one of them hides the difference to the others'
    )


def _list(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:5]]
    return ", ".join(shown) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
