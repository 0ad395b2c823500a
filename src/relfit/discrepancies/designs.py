"""Which pairs of rows are used. The complete design is built into `mmd` and `ksd`; here are the cheaper ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies.psi import Estimates, Psi, centred, mixed, positive_part
from relfit.discrepancies.windows import Source, each_part, pairs_at_once
from relfit.tiles import Runtime

Array = NDArray[np.float64]
PairValues = Callable[[NDArray[np.intp], NDArray[np.intp]], Array]


def linear(rows: int, pair_values: PairValues, runtime: Runtime | None = None, width: int = 1) -> Estimates:
    """The linear-time estimate from the disjoint pairs (0,1), (2,3), …; an odd last row is left out.

    ``D = mean h`` over the M = ⌊n/2⌋ pairs and ``V = cov(h)/M``: O(n) kernel evaluations. `width` is how many numbers a
    row has, with all that belongs to it.
    """
    runtime = Runtime() if runtime is None else runtime
    pairs, size = rows // 2, pairs_at_once(width, runtime.memory)
    parts = []
    for start in range(0, pairs, size):
        first = 2 * np.arange(start, min(start + size, pairs))
        parts.append(pair_values(first, first + 1))
        if runtime.progress is not None:
            runtime.progress(start + len(first), pairs)
    h = np.concatenate(parts)
    values = h.mean(axis=0)
    return Estimates(values, Psi(h - values))


def incomplete(source: Source, lags: int, runtime: Runtime) -> Estimates:
    """The cyclic design: the M = nR pairs (a, a+r mod n), r = 1..R ≤ (n−1)/2, so that every row is in 2R of them.

    ``g_a = mean of h over the pairs of a``, ``D = mean g`` and ``ψ = 2(g − ḡ)``; the covariance is
    `regular_covariance`, O(nR) kernel evaluations and no more than n·l numbers besides a window of rows.
    """
    n = source.rows
    totals = np.zeros((source.models, n + lags))
    counts, means, scatter = [], [], np.zeros((source.models, source.models))

    def reduce(_: int, h: Array) -> tuple[Array, Array, Array]:
        flat = h.reshape(len(h), -1)
        mean = flat.mean(axis=1)
        own = _row_sums(h)
        flat -= mean[:, None]
        return own, mean, flat @ flat.T

    for a, (own, mean, part) in each_part(source, lags, reduce, runtime):
        totals[:, a : a + own.shape[1]] += own
        counts.append((own.shape[1] - lags) * lags)
        means.append(mean)
        scatter += part
    totals[:, :lags] += totals[:, n:]
    g = totals[:, :n].T / (2 * lags)
    values = g.mean(axis=0)
    between = np.array(means) - values
    pairs = n * lags
    spread = (scatter + (between.T * counts) @ between) / pairs
    psi = Psi(centred(g))
    return Estimates(values, psi, covariance=regular_covariance(psi.covariance(), spread, n, pairs))


def _row_sums(h: Array) -> Array:
    """Each row's sum over its pairs in a part (l, rows, lags), as the first and as the second: (l, rows + lags)."""
    _, rows, lags = h.shape
    sums = np.zeros((len(h), rows + lags))
    sums[:, :rows] = h.sum(axis=2)
    if rows < lags:
        for a in range(rows):
            sums[:, a + 1 : a + 1 + lags] += h[:, a]
    else:
        for r in range(1, lags + 1):
            sums[:, r : r + rows] += h[:, :, r - 1]
    return sums


def regular_covariance(projection: Array, spread: Array, rows: int, pairs: int) -> Array:
    """V of a design of M pairs in which every one of n rows is in equally many.

    With h = θ + (first-order parts) + …, σ² = Cov h, and P = ψᵀψ/(n(n−1)), C = the covariance of h over the pairs:
    ``E P = ((n−4) V + nσ²/M)/(n−1)`` and ``E C = σ² − V``, so that ``V̂ = ((n−1)P − (n/M)C)/(n − 4 + n/M)`` is
    unbiased for V. P alone counts the pairs' own noise σ²/M twice. What V holds beyond that noise is no less than 0,
    so it is estimated by the positive part of ``V̂ − C/M``. With disjoint pairs this is C/(M−1), exactly.
    """
    own = spread / pairs
    unbiased = ((rows - 1) * projection - rows * own) / (rows - 4 + rows / pairs)
    return positive_part(unbiased - own, mixed(own, projection)) + own


def block(source: Source, size: int, runtime: Runtime) -> Estimates:
    """The complete estimate in each of B = n/b blocks of b rows that follow each other.

    D is the mean of the block values; they are independent, so ``V = cov(block values)/B``, and the values less
    their mean are the ψ rows. B·b(b−1)/2 pairs.
    """
    blocks = source.rows // size
    totals = np.zeros((blocks, source.models))

    def reduce(a: int, h: Array) -> Array:
        place = np.arange(a, a + h.shape[1]) % size
        inside = place[:, None] + np.arange(1, h.shape[2] + 1) < size
        return np.asarray(np.einsum("iar,ar->ia", h, inside))

    for a, sums in each_part(source, size - 1, reduce, runtime, ends=size):
        np.add.at(totals, np.arange(a, a + sums.shape[1]) // size, sums.T)
    each = totals / (size * (size - 1) / 2)
    values = each.mean(axis=0)
    return Estimates(values, Psi(each - values))
