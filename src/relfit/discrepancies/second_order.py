"""The second-order part of a complete estimate's covariance, from some of its pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
PairValues = Callable[[Rows, Rows], Array]

# Enough for a share that is compared with 0.3, and for a correction: docs/estimators.md has the simulation.
PAIRS_PER_ROW, MOST_PAIRS = 20, 5_000
# Numbers fetched for one chunk of them: near the processor.
CHUNK_NUMBERS = 2**16


def drawn_pairs(rows: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Pairs a ≠ b of n rows drawn at random, with replacement."""
    count = min(PAIRS_PER_ROW * rows, MOST_PAIRS)
    a = rng.integers(rows, size=count)
    return a, (a + rng.integers(1, rows, size=count)) % rows


def second_order(rows: int, width: int, values: PairValues, rng: np.random.Generator) -> Array:
    """C/M (l, l), with C the covariance of the values (pairs, l) of drawn pairs, M = n(n−1)/2 the number of all.

    `width` is how many numbers a row has, with all that belongs to it: few rows are taken at once where they are long.
    """
    a, b = drawn_pairs(rows, rng)
    size = max(16, CHUNK_NUMBERS // width)
    starts = range(0, len(a), size)
    return second_order_of(np.concatenate([values(a[k : k + size], b[k : k + size]) for k in starts]), rows)


def second_order_of(h: Array, rows: int) -> Array:
    """C/M (l, l) from the values h (pairs, l)."""
    spread = np.cov(h.T).reshape(h.shape[1], h.shape[1])
    return np.asarray(spread / (rows * (rows - 1) / 2))
