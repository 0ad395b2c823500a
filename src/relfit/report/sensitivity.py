"""Would another bandwidth give another answer? The same test at several multiples of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relfit.compute.backend import Backend, Job, NumpyBackend, Points, Products
from relfit.compute.reduce import Runtime
from relfit.data.load import Data
from relfit.data.models import Density
from relfit.data.overlap import fingerprint
from relfit.estimators import joint_estimate
from relfit.estimators.base import EstimateSettings
from relfit.estimators.designs import Complete
from relfit.estimators.groups import split
from relfit.kernels.base import Kernel, ScaledKernel, Sum, check_positive
from relfit.kernels.composite import Tilted
from relfit.report.recall import Recalled
from relfit.report.witness import squared_distances
from relfit.report.words import measure_of
from relfit.results.comparison import Comparison
from relfit.stats.decision import Decision, difference_variance
from relfit.stats.joint import JointEstimate
from relfit.stats.tests import TESTS
from relfit.stats.tests.base import Test
from relfit.stats.tests.relmulti import RelMulti
from relfit.util.arrays import Array

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
# Within these multiples a verdict should stay what it is.
NEAR = (0.5, 2.0)
# Squared distances are kept between bandwidths from so many columns on, where they cost more than kernel values do,
# and up to so many of them: 256 MB.
SHARED_COLUMNS, _MOST_DISTANCES = 128, 2**25


@dataclass(frozen=True)
class Sensitivity:
    """The comparison repeated with the kernel's length multiplied by each factor.

    Attributes:
        factors, lengths: the multiples, and the lengths they give.
        results: the estimate and the verdicts of the distinct models for each.
        copies: the name of every copy, and the model that it is a copy of.
        rows: the most rows of a sample that were used.
        complete: whether these are all rows.
    """

    factors: tuple[float, ...]
    lengths: tuple[float, ...]
    results: tuple[tuple[JointEstimate, Decision], ...]
    copies: Mapping[str, str]
    rows: int
    complete: bool

    def kinds(self, name: str) -> tuple[str, ...]:
        """For every factor "best", "worse" or "open" for this model."""
        i, kinds = self._index(name), []
        for joint, decision in self.results:
            best = joint.names[decision.best] == name
            kinds.append("best" if best else "worse" if decision.worse[i] else "open")
        return tuple(kinds)

    def ratios(self, name: str) -> tuple[float, ...]:
        """For every factor the model's difference to the best over its standard error; 0 where it has none."""
        i, ratios = self._index(name), []
        for joint, decision in self.results:
            error = difference_variance(joint.covariance, i, decision.best) ** 0.5
            difference = float(joint.values[i] - joint.values[decision.best])
            ratios.append(difference / error if error > 0.0 else 0.0)
        return tuple(ratios)

    def changed(self) -> list[str]:
        """The models whose verdict is not the same from half the length to twice it."""
        near = [k for k, factor in enumerate(self.factors) if NEAR[0] <= factor <= NEAR[1]]
        names = [*self.results[0][0].names, *self.copies]
        return [name for name in names if len({self.kinds(name)[k] for k in near}) > 1]

    def _index(self, name: str) -> int:
        return self.results[0][0].names.index(self.copies.get(name, name))


def bandwidth_sensitivity(
    comparison: Comparison, recalled: Recalled, factors: Sequence[float] = FACTORS
) -> Sensitivity | None:
    """The same test on the recalled rows for several multiples of the kernel's length; None if there is an `obstacle`.

    It shows how far the answer depends on the bandwidth. It is no way to choose one: a bandwidth chosen because of what
    these data say about the models makes the p-values wrong.
    """
    if obstacle(comparison, recalled) is not None:
        return None
    kernels = [kernel for factor in factors if (kernel := scaled(recalled.kernel, factor)) is not None]
    data = replace(
        recalled.data,
        models={name: _remembering(m) if isinstance(m, Density) else m for name, m in recalled.data.models.items()},
        target=None if recalled.data.target is None else _remembering(recalled.data.target),
    )
    runtime = Runtime(_backend(data, kernels))
    results = tuple(verdicts_at(comparison, data, kernel, runtime) for kernel in kernels)
    lengths = tuple(kernel.length for kernel in kernels)
    copies = recalled.data.copies
    return Sensitivity(tuple(factors), lengths, results, copies, recalled.most_rows, recalled.complete)


