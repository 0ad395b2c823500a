"""Where the models and the data differ: row by row, as a picture over one or two axes for
each model, and in words.

`differing_rows` finds what each row shows of the difference: the height of MMD's witness
function, or the part that the row has in KSD. `landscape` computes a picture, `drawing`
turns it into SVG paths, `where` gathers the page's panel. Colours are classes, so that the
page's light and dark style can set them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from contourpy import FillType, contour_generator
from numpy.typing import NDArray

from relfit.data.models import scores_of
from relfit.estimators.pairkernel import PairKernel
from relfit.kernels.base import Kernel
from relfit.kernels.standard import Gaussian
from relfit.report.figures import Frame, Scale, signed, svg_path
from relfit.report.recall import PanelData, View, chosen_view, plain_view
from relfit.results.comparison import Comparison
from relfit.results.table import number_format, short_names
from relfit.results.words import measure_of
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError
from relfit.util.text import listed

# Values recomputed here differ from the result's by rounding only; this much of a standard
# error is no rounding.
_SAME = 1e-3
# Places along an axis of a picture with one or two axes, and rows that are drawn.
GRID = {1: 241, 2: 61}
MOST_POINTS = 300
# Space around the data, and the width that rows are smoothed by, as parts of the frame.
_MARGIN = 0.06
_SMOOTHING = 0.07
# Rows that must have a part in a smoothed value; with fewer its error grows quickly.
_FEWEST_ROWS = 3.0
# A difference is clear of its noise from so many standard errors on: a picture has many places
# to err at.
CLEAR = 3.5
# The quantiles of the rows along an axis that fix the frame: one outlier must not shrink the
# picture.
_FRAME = (0.005, 0.995)
# Steps of colour to either side; squared, so that small differences are told apart too.
STEPS = 5
WIDTH = 240.0
HEIGHT = 200.0
LINE_HEIGHT = 110.0
# Letters of an axis's label, which is as wide as its picture.
LONGEST_AXIS = 54
# Pictures of more models are left out, from the middle of the table. So many rows are named for
# each.
MOST_MODELS = 6
_ROWS_NAMED = 3


@dataclass(frozen=True)
class Heights:
    """Values of a function at k points, each with its standard error over the sample; (k,)
    both.
    """

    values: Array
    errors: Array

    def __sub__(self, other: Heights) -> Heights:
        return Heights(self.values - other.values, np.hypot(self.errors, other.errors))


def witness(points: Array, sample: Array, reference: Array, kernel: Kernel) -> Heights:
    """``f(z) = mean_c k(x_c, z) − mean_a k(r_a, z)`` at points (k, d): above 0 the model has
    too much mass around z.

    The standard error is √(var_c k(x_c, z)/m + var_a k(r_a, z)/n).

    >>> from relfit.kernels.standard import Gaussian
    >>> x, r = np.array([[0.0], [2.0]]), np.array([[2.0], [2.0]])
    >>> witness(np.array([[0.0]]), x, r, Gaussian(2.0)).values  # (1 + e^−½)/2 − e^−½
    array([0.19673467])
    """
    k = PairKernel(kernel)
    return _means(k.values(points, sample)) - _means(k.values(points, reference))


def row_witness(
    sample: Array, reference: Array, kernel: Kernel
) -> tuple[Heights, Heights, Array]:
    """The witness at the model's own rows and at the reference rows, a row never being
    compared with itself.

    ``f(x_c) = Σ_{c'≠c} k(x_c,x_c')/(m−1) − mean_a k(x_c,r_a)``, ``f(r_a) = mean_c k(x_c,r_a)
    − Σ_{b≠a} k(r_a,r_b)/(n−1)``, so that MMD² = mean f(x_c) − mean f(r_a). The third is
    ``mean_a k(x_c,r_a)`` (m,): how typical of the data each row of the model is.
    """
    k = PairKernel(kernel)
    cross = k.values(sample, reference)
    typical = _means(cross)
    at_sample = _means(k.values(sample, sample), without_self=True) - typical
    at_reference = _means(cross.T) - _means(k.values(reference, reference), without_self=True)
    return at_sample, at_reference, typical.values


def stein_contributions(x: Array, scores: Array, kernel: Kernel) -> Heights:
    """``g(x_a) = Σ_{b≠a} u(x_a, x_b)/(n−1)`` of every row (n, d) with its scores (n, d);
    KSD² = mean g.

    Under the right model E u(x, ·) = 0 for every x, so a row with a large g lies where the
    model's slope is wrong.
    """
    rows = [x, scores]
    [u] = PairKernel(kernel).stein(rows, rows)
    return _means(u, without_self=True)


def _means(values: Array, *, without_self: bool = False) -> Heights:
    """The mean along each row, and its standard error; of a square matrix possibly with its
    diagonal left out.
    """
    if without_self:
        values = values[~np.eye(len(values), dtype=bool)].reshape(len(values), -1)
    count = values.shape[1]
    spread = values.std(axis=1, ddof=1) if count > 1 else np.zeros(len(values))
    return Heights(values.mean(axis=1), spread / np.sqrt(count))


@dataclass(frozen=True)
class Side:
    """Some rows of one sample, their numbers in it, and the function's heights there."""

    rows: Array
    numbers: Rows
    heights: Heights


