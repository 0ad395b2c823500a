"""Witness functions and Stein contributions: by hand, and against the discrepancies they add up to."""

from __future__ import annotations

import math

import numpy as np
import pytest

import relfit
from relfit.estimators.pairkernel import PairKernel
from relfit.kernels.composite import Decay, Tilted
from relfit.report.witness import row_witness, stein_contributions

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
def test_rows_add_up_to_the_mmd(name, d):
    """mean f(x) − mean f(r) is the unbiased MMD² itself, with unequal sizes; 40 columns take the other path."""
    rng = np.random.default_rng(d)
    r, x = rng.normal(1e3, 1, (31, d)), rng.normal(1e3 + 0.3, 1, (25, d))
    kernel = KERNELS[name]
    at_model, at_reference, typical = row_witness(x, r, kernel)
    expected = relfit.estimate(r, {"a": x}, kernel=kernel, rng=0).values[0]
    assert at_model.values.mean() - at_reference.values.mean() == pytest.approx(expected, rel=1e-7, abs=1e-12)
    np.testing.assert_allclose(typical, PairKernel(kernel).values(x, r).mean(axis=1))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("d", [1, 3, 40])
def test_contributions_add_up_to_the_ksd(name, d):
    rng = np.random.default_rng(d)
    x = rng.normal(size=(30, d))
    density = relfit.Density(score=lambda x: 0.2 - 1.3 * x, dim=d)
    kernel = KERNELS[name]
    found = stein_contributions(x, density.scores(x), kernel)
    expected = relfit.estimate(x, {"a": density}, kernel=kernel, rng=0).values[0]
    assert found.values.mean() == pytest.approx(expected, rel=1e-9, abs=1e-12)
