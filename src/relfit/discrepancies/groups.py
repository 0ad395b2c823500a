"""MMD² and KSD² of rows that come in groups: several completions of a prompt, frames of a video.

Rows of one group depend on each other, groups do not. So pairs within a group are left out of every mean, which
keeps D unbiased, and ψ is summed by group, which makes V right whatever the dependence within.

Let n_g be the size of group g, h(a) the mean of the kernel k(a, ·) over another group's rows and θ the mean of k over
pairs of different groups, of which there are P = n² − Σ n_g². The estimate of θ is Σ_a S_a/P, S_a the sum of
k(a, b) over the rows b of other groups, and to first order it is

    θ + Σ_g U_g,   U_g = (2/P)(n − n_g) Σ_{a∈g} (h(a) − θ),   estimated by   (2/P) Σ_{a∈g} (S_a − (n − n_g) θ̂).

The U_g are independent with mean 0, so its variance is estimated by Σ_g U_g² G/(G − 1): that of the ψ rows ψ_g = G U_g.
With one row per group all this is the usual estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import ksd, mmd
from relfit.discrepancies.psi import Dependence, Estimates, Psi
from relfit.kernels import Kernel
from relfit.patches import Sums
from relfit.tiles import Runtime

Array = NDArray[np.float64]
Codes = NDArray[np.intp]
PairValues = Callable[[Codes, Codes], Array]

# Pairs of rows evaluated at once: bounds the temporaries.
PAIR_CHUNK = 16_384


@dataclass(frozen=True)
class Groups:
    """Group numbers 0, 1, … of every row of the reference (key None) and of every sample.

    Samples that belong together (shared or paired) number their groups in common; `counts` says how many there are.
    """

    codes: dict[str | None, Codes]
    counts: dict[str | None, int]


@dataclass(frozen=True)
class _Sums:
    """Sums of a kernel over pairs of different groups, seen from one side's rows, and how many each row is in."""

    sums: Array
    others: Array

    @property
    def mean(self) -> Array:
        """The mean over all pairs: (l,), or a number."""
        return np.asarray(self.sums.sum(axis=0) / self.others.sum())

    def parts(self) -> Array:
        """The rows' first-order contributions to the mean, for one side of a pair; they add up to 0."""
        others = self.others if self.sums.ndim == 1 else self.others[:, None]
        return np.asarray((self.sums - others * self.mean) / self.others.sum())


def grouped_ksd(
    x: Array, scores: Sequence[Array], codes: Codes, count: int, kernel: Kernel, runtime: Runtime
) -> Estimates:
    """KSD² of each model, scores (n, d) at rows (n, d) in `count` groups, with ψ (count, l).

    ψ has the jackknife factor (G−1)/(G−2) of `ksd.complete`, with groups in place of rows.
    """

    def values(a: Codes, b: Codes) -> Array:
        return ksd.pair_values(kernel, (x[a], [s[a] for s in scores]), (x[b], [s[b] for s in scores]))

    sums = ksd.row_sums(x, scores, kernel, runtime) - _within(values, codes, len(scores))
    apart = _Sums(sums, len(x) - np.bincount(codes)[codes].astype(float))
    return Estimates(apart.mean, Psi(_by_group(2.0 * apart.parts(), codes, count) * ((count - 1) / (count - 2))))


