"""KSD² of densities to a reference sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import Estimates, designs, ksd
from relfit.inputs import Data, scores_of, stream
from relfit.measure.bandwidth import centre_of
from relfit.measure.plan import Plan
from relfit.measure.shares import orders_of

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def of_densities(data: Data, plan: Plan) -> Estimates:
    """KSD² of every density, with ψ rows."""
    reference, densities = data.reference, data.densities
    if plan.estimator == "linear":
        return _linear(data, plan)
    scores = [scores_of(name, density, reference) for name, density in densities.items()]
    rng = stream(plan.seed, "second order")
    return ksd.complete(reference - centre_of(reference), scores, plan.kernel, plan.runtime, rng)


def _linear(data: Data, plan: Plan) -> Estimates:
    order = orders_of(data, plan)[None]

    def side(rows: Rows) -> tuple[Array, list[Array]]:
        x = data.reference[order[rows]]
        return x, [scores_of(name, density, x) for name, density in data.densities.items()]

    def values(a: Rows, b: Rows) -> Array:
        return ksd.pair_values(plan.kernel, side(a), side(b))

    return designs.linear(len(order), values, plan.runtime.progress)
