"""Small drawings as SVG paths. Colours are classes, so that the page's light and dark style can set them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from contourpy import FillType, contour_generator
from numpy.typing import NDArray

from relfit.evidence import Landscape
from relfit.evidence.landscape import CLEAR
from relfit.report.ticks import Scale

Array = NDArray[np.float64]

# Steps of colour to either side; squared, so that small differences are told apart too.
STEPS = 5
WIDTH, HEIGHT = 240.0, 200.0
LINE_HEIGHT = 110.0


@dataclass(frozen=True)
class Tick:
    """A mark at `at` (drawing units) with its text."""

    at: float
    label: str


@dataclass(frozen=True)
class Drawing:
    """One landscape: paths by colour class, points, ticks. The template puts them into an ``<svg>``."""

    name: str
    labels: tuple[str, ...]
    width: float
    height: float
    bands: tuple[tuple[str, str], ...]
    unclear: str
    points: str
    line: str
    zero: float | None
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def drawing(landscape: Landscape, largest: float) -> Drawing:
    """The landscape with colours for differences up to `largest`."""
    return _plane(landscape, largest) if len(landscape.grid) == 2 else _curve(landscape, largest)


def colour_steps(largest: float) -> list[float]:
    """Where the colours change: (k/5)² of the largest difference."""
    return [largest * (k / STEPS) ** 2 for k in range(STEPS + 1)]


def largest_difference(landscapes: Sequence[Landscape]) -> float:
    """The largest difference that is clear of its noise; 0 if none is."""
    return max((float(np.abs(each.values[each.clear]).max(initial=0.0)) for each in landscapes), default=0.0)


def _plane(landscape: Landscape, largest: float) -> Drawing:
    scales = _scales(landscape)
    x = np.array([scales[0].at(v) for v in landscape.grid[0]]) * WIDTH / 100.0
    y = HEIGHT - np.array([scales[1].at(v) for v in landscape.grid[1]]) * HEIGHT / 100.0
    bands = []
    if largest > 0.0:
        steps = colour_steps(largest)
        for sign, letter in ((1.0, "p"), (-1.0, "n")):
            fields = contour_generator(x, y, sign * landscape.values, fill_type=FillType.OuterOffset)
            for k in range(1, STEPS + 1):
                top = steps[k] if k < STEPS else np.inf
                bands.append((f"{letter}{k}", _filled(fields, steps[k - 1], top)))
    noise = np.divide(
        np.abs(landscape.values),
        landscape.errors,
        where=landscape.errors > 0.0,
        out=np.full_like(landscape.values, 9.0),
    )
    unclear = _filled(contour_generator(x, y, noise, fill_type=FillType.OuterOffset), -1.0, CLEAR)
    return Drawing(
        name=landscape.name,
        labels=landscape.labels,
        width=WIDTH,
        height=HEIGHT,
        bands=tuple((name, path) for name, path in bands if path),
        unclear=unclear,
        points=_points(landscape.points, scales),
        line="",
        zero=None,
        x_ticks=_ticks(scales[0], WIDTH),
        y_ticks=tuple(Tick(HEIGHT - tick.at, tick.label) for tick in _ticks(scales[1], HEIGHT)),
    )


def _curve(landscape: Landscape, largest: float) -> Drawing:
    (grid,), values = landscape.grid, landscape.values
    across = Scale(float(grid[0]), float(grid[-1]))
    reach = max(largest, float(np.abs(values).max(initial=0.0))) or 1.0
    upright = Scale(-1.05 * reach, 1.05 * reach)
    x = np.array([across.at(v) for v in grid]) * WIDTH / 100.0

    def height(v: Array) -> Array:
        return LINE_HEIGHT - np.array([upright.at(float(a)) for a in v]) * LINE_HEIGHT / 100.0

    zero = float(height(np.zeros(1))[0])
    spread = CLEAR * landscape.errors
    band = _polygon(np.concatenate([x, x[::-1]]), np.concatenate([height(spread), height(-spread)[::-1]]))
    ends, shown = x[[0, -1]], np.where(landscape.clear, values, 0.0)
    bands = [
        (name, _polygon(np.concatenate([ends[:1], x, ends[1:]]), np.concatenate([[zero], height(side), [zero]])))
        for name, side in (("p4", np.maximum(shown, 0.0)), ("n4", np.minimum(shown, 0.0)))
    ]
    marks = np.array([across.at(float(v)) for v in landscape.points[:, 0]]) * WIDTH / 100.0
    return Drawing(
        name=landscape.name,
        labels=landscape.labels,
        width=WIDTH,
        height=LINE_HEIGHT,
        bands=tuple(bands),
        unclear=band,
        points="".join(f"M{m:.1f} {LINE_HEIGHT - 3:.0f}h0" for m in marks),
        line=_open(x, height(values)),
        zero=zero,
        x_ticks=_ticks(across, WIDTH),
        y_ticks=tuple(Tick(LINE_HEIGHT - tick.at, tick.label) for tick in _ticks(upright, LINE_HEIGHT, 5)),
    )


def _scales(landscape: Landscape) -> tuple[Scale, ...]:
    return tuple(Scale(float(axis[0]), float(axis[-1])) for axis in landscape.grid)


def _ticks(scale: Scale, length: float, most: int = 4) -> tuple[Tick, ...]:
    return tuple(Tick(round(at * length / 100.0, 1), label) for at, label in scale.labels(most))


def _points(points: Array, scales: Sequence[Scale]) -> str:
    inside = [row for row in points if all(s.low <= v <= s.high for v, s in zip(row, scales, strict=True))]
    return "".join(
        f"M{scales[0].at(a) * WIDTH / 100.0:.1f} {HEIGHT - scales[1].at(b) * HEIGHT / 100.0:.1f}h0" for a, b in inside
    )


def _filled(fields: object, low: float, high: float) -> str:
    polygons, offsets = fields.filled(low, high)  # type: ignore[attr-defined]
    return "".join(
        _polygon(polygon[a:b, 0], polygon[a:b, 1])
        for polygon, cuts in zip(polygons, offsets, strict=True)
        for a, b in itertools.pairwise(cuts)
    )


def _polygon(x: Array, y: Array) -> str:
    return f"{_open(x, y)}z"


def _open(x: Array, y: Array) -> str:
    corners = [f"{a:.1f} {b:.1f}".replace(".0 ", " ").removesuffix(".0") for a, b in zip(x, y, strict=True)]
    kept = [corner for k, corner in enumerate(corners) if k == 0 or corner != corners[k - 1]]
    return "M" + "L".join(kept)
