"""Draws on another scale than the target: every model is then extremely far from it."""

from __future__ import annotations

import numpy as np

from relfit.checks.base import Estimated, Findings
from relfit.estimators.pairkernel import PairKernel
from relfit.kernels.choice import Collection

# Every model is so many standard errors from the target, and its KSD² is such a part of that of draws whose scores all
# point the same way. The first grows with the number of draws, the second does not.
_FAR, _PART = 20.0, 0.35
_DRAWS = 100


def far_target(estimated: Estimated) -> Findings:
    """A note if every model is so far from the target that its draws are probably on another scale."""
    data, joint = estimated.plan.data, estimated.joint
    if data.target is None:
        return Findings()
    errors = joint.standard_error
    if not (joint.values > _FAR * errors).all() or not (errors > 0.0).all():
        return Findings()
    if min(_parts(estimated)) < _PART:
        return Findings()
    ratio = float((joint.values / errors).min())
    return Findings(
        (
            f"every model is at least {ratio:.0f} standard errors from the target: the draws may be on another scale "
            "than the density; give the unconstrained parameters, such as log sigma for sigma",
        )
    )


def _parts(estimated: Estimated) -> list[float]:
    """KSD² of each model, as a part of the mean of its Stein kernel at equal draws."""
    data, kernel = estimated.plan.data, estimated.plan.estimate.kernel
    kernel = kernel.kernels[0] if isinstance(kernel, Collection) else kernel
    target = data.target
    assert target is not None  # noqa: S101  (checked by the caller)
    parts = []
    for name, value in zip(estimated.joint.names, estimated.joint.values, strict=True):
        draws = data.samples[data.copies.get(name, name)]
        x = np.asarray(draws[:: max(1, -(-len(draws) // _DRAWS))])
        rows = (x, target.raw_scores(x).astype(np.float64))
        parts.append(float(value / PairKernel(kernel).stein_pairs(rows, rows).mean()))
    return parts
