import numpy as np
import pytest
from oracle import dense

from relfit.compute.reduce import Runtime
from relfit.estimators.ksd import autocorrelation_time, chain_ksd
from relfit.kernels.standard import Gaussian


def autoregression(m, rho, rng, d=1):
    """A stationary chain with N(0, 1) margins and lag-one correlation ρ: τ = (1 + ρ)/(1 − ρ)."""
    x = np.empty((m, d))
    x[0] = rng.normal(size=d)
    noise = rng.normal(size=(m, d)) * np.sqrt(1 - rho**2)
    for k in range(1, m):
        x[k] = rho * x[k - 1] + noise[k]
    return x


def test_value_is_the_mean_over_far_pairs(rng):
    x = rng.normal(size=(60, 2))
    s = rng.normal(size=(60, 2))
    got = chain_ksd(x, s, Gaussian(1.0), Runtime())
    u = dense.stein_matrix(x, s, Gaussian(1.0))
    far = np.abs(np.subtract.outer(np.arange(60), np.arange(60))) >= got.batch_length
    assert got.value == pytest.approx(u[far].mean(), abs=1e-12)
    assert len(got.batch_psi) == 60 // got.batch_length


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregression(rho):
    rng = np.random.default_rng(1)
    times = [autocorrelation_time(autoregression(4000, rho, rng)[:, 0]) for _ in range(20)]
    assert np.mean(times) == pytest.approx((1 + rho) / (1 - rho), rel=0.15)


def test_a_constant_series_has_time_one():
    assert autocorrelation_time(np.ones(50)) == 1.0
