"""Upper ends after carving allow for variances that grow with the discrepancy."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from relfit.api import decide
from relfit.stats.joint import JointEstimate
from relfit.stats.tests.carve import ConditionalLaw, carve_bounds, select

VALUES, COVARIANCE = np.array([1.0, 3.0]), np.diag([0.5, 1.5])


def _estimate(second_order):
    return JointEstimate(("a", "b"), VALUES, COVARIANCE, near_degeneracy=second_order)


def _bounds(second_order, level=0.95):
    return carve_bounds(_estimate(second_order), level, rng=np.random.default_rng(0), draws=40_000)


def _solved(t, s, level):
    """u with P_u(t' > t) = level: density φ((x − u)/s) Φ(x/√2), because w_J − w_i has variance 0.5 + 1.5 = 2."""

    def above(u):
        low, high = u - 9.0 * s, u + 9.0 * s
        whole, upper = (
            quad(lambda x: norm.pdf(x, u, s) * norm.cdf(x / np.sqrt(2.0)), start, high, limit=200)[0]
            for start in (low, max(t, low))
        )
        return upper / whole

    return brentq(lambda u: above(u) - level, t - 6.0 * s, t + 6.0 * s)


@pytest.mark.parametrize("second_order", [0.0, 0.25])
def test_two_models_by_quadrature(second_order):
    """c = (−0.25, 0.75): supposing D_b − D_a = u moves D̂_a by −(u − t)/4 and D̂_b by 3(u − t)/4; t = 2, s² = 2."""
    _, upper = _bounds(np.full(2, second_order))
    assert select(_estimate(None), np.random.default_rng(0), 0).best == 0
    plain = _solved(2.0, np.sqrt(2.0), 0.95)
    first = 1.0 - second_order
    f = 1.0 - first * (plain - 2.0) / 4.0 / 1.0, 1.0 + first * 3.0 * (plain - 2.0) / 4.0 / 3.0
    s = np.sqrt(0.5 * f[0] + 1.5 * f[1])
    expected = _solved(2.0, s, 0.95)
    assert expected > plain + 0.05
    assert upper[1] == pytest.approx(expected, abs=0.03)


def test_a_model_without_variance_and_one_at_zero():
    covariance = np.diag([0.0, 1.0, 1.0])
    estimate = JointEstimate(("a", "b", "c"), [0.0, 0.0, 2.0], covariance, near_degeneracy=np.zeros(3))
    assert not np.isnan(carve_bounds(estimate, 0.975, rng=np.random.default_rng(0))).any()


def test_a_constant_difference_that_would_vary_has_no_part():
    """A model and the same plus a constant, with another variance of second order: supposing a larger D their
    difference would vary. It has no part in the bound of the third model all the same, which is that of two models,
    here with each draw's interval [t − g_b, ∞) by hand, for s and for the s that supposes the first bound.
    """
    covariance = np.array([[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 2.0]])
    second_order = np.array([0.0, 0.9, 0.2])
    estimate = JointEstimate(("a", "plus", "b"), [0.5, 0.6, 3.0], covariance, near_degeneracy=second_order)
    selection = select(estimate, np.random.default_rng(0))
    assert selection.best == 0
    t, odds = 2.5, np.log(0.95 / 0.05)

    def solved(s):
        starts = (t - selection.shifted[2:]) / s
        return ConditionalLaw(np.array([s]), np.array([t / s]), starts, np.full(starts.shape, np.inf)).mean_at(-odds, 0)

    plain = solved(np.sqrt(2.0))
    c = np.array([0.5 - 1.0, 2.0 - 0.5]) / 2.0
    f = 1.0 + (1.0 - second_order[[0, 2]]) * c * (plain - t) / np.array([1.0, 3.0])
    s = np.sqrt(f[0] + 2.0 * f[1] - 2.0 * 0.5 * np.sqrt(f[0] * f[1]))
    assert carve_bounds(estimate, 0.95, rng=np.random.default_rng(0))[1][2] == pytest.approx(solved(s), rel=1e-6)
    assert solved(s) > plain


def test_a_result_passes_its_second_order_parts_on():
    grown, plain = (
        decide(_estimate(second_order), test="carve", rng=0).upper_bound(0.95) for second_order in (np.zeros(2), None)
    )
    assert (grown >= plain).all()
    assert (grown > plain).any()