@dataclass(frozen=True)
class RowContributions:
    """Where one model differs from the data, row by row.

    Attributes:
        kind: "mass" (MMD's witness: above 0 the model has too much mass) or "slope" (KSD: the
            row's contribution).
        model: the model's own rows; None for a density.
        reference: the reference rows; None where the reference is a density.
        typical: with MMD, mean_a k(x_c, r_a) of the model's rows: how much they are like the
            data.
    """

    name: str
    kind: str
    model: Side | None
    reference: Side | None
    typical: Array | None = None

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides there are."""
        return tuple(side for side in (self.model, self.reference) if side is not None)

    @property
    def discrepancy(self) -> float:
        """The discrepancy of these rows: mean f(x) − mean f(r) for MMD², mean g for KSD²."""
        first, *others = (float(side.heights.values.mean()) for side in self.sides)
        return first - sum(others)


def differing_rows(comparison: Comparison, recalled: PanelData, name: str) -> RowContributions:
    """The rows of one model and of the data with what each shows of their difference.

    Where every row is used their mean is the result's discrepancy; data that give another
    one are refused.
    """
    data = recalled.data
    there = recalled.encoded
    rows = recalled.rows
    kernel = recalled.kernel
    original = recalled.original(name)
    if original not in data.models:
        raise InputError(
            f"name: expected the name of a model ({listed(data.names, 'or')}), got {name!r}"
        )
    density = there.densities.get(original)
    model = reference = typical = None
    if density is not None:
        x = there.reference
        heights = stein_contributions(x, scores_of(name, density, x), kernel)
        reference = Side(data.reference, rows[None], heights)
    elif there.target is not None:
        x = there.samples[original]
        heights = stein_contributions(x, scores_of("target", there.target, x), kernel)
        model = Side(data.samples[original], rows[original], heights)
    else:
        x = data.samples[original]
        at_model, at_reference, typical = row_witness(x, data.reference, kernel)
        model = Side(x, rows[original], at_model)
        reference = Side(data.reference, rows[None], at_reference)
    kind = "slope" if typical is None else "mass"
    differing = RowContributions(name, kind, model, reference, typical)
    _check_same(comparison, recalled, differing)
    return differing


# Results whose discrepancies are means over all pairs of rows: other estimators, pairs, chains,
# rows in groups and tests that split the rows leave pairs out.
_OF_ALL_PAIRS = {
    "estimator": (None, "complete"),
    "dependence": (None, "independent", "shared"),
    "groups": (None,),
    "select_fraction": (None,),
}


def _check_same(
    comparison: Comparison, recalled: PanelData, differing: RowContributions
) -> None:
    """Refuse rows that give another discrepancy, where it is the mean over these very rows."""
    alike = all(getattr(comparison, name) in known for name, known in _OF_ALL_PAIRS.items())
    sizes = comparison.sizes
    if not (alike and measure_of(comparison).pairs and recalled.complete):
        return
    if sizes is None or sizes[0] != recalled.sizes[None]:
        return
    i = comparison.names.index(differing.name)
    error = float(comparison.standard_error[i])
    value = float(comparison.discrepancy[i])
    if abs(differing.discrepancy - value) > _SAME * error + 1e-9:
        raise InputError(
            f"data: expected the data this result was made from; the discrepancy of "
            f"{differing.name!r} is "
            f"{differing.discrepancy:.6g} with these and {value:.6g} in the result"
        )


@dataclass(frozen=True)
class Landscape:
    """The difference between one model and the data over a grid.

    Attributes:
        name, kind: as in `RowContributions`.
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


