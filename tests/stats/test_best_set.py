"""The best set: by hand, by quadrature, and by simulation of its error rates."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import norm

from relfit.stats.decision import difference_errors, difference_variance, differences, gaps_to
from relfit.stats.joint import JointEstimate, Psi, smallest_sample
from relfit.stats.tests.best_set import best_set

ALPHA = 0.05


def joint(values, covariance, n=None, psi=None):
    names = tuple(f"m{k}" for k in range(len(values)))
    return JointEstimate(names, values, covariance, None if n is None else (n,), psi)


def decide(values, covariance, n=None, seed=0, alpha=ALPHA, **options):
    return best_set(joint(values, covariance, n), alpha, rng=np.random.default_rng(seed), **options)


def skewed_psi(n, l, seed, models=0, shared=False):
    """Centred exponential rows: skewed enough for the percentile-t to matter."""
    rng = np.random.default_rng(seed)
    rows = rng.exponential(size=(n, l))
    own = tuple(x - x.mean() for x in rng.exponential(size=(l, models))) if models else ()
    return Psi(rows - rows.mean(axis=0), own, shared)


def test_two_models_are_the_one_sided_z_test():
    """l = 2: max over one j, so p_i = Φ(−(D_i − D_j)/s) for both models, without Monte-Carlo error."""
    covariance = np.array([[0.02, 0.005], [0.005, 0.03]])
    s = np.sqrt(0.02 + 0.03 - 0.01)
    decision = decide([0.1, 0.5], covariance)
    np.testing.assert_allclose(np.exp(decision.log_pvalue), [norm.cdf(0.4 / s), norm.sf(0.4 / s)], rtol=1e-12)
    assert decision.best == 0
    assert decision.worse.tolist() == [False, True]
    assert decision.beaten_by == (None, 0)
    near = [decide([0.0, norm.isf(p)], 0.5 * np.eye(2)).worse[1] for p in (0.0499, 0.0501)]
    assert near == [True, False]


def test_two_models_with_a_margin():
    """H_1: D_1 ≤ D_0 + δ, so p = Φ(−(t − δ)/s)."""
    decision = decide([0.0, 1.0], 0.5 * np.eye(2), margin=0.4)
    np.testing.assert_allclose(np.exp(decision.log_pvalue), norm.sf([-1.4, 0.6]), rtol=1e-12)


def test_three_independent_models_by_quadrature():
    """V = I/2, s = 1: P(max_j(G_i − G_j) ≥ T) = 1 − ∫ φ(x) Φ(√2 T − x)² dx with G = x/√2."""
    draws = 40_000
    decision = decide([0.0, 0.7, 1.8], 0.5 * np.eye(3), draws=draws)
    for i, statistic in enumerate([-0.7, 0.7, 1.8]):
        inside = quad(lambda x, t=statistic: norm.pdf(x) * norm.cdf(np.sqrt(2) * t - x) ** 2, -9, 9)[0]
        error = np.sqrt(inside * (1 - inside) / draws)
        assert abs(np.exp(decision.log_pvalue[i]) - (1 - inside)) < 4 * error + 1 / draws


def test_moment_selection_by_hand():
    """n = 400, √log n = 2.448. V = I/2, s = 1, D = (0, 2, 10).

    i = 1: (D_1 − D_j) = 2 and −8, so K = {0} and p = Φ(−2). i = 0: −2 and −10, K = {1}, p = Φ(2).
    i = 2: K = {0, 1}, T = 10, p ≤ 2Φ(−10). With n unknown K_1 = {0, 2} and p_1 is larger than Φ(−2).
    """
    decision = decide([0.0, 2.0, 10.0], 0.5 * np.eye(3), n=400)
    np.testing.assert_allclose(np.exp(decision.log_pvalue[:2]), [norm.cdf(2), norm.sf(2)], rtol=1e-12)
    assert decision.log_pvalue[2] == pytest.approx(np.log(2) + log_ndtr(-10.0), rel=1e-12)
    unknown = decide([0.0, 2.0, 10.0], 0.5 * np.eye(3))
    assert np.exp(unknown.log_pvalue[1]) > 1.3 * norm.sf(2)


def test_beaten_by_is_where_the_maximum_is_attained():
    """Model 3 is 4 above model 0 with s = 2 (ratio 2), and 3 above model 1 with s = ½ (ratio 6)."""
    covariance = np.diag([4.0, 0.125, 9.0, 0.125])
    decision = decide([0.0, 1.0, 2.0, 4.0], covariance)
    assert decision.best == 0
    assert decision.beaten_by[3] == 1
    # T_3 = 6 against three models: the union bound holds to the last digits, far below the resolution of the draws.
    assert decision.log_pvalue[3] == pytest.approx(np.log(3) + log_ndtr(-6.0), rel=1e-12)


def test_smallest_sample_skips_a_reference_that_is_a_density():
    estimate = JointEstimate(("a", "b"), [0.0, 1.0], np.eye(2), (0, 400, 50))
    assert smallest_sample(estimate) == 50
    assert smallest_sample(joint([0.0, 1.0], np.eye(2))) is None
    assert smallest_sample(joint([0.0, 1.0], np.eye(2), psi=skewed_psi(31, 2, seed=0))) == 31


def test_differences_follow_the_rules_for_pairs_without_variance():
    """Rows 1 and 2 are row 0 plus a constant, row 3 is its own."""
    shared = np.array([[1.0, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 2]])
    estimate = joint([0.0, 1e-7, 0.5, 0.1], shared)
    pairs = differences(estimate)
    np.testing.assert_array_equal(pairs.error, difference_errors(shared))
    for j in range(4):
        gaps = gaps_to(estimate, j)
        np.testing.assert_array_equal(pairs.gap[:, j], gaps.gap[0])
        np.testing.assert_array_equal(pairs.error[:, j], gaps.error[0])
        np.testing.assert_array_equal(pairs.certain[:, j], gaps.known_log_pvalues()[0] == -np.inf)
        for i in range(4):
            assert pairs.error[i, j] ** 2 == pytest.approx(difference_variance(shared, i, j), rel=1e-12)
    assert np.argwhere(pairs.certain).tolist() == [[2, 0], [2, 1]]
    assert np.argwhere(pairs.same & ~np.eye(4, dtype=bool)).tolist() == [[0, 1], [1, 0]]


def test_models_that_differ_by_a_constant_are_decided_without_a_test():
    shared = np.array([[1.0, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 2]])
    decision = decide([0.0, 1e-7, 0.5, 0.1], shared, n=100)
    assert decision.status == ((), ("indistinguishable",), ("deterministic",), ())
    assert decision.worse.tolist() == [False, False, True, False]
    assert decision.beaten_by[2] == 0
    # The constant itself is compared with the margin.
    assert decide([0.0, 1e-7, 0.5, 0.1], shared, n=100, margin=0.6).worse.tolist() == [False] * 4


def test_hard_covariances_never_give_nan():
    rank_one = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    cases = [
        ([0.0, 0.0, 0.0], np.zeros((3, 3))),
        ([0.0, 1.0, 1.0], np.zeros((3, 3))),
        ([0.0, 0.0, 0.0], np.ones((3, 3))),
        ([0.0, 1.0, 2.0], rank_one),
        ([0.0, 0.0, 5.0], np.diag([0.0, 1.0, 1e-30])),
        ([1e-200, 0.0, 1e-200], 1e-250 * np.eye(3)),
        ([1e100, 0.0, -1e100], np.eye(3)),
    ]
    for values, covariance in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            decision = decide(values, covariance, n=50, draws=500)
        assert not np.isnan(decision.log_pvalue).any()
        assert (decision.log_pvalue <= 0.0).all()
        assert not decision.worse[decision.best]


def test_memory_stays_bounded():
    """20,000 draws × 60 × 60 pairs would be 576 MB."""
    estimate = joint(np.linspace(0, 1, 60), np.eye(60), n=2000)
    tracemalloc.start()
    best_set(estimate, ALPHA, rng=np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def rates(mean, covariance, trials, seed, **options):
    """(trials, l) verdicts on D ~ N(mean, V)."""
    rng = np.random.default_rng(seed)
    estimates = rng.multivariate_normal(mean, covariance, size=trials)
    return np.array(
        [best_set(joint(d, covariance, 200), ALPHA, rng=rng, draws=999, **options).worse for d in estimates]
    )


def random_covariance(l, seed):
    root = np.random.default_rng(seed).normal(size=(l, l))
    return root @ root.T / l


def test_false_positive_rate_is_alpha_when_all_tie():
    """All tied is least favourable: every model is declared worse with probability α, no more and no less."""
    trials = 2500
    worse = rates(np.zeros(5), random_covariance(5, 1), trials, seed=2)
    assert abs(worse.mean() - ALPHA) < 3.5 * worse.mean(axis=1).std() / np.sqrt(trials)
    assert (worse.mean(axis=0) < ALPHA + 4 * np.sqrt(ALPHA * (1 - ALPHA) / trials)).all()
