"""Pictures of differences: where they must be high and low, on which axes, and that noise stays blank."""

from __future__ import annotations

import numpy as np
import pytest

import relfit
from relfit.report.recall import chosen_view, main_axes, recall
from relfit.report.witness import differing_rows, landscape, witness


def _drawn(data, models, name, **options):
    result = relfit.compare(data, models, rng=0, **options)
    recalled = recall(result, (data, models))
    return landscape(recalled, differing_rows(result, recalled, name)), recalled


def test_two_columns_show_the_witness_itself(rng):
    data, models = rng.normal(size=(80, 2)), {"a": rng.normal(size=(80, 2)), "off": rng.normal([1.5, 0], 1, (70, 2))}
    drawn, recalled = _drawn(data, models, "off")
    i, j = 10, 40
    point = np.array([[drawn.grid[0][j], drawn.grid[1][i]]])
    expected = witness(point, models["off"], data, recalled.kernel)
    assert drawn.values[i, j] == pytest.approx(expected.values[0], rel=1e-12)
    assert drawn.errors[i, j] == pytest.approx(expected.errors[0], rel=1e-12)
    peak = np.unravel_index(drawn.values.argmax(), drawn.values.shape)
    trough = np.unravel_index(drawn.values.argmin(), drawn.values.shape)
    assert drawn.grid[0][peak[1]] > 1.0 > -0.2 > drawn.grid[0][trough[1]]
    assert (drawn.view.labels, drawn.view.projected) == (("column 0", "column 1"), False)


def test_equal_samples_stay_blank(rng):
    """The share of the picture that noise colours: beyond 3.5 s.e. far less than 1% on average."""
    shares = []
    for _ in range(12):
        data, models = rng.normal(size=(100, 2)), {"a": rng.normal(size=(100, 2)), "b": rng.normal(size=(100, 2))}
        shares.append(_drawn(data, models, "b")[0].clear.mean())
    assert np.mean(shares) < 0.01


def test_many_columns_are_shown_where_they_differ(rng):
    """Twenty columns of equal spread but the last, a little wider and shifted in the model: an axis along it is found.

    The differences come from the half of the rows that did not choose the axes.
    """
    spread = np.linspace(3, 1, 20)
    data = rng.normal(size=(400, 20)) * spread
    off = rng.normal(size=(400, 20)) * spread
    off[:, 2] += 4.0
    drawn, recalled = _drawn(data, {"a": rng.normal(size=(400, 20)) * spread, "off": off}, "off")
    assert drawn.view.projected
    assert drawn.clear.any()
    view = chosen_view(recalled.main_axes, off[::2], data[::2])
    assert np.abs(view.directions[:, 2]).max() > 0.5
    assert recalled.complete


def test_no_picture_has_an_axis_without_spread(rng):
    """D44: the levels of a column add up to 1, and "main axis 8 (2.1e-29% of variance)" was drawn."""
    levels = np.eye(4)[rng.integers(0, 4, 200)]
    assert len(main_axes(np.hstack([rng.normal(size=(200, 2)), levels])).directions) == 5
    assert len(main_axes(np.outer(rng.normal(size=50), np.ones(3))).directions) == 2
