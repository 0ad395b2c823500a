"""Upper ends after carving allow for variances that grow with the discrepancy."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from relfit.api import decide
from relfit.stats.joint import JointEstimate
from relfit.stats.tests.carve import carve_bounds

VALUES, COVARIANCE = np.array([1.0, 3.0]), np.diag([0.5, 1.5])


def _estimate(second_order):
    return JointEstimate(("a", "b"), VALUES, COVARIANCE, near_degeneracy=second_order)


def _bounds(second_order):
    return carve_bounds(_estimate(second_order), 0.95, rng=np.random.default_rng(0), draws=40_000)


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
    found = _bounds(np.full(2, second_order))
    assert found.best == 0
    plain = _solved(2.0, np.sqrt(2.0), 0.95)
    first = 1.0 - second_order
    f = 1.0 - first * (plain - 2.0) / 4.0 / 1.0, 1.0 + first * 3.0 * (plain - 2.0) / 4.0 / 3.0
    s = np.sqrt(0.5 * f[0] + 1.5 * f[1])
    expected = _solved(2.0, s, 0.95)
    assert expected > plain + 0.05
    assert found.upper[1] == pytest.approx(expected, abs=0.03)


def test_variances_of_second_order_alone_do_not_grow():
    plain, full = _bounds(None), _bounds(np.ones(2))
    assert (full.upper == plain.upper).all()
    assert (full.interval == plain.interval).all()


def test_lower_ends_stay_as_they_are():
    plain, grown = _bounds(None), _bounds(np.zeros(2))
    assert (grown.lower == plain.lower).all()
    assert (grown.interval[:, 0] == plain.interval[:, 0]).all()
    assert grown.interval[1, 1] > plain.interval[1, 1]


def test_a_model_without_variance_and_one_at_zero():
    covariance = np.diag([0.0, 1.0, 1.0])
    estimate = JointEstimate(("a", "b", "c"), [0.0, 0.0, 2.0], covariance, near_degeneracy=np.zeros(3))
    found = carve_bounds(estimate, rng=np.random.default_rng(0))
    assert not np.isnan(found.interval).any()


def test_upper_bounds_of_squares_hold_often_enough():
    """D̂_k = a_k² − τ², a_k ~ N(√D_k, τ²): Var D̂_k = 4τ²D_k + 2τ⁴, estimated at D̂_k as it is for a kernel."""
    rng, tau, trials = np.random.default_rng(8), 0.3, 200
    theta = np.ones(6)
    held = {False: [], True: []}
    for _ in range(trials):
        values = np.square(np.sqrt(theta) + tau * rng.normal(size=6)) - tau**2
        second = 2.0 * tau**4
        variance = 4.0 * tau**2 * np.maximum(values, 0.0) + second
        for grows in held:
            share = second / variance if grows else None
            estimate = JointEstimate(tuple("abcdef"), values, np.diag(variance), near_degeneracy=share)
            found = carve_bounds(estimate, rng=np.random.default_rng(rng.bit_generator.random_raw()), draws=200)
            others = np.arange(6) != found.best
            held[grows].append((found.upper >= 0.0)[others].mean())
    plain, grown = (np.mean(held[grows]) for grows in (False, True))
    error = np.std(held[True]) / np.sqrt(trials)
    assert grown > plain
    assert grown >= 0.95 - 3.0 * error


def test_a_result_passes_its_shares_on():
    with_shares, without = (
        decide(_estimate(shares), test="carve", rng=0).upper_bound(0.95) for shares in (np.zeros(2), None)
    )
    assert (with_shares >= without).all()
    assert (with_shares > without).any()
