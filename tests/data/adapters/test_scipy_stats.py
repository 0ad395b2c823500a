"""scipy.stats distributions: scores against finite differences of their own logpdf."""

import numpy as np
import pytest
from refusals import refused
from scipy import stats
from slopes import slopes

from relfit.data.adapters import adapt

UNIVARIATE = [
    stats.norm(1.0, 2.0),
    stats.norm(loc=-1.0),
    stats.t(4.0, loc=1.0, scale=2.0),
    stats.cauchy(0.5, 2.0),
    stats.logistic(1.0, 3.0),
    stats.laplace(-9.0, 2.0),
    stats.gumbel_r(1.0, 2.0),
    stats.gumbel_l(1.0, 2.0),
    stats.gamma(3.0, loc=-20.0),
    stats.skewnorm(2.0),
    stats.gamma(2.0, loc=-9.0),
    stats.beta(3.0, 2.0, loc=-20.0, scale=40.0),
]


@pytest.mark.parametrize("frozen", UNIVARIATE, ids=lambda frozen: frozen.dist.name)
def test_univariate(frozen, rng):
    x = rng.normal(scale=1.5, size=(100, 1))
    density = adapt(frozen, 1)
    np.testing.assert_allclose(density.scores(x), slopes(lambda z: frozen.logpdf(z[:, 0]), x), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(density.log_probs(x), frozen.logpdf(x[:, 0]), rtol=1e-12)
    assert density.normalised


@pytest.mark.parametrize(
    "frozen",
    [
        stats.multivariate_normal([1.0, 2.0], [[1.0, 0.3], [0.3, 2.0]]),
        stats.multivariate_t([1.0, 2.0], [[1.0, 0.3], [0.3, 2.0]], df=3.0),
        stats.multivariate_t([1.0, 2.0], [[1.0, 0.3], [0.3, 2.0]], df=np.inf),
    ],
)
def test_multivariate(frozen, rng):
    x = rng.normal(scale=2.0, size=(100, 2))
    density = adapt(frozen, 2)
    assert not density.by_finite_differences
    np.testing.assert_allclose(density.scores(x), slopes(frozen.logpdf, x), rtol=1e-8, atol=1e-8)
    gap = density.log_probs(x) - frozen.logpdf(x)
    np.testing.assert_allclose(gap, gap[0], atol=1e-10)


@pytest.mark.parametrize("d", [1, 2])
def test_a_gaussian_kde(rng, d):
    points, x = rng.normal(size=(80, d)), rng.normal(size=(50, d))
    estimate = stats.gaussian_kde(points.T, weights=rng.uniform(1.0, 2.0, 80))
    expected = slopes(lambda rows: estimate.logpdf(rows.T), x)
    np.testing.assert_allclose(adapt(estimate, d).scores(x), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.skipif(not hasattr(stats, "Normal"), reason="scipy's newer distributions came with 1.15")
def test_the_newer_kind_of_distribution(rng):
    x = rng.normal(size=(30, 1))
    pair = stats.Mixture([stats.Normal(mu=-1.5, sigma=1.0), stats.Normal(mu=1.5, sigma=1.0)], weights=[0.5, 0.5])
    np.testing.assert_allclose(adapt(pair, 1).scores(x), 1.5 * np.tanh(1.5 * x) - x, atol=1e-8)


def test_what_is_no_density_on_these_columns_is_refused(rng):
    refused(lambda: adapt(stats.poisson(3.0), 1), "poisson: expected a continuous distribution, got a discrete one")
    refused(lambda: adapt(stats.norm([0.0, 1.0]), 1), "norm: expected one distribution, got an array of them")
    refused(lambda: adapt(stats.norm(), 2), "expected dimension 2 like the data, got 1")
    refused(lambda: adapt(stats.multivariate_normal([0.0, 0.0]), 3), "expected dimension 3 like the data, got 2")
    flat = stats.multivariate_normal([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]], allow_singular=True)
    refused(lambda: adapt(flat, 2), "multivariate_normal: expected a positive definite covariance, got a singular one")
    refused(lambda: adapt(stats.dirichlet([2.0, 2.0]), 2).scores(rng.normal(size=(9, 2))), "dirichlet", "9 rows")
