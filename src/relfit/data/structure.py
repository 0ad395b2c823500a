"""How rows lie: in separate clusters, or in structure much finer than a kernel's bandwidth."""

from __future__ import annotations

from typing import Any

import numpy as np

from relfit.util.arrays import Array, host

# Rows that are looked at, evenly spaced.
_FINE_ROWS = 200
# Fractions of the bandwidth: neighbours at most as far apart as the first are close, and few may lie
# between the two. Smooth data in one dimension have 4 times as many neighbours within the second.
_CLOSE, _WIDE_AGAIN = 1.0 / 16.0, 1.0 / 4.0
# At least this fraction of the rows has a close neighbour, and at most this many times as many pairs
# are within the wider distance.
_MOST_ROWS, _NO_MORE = 0.5, 1.25
# Squared distances up to this fraction of the squared norms are those of equal rows.
_ROUNDING = 1e-12


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
