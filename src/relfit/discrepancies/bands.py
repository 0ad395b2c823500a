"""Values of the pairs (a, a+1), …, (a, a+R) of rows: a band of a kernel matrix, by small matrix products.

Differences of rows, pair by pair, would read 2d numbers for every pair; in a product of eight rows with the rows
that follow them, each row is read once for all of its pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray

from relfit.backends import NumpyBackend, Points, Weight
from relfit.kernels import Kernel

Array = NDArray[np.float64]

# Rows multiplied at once: more would evaluate many pairs outside the band, fewer would leave BLAS idle.
STEP = 8


class Part(NamedTuple):
    """The pairs (a, a+r), first ≤ a < last, r = 1..lags, of a window of rows that holds last + lags of them."""

    first: int
    last: int
    lags: int


BandValues = Callable[[Part], Array]
"""The values h_i of the pairs of a part, for each model: (l, last−first, lags)."""


def mmd_values(kernel: Kernel) -> Callable[[Sequence[Array]], BandValues]:
    """``h_i = k(x,x') + k(r,r') − k(x,r') − k(x',r)`` in windows that hold the reference's rows, then each model's."""

    def of_window(window: Sequence[Array]) -> BandValues:
        reference, *models = (_prepared(kernel, rows) for rows in window)

        def values(part: Part) -> Array:
            def k(x: _Window, y: _Window) -> Array:
                return x.weights(y, part, ("phi",))[0]

            within = k(reference, reference)
            found = np.empty((len(models), *within.shape))
            for out, x in zip(found, models, strict=True):
                np.add(k(x, x), within, out=out)
                out -= k(x, reference)
                out -= k(reference, x)
            return found

        return values

    return of_window


def ksd_values(kernel: Kernel) -> Callable[[Sequence[Array]], BandValues]:
    """``u_i = φ s·s' − 2φ'(x−x')·(s−s') − 2dφ' − 4r²φ''`` in windows that hold rows, then each model's scores there."""

    def of_window(window: Sequence[Array]) -> BandValues:
        rows, *scores = window
        x = _prepared(kernel, rows)
        if kernel.tilt is not None:
            scores = [s + kernel.tilt.gradient(rows) for s in scores]
        return (_radial if x.kernel.unit_rate is None else _gaussian)(x, rows, scores)

    return of_window


def _gaussian(x: _Window, rows: Array, scores: Sequence[Array]) -> BandValues:
    """With φ' = −γφ, v = s − 2γx and c = 2γ s·x − 2γ²‖x‖² + dγ: ``u = φ (v·v' + c + c' − 2γ² r²)``."""
    gamma = -(x.kernel.unit_rate or 0.0) / x.kernel.length**2
    shared = rows.shape[1] * gamma - 2.0 * gamma**2 * np.einsum("ij,ij->i", rows, rows)
    sides = [
        _with_sums(s - 2.0 * gamma * rows, s - 2.0 * gamma * rows, 2.0 * gamma * _dots(s, rows) + shared)
        for s in scores
    ]

    def values(part: Part) -> Array:
        exponent = x.argument(x, part)  # −γr²
        phi = x.tilted(x, part, np.exp(exponent))
        exponent *= 2.0 * gamma
        found = np.empty((len(sides), *phi.shape))
        for out, side in zip(found, sides, strict=True):
            np.add(products(*side, part), exponent, out=out)
            out *= phi
        return found

    return values


def _radial(x: _Window, rows: Array, scores: Sequence[Array]) -> BandValues:
    """Any radial kernel: s·s' is one product, and −(x−x')·(s−s') = x·s' + s·x' − x·s − x'·s' another."""
    sides = [_with_sums(np.hstack([rows, s]), np.hstack([s, rows]), -_dots(rows, s)) for s in scores]

    def values(part: Part) -> Array:
        phi, dphi, r2ddphi = x.weights(x, part, ("phi", "dphi", "r2ddphi"))
        trace = -2.0 * rows.shape[1] * dphi - 4.0 * r2ddphi
        dphi = 2.0 * dphi
        found = np.empty((len(sides), *phi.shape))
        for out, s, side in zip(found, scores, sides, strict=True):
            np.multiply(products(s, s.T, part), phi, out=out)
            out += products(*side, part) * dphi
            out += trace
        return found

    return values


def _with_sums(left: Array, right: Array, own: Array) -> tuple[Array, Array]:
    """Sides whose products are left_a·right_b + own_a + own_b."""
    ones = np.ones(len(own))
    return np.column_stack([left, own, ones]), np.column_stack([right, ones, own]).T


def _dots(x: Array, y: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", x, y))


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
class _Window:
    """Rows prepared for one kernel, without its weight; `tilt` (n,) is that weight, if it has one."""

    kernel: Kernel
    rows: Array
    points: Points
    tilt: Array | None

    def argument(self, other: _Window, part: Part) -> Array:
        """What φ is a function of, or the exponent where φ is an exponential of r²."""
        if self.points.by_differences or other.points.by_differences:
            return self._by_differences(other, part)
        t = products(self.points.left, other.points.right, part)
        return t if self.kernel.variable == "dot" or self.kernel.unit_rate is not None else np.maximum(t, 0.0, out=t)

    def weights(self, other: _Window, part: Part, which: Sequence[Weight]) -> tuple[Array, ...]:
        """The asked-for functions of the pairs (x_a, y_{a+r})."""
        t = self.argument(other, part)
        found = self.kernel.weights(t, which) if self.kernel.unit_rate is None else (np.exp(t, out=t),)
        return tuple(self.tilted(other, part, w) for w in found)

    def tilted(self, other: _Window, part: Part, values: Array) -> Array:
        """The values times w(x_a) w(y_{a+r}), where there is a weight."""
        if self.tilt is None or other.tilt is None:
            return values
        return np.asarray(values * self.tilt[part.first : part.last, None] * _partners(other.tilt, part))

    def _by_differences(self, other: _Window, part: Part) -> Array:
        """The same pair by pair, for rows too far out for products of them to keep their digits."""
        first, last, lags = part
        rate = self.kernel.unit_rate
        unit = 1.0 if rate is None else self.kernel.length
        gaps = ((self.rows[first:last] - other.rows[first + r : last + r]) / unit for r in range(1, lags + 1))
        r2 = np.stack([np.einsum("ij,ij->i", gap, gap) for gap in gaps], axis=1)
        return r2 if rate is None else rate * r2


def _prepared(kernel: Kernel, rows: Array) -> _Window:
    plain = kernel.untilted
    tilt = None if kernel.tilt is None else kernel.tilt.weights(rows)
    return _Window(plain, rows, NumpyBackend().points(plain, rows), tilt)
