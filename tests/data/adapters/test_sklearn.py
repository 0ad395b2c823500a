"""scikit-learn's mixtures and kernel density estimates: closed-form scores against finite differences."""

import numpy as np
import pytest
from refusals import refused
from slopes import slopes

from relfit.data.adapters import adapt

mixture = pytest.importorskip("sklearn.mixture", reason="scikit-learn is not installed")
neighbors = pytest.importorskip("sklearn.neighbors", reason="scikit-learn is not installed")


@pytest.fixture
def x(rng):
    return rng.normal(size=(200, 3)) @ np.diag([1.0, 0.5, 2.0]) + rng.integers(2, size=(200, 1)) * 2.0


@pytest.mark.parametrize("shape", ["full", "tied", "diag", "spherical"])
def test_mixtures_have_the_slopes_of_what_they_draw_from(x, shape):
    fitted = mixture.GaussianMixture(3, covariance_type=shape, random_state=0).fit(x)
    density = adapt(fitted, 3)
    np.testing.assert_allclose(density.scores(x), slopes(fitted.score_samples, x), rtol=1e-8, atol=1e-8)
    # sample() draws from Σ w_k N(μ_k, C_k) with the fitted weights, means and covariances; written out by scipy.
    from scipy.special import logsumexp
    from scipy.stats import multivariate_normal

    fitted = mixture.BayesianGaussianMixture(n_components=3, covariance_type=shape, max_iter=500, random_state=0).fit(x)
    covariances = {
        "full": lambda k: fitted.covariances_[k],
        "tied": lambda k: fitted.covariances_,
        "diag": lambda k: np.diag(fitted.covariances_[k]),
        "spherical": lambda k: fitted.covariances_[k] * np.eye(3),
    }[shape]

    def log_prob(rows):
        parts = [multivariate_normal.logpdf(rows, fitted.means_[k], covariances(k)) for k in range(3)]
        return logsumexp(np.stack(parts, axis=1) + np.log(fitted.weights_), axis=1)

    np.testing.assert_allclose(adapt(fitted, 3).scores(x), slopes(log_prob, x), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_kernel_density_estimate(x, rng, kernel, weighted):
    weights = rng.uniform(0.5, 2.0, 100) if weighted else None
    fitted = neighbors.KernelDensity(bandwidth=0.7, kernel=kernel).fit(x[:100], sample_weight=weights)
    density = adapt(fitted, 3)
    np.testing.assert_allclose(density.scores(x[100:]), slopes(fitted.score_samples, x[100:]), rtol=1e-6, atol=1e-6)
    gap = density.log_probs(x) - fitted.score_samples(x)
    np.testing.assert_allclose(gap, gap[0], atol=1e-8)


def test_what_is_no_density_on_these_columns_is_refused(x):
    for kernel in ("tophat", "epanechnikov", "linear", "cosine"):
        fitted = neighbors.KernelDensity(kernel=kernel).fit(x)
        refused(lambda f=fitted: adapt(f, 3), "KernelDensity: expected kernel", repr(kernel), "positive density")
    refused(lambda: adapt(neighbors.KernelDensity(metric="manhattan").fit(x), 3), "metric", "'manhattan'")
    refused(lambda: adapt(mixture.GaussianMixture(2), 3), "GaussianMixture: expected a fitted model", "call fit first")
    refused(lambda: adapt(neighbors.KernelDensity(), 3), "KernelDensity: expected a fitted model")
    refused(lambda: adapt(mixture.GaussianMixture(2).fit(x), 2), "expected dimension 2 like the data, got 3")
