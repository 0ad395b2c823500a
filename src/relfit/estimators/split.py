"""Random orders and disjoint parts of the rows; a kernel chosen on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relfit.compute.rows import some_rows
from relfit.data.load import Data
from relfit.data.models import Density
from relfit.estimators.base import Dependence, EstimateSettings
from relfit.kernels.base import Kernel
from relfit.stats.decision import differences
from relfit.stats.joint import JointEstimate
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError
from relfit.util.random import stream

# More held-out rows than this choose no better, and would cost as much as the test.
MOST_HELD = 2000


def split(
    data: Data, fraction: float, dependence: Dependence, seed: int, purpose: str = "split", most: int | None = None
) -> tuple[Data, Data]:
    """Disjoint random parts of every sample: a fraction of at most `most` rows, and the rest."""
    orders = row_orders(data, dependence, seed, purpose)
    cut = {key: min(max(1, round(fraction * len(order))), most or len(order)) for key, order in orders.items()}
    return (
        take(data, {key: order[: cut[key]] for key, order in orders.items()}),
        take(data, {key: order[cut[key] :] for key, order in orders.items()}),
    )


def row_orders(
    data: Data, dependence: Dependence, seed: int, purpose: str, *, in_order: bool = False
) -> dict[str | None, Rows]:
    """A random order of the rows of the reference (key None) and of every sample, or the given one.

    All models draw theirs from one stream, so that neither the order of the models, nor their names, nor another copy
    changes a number, and rows made from common random numbers stay together; independent samples may be shuffled alike.
    The reference joins in only where its rows are paired with them.
    """
    lengths = {name: len(rows) for name, rows in data.samples.items()}
    if in_order:
        return {None: np.arange(len(data.reference)), **{name: np.arange(n) for name, n in lengths.items()}}
    drawn = {n: stream(seed, purpose, "models").permutation(n) for n in set(lengths.values())}
    own = stream(seed, purpose, "models" if dependence == "paired" else "reference")
    return {None: own.permutation(len(data.reference)), **{name: drawn[n] for name, n in lengths.items()}}


def take(data: Data, rows: Mapping[str | None, Rows]) -> Data:
    """The data with these rows only, of the reference (key None) and of every sample."""
    models: dict[str, Array | Density] = {
        name: model if isinstance(model, Density) else some_rows(model, rows[name])
        for name, model in data.models.items()
    }
    return replace(data, reference=some_rows(data.reference, rows[None]), models=models)


@dataclass(frozen=True)
class KernelChoice:
    """The chosen kernel, and the separation that each candidate reached on the held-out rows."""

    kernel: Kernel
    kernels: tuple[Kernel, ...]
    separations: tuple[float, ...]

    def note(self, rows: str) -> str:
        """What the reader should know; `rows` says on which rows the kernel was chosen."""
        return (
            f"kernel chosen among {len(self.kernels)} candidates for the largest separation of the models (root mean "
            f"square of difference over standard error: {max(self.separations):.2f}, against "
            f"{min(self.separations):.2f} for the worst candidate) on {rows}; the kernel also decides which model "
            "counts as best"
        )


def choose_kernel(
    data: Data,
    settings: EstimateSettings,
    kernels: Sequence[Kernel],
    estimate: Callable[[Data, EstimateSettings], JointEstimate],
) -> KernelChoice:
    """The kernel that tells the models apart best, whichever of them it favours; estimated from all pairs of rows."""
    if len(data.models) < 2:
        raise InputError('kernel="select": expected at least 2 different models to tell apart, got 1; name a kernel')
    separations = tuple(separation(estimate(data, replace(settings, kernel=kernel))) for kernel in kernels)
    return KernelChoice(kernels[int(np.argmax(separations))], tuple(kernels), separations)


def separation(joint: JointEstimate) -> float:
    """``√(mean_{i<j} (D_i − D_j)²/s_ij²)`` over the pairs of models whose difference varies; 0 if none does.

    The square does not know which of two models is the better one: the choice is symmetric in the models.

    >>> separation(JointEstimate(("a", "b"), [0.1, 0.5], [[0.01, 0.0], [0.0, 0.03]]))
    2.0
    """
    pairs = differences(joint)
    ratios = pairs.ratio[np.triu(pairs.varies, 1)]
    return float(np.sqrt(np.mean(np.square(ratios)))) if len(ratios) else 0.0
