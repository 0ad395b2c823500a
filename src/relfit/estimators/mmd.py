"""Squared maximum mean discrepancy of several samples to one reference, all pairs, unequal sizes allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relfit.compute.backend import Backend, Points, Products
from relfit.compute.reduce import Job, Patch, Runtime, Sums, described, matrix_sums
from relfit.data.load import Data
from relfit.estimators import designs
from relfit.estimators.base import Dependence, Estimates, Plan, in_parts, second_order, shifted
from relfit.estimators.designs import Source, mmd_values, of_pairs
from relfit.estimators.kernel import centre_for
from relfit.estimators.split import orders_of
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Squared
from relfit.stats.joint import Psi, centred
from relfit.util.arrays import Array, Rows, host
from relfit.util.random import stream


def complete(
    reference: Any,
    samples: Sequence[Any],
    kernel: Kernel,
    dependence: Dependence,
    runtime: Runtime,
    *,
    centre: Array | float = 0.0,
) -> Estimates:
    """MMD² of each sample (m_i, d) to the reference (n, d), with ψ rows.

    ``D_i = mean_{c≠c'} k(x_c,x_c') + mean_{a≠b} k(r_a,r_b) − 2 mean_{c,a} k(x_c,r_a)``;
    ``g_i(r_a) = Σ_{b≠a} k(r_a,r_b)/(n−1) − mean_c k(x_c,r_a)`` and f_i likewise for the model's rows.
    When paired, the cross means leave out c = a, which would bias D by O(1/n). The kernel is that of rows with the
    `centre` subtracted.
    """
    paired = dependence == "paired"
    sums = kernel_sums(kernel, reference, samples, runtime, paired=paired, centre=centre)
    own, cross = sums[: 1 + len(samples)], sums[1 + len(samples) :]
    within = [p.rows / (len(p.rows) - 1) for p in own]
    dropped = 1 if paired else 0
    to_reference = [p.rows / (len(reference) - dropped) for p in cross]
    from_models = [columns_of(p) / (len(p.rows) - dropped) for p in cross]
    values = np.array(
        [x.mean() + within[0].mean() - 2.0 * c.mean() for x, c in zip(within[1:], to_reference, strict=True)]
    )
    g = within[0][:, None] - np.stack(from_models, axis=1)
    f = [x - c for x, c in zip(within[1:], to_reference, strict=True)]
    diagonals = [np.concatenate([kernel.diagonal(part) for part in in_parts(x, centre)]) for x in (reference, *samples)]
    return Estimates(values, _psi(g, f, dependence), _second_order(diagonals, own, cross))


def kernel_sums(
    kernel: Kernel,
    reference: Any,
    samples: Sequence[Any],
    runtime: Runtime,
    *,
    paired: bool = False,
    centre: Array | float = 0.0,
) -> list[Sums]:
    """Row sums, column sums and Σk² of the kernel matrix within each sample, the reference first, then across."""
    models = range(1, 1 + len(samples))
    matrices = [(0, 0), *((k, k) for k in models), *((k, 0) for k in models)]
    sums = matrix_sums(KernelSums(kernel, centre, paired), (reference, *samples), matrices, runtime)
    return [each.on_host() for each in sums]


@dataclass(frozen=True)
class _Side:
    """Rows prepared for the kernel, with the weights a tilted one gives them (1 otherwise), and prepared for k²."""

    points: Points
    weights: Array
    squared: Points | None = None


@dataclass(frozen=True)
class KernelSums:
    """Row sums, column sums and Σk² of kernel matrices.

    For a tilted kernel w(x) w(y) φ: φ @ w with each row times its own weight, and Σk² = w²·(φ² @ w²).
    """

    kernel: Kernel
    centre: Array | float
    paired: bool = False

    @property
    def passes(self) -> int:
        """One, and one more for the squares of a tilted kernel."""
        return 1 if self.kernel.tilt is None else 2

    def key(self) -> str:
        """See `Reduction`."""
        return f"kernel sums {described(self.kernel, self.centre)} paired={self.paired}"

    def needs(self, patch: Patch) -> tuple[int, ...]:
        """The samples themselves."""
        return (patch.x,) if patch.x == patch.y else (patch.x, patch.y)

    def width(self, sources: Sequence[Any]) -> int:
        """The columns of the rows, and 1."""
        return int(sources[0].shape[1]) + 1

    def prepare(self, sources: Sequence[Any], which: int, rows: slice, backend: Backend) -> _Side:
        """Rows of one sample, centred and prepared."""
        x, plain, tilt = shifted(sources[which][rows], self.centre), self.kernel.untilted, self.kernel.tilt
        if tilt is None:
            return _Side(backend.points(plain, x), np.ones(len(x)))
        return _Side(backend.points(plain, x), tilt.weights(host(x)), backend.points(Squared(plain), x))

    def jobs(self, x: _Side, y: _Side, patch: Patch) -> list[Job]:
        """The kernel matrix times the other side's weights; the same for the squares of a tilted kernel."""
        plain, dropped = self.kernel.untilted, self.paired and patch.x != patch.y and patch.i == patch.j

        def job(kernel: Kernel, a: Points, b: Points, u: Array, v: Array) -> Job:
            if patch.symmetric:
                return Job(kernel, a, None, {"phi": v}, squares=True)
            return Job(kernel, a, b, {"phi": v}, {"phi": u}, diagonal=not dropped, squares=True)

        first = job(plain, x.points, y.points, x.weights, y.weights)
        if x.squared is None or y.squared is None:
            return [first]
        return [first, job(Squared(plain), x.squared, y.squared, x.weights**2, y.weights**2)]

    def finish(self, x: _Side, y: _Side, products: Sequence[Products]) -> Sums:
        """The products, each times its own row's weight."""
        first, *squares = products
        rows, columns = host(first.rows["phi"]), first.columns.get("phi")
        columns = None if columns is None else host(columns)
        if not squares:
            return Sums(rows, columns, first.squares)
        total = float(host(squares[0].rows["phi"]) @ x.weights**2)
        return Sums(rows * x.weights, None if columns is None else columns * y.weights, total)


