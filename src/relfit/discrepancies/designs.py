"""Which pairs of rows are used. The complete design is built into `mmd` and `ksd`; here are the cheaper ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies.psi import Estimates, Psi

Array = NDArray[np.float64]
PairValues = Callable[[NDArray[np.intp], NDArray[np.intp]], Array]

# Pairs evaluated at once: bounds the temporaries to a few megabytes per model.
PAIR_CHUNK = 16_384


def linear(rows: int, pair_values: PairValues, progress: Callable[[int, int], None] | None = None) -> Estimates:
    """The linear-time estimate from the disjoint pairs (0,1), (2,3), …; an odd last row is left out.

    ``D = mean h`` over the M = ⌊n/2⌋ pairs and ``V = cov(h)/M``: O(n) kernel evaluations.
    """
    pairs = rows // 2
    parts = []
    for start in range(0, pairs, PAIR_CHUNK):
        first = 2 * np.arange(start, min(start + PAIR_CHUNK, pairs))
        parts.append(pair_values(first, first + 1))
        if progress is not None:
            progress(start + len(first), pairs)
    h = np.concatenate(parts)
    values = h.mean(axis=0)
    return Estimates(values, Psi(h - values))
