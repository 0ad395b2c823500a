"""Where models differ: contributions add up to the discrepancies, and pictures are high, low and blank."""

from __future__ import annotations

import math

import numpy as np
import pytest

import relfit
from relfit.estimators.pairkernel import PairKernel
from relfit.kernels.composite import Decay, Tilted
from relfit.report.recall import chosen_view, main_axes, recall
from relfit.report.witness import differing_rows, landscape, row_witness, stein_contributions, witness

KERNELS = {
    "gaussian": relfit.Gaussian(1.3),
    "imq": relfit.IMQ(0.7),
    "multi": relfit.MultiScale(bandwidth=1.0),
    "sum": relfit.Gaussian(0.8) + relfit.IMQ(),
    "tilted": Tilted(relfit.Gaussian(1.1), Decay(exponent=1.0, scale=2.0, centre=0.3)),
}


def test_contributions_by_hand():
    """Standard normal, Gaussian of bandwidth 1, x = 0 and 1.

    k = e^−½, s = 0 and −1, ∂_x k = k at (0, 1), ∂_x∂_y k = (1 − 1)k = 0: u(0, 1) = k · (−1) = −e^−½, which is the one
    term of both rows.
    """
    x = np.array([[0.0], [1.0]])
    found = stein_contributions(x, -x, relfit.Gaussian(1.0))
    np.testing.assert_allclose(found.values, [-math.exp(-0.5)] * 2, rtol=1e-14)
    np.testing.assert_allclose(found.errors, [0.0, 0.0])


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("d", [1, 3, 40])
def test_rows_add_up_to_the_mmd_and_to_the_ksd(name, d):
    """mean f(x) − mean f(r) is the unbiased MMD² itself, with unequal sizes; 40 columns take the other path."""
    rng = np.random.default_rng(d)
    r, x = rng.normal(1e3, 1, (31, d)), rng.normal(1e3 + 0.3, 1, (25, d))
    kernel = KERNELS[name]
    at_model, at_reference, typical = row_witness(x, r, kernel)
    expected = relfit.estimate(r, {"a": x}, kernel=kernel, rng=0).values[0]
    assert at_model.values.mean() - at_reference.values.mean() == pytest.approx(expected, rel=1e-7, abs=1e-12)
    np.testing.assert_allclose(typical, PairKernel(kernel).values(x, r).mean(axis=1))
    rng = np.random.default_rng(d)
    x = rng.normal(size=(30, d))
    density = relfit.Density(score=lambda x: 0.2 - 1.3 * x, dim=d)
    kernel = KERNELS[name]
    found = stein_contributions(x, density.scores(x), kernel)
    expected = relfit.estimate(x, {"a": density}, kernel=kernel, rng=0).values[0]
    assert found.values.mean() == pytest.approx(expected, rel=1e-9, abs=1e-12)


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


def test_equal_samples_stay_blank_and_no_axis_lacks_spread(rng):
    """The share of the picture that noise colours: beyond 3.5 s.e. far less than 1% on average."""
    shares = []
    for _ in range(12):
        data, models = rng.normal(size=(100, 2)), {"a": rng.normal(size=(100, 2)), "b": rng.normal(size=(100, 2))}
        shares.append(_drawn(data, models, "b")[0].clear.mean())
    assert np.mean(shares) < 0.01
    # D44: the levels of a column add up to 1, and "main axis 8 (2.1e-29% of variance)" was drawn.
    levels = np.eye(4)[rng.integers(0, 4, 200)]
    assert len(main_axes(np.hstack([rng.normal(size=(200, 2)), levels])).directions) == 5
    assert len(main_axes(np.outer(rng.normal(size=50), np.ones(3))).directions) == 2


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
