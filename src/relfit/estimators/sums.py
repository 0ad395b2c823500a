"""Row and column sums of kernels and Stein kernels, the one reduction of MMD, KSD and
landmarks.

The scores of related models span few columns: those of Gaussians are combinations of 1 and
x, those of networks that differ in one unit share the others. A kernel matrix times their
independent columns gives the rest by a small product.

Rows of one group depend on each other, groups do not. So pairs within a group are left out
of every mean, which keeps D unbiased, and ψ is summed by group, which makes V right whatever
the dependence within.

Let n_g be the size of group g, h(a) the mean of the kernel k(a, ·) over another group's rows
and θ the mean of k over pairs of different groups, of which there are P = n² − Σ n_g². The
estimate of θ is Σ_a S_a/P, S_a the sum of k(a, b) over the rows b of other groups, and to
first order it is

    θ + Σ_g U_g,   U_g = (2/P)(n − n_g) Σ_{a∈g} (h(a) − θ),   estimated by   (2/P) Σ_{a∈g}
    (S_a − (n − n_g) θ̂).

The U_g are independent with mean 0, so its variance is estimated by Σ_g U_g² G/(G − 1): that
of the ψ rows ψ_g = G U_g. With one row per group all this is the usual estimate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular

from relfit.compute.backend import Backend, Job, Points, Products
from relfit.compute.reduce import Patch, Runtime, Sums, kernel_key, matrix_sums
from relfit.estimators.kernel import shifted
from relfit.estimators.pairkernel import PairKernel, RowSums
from relfit.kernels.base import Kernel, Weight
from relfit.kernels.composite import Squared
from relfit.util.arrays import Array, Rows, library

# Columns count as dependent only if every row is reproduced to within this fraction of the
# column's size.
TOLERANCE = 1e-13
# The search for dependent columns pays off only if at most this fraction of the columns
# remains.
WORTHWHILE = 0.8
# Pairs of rows evaluated at once, so that temporary arrays stay small.
PAIR_CHUNK = 16_384
# The group numbers of the rows of a sample and the number of groups; None if all rows are
# independent.
Members = tuple[Rows, int] | None
# From the numbers of m rows and of their m partners to the values (m, …).
PairValues = Callable[[Rows, Rows], Array]


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
    errors = np.abs(basis @ coefficients - matrix).max(axis=0) / _sizes(matrix)
    if errors.sum() > 100.0 * TOLERANCE * c:
        return whole
    return Columns(np.ascontiguousarray(basis), coefficients)


def _sizes(matrix: Array) -> Array:
    """The largest entry of each column, 1 for a column of zeros."""
    largest = np.abs(matrix).max(axis=0)
    return np.where(largest == 0.0, 1.0, largest)


@dataclass(frozen=True)
class _Side:
    """Prepared rows: `columns` to be multiplied with the kernel matrix; `finish` makes row
    sums of the products.

    `squared` holds the rows prepared for k², and the squares of their weights, if the kernel
    is tilted.
    """

    points: Points
    columns: Mapping[Weight, Columns]
    finish: RowSums
    squared: tuple[Points, Array] | None = None


@dataclass(frozen=True, eq=False)
class KernelSums:
    """Sums of k(x_a, y_b), or of the Stein kernels u_i(x_a, y_b), over a and over b.

    Attributes:
        kernel: for rows with the `centre` subtracted.
        models: the number of Stein kernels; every sample is then 1 + l sources, the rows and
            each model's scores at them. None for values of the kernel.
        paired: pairs of equal row numbers of two samples are left out.
        squares: whether Σk² is needed. For a tilted kernel w(x) w(y) φ it is w²·(φ² @ w²).
        over: the sources that are summed over, with weights (n, c) of their rows or None; the
            sums are then for the rows x only. Model i has the weights i, and a kernel without
            models has c sums. None: sums over both sides of every matrix.
    """

    kernel: Kernel
    centre: Array | float = 0.0
    models: int | None = None
    paired: bool = False
    squares: bool = False
    over: Mapping[int, Array | None] | None = None

    @property
    def passes(self) -> int:
        """One, and one more for the squares of a tilted kernel."""
        return 2 if self.squares and self.kernel.tilt is not None else 1

    def key(self) -> str:
        over = "" if self.over is None else f"over {list(self.over)}"
        for weights in (self.over or {}).values():
            over += "" if weights is None else hashlib.sha256(weights.tobytes()).hexdigest()
        options = f"{self.models} {self.paired} {self.squares} {over}"
        return f"kernel sums {kernel_key(self.kernel, self.centre)} {options}"

    def needs(self, patch: Patch) -> tuple[int, ...]:
        more = self.models or 0
        firsts = {patch.x: 0, patch.y: 0}
        return tuple(source for first in firsts for source in range(first, first + 1 + more))

    def width(self, sources: Sequence[Any]) -> int:
        columns = int(sources[0].shape[1]) + 1
        return columns if self.models is None else columns * len(sources)

    def prepare(
        self, sources: Sequence[Any], which: int, rows: slice, backend: Backend
    ) -> _Side:
        stein = PairKernel(self.kernel)
        plain = self.kernel.untilted
        tilt = self.kernel.tilt
        x = shifted(sources[which][rows], self.centre)
        weight = None if tilt is None else tilt.weights(x)
        over = {which: None} if self.over is None else self.over
        weighted = any(weights is not None for weights in over.values())
        if self.models is None:
            right, finish = stein.value_columns(backend.array(np.ones(len(x))))
        else:
            scores = [s[rows] for s in sources[which + 1 : which + 1 + self.models]]
            x, *scores = map(backend.array, (x, *stein.tilted_scores(x, *scores)))
            # Where each model weights the rows in its own way, they have no columns in common.
            each = [[s] for s in scores] if weighted else [scores]
            arrays = library(x)
            apart = [stein.stein_columns(x, own) for own in each if which in over]
            right = apart[0] if apart else {}
            if len(apart) > 1:
                right = {w: arrays.hstack([own[w] for own in apart]) for w in right}

            def finish(products: Mapping[Weight, Array]) -> Array:
                split = {w: arrays.hsplit(part, len(each)) for w, part in products.items()}
                sums = [
                    stein.stein_sums(x, own, {w: part[i] for w, part in split.items()})
                    for i, own in enumerate(each)
                ]
                return sums[0] if len(sums) == 1 else arrays.hstack(sums)

        given = over.get(which)
        own = None if given is None else backend.array(given[rows])

        def columns(matrix: Array) -> Columns:
            matrix = _times_rows(matrix, weight)
            if own is not None:
                models = 1 if self.models is None else self.models
                each = matrix.reshape(len(matrix), models, -1) * own[:, :, None]
                matrix = each.reshape(len(matrix), -1)
            if self.models is None or weighted:
                return Columns(matrix)
            return independent_columns(matrix)

        # Several kernels have matrices in common.
        matrices = {id(matrix): matrix for matrix in right.values()} if which in over else {}
        found = {key: columns(matrix) for key, matrix in matrices.items()}
        return _Side(
            backend.points(plain, x),
            {w: found[id(matrix)] for w, matrix in right.items() if found},
            lambda products: _times_rows(finish(products), weight),
            (backend.points(Squared(plain), x), weight**2)
            if self.squares and weight is not None
            else None,
        )

    def combine(self, x: _Side, y: _Side, patch: Patch) -> list[Job]:
        across = not patch.symmetric
        plain = self.kernel.untilted
        right = {w: each.basis for w, each in y.columns.items()}
        left = {w: each.basis for w, each in x.columns.items()} if across else {}
        diagonal = not (self.paired and patch.x != patch.y and patch.i == patch.j)
        other = y.points if across else None
        jobs = [Job(plain, x.points, other, right, left, diagonal, self.squares)]
        if x.squared is not None and y.squared is not None:
            points, weights = y.squared
            other = points if across else None
            squares: Mapping[Weight, Array] = {"phi": weights}
            jobs.append(Job(Squared(plain), x.squared[0], other, squares, diagonal=diagonal))
        return jobs

    def finish(self, x: _Side, y: _Side, products: Sequence[Products]) -> Sums:
        first, *more = products
        squares = first.squares
        if more and x.squared is not None:
            squares = float(more[0].rows["phi"] @ x.squared[1])
        rows = x.finish({w: each.expand(first.rows[w]) for w, each in y.columns.items()})
        if not first.columns:
            return Sums(rows, None, squares)
        columns = {w: each.expand(first.columns[w]) for w, each in x.columns.items()}
        return Sums(rows, y.finish(columns), squares)


def _times_rows(numbers: Array, weight: Array | None) -> Array:
    """Numbers of every row, (n, …), times the weight of the row."""
    return numbers if weight is None else (numbers.T * weight).T


def kernel_sums(
    reduction: KernelSums,
    sources: Sequence[Any],
    matrices: Sequence[tuple[int, int]],
    runtime: Runtime,
) -> list[Sums]:
    """The sums of whole kernel matrices between two sources, on the host."""
    return [sums.on_host() for sums in matrix_sums(reduction, sources, matrices, runtime)]


@dataclass(frozen=True)
class BetweenGroupSums:
    """For every row of one side, the sum of a kernel over its pairs with other groups, and
    the number of those.
    """

    sums: Array
    counts: Array

    @property
    def mean(self) -> Array:
        """The mean over all pairs: (l,), or a number."""
        return np.asarray(self.sums.sum(axis=0) / self.counts.sum())

    def projection(self) -> Array:
        """The rows' first-order contributions to the mean, for one side of a pair; they add
        up to 0.
        """
        counts = self.counts if self.sums.ndim == 1 else self.counts[:, None]
        return np.asarray((self.sums - counts * self.mean) / self.counts.sum())


def summed_by_group(parts: Array, members: Members) -> Array:
    """ψ_g = G U_g (G, …): G times the sum of the contributions of each group's rows."""
    if members is None:
        return len(parts) * parts
    codes, count = members
    total = np.zeros((count, *parts.shape[1:]))
    np.add.at(total, codes, parts)
    return count * total


