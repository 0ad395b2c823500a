"""One joint estimate from checked data: the kernel's bandwidth, the shares of the rows, the estimator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relfit.compute.reduce import one_blas_thread
from relfit.data.load import Data
from relfit.estimators.base import Estimates, Plan
from relfit.estimators.groups import group_counts, grouped_estimates
from relfit.estimators.kernel import column_notes
from relfit.estimators.ksd import of_densities, of_target
from relfit.estimators.locations import of_locations, sizes_left
from relfit.estimators.mmd import of_samples
from relfit.stats.joint import JointEstimate
from relfit.util.arrays import Array

_ESTIMATORS = {"samples": of_samples, "densities": of_densities, "target": of_target}


def joint_estimate(data: Data, plan: Plan) -> JointEstimate:
    """D and V of every distinct model, in the order of `data.models`."""
    with one_blas_thread():
        estimates = _maker(data, plan)(data, plan)
        covariance = estimates.corrected if plan.variance == "corrected" else estimates.projection
        share = _second_order_share(estimates)
    sizes = sizes_left(data, plan.locations)
    why = (plan.why,) if plan.why else ()
    notes = (*why, *estimates.notes, *column_notes(data, plan.kernel))
    groups = group_counts(data, plan)
    second = _counted_twice(estimates, plan)
    return JointEstimate(
        tuple(data.models), estimates.values, covariance, sizes, estimates.psi, share, notes, groups, second
    )


def _maker(data: Data, plan: Plan) -> Callable[[Data, Plan], Estimates]:
    if plan.locations is not None:
        return of_locations
    return _ESTIMATORS[data.kind] if plan.groups is None else grouped_estimates


def _counted_twice(estimates: Estimates, plan: Plan) -> Array | None:
    """S2 (l, l), where V holds it twice and it is known off the diagonal too."""
    second = estimates.second_order
    plain = plan.variance == "projection" and plan.dependence == "independent" and plan.groups is None
    return second if plain and second is not None and second.ndim == 2 else None


def _second_order_share(estimates: Estimates) -> Array | None:
    """ρ_i = S2_ii/V_ii of the uncorrected covariance, which holds the second-order part twice."""
    if estimates.second_order is None:
        return None
    own = np.diag(estimates.second_order) if estimates.second_order.ndim == 2 else estimates.second_order
    variance = np.diag(estimates.projection)
    return np.divide(own, variance, out=np.zeros(len(variance)), where=variance > 0.0)
