"""Carving: closed forms for two models, brute force over the selection event, and simulated levels and coverage."""

import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from relfit.stats.joint import JointEstimate
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.carve import carve, carve_bounds, select
from relfit.stats.tests.relpsi import RelPSI

ALPHA = 0.05


def joint(values, covariance):
    return JointEstimate(tuple(f"m{k}" for k in range(len(values))), values, covariance)


def random_covariance(l, seed):
    root = np.random.default_rng(seed).normal(size=(l, l))
    return root @ root.T / l


@pytest.fixture(params=[1.0, 0.5])
def gamma(request, monkeypatch):
    """The size of the noise."""
    monkeypatch.setattr("relfit.stats.tests.carve.GAMMA", request.param)
    return request.param


def first_seed_selecting(estimate, best):
    """The first seed whose noise selects this model."""
    for seed in range(10_000):
        if select(estimate, np.random.default_rng(seed), 0).best == best:
            return seed
    raise AssertionError("no seed selects it")


def interval(estimate, level, **options):
    """(l, 2) equal-tailed intervals."""
    return np.stack(carve_bounds(estimate, (1.0 + level) / 2.0, **options), axis=1)


@pytest.mark.parametrize("t", [-1.0, 0.0, 0.5, 2.0, 5.0])
def test_two_models_by_quadrature(t, gamma):
    """J = 0 when t + γv ≥ 0, v ~ N(0, 1) (s = 1): density ∝ φ(x)Φ(x/γ), of total mass ½.

    p = 2∫_t^∞ φ(x)Φ(x/γ) dx, which is 1 − Φ(t)² for γ = 1.
    """
    estimate = joint([0.0, t], 0.5 * np.eye(2))
    seed = first_seed_selecting(estimate, 0)
    draws = 40_000
    decision = carve(estimate, ALPHA, rng=np.random.default_rng(seed), draws=draws)
    expected = 2 * quad(lambda x: norm.pdf(x) * norm.cdf(x / gamma), t, 12, epsabs=0, epsrel=1e-10)[0]
    if gamma == 1.0:
        assert expected == pytest.approx(1 - norm.cdf(t) ** 2, rel=1e-8)
    # A ratio of means of draws in [0, 1]: its error is at most √(p(1−p)) · √(Var/E²)/√draws with E = ½.
    assert decision.best == 0
    assert abs(np.exp(decision.log_pvalue[1]) / expected - 1) < 5 * 2 / np.sqrt(draws)


def test_intervals_are_the_selection_event(monkeypatch):
    """Move t and hold N = D − c t: J stays argmin(N + c t' + γw) exactly for t' in [a, b], draw by draw."""
    monkeypatch.setattr("relfit.stats.tests.carve.GAMMA", 0.7)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        v = random_covariance(5, seed)
        d = rng.normal(size=5)
        selection = select(joint(d, v), rng, 60)
        best = selection.best
        i = (best + 2) % 5
        law = selection.law(i)
        a, b = law.a[0], law.b[0]
        eta = np.eye(5)[i] - np.eye(5)[best]
        s2 = eta @ v @ eta
        c, t = v @ eta / s2, eta @ d
        grid = np.linspace(-6, 6, 241) * np.sqrt(s2)
        # D_k − D_J + w_k − w_J less D_k − D_J is the noise, up to what it adds to all models.
        noise = selection.shifted - (d - d[best])[:, None]
        moved = (d - c * t)[:, None, None] + c[:, None, None] * grid[:, None] + noise[:, None, :]
        selected = moved.argmin(axis=0) == best
        inside = (grid[:, None] >= a * np.sqrt(s2)) & (grid[:, None] <= b * np.sqrt(s2))
        np.testing.assert_array_equal(selected, inside)
        assert a[0] <= law.t[0] <= b[0]


def test_little_noise_is_relpsi(monkeypatch):
    """γ → 0: every draw has RelPSI's truncation limits."""
    monkeypatch.setattr("relfit.stats.tests.carve.GAMMA", 1e-9)
    rng = np.random.default_rng(1)
    estimate = joint(rng.normal(size=5), random_covariance(5, 2))
    ours = carve(estimate, ALPHA, rng=rng, draws=50)
    theirs = RelPSI().decide(estimate, Criteria(ALPHA))
    assert ours.best == theirs.best
    np.testing.assert_allclose(ours.log_pvalue, theirs.log_pvalue, rtol=1e-5, atol=1e-7)


def uniform(p):
    """Whether the distribution function of p is on the diagonal, within 4 standard errors everywhere."""
    p, grid = np.asarray(p), np.linspace(0.05, 0.95, 19)
    return (np.abs((p[:, None] <= grid).mean(axis=0) - grid) < 4 * np.sqrt(grid * (1 - grid) / len(p))).all()


