"""MMD² of samples to a reference sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import Estimates, designs, mmd
from relfit.inputs import Data
from relfit.measure.bandwidth import centre_of
from relfit.measure.plan import Plan
from relfit.measure.shares import orders_of

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def of_samples(data: Data, plan: Plan) -> Estimates:
    """MMD² of every sample, with ψ rows."""
    if plan.estimator == "linear":
        return _linear(data, plan)
    # Only distances are unmoved by a shift; a function of x·y takes the rows as they are.
    centre = centre_of(data.reference) if plan.kernel.variable == "r2" else 0.0
    centred = [x - centre for x in data.samples.values()]
    return mmd.complete(data.reference - centre, centred, plan.kernel, plan.dependence, plan.runtime)


def _linear(data: Data, plan: Plan) -> Estimates:
    orders = orders_of(data, plan)
    reference, samples = data.reference, data.samples

    def values(a: Rows, b: Rows) -> Array:
        first, second = (
            (reference[orders[None][k]], [x[orders[name][k]] for name, x in samples.items()]) for k in (a, b)
        )
        return mmd.pair_values(plan.kernel, first, second)

    return designs.linear(len(reference), values, plan.runtime.progress)
