"""Squared maximum mean discrepancy of several samples to one reference; unequal sizes are
allowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from relfit.compute.backend import Backend, Job, Points, Products, Together
from relfit.compute.memory import parts
from relfit.compute.reduce import Patch, Runtime, Sums, kernel_key, matrix_sums
from relfit.data.load import Data
from relfit.estimators.base import (
    Dependence,
    Estimates,
    EstimateSettings,
    Estimator,
    Groups,
    Kind,
    PairDesign,
    PairSource,
    SecondOrderMoments,
    components,
    samples_of,
    second_order,
    split_half_discrepancy,
)
from relfit.estimators.groups import (
    BetweenGroupSums,
    between_group_sums,
    row_orders,
    same_group,
    summed_by_group,
)
from relfit.estimators.kernel import centre_for, in_parts, shifted
from relfit.estimators.pairkernel import BandRows, BandValues, PairKernel, Part
from relfit.kernels.base import Kernel, Weight
from relfit.kernels.composite import Squared
from relfit.stats.joint import Psi, centred
from relfit.util.arrays import Array, Rows, host, library
from relfit.util.errors import InputError
from relfit.util.text import listed

# Standard errors above which rows compared as independent are called aligned, and below which
# paired rows are doubted.
_ALIGNED = 5.0
_UNALIGNED = 2.0
# Rows that are looked at, evenly spaced.
_ALIGNMENT_ROWS = 2000
# Rows of the reference whose pairs show how many components the second-order part has.
_COMPONENT_ROWS = 200


def complete(
    reference: Any,
    samples: Sequence[Any],
    kernel: Kernel,
    dependence: Dependence,
    runtime: Runtime,
    sizes: Sequence[int] | None = None,
) -> Estimates:
    """MMD² of each sample (m_i, d) to the reference (n, d), with ψ rows.

    ``D_i = mean_{c≠c'} k(x_c,x_c') + mean_{a≠b} k(r_a,r_b) − 2 mean_{c,a} k(x_c,r_a)``;
    ``g_i(r_a) = Σ_{b≠a} k(r_a,r_b)/(n−1) − mean_c k(x_c,r_a)`` and f_i likewise for the
    model's rows. When paired, the cross means leave out c = a, which would bias D by O(1/n).
    Where the rows are some of larger samples of these `sizes`, the reference first, the
    second-order part and the yardstick are those of the samples.
    """
    centre = centre_for(reference, kernel)
    paired = dependence == "paired"
    kernel = kernel.moved(centre)
    sums = kernel_sums(KernelSums(kernel, centre, paired), reference, samples, runtime)
    inner = sums[: 1 + len(samples)]
    cross = sums[1 + len(samples) :]
    within = [p.rows / (len(p.rows) - 1) for p in inner]
    to_reference = [p.rows / (len(reference) - paired) for p in cross]
    from_models = [columns_of(p) / (len(p.rows) - paired) for p in cross]
    where = library(sums[0].rows)
    moments = _moments(sums)
    apart = moments[: len(inner)]
    between = moments[len(inner) :]
    mean, *means = (m.total / (m.rows * (m.rows - 1)) for m in apart)
    crossed = [m.total / (m.rows * (m.columns - paired)) for m in between]
    values = np.array([x + mean - 2.0 * c for x, c in zip(means, crossed, strict=True)])
    g = within[0][:, None] - where.stack(from_models, 1)
    f = [x - c for x, c in zip(within[1:], to_reference, strict=True)]
    if paired:
        psi = Psi(host(centred(g + where.stack(f, 1))))
    else:
        psi = Psi(
            host(centred(g)),
            tuple(host(centred(row)) for row in f),
            shared=dependence == "shared",
        )
    of_samples = zip((reference, *samples), inner, apart, strict=True)
    diagonals = [_diagonal(kernel, centre, *each) for each in of_samples]
    aligned = _alignments(kernel, centre, samples, reference, cross, paired)
    sizes = [len(x) for x in (reference, *samples)] if sizes is None else sizes
    n = sizes[0]
    # Of every sample, its part of the mean of ‖e‖².
    spreads = [
        k.total / m.rows - x for k, m, x in zip(diagonals, apart, (mean, *means), strict=True)
    ]
    ours, *theirs = (spread / size for spread, size in zip(spreads, sizes, strict=True))
    some = shifted(reference[: min(len(reference), _COMPONENT_ROWS)], centre)
    across = [_square_across(each) for each in between]
    quadratic = SecondOrderMoments(
        _second_order(*_unbiased_squares(apart, between), sizes),
        np.maximum(ours + np.array(theirs), 0.0),
        _components(kernel, some),
    )
    return Estimates(
        values,
        psi,
        _second_order(
            [_square_within(*each) for each in zip(apart, diagonals, strict=True)],
            across,
            sizes,
        ),
        alignment=aligned,
        quadratic=quadratic if dependence == "independent" else None,
        yardstick=split_half_discrepancy(n * diagonals[0].total / apart[0].rows, n, mean, n),
    )


def squared_mmd(sample: Array, reference: Array, kernel: Kernel) -> float:
    """The unbiased MMD² of one sample."""
    return float(complete(reference, [sample], kernel, "independent", Runtime()).values[0])


class _Moments(NamedTuple):
    """Of a kernel matrix: its rows and columns, Σk², Σk, and the sums of squares of its row
    and of its column sums.
    """

    rows: int
    columns: int
    squares: float
    total: float
    row_squares: float
    column_squares: float


def _moments(sums: Sequence[Sums]) -> list[_Moments]:
    """The moments of all matrices, which leave a device together."""
    where = library(sums[0].rows)
    found = []
    for each in sums:
        sides = [each.rows] if each.columns is None else [each.rows, each.columns]
        norms = [side @ side for side in sides]
        found.append(
            where.stack([where.asarray(each.squares), each.rows.sum(), norms[0], norms[-1]])
        )
    numbers = host(where.stack(found)).tolist()
    shapes = [
        (len(each.rows), len(each.rows if each.columns is None else each.columns))
        for each in sums
    ]
    return [_Moments(*shape, *each) for shape, each in zip(shapes, numbers, strict=True)]


class _Diagonal(NamedTuple):
    """Σ k(x_a,x_a), Σ k(x_a,x_a)², and Σ_a k(x_a,x_a) Σ_{b≠a} k(x_a,x_b)."""

    total: float
    squares: float
    by_rows: float


def _diagonal(
    kernel: Kernel, centre: Array | float, x: Any, sums: Sums, matrix: _Moments
) -> _Diagonal:
    if kernel.plain and kernel.variable == "r2":
        same = float(kernel.phi(np.zeros(1))[0])
        return _Diagonal(same * len(x), same**2 * len(x), same * matrix.total)
    values = np.concatenate([host(kernel.diagonal(part)) for part in in_parts(x, centre)])
    return _Diagonal(
        float(values.sum()), float(values @ values), float(values @ host(sums.rows))
    )


def _components(kernel: Kernel, rows: Any) -> float:
    """The components of the second-order part, from the kernel matrix of some rows of the
    reference.
    """
    rows = host(rows)
    n = len(rows)
    if n < 3:
        return 1.0
    matrix = PairKernel(kernel).values(rows, rows)
    np.fill_diagonal(matrix, 0.0)
    sums = matrix.sum(axis=1)
    matrix += sums.sum() / ((n - 1) * (n - 2)) - (sums[:, None] + sums) / (n - 2)
    np.fill_diagonal(matrix, 0.0)
    return components(matrix[None])


def _alignments(
    kernel: Kernel,
    centre: Array | float,
    samples: Sequence[Any],
    reference: Any,
    cross: Sequence[Sums],
    paired: bool,
) -> Array:
    """(l,) the mean over some rows a of k(x_a, r_a), centred by row and column means over b
    ≠ a, in standard errors.

    ``c_a = k(x_a,r_a) − mean_b k(x_a,r_b) − mean_b k(x_b,r_a) + mean k`` has mean 0 if the
    two samples are independent, and the trace of their cross-covariance if row a of one goes
    with row a of the other. The cross mean of D would then hold n terms that are larger than
    the others. Samples of another size than the reference have NaN.
    """
    n = len(reference)
    found = np.full(len(samples), math.nan)
    same = [k for k, x in enumerate(samples) if len(x) == n]
    if not same:
        return found
    step = -(-n // _ALIGNMENT_ROWS)
    some = [
        slice(part.start * step, part.stop * step, step)
        for part in parts((-(-n // step), reference.shape[1]))
    ]
    values = [
        [_matching_pairs(kernel, samples[k][part], reference[part], centre) for part in some]
        for k in same
    ]
    # All models at once, since a device is slow to start.
    pairs: Any = [library(each[0]).concatenate(each) for each in values]
    there: Any = library(cross[0].rows)
    sums = [[cross[k].rows[::step] for k in same], [columns_of(cross[k])[::step] for k in same]]
    sums.append([there.asarray(cross[k].rows.sum()) for k in same])
    if library(pairs[0]) is not there:
        pairs, *sums = ([host(each) for each in arrays] for arrays in (pairs, *sums))
    where = library(pairs[0])
    pairs, rows, columns, total = map(where.stack, (pairs, *sums))
    if not paired:
        rows = rows - pairs
        columns = columns - pairs
        total = total - n * pairs.mean(axis=1)
    centred_pairs = pairs - (rows + columns - total[:, None] / n) / (n - 1)
    means = centred_pairs.mean(axis=1)
    average, variance = host(
        where.stack([means, ((centred_pairs - means[:, None]) ** 2).mean(axis=1)])
    )
    errors = np.sqrt(variance / pairs.shape[1])
    found[same] = np.divide(average, errors, out=np.zeros(len(same)), where=errors > 0.0)
    return found


def _matching_pairs(kernel: Kernel, x: Any, r: Any, centre: Array | float) -> Any:
    """k(x_a, r_a), where the rows are, or on the host if a tilted kernel weights them."""
    x = shifted(x, centre)
    r = shifted(r, centre)
    return kernel.pairs(x, r) if kernel.plain else kernel.pairs(host(x), host(r))


def kernel_sums(
    reduction: KernelSums, reference: Any, samples: Sequence[Any], runtime: Runtime
) -> list[Sums]:
    """Row sums, column sums and Σk² of the kernel matrix within each sample, the reference
    first, then across.

    They are on the host, or all of them where the backend computes.
    """
    models = range(1, 1 + len(samples))
    matrices = [(0, 0), *((k, k) for k in models), *((k, 0) for k in models)]
    return matrix_sums(reduction, (reference, *samples), matrices, runtime)


@dataclass(frozen=True)
class _Side:
    """Rows prepared for the kernel, with the weights a tilted one gives them (1 otherwise),
    and prepared for k².
    """

    points: Points
    weights: Array
    squared: Points | None = None


@dataclass(frozen=True)
class KernelSums:
    """Row sums, column sums and Σk² of kernel matrices of rows with the `centre` subtracted.

    For a tilted kernel w(x) w(y) φ: φ @ w with each row times its own weight, and Σk² =
    w²·(φ² @ w²).
    """

    kernel: Kernel
    centre: Array | float = 0.0
    paired: bool = False

    @property
    def passes(self) -> int:
        """One, and one more for the squares of a tilted kernel."""
        return 1 if self.kernel.tilt is None else 2

    def key(self) -> str:
        return f"kernel sums {kernel_key(self.kernel, self.centre)} paired={self.paired}"

    def needs(self, patch: Patch) -> tuple[int, ...]:
        return (patch.x,) if patch.x == patch.y else (patch.x, patch.y)

    def width(self, sources: Sequence[Any]) -> int:
        return int(sources[0].shape[1]) + 1

    def prepare(
        self, sources: Sequence[Any], which: int, rows: slice, backend: Backend
    ) -> _Side:
        x = shifted(sources[which][rows], self.centre)
        plain = self.kernel.untilted
        tilt = self.kernel.tilt
        if tilt is None:
            return _Side(backend.points(plain, x), backend.array(np.ones(len(x))))
        return _Side(
            backend.points(plain, x), tilt.weights(host(x)), backend.points(Squared(plain), x)
        )

    def combine(self, x: _Side, y: _Side, patch: Patch) -> list[Job]:
        """The kernel matrix times the other side's weights; the same for the squares of a
        tilted kernel.
        """
        plain = self.kernel.untilted
        dropped = self.paired and patch.x != patch.y and patch.i == patch.j

        def job(kernel: Kernel, a: Points, b: Points, u: Array, v: Array) -> Job:
            names = _names(kernel)
            right = dict.fromkeys(names, v)
            if patch.symmetric:
                return Job(kernel, a, None, right, squares=True)
            left = dict.fromkeys(names, u)
            return Job(kernel, a, b, right, left, diagonal=not dropped, squares=True)

        first = job(plain, x.points, y.points, x.weights, y.weights)
        if x.squared is None or y.squared is None:
            return [first]
        return [first, job(Squared(plain), x.squared, y.squared, x.weights**2, y.weights**2)]

    def finish(self, x: _Side, y: _Side, products: Sequence[Products]) -> Sums:
        """The products, each times its own row's weight."""
        first, *squares = products
        if isinstance(self.kernel, Together):
            return _of_every_kernel(self.kernel, first)
        rows = first.rows["phi"]
        columns = first.columns.get("phi")
        if not squares:
            return Sums(rows, columns, first.squares)
        total = float(host(squares[0].rows["phi"]) @ x.weights**2)
        return Sums(
            host(rows) * x.weights,
            None if columns is None else host(columns) * y.weights,
            total,
        )


