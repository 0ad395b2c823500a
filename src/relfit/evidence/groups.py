"""Do the data fall apart into groups? KSD hardly sees how the weight is shared among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]

MOST_ROWS = 400
# A group holds at least this share of the rows; fewer are outliers.
SMALLEST_SHARE = 0.05
# How many times the usual step between neighbours a gap between groups is.
WIDE = 4.0
_USUAL = 0.9
_TRIED = 60


@dataclass(frozen=True)
class Separation:
    """Two groups: their shares of the rows (the smaller first), the gap between them and the usual step within."""

    shares: tuple[float, float]
    gap: float
    step: float


def separated_groups(x: Array) -> Separation | None:
    """The widest gap of the rows (n, d) that has at least 5% of them on either side, if it is wide.

    Gaps are edges of the minimum spanning tree, which joins every row to the others by the shortest steps; a gap is
    wide from four times the 90% point of all its edges.

    >>> rng = np.random.default_rng(0)
    >>> separated_groups(rng.normal(size=(300, 2))) is None
    True
    >>> two = np.concatenate([rng.normal(size=(100, 2)), rng.normal(20.0, 1.0, (300, 2))])
    >>> separated_groups(two).shares
    (0.25, 0.75)
    """
    some = x[:: max(1, -(-len(x) // MOST_ROWS))]
    distances = cdist(some, some)
    # A distance of exactly 0 would be no edge at all.
    tree = minimum_spanning_tree(np.maximum(distances, np.finfo(float).tiny)).tocoo()
    step = float(np.quantile(tree.data, _USUAL)) if tree.nnz else 0.0
    if step <= np.finfo(float).tiny:
        # Most rows are repeated: steps between them say nothing.
        return None
    for k in np.argsort(tree.data)[::-1][:_TRIED]:
        if tree.data[k] < WIDE * step:
            return None
        cut = tree.copy()
        cut.data[k] = 0.0
        cut.eliminate_zeros()
        _, labels = connected_components(cut, directed=False)
        share = float(np.mean(labels == labels[0]))
        small = min(share, 1.0 - share)
        if small >= SMALLEST_SHARE:
            return Separation((small, 1.0 - small), float(tree.data[k]), step)
    return None
