"""Bounds for how much worse than the best each model is: by hand, against the best set, and their coverage."""

import warnings

import numpy as np
import pytest
from scipy.stats import norm

from relfit.stats.joint import JointEstimate
from relfit.stats.tests.best_set import best_set, regret_bounds

Z = norm.isf(0.05)


def joint(values, covariance, n=None):
    return JointEstimate(tuple(f"m{k}" for k in range(len(values))), values, covariance, None if n is None else (n,))


def test_two_models_by_hand():
    """s = 1, gap 3. Alone: R_1 ≥ 3 − z, R_0 ≥ 0. Upper: C = {0} (3 > z), so R_1 ≤ 3 + z and R_0 ≤ 0."""
    bounds = regret_bounds(joint([0.0, 3.0], 0.5 * np.eye(2)), rng=np.random.default_rng(0), simultaneous=False)
    np.testing.assert_allclose(bounds.lower, [0.0, 3.0 - Z], rtol=1e-12)
    np.testing.assert_allclose(bounds.upper, [0.0, 3.0 + Z], rtol=1e-12)


def test_both_of_two_close_models_may_be_best():
    """Gap 1 < z: C = {0, 1}. R_0 ≤ −1 + z, R_1 ≤ 1 + z, and neither has a lower bound above 0."""
    bounds = regret_bounds(joint([0.0, 1.0], 0.5 * np.eye(2)), rng=np.random.default_rng(0))
    np.testing.assert_allclose(bounds.upper, [Z - 1.0, Z + 1.0], rtol=1e-12)
    np.testing.assert_array_equal(bounds.lower, [0.0, 0.0])


def test_a_clear_best_makes_it_a_comparison_with_that_model():
    """D_0 known and far below three others: d is the 1 − α quantile of the maximum of three independent
    normals, √[3]{.95} = .98305 → 2.1212 for the upper bounds; the lower ones pay a tenth for the first step,
    √[3]{.955} = .98477 → 2.1636, and nothing for the other pairs.
    """
    estimate = joint([0.0, 50.0, 80.0, 110.0], np.diag([0.0, 1.0, 1.0, 1.0]))
    bounds = regret_bounds(estimate, rng=np.random.default_rng(1), draws=100_000)
    upper, lower = norm.ppf(0.95 ** (1 / 3)), norm.ppf(0.955 ** (1 / 3))
    np.testing.assert_allclose(bounds.upper, np.r_[0.0, np.array([50.0, 80.0, 110.0]) + upper], atol=0.03)
    np.testing.assert_allclose(bounds.lower, np.r_[0.0, np.array([50.0, 80.0, 110.0]) - lower], atol=0.03)


def test_each_lower_bound_agrees_with_the_best_set():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(6, 6))
    for seed in range(20):
        estimate = joint(rng.normal(size=6) * 3, root @ root.T, n=100)
        bounds = regret_bounds(estimate, rng=np.random.default_rng(seed), simultaneous=False, draws=2000)
        p = np.exp(best_set(estimate, 0.05, rng=np.random.default_rng(seed), draws=2000).log_pvalue)
        clear = np.abs(p - 0.05) > 0.003
        np.testing.assert_array_equal((bounds.lower > 0)[clear], (p < 0.05)[clear])


def test_simultaneous_bounds_are_never_above_those_of_single_models():
    rng = np.random.default_rng(3)
    estimate = joint([0.0, 1.0, 2.0, 6.0, 9.0], np.eye(5), n=100)
    together = regret_bounds(estimate, rng=rng)
    alone = regret_bounds(estimate, rng=rng, simultaneous=False)
    assert (together.lower <= alone.lower + 1e-9).all()
    assert together.lower[4] > 4.0


def test_constant_differences_are_known():
    covariance = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    bounds = regret_bounds(joint([0.0, 0.5, 30.0], covariance), rng=np.random.default_rng(0))
    assert bounds.lower[1] == bounds.upper[1] == 0.5
    nothing = regret_bounds(joint([0.0, 0.5, 0.0], np.zeros((3, 3))), rng=np.random.default_rng(0))
    np.testing.assert_array_equal(nothing.lower, [0.0, 0.5, 0.0])
    np.testing.assert_array_equal(nothing.upper, [0.0, 0.5, 0.0])


def test_hard_covariances_never_give_nan():
    for covariance in (np.zeros((3, 3)), np.ones((3, 3)), np.outer([1.0, 2, 3], [1.0, 2, 3]), np.diag([0.0, 1.0, 0.0])):
        for simultaneous in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                estimate = joint([0.0, 0.0, 1.0], covariance, n=30)
                bounds = regret_bounds(
                    estimate, rng=np.random.default_rng(0), simultaneous=simultaneous, draws=200, level=0.999
                )
            assert np.isfinite(bounds.lower).all()
            assert np.isfinite(bounds.upper).all()
            assert (bounds.lower <= bounds.upper).all()


CASES = {
    "all tied": np.zeros(5),
    "one best, the rest tied": np.r_[0.0, np.full(4, 3.0)],
    "graded": np.linspace(0.0, 4.0, 5),
    "far apart": 40.0 * np.arange(5),
}


@pytest.mark.parametrize("case", CASES)
def test_simultaneous_coverage(case):
    """All bounds hold at once in 95% of the trials.

    All tied is least favourable for the lower ones (then the coverage is what the first step leaves, .955), a
    clear best for the upper ones (.95).
    """
    mean, trials = CASES[case], 800
    root = np.random.default_rng(9).normal(size=(5, 5))
    covariance = root @ root.T / 5
    rng = np.random.default_rng(10)
    truth = mean - mean.min()
    below, above = [], []
    for d in rng.multivariate_normal(mean, covariance, size=trials):
        bounds = regret_bounds(joint(d, covariance, 200), rng=rng, draws=999)
        below.append((bounds.lower <= truth + 1e-12).all())
        above.append((bounds.upper >= truth - 1e-12).all())
    error = np.sqrt(0.95 * 0.05 / trials)
    assert np.mean(below) > 0.95 - 3 * error
    assert np.mean(above) > 0.95 - 3 * error
    if case == "all tied":
        assert np.mean(below) < 0.955 + 3 * error
    if case == "far apart":
        assert np.mean(above) < 0.95 + 3 * error
