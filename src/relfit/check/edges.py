"""Where the support of a density ends, beyond the data along each axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LogProbs = Callable[[Array], NDArray[Any]]

# How far beyond the data to look, in spans of the column.
_REACH = (0.01, 0.1, 1.0, 3.0)
_HALVINGS = 60


@dataclass(frozen=True)
class Edge:
    """The support ends at `place` in this column; log p there lies `drop` below its highest value at the data."""

    column: int
    place: float
    drop: float


def edges(log_prob: LogProbs, x: Array, log_probs: NDArray[Any]) -> list[Edge]:
    """Look along both ways of each axis from the row of highest density, and halve the way to where log p ends.

    >>> half_line = lambda x: np.where(x[:, 0] > 2.0, -x[:, 0], -np.inf)
    >>> x = np.array([[3.0], [4.0], [6.0]])
    >>> [(edge.column, round(edge.place, 6), round(edge.drop, 6)) for edge in edges(half_line, x, half_line(x))]
    [(0, 2.0, -1.0)]
    """
    d = x.shape[1]
    top = x[log_probs.argmax()]
    columns = np.repeat(np.arange(d), 2)
    span = np.ptp(x, axis=0)
    span = np.where(span > 0.0, span, np.abs(top) + 1.0)
    ends = np.stack([x.min(axis=0), x.max(axis=0)], axis=1).ravel()
    ways = np.tile([-1.0, 1.0], d) * span[columns]
    outside = np.full(2 * d, np.nan)
    for reach in _REACH:
        places = ends + reach * ways
        gone = ~np.isfinite(log_prob(_moved(top, columns, places)))
        outside = np.where(np.isnan(outside) & gone, places, outside)
    found = ~np.isnan(outside)
    if not found.any():
        return []
    columns = columns[found]
    places, heights = _halved(log_prob, top, columns, outside[found])
    drops = float(log_probs.max()) - heights
    unit = 1e-9 * span[columns]
    places = np.round(places / unit) * unit + 0.0
    return [Edge(int(k), float(place), float(drop)) for k, place, drop in zip(columns, places, drops, strict=True)]


def _halved(log_prob: LogProbs, top: Array, columns: NDArray[np.intp], outside: Array) -> tuple[Array, Array]:
    inside = top[columns]
    heights = np.full(len(columns), float(log_prob(top[None])[0]))
    for _ in range(_HALVINGS):
        middle = 0.5 * (inside + outside)
        here = log_prob(_moved(top, columns, middle)).astype(np.float64)
        in_support = np.isfinite(here)
        inside, outside = np.where(in_support, middle, inside), np.where(in_support, outside, middle)
        heights = np.where(in_support, here, heights)
    return inside, heights


def _moved(row: Array, columns: NDArray[np.intp], places: Array) -> Array:
    """Copies of the row, each with one column moved to its place."""
    rows = np.repeat(row[None], len(columns), axis=0)
    rows[np.arange(len(columns)), columns] = places
    return rows