def obstacle(comparison: Comparison, recalled: Recalled) -> str | None:
    """Why other bandwidths cannot be tried; None if they can."""
    if scaled(recalled.kernel, 1.0) is None:
        return f"{recalled.kernel.describe()} has no bandwidth"
    if not measure_of(comparison).pairs:
        return "the locations were chosen for this bandwidth"
    if comparison.groups is not None:
        return "the rows are in groups, and a result does not record which rows belong together"
    if comparison.select_fraction is not None:
        rows = min(len(numbers) for numbers in recalled.rows.values() if len(numbers))
        selecting = round(comparison.select_fraction * rows)
        if selecting < Complete.fewest_selection_rows or rows - selecting < Complete.fewest_rows:
            return f"the report uses {rows} rows of each sample, too few to select with some and test with others"
    return None


def verdicts_at(comparison: Comparison, data: Data, kernel: Kernel, runtime: Runtime) -> tuple[JointEstimate, Decision]:
    """The comparison's test on loaded data with another kernel: what `compare` does once it has loaded them.

    Every setting is kept but the estimator: those for very many rows would have too few here.
    """
    test, seed = used_test(comparison), comparison.seed or 0
    dependence: Any = comparison.dependence or "independent"
    estimate = EstimateSettings(kernel, Complete(comparison.variance or "auto"), dependence, seed, runtime)
    testing, selection = data, None
    if test.split is not None:
        selecting, testing = split(data, test.split, dependence, seed)
        selection = joint_estimate(selecting, estimate)
    joint = joint_estimate(testing, estimate)
    options: dict[str, Any] = {"alpha": comparison.alpha, "correction": comparison.correction, "seed": seed}
    return joint, test.decide(joint, margin=comparison.margin, selection=selection, **options)


def used_test(comparison: Comparison) -> Test:
    """The test of a comparison, with its options."""
    if comparison.select_fraction is not None:
        return RelMulti(comparison.select_fraction)
    return TESTS[comparison.test]()


def scaled(kernel: Kernel, factor: float) -> Kernel | None:
    """The kernel with every length multiplied by the factor; None where it has no length.

    >>> from relfit.kernels.standard import Gaussian, IMQ, Polynomial
    >>> scaled(Gaussian(2.0), 0.5), scaled(Gaussian(1.0) + IMQ(), 3.0), scaled(Polynomial(), 2.0)
    (Gaussian(bandwidth=1.0), Sum(terms=(Gaussian(bandwidth=3.0), IMQ(scale=3.0, exponent=-0.5))), None)
    """
    check_positive("factors", factor)
    if isinstance(kernel, Sum):
        terms = [scaled(term, factor) for term in kernel.terms]
        return Sum(tuple(term for term in terms if term is not None)) if None not in terms else None
    if isinstance(kernel, Tilted):
        inner = scaled(kernel.kernel, factor)
        return None if inner is None else replace(kernel, kernel=inner)
    if not isinstance(kernel, ScaledKernel):
        return None
    changes: dict[str, Any] = {kernel.length_field: factor * float(getattr(kernel, kernel.length_field))}
    return replace(kernel, **changes)


def _remembering(density: Density) -> Density:
    """The density, asked only once for its scores at the same rows."""
    known: dict[bytes, Array] = {}

    def score(x: Array) -> Array:
        key = x.tobytes()
        if key not in known:
            known[key] = density.scores(x)
        return known[key]

    return Density(score=score, dim=density.dim)


@dataclass(frozen=True)
class SharedDistances(NumpyBackend):
    """Computes the squared distances between the rows of a block once, for kernels that differ in length only.

    For φ alone, as in MMD. `shortest` is the shortest of the lengths.
    """

    shortest: float = 1.0
    blocks: dict[tuple[bytes, bytes], Array] = field(default_factory=dict)

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """The rows, and in the place of the product's factors a key for each, by which its distances are found."""
        keys = fingerprint(rows).keys.view(np.float64)[:, None]
        return Points(rows, keys, keys.T, by_differences=False)

    def block_sums(self, block: Job) -> Products:
        """The products of the block with φ of its distances."""
        key = block.x.left.tobytes(), block.across.left.tobytes()
        if key not in self.blocks:
            self.blocks[key] = squared_distances(block.x.rows, block.across.rows, self.shortest)
        (phi,) = block.kernel.weights(self.blocks[key], ("phi",))
        if block.without_diagonal:
            np.fill_diagonal(phi, 0.0)
        rows = {w: (phi @ side).T for w, side in block.right.items()}
        columns = {w: (phi.T @ side).T for w, side in block.left.items()}
        return Products(rows, columns, float(np.vdot(phi, phi)) if block.squares else 0.0)


def _backend(data: Data, kernels: Sequence[Kernel]) -> Backend:
    n, d = data.reference.shape
    distances = n * n + sum(len(rows) * (len(rows) + n) for rows in data.samples.values())
    if data.kind != "samples" or d < SHARED_COLUMNS or distances > _MOST_DISTANCES:
        return NumpyBackend()
    return SharedDistances(shortest=min(kernel.length for kernel in kernels))
