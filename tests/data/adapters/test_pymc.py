"""PyMC models on their unconstrained value variables. PyMC is heavy, so no extra of relfit installs it."""

import numpy as np
import pytest
from refusals import refused
from slopes import slopes

from relfit.data.adapters import adapt

pymc = pytest.importorskip("pymc", reason="pymc is not installed (relfit's extras leave it out: it brings a compiler)")

Y = np.array([0.3, -0.4, 1.1, 0.8])


def log_posterior(rows):
    """Of (μ, log σ), up to a constant; σ half-normal, and the Jacobian of σ = exp adds log σ."""
    mu, log_sigma = rows[:, 0], rows[:, 1]
    fit = ((Y - mu[:, None]) ** 2).sum(axis=1) * np.exp(-2.0 * log_sigma)
    return -0.125 * mu**2 - 0.5 * np.exp(2.0 * log_sigma) + log_sigma - 0.5 * fit - len(Y) * log_sigma


def test_a_pymc_model(rng):
    with pymc.Model() as model:
        mu = pymc.Normal("mu", 0.0, 2.0)
        sigma = pymc.HalfNormal("sigma", 1.0)
        pymc.Normal("y", mu, sigma, observed=Y)
    x = rng.normal(size=(40, 2)) * 0.7
    density = adapt(model, 2)
    np.testing.assert_allclose(density.scores(x), slopes(log_posterior, x), rtol=1e-7, atol=1e-7)
    gap = density.log_probs(x) - log_posterior(x)
    np.testing.assert_allclose(gap, gap[0], atol=1e-9)
    refused(lambda: adapt(model, 3), "expected dimension 3 like the data, got 2")
