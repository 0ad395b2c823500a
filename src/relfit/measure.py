"""One joint estimate from checked data: the kernel's bandwidth, the shares of the rows, the estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import Dependence, Estimates, designs, ksd, mmd
from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import Data, require_rows, scores_of, stream
from relfit.kernels import Gaussian, Kernel, median_distance
from relfit.models import Density
from relfit.tiles import Runtime

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

BANDWIDTH_ROWS = 1000
FEWEST_ROWS = {"complete": 20, "linear": 40}
FEWEST_SELECTION_ROWS = {"complete": 5, "linear": 10}
# Beyond these the kernel's length, squared (for KSD to the fourth power), leaves float64.
LENGTHS = {"samples": 1e152, "densities": 1e50}


@dataclass(frozen=True)
class Plan:
    """The settings one estimate is made with."""

    kernel: Kernel
    estimator: str
    dependence: Dependence
    seed: int
    runtime: Runtime
    shuffle: bool = True


def resolve_kernel(data: Data, kernel: Kernel | None, seed: int) -> tuple[Kernel, str]:
    """The kernel with its bandwidth filled in, and the rule it came by ("median" or "given")."""
    wanted = Gaussian() if kernel is None else kernel
    if not isinstance(wanted, Kernel):
        raise InputError(f"kernel: expected a relfit kernel such as Gaussian() or IMQ(), got {type(kernel).__name__}")
    rule = "median" if wanted.needs_median else "given"
    resolved = wanted.with_median(_pooled_median(data, seed)) if wanted.needs_median else wanted
    resolved = resolved.with_dimension(data.reference.shape[1])
    if data.kind == "densities" and not resolved.smooth:
        raise InputError(f"kernel: KSD needs a smooth radial kernel, got {resolved.describe()}")
    largest = LENGTHS[data.kind]
    if resolved.variable == "r2" and not 1.0 / largest < resolved.length < largest:
        raise InputError(
            f"kernel: expected a bandwidth between {1.0 / largest:g} and {largest:g}, got {resolved.length:g} "
            f"({rule}); rescale the data"
        )
    return resolved, rule


def check_design(data: Data, estimator: str, dependence: Dependence) -> None:
    """Refuse sizes and kinds of data that the estimator or the dependence does not fit."""
    if data.kind == "densities":
        _check_densities(data.reference, dependence)
        return
    lengths = {len(x) for x in data.samples.values()}
    if dependence == "shared" and len(lengths) > 1:
        raise InputError(f'dependence="shared": expected models of equal size, got {sorted(lengths)}')
    if dependence == "paired" and lengths != {len(data.reference)}:
        raise InputError(
            f'dependence="paired": expected every model to have {len(data.reference)} rows like the reference, '
            f"got {sorted(lengths)}"
        )
    lengths.add(len(data.reference))
    if estimator == "linear" and len(lengths) > 1:
        raise InputError(
            f'estimator="linear": expected samples of equal size (it pairs model and reference rows), '
            f'got {sorted(lengths)} rows; use estimator="complete" or equal sizes'
        )


def joint_estimate(data: Data, plan: Plan) -> JointEstimate:
    """D and V of every distinct model, in the order of `data.models`."""
    estimates = (_densities if data.kind == "densities" else _samples)(data, plan)
    covariance = estimates.psi.covariance()
    share = None
    if estimates.second_order is not None:
        variance = np.diag(covariance)
        share = np.divide(estimates.second_order, variance, out=np.zeros(len(variance)), where=variance > 0.0)
    sizes = (len(data.reference), *(len(x) for x in data.samples.values()))
    return JointEstimate(tuple(data.models), estimates.values, covariance, sizes, estimates.psi, share)


def check_rows(data: Data, estimator: str, *, selection: bool = False, share: str = "") -> None:
    """Refuse samples too small for the normal approximation."""
    fewest = (FEWEST_SELECTION_ROWS if selection else FEWEST_ROWS)[estimator]
    why = f"{share}{estimator} estimator"
    require_rows("reference", len(data.reference), fewest, why)
    for name, rows in data.samples.items():
        require_rows(f"model {name!r}", len(rows), fewest, why)


def split(data: Data, fraction: float, dependence: Dependence, seed: int) -> tuple[Data, Data]:
    """Disjoint random shares of every sample: one to select with, one to test with."""
    orders = row_orders(data, dependence, seed, "split")
    cut = {key: max(1, round(fraction * len(order))) for key, order in orders.items()}
    return (
        _take(data, {key: order[: cut[key]] for key, order in orders.items()}),
        _take(data, {key: order[cut[key] :] for key, order in orders.items()}),
    )


def row_orders(data: Data, dependence: Dependence, seed: int, purpose: str) -> dict[str | None, Rows]:
    """A random order of the rows of the reference (key None) and of every sample.

    All models draw theirs from one stream, so that neither the order of the models, nor their names, nor
    a copy more changes a number, and rows made from common random numbers stay together; samples that are
    independent may be shuffled alike. The reference joins in only where its rows are paired with them.
    """
    orders: dict[str | None, Rows] = {
        name: stream(seed, purpose, "models").permutation(len(rows)) for name, rows in data.samples.items()
    }
    own = stream(seed, purpose, "models" if dependence == "paired" else "reference")
    return {None: own.permutation(len(data.reference)), **orders}


def _take(data: Data, rows: Mapping[str | None, Rows]) -> Data:
    models: dict[str, Array | Density] = {
        name: model if isinstance(model, Density) else model[rows[name]] for name, model in data.models.items()
    }
    return replace(data, reference=data.reference[rows[None]], models=models)


def _samples(data: Data, plan: Plan) -> Estimates:
    if plan.estimator == "linear":
        return _linear_samples(data, plan)
    # Only distances are unmoved by a shift; a function of x·y takes the rows as they are.
    centre = _centre(data.reference) if plan.kernel.variable == "r2" else 0.0
    centred = [x - centre for x in data.samples.values()]
    return mmd.complete(data.reference - centre, centred, plan.kernel, plan.dependence, plan.runtime)


def _linear_samples(data: Data, plan: Plan) -> Estimates:
    orders = _orders(data, plan)
    reference, samples = data.reference, data.samples

    def values(a: Rows, b: Rows) -> Array:
        first, second = (
            (reference[orders[None][k]], [x[orders[name][k]] for name, x in samples.items()]) for k in (a, b)
        )
        return mmd.pair_values(plan.kernel, first, second)

    return designs.linear(len(reference), values, plan.runtime.progress)


def _densities(data: Data, plan: Plan) -> Estimates:
    reference, densities = data.reference, data.densities
    if plan.estimator == "linear":
        return _linear_densities(data, plan)
    scores = [scores_of(name, density, reference) for name, density in densities.items()]
    rng = stream(plan.seed, "second order")
    return ksd.complete(reference - _centre(reference), scores, plan.kernel, plan.runtime, rng)


def _check_densities(reference: Array, dependence: Dependence) -> None:
    if dependence != "independent":
        raise InputError(
            f'dependence={dependence!r}: describes samples of the models; densities have none, use "independent"'
        )
    largest, most = float(np.abs(reference).max()), LENGTHS["densities"]
    # From 2⁵² on every float64 is a whole number.
    if largest < 2.0**52 and np.array_equal(reference, np.round(reference)):
        raise InputError(
            "reference: expected continuous data for KSD, got whole numbers only; use samples of the models and MMD"
        )
    if largest > most:
        raise InputError(
            f"reference: expected numbers below {most:g} in size for KSD, got {largest:g}; rescale the data"
        )


def _linear_densities(data: Data, plan: Plan) -> Estimates:
    order = _orders(data, plan)[None]

    def side(rows: Rows) -> tuple[Array, list[Array]]:
        x = data.reference[order[rows]]
        return x, [scores_of(name, density, x) for name, density in data.densities.items()]

    def values(a: Rows, b: Rows) -> Array:
        return ksd.pair_values(plan.kernel, side(a), side(b))

    return designs.linear(len(order), values, plan.runtime.progress)


def _orders(data: Data, plan: Plan) -> dict[str | None, Rows]:
    if plan.shuffle:
        return row_orders(data, plan.dependence, plan.seed, "pairs")
    return {None: np.arange(len(data.reference)), **{name: np.arange(len(x)) for name, x in data.samples.items()}}


def _centre(reference: Array) -> Array:
    # The median of some rows: far-off data lose their offset, and an outlier cannot move it.
    step = max(1, len(reference) // BANDWIDTH_ROWS)
    return np.asarray(np.median(reference[::step], axis=0))


def _pooled_median(data: Data, seed: int) -> float:
    pool = [data.reference, *data.samples.values()]
    keys = ["reference", *("models" for _ in data.samples)]
    share = BANDWIDTH_ROWS / sum(len(rows) for rows in pool)
    drawn = [
        _subsample(rows, share * len(rows), stream(seed, "bandwidth", key))
        for rows, key in zip(pool, keys, strict=True)
    ]
    rows = np.concatenate(drawn)
    if (rows == rows[0]).all():
        # Nearly all rows are one atom: look at the distinct rows instead.
        rows = np.unique(np.concatenate(pool), axis=0)
        rows = _subsample(rows, BANDWIDTH_ROWS, stream(seed, "bandwidth", "distinct"))
    return median_distance(rows - _centre(rows))


def _subsample(rows: Array, count: float, rng: np.random.Generator) -> Array:
    wanted = max(1, round(count))
    if wanted >= len(rows):
        return rows
    return rows[rng.choice(len(rows), wanted, replace=False)]
