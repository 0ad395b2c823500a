"""Bounds for how much worse than the best each model is: by hand, against the best set, and their coverage."""

import warnings

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from relfit.stats.joint import JointEstimate
from relfit.stats.tests.best_set import regret_bounds

Z = norm.isf(0.05)


def joint(values, covariance, n=None):
    return JointEstimate(tuple(f"m{k}" for k in range(len(values))), values, covariance, None if n is None else (n,))


def test_two_models_by_hand():
    """s = 1, gap 3. Upper: C = {0} (3 > z), so R_1 ≤ 3 + z and R_0 ≤ 0. Lower: the first step, at level 1 − .005, has a
    critical value of z.9975 for |Z| and leaves r_1 = 3 − 2.807 = .193, so that d is the .955 quantile of
    max(Z, −Z − .193): Φ(d) − Φ(−.193 − d) = .955.
    """
    lower, upper = regret_bounds(joint([0.0, 3.0], 0.5 * np.eye(2)), rng=np.random.default_rng(0), draws=200_000)
    r = 3.0 - norm.isf(0.0025)
    d = brentq(lambda d: norm.cdf(d) - norm.cdf(-r - d) - 0.955, 1.0, 3.0)
    np.testing.assert_allclose(lower, [0.0, 3.0 - d], atol=0.02)
    np.testing.assert_allclose(upper, [0.0, 3.0 + Z], rtol=1e-12)


def test_a_clear_best_makes_it_a_comparison_with_that_model():
    """D_0 known and far below three others: d is the 1 − α quantile of the maximum of three independent
    normals, √[3]{.95} = .98305 → 2.1212 for the upper bounds; the lower ones pay a tenth for the first step,
    √[3]{.955} = .98477 → 2.1636, and nothing for the other pairs.
    """
    estimate = joint([0.0, 50.0, 80.0, 110.0], np.diag([0.0, 1.0, 1.0, 1.0]))
    lower, upper = regret_bounds(estimate, rng=np.random.default_rng(1), draws=100_000)
    above, below = norm.ppf(0.95 ** (1 / 3)), norm.ppf(0.955 ** (1 / 3))
    np.testing.assert_allclose(upper, np.r_[0.0, np.array([50.0, 80.0, 110.0]) + above], atol=0.03)
    np.testing.assert_allclose(lower, np.r_[0.0, np.array([50.0, 80.0, 110.0]) - below], atol=0.03)


def test_constant_differences_are_known():
    covariance = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    lower, upper = regret_bounds(joint([0.0, 0.5, 30.0], covariance), rng=np.random.default_rng(0))
    assert lower[1] == upper[1] == 0.5
    lower, upper = regret_bounds(joint([0.0, 0.5, 0.0], np.zeros((3, 3))), rng=np.random.default_rng(0))
    np.testing.assert_array_equal(lower, [0.0, 0.5, 0.0])
    np.testing.assert_array_equal(upper, [0.0, 0.5, 0.0])


def test_hard_covariances_never_give_nan():
    for covariance in (np.zeros((3, 3)), np.ones((3, 3)), np.outer([1.0, 2, 3], [1.0, 2, 3]), np.diag([0.0, 1.0, 0.0])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            estimate = joint([0.0, 0.0, 1.0], covariance, n=30)
            lower, upper = regret_bounds(estimate, rng=np.random.default_rng(0), draws=200, level=0.999)
        assert np.isfinite(lower).all()
        assert np.isfinite(upper).all()
        assert (lower <= upper).all()
