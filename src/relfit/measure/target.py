"""KSD² of samples to one target density: which sampler or approximation is closest to it?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import Estimates, Psi, designs, ksd
from relfit.discrepancies.chain import ChainEstimate, chain_ksd
from relfit.inputs import Data, scores_of, stream
from relfit.measure.bandwidth import centre_of
from relfit.measure.plan import Plan
from relfit.measure.shares import orders_of

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# With fewer batches their means are too few for a normal approximation.
FEWEST_BATCHES = 20


def of_target(data: Data, plan: Plan) -> Estimates:
    """KSD² of every sample (m_i, d) to the target, each from its own rows and scores, with ψ rows."""
    if plan.dependence == "chain":
        return _chains(data, plan)
    make = _linear if plan.estimator == "linear" else _complete
    each = [make(name, x, data, plan) for name, x in data.samples.items()]
    values = np.concatenate([e.values for e in each])
    rows = tuple(e.psi.reference[:, 0] for e in each if e.psi.reference is not None)
    second = [e.second_order for e in each if e.second_order is not None]
    psi = Psi(None, rows, shared=plan.dependence == "shared")
    return Estimates(values, psi, np.concatenate(second) if second else None)


def _complete(name: str, x: Array, data: Data, plan: Plan) -> Estimates:
    scores = _scores(name, x, data)
    # The same pairs for every model of a size: rows from common random numbers stay together.
    rng = stream(plan.seed, "second order")
    return ksd.complete(x - centre_of(x), [scores], plan.kernel, plan.runtime, rng)


def _linear(name: str, x: Array, data: Data, plan: Plan) -> Estimates:
    order = orders_of(data, plan)[name]

    def values(a: Rows, b: Rows) -> Array:
        first, second = ((x[order[k]], [_scores(name, x[order[k]], data)]) for k in (a, b))
        return ksd.pair_values(plan.kernel, first, second)

    return designs.linear(len(order), values, plan.runtime.progress)


def _chains(data: Data, plan: Plan) -> Estimates:
    each = {
        name: chain_ksd(x - centre_of(x), _scores(name, x, data), plan.kernel, plan.runtime)
        for name, x in data.samples.items()
    }
    values = np.array([chain.value for chain in each.values()])
    notes = tuple(_note(name, chain) for name, chain in each.items())
    return Estimates(values, Psi(None, tuple(chain.batch_psi for chain in each.values())), None, notes)


def _note(name: str, chain: ChainEstimate) -> str:
    batches = len(chain.batch_psi)
    text = (
        f"chain {name!r}: autocorrelation time {chain.autocorrelation_time:.3g}, {batches} batches of "
        f"{chain.batch_length} draws"
    )
    few = batches < FEWEST_BATCHES
    return text + ("; too few for a reliable standard error, run the chain longer" if few else "")


def _scores(name: str, x: Array, data: Data) -> Array:
    assert data.target is not None  # noqa: S101  (the kind of data was checked)
    return scores_of(f"target at model {name!r}", data.target, x)
