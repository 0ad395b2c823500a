"""The decision on the distinct models, spread over every name given: copies get their original's row."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import numpy as np
import scipy

from relfit.diagnostics import NEAR_DEGENERATE
from relfit.estimate import JointEstimate
from relfit.procedures import BestSetDecision, CarveDecision, Decision
from relfit.procedures.decision import difference_variance
from relfit.result import Comparison
from relfit.version import __version__


def with_copies(joint: JointEstimate, copies: Mapping[str, str]) -> JointEstimate:
    """The estimate of every name given; `copies` maps each to the distinct model it stands for."""
    index = [joint.names.index(original) for original in copies.values()]
    if index == list(range(len(joint.names))):
        return joint
    share, second = joint.near_degeneracy, joint.second_order
    return JointEstimate(
        tuple(copies),
        joint.values[index],
        joint.covariance[np.ix_(index, index)],
        _each(joint.sizes, index),
        None,
        None if share is None else share[index],
        joint.notes,
        _each(joint.groups, index),
        None if second is None else second[np.ix_(index, index)],
        joint.measure,
    )


def _each(counts: tuple[int, ...] | None, index: list[int]) -> tuple[int, ...] | None:
    """Counts of the reference and the distinct models, as those of the reference and every model."""
    return counts if counts is None or len(counts) == 1 else (counts[0], *(counts[1 + k] for k in index))


def comparison_of(
    joint: JointEstimate,
    decision: Decision,
    alpha: float,
    test: str,
    copies: Mapping[str, str] | None = None,
    *,
    margin: float = 0.0,
) -> Comparison:
    """A Comparison without the settings that only the caller knows."""
    copies = copies or {name: name for name in joint.names}
    whole = with_copies(joint, copies)
    index = [joint.names.index(original) for original in copies.values()]
    best = joint.names[decision.best]
    best_index = whole.names.index(best)
    s = [difference_variance(joint.covariance, i, decision.best) ** 0.5 for i in range(len(joint.names))]
    return Comparison(
        names=whole.names,
        best=best,
        best_index=best_index,
        discrepancy=whole.values,
        standard_error=whole.standard_error,
        covariance=whole.covariance,
        difference=whole.values - whole.values[best_index],
        difference_standard_error=np.array(s)[index],
        pvalue=np.exp(decision.log_pvalue)[index],
        log_pvalue=decision.log_pvalue[index],
        adjusted_pvalue=decision.adjusted_pvalue[index],
        worse=decision.worse[index],
        status=tuple(_status(name, joint, decision, copies) for name in whole.names),
        alpha=alpha,
        test=test,
        correction=decision.correction,
        measure=joint.measure,
        truncation=None if decision.truncation is None else decision.truncation[index],
        beaten_by=_beaten_by(joint, decision, index),
        confidence_set=_confidence_set(whole.names, decision, index),
        randomised=isinstance(decision, CarveDecision),
        near_degeneracy=whole.near_degeneracy,
        second_order=whole.second_order,
        sizes=whole.sizes,
        versions=versions(),
        groups=whole.groups,
        margin=margin,
        equivalent=None if decision.equivalent is None else decision.equivalent[index],
    )


def _beaten_by(joint: JointEstimate, decision: Decision, index: list[int]) -> tuple[str | None, ...] | None:
    if not isinstance(decision, BestSetDecision):
        return None
    beaters = [None if j is None else joint.names[j] for j in decision.beaten_by]
    return tuple(beaters[i] for i in index)


def _confidence_set(names: tuple[str, ...], decision: Decision, index: list[int]) -> tuple[str, ...] | None:
    if not isinstance(decision, BestSetDecision):
        return None
    return tuple(name for name, i in zip(names, index, strict=True) if i in decision.confidence_set)


def _status(name: str, joint: JointEstimate, decision: Decision, copies: Mapping[str, str]) -> tuple[str, ...]:
    original = copies[name]
    i = joint.names.index(original)
    words = decision.status[i]
    if joint.near_degeneracy is not None and joint.near_degeneracy[i] > NEAR_DEGENERATE:
        words = (*words, "near-degenerate")
    return words if name == original else (f"duplicate of {original}", *words)


def versions() -> dict[str, str]:
    """The versions that decide the last digits."""
    return {
        "relfit": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }
