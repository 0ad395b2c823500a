"""Whether the numbers of an estimate lie near enough to each other for the arithmetic of the tests."""

from __future__ import annotations

import numpy as np

from relfit.errors import InputError
from relfit.estimate import JointEstimate

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
