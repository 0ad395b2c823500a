"""One mixture of Gaussians, written in four libraries, has one KSD."""

import sys

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from relfit.api import estimate
from relfit.data.models import Density

mixture = pytest.importorskip("sklearn.mixture", reason="scikit-learn is not installed")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(7)
    return rng.normal(size=(400, 2)) @ np.array([[1.0, 0.4], [0.0, 0.7]]) + rng.choice([-2.0, 1.0], (400, 1))


@pytest.fixture(scope="module")
def fitted(data):
    return mixture.GaussianMixture(3, random_state=0).fit(data[:200])


@pytest.fixture(autouse=True)
def fresh_jax():
    """JAX cannot trace constants in float64 that an earlier test traced in float32."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


def ksd(data, model):
    return estimate(data[200:], {"model": model}, rng=0)


def in_scipy(fitted):
    parts = [stats.multivariate_normal(mean, cov) for mean, cov in zip(fitted.means_, fitted.covariances_, strict=True)]
    weights = np.log(fitted.weights_)
    return Density(log_prob=lambda x: logsumexp(np.stack([part.logpdf(x) for part in parts], axis=1) + weights, axis=1))


def in_torch(fitted):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    weights, means, covariances = map(torch.tensor, (fitted.weights_, fitted.means_, fitted.covariances_))
    parts = torch.distributions.MultivariateNormal(means, covariances)
    return torch.distributions.MixtureSameFamily(torch.distributions.Categorical(weights), parts)


def in_jax(fitted):
    jax = pytest.importorskip("jax", reason="jax is not installed")

    @jax.jit
    def log_prob(x):
        parts = jax.vmap(jax.scipy.stats.multivariate_normal.logpdf, (None, 0, 0))(
            x, fitted.means_, fitted.covariances_
        )
        return jax.scipy.special.logsumexp(parts + np.log(fitted.weights_))

    return log_prob


def in_numpyro(fitted):
    numpyro = pytest.importorskip("numpyro.distributions", reason="numpyro is not installed")
    jax = pytest.importorskip("jax", reason="jax is not installed")
    with jax.enable_x64(True):
        parts = numpyro.MultivariateNormal(jax.numpy.asarray(fitted.means_), jax.numpy.asarray(fitted.covariances_))
        return numpyro.MixtureSameFamily(numpyro.Categorical(jax.numpy.asarray(fitted.weights_)), parts)


@pytest.mark.parametrize("written", [in_scipy, in_torch, in_jax, in_numpyro])
def test_the_ksd_is_the_same_to_eight_digits(data, fitted, written):
    expected, got = ksd(data, fitted), ksd(data, written(fitted))
    np.testing.assert_allclose(got.values, expected.values, rtol=1e-8)
    np.testing.assert_allclose(got.covariance, expected.covariance, rtol=1e-8)
