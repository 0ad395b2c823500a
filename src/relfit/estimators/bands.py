"""Values of the pairs (a, a+1), …, (a, a+R) of rows: a band of a kernel matrix, by small matrix products.

Differences of rows, pair by pair, would read 2d numbers for every pair; in a product of eight rows with the rows that
follow them, each row is read once for all of its pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from relfit.compute.backend import NumpyBackend, Points
from relfit.kernels.base import Kernel, Weight
from relfit.util.arrays import Array

# Rows multiplied at once: more would evaluate many pairs outside the band, fewer would leave BLAS idle.
STEP = 8


class Part(NamedTuple):
    """The pairs (a, a+r), first ≤ a < last, r = 1..lags, of a window of rows that holds last + lags of them."""

    first: int
    last: int
    lags: int


BandValues = Callable[[Part], Array]
"""The values h_i of the pairs of a part, for each model: (l, last−first, lags)."""


def products(left: Array, right: Array, part: Part) -> Array:
    """``left_a · right_{a+r}``: (last−first, lags), from left (n, c) and right (c, n).

    >>> x = np.arange(4.0)[:, None]
    >>> products(x, x.T, Part(0, 2, 2))
    array([[0., 0.],
           [2., 3.]])
    """
    first, last, lags = part
    whole = (last - first) // STEP * STEP
    out = np.empty((last - first, lags))
    if whole:
        few = left[first : first + whole].reshape(-1, STEP, left.shape[1])
        many = sliding_window_view(right[:, first + 1 : first + whole + lags], STEP + lags - 1, axis=1)[:, ::STEP]
        out[:whole] = _diagonals(few @ many.transpose(1, 0, 2), lags).reshape(whole, lags)
    if first + whole < last:
        rest = left[first + whole : last] @ right[:, first + whole + 1 : last + lags]
        out[whole:] = _diagonals(rest[None], lags)[0]
    return out


def _partners(values: Array, part: Part) -> Array:
    """``v_{a+r}``: (last−first, lags), from v (n,)."""
    return sliding_window_view(values[part.first + 1 : part.last + part.lags], part.lags)


def _diagonals(tiles: Array, lags: int) -> Array:
    """Row i of each tile (groups, rows, rows+lags−1) from its column i on: (groups, rows, lags)."""
    group, row, column = tiles.strides
    return as_strided(tiles, (*tiles.shape[:2], lags), (group, row + column, column), writeable=False)


@dataclass(frozen=True)
class BandRows:
    """Rows prepared for one kernel, without its weight; `tilt` (n,) is that weight, if it has one."""

    kernel: Kernel
    rows: Array
    points: Points
    tilt: Array | None

    def argument(self, other: BandRows, part: Part) -> Array:
        """What φ is a function of, or the exponent where φ is an exponential of r²."""
        if self.points.by_differences or other.points.by_differences:
            return self._by_differences(other, part)
        t = products(self.points.left, other.points.right, part)
        return t if self.kernel.variable == "dot" or self.kernel.unit_rate is not None else np.maximum(t, 0.0, out=t)

    def weights(self, other: BandRows, part: Part, which: Sequence[Weight]) -> tuple[Array, ...]:
        """The asked-for functions of the pairs (x_a, y_{a+r})."""
        t = self.argument(other, part)
        weights = self.kernel.weights(t, which) if self.kernel.unit_rate is None else (np.exp(t, out=t),)
        return tuple(self.tilted(other, part, w) for w in weights)

    def tilted(self, other: BandRows, part: Part, values: Array) -> Array:
        """The values times w(x_a) w(y_{a+r}), where there is a weight."""
        if self.tilt is None or other.tilt is None:
            return values
        return np.asarray(values * self.tilt[part.first : part.last, None] * _partners(other.tilt, part))

    def _by_differences(self, other: BandRows, part: Part) -> Array:
        """The same pair by pair, for rows too far out for products of them to keep their digits."""
        first, last, lags = part
        rate = self.kernel.unit_rate
        unit = 1.0 if rate is None else self.kernel.length
        gaps = ((self.rows[first:last] - other.rows[first + r : last + r]) / unit for r in range(1, lags + 1))
        r2 = np.stack([np.einsum("ij,ij->i", gap, gap) for gap in gaps], axis=1)
        return r2 if rate is None else rate * r2


def band_rows(kernel: Kernel, rows: Array) -> BandRows:
    """Rows prepared for one kernel."""
    plain = kernel.untilted
    tilt = None if kernel.tilt is None else kernel.tilt.weights(rows)
    return BandRows(plain, rows, NumpyBackend().points(plain, rows), tilt)