def _names(kernel: Kernel) -> list[Weight]:
    """The names of φ in a job with this kernel."""
    return kernel.names if isinstance(kernel, Together) else ["phi"]


def _of_every_kernel(kernel: Together, products: Products) -> Sums:
    """The sums of several kernels, side by side."""
    rows, columns = (
        np.stack([sums[name] for name in kernel.names], axis=1) if sums else None
        for sums in (products.rows, products.columns)
    )
    assert rows is not None  # noqa: S101  (every job has products with rows)
    return Sums(rows, columns, products.squares)


def pair_values(kernel: Kernel, first: Sequence[Array], second: Sequence[Array]) -> Array:
    """``h_i = k(x,x') + k(r,r') − k(x,r') − k(x',r)`` for paired rows: (pairs, l).

    `first` and `second` each hold reference rows and then, for each model, the rows that go
    with them.
    """
    (r, *xs) = first
    (r2, *xs2) = second
    k = kernel.pairs
    within = k(r, r2)
    columns = [k(x, x2) + within - k(x, r2) - k(x2, r) for x, x2 in zip(xs, xs2, strict=True)]
    return np.stack(columns, axis=1)


def columns_of(sums: Sums) -> Array:
    """The column sums of a cross matrix."""
    assert sums.columns is not None  # noqa: S101  (cross matrices have them)
    return sums.columns