def landscape(recalled: PanelData, differing: RowContributions) -> Landscape:
    """The picture of one model.

    MMD, one or two columns: the witness function itself. More columns: rows are projected
    onto two of the pooled rows' main axes, chosen for this model on every other row; the
    picture is made from the rows in between, and shows the witness of a Gaussian kernel in
    that plane (a difference of smoothed densities). KSD: the rows' contributions, averaged
    around each point.
    """
    slope = differing.kind == "slope"
    sample = differing.sides[0].rows
    reference = differing.sides[-1].rows
    if sample.shape[1] <= 2:
        view = plain_view(recalled)
    elif slope:
        view = recalled.main_axes.view()
    else:
        view = chosen_view(recalled.main_axes, sample[::2], reference[::2])
        sample = sample[1::2]
        reference = reference[1::2]
    # Pictures over the same axes have the same frame.
    framed = recalled.pooled
    if view.projected and not slope:
        framed = np.concatenate([sample, reference])
    low, high = np.quantile(view.of(framed), _FRAME, axis=0)
    margin = _MARGIN * np.where(high > low, high - low, 1.0)
    ends = zip(low - margin, high + margin, strict=True)
    grid = tuple(np.linspace(a, b, GRID[len(low)]) for a, b in ends)
    points = np.stack(np.meshgrid(*grid), axis=-1).reshape(-1, len(grid))
    unit = np.array([_SMOOTHING * float(axis[-1] - axis[0]) for axis in grid])
    if slope:
        heights = _smoothed(points / unit, view.of(sample) / unit, differing.sides[0].heights)
    elif view.projected:
        heights = witness(
            points / unit, view.of(sample) / unit, view.of(reference) / unit, Gaussian(1.0)
        )
    else:
        heights = witness(points, sample, reference, recalled.kernel)
    shape = tuple(len(axis) for axis in grid[::-1])
    drawn = differing.sides[-1].rows
    return Landscape(
        differing.name,
        differing.kind,
        view,
        grid,
        heights.values.reshape(shape),
        heights.errors.reshape(shape),
        view.of(drawn[:: max(1, -(-len(drawn) // MOST_POINTS))]),
    )


def _smoothed(points: Array, rows: Array, heights: Heights) -> Heights:
    """Σ_a w_a(z) h_a / Σ_a w_a(z), w_a(z) = exp(−‖z − z_a‖²/2), for the errors too.

    Neighbouring rows err alike, having been compared with the same sample: their errors do
    not average out.
    """
    weights = PairKernel(Gaussian(1.0)).values(points, rows)
    total = np.maximum(weights.sum(axis=1), 1e-9)
    scarce = np.maximum(1.0, _FEWEST_ROWS * np.exp(-0.5) / total) ** 2
    return Heights(
        weights @ heights.values / total, scarce * (weights @ heights.errors) / total
    )


def drawing(landscape: Landscape, largest: float) -> dict[str, Any]:
    """The landscape with colours for differences up to `largest`, for the template to put
    into an SVG.

    There are `bands` (a class for the colour, and a path), other paths, and ticks: where
    they stand, with their labels.
    """
    across, *up = (Scale(float(axis[0]), float(axis[-1])) for axis in landscape.grid)
    if up:
        frame = Frame(WIDTH, HEIGHT, across, up[0])
        shown = {**frame.axes(4, 4), **_plane(landscape, largest, frame)}
    else:
        reach = max(largest, float(np.abs(landscape.values).max(initial=0.0))) or 1.0
        frame = Frame(WIDTH, LINE_HEIGHT, across, Scale(-1.05 * reach, 1.05 * reach))
        shown = {**frame.axes(4, 5), **_curve(landscape, frame)}
    labels = short_names(landscape.view.labels, LONGEST_AXIS)
    return {"name": landscape.name, "labels": labels, **shown}


def colour_steps(largest: float) -> list[float]:
    """Where the colours change: (k/5)² of the largest difference."""
    return [largest * (k / STEPS) ** 2 for k in range(STEPS + 1)]


def largest_difference(landscapes: Sequence[Landscape]) -> float:
    """The largest difference that is clear of its noise; 0 if none is."""
    return max(
        (float(np.abs(each.values[each.clear]).max(initial=0.0)) for each in landscapes),
        default=0.0,
    )


def _plane(landscape: Landscape, largest: float, frame: Frame) -> dict[str, Any]:
    first, second = landscape.grid
    corners = frame.x(first), frame.y(second)
    bands = []
    if largest > 0.0:
        steps = [*colour_steps(largest)[:-1], np.inf]
        for sign, letter in ((1.0, "p"), (-1.0, "n")):
            paths = _filled(*corners, sign * landscape.values, steps)
            bands += [(f"{letter}{k}", path) for k, path in enumerate(paths, 1) if path]
    noise = np.full_like(landscape.values, 9.0)
    np.divide(
        np.abs(landscape.values), landscape.errors, where=landscape.errors > 0.0, out=noise
    )
    a, b = landscape.points.T
    inside = (first[0] <= a) & (a <= first[-1]) & (second[0] <= b) & (b <= second[-1])
    marks = zip(frame.x(a[inside]), frame.y(b[inside]), strict=True)
    return {
        "bands": bands,
        "unclear": _filled(*corners, noise, [-1.0, CLEAR])[0],
        "points": "".join(f"M{x:.1f} {y:.1f}h0" for x, y in marks),
        "line": "",
        "zero": None,
    }


def _curve(landscape: Landscape, frame: Frame) -> dict[str, Any]:
    (grid,) = landscape.grid
    zero = float(frame.y([0.0])[0])
    spread = CLEAR * landscape.errors
    shown = np.where(landscape.clear, landscape.values, 0.0)
    # An area ends at 0 on both sides.
    around = np.pad(grid, 1, mode="edge")
    sides = {"p4": np.maximum(shown, 0.0), "n4": np.minimum(shown, 0.0)}
    marks = frame.x(landscape.points[:, 0])
    both_ways = np.concatenate([grid, grid[::-1]])
    areas = {name: f"{frame.path(around, np.pad(side, 1))}z" for name, side in sides.items()}
    return {
        "bands": list(areas.items()),
        "unclear": f"{frame.path(both_ways, np.concatenate([spread, -spread[::-1]]))}z",
        "points": "".join(f"M{mark:.1f} {LINE_HEIGHT - 3:.0f}h0" for mark in marks),
        "line": frame.path(grid, landscape.values),
        "zero": zero,
    }


def _filled(x: Array, y: Array, values: Array, steps: Sequence[float]) -> list[str]:
    """Paths around the places whose values lie between each step and the next."""
    fields: Any = contour_generator(x, y, values, fill_type=FillType.OuterOffset)
    paths = []
    for low, high in itertools.pairwise(steps):
        path = ""
        for polygon, cuts in zip(*fields.filled(low, high), strict=True):
            for a, b in itertools.pairwise(cuts):
                path += f"{svg_path(polygon[a:b, 0], polygon[a:b, 1])}z"
        paths.append(path)
    return paths


def pictured(comparison: Comparison) -> list[str]:
    """The models that have pictures: all, or the first and the last of the table."""
    names = [row["name"] for row in comparison.rows()]
    half = MOST_MODELS // 2
    return names if len(names) <= MOST_MODELS else [*names[:half], *names[-half:]]


def where(
    comparison: Comparison, recalled: PanelData
) -> tuple[dict[str, Any], list[RowContributions]]:
    """The page's panel: one picture a model on one scale of colours, and the rows that the
    pictures were made from.

    `places` has a row per model: its name, where the picture is highest and lowest, and the
    rows that show most. `largest` is the largest difference that is clear of its noise; None
    if none is.
    """
    names = pictured(comparison)
    differing = [differing_rows(comparison, recalled, name) for name in names]
    landscapes = [landscape(recalled, each) for each in differing]
    largest = largest_difference(landscapes)
    pairs = list(zip(differing, landscapes, strict=True))
    panel = {
        "kind": differing[0].kind,
        "projected": landscapes[0].view.projected,
        "drawings": [drawing(each, largest) for each in landscapes],
        "largest": number_format([largest], [largest])(largest) if largest > 0.0 else None,
        "places": [
            (each.name, _peak(drawn, 1.0), _peak(drawn, -1.0), _rows(each))
            for each, drawn in pairs
        ],
        "left_out": len(comparison.names) - len(names),
        "standard_errors": CLEAR,
    }
    return panel, differing


def strongest(side: Side, sign: float, count: int = _ROWS_NAMED) -> list[int]:
    """Which rows of a side have the largest (sign 1) or smallest (−1) heights, if clear of
    their errors.
    """
    heights = sign * side.heights.values
    clear = heights > CLEAR * side.heights.errors
    return [k for k in np.argsort(-heights, kind="stable")[:count].tolist() if clear[k]]


def _peak(drawn: Landscape, sign: float) -> str:
    """Where the picture is highest (sign 1) or lowest (−1), in the words of its axes."""
    heights = np.where(drawn.clear, sign * drawn.values, 0.0)
    if heights.max() <= 0.0:
        return "nowhere above the noise"
    at = np.unravel_index(int(heights.argmax()), heights.shape)[::-1]
    coordinates = []
    for axis, k in zip(drawn.grid, at, strict=True):
        # To about a hundredth of the axis.
        digits = 2 - math.floor(math.log10(float(axis[-1] - axis[0])))
        shown = f"{axis[k]:.{max(0, digits)}f}"
        coordinates.append(signed(shown.lstrip("-") if float(shown) == 0.0 else shown))
    if drawn.view.projected:
        named = zip(coordinates, drawn.view.names, strict=True)
        return ", ".join(f"{value} on {axis}" for value, axis in named)
    return coordinates[0] if len(coordinates) == 1 else f"({', '.join(coordinates)})"


def _rows(differing: RowContributions) -> str:
    """The numbers of the rows that show most of the difference."""
    sides = [("reference" if differing.model is None else "its own", differing.sides[0], 1.0)]
    if differing.kind == "mass":
        sides.append(("reference", differing.sides[-1], -1.0))
    shown = []
    for owner, side, sign in sides:
        numbers = [str(side.numbers[k]) for k in strongest(side, sign)]
        if numbers:
            shown.append(f"{owner} {', '.join(numbers)}")
    return "; ".join(shown) or "none above the noise"
