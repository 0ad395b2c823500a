"""One joint estimate from checked data: the kernel's bandwidth, the shares of the rows, the estimator."""

from __future__ import annotations

import numpy as np

from relfit.estimate import JointEstimate
from relfit.inputs import Data
from relfit.measure.bandwidth import resolve_kernel
from relfit.measure.checks import check_design, check_rows
from relfit.measure.densities import of_densities
from relfit.measure.plan import Plan
from relfit.measure.samples import of_samples
from relfit.measure.shares import row_orders, split
from relfit.measure.target import of_target
from relfit.tiles import one_blas_thread

__all__ = ["Plan", "check_design", "check_rows", "joint_estimate", "resolve_kernel", "row_orders", "split"]

_ESTIMATORS = {"samples": of_samples, "densities": of_densities, "target": of_target}


def joint_estimate(data: Data, plan: Plan) -> JointEstimate:
    """D and V of every distinct model, in the order of `data.models`."""
    with one_blas_thread():
        estimates = _ESTIMATORS[data.kind](data, plan)
        covariance = estimates.psi.covariance()
    share = None
    if estimates.second_order is not None:
        variance = np.diag(covariance)
        share = np.divide(estimates.second_order, variance, out=np.zeros(len(variance)), where=variance > 0.0)
    sizes = (len(data.reference), *(len(x) for x in data.samples.values()))
    return JointEstimate(tuple(data.models), estimates.values, covariance, sizes, estimates.psi, share, estimates.notes)
