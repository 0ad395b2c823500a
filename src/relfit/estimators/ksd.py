"""Squared kernel Stein discrepancy: of several densities to one reference, all from one pass
over the kernel, and of samples or Markov chains to a target density. `pairkernel` has the
Stein kernel.

The scores of related models span few columns: those of Gaussians are combinations of 1 and
x, those of networks that differ in one unit share the others. A kernel matrix times their
independent columns gives the rest by a small product.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from scipy.linalg import block_diag, qr, solve_triangular

from relfit.compute.backend import Backend, Job, Points, Products
from relfit.compute.memory import parts
from relfit.compute.reduce import Patch, Runtime, Sums, kernel_key, matrix_sums
from relfit.data.load import Data
from relfit.data.models import Density, scores_of, stored_scores
from relfit.estimators import base
from relfit.estimators.base import (
    Dependence,
    Estimates,
    EstimateSettings,
    Estimator,
    PairSource,
    SecondOrderMoments,
    second_order,
    split_half_discrepancy,
)
from relfit.estimators.groups import between_group_sums, row_orders, summed_by_group
from relfit.estimators.kernel import centre_of, shifted
from relfit.estimators.pairkernel import BandValues, PairKernel, RowSums, SteinTerms
from relfit.kernels.base import Kernel, Weight
from relfit.stats.joint import Psi, centred
from relfit.util.arrays import Array, Rows, host, library
from relfit.util.errors import InputError

# Beyond this size, fourth powers of the numbers leave float64.
LARGEST = 1e50
# Columns count as dependent only if every row is reproduced to within this fraction of the
# column's size.
TOLERANCE = 1e-13
# With fewer batches of a chain, their means are too few for a normal approximation.
FEWEST_BATCHES = 20
# The search for dependent columns pays off only if at most this fraction of the columns
# remains.
WORTHWHILE = 0.8


@dataclass(frozen=True)
class Columns:
    """``matrix ≈ basis @ coefficients``, to rounding; coefficients None means the matrix
    itself.
    """

    basis: Array
    coefficients: Array | None = None

    def expand(self, product: Array) -> Array:
        """K @ matrix, given K @ basis."""
        return product if self.coefficients is None else product @ self.coefficients


def independent_columns(matrix: Array) -> Columns:
    """Some columns of the matrix (n, c) that the others are combinations of; all of them if
    that saves little.

    A matrix on a device is left as it is: there, products cost less than the search.
    """
    n, c = matrix.shape
    whole = Columns(matrix)
    if c > n // 8 or not isinstance(matrix, np.ndarray):
        return whole
    some = matrix[:: max(1, n // (2 * c + 32))]
    scale = _sizes(some)
    triangle, order = qr(some / scale, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(triangle))
    rank = int((diagonal > TOLERANCE * diagonal[0]).sum())
    if not 0 < rank <= WORTHWHILE * c:
        return whole
    coefficients = np.zeros((rank, c))
    coefficients[:, order[:rank]] = np.eye(rank)
    coefficients[:, order[rank:]] = solve_triangular(
        triangle[:rank, :rank], triangle[:rank, rank:]
    )
    basis = matrix[:, order[:rank]]
    coefficients *= scale / scale[order[:rank], None]
    # The rows examined may agree by accident: keep the short form only if every row agrees.
    if (
        np.abs(basis @ coefficients - matrix).max(axis=0) @ (1.0 / _sizes(matrix))
        > 100.0 * TOLERANCE * c
    ):
        return whole
    return Columns(np.ascontiguousarray(basis), coefficients)


def _sizes(matrix: Array) -> Array:
    """The largest entry of each column, 1 for a column of zeros."""
    largest = np.abs(matrix).max(axis=0)
    return np.where(largest == 0.0, 1.0, largest)


@dataclass(frozen=True)
class SteinSource(PairSource):
    """Pairs of rows whose terms are `kept` for other kernels."""

    stein: PairKernel = field(kw_only=True)
    kept: dict[bytes, SteinTerms] | None = None

    def chunk_values(self, a: Rows, b: Rows) -> Array:
        if self.kept is None:
            return super().chunk_values(a, b)
        key = a.tobytes() + b.tobytes()
        if key not in self.kept:
            self.kept[key] = self.stein.stein_terms(self.fetch(a), self.fetch(b))
        return np.stack(self.stein.stein_of(self.kept[key]), axis=1)


def complete(
    x: Any,
    scores: Sequence[Any],
    kernel: Kernel,
    runtime: Runtime,
    seed: int,
    kept: dict[bytes, SteinTerms] | None = None,
) -> Estimates:
    """KSD² of each model, scores (n, d) at the reference rows x (n, d), with ψ rows.

    ``g_i(x_a) = Σ_{b≠a} u_i(x_a,x_b)/(n−1)``, D_i = mean g_i and ψ = 2(g − ḡ)·(n−1)/(n−2):
    the factor makes ψᵀψ/(n(n−1)) the jackknife covariance, which the plain projection falls
    short of by ((n−2)/(n−1))². The second-order part comes from random pairs of rows. The
    yardstick is that of the model with the smallest KSD²: each has a Stein kernel of its
    own, and this one is closest to that of the data. Terms of these pairs are `kept` for
    other kernels.
    """
    n = len(x)
    centre = centre_of(x)
    kernel = kernel.moved(centre)
    g = row_sums(x, scores, kernel, runtime, centre=centre) / (n - 1)
    values = g.mean(axis=0)
    psi = Psi(host((g - values) * (2.0 * (n - 1) / (n - 2))))
    values = host(values)
    best = int(np.argmin(values))
    diagonal = np.zeros(len(values))
    diagonal[best] = _diagonal_sum(kernel, x, scores[best], centre)
    return with_second_order(x, scores, kernel, centre, seed, values, psi, diagonal, kept)


def with_second_order(
    x: Any,
    scores: Sequence[Any],
    kernel: Kernel,
    centre: Array | float,
    seed: int,
    values: Array,
    psi: Psi,
    diagonal: Array,
    kept: dict[bytes, SteinTerms] | None = None,
) -> Estimates:
    """KSD² `values` and their ψ rows with the second-order part, from random pairs of rows,
    and the yardstick.

    `diagonal` (l,) holds Σ_a u_i(x_a, x_a), of which only that of the best model is used.
    """
    n = len(x)
    # From a device the rows and all of their scores are fetched together.
    joined = library(x).hstack([shifted(x, centre), *scores]) if hasattr(x, "is_cuda") else None

    def fetch(rows: Rows) -> list[Array]:
        if joined is not None:
            return np.hsplit(host(joined[rows]), 1 + len(scores))
        return [x[rows] - centre, *(s[rows] for s in scores)]

    width = x.shape[1] * (1 + len(scores))
    stein = PairKernel(kernel)
    source = SteinSource(
        n,
        len(scores),
        fetch,
        stein.stein_pairs,
        stein.stein_bands,
        width,
        stein=stein,
        kept=kept,
    )
    best = int(np.argmin(values))
    yardstick = split_half_discrepancy(float(diagonal[best]), n, float(values[best]), n)
    assert psi.reference is not None  # noqa: S101  (its rows are the reference's)
    plain, quadratic = second_order(source, seed, psi.reference, values)
    return Estimates(values, psi, plain, yardstick=yardstick, quadratic=quadratic)


def _diagonal_sum(kernel: Kernel, x: Any, scores: Any, centre: Array | float) -> float:
    """Σ_a u(x_a, x_a) of one model, from rows without the `centre` subtracted and its scores
    at them.
    """
    rows = ((host(shifted(x[part], centre)), host(scores[part])) for part in parts(x.shape))
    return sum(float(PairKernel(kernel).stein_pairs(both, both).sum()) for both in rows)


def row_sums(
    x: Any,
    scores: Sequence[Any],
    kernel: Kernel,
    runtime: Runtime,
    *,
    centre: Array | float = 0.0,
) -> Any:
    """Σ_{b≠a} u_i(x_a, x_b) for every row and model (n, l), as an array of the backend if it
    is a single patch.

    The kernel is that of rows with the `centre` subtracted.
    """
    return matrix_sums(SteinSums(kernel, centre, len(scores)), (x, *scores), [(0, 0)], runtime)[
        0
    ].rows


@dataclass(frozen=True)
class _Side:
    """Prepared rows: `columns` to be multiplied with the kernel matrix; `finish` makes row
    sums of the products.
    """

    points: Points
    columns: Mapping[Weight, Columns]
    finish: Callable[[Mapping[Weight, Array]], Array]


@dataclass(frozen=True)
class SteinSums:
    """Row sums of every u_i; the sources are the rows and then each model's scores at them.

    For sums between two sets of rows the sources are both, one after the other. The sums are
    then for the rows of one only, over those of the other, which begins at the source
    `columns`; there each model i may have `weights` (·, l).
    """

    kernel: Kernel
    centre: Array | float
    models: int
    passes: int = 1
    columns: int | None = None
    weights: Array | None = None

    def key(self) -> str:
        between = "" if self.columns is None else f" {self.columns}"
        if self.weights is not None:
            between += f" {hashlib.sha256(self.weights.tobytes()).hexdigest()}"
        return f"Stein sums {kernel_key(self.kernel, self.centre)}{between}"

    def needs(self, patch: Patch) -> tuple[int, ...]:
        return tuple(
            source
            for first in {patch.x: 0, patch.y: 0}
            for source in range(first, first + 1 + self.models)
        )

    def width(self, sources: Sequence[Any]) -> int:
        return len(sources) * (int(sources[0].shape[1]) + 1)

    def prepare(
        self, sources: Sequence[Any], which: int, rows: slice, backend: Backend
    ) -> _Side:
        stein = PairKernel(self.kernel)
        tilt = self.kernel.tilt
        x = shifted(sources[which][rows], self.centre)
        scores = stein.tilted_scores(
            x, *(s[rows] for s in sources[which + 1 : which + 1 + self.models])
        )
        weight = np.ones((1, 1)) if tilt is None else tilt.weights(x)[:, None]
        x, weight, *scores = (backend.array(part) for part in (x, weight, *scores))
        if self.weights is None:
            right, finish = stein.stein_columns(x, scores)
        else:
            # Each model weights the rows in its own way, so that they have no columns in
            # common.
            right, finish = _side_by_side([stein.stein_columns(x, [s]) for s in scores])
        if self.columns == which and self.weights is not None:
            own = library(x).repeat_interleave if hasattr(x, "is_cuda") else np.repeat
            each = backend.array(self.weights[rows])
            right = {
                w: matrix * own(each, matrix.shape[1] // len(scores), 1)
                for w, matrix in right.items()
            }
        if self.columns not in (None, which):
            right = {}  # only the sums of its rows are needed
        # Several kernels have matrices in common.
        matrices = {id(matrix): matrix for matrix in right.values()}
        found = {key: independent_columns(matrix * weight) for key, matrix in matrices.items()}
        columns = {w: found[id(matrix)] for w, matrix in right.items()}
        return _Side(
            backend.points(self.kernel.untilted, x),
            columns,
            lambda products: finish(products) * weight,
        )

    def combine(self, x: _Side, y: _Side, patch: Patch) -> list[Job]:
        right = {w: part.basis for w, part in y.columns.items()}
        if patch.symmetric:
            return [Job(self.kernel.untilted, x.points, None, right)]
        left = {w: part.basis for w, part in x.columns.items()} if self.columns is None else {}
        return [Job(self.kernel.untilted, x.points, y.points, right, left)]

    def finish(self, x: _Side, y: _Side, products: Sequence[Products]) -> Sums:
        """Σ_b u_i(x_a, x_b) over the rows b of the other side."""
        (product,) = products
        rows = x.finish({w: part.expand(product.rows[w]) for w, part in y.columns.items()})
        if not product.columns:
            return Sums(rows)
        return Sums(
            rows,
            y.finish({w: part.expand(product.columns[w]) for w, part in x.columns.items()}),
        )


def _side_by_side(
    each: Sequence[tuple[dict[Weight, Array], RowSums]],
) -> tuple[dict[Weight, Array], RowSums]:
    """The columns of one model after another, and their sums (n, l)."""

    def finish(products: Mapping[Weight, Array]) -> Array:
        arrays = library(next(iter(products.values())))
        split = {w: arrays.hsplit(product, len(each)) for w, product in products.items()}
        sums = [
            finish_one({w: part[i] for w, part in split.items()})
            for i, (_, finish_one) in enumerate(each)
        ]
        return cast(Array, arrays.hstack(sums))

    return {
        w: library(matrix).hstack([right[w] for right, _ in each])
        for w, matrix in each[0][0].items()
    }, finish


def grouped_ksd(
    x: Array, scores: Sequence[Array], codes: Rows, count: int, kernel: Kernel, runtime: Runtime
) -> Estimates:
    """KSD² of each model, scores (n, d) at rows (n, d) in `count` groups, with ψ (count, l).

    ψ has the jackknife factor (G−1)/(G−2) of `complete`, with groups in place of rows.
    """
    centre = centre_of(x)
    x = x - centre
    kernel = kernel.moved(centre)

    def values(a: Rows, b: Rows) -> Array:
        return PairKernel(kernel).stein_pairs(
            [part[a] for part in (x, *scores)], [part[b] for part in (x, *scores)]
        )

    sums = host(row_sums(x, scores, kernel, runtime))
    apart = between_group_sums(sums, values, codes)
    n = len(x)
    best = int(np.argmin(apart.mean))
    near = float(
        (sums - apart.sums)[:, best].sum() + _diagonal_sum(kernel, x, scores[best], 0.0)
    )
    yardstick = split_half_discrepancy(
        near, n**2 - float(apart.counts.sum()), float(apart.mean[best]), n
    )
    psi = Psi(
        summed_by_group(2.0 * apart.projection(), codes, count) * ((count - 1) / (count - 2))
    )
    return Estimates(apart.mean, psi, yardstick=yardstick)


class Densities(base.Kind):
    """Densities compared with a reference sample, by KSD²."""

    words = "densities as models"
    discrepancies = ("ksd", "fssd")
    smooth = True
    largest = LARGEST

    def check(
        self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool
    ) -> None:
        if dependence != "independent":
            raise InputError(
                f"dependence={dependence!r}: describes samples of the models; densities have "
                f'none, use "independent"'
            )
        check_continuous("reference", data.reference)

    def sources(
        self, data: Data, settings: EstimateSettings, *, in_order: bool = False
    ) -> list[PairSource]:
        order = row_orders(
            data, settings.dependence, settings.seed, "pairs", in_order=in_order
        )[None]
        centre = centre_of(data.reference)
        kernel = PairKernel(settings.kernel.moved(centre))

        def fetch(rows: Rows) -> list[Array]:
            x = data.reference[order[rows]]
            return [
                x - centre,
                *(scores_of(name, density, x) for name, density in data.densities.items()),
            ]

        width = self.width(data, settings.dependence)
        return [
            PairSource(
                len(order),
                len(data.densities),
                fetch,
                kernel.stein_pairs,
                kernel.stein_bands,
                width,
            )
        ]

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        x = data.reference
        scores = [
            all_scores(name, density, x, settings) for name, density in data.densities.items()
        ]
        return complete(
            x, scores, settings.kernel, settings.runtime, settings.seed, settings.kept_of(None)
        )

    def grouped(self, data: Data, settings: EstimateSettings, groups: base.Groups) -> Estimates:
        x = data.reference
        codes = groups.codes[None]
        count = groups.counts[None]
        scores = [scores_of(name, density, x) for name, density in data.densities.items()]
        return grouped_ksd(x, scores, codes, count, settings.kernel, settings.runtime)

    def right_hand_sides(self, data: Data) -> int:
        return (1 + int(data.reference.shape[1])) * (1 + len(data.models))


def all_scores(name: str, density: Density, x: Any, settings: EstimateSettings) -> Any:
    """The scores at all rows: in memory, or in a file where memory is bounded."""
    if settings.folder is not None:
        return stored_scores(name, density, x, settings.folder)
    return scores_of(name, density, x)


def check_continuous(argument: str, rows: Array) -> None:
    """Refuse data that are not continuous, or whose fourth powers do not fit into float64."""
    largest = 0.0
    whole = True
    for part in parts(rows.shape):
        chunk = rows[part]
        largest = max(largest, -float(chunk.min()), float(chunk.max()))
        whole = whole and np.array_equal(chunk, np.round(chunk))
    # From 2⁵² on every float64 is a whole number.
    if largest < 2.0**52 and whole:
        raise InputError(
            f"{argument}: expected continuous data for KSD, got whole numbers only; use "
            f"samples of the models and MMD"
        )
    if largest > LARGEST:
        raise InputError(
            f"{argument}: expected numbers below {LARGEST:g} in size for KSD, got "
            f"{largest:g}; rescale the data"
        )


class Target(base.Kind):
    """Samples compared with a target density, by KSD²: which sampler or approximation is
    closest to it?
    """

    words = "a density as the reference"
    discrepancies = ("ksd",)
    smooth = True
    largest = LARGEST

    def check(
        self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool
    ) -> None:
        if dependence == "paired":
            raise InputError(
                'dependence="paired": pairs models with reference rows, but the '
                "reference is a density"
            )
        if dependence == "chain" and not estimator.every_pair:
            raise InputError(
                f'dependence="chain": expected estimator="complete", got {estimator.name!r}'
            )
        for name, x in data.samples.items():
            check_continuous(f"model {name!r}", x)
        self.check_shared({len(x) for x in data.samples.values()}, dependence, grouped=grouped)

    def sources(
        self, data: Data, settings: EstimateSettings, *, in_order: bool = False
    ) -> list[PairSource]:
        orders = row_orders(
            data, settings.dependence, settings.seed, "pairs", in_order=in_order
        )

        def source(samples: Mapping[str, Array]) -> PairSource:
            """Samples of one size whose rows are taken in one order, or a single sample."""
            centres = {name: centre_of(x) for name, x in samples.items()}
            kernels = [PairKernel(settings.kernel.moved(centre)) for centre in centres.values()]
            # Each model has two arrays: its rows and the target's scores at them.
            both = [slice(2 * i, 2 * i + 2) for i in range(len(samples))]

            def fetch(rows: Rows) -> list[Array]:
                taken = {name: x[orders[name][rows]] for name, x in samples.items()}
                pairs = [
                    (x - centres[name], target_scores(name, x, data, settings))
                    for name, x in taken.items()
                ]
                return [array for pair in pairs for array in pair]

            def values(first: Sequence[Array], second: Sequence[Array]) -> Array:
                each = [
                    kernel.stein_pairs(first[k], second[k])
                    for kernel, k in zip(kernels, both, strict=True)
                ]
                return np.hstack(each)

            def band_values(window: Sequence[Array]) -> BandValues:
                each = [
                    kernel.stein_bands(window[k])
                    for kernel, k in zip(kernels, both, strict=True)
                ]
                return lambda part: np.concatenate(
                    [values_of_model(part) for values_of_model in each]
                )

            count, d = next(iter(samples.values())).shape
            return PairSource(
                count, len(samples), fetch, values, band_values, 2 * d * len(samples)
            )

        if settings.dependence == "shared":
            return [source(data.samples)]
        return [source({name: x}) for name, x in data.samples.items()]

    def joined(self, each: Sequence[Estimates], *, shared: bool) -> Estimates:
        return side_by_side(each, shared=shared)

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        if settings.dependence == "chain":
            return _chains(data, settings)
        # The seed gives the same pairs for all models of a size: rows from common random
        # numbers stay together.
        each = [
            complete(
                x,
                [target_scores(name, x, data, settings)],
                settings.kernel,
                settings.runtime,
                settings.seed,
                settings.kept_of(name),
            )
            for name, x in data.samples.items()
        ]
        shared = settings.dependence == "shared"
        estimates = side_by_side(each, shared=shared)
        return self.with_second_order(data, settings, estimates) if shared else estimates

    def with_second_order(
        self, data: Data, settings: EstimateSettings, estimates: Estimates
    ) -> Estimates:
        """The estimates with the second-order part of samples from common random numbers."""
        (source,) = self.sources(data, settings, in_order=True)
        rows = np.stack(estimates.psi.models, axis=1)
        _, quadratic = second_order(source, settings.seed, rows, estimates.values)
        return replace(estimates, quadratic=quadratic)

    def grouped(self, data: Data, settings: EstimateSettings, groups: base.Groups) -> Estimates:
        each = []
        for name, x in data.samples.items():
            scores = target_scores(name, x, data, settings)
            codes = groups.codes[name]
            count = groups.counts[name]
            each.append(
                grouped_ksd(x, [scores], codes, count, settings.kernel, settings.runtime)
            )
        return side_by_side(each, shared=settings.dependence == "shared")

    def models_together(self, data: Data, dependence: Dependence) -> int:
        return len(data.models) if dependence == "shared" else 1

    def width(self, data: Data, dependence: Dependence) -> int:
        return 2 * int(data.reference.shape[1]) * self.models_together(data, dependence)

    def right_hand_sides(self, data: Data) -> int:
        return 2 * (1 + int(data.reference.shape[1]))


def side_by_side(each: Sequence[Estimates], *, shared: bool) -> Estimates:
    """Estimates of different models as one; only the ψ rows can express what the models have
    in common.

    There are no data to halve, so there is no yardstick.
    """
    rows = tuple(
        column for e in each if e.psi.reference is not None for column in e.psi.reference.T
    )
    second = [e.second_order for e in each if e.second_order is not None]
    covariances = [e.covariance for e in each if e.covariance is not None]
    parts = [e.quadratic for e in each if e.quadratic is not None]
    together = None
    if parts:
        components = float(np.mean([part.components**-0.5 for part in parts])) ** -2.0
        trace = np.concatenate([part.trace for part in parts])
        together = SecondOrderMoments(
            block_diag(*(part.covariance for part in parts)), trace, components
        )
    psi = Psi(None, rows, shared=shared)
    covariance = block_diag(*covariances) if covariances else None
    if shared and covariance is not None and len(covariances) > 1:
        # What the models have in common is that of the ψ rows; the rest of each variance is the
        # model's own.
        plain = psi.covariance()
        variances = np.diag(covariance)
        limits = np.minimum(np.diag(plain), variances)
        scale = np.sqrt(
            np.divide(
                limits, np.diag(plain), out=np.zeros(len(each)), where=np.diag(plain) > 0.0
            )
        )
        covariance = np.outer(scale, scale) * plain + np.diag(variances - limits)
    values = np.concatenate([e.values for e in each])
    second_order = block_diag(*second) if second else None
    return Estimates(values, psi, second_order, each[0].notes, covariance, quadratic=together)


def _chains(data: Data, settings: EstimateSettings) -> Estimates:
    values = []
    rows = []
    notes = []
    for name, x in data.samples.items():
        chain = chain_ksd(
            x, target_scores(name, x, data, settings), settings.kernel, settings.runtime
        )
        batches = len(chain.batch_psi)
        few = (
            "; too few for a reliable standard error, run the chain longer"
            if batches < FEWEST_BATCHES
            else ""
        )
        values.append(chain.value)
        rows.append(chain.batch_psi)
        notes.append(
            f"chain {name!r}: autocorrelation time {chain.autocorrelation_time:.3g}, "
            f"{batches} batches of "
            f"{chain.batch_length} draws{few}"
        )
    return Estimates(np.array(values), Psi(None, tuple(rows)), None, tuple(notes))


def target_scores(name: str, x: Array, data: Data, settings: EstimateSettings) -> Any:
    """The target's scores at the rows of a sample."""
    assert data.target is not None  # noqa: S101  (the kind of data was checked)
    return all_scores(f"target at model {name!r}", data.target, x, settings)


