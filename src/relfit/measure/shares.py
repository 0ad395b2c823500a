"""Random orders and disjoint shares of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import Dependence
from relfit.inputs import Data, stream
from relfit.measure.plan import Plan
from relfit.models import Density
from relfit.stored import some_rows

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def split(
    data: Data, fraction: float, dependence: Dependence, seed: int, purpose: str = "split", most: int | None = None
) -> tuple[Data, Data]:
    """Disjoint random shares of every sample: one to select with, of at most `most` rows, and one to test with."""
    orders = row_orders(data, dependence, seed, purpose)
    cut = {key: min(max(1, round(fraction * len(order))), most or len(order)) for key, order in orders.items()}
    return (
        take(data, {key: order[: cut[key]] for key, order in orders.items()}),
        take(data, {key: order[cut[key] :] for key, order in orders.items()}),
    )


def row_orders(data: Data, dependence: Dependence, seed: int, purpose: str) -> dict[str | None, Rows]:
    """A random order of the rows of the reference (key None) and of every sample.

    All models draw theirs from one stream, so that neither the order of the models, nor their names, nor
    a copy more changes a number, and rows made from common random numbers stay together; samples that are
    independent may be shuffled alike. The reference joins in only where its rows are paired with them.
    """
    drawn = {n: stream(seed, purpose, "models").permutation(n) for n in {len(rows) for rows in data.samples.values()}}
    orders: dict[str | None, Rows] = {name: drawn[len(rows)] for name, rows in data.samples.items()}
    own = stream(seed, purpose, "models" if dependence == "paired" else "reference")
    return {None: own.permutation(len(data.reference)), **orders}


def orders_of(data: Data, plan: Plan) -> dict[str | None, Rows]:
    """The order in which a pair design takes the rows: random, or as given."""
    if plan.shuffle:
        return row_orders(data, plan.dependence, plan.seed, "pairs")
    return {None: np.arange(len(data.reference)), **{name: np.arange(len(x)) for name, x in data.samples.items()}}


def take(data: Data, rows: Mapping[str | None, Rows]) -> Data:
    """The data with these rows only, of the reference (key None) and of every sample."""
    models: dict[str, Array | Density] = {
        name: model if isinstance(model, Density) else some_rows(model, rows[name])
        for name, model in data.models.items()
    }
    return replace(data, reference=some_rows(data.reference, rows[None]), models=models)
