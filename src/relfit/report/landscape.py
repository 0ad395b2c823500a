"""Where the models and the data differ: a picture over one or two axes for each model, and the same in words.

`landscape` computes a picture, `drawing` turns it into SVG paths, `where` gathers the page's panel. Colours are
classes, so that the page's light and dark style can set them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from contourpy import FillType, contour_generator
from numpy.typing import NDArray

from relfit.kernels.standard import Gaussian
from relfit.report.figures import Scale, signed
from relfit.report.recall import Recalled, View, chosen_view, plain_view
from relfit.report.text import number_format
from relfit.report.witness import Differing, Heights, Side, differing_rows, witness
from relfit.results.comparison import Comparison
from relfit.util.arrays import Array

GRID = {1: 241, 2: 61}
# Rows that are drawn.
MOST_POINTS = 300
# Space around the data, and the width that rows are smoothed by, as parts of the frame.
_MARGIN, _SMOOTHING = 0.06, 0.07
# Rows that must have a part in a smoothed value; with fewer its error grows quickly.
_FEWEST_ROWS = 3.0
# A difference is clear of its noise from so many standard errors on: a picture has many places to err at.
CLEAR = 3.5
# The quantiles of the rows along an axis that fix the frame: one outlier must not shrink the picture.
_FRAME = (0.005, 0.995)
# Steps of colour to either side; squared, so that small differences are told apart too.
STEPS = 5
WIDTH, HEIGHT, LINE_HEIGHT = 240.0, 200.0, 110.0
# Pictures of more models are left out, from the middle of the table.
MOST_MODELS = 6
_PLACES = 3


@dataclass(frozen=True)
class Landscape:
    """The difference between one model and the data over a grid.

    Attributes:
        name, kind: as in `Differing`.
        view: the axes.
        grid: the coordinates along each axis.
        values, errors: (g,) or (g, g), second axis first.
        points: (k, 1 or 2) reference rows, or the model's where the reference is a density.
    """

    name: str
    kind: str
    view: View
    grid: tuple[Array, ...]
    values: Array
    errors: Array
    points: Array

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Where the difference is more than 3.5 times its standard error."""
        return np.asarray(np.abs(self.values) > CLEAR * self.errors)


def landscape(recalled: Recalled, differing: Differing) -> Landscape:
    """The picture of one model.

    MMD, one or two columns: the witness function itself. More columns: rows are projected onto two of the pooled
    rows' main axes, chosen for this model on every other row; the picture is made from the rows in between, and shows
    the witness of a Gaussian kernel in that plane (a difference of smoothed densities). KSD: the rows' contributions,
    averaged around each point.
    """
    view, sample, reference = _view(recalled, differing)
    # Pictures over the same axes have the same frame.
    shared = differing.kind == "slope" or not view.projected
    grid = _grid(view.of(recalled.pooled if shared else np.concatenate([sample, reference])))
    if differing.kind == "slope":
        heights = _smoothed(grid, differing, view)
    elif view.projected:
        heights = _projected(grid, view.of(sample), view.of(reference))
    else:
        heights = witness(_points(grid), sample, reference, recalled.kernel)
    shape = tuple(len(axis) for axis in grid[::-1])
    values, errors = heights.values.reshape(shape), heights.errors.reshape(shape)
    points = view.of(_some(differing.sides[-1].rows))
    return Landscape(differing.name, differing.kind, view, grid, values, errors, points)


def _view(recalled: Recalled, differing: Differing) -> tuple[View, Array, Array]:
    """The axes, and the rows of the model and of the reference that the picture is made from."""
    sample, reference = differing.sides[0].rows, differing.sides[-1].rows
    if sample.shape[1] <= 2:
        return plain_view(sample.shape[1]), sample, reference
    if differing.kind == "slope":
        return recalled.main_axes.view(), sample, reference
    return chosen_view(recalled.main_axes, sample[::2], reference[::2]), sample[1::2], reference[1::2]