def _second_order(
    within: Sequence[float], across: Sequence[float], sizes: Sequence[int]
) -> Array:
    """``S2_ij = 2ζ_rr/(n(n−1)) + 1{i=j}[2ζ_xx/(m(m−1)) + 4ζ_xr/(nm)]`` (l, l), for
    independent samples.

    ζ is the mean of the squares of the doubly centred kernel matrix.
    """
    reference, *models = (
        2.0 * zeta / (n * (n - 1)) for zeta, n in zip(within, sizes, strict=True)
    )
    cross = [4.0 * zeta / (sizes[0] * m) for zeta, m in zip(across, sizes[1:], strict=True)]
    return reference + np.diag(np.add(models, cross))


def _square_within(matrix: _Moments, diagonal: _Diagonal) -> float:
    """ζ within a sample: of the matrix with its diagonal, without the squares of the centred
    diagonal.
    """
    n = matrix.rows
    rows = matrix.row_squares + 2.0 * diagonal.by_rows + diagonal.squares
    mean = (matrix.total + diagonal.total) / n**2
    total = matrix.squares + diagonal.squares - 2.0 * rows / n + (n * mean) ** 2
    # Σ_a (k_aa − 2 mean_b k_ab + mean k)², multiplied out.
    on_diagonal = (
        diagonal.squares - 4.0 * (diagonal.by_rows + diagonal.squares) / n + 4.0 * rows / n**2
    )
    on_diagonal += 2.0 * mean * diagonal.total - 3.0 * n * mean**2
    return max(total - on_diagonal, 0.0) / (n * (n - 1))


