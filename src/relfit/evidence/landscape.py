"""Where a model and the data differ, as a picture over one or two axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.evidence.axes import View, chosen_view, plain_view
from relfit.evidence.recall import Recalled
from relfit.evidence.rows import Differing
from relfit.evidence.witness import Heights, witness
from relfit.kernels import Gaussian

Array = NDArray[np.float64]

GRID = {1: 241, 2: 61}
# Rows that are drawn.
MOST_POINTS = 300
# Room around the data, and the width that rows are smoothed by, as parts of the frame.
_MARGIN, _SMOOTHING = 0.06, 0.07
# Rows that must have a part in a smoothed value; with fewer its error grows quickly.
_FEWEST_ROWS = 3.0
# A difference is clear of its noise from so many standard errors on: a picture has many places to err at.
CLEAR = 3.5
# The part of the rows along an axis that fixes the frame: one outlier must not shrink the picture.
_FRAME = (0.005, 0.995)


@dataclass(frozen=True)
class Landscape:
    """The difference between one model and the data over a grid.

    Attributes:
        name, kind: as in `Differing`.
        labels: what the axes are.
        grid: the coordinates along each axis.
        values, errors: (g,) or (g, g), second axis first.
        points: (k, 1 or 2) reference rows, or the model's where the reference is a density.
        projected: whether more than two columns were brought down to two axes.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    grid: tuple[Array, ...]
    values: Array
    errors: Array
    points: Array
    projected: bool

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Where the difference is more than 3.5 times its standard error."""
        return np.asarray(np.abs(self.values) > CLEAR * self.errors)


def landscape(recalled: Recalled, found: Differing) -> Landscape:
    """The picture of one model.

    MMD, one or two columns: the witness function itself. More columns: rows are projected onto two of the pooled
    rows' main axes, chosen for this model on every other row; the picture is made from the rows in between, and shows
    the witness of a Gaussian kernel in that plane (a difference of smoothed densities). KSD: the rows' contributions,
    averaged around each point.
    """
    view, own, reference = _view(recalled, found)
    drawn = _some(found.sides[-1].rows)
    # Pictures over the same axes have the same frame.
    shared = found.kind == "slope" or not view.projected
    grid = _grid(view.of(recalled.pooled if shared else np.concatenate([own, reference])))
    if found.kind == "slope":
        heights = _smoothed(grid, found, view)
    elif view.projected:
        heights = _projected(grid, view.of(own), view.of(reference))
    else:
        heights = witness(_points(grid), own, reference, recalled.kernel)
    shape = tuple(len(axis) for axis in grid[::-1])
    values, errors = heights.values.reshape(shape), heights.errors.reshape(shape)
    return Landscape(found.name, found.kind, view.labels, grid, values, errors, view.of(drawn), view.projected)


def _view(recalled: Recalled, found: Differing) -> tuple[View, Array, Array]:
    """The axes, and the rows of the model and of the reference that the picture is made from."""
    own, reference = found.sides[0].rows, found.sides[-1].rows
    if own.shape[1] <= 2:
        return plain_view(own.shape[1]), own, reference
    if found.kind == "slope":
        return recalled.main_axes.view(), own, reference
    return chosen_view(recalled.main_axes, own[::2], reference[::2]), own[1::2], reference[1::2]


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


def _projected(grid: Sequence[Array], own: Array, reference: Array) -> Heights:
    unit = _units(grid)
    return witness(_points(grid) / unit, own / unit, reference / unit, Gaussian(1.0))


def _smoothed(grid: Sequence[Array], found: Differing, view: View) -> Heights:
    """Σ_a w_a(z) h_a / Σ_a w_a(z), w_a(z) = exp(−‖z − z_a‖²/2) in units of the smoothing width, for the errors too.

    Neighbouring rows err alike, having been compared with the same sample: their errors do not average out.
    """
    at = np.concatenate([view.of(side.rows) for side in found.sides])
    values, errors = (
        np.concatenate([getattr(side.heights, key) for side in found.sides]) for key in ("values", "errors")
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
