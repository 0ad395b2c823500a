"""KSD² of densities to a reference sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import Estimates, designs, ksd
from relfit.discrepancies.bands import ksd_values
from relfit.discrepancies.windows import Source
from relfit.inputs import Data, scores_of, stored_scores, stream
from relfit.measure.bandwidth import centre_of
from relfit.measure.layout import of_pairs
from relfit.measure.plan import Plan
from relfit.measure.shares import orders_of
from relfit.stored import LazyRows

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def of_densities(data: Data, plan: Plan) -> Estimates:
    """KSD² of every density, with ψ rows."""
    if plan.estimator == "linear":
        return _linear(data, plan)
    centre = centre_of(data.reference)
    if plan.estimator != "complete":
        return _of_pairs(data, plan, centre)
    x, scores = _with_all_scores(data, plan)
    rng = stream(plan.seed, "second order")
    return ksd.complete(x, scores, plan.kernel.moved(centre), plan.runtime, rng, centre=centre)


def _linear(data: Data, plan: Plan) -> Estimates:
    order = orders_of(data, plan)[None]

    def values(a: Rows, b: Rows) -> Array:
        first, second = (_with_scores(data, data.reference[order[k]]) for k in (a, b))
        return ksd.pair_values(plan.kernel, first, second)

    width = data.reference.shape[1] * (1 + len(data.densities))
    return designs.linear(len(order), values, plan.runtime, width)


def _of_pairs(data: Data, plan: Plan, centre: Array) -> Estimates:
    order = orders_of(data, plan)[None]

    def fetch(rows: Rows) -> list[Array]:
        x, scores = _with_scores(data, data.reference[order[rows]])
        return [x - centre, *scores]

    width = data.reference.shape[1] * (1 + len(data.densities))
    source = Source(len(order), len(data.densities), fetch, ksd_values(plan.kernel.moved(centre)), width)
    return of_pairs(source, plan)


def _with_all_scores(data: Data, plan: Plan) -> tuple[Any, list[Any]]:
    x = data.reference
    if not isinstance(x, LazyRows) or plan.folder is None:
        return _with_scores(data, x)
    return x, [stored_scores(name, density, x, plan.folder) for name, density in data.densities.items()]


def _with_scores(data: Data, x: Array) -> tuple[Array, list[Array]]:
    return x, [scores_of(name, density, x) for name, density in data.densities.items()]