def _square_across(matrix: _Moments) -> float:
    """ζ between a model and the reference."""
    pairs = matrix.rows * matrix.columns
    centring = matrix.row_squares / matrix.columns + matrix.column_squares / matrix.rows
    return max(matrix.squares - centring + matrix.total**2 / pairs, 0.0) / pairs


def _unbiased_squares(
    inner: Sequence[_Moments], cross: Sequence[_Moments]
) -> tuple[list[float], list[float]]:
    """The same with ζ from sums that leave out the diagonal: unbiased, also where rows
    resemble only themselves.

    Within a sample ``ζ = Σ_{a≠b} k̃_ab²/(n(n−3))`` with
    ``k̃_ab = k_ab − Σ_{c≠a} k_ac/(n−2) − Σ_{c≠b} k_cb/(n−2) + Σ_{c≠d} k_cd/((n−1)(n−2))``;
    across, centring by rows and by columns takes a degree of freedom each.
    """

    def within(matrix: _Moments) -> float:
        n = matrix.rows
        if n < 4:
            return 0.0
        total = (
            matrix.squares
            - 2.0 * matrix.row_squares / (n - 2)
            + matrix.total**2 / ((n - 1) * (n - 2))
        )
        return max(total, 0.0) / (n * (n - 3))

    def across(matrix: _Moments) -> float:
        n = max(matrix.columns, 2)
        m = max(matrix.rows, 2)
        return _square_across(matrix) * (n / (n - 1)) * (m / (m - 1))

    return [within(matrix) for matrix in inner], [across(matrix) for matrix in cross]


