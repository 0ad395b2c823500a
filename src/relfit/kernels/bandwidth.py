"""The median distance, the default bandwidth."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist

from relfit.errors import InputError
from relfit.kernels.base import Array


def median_distance(points: Array) -> float:
    """The median pairwise distance of the rows (s, d) of an already drawn subsample.

    With many repeated rows the median is 0; then it is the mean distance of the distinct pairs. Rows
    that all coincide are refused.
    """
    scale = float(np.abs(points).max()) or 1.0
    # Scaled so that squares neither overflow nor vanish for data of size 1e±300.
    distances = _pairwise_distances(points / scale)
    if not distances.size or distances.max() == 0.0:
        raise InputError("reference and models: expected at least two distinct rows, all pooled rows coincide")
    middle = float(np.median(distances))
    return scale * (middle if middle > 0.0 else float(distances[distances > 0.0].mean()))


def _pairwise_distances(rows: Array) -> Array:
    if rows.shape[1] <= 64:
        return np.asarray(pdist(rows))
    norms = np.einsum("ij,ij->i", rows, rows)
    upper = np.triu(np.ones((len(rows), len(rows)), dtype=bool), 1)
    total = (norms[:, None] + norms)[upper]
    squares = total - 2.0 * (rows @ rows.T)[upper]
    # Equal rows must be at distance 0 exactly, or atoms are not seen through the rounding.
    near = np.flatnonzero(squares <= 1e-12 * total)
    first, second = (index[near] for index in np.nonzero(upper))
    squares[near] = np.square(rows[first] - rows[second]).sum(axis=1)
    return np.asarray(np.sqrt(squares))