def grouped_mmd(
    reference: Array,
    samples: Sequence[Array],
    groups: Sequence[tuple[Codes, int]],
    kernel: Kernel,
    dependence: Dependence,
    runtime: Runtime,
) -> Estimates:
    """MMD² of each sample to the reference; `groups` holds codes and counts of the reference, then of each sample.

    Under "paired" groups of one number are one group, and pairs of a model row and a reference row in it are left
    out too; under "shared" the models' are, and under "independent" no two samples have anything in common.
    """
    rows = (reference, *samples)
    products = mmd.kernel_sums(kernel, reference, samples, runtime)
    own = [
        _apart_within(kernel, x, codes, product.rows)
        for x, (codes, _), product in zip(rows, groups, products[: len(rows)], strict=True)
    ]
    cross = [
        _apart_across(kernel, (x, codes), (reference, groups[0][0]), product, dependence == "paired")
        for x, (codes, _), product in zip(samples, groups[1:], products[len(rows) :], strict=True)
    ]
    values = np.array([x.mean + own[0].mean - 2.0 * side.mean for x, (side, _) in zip(own[1:], cross, strict=True)])
    g = 2.0 * own[0].parts()[:, None] - 2.0 * np.stack([side.parts() for _, side in cross], axis=1)
    f = [2.0 * x.parts() - 2.0 * side.parts() for x, (side, _) in zip(own[1:], cross, strict=True)]
    from_reference = _by_group(g, *groups[0])
    from_models = [_by_group(part, *group) for part, group in zip(f, groups[1:], strict=True)]
    if dependence == "paired":
        return Estimates(values, Psi(from_reference + np.stack(from_models, axis=1)))
    return Estimates(values, Psi(from_reference, tuple(from_models), shared=dependence == "shared"))


def by_group(values: Array, codes: Codes, count: int) -> Array:
    """ψ_g = G U_g for the mean of rows: rows' contributions (n, l), centred over n, summed by group. (count, l)"""
    return _by_group((values - values.mean(axis=0)) / len(values), codes, count)


def _by_group(parts: Array, codes: Codes, count: int) -> Array:
    total = np.zeros((count, *parts.shape[1:]))
    np.add.at(total, codes, parts)
    return count * total


def _apart_within(kernel: Kernel, x: Array, codes: Codes, sums: Array) -> _Sums:
    near = _within(lambda a, b: kernel.pairs(x[a], x[b])[:, None], codes, 1)[:, 0]
    return _Sums(sums - near, len(x) - np.bincount(codes)[codes].astype(float))


def _apart_across(
    kernel: Kernel, model: tuple[Array, Codes], reference: tuple[Array, Codes], product: Sums, paired: bool
) -> tuple[_Sums, _Sums]:
    """The cross sums seen from the model's rows and from the reference's."""
    (x, own), (r, theirs) = model, reference
    rows, columns = product.rows.copy(), mmd.columns_of(product).copy()
    if not paired:
        return _Sums(rows, np.full(len(x), float(len(r)))), _Sums(columns, np.full(len(r), float(len(x))))
    for a, b in same_group(own, theirs):
        k = kernel.pairs(x[a], r[b])
        rows[a] -= k
        np.subtract.at(columns, b, k)
    count = 1 + int(max(own.max(), theirs.max()))
    ours, their_sizes = np.bincount(own, minlength=count), np.bincount(theirs, minlength=count)
    return _Sums(rows, len(r) - their_sizes[own].astype(float)), _Sums(columns, len(x) - ours[theirs].astype(float))


def _within(values: PairValues, codes: Codes, count: int) -> Array:
    """(n, count) sums over the other rows of each row's own group."""
    near = np.zeros((len(codes), count))
    for a, b in same_group(codes, codes):
        different = a != b
        near[a[different]] += values(a[different], b[different])
    return near


def same_group(x: Codes, y: Codes) -> Iterator[tuple[Codes, Codes]]:
    """Every pair of a row of x and a row of y in the same group, in parts of at most PAIR_CHUNK pairs.

    A row of x occurs once in a part.
    """
    count = 1 + int(max(x.max(), y.max()))
    sizes = np.bincount(y, minlength=count)
    order, start = np.argsort(y, kind="stable"), np.cumsum(sizes) - sizes
    for k in range(int(sizes[x].max())):
        rows = np.flatnonzero(sizes[x] > k)
        for cut in range(0, len(rows), PAIR_CHUNK):
            part = rows[cut : cut + PAIR_CHUNK]
            yield part, order[start[x[part]] + k]