def _alignment_notes(
    data: Data, alignment: Array | None, dependence: Dependence
) -> tuple[str, ...]:
    """A sentence if rows that are compared as independent of the reference's go with them,
    or the other way round.
    """
    if alignment is None:
        return ()
    if dependence == "paired":
        apart = [
            name for name, z in zip(data.samples, alignment, strict=True) if z < _UNALIGNED
        ]
        if not apart:
            return ()
        return (
            f"rows of {listed(apart)} do not look like partners of the reference rows, but "
            f'were compared as "paired"; '
            "check their order",
        )
    # Rows that are copies of reference rows have a note of their own.
    numbers = zip(data.samples, alignment, strict=True)
    aligned = [
        name for name, z in numbers if abs(z) > _ALIGNED and name not in data.shared_rows
    ]
    if not aligned:
        return ()
    return (
        f"rows of {listed(aligned)} go with the reference rows of the same number, which "
        f"biases the estimate; use "
        'dependence="paired"',
    )


def _apart_across(
    kernel: Kernel,
    model: tuple[Array, Rows],
    reference: tuple[Array, Rows],
    sums: Sums,
    paired: bool,
) -> tuple[BetweenGroupSums, BetweenGroupSums]:
    """The cross sums seen from the model's rows and from the reference's."""
    (x, x_codes) = model
    (r, r_codes) = reference
    rows = sums.rows.copy()
    columns = columns_of(sums).copy()
    # The numbers of rows that the other side has in the same group.
    same_r = np.zeros(len(x))
    same_x = np.zeros(len(r))
    if paired:
        for a, b in same_group(x_codes, r_codes):
            k = kernel.pairs(x[a], r[b])
            rows[a] -= k
            np.subtract.at(columns, b, k)
        count = 1 + int(max(x_codes.max(), r_codes.max()))
        same_r = np.bincount(r_codes, minlength=count)[x_codes].astype(float)
        same_x = np.bincount(x_codes, minlength=count)[r_codes].astype(float)
    return BetweenGroupSums(rows, len(r) - same_r), BetweenGroupSums(columns, len(x) - same_x)


