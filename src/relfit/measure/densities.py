"""KSD² of densities to a reference sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import Estimates, designs, ksd
from relfit.discrepancies.bands import ksd_values
from relfit.discrepancies.windows import Source
from relfit.inputs import Data, scores_of, stream
from relfit.measure.bandwidth import centre_of
from relfit.measure.layout import of_pairs
from relfit.measure.plan import Plan
from relfit.measure.shares import orders_of

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def of_densities(data: Data, plan: Plan) -> Estimates:
    """KSD² of every density, with ψ rows."""
    if plan.estimator == "linear":
        return _linear(data, plan)
    centre = centre_of(data.reference)
    if plan.estimator != "complete":
        return _of_pairs(data, plan, centre)
    x, scores = _with_scores(data, data.reference)
    rng = stream(plan.seed, "second order")
    return ksd.complete(x - centre, scores, plan.kernel.moved(centre), plan.runtime, rng)


def _linear(data: Data, plan: Plan) -> Estimates:
    order = orders_of(data, plan)[None]

    def values(a: Rows, b: Rows) -> Array:
        first, second = (_with_scores(data, data.reference[order[k]]) for k in (a, b))
        return ksd.pair_values(plan.kernel, first, second)

    return designs.linear(len(order), values, plan.runtime.progress)


def _of_pairs(data: Data, plan: Plan, centre: Array) -> Estimates:
    order = orders_of(data, plan)[None]

    def fetch(rows: Rows) -> list[Array]:
        x, scores = _with_scores(data, data.reference[order[rows]])
        return [x - centre, *scores]

    source = Source(len(order), len(data.densities), fetch, ksd_values(plan.kernel.moved(centre)))
    return of_pairs(source, plan)


def _with_scores(data: Data, x: Array) -> tuple[Array, list[Array]]:
    return x, [scores_of(name, density, x) for name, density in data.densities.items()]