def between_group_sums(sums: Array, values: PairValues, members: Members) -> BetweenGroupSums:
    """The sums over pairs of different groups, from the row sums over all pairs (n, …) of
    one sample.

    `values` gives the kernel at pairs of rows; those within a group are subtracted.
    """
    n = len(sums)
    if members is None:
        return BetweenGroupSums(sums, np.broadcast_to(n - 1.0, n))
    codes, _ = members
    near = np.zeros_like(sums)
    for a, b in same_group(codes, codes):
        different = a != b
        near[a[different]] += values(a[different], b[different])
    return BetweenGroupSums(sums - near, n - np.bincount(codes)[codes].astype(float))


def across_group_sums(
    sums: Sums, values: PairValues, model: Members, reference: Members, *, paired: bool
) -> tuple[BetweenGroupSums, BetweenGroupSums]:
    """The same of a model's rows with the reference's, seen from both.

    If they are paired, their groups are numbered in common; of independent rows the pairs of
    equal numbers are not among the sums.
    """
    rows = sums.rows
    columns = columns_of(sums)
    alone = float(paired and model is None)
    counts = np.broadcast_to(len(columns) - alone, len(rows))
    counts_back = np.broadcast_to(len(rows) - alone, len(columns))
    if paired and model is not None and reference is not None:
        rows, columns, counts, counts_back = map(np.array, (rows, columns, counts, counts_back))
        for a, b in same_group(model[0], reference[0]):
            near = values(a, b)
            rows[a] -= near
            counts[a] -= 1.0
            np.subtract.at(columns, b, near)
            np.subtract.at(counts_back, b, 1.0)
    return BetweenGroupSums(rows, counts), BetweenGroupSums(columns, counts_back)


def columns_of(sums: Sums) -> Array:
    """The column sums of a cross matrix."""
    assert sums.columns is not None  # noqa: S101  (cross matrices have them)
    return sums.columns


def same_group(x: Rows, y: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Every pair of a row of x and a row of y in the same group, in parts of at most
    PAIR_CHUNK pairs.

    A row of x occurs once in a part.
    """
    sizes = np.bincount(y, minlength=1 + int(max(x.max(), y.max())))
    order = np.argsort(y, kind="stable")
    start = np.cumsum(sizes) - sizes
    for k in range(int(sizes[x].max())):
        rows = np.flatnonzero(sizes[x] > k)
        for cut in range(0, len(rows), PAIR_CHUNK):
            part = rows[cut : cut + PAIR_CHUNK]
            yield part, order[start[x[part]] + k]