class Samples(Kind):
    """Samples compared with a reference sample, by MMD²."""

    words = "samples"
    discrepancies = ("mmd", "ume")

    def check(
        self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool
    ) -> None:
        lengths = {len(x) for x in data.samples.values()}
        n = len(data.reference)
        if dependence == "chain":
            raise InputError(
                'dependence="chain": expected a Density as the reference, got a sample'
            )
        self.check_shared(lengths, dependence, grouped=grouped)
        if dependence == "paired" and lengths != {n} and not grouped:
            raise InputError(
                f'dependence="paired": expected every model to have {n} rows like the '
                f"reference, got {sorted(lengths)}"
            )
        if isinstance(estimator, PairDesign) and lengths != {n}:
            raise InputError(
                f'estimator="{estimator.name}": expected samples of equal size (it pairs '
                f"model and reference rows), "
                f'got {sorted(lengths | {n})} rows; use estimator="complete" or equal sizes'
            )

    def sources(
        self, data: Data, settings: EstimateSettings, *, in_order: bool = False
    ) -> list[PairSource]:
        """Pairs of z = (reference row, model rows), in the paired form whatever the
        dependence.
        """
        orders = row_orders(
            data, settings.dependence, settings.seed, "pairs", in_order=in_order
        )
        centre = centre_for(data.reference, settings.kernel)
        kernel = settings.kernel.moved(centre)
        samples = samples_of(data)

        def fetch(rows: Rows) -> list[Array]:
            fetched = [
                np.asarray(host(x[orders[key][rows]]), dtype=np.float64)
                for key, x in samples.items()
            ]
            for x in fetched:
                x -= centre
            return fetched

        n = len(data.reference)
        width = self.width(data, settings.dependence)
        values = partial(pair_values, kernel)
        band_values = partial(mmd_band_values, kernel)
        return [PairSource(n, len(data.samples), fetch, values, band_values, width)]

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        samples = list(data.samples.values())
        dependence = settings.dependence
        estimates = complete(
            data.reference, samples, settings.kernel, dependence, settings.runtime
        )
        return self.with_second_order(data, settings, estimates)

    def with_second_order(
        self, data: Data, settings: EstimateSettings, estimates: Estimates
    ) -> Estimates:
        """The estimates with the second-order part of samples that belong together, and
        notes on aligned rows.
        """
        samples = list(data.samples.values())
        dependence = settings.dependence
        aligned = _alignment_notes(data, estimates.alignment, dependence)
        estimates = replace(estimates, notes=(*estimates.notes, *aligned))
        # The second-order part of `complete` is that of independent samples: close for shared
        # ones, not for pairs.
        n = len(data.reference)
        if dependence == "independent" or any(len(x) != n for x in samples):
            return estimates
        (source,) = self.sources(data, settings, in_order=True)
        psi = estimates.psi
        assert psi.reference is not None  # noqa: S101  (samples have a reference)
        rows = psi.reference + np.stack(psi.models, axis=1) if psi.models else psi.reference
        plain, quadratic = second_order(source, settings.seed, rows, estimates.values)
        if dependence == "paired":
            estimates = replace(estimates, second_order=plain)
        return replace(estimates, quadratic=quadratic)

    def grouped(self, data: Data, settings: EstimateSettings, groups: Groups) -> Estimates:
        """Under "paired", pairs of a model row and a reference row in the same group are
        left out too.
        """
        paired = settings.dependence == "paired"
        centre = centre_for(data.reference, settings.kernel)
        kernel = settings.kernel.moved(centre)
        keys = [None, *data.samples]
        reference, *samples = rows = [x - centre for x in samples_of(data).values()]
        codes = [groups.codes[key] for key in keys]
        counts = [groups.counts[key] for key in keys]
        sums = [
            each.on_host()
            for each in kernel_sums(KernelSums(kernel), reference, samples, settings.runtime)
        ]

        def within(x: Array, labels: Rows, matrix: Sums) -> BetweenGroupSums:
            return between_group_sums(
                matrix.rows, lambda a, b: kernel.pairs(x[a], x[b]), labels
            )

        ours, *theirs = (
            within(*each) for each in zip(rows, codes, sums[: len(rows)], strict=True)
        )
        cross = [
            _apart_across(kernel, (x, labels), (reference, codes[0]), matrix, paired)
            for x, labels, matrix in zip(samples, codes[1:], sums[len(rows) :], strict=True)
        ]
        values = np.array(
            [
                x.mean + ours.mean - 2.0 * side.mean
                for x, (side, _) in zip(theirs, cross, strict=True)
            ]
        )
        g = 2.0 * ours.projection()[:, None] - 2.0 * np.stack(
            [side.projection() for _, side in cross], axis=1
        )
        f = [
            2.0 * x.projection() - 2.0 * side.projection()
            for x, (side, _) in zip(theirs, cross, strict=True)
        ]
        psi, *from_models = map(summed_by_group, [g, *f], codes, counts)
        n = len(reference)
        near = float((sums[0].rows - ours.sums).sum() + kernel.diagonal(reference).sum())
        yardstick = split_half_discrepancy(
            near, n**2 - float(ours.counts.sum()), float(ours.mean), n
        )
        if paired:
            return Estimates(
                values, Psi(psi + np.stack(from_models, axis=1)), yardstick=yardstick
            )
        shared = settings.dependence == "shared"
        return Estimates(
            values, Psi(psi, tuple(from_models), shared=shared), yardstick=yardstick
        )

    def right_hand_sides(self, data: Data) -> int:
        return 0


def mmd_band_values(kernel: Kernel, window: Sequence[Array]) -> BandValues:
    """``h_i = k(x,x') + k(r,r') − k(x,r') − k(x',r)`` in a window of the reference's rows,
    then each model's.
    """
    reference, *models = (BandRows(kernel, rows) for rows in window)

    def values(part: Part) -> Array:
        within = reference.values(reference, part)
        h = np.empty((len(models), *within.shape))
        for out, x in zip(h, models, strict=True):
            np.add(x.values(x, part), within, out=out)
            out -= x.values(reference, part)
            out -= reference.values(x, part)
        return h

    return values