@dataclass(frozen=True)
class ChainEstimate:
    """KSD² of one chain, its ψ averaged over batches, and how the batches were chosen."""

    value: float
    batch_psi: Array
    batch_length: int
    autocorrelation_time: float


def chain_ksd(x: Array, scores: Array, kernel: Kernel, runtime: Runtime) -> ChainEstimate:
    """KSD² from the pairs of draws (m, d) at least one batch length apart, with ψ as batch
    means.

    Near pairs depend on each other and would bias D; they are left out. The variance of the
    mean of a correlated series is that of its batch means, ``V = Σ_b ψ̄_b²/(B(B−1))`` over B
    batches of length L.
    """
    m = len(x)
    centre = centre_of(x)
    x = x - centre
    kernel = kernel.moved(centre)
    sums = host(row_sums(x, [scores], kernel, runtime))[:, 0]
    tau = autocorrelation_time(sums)
    length = batch_length(m, tau)
    near = np.zeros(m)
    for lag in range(1, length):
        [u] = PairKernel(kernel).stein(
            (x[:-lag], scores[:-lag]), (x[lag:], scores[lag:]), dense=False
        )
        near[:-lag] += u
        near[lag:] += u
    sums -= near
    # There are (m − L)(m − L + 1) ordered pairs with |a − b| ≥ L.
    g = sums * (m / ((m - length) * (m - length + 1)))
    batches = m // length
    psi = centred(g)[: batches * length].reshape(batches, length).mean(axis=1)
    return ChainEstimate(float(g.mean()), psi - psi.mean(), length, tau)


def batch_length(m: int, tau: float) -> int:
    """``L = ⌈m^{1/3} τ^{2/3}⌉``: the order that balances the bias and the variance of batch
    means.
    """
    return int(min(max(1, math.ceil(m ** (1 / 3) * tau ** (2 / 3))), max(1, m // 4)))


def autocorrelation_time(series: Array) -> float:
    """τ = 1 + 2Σρ_k of a stationary series (m,), the sum ended by Geyer's initial positive
    sequence rule.

    >>> white = np.random.default_rng(0).normal(size=4000)
    >>> 0.7 < autocorrelation_time(white) < 1.4
    True
    """
    centre = series - series.mean()
    m = len(series)
    size = 1 << (2 * m - 1).bit_length()
    spectrum = np.fft.rfft(centre, size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size)[:m]
    if covariance[0] <= 0.0:
        return 1.0
    pairs = (covariance / covariance[0])[: m // 2 * 2].reshape(-1, 2).sum(axis=1)
    end = int(np.argmax(np.append(pairs, 0.0) <= 0.0))
    return max(1.0, float(2.0 * pairs[:end].sum() - 1.0))
