"""The plan of a fused kernel's launches: units of column tiles with runs of row tiles, every pair of rows once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Units = NDArray[np.int32]

# A unit's column sums are gathered in float32: over more tiles than this they would lose digits.
LONGEST_RUN = 256
SHORTEST_RUN = 16
# Enough units that the last ones do not leave a large device idle.
WANTED_UNITS = 16_384
# Column tiles that work on the same rows at a time: they find them in the cache.
NEIGHBOURS = 16


class Matrix(NamedTuple):
    """A kernel matrix in tiles; of a symmetric one those above the diagonal, of a paired one all but the diagonal."""

    rows: int
    columns: int
    symmetric: bool
    paired: bool
    height: int
    width: int


class Runs(NamedTuple):
    """Row tiles first … last − 1 of each column tile j."""

    j: Units
    first: Units
    last: Units


def units_of(matrix: Matrix) -> tuple[Units, Units]:
    """Units (j, first, last) of tiles inside the matrix, and of those at its edges or diagonal, which need a mask."""
    clear, masked = _runs(matrix)
    tiles = sum(int((run.last - run.first).clip(0).sum()) for run in (*clear, *masked))
    longest = int(np.clip(tiles // WANTED_UNITS, SHORTEST_RUN, LONGEST_RUN))
    return _cut(clear, longest), _cut(masked, longest)


def _runs(matrix: Matrix) -> tuple[list[Runs], list[Runs]]:
    """Clear and masked runs of every column tile: up to the diagonal, across it, beyond it, the last rows."""
    j = np.arange(-(-matrix.columns // matrix.width), dtype=np.int32)
    whole, tiles = matrix.rows // matrix.height, -(-matrix.rows // matrix.height)
    above = (j * matrix.width // matrix.height).clip(max=whole)
    below = (-(-((j + 1) * matrix.width) // matrix.height)).clip(max=tiles)
    ragged = (j + 1) * matrix.width > matrix.columns
    zero, end = np.zeros_like(j), np.full_like(j, tiles)
    if matrix.symmetric:
        above = np.where(ragged, 0, above)
        return [Runs(j, zero, above)], [Runs(j, above, below)]
    if not matrix.paired:
        above = below = np.full_like(j, whole)
    above = np.where(ragged, 0, above)
    below = np.where(ragged, tiles, below)
    after = np.maximum(below, np.where(ragged, tiles, whole))
    return [Runs(j, zero, above), Runs(j, below, after)], [Runs(j, above, below), Runs(j, after, end)]


def _cut(runs: list[Runs], longest: int) -> Units:
    parts = [_pieces(run, longest) for run in runs]
    units = np.concatenate(parts)
    order = np.lexsort((units[:, 0], units[:, 1], units[:, 0] // NEIGHBOURS))
    return np.ascontiguousarray(units[order], dtype=np.int32)


def _pieces(run: Runs, longest: int) -> Units:
    counts = -(-(run.last - run.first).clip(0) // longest)
    which = np.repeat(np.arange(len(run.j)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = run.first[which] + number * longest
    return np.stack([run.j[which], first, np.minimum(first + longest, run.last[which])], axis=1).astype(np.int32)
