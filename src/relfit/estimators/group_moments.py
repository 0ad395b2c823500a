"""The second-order part of estimates from rows in groups, which take the place of rows.

The error of an estimate is a sum over groups: e = Σ_g w_g, with w_g the sum of the group's
centred features over the number of rows. ‖e‖² − mean is Σ_{g≠h} ⟨w_g, w_h⟩ to second order, so
its moments are those of the matrix M_gh = ⟨w_g, w_h⟩: kernel values summed over the rows of two
groups, and centred by the means over other groups. All kernel values of at most GROUPS groups
of each sample are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relfit.data.load import Data
from relfit.estimators.base import (
    EstimateSettings,
    Groups,
    SecondOrderMoments,
    components,
    samples_of,
)
from relfit.estimators.kernel import centre_for, shifted
from relfit.estimators.pairkernel import PairKernel
from relfit.util.arrays import Array, Rows, host
from relfit.util.random import stream

# Groups of each sample whose kernel values are all taken, at most and at least, and about how
# many rows these may have.
GROUPS = 200
FEWEST_GROUPS = 20
ROWS = 1000


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Some groups of one sample.

    Attributes:
        rows: their rows.
        member: (k, rows) 1 where a row belongs to a group.
        rows_in_all, groups_in_all: the numbers of rows and of groups of the whole sample.
        within: n²/Σ_{g≠h} n_g n_h: pairs within groups are left out of the estimate.
    """

    rows: Rows
    member: Array
    rows_in_all: int
    groups_in_all: int
    within: float

    @property
    def sizes(self) -> Array:
        """(k,) the groups' numbers of rows."""
        return np.asarray(self.member.sum(axis=1))

    @property
    def scale(self) -> float:
        """How many more groups there are."""
        return self.groups_in_all / len(self.member)

    @property
    def pairs(self) -> float:
        """How many more pairs of different groups there are, with the degrees of freedom that
        centring takes.
        """
        k = len(self.member)
        n = self.groups_in_all
        return self.within**2 * n * (n - 1) / (k * max(k - 3, 1))


