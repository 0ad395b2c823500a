"""Whether one column outweighs all others, so that distances between rows are distances in that column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.backends import host
from relfit.inputs import Data
from relfit.kernels import Kernel

Array = NDArray[np.float64]

# The share of the variance, within samples, from which a column is said to outweigh the others.
OUTWEIGHS = 0.95
# Of each sample so many numbers are looked at, in at most and at least so many rows.
_NUMBERS, _MOST_ROWS, _FEWEST_ROWS = 2**18, 1000, 20


def column_notes(data: Data, kernel: Kernel) -> tuple[str, ...]:
    """A sentence where one of several columns that vary holds nearly all of the variance and the kernel is radial.

    The quartiles must say so too: an outlier can hold a variance, but not a median distance.
    """
    if kernel.variable != "r2" or data.reference.shape[1] < 2:
        return ()
    samples = [rows for rows in (data.reference, *data.samples.values()) if len(rows)]
    unit = float(np.abs(_some(samples[0])).max()) or 1.0
    spreads = [_spreads(_some(rows) / unit) for rows in samples]
    variance, between, varies = (np.mean(part, axis=0) for part in zip(*spreads, strict=True))
    first, share = _largest_share(variance)
    if share <= OUTWEIGHS or not between[first] > OUTWEIGHS * between.sum() or np.count_nonzero(varies) < 2:
        return ()
    return (
        f"column {first} (counted from 0) holds {math.floor(1000.0 * share) / 10.0:g}% of the variance, so the kernel "
        "hardly sees the other columns; if their units are unlike, standardise the columns, all samples alike",
    )


def _some(rows: Any) -> Array:
    """Some rows of a sample, evenly spaced."""
    wanted = min(_MOST_ROWS, max(_FEWEST_ROWS, _NUMBERS // rows.shape[1]))
    return np.asarray(host(rows[:: max(1, len(rows) // wanted)]), dtype=np.float64)


def _spreads(rows: Array) -> tuple[Array, Array, Array]:
    """Of every column the variance, the squared distance between its quartiles, and whether it varies."""
    with np.errstate(over="ignore", invalid="ignore"):  # columns 1e154 times as large as the unit say nothing
        quartiles = np.subtract(*np.quantile(rows, (0.75, 0.25), axis=0))
        return rows.var(axis=0), quartiles**2, rows.min(axis=0) < rows.max(axis=0)


def _largest_share(parts: Array) -> tuple[int, float]:
    first, total = int(np.argmax(parts)), float(parts.sum())
    return first, float(parts[first]) / total if 0.0 < total < math.inf else 0.0