def _some(rows: Array) -> Array:
    return rows[:: max(1, -(-len(rows) // MOST_POINTS))]


def _grid(pooled: Array) -> tuple[Array, ...]:
    low, high = np.quantile(pooled, _FRAME, axis=0)
    width = np.where(high > low, high - low, 1.0)
    count = GRID[pooled.shape[1]]
    return tuple(np.linspace(a - _MARGIN * w, b + _MARGIN * w, count) for a, b, w in zip(low, high, width, strict=True))


def _points(grid: Sequence[Array]) -> Array:
    return np.stack(np.meshgrid(*grid), axis=-1).reshape(-1, len(grid))


def _units(grid: Sequence[Array]) -> Array:
    """The smoothing width along each axis."""
    return np.array([_SMOOTHING * float(axis[-1] - axis[0]) for axis in grid])


def _projected(grid: Sequence[Array], sample: Array, reference: Array) -> Heights:
    unit = _units(grid)
    return witness(_points(grid) / unit, sample / unit, reference / unit, Gaussian(1.0))


def _smoothed(grid: Sequence[Array], differing: Differing, view: View) -> Heights:
    """Σ_a w_a(z) h_a / Σ_a w_a(z), w_a(z) = exp(−‖z − z_a‖²/2) in units of the smoothing width, for the errors too.

    Neighbouring rows err alike, having been compared with the same sample: their errors do not average out.
    """
    at = np.concatenate([view.of(side.rows) for side in differing.sides])
    values, errors = (
        np.concatenate([getattr(side.heights, key) for side in differing.sides]) for key in ("values", "errors")
    )
    # The weights are products of one factor an axis, (g, n) each.
    factors = [
        np.exp(-0.5 * ((axis[:, None] - at[:, k]) / unit) ** 2)
        for k, (axis, unit) in enumerate(zip(grid, _units(grid), strict=True))
    ]
    first, second = factors[0], factors[1] if len(factors) == 2 else np.ones((1, len(at)))
    total, value, error = (((second * height) @ first.T).ravel() for height in (np.ones(len(at)), values, errors))
    total = np.maximum(total, 1e-9)
    scarce = np.maximum(1.0, _FEWEST_ROWS * np.exp(-0.5) / total) ** 2
    return Heights(value / total, scarce * error / total)


@dataclass(frozen=True)
class Drawing:
    """One landscape: paths by colour class, points, and ticks with their texts. The template puts it into an SVG."""

    name: str
    labels: tuple[str, ...]
    width: float
    height: float
    bands: tuple[tuple[str, str], ...]
    unclear: str
    points: str
    line: str
    zero: float | None
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


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
    across, up = (Scale(float(axis[0]), float(axis[-1])) for axis in landscape.grid)
    x, y = _along(across, landscape.grid[0], WIDTH), HEIGHT - _along(up, landscape.grid[1], HEIGHT)
    bands = []
    if largest > 0.0:
        steps = [*colour_steps(largest)[:-1], np.inf]
        for sign, letter in ((1.0, "p"), (-1.0, "n")):
            fields = contour_generator(x, y, sign * landscape.values, fill_type=FillType.OuterOffset)
            bands += [(f"{letter}{k}", _filled(fields, steps[k - 1], steps[k])) for k in range(1, STEPS + 1)]
    noise = np.full_like(landscape.values, 9.0)
    np.divide(np.abs(landscape.values), landscape.errors, where=landscape.errors > 0.0, out=noise)
    points = landscape.points
    inside = [across.low <= a <= across.high and up.low <= b <= up.high for a, b in points]
    marks = zip(_along(across, points[inside, 0], WIDTH), _along(up, points[inside, 1], HEIGHT), strict=True)
    return Drawing(
        name=landscape.name,
        labels=landscape.view.labels,
        width=WIDTH,
        height=HEIGHT,
        bands=tuple((name, path) for name, path in bands if path),
        unclear=_filled(contour_generator(x, y, noise, fill_type=FillType.OuterOffset), -1.0, CLEAR),
        points="".join(f"M{a:.1f} {HEIGHT - b:.1f}h0" for a, b in marks),
        line="",
        zero=None,
        x_ticks=_ticks(across, WIDTH),
        y_ticks=_upward_ticks(up, HEIGHT),
    )


def _curve(landscape: Landscape, largest: float) -> Drawing:
    (grid,), values = landscape.grid, landscape.values
    reach = max(largest, float(np.abs(values).max(initial=0.0))) or 1.0
    across, up = Scale(float(grid[0]), float(grid[-1])), Scale(-1.05 * reach, 1.05 * reach)
    x = _along(across, grid, WIDTH)

    def height(v: Array) -> Array:
        return LINE_HEIGHT - _along(up, v, LINE_HEIGHT)

    zero = float(height(np.zeros(1))[0])
    spread = CLEAR * landscape.errors
    shown = np.where(landscape.clear, values, 0.0)
    bands = [
        (name, _polygon(np.concatenate([x[:1], x, x[-1:]]), np.concatenate([[zero], height(side), [zero]])))
        for name, side in (("p4", np.maximum(shown, 0.0)), ("n4", np.minimum(shown, 0.0)))
    ]
    marks = _along(across, landscape.points[:, 0], WIDTH)
    return Drawing(
        name=landscape.name,
        labels=landscape.view.labels,
        width=WIDTH,
        height=LINE_HEIGHT,
        bands=tuple(bands),
        unclear=_polygon(np.concatenate([x, x[::-1]]), np.concatenate([height(spread), height(-spread)[::-1]])),
        points="".join(f"M{m:.1f} {LINE_HEIGHT - 3:.0f}h0" for m in marks),
        line=_open(x, height(values)),
        zero=zero,
        x_ticks=_ticks(across, WIDTH),
        y_ticks=_upward_ticks(up, LINE_HEIGHT, 5),
    )


def _along(scale: Scale, values: Array, length: float) -> Array:
    """Where the values stand on an axis of this length."""
    return np.array([scale.at(float(v)) for v in values]) * length / 100.0


def _ticks(scale: Scale, length: float, most: int = 4) -> tuple[tuple[float, str], ...]:
    return tuple((round(at * length / 100.0, 1), label) for at, label in scale.labels(most))


def _upward_ticks(scale: Scale, length: float, most: int = 4) -> tuple[tuple[float, str], ...]:
    return tuple((length - at, label) for at, label in _ticks(scale, length, most))


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


@dataclass(frozen=True)
class Where:
    """One picture a model, on one scale of colours, and the rows that show most.

    `places` has a row per model: its name, where the picture is highest and lowest, and the rows that show most.
    `largest` is the largest difference that is clear of its noise; None if none is.
    """

    kind: str
    projected: bool
    drawings: tuple[Drawing, ...]
    largest: str | None
    places: tuple[tuple[str, str, str, str], ...]
    left_out: int
    rows: int
    complete: bool
    clear: float = CLEAR


def where(comparison: Comparison, recalled: Recalled) -> tuple[Where, list[Differing]]:
    """The pictures of up to six models, and the rows they were made from."""
    names = shown_models([row["name"] for row in comparison.rows()])
    differing = [differing_rows(comparison, recalled, name) for name in names]
    landscapes = [landscape(recalled, each) for each in differing]
    largest = largest_difference(landscapes)
    panel = Where(
        kind=differing[0].kind,
        projected=landscapes[0].view.projected,
        drawings=tuple(drawing(each, largest) for each in landscapes),
        largest=number_format([largest], [largest])(largest) if largest > 0.0 else None,
        places=tuple(
            (each.name, _peak(drawn, 1.0), _peak(drawn, -1.0), _rows(each))
            for each, drawn in zip(differing, landscapes, strict=True)
        ),
        left_out=len(comparison.names) - len(names),
        rows=recalled.most_rows,
        complete=recalled.complete,
    )
    return panel, differing


def shown_models(names: Sequence[str]) -> list[str]:
    """All names, or where they are many the first and the last of them.

    >>> shown_models(list("abcdefghi"))
    ['a', 'b', 'c', 'g', 'h', 'i']
    """
    if len(names) <= MOST_MODELS:
        return list(names)
    half = MOST_MODELS // 2
    return [*names[:half], *names[-half:]]


def strongest(side: Side, sign: float, count: int = _PLACES) -> list[int]:
    """Which rows of a side have the largest (sign 1) or smallest (−1) heights, if clear of their errors."""
    heights = sign * side.heights.values
    order = np.argsort(-heights, kind="stable")[:count]
    return [int(k) for k in order if heights[k] > CLEAR * side.heights.errors[k]]


def _peak(drawn: Landscape, sign: float) -> str:
    """Where the picture is highest (sign 1) or lowest (−1), in the words of its axes."""
    heights = np.where(drawn.clear, sign * drawn.values, 0.0)
    if heights.max() <= 0.0:
        return "nowhere above the noise"
    at = np.unravel_index(int(heights.argmax()), heights.shape)[::-1]
    coordinates = [_coordinate(axis, int(k)) for axis, k in zip(drawn.grid, at, strict=True)]
    if drawn.view.projected:
        return ", ".join(f"{value} on {axis}" for value, axis in zip(coordinates, drawn.view.names, strict=True))
    return coordinates[0] if len(coordinates) == 1 else f"({', '.join(coordinates)})"


def _coordinate(axis: Array, k: int) -> str:
    """The number to about a hundredth of the axis."""
    decimals = max(0, 2 - math.floor(math.log10(float(axis[-1] - axis[0]))))
    shown = f"{axis[k]:.{decimals}f}"
    return signed(shown.lstrip("-") if float(shown) == 0.0 else shown)


def _rows(differing: Differing) -> str:
    """The numbers of the rows that show most of the difference."""
    sides = [("reference" if differing.model is None else "its own", differing.sides[0], 1.0)]
    if differing.kind == "mass":
        sides.append(("reference", differing.sides[-1], -1.0))
    numbers = [(owner, [str(side.numbers[k]) for k in strongest(side, sign)]) for owner, side, sign in sides]
    return "; ".join(f"{owner} {', '.join(rows)}" for owner, rows in numbers if rows) or "none above the noise"