def drawn_groups(groups: Groups, key: str | None, together: bool, seed: int) -> _Drawn:
    """Random groups of a sample; samples whose groups belong together draw the same ones."""
    codes = groups.codes[key]
    count = groups.counts[key]
    some = max(FEWEST_GROUPS, min(GROUPS, ROWS * count // len(codes)))
    rng = stream(seed, "groups", "models" if together or key is not None else "reference")
    chosen = np.sort(rng.permutation(count)[:some])
    rows = np.flatnonzero(np.isin(codes, chosen))
    member = (chosen[:, None] == codes[rows]).astype(float)
    sizes = np.bincount(codes).astype(float)
    within = len(codes) ** 2 / max(len(codes) ** 2 - float(sizes @ sizes), 1.0)
    return _Drawn(rows, member, len(codes), count, within)


def of_sample(
    values: Callable[[Rows], Sequence[Array]], groups: Groups, key: str | None, seed: int
) -> SecondOrderMoments:
    """The moments of mean kernel values of one sample, one kernel for each model, as of KSD²;
    `values` gives the kernel matrices of some rows.
    """
    part = drawn_groups(groups, key, True, seed)
    sums = [part.member @ matrix @ part.member.T for matrix in values(part.rows)]
    scale = 1.0 / part.rows_in_all**2
    matrices = np.stack([scale * _centred(each, part.sizes, part.sizes, True) for each in sums])
    flat = matrices.reshape(len(matrices), -1)
    trace = [part.scale * scale * _own(each, part.sizes, part.sizes) for each in sums]
    return SecondOrderMoments(
        2.0 * part.pairs * (flat @ flat.T), np.maximum(trace, 0.0), components(matrices)
    )


def of_samples(data: Data, settings: EstimateSettings) -> SecondOrderMoments:
    """The moments of MMD² between each sample and the reference."""
    groups = settings.groups
    assert groups is not None  # noqa: S101  (the caller has groups)
    paired = settings.dependence == "paired"
    centre = centre_for(data.reference, settings.kernel)
    kernel = PairKernel(settings.kernel.moved(centre))
    drawn = {key: drawn_groups(groups, key, paired, settings.seed) for key in samples_of(data)}
    rows = {
        key: host(shifted(x[drawn[key].rows], centre)) for key, x in samples_of(data).items()
    }

    def sums(a: str | None, b: str | None) -> Array:
        values = kernel.values(rows[a], rows[b])
        return np.asarray(drawn[a].member @ values @ drawn[b].member.T)

    within = {key: sums(key, key) for key in drawn}
    across = {name: sums(name, None) for name in data.samples}
    if paired:
        return _paired(drawn, within, across)
    return _apart(drawn, within, across, shared=settings.dependence == "shared")


def _apart(
    drawn: Mapping[str | None, _Drawn],
    within: Mapping[str | None, Array],
    across: Mapping[str, Array],
    *,
    shared: bool,
) -> SecondOrderMoments:
    """Samples that are independent of the reference, and of each other unless `shared`."""
    reference = drawn[None]
    matrices = {}
    trace = {}
    for key, sums in within.items():
        part = drawn[key]
        scale = 1.0 / part.rows_in_all**2
        matrices[key] = scale * _centred(sums, part.sizes, part.sizes, True)
        trace[key] = part.scale * scale * _own(sums, part.sizes, part.sizes)
    own = np.stack([matrices[name].ravel() * drawn[name].pairs ** 0.5 for name in across])
    crossed = []
    for name, sums in across.items():
        part = drawn[name]
        scale = 1.0 / (part.rows_in_all * reference.rows_in_all)
        # Centring by rows and by columns takes a degree of freedom each.
        counts = np.array(sums.shape, dtype=float)
        lost = float(np.prod(np.sqrt(counts / np.maximum(counts - 1.0, 1.0))))
        more = (part.scale * reference.scale) ** 0.5
        crossed.append(
            lost * more * scale * _centred(sums, part.sizes, reference.sizes, False).ravel()
        )
    common = 2.0 * reference.pairs * float(np.square(matrices[None]).sum())
    if shared:
        both = np.stack(crossed)
        covariance = common + 2.0 * own @ own.T + 4.0 * both @ both.T
    else:
        alone = [
            2.0 * float(a @ a) + 4.0 * float(b @ b) for a, b in zip(own, crossed, strict=True)
        ]
        covariance = common + np.diag(alone)
    traces = np.array([trace[name] + trace[None] for name in across])
    return SecondOrderMoments(
        np.asarray(covariance), np.maximum(traces, 0.0), components(matrices[None][None])
    )


def _paired(
    drawn: Mapping[str | None, _Drawn],
    within: Mapping[str | None, Array],
    across: Mapping[str, Array],
) -> SecondOrderMoments:
    """Samples whose groups are those of the reference."""
    reference = drawn[None]
    n = reference.rows_in_all
    q = reference.sizes
    matrices = []
    traces = []
    for name, sums in across.items():
        part = drawn[name]
        m = part.rows_in_all
        p = part.sizes
        side = _centred(sums, p, q, True)
        matrix = _centred(within[name], p, p, True) / m**2
        matrix += _centred(within[None], q, q, True) / n**2
        matrices.append(matrix - (side + side.T) / (n * m))
        own = _own(within[name], p, p) / m**2 + _own(within[None], q, q) / n**2
        traces.append(part.scale * (own - 2.0 * _own(sums, p, q) / (n * m)))
    flat = np.stack([matrix.ravel() for matrix in matrices])
    return SecondOrderMoments(
        2.0 * reference.pairs * (flat @ flat.T),
        np.maximum(traces, 0.0),
        components(np.stack(matrices)),
    )


def _centred(sums: Array, p: Array, q: Array, same: bool) -> Array:
    """Sums of kernel values over pairs of groups of p and q rows, less what the means over
    other groups explain.

    If the groups are the `same`, pairs of a group with itself are 0.
    """
    if not same:
        by_row = sums.sum(axis=1) / q.sum()
        by_column = sums.sum(axis=0) / p.sum()
        mean = sums.sum() / (p.sum() * q.sum())
        return np.asarray(
            sums - np.outer(by_row, q) - np.outer(p, by_column) + mean * np.outer(p, q)
        )
    k = len(p)
    apart = sums - np.diag(np.diag(sums))
    by_row = apart.sum(axis=1) / np.maximum(q.sum() - q, 1.0)
    by_column = apart.sum(axis=0) / np.maximum(p.sum() - p, 1.0)
    mean = _mean_apart(sums, p, q)
    # Unbiased for groups of one size, as for rows.
    means = (k - 1) / (k - 2) * (np.outer(by_row, q) + np.outer(p, by_column))
    out = apart - means + k / (k - 2) * mean * np.outer(p, q)
    np.fill_diagonal(out, 0.0)
    return np.asarray(out)


def _mean_apart(sums: Array, p: Array, q: Array) -> float:
    """The mean of the kernel over rows of different groups."""
    return float((sums.sum() - np.trace(sums)) / (p.sum() * q.sum() - p @ q))


def _own(sums: Array, p: Array, q: Array) -> float:
    """Σ_g ⟨w_g, w_g⟩, not yet over the numbers of rows."""
    return float(np.trace(sums) - _mean_apart(sums, p, q) * (p @ q))
