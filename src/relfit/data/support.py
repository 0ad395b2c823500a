"""Where a density ends, and whether KSD can be used there.

KSD of the true model is 0 by integration by parts, whose boundary term is p times the kernel
at the edges of the support. It is not 0 where a density stops without vanishing and data lie
at the edge, as with an exponential or a uniform distribution. A density that vanishes at its
edge, or whose edge no data come near, has no such term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relfit.util.arrays import Array, Rows

LogProbs = Callable[[Array], NDArray[Any]]
# An edge: the column, the position, and the direction (-1 or 1) that leads out of the support.
Found = tuple[int, float, float]

_BISECTIONS = 60
# Data are near an edge if so many rows lie within so much of it, in units of the column's
# spread divided by the root of the number of rows: fewer change KSD² by far less than its
# standard error. At most half the spread.
_NEAR = 10.0
_NEAR_ROWS = 3
_NEAREST = 0.5
# A density that goes down like this power of the distance, or faster, vanishes at the edge for
# KSD. Of true gamma densities x^a exp(-x) none was found worse more often than alpha from a =
# 0.2 on; at a = 0.05 half of them were.
_POWER = 0.25
# The distances from the edge at which the power is measured, in units of the column's spread.
_FAR_STEP = 1e-4
_NEAR_STEP = 1e-6
# The columns up to which each is searched by itself, without looking at the corners of the data
# first.
_COLUMNS = 20
# The rows of files that are read, and those of which one is the centre.
_SPREAD_ROWS = 4000
_CENTRAL_ROWS = 200


@dataclass(frozen=True)
class Support:
    """What is declared about where a density is positive: between bounds of each column
    (numbers or (d,)).

    `discrete`: the density is that of whole numbers or other points, a probability mass
    function.
    """

    lower: Any = -np.inf
    upper: Any = np.inf
    discrete: bool = False

    @property
    def whole(self) -> bool:
        """True for the whole space."""
        return bool(np.isneginf(self.lower).all() and np.isposinf(self.upper).all())


WHOLE = Support()


@dataclass(frozen=True)
class Edge:
    """The end of a support along a column.

    Attributes:
        column, position: where it is.
        vanishes: the density goes to 0 there, fast enough for KSD.
        near: there are data near it.
    """

    column: int
    position: float
    vanishes: bool
    near: bool

    @property
    def kind(self) -> Literal["vanishes", "far", "harmful"]:
        """What the edge means for KSD: at a harmful one even the true model would be found
        worse.
        """
        if self.vanishes:
            return "vanishes"
        return "harmful" if self.near else "far"

    def place(self, columns: int) -> str:
        """The position, and the column if there are several."""
        return f"{self.position:.6g}" + (f" in column {self.column}" if columns > 1 else "")


class Extent:
    """Where the rows (n, d) lie, as far as edges are concerned; computed when it is first
    needed.
    """

    def __init__(self, x: Array) -> None:
        self.x = x

    @cached_property
    def lows(self) -> Array:
        return np.asarray(self.x.min(axis=0))

    @cached_property
    def highs(self) -> Array:
        return np.asarray(self.x.max(axis=0))

    @cached_property
    def spreads(self) -> Array:
        """(d,) the standard deviation of a normal distribution with these quartiles; 0 for a
        constant column.
        """
        low, high = np.quantile(
            self.x[:: max(1, len(self.x) // _SPREAD_ROWS)], [0.25, 0.75], axis=0
        )
        spreads = (high - low) / 1.349
        for column in np.flatnonzero(~(high > low)):
            spreads[column] = self.x[:, column].std()
        return np.asarray(spreads)

    @cached_property
    def reach(self) -> Array:
        """(d,) the distance within which rows are near an edge."""
        return np.asarray(min(_NEAREST, _NEAR / np.sqrt(len(self.x))) * self.spreads)

    @cached_property
    def centre(self) -> Array:
        """The row closest to the medians of the columns, of some."""
        some = self.x[:: max(1, len(self.x) // _CENTRAL_ROWS)]
        gaps = np.abs(some - np.median(some, axis=0)) / np.where(
            self.spreads > 0.0, self.spreads, 1.0
        )
        return np.asarray(some[gaps.sum(axis=1).argmin()])

    def is_near(self, column: int, position: float) -> bool:
        gaps = np.abs(self.x[:, column] - position)
        return int((gaps <= self.reach[column]).sum()) >= _NEAR_ROWS


def harmful_edge(
    log_prob: LogProbs, support: Support | None, extent: Extent, *, rows: int = 0
) -> Edge | None:
    """An edge of the density at which KSD cannot be used with these rows; None if there is
    none, or it cannot be told.

    A declared support is compared with the rows first. Without one, log_prob is evaluated at
    two points for each column just beyond the data, or only beyond two corners of many
    columns. `rows`: the fewest rows of every call, for functions that are compiled for a
    number of rows.

    >>> half_line = lambda x: np.where(x[:, 0] > 0.0, -x[:, 0], -np.inf)
    >>> x = np.random.default_rng(0).exponential(size=(200, 1))
    >>> harmful_edge(half_line, None, Extent(x))
    Edge(column=0, position=0.0, vanishes=False, near=True)
    >>> harmful_edge(half_line, None, Extent(x + 5.0)) is None
    True
    """
    if support is not None and (support.whole or support.discrete):
        return None
    try:
        with np.errstate(all="ignore"):
            return _harmful_edge(_padded(log_prob, rows), support, extent)
    # A function that accepts only the rows it was made for can raise anything.
    except Exception:  # noqa: BLE001
        return None


def edges(
    log_prob: LogProbs, top: Array, lows: Array, highs: Array, reaches: Any
) -> list[Found]:
    """Where the support ends along the axes.

    From the row `top` each axis is searched in both directions, by bisection, up to the
    given distances beyond the lows and highs of the columns: each is one number, or one for
    each column.

    >>> half_line = lambda x: np.where(x[:, 0] > 2.0, -x[:, 0], -np.inf)
    >>> ((column, position, outward),) = edges(
    ...     half_line, *np.array([[3.0], [3.0], [6.0]]), [9.0]
    ... )
    >>> column, round(position, 6), outward
    (0, 2.0, -1.0)
    """
    d = len(top)
    columns = np.repeat(np.arange(d), 2)
    outwards = np.tile([-1.0, 1.0], d)
    ends = np.stack([lows, highs], axis=1).ravel()
    outside = np.full(2 * d, np.nan)
    for reach in reaches:
        positions = ends + outwards * np.broadcast_to(reach, d)[columns]
        beyond = ~np.isfinite(_along(log_prob, top, columns, positions))
        outside = np.where(np.isnan(outside) & beyond, positions, outside)
    ended = ~np.isnan(outside)
    if not ended.any():
        return []
    columns = columns[ended]
    outwards = outwards[ended]
    outside = outside[ended]
    inside = top[columns]
    for _ in range(_BISECTIONS):
        middle = 0.5 * (inside + outside)
        in_support = np.isfinite(_along(log_prob, top, columns, middle))
        inside = np.where(in_support, middle, inside)
        outside = np.where(in_support, outside, middle)
    return list(zip(columns.tolist(), inside.tolist(), outwards.tolist(), strict=True))


def described_edge(log_prob: LogProbs, found: Found, top: Array, extent: Extent) -> Edge:
    """The edge that was found along a column from the row `top`, and what it means for KSD."""
    column, position, _ = found
    vanishes = _vanishes(log_prob, found, top, extent)
    near = extent.is_near(column, position)
    unit = 1e-9 * (float(extent.spreads[column]) or 1.0)
    return Edge(column, round(position / unit) * unit + 0.0, vanishes, near)


def _harmful_edge(log_prob: LogProbs, support: Support | None, extent: Extent) -> Edge | None:
    found = (
        _declared_edges(support, extent) if support is not None else _searched(log_prob, extent)
    )
    described = (described_edge(log_prob, each, extent.centre, extent) for each in found)
    return next((edge for edge in described if edge.kind == "harmful"), None)


def _declared_edges(support: Support, extent: Extent) -> list[Found]:
    """The finite bounds that rows are near."""
    d = len(extent.lows)
    found = list[Found]()
    for bounds, outward in ((support.lower, -1.0), (support.upper, 1.0)):
        positions = np.broadcast_to(np.asarray(bounds, dtype=np.float64), d)
        for column in np.flatnonzero(np.isfinite(positions)).tolist():
            position = float(positions[column])
            found += [(column, position, outward)] if extent.is_near(column, position) else []
    return found


def _searched(log_prob: LogProbs, extent: Extent) -> list[Found]:
    """The edges just beyond the data, along the axes from the central row."""
    top = extent.centre
    reach = extent.reach
    if len(top) > _COLUMNS:
        corners = np.stack([extent.lows - reach, extent.highs + reach])
        if np.isfinite(log_prob(corners)).all():
            return []
    found = edges(log_prob, top, extent.lows, extent.highs, [reach])
    return found if found and np.isfinite(log_prob(top[None])).all() else []


def _vanishes(log_prob: LogProbs, found: Found, top: Array, extent: Extent) -> bool:
    """True if p goes down like a power of the distance to the edge, or is tiny there
    compared with the highest row.
    """
    column, position, outward = found
    # Far from 0 smaller steps than these could not be told from none.
    smallest = 1e4 * np.finfo(np.float64).eps * abs(position)
    spread = float(extent.spreads[column]) or abs(position) or 1.0
    steps = np.maximum(
        np.array([_FAR_STEP, _NEAR_STEP]) * spread, smallest * np.array([100.0, 1.0])
    )
    positions = np.append(position - outward * steps, top[column])
    far, near, highest = _along(log_prob, top, np.full(3, column), positions)
    if not np.isfinite(near):
        return bool(np.isneginf(near))
    power = (far - near) / np.log(steps[0] / steps[1])
    return bool(power >= _POWER or highest - near >= 0.5 * np.log(len(extent.x)) + 1.0)


def _along(log_prob: LogProbs, top: Array, columns: Rows, positions: Array) -> Array:
    """log p at copies of the top row, each with one column moved to its position."""
    rows = np.repeat(top[None], len(columns), axis=0)
    rows[np.arange(len(columns)), columns] = positions
    return np.asarray(log_prob(rows), dtype=np.float64)


def _padded(log_prob: LogProbs, count: int) -> LogProbs:
    """The function with at least so many rows in every call: the first one is repeated."""

    def padded(x: Array) -> NDArray[Any]:
        more = max(0, count - len(x))
        return log_prob(np.concatenate([x, np.repeat(x[:1], more, axis=0)]))[: len(x)]

    return padded if count else log_prob
