"""How rows lie: in separate clusters, or in structure much finer than a kernel's bandwidth."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from relfit.util.arrays import Array, host

# Rows that are looked at, evenly spaced.
_FINE_ROWS, _CLUSTER_ROWS = 200, 120
# Fractions of the bandwidth: neighbours at most as far apart as the first are close, and few may lie
# between the two. Smooth data in one dimension have 4 times as many neighbours within the second.
_CLOSE, _WIDE_AGAIN = 1.0 / 16.0, 1.0 / 4.0
# At least this fraction of the rows has a close neighbour, and at most this many times as many pairs
# are within the wider distance.
_MOST_ROWS, _NO_MORE = 0.5, 1.25
# Squared distances up to this fraction of the squared norms are those of equal rows.
_ROUNDING = 1e-12

# A cluster holds at least this fraction of the rows; fewer are outliers.
_SMALLEST_FRACTION = 0.05
# A gap between clusters is at least so many times the usual step between neighbours, this quantile of
# all steps; only so many of the widest gaps are tried.
_WIDE, _USUAL, _TRIED = 4.0, 0.9, 60


def fine_structure(rows: Any, length: float) -> float | None:
    """The typical distance between nearest neighbours, if a kernel of this length resolves none of the structure.

    It does not if most rows have neighbours within a sixteenth of the length and hardly any between that and a quarter
    of it: seen with the kernel, tight clusters are points. Equal rows are no neighbours.

    >>> rng = np.random.default_rng(0)
    >>> fine_structure(rng.normal(size=(300, 1)), 1.0) is None
    True
    >>> clusters = 10.0 * rng.integers(3, size=(300, 2)) + rng.normal(0.0, 0.05, (300, 2))
    >>> round(fine_structure(clusters, 10.0), 2)
    0.02
    """
    if len(rows) < 2:
        return None
    some = np.asarray(host(rows[:: -(-len(rows) // _FINE_ROWS)]), dtype=np.float64) / length
    some = some - np.median(some, axis=0)
    norms = np.einsum("ij,ij->i", some, some)
    squares = norms[:, None] + norms - 2.0 * (some @ some.T)
    different = squares > _ROUNDING * np.maximum(norms[:, None], norms)
    close = different & (squares <= _CLOSE**2)
    near = different & (squares <= _WIDE_AGAIN**2)
    if close.any(axis=1).mean() <= _MOST_ROWS or near.sum() > _NO_MORE * close.sum():
        return None
    nearest = np.where(close, squares, np.inf).min(axis=1)
    return length * float(np.sqrt(np.median(nearest[np.isfinite(nearest)])))


def separated_clusters(x: Any) -> tuple[float, float] | None:
    """The widest gap between rows (n, d) with at least 5% of them on either side, if it is wide.

    Returns the fraction of the rows on the smaller side, and the gap in units of the usual step between neighbours.

    Gaps are edges of the minimum spanning tree, which joins every row to the others by the shortest steps; a gap is
    wide from four times the 90% point of all its edges.

    >>> rng = np.random.default_rng(0)
    >>> separated_clusters(rng.normal(size=(300, 2))) is None
    True
    >>> two = np.concatenate([rng.normal(size=(100, 2)), rng.normal(20.0, 1.0, (300, 2))])
    >>> fraction, steps = separated_clusters(two)
    >>> round(fraction, 2)
    0.25
    """
    if len(x) < 2:
        return None
    some = np.asarray(host(x[:: -(-len(x) // _CLUSTER_ROWS)]), dtype=np.float64)
    steps, sizes = _spanning_tree(cdist(some, some))
    step = float(np.quantile(steps, _USUAL))
    if step <= np.finfo(float).tiny:
        # Most rows are repeated: steps between them say nothing.
        return None
    for k in np.argsort(-steps, kind="stable")[:_TRIED]:
        if steps[k] < _WIDE * step:
            return None
        small = min(sizes[k], len(some) - sizes[k]) / len(some)
        if small >= _SMALLEST_FRACTION:
            return float(small), float(steps[k]) / step
    return None


def _spanning_tree(distances: Array) -> tuple[Array, Array]:
    """The edges of the minimum spanning tree: their lengths, and the number of rows beyond each (Prim's algorithm)."""
    count = len(distances)
    nearest = distances[0].copy()
    nearest[0] = np.inf
    parent = np.zeros(count, dtype=np.intp)
    taken = np.zeros(count, dtype=bool)
    taken[0] = True
    order = np.empty(count - 1, dtype=np.intp)
    lengths = np.empty(count - 1)
    for k in range(count - 1):
        new = int(nearest.argmin())
        order[k] = new
        lengths[k] = nearest[new]
        taken[new] = True
        closer = distances[new] < nearest
        parent[closer & ~taken] = new
        np.minimum(nearest, distances[new], out=nearest)
        nearest[taken] = np.inf
    sizes = np.ones(count)
    for new in order[::-1]:
        sizes[parent[new]] += sizes[new]
    return lengths, sizes[order]
