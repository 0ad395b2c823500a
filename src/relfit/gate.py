"""May this model be released? One question to a finished comparison, answered yes or no."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.procedures.pairwise import relative_z
from relfit.result import Comparison
from relfit.result.distinct import unseen


@dataclass(frozen=True)
class Gate:
    """Whether a model passes. It fails only where it is significantly worse than `against`.

    Attributes:
        name, against: the model, and the one it was compared with.
        failed: the answer.
        pvalue: of "no worse than `against`", in the best set of "as good as every other model"; adjusted where the
            comparison's p-values are.
        fixed: whether `against` was named beforehand (a one-sided z test of this pair alone). Otherwise it is the best
            model, and for one that the best set rejects the model that beats it.
        equivalent: whether the model was shown to be within the margin; None without one.
    """

    name: str
    against: str
    failed: bool
    pvalue: float
    fixed: bool
    equivalent: bool | None


def judge(comparison: Comparison, name: str, against: str | None = None) -> Gate:
    """The gate of one model, against the best or against a model named beforehand.

    Without `against` it is the comparison's verdict. With it the fixed hypothesis D_name ≤ D_against + margin is tested
    at the comparison's level: a one-sided z test on the same estimates, which no choice of a best model has touched.
    A kernel that cannot see the models gives no answer: it is refused.

    >>> from relfit import decide
    >>> result = decide(JointEstimate(("old", "new", "other"), [0.1, 0.9, 0.0], 0.01 * np.eye(3)))
    >>> judge(result, "new", "old").failed, judge(result, "old", "new").failed
    (True, False)
    """
    for argument, value in (("name", name), ("against", against)):
        if value is not None and value not in comparison.names:
            raise InputError(f"{argument}: expected the name of a model, got {value!r}")
    if against == name:
        raise InputError(f"against: expected another model than {name!r}")
    _check_seen(comparison, name, against)
    if against is None:
        row = next(row for row in comparison.rows() if row["name"] == name)
        # The best set shows only that some model is better, and that is the one which beats this one most clearly.
        beaters = dict(zip(comparison.names, comparison.beaten_by or (), strict=False))
        opponent = beaters.get(name) or comparison.best
        return Gate(name, opponent, row["worse"], row["adjusted_pvalue"], False, row["equivalent"])
    at = [comparison.names.index(name), comparison.names.index(against)]
    pair = JointEstimate((name, against), comparison.discrepancy[at], comparison.covariance[np.ix_(at, at)])
    originals = comparison._originals()
    if originals[at[0]] == originals[at[1]]:
        return Gate(name, against, False, 1.0, True, True if comparison.margin else None)
    decision = relative_z(pair, comparison.alpha, comparison.margin)
    pvalue = math.exp(decision.log_pvalue)
    return Gate(name, against, pvalue <= comparison.alpha, pvalue, True, decision.equivalent)


def _check_seen(comparison: Comparison, name: str, against: str | None) -> None:
    """Refuse an answer that no data could have changed: a kernel that takes one value on all pairs of rows."""
    others = unseen(comparison, name)
    opponent = comparison.best if against is None else against
    if comparison.kernel is None or not (others if opponent == name else opponent in others):
        return
    whom = "the other models" if opponent == name else repr(opponent)
    raise InputError(
        f"kernel: expected one that can tell {name!r} from {whom}, got {comparison.kernel.describe()}, which takes one "
        "value on all their pairs of rows; choose a bandwidth near the median distance"
    )
