"""KSD² of samples to one target density: which sampler or approximation is closest to it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from relfit.discrepancies import Estimates, Psi, designs, ksd
from relfit.discrepancies.bands import BandValues, ksd_values
from relfit.discrepancies.chain import ChainEstimate, chain_ksd
from relfit.discrepancies.second_order import second_order
from relfit.discrepancies.windows import Source
from relfit.inputs import Data, scores_of, stored_scores, stream
from relfit.measure.bandwidth import centre_of
from relfit.measure.layout import of_pairs
from relfit.measure.plan import Plan
from relfit.measure.shares import orders_of
from relfit.stored import LazyRows

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# With fewer batches their means are too few for a normal approximation.
FEWEST_BATCHES = 20


def of_target(data: Data, plan: Plan) -> Estimates:
    """KSD² of every sample (m_i, d) to the target, each from its own rows and scores, with ψ rows."""
    if plan.dependence == "chain":
        return _chains(data, plan)
    shared = plan.dependence == "shared"
    if plan.estimator in ("block", "incomplete"):
        together = [data.samples] if shared else [{name: x} for name, x in data.samples.items()]
        each = [_of_pairs(samples, data, plan) for samples in together]
    else:
        make = _linear if plan.estimator == "linear" else _complete
        each = [make(name, x, data, plan) for name, x in data.samples.items()]
    found = _side_by_side(each, shared=shared)
    if shared and plan.variance == "corrected":
        return replace(found, second_order=_second_order(data, plan))
    return found


def _side_by_side(each: Sequence[Estimates], *, shared: bool) -> Estimates:
    """Estimates of different models as one; what they have in common, if they do, is in the ψ rows alone."""
    values = np.concatenate([e.values for e in each])
    rows = tuple(column for e in each if e.psi.reference is not None for column in e.psi.reference.T)
    second = [e.second_order for e in each if e.second_order is not None]
    own = [e.covariance for e in each if e.covariance is not None]
    return Estimates(
        values,
        Psi(None, rows, shared=shared),
        block_diag(*second) if second else None,
        each[0].notes,
        block_diag(*own) if own else None,
    )


def _complete(name: str, x: Array, data: Data, plan: Plan) -> Estimates:
    scores = _all_scores(name, x, data, plan)
    # The same pairs for every model of a size: rows from common random numbers stay together.
    rng = stream(plan.seed, "second order")
    centre = centre_of(x)
    return ksd.complete(x, [scores], plan.kernel.moved(centre), plan.runtime, rng, centre=centre)


def _linear(name: str, x: Array, data: Data, plan: Plan) -> Estimates:
    order = orders_of(data, plan)[name]

    def values(a: Rows, b: Rows) -> Array:
        first, second = ((x[order[k]], [_scores(name, x[order[k]], data)]) for k in (a, b))
        return ksd.pair_values(plan.kernel, first, second)

    return designs.linear(len(order), values, plan.runtime, 2 * x.shape[1])


def _of_pairs(samples: Mapping[str, Array], data: Data, plan: Plan) -> Estimates:
    """Samples of one size whose rows are taken in one order, or a single one."""
    orders = orders_of(data, plan)
    centres = {name: centre_of(x) for name, x in samples.items()}

    def fetch(rows: Rows) -> list[Array]:
        taken = {name: x[orders[name][rows]] for name, x in samples.items()}
        return [a for name, x in taken.items() for a in (x - centres[name], _scores(name, x, data))]

    def values(window: Sequence[Array]) -> BandValues:
        kernels = [plan.kernel.moved(centre) for centre in centres.values()]
        each = [ksd_values(kernel)(window[2 * i : 2 * i + 2]) for i, kernel in enumerate(kernels)]
        return lambda part: np.concatenate([of_model(part) for of_model in each])

    count, d = next(iter(samples.values())).shape
    return of_pairs(Source(count, len(samples), fetch, values, 2 * d * len(samples)), plan)


def _second_order(data: Data, plan: Plan) -> Array:
    """Of samples from common random numbers: the same pairs of rows in every model."""

    def of_model(name: str, x: Array, a: Rows, b: Rows) -> Array:
        first, second = ((x[k], [_scores(name, x[k], data)]) for k in (a, b))
        return ksd.pair_values(plan.kernel, first, second)

    def values(a: Rows, b: Rows) -> Array:
        return np.hstack([of_model(name, x, a, b) for name, x in data.samples.items()])

    n, d = next(iter(data.samples.values())).shape
    return second_order(n, 2 * d * len(data.samples), values, stream(plan.seed, "second order"))


def _chains(data: Data, plan: Plan) -> Estimates:
    each = {name: _chain(name, x, data, plan) for name, x in data.samples.items()}
    values = np.array([chain.value for chain in each.values()])
    notes = tuple(_note(name, chain) for name, chain in each.items())
    return Estimates(values, Psi(None, tuple(chain.batch_psi for chain in each.values())), None, notes)


def _chain(name: str, x: Array, data: Data, plan: Plan) -> ChainEstimate:
    centre = centre_of(x)
    return chain_ksd(x - centre, _scores(name, x, data), plan.kernel.moved(centre), plan.runtime)


def _note(name: str, chain: ChainEstimate) -> str:
    batches = len(chain.batch_psi)
    text = (
        f"chain {name!r}: autocorrelation time {chain.autocorrelation_time:.3g}, {batches} batches of "
        f"{chain.batch_length} draws"
    )
    few = batches < FEWEST_BATCHES
    return text + ("; too few for a reliable standard error, run the chain longer" if few else "")


def _all_scores(name: str, x: Array, data: Data, plan: Plan) -> Any:
    if not isinstance(x, LazyRows) or plan.folder is None:
        return _scores(name, x, data)
    assert data.target is not None  # noqa: S101  (the kind of data was checked)
    return stored_scores(f"target at model {name!r}", data.target, x, plan.folder)


def _scores(name: str, x: Array, data: Data) -> Array:
    assert data.target is not None  # noqa: S101  (the kind of data was checked)
    return scores_of(f"target at model {name!r}", data.target, x)