@pytest.mark.parametrize("mean", [np.zeros(4), np.array([0.0, 0.0, 0.6, 0.6])], ids=["tied", "two groups"])
def test_pvalues_are_uniform_given_the_selected_model(mean):
    """For every J and every i that is truly level with it, whether or not J is a best model."""
    rng = np.random.default_rng(11)
    covariance = random_covariance(4, 8) + 0.2 * np.eye(4)
    p = {}
    for d in rng.multivariate_normal(mean, covariance, size=1500):
        decision = carve(joint(d, covariance), ALPHA, rng=rng, draws=60)
        for i in set(range(4)) - {decision.best}:
            if mean[i] == mean[decision.best]:
                p.setdefault((decision.best, i), []).append(np.exp(decision.log_pvalue[i]))
    checked = [pair for pair, values in p.items() if len(values) > 80]
    assert {best for best, _ in checked} == {0, 1, 2, 3}
    assert all(uniform(p[pair]) for pair in checked)


def test_bounds_agree_with_the_pvalues():
    """With the same seed: lower bound > 0 exactly where p < 1 − level; interval inside out of the bound."""
    rng = np.random.default_rng(15)
    covariance = random_covariance(6, 6)
    for seed in range(5):
        estimate = joint(3 * rng.normal(size=6), covariance)
        decision = carve(estimate, ALPHA, rng=np.random.default_rng(seed), draws=200)
        lower, _ = carve_bounds(estimate, 0.95, rng=np.random.default_rng(seed), draws=200)
        ends = interval(estimate, 0.95, rng=np.random.default_rng(seed), draws=200)
        others = np.arange(6) != decision.best
        np.testing.assert_array_equal((lower > 0)[others], (np.exp(decision.log_pvalue) < 0.05)[others])
        assert (ends[others, 0] < lower[others]).all()
        assert (ends[others, 1] > lower[others]).all()
        assert not ends[decision.best].any()


def test_bounds_of_two_models_by_quadrature():
    """γ = 1, s = 1: the lower bound μ solves ∫_t^∞ φ(x−μ)Φ(x)dx / ∫φ(x−μ)Φ(x)dx = .05."""
    t = 2.5
    estimate = joint([0.0, t], 0.5 * np.eye(2))
    seed = first_seed_selecting(estimate, 0)
    lower, _ = carve_bounds(estimate, 0.95, rng=np.random.default_rng(seed), draws=20_000)
    low, high = interval(estimate, 0.95, rng=np.random.default_rng(seed), draws=20_000)[1]

    def survival(mu):
        above = quad(lambda x: norm.pdf(x - mu) * norm.cdf(x), t, 15)[0]
        return above / quad(lambda x: norm.pdf(x - mu) * norm.cdf(x), -15, 15)[0]

    assert survival(lower[1]) == pytest.approx(0.05, abs=0.003)
    assert survival(low) == pytest.approx(0.025, abs=0.002)
    assert survival(high) == pytest.approx(0.975, abs=0.002)


def test_models_that_differ_by_a_constant():
    covariance = np.array([[1.0, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 2]])
    estimate = joint([0.0, 1e-7, 0.5, 9.0], covariance)
    decision = carve(estimate, ALPHA, rng=np.random.default_rng(0))
    lower, _ = carve_bounds(estimate, 0.95, rng=np.random.default_rng(0))
    assert decision.best in (0, 1)
    assert decision.status[2] == ("deterministic",)
    assert decision.status[1 - decision.best] == ("indistinguishable",)
    assert decision.worse.tolist() == [False, False, True, True]
    assert lower[2] == pytest.approx(0.5)
    assert lower[1 - decision.best] == 0.0


def test_hard_covariances_never_give_nan():
    rank_one = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    cases = [
        ([0.0, 0.0, 0.0], np.zeros((3, 3))),
        ([0.0, 0.0, 0.0], np.eye(3)),
        ([0.0, 0.0, 1.0], np.ones((3, 3))),
        ([0.0, 1.0, 2.0], rank_one),
        ([0.0, 0.0, 5.0], np.diag([0.0, 1.0, 1e-30])),
        ([1e100, 0.0, -1e100], np.eye(3)),
        ([0.0, 300.0, 301.0], np.eye(3)),
    ]
    for values, covariance in cases:
        for seed in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                decision = carve(joint(values, covariance), ALPHA, rng=np.random.default_rng(seed), draws=50)
                low, high = interval(joint(values, covariance), 0.95, rng=np.random.default_rng(seed), draws=50).T
            assert not np.isnan(decision.log_pvalue).any()
            assert (decision.log_pvalue <= 0.0).all()
            assert not np.isnan([low, high]).any()
            assert (low <= high).all()
