"""What a reader should be told about an estimate: too many models, near-degeneracy, near copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relfit.estimate import JointEstimate
from relfit.measure import Plan
from relfit.procedures.decision import Decision, difference_variance, lowest, without_variance

NEAR_DEGENERATE = 0.3
NEAR_COPY = 0.99
MASKED_ERRORS = 4.0
# The most samples for which RelPSI was seen to keep its level is 10; 50 were too many (docs/calibration/).
CROWD = 20
_MOST_PAIRS = 3


def joint_warnings(joint: JointEstimate, plan: Plan) -> list[str]:
    """Everything worth saying about an estimate made with this plan."""
    notes = [*joint.notes, *size_warnings(joint)]
    if not joint.covariance.any():
        notes.append(
            "the kernel takes one value on all pairs of rows, so no model can be told from another; "
            "choose a bandwidth near the median distance"
        )
    if joint.near_degeneracy is not None:
        close = [name for name, rho in zip(joint.names, joint.near_degeneracy, strict=True) if rho > NEAR_DEGENERATE]
        if close:
            notes.append(
                f"the variance of {_list(close)} is mostly of second order (nearly as close to the reference as its "
                f"noise allows), so the test is conservative there: real differences may be missed{_remedy(plan)}"
            )
    if plan.dependence == "independent" and plan.estimator == "complete":
        notes += _near_copies(joint)
    if plan.estimator == "linear" and joint.sizes is not None and max(joint.sizes[:2]) % 2:
        notes.append("the linear estimator pairs rows: one row was left over and not used")
    return notes


def _remedy(plan: Plan) -> str:
    if plan.locations is not None:
        return ""
    return "; the estimators linear and incomplete have no such weakness but need more rows"


def size_warnings(joint: JointEstimate) -> list[str]:
    """Whether there are too many models for the covariance to be trusted."""
    sizes, what = (joint.sizes, "rows") if joint.groups is None else (joint.groups, "groups")
    # A reference of no rows is a density: the covariance is then diagonal and needs no rows per model.
    if sizes is None or not sizes[0] or len(joint.names) <= sizes[0] / 5:
        return []
    # Rows of the reference alone may be items that losses were taken on, and no reference.
    whose = "reference " if len(sizes) > 1 else ""
    return [
        f"{len(joint.names)} models are many for {sizes[0]} {whose}{what}: their covariance is noisy and the "
        f"error rate can exceed alpha; use at least 5 {what} per model"
    ]


def decision_warnings(joint: JointEstimate, decision: Decision, margin: float = 0.0) -> list[str]:
    """Whether a tie or near tie for the best, and not the data, decides the other models' selective p-values."""
    masked = tie_warnings(joint, decision) or masked_warnings(joint, decision, margin)
    return [*masked, *crowd_warnings(joint, decision)]


def correction_notes(asked: str, decision: Decision) -> list[str]:
    """Which correction "auto" chose for relmulti, and why."""
    why = {
        "bh": "Benjamini–Hochberg, as no two differences to the selected model are negatively correlated",
        "by": "Benjamini–Yekutieli, as some differences to the selected model are negatively correlated",
    }
    chosen = why.get(decision.correction)
    return [f'correction="auto": {chosen}'] if asked == "auto" and chosen else []


def tie_warnings(joint: JointEstimate, decision: Decision) -> list[str]:
    """Whether a tie for the best, and not the data, decides the other models' selective p-values."""
    best, tied = lowest(joint)
    still = without_variance(joint.covariance, best)
    level = [name for i, name in enumerate(joint.names) if tied[i] and (i == best or not still[i])]
    if decision.truncation is None or len(level) < 2 or (tied | still).all():
        return []
    return [
        f"{_list(level)} are level to the last digit: given such a tie relpsi has no power against the others; use "
        'test="best-set", or leave one of them out'
    ]


def masked_warnings(joint: JointEstimate, decision: Decision, margin: float = 0.0) -> list[str]:
    """Models that a plain z test would call worse beyond doubt and RelPSI does not: a near tie for best masks them."""
    if decision.truncation is None:
        return []
    masked = []
    for i, name in enumerate(joint.names):
        s = difference_variance(joint.covariance, i, decision.best) ** 0.5
        gap = float(joint.values[i] - joint.values[decision.best]) - margin
        if not decision.worse[i] and gap > MASKED_ERRORS * s > 0.0:
            masked.append(name)
    if not masked:
        return []
    return [
        f"{_list(masked)} lie more than {MASKED_ERRORS:g} standard errors above {joint.names[decision.best]!r}"
        f"{' and the margin' if margin else ''}, yet relpsi cannot call them worse, because another model is nearly "
        'level with the best; test="best-set" has no such weakness'
    ]


def crowd_warnings(joint: JointEstimate, decision: Decision) -> list[str]:
    """Whether RelPSI has so many samples to select from that its level suffers."""
    samples = joint.psi is not None and len(joint.psi.models) > 0
    if decision.truncation is None or not samples or len(joint.names) <= CROWD:
        return []
    return [
        f"relpsi selects among {len(joint.names)} samples: its error rate can then exceed alpha a little (0.064 for "
        '0.05 with 50 tied models, simulated); test="best-set" keeps it'
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
