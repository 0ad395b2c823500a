"""MMD² of samples to a reference sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relfit.backends import host
from relfit.discrepancies import Estimates, designs, mmd
from relfit.discrepancies.bands import mmd_values
from relfit.discrepancies.second_order import second_order
from relfit.discrepancies.windows import Source
from relfit.inputs import Data, stream
from relfit.measure.extent import centre_for
from relfit.measure.layout import of_pairs
from relfit.measure.plan import Plan
from relfit.measure.shares import orders_of

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def of_samples(data: Data, plan: Plan) -> Estimates:
    """MMD² of every sample, with ψ rows."""
    if plan.estimator == "linear":
        return _linear(data, plan)
    centre = centre_for(data.reference, plan.kernel)
    if plan.estimator != "complete":
        return _of_pairs(data, plan, centre)
    kernel, samples = plan.kernel.moved(centre), list(data.samples.values())
    found = mmd.complete(data.reference, samples, kernel, plan.dependence, plan.runtime, centre=centre)
    # That of `mmd.complete` is of independent samples: near the truth for shared ones, not for pairs.
    if plan.dependence == "paired" or (plan.variance == "corrected" and plan.dependence != "independent"):
        return replace(found, second_order=_second_order(data, plan))
    return found


def _linear(data: Data, plan: Plan) -> Estimates:
    orders = orders_of(data, plan)
    reference, samples = data.reference, data.samples

    def values(a: Rows, b: Rows) -> Array:
        first, second = (
            (reference[orders[None][k]], [x[orders[name][k]] for name, x in samples.items()]) for k in (a, b)
        )
        return mmd.pair_values(plan.kernel, first, second)

    return designs.linear(len(reference), values, plan.runtime, reference.shape[1] * (1 + len(samples)))


def _of_pairs(data: Data, plan: Plan, centre: Array | float) -> Estimates:
    """Pairs of z = (reference row, model rows): their values are those of the paired form, whatever the dependence."""
    orders = orders_of(data, plan)
    arrays = [(None, data.reference), *data.samples.items()]

    def fetch(rows: Rows) -> list[Array]:
        return [np.asarray(x[orders[name][rows]] - centre) for name, x in arrays]

    width = data.reference.shape[1] * len(arrays)
    source = Source(len(data.reference), len(data.samples), fetch, mmd_values(plan.kernel.moved(centre)), width)
    return of_pairs(source, plan)


def _second_order(data: Data, plan: Plan) -> Array:
    """Of samples of one size whose rows belong together: from pairs of whole rows (reference, model 1, …, model l)."""

    def values(a: Rows, b: Rows) -> Array:
        first, second = ((host(data.reference[k]), [host(x[k]) for x in data.samples.values()]) for k in (a, b))
        return mmd.pair_values(plan.kernel, first, second)

    n, d = data.reference.shape
    return second_order(n, d * (1 + len(data.samples)), values, stream(plan.seed, "second order"))
