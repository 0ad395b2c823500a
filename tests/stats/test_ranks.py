"""Confidence sets for ranks and the matrix of who beats whom: by hand, laws, and simulated coverage."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_ndtr

from relfit.stats.joint import JointEstimate
from relfit.stats.pairs import pairwise_matrix, rank_sets


def joint(values, covariance):
    return JointEstimate(tuple(f"m{k}" for k in range(len(values))), values, covariance)


def rank_bounds(shown):
    worse, better = shown
    return 1 + worse.sum(axis=1), len(better) - better.sum(axis=1)


def ranks(values, covariance, seed=0, **options):
    shown = rank_sets(joint(values, covariance), rng=np.random.default_rng(seed), **options)
    lower, upper = rank_bounds(shown)
    return SimpleNamespace(lower=lower, upper=upper, worse=shown[0])


@pytest.mark.parametrize("simultaneous", [True, False])
def test_two_models_by_hand(simultaneous):
    """Two hypotheses with Z and −Z: the critical value is that of |Z|, 1.960, for one model as for both."""
    below = ranks([0.0, 1.90], 0.5 * np.eye(2), simultaneous=simultaneous)
    above = ranks([0.0, 2.02], 0.5 * np.eye(2), simultaneous=simultaneous)
    assert (below.lower.tolist(), below.upper.tolist()) == ([1, 1], [2, 2])
    assert (above.lower.tolist(), above.upper.tolist()) == ([1, 2], [1, 2])


def test_step_down_finds_what_a_single_step_does_not():
    """V = I/2, s = 1, D = (0, 2.2, 30). Six hypotheses at first: critical value 2.344 (the studentised range of
    three, 3.314/√2). The four with model 2 are settled (two rejected, and 2 < 0, 2 < 1 have ratios −30, −28),
    but stay in the family until rejected: left are (0,1), (1,0), (0,2), (1,2), whose critical value is the .95
    quantile of max(|Z_01|, Z_02, Z_12), simulated here; 2.2 lies above it and below 2.344.
    """
    rng = np.random.default_rng(1)
    g = rng.normal(size=(3, 400_000)) / np.sqrt(2)
    first = np.quantile(np.ptp(g, axis=0), 0.95)
    second = np.quantile(np.maximum.reduce([np.abs(g[0] - g[1]), g[0] - g[2], g[1] - g[2]]), 0.95)
    assert first == pytest.approx(3.314 / np.sqrt(2), abs=0.02)
    middle = (first + second) / 2
    assert first - second > 0.08
    got = ranks([0.0, middle, 30.0], 0.5 * np.eye(3), draws=50_000)
    assert got.worse[1, 0]
    assert not ranks([0.0, middle, 1.0], 0.5 * np.eye(3), draws=50_000).worse.any()


def test_a_constant_difference_settles_an_order():
    covariance = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    for simultaneous in (True, False):
        got = ranks([0.0, 0.5, 0.1], covariance, simultaneous=simultaneous)
        assert got.worse[1, 0]
        assert got.lower.tolist() == [1, 2, 1]
        assert got.upper.tolist() == [2, 3, 3]


def test_pairwise_matrix_by_hand():
    """V = diag(1, 1, 2), D = (0, 1, 4): s_01 = √2, s_02 = s_12 = √3."""
    estimate = joint([0.0, 1.0, 4.0], np.diag([1.0, 1.0, 2.0]))
    log_pvalue, adjusted, worse, _ = pairwise_matrix(estimate, 0.05, "none")
    z = np.array([[np.nan, -1 / 2**0.5, -4 / 3**0.5], [1 / 2**0.5, np.nan, -3 / 3**0.5], [4 / 3**0.5, 3 / 3**0.5, 0]])
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(log_pvalue[off], log_ndtr(-z[off]), rtol=1e-12)
    np.testing.assert_array_equal(np.diag(adjusted), 1.0)
    assert worse.tolist() == [[False, False, False], [False, False, False], [True, True, False]]


def test_pairwise_automatic_correction_and_constant_differences():
    covariance = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    _, _, worse, correction = pairwise_matrix(joint([0.0, 0.5, 0.1], covariance), 0.05, "auto")
    assert correction == "by"
    assert worse.tolist() == [[False, False, False], [True, False, False], [False, False, False]]


def test_hard_covariances_never_give_nan():
    for covariance in (np.zeros((3, 3)), np.ones((3, 3)), np.outer([1.0, 2, 3], [1.0, 2, 3]), np.diag([0.0, 1.0, 0.0])):
        for simultaneous in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                got = ranks([0.0, 0.0, 1.0], covariance, simultaneous=simultaneous, draws=200)
                log_pvalue = pairwise_matrix(joint([0.0, 0.0, 1.0], covariance), 0.05)[0]
            assert (got.lower <= got.upper).all()
            assert not np.isnan(log_pvalue).any()


@pytest.mark.parametrize("seed", range(6))
def test_each_models_own_family_steps_down_by_itself(seed):
    """Standard errors that differ fifty-fold: the critical value of a family is its own. Naively, one by one."""
    covariance = np.diag([0.01, 0.01, 25.0, 25.0])
    covariance[2, 3] = covariance[3, 2] = 24.9
    values = np.array([0.0, 0.28, 1.0, 9.0]) + np.random.default_rng(seed).normal(size=4) * [0.02, 0.02, 3.0, 3.0]
    estimate = JointEstimate(tuple("abcd"), values, covariance)
    s = np.sqrt(np.add.outer(np.diag(covariance), np.diag(covariance)) - 2 * covariance)
    drawn = np.random.default_rng(5).multivariate_normal(np.zeros(4), covariance, size=20_000, method="eigh")
    worse, better = rank_sets(estimate, rng=np.random.default_rng(0), simultaneous=False, draws=20_000)
    for i in range(4):
        family = [pair for j in range(4) if j != i for pair in ((i, j), (j, i))]
        rejected, new = set(), {None}
        while new and (left := [pair for pair in family if pair not in rejected]):
            critical = np.quantile(np.max([(drawn[:, a] - drawn[:, b]) / s[a, b] for a, b in left], axis=0), 0.95)
            new = {(a, b) for a, b in left if (values[a] - values[b]) / s[a, b] > critical}
            rejected |= new
        assert worse[i].tolist() == [(i, j) in rejected for j in range(4)]
        assert better[i].tolist() == [(j, i) in rejected for j in range(4)]