def pair_values(kernel: Kernel, first: tuple[Array, Sequence[Array]], second: tuple[Array, Sequence[Array]]) -> Array:
    """``h_i = k(x,x') + k(r,r') − k(x,r') − k(x',r)`` for paired rows: (pairs, l).

    `first` and `second` each hold reference rows and, per model, the rows that go with them.
    """
    (r, xs), (r2, xs2) = first, second
    within = kernel.pairs(r, r2)
    columns = [
        kernel.pairs(x, x2) + within - kernel.pairs(x, r2) - kernel.pairs(x2, r) for x, x2 in zip(xs, xs2, strict=True)
    ]
    return np.stack(columns, axis=1)


def _psi(g: Array, f: Sequence[Array], dependence: Dependence) -> Psi:
    if dependence == "paired":
        return Psi(centred(g + np.stack(f, axis=1)))
    return Psi(centred(g), tuple(centred(row) for row in f), shared=dependence == "shared")


def columns_of(sums: Sums) -> Array:
    """The column sums of a cross matrix."""
    assert sums.columns is not None  # noqa: S101  (of a cross matrix)
    return sums.columns


def _second_order(diagonals: Sequence[Array], own: Sequence[Sums], cross: Sequence[Sums]) -> Array:
    """``S2_ij = 2ζ_rr/(n(n−1)) + 1{i=j}[2ζ_xx/(m(m−1)) + 4ζ_xr/(nm)]`` (l, l), for independent samples.

    ζ is the mean of the squares of the doubly centred kernel matrix.
    """
    reference, *models = (_own_part(p, diagonal) for p, diagonal in zip(own, diagonals, strict=True))
    return reference + np.diag([x + _cross_part(p) for x, p in zip(models, cross, strict=True)])


def _own_part(found: Sums, diagonal: Array) -> float:
    sums = found.rows + diagonal
    n = len(sums)
    means, mean = sums / n, float(sums.mean()) / n
    total = found.squares + float(diagonal @ diagonal) - 2.0 * n * float(means @ means) + (n * mean) ** 2
    on_diagonal = float(np.square(diagonal - 2.0 * means + mean).sum())
    pairs = n * (n - 1)
    return 2.0 * max(total - on_diagonal, 0.0) / pairs**2


def _cross_part(found: Sums) -> float:
    rows, columns = found.rows, columns_of(found)
    pairs = len(rows) * len(columns)
    centring = float(rows @ rows) / len(columns) + float(columns @ columns) / len(rows)
    total = found.squares - centring + float(rows.sum()) ** 2 / pairs
    return 4.0 * max(total, 0.0) / pairs**2


# --------------------
# MMD² of samples to a reference sample.


def of_samples(data: Data, plan: Plan) -> Estimates:
    """MMD² of every sample, with ψ rows."""
    if plan.estimator == "linear":
        return _linear(data, plan)
    centre = centre_for(data.reference, plan.kernel)
    if plan.estimator != "complete":
        return _of_pairs(data, plan, centre)
    kernel, samples = plan.kernel.moved(centre), list(data.samples.values())
    found = complete(data.reference, samples, kernel, plan.dependence, plan.runtime, centre=centre)
    # That of `mmd.complete` is of independent samples: near the truth for shared ones, not for pairs.
    if plan.dependence == "paired" or (plan.variance == "corrected" and plan.dependence != "independent"):
        return replace(found, second_order=_paired_second_order(data, plan))
    return found


def _linear(data: Data, plan: Plan) -> Estimates:
    orders = orders_of(data, plan)
    reference, samples = data.reference, data.samples

    def values(a: Rows, b: Rows) -> Array:
        first, second = (
            (reference[orders[None][k]], [x[orders[name][k]] for name, x in samples.items()]) for k in (a, b)
        )
        return pair_values(plan.kernel, first, second)

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


def _paired_second_order(data: Data, plan: Plan) -> Array:
    """Of samples of one size whose rows belong together: from pairs of whole rows (reference, model 1, …, model l)."""

    def values(a: Rows, b: Rows) -> Array:
        first, second = ((host(data.reference[k]), [host(x[k]) for x in data.samples.values()]) for k in (a, b))
        return pair_values(plan.kernel, first, second)

    n, d = data.reference.shape
    return second_order(n, d * (1 + len(data.samples)), values, stream(plan.seed, "second order"))
