"""Squared maximum mean discrepancy of several samples to one reference; unequal sizes are
allowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from relfit.compute.reduce import Runtime, Sums
from relfit.data.load import Data
from relfit.estimators import group_moments
from relfit.estimators.base import (
    Dependence,
    Estimates,
    EstimateSettings,
    Estimator,
    Kind,
    PairDesign,
    PairSource,
    SecondOrderMoments,
    components,
    joint_psi,
    samples_of,
    second_order,
    split_half_discrepancy,
)
from relfit.estimators.groups import row_orders
from relfit.estimators.kernel import centre_for, in_parts, shifted
from relfit.estimators.pairkernel import Layout, PairKernel
from relfit.estimators.sums import (
    KernelSums,
    Members,
    PairValues,
    across_group_sums,
    between_group_sums,
    columns_of,
    kernel_sums,
    summed_by_group,
)
from relfit.kernels.base import Kernel
from relfit.util.arrays import Array, Rows, host
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
    *,
    members: Sequence[Members] = (),
    sizes: Sequence[int] = (),
) -> Estimates:
    """MMD² of each sample (m_i, d) to the reference (n, d), with ψ rows.

    ``D_i = mean_{c≠c'} k(x_c,x_c') + mean_{a≠b} k(r_a,r_b) − 2 mean_{c,a} k(x_c,r_a)``;
    ``g_i(r_a) = Σ_{b≠a} k(r_a,r_b)/(n−1) − mean_c k(x_c,r_a)`` and f_i likewise for the
    model's rows. When paired, the cross means leave out c = a, which would bias D by O(1/n),
    and ψᵀψ/(n(n−1)) is the jackknife covariance, as D is a U-statistic of the pairs then.
    With `members`, pairs within a group are left out, and ψ has a row for each group. Where
    the rows are some of larger samples of these `sizes`, the reference first, the
    second-order part and the yardstick are those of the samples.
    """
    rows = (reference, *samples)
    members = members or [None] * len(rows)
    grouped = members[0] is not None
    paired = dependence == "paired"
    centre = centre_for(reference, kernel)
    kernel = kernel.moved(centre)
    own = [(k, k) for k in range(len(rows))]
    cross = [(k, 0) for k in range(1, len(rows))]
    reduction = KernelSums(kernel, centre, paired=paired and not grouped, squares=True)
    sums = kernel_sums(reduction, rows, own + cross, runtime)
    inner = sums[: len(rows)]
    across = sums[len(rows) :]

    def values(x: Any, y: Any) -> PairValues:
        return lambda a, b: kernel.pairs(shifted(x[a], centre), shifted(y[b], centre))

    ours, *theirs = (
        between_group_sums(each.rows, values(x, x), groups)
        for each, x, groups in zip(inner, rows, members, strict=True)
    )
    sides = [
        across_group_sums(each, values(x, reference), groups, members[0], paired=paired)
        for each, x, groups in zip(across, samples, members[1:], strict=True)
    ]
    estimates = np.array(
        [
            x.mean + ours.mean - 2.0 * side.mean
            for x, (side, _) in zip(theirs, sides, strict=True)
        ]
    )
    g = ours.projection()[:, None] - np.stack([back.projection() for _, back in sides], axis=1)
    f = [x.projection() - side.projection() for x, (side, _) in zip(theirs, sides, strict=True)]
    each = map(summed_by_group, [g, *f], members)
    psi = joint_psi(next(each), list(each), dependence)
    diagonals = [
        np.concatenate([host(kernel.diagonal(part)) for part in in_parts(x, centre)])
        for x in rows
    ]
    n = sizes[0] if sizes else len(reference)
    # Of rows that depend on each other: each with itself, and those of a group.
    near = float((inner[0].rows - ours.sums).sum() + diagonals[0].sum())
    count = len(reference) ** 2 - float(ours.counts.sum())
    scale = n / len(reference)
    yardstick = split_half_discrepancy(near * scale, count * scale, float(ours.mean), n)
    if grouped:
        return Estimates(estimates, psi, yardstick=yardstick)
    sizes = sizes or [len(x) for x in rows]
    # Of every sample, its part of the mean of ‖e‖².
    traces = [
        (float(k.mean()) - float(x.mean)) / size
        for k, x, size in zip(diagonals, (ours, *theirs), sizes, strict=True)
    ]
    within = np.array([_squares_within(*each) for each in zip(inner, diagonals, strict=True)])
    between = np.array([_squares_across(each) for each in across])
    biased, unbiased = (_second_order(within[:, k], between[:, k], sizes) for k in range(2))
    some = host(shifted(reference[:_COMPONENT_ROWS], centre))
    quadratic = SecondOrderMoments(
        unbiased,
        np.maximum(traces[0] + np.array(traces[1:]), 0.0),
        _components(kernel, some),
    )
    # Rows that go together are looked for with the kernel in use, not with others beside it.
    alignment = None
    if runtime.shared is None:
        alignment = _alignments(kernel, centre, samples, reference, across, paired)
    return Estimates(
        estimates,
        psi,
        biased,
        alignment=alignment,
        quadratic=quadratic if dependence == "independent" else None,
        yardstick=yardstick,
    )


def squared_mmd(sample: Array, reference: Array, kernel: Kernel) -> float:
    """The unbiased MMD² of one sample."""
    return float(complete(reference, [sample], kernel, "independent", Runtime()).values[0])


def _components(kernel: Kernel, rows: Array) -> float:
    """The effective degrees of freedom of the second-order part, from the kernel matrix of
    some rows of the reference.
    """
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
    across: Sequence[Sums],
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
    step = -(-n // _ALIGNMENT_ROWS)
    for k, (x, sums) in enumerate(zip(samples, across, strict=True)):
        if len(x) != n:
            continue
        both = zip(
            in_parts(x[::step], centre), in_parts(reference[::step], centre), strict=True
        )
        pairs = np.concatenate([host(kernel.pairs(*part)) for part in both])
        means = (sums.rows[::step] + columns_of(sums)[::step]) - sums.rows.sum() / n
        if not paired:
            means = means - 2.0 * pairs + pairs.mean()
        centred_pairs = pairs - means / (n - 1)
        error = math.sqrt(centred_pairs.var() / len(pairs))
        found[k] = centred_pairs.mean() / error if error > 0.0 else 0.0
    return found


def pair_values(
    kernel: PairKernel, first: Sequence[Array], second: Sequence[Array], layout: Layout
) -> Array:
    """``h_i = k(x,x') + k(r,r') − k(x,r') − k(r,x')`` for paired rows: (l, …).

    `first` and `second` each hold reference rows and then, for each model, the rows that go
    with them.
    """
    (r, *xs) = first
    (r2, *xs2) = second
    within = kernel.values(r, r2, layout)
    h = np.empty((len(xs), *within.shape))
    for out, x, x2 in zip(h, xs, xs2, strict=True):
        np.add(kernel.values(x, x2, layout), within, out=out)
        out -= kernel.values(x, r2, layout)
        out -= kernel.values(r, x2, layout)
    return h


def _second_order(within: Array, across: Array, sizes: Sequence[int]) -> Array:
    """``S2_ij = 2ζ_rr/(n(n−1)) + 1{i=j}[2ζ_xx/(m(m−1)) + 4ζ_xr/(nm)]`` (l, l), for
    independent samples.

    ζ is the mean of the squares of the doubly centred kernel matrix.
    """
    reference, *models = (
        2.0 * zeta / (n * (n - 1)) for zeta, n in zip(within, sizes, strict=True)
    )
    cross = [4.0 * zeta / (sizes[0] * m) for zeta, m in zip(across, sizes[1:], strict=True)]
    return np.asarray(reference + np.diag(np.add(models, cross)))


def _squares_within(sums: Sums, diagonal: Array) -> tuple[float, float]:
    """ζ within a sample: of the matrix with its diagonal, without the squares of the centred
    diagonal; and unbiased.

    Unbiased, also where rows resemble only themselves, is ``ζ = Σ_{a≠b} k̃_ab²/(n(n−3))`` with
    ``k̃_ab = k_ab − Σ_{c≠a} k_ac/(n−2) − Σ_{c≠b} k_cb/(n−2) + Σ_{c≠d} k_cd/((n−1)(n−2))``.
    """
    n = len(diagonal)
    rows = sums.rows + diagonal
    mean = rows.sum() / n**2
    total = sums.squares + diagonal @ diagonal - 2.0 * (rows @ rows) / n + (n * mean) ** 2
    total -= np.square(diagonal - 2.0 * rows / n + mean).sum()
    biased = max(float(total), 0.0) / (n * (n - 1))
    if n < 4:
        return biased, 0.0
    total = sums.squares - 2.0 * (sums.rows @ sums.rows) / (n - 2)
    total = total + sums.rows.sum() ** 2 / ((n - 1) * (n - 2))
    return biased, max(float(total), 0.0) / (n * (n - 3))


def _squares_across(sums: Sums) -> tuple[float, float]:
    """ζ between a model and the reference; and unbiased: centring by rows and by columns takes
    a degree of freedom each.
    """
    rows = sums.rows
    columns = columns_of(sums)
    n = len(columns)
    m = len(rows)
    centring = rows @ rows / n + columns @ columns / m
    zeta = max(float(sums.squares - centring + rows.sum() ** 2 / (m * n)), 0.0) / (m * n)
    return zeta, zeta * max(n, 2) / (max(n, 2) - 1) * max(m, 2) / (max(m, 2) - 1)


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
        f"row k of {listed(aligned)} seems paired with row k of the reference, so the estimate "
        'is biased; if the rows are paired, use dependence="paired"',
    )


class Samples(Kind):
    """Samples compared with a reference sample, by MMD²."""

    words = "samples"
    discrepancies: ClassVar[tuple[str, ...]] = ("mmd", "ume")

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
        values = partial(pair_values, PairKernel(kernel))
        return [PairSource(n, len(data.samples), fetch, values, width)]

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        estimates = complete(
            data.reference,
            list(data.samples.values()),
            settings.kernel,
            settings.dependence,
            settings.runtime,
            members=[settings.members(key) for key in samples_of(data)],
        )
        return self.of_samples(data, settings, [estimates])

    def of_samples(
        self, data: Data, settings: EstimateSettings, each: Sequence[Estimates]
    ) -> Estimates:
        """The estimates with the second-order part of samples that belong together, and
        notes on aligned rows.
        """
        (estimates,) = each
        if settings.groups is not None:
            return replace(estimates, quadratic=group_moments.of_samples(data, settings))
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
        plain, quadratic = second_order(
            source.values_between, source.width, settings.seed, rows, estimates.values
        )
        if dependence == "paired":
            estimates = replace(estimates, second_order=plain)
        return replace(estimates, quadratic=quadratic)

    def right_hand_sides(self, data: Data) -> int:
        return 0
