"""Whether one column outweighs all others, so that distances between rows are distances in that column."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from relfit.backends import host
from relfit.inputs import Data
from relfit.kernels import Kernel

Array = NDArray[np.float64]

# The share of the variance, within samples, from which a column is said to outweigh the others.
OUTWEIGHS = 0.95
# Rows of each sample that are looked at.
_ROWS = 1000


def column_notes(data: Data, kernel: Kernel) -> tuple[str, ...]:
    """A sentence where one of several columns that vary holds nearly all of the variance and the kernel is radial.

    The quartiles must say so too: an outlier can hold a variance, but not a median distance.
    """
    if kernel.variable != "r2" or data.reference.shape[1] < 2:
        return ()
    samples = [rows for rows in (data.reference, *data.samples.values()) if len(rows)]
    drawn = [np.asarray(host(rows[:: max(1, len(rows) // _ROWS)]), dtype=np.float64) for rows in samples]
    # Squares of numbers of any size stay within float64.
    largest = max(float(np.abs(rows).max()) for rows in drawn) or 1.0
    drawn = [rows / largest for rows in drawn]
    variance = np.mean([rows.var(axis=0) for rows in drawn], axis=0)
    first, share = _largest_share(variance)
    if share <= OUTWEIGHS or _quartile_share(drawn, first) <= OUTWEIGHS or _varying(drawn) < 2:
        return ()
    return (
        f"column {first} (counted from 0) holds {math.floor(1000.0 * share) / 10.0:g}% of the variance, so the kernel "
        "hardly sees the other columns; if their units are unlike, standardise the columns, all samples alike",
    )


def _largest_share(parts: Array) -> tuple[int, float]:
    first, total = int(np.argmax(parts)), float(parts.sum())
    return first, float(parts[first]) / total if total > 0.0 else 0.0


def _quartile_share(samples: list[Array], column: int) -> float:
    """The share of one column in the sum of squared distances between quartiles."""
    squares = np.mean([np.subtract(*np.quantile(rows, (0.75, 0.25), axis=0)) ** 2 for rows in samples], axis=0)
    return float(squares[column]) / (float(squares.sum()) or 1.0)


def _varying(samples: list[Array]) -> int:
    """How many columns are not constant in every sample."""
    return int(np.count_nonzero(np.any([rows.min(axis=0) < rows.max(axis=0) for rows in samples], axis=0)))
