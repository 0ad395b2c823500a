"""Densities of other libraries that say they are normalised: their log densities are the libraries' own."""

import numpy as np
import pytest
from refusals import refused
from scipy import stats

import relfit
from relfit.data.adapters import adapt


def own_mean(model, x):
    """minus the mean log-likelihood by `relfit.estimate`."""
    return relfit.estimate(x, {"model": model}, discrepancy="loglik", rng=0).values[0]


@pytest.fixture
def x(rng):
    return rng.normal(size=(150, 2)) @ np.array([[1.0, 0.3], [0.0, 0.7]]) + 0.5


def test_torch_distributions_and_flows(x):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    zuko = pytest.importorskip("zuko", reason="zuko is not installed")
    rows = torch.as_tensor(x)
    normal = torch.distributions.MultivariateNormal(torch.zeros(2, dtype=torch.float64), torch.eye(2).double())
    assert own_mean(normal, x) == pytest.approx(-normal.log_prob(rows).mean().item(), rel=1e-12)
    flow = zuko.flows.MAF(2, transforms=2, hidden_features=(16,)).double()
    with torch.no_grad():
        expected = -flow().log_prob(rows).mean().item()
    assert own_mean(flow, x) == pytest.approx(expected, rel=1e-12)


def test_nflows(x):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("nflows", reason="nflows is not installed")
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import MaskedAffineAutoregressiveTransform

    flow = Flow(MaskedAffineAutoregressiveTransform(2, 8), StandardNormal([2])).double()
    with torch.no_grad():
        expected = -flow.log_prob(torch.as_tensor(x)).mean().item()
    assert own_mean(flow, x) == pytest.approx(expected, rel=1e-12)


def test_numpyro(x):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    dist = pytest.importorskip("numpyro.distributions", reason="NumPyro is not installed")
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        model = dist.StudentT(5.0, np.array([0.1, 0.2]), 1.5).to_event(1)
        expected = -float(model.log_prob(x).mean())
        assert own_mean(model, x) == pytest.approx(expected, rel=1e-12)
    improper = dist.ImproperUniform(dist.constraints.real, (), (2,))
    assert adapt(improper, 2).normalised is False


def test_what_is_not_known_to_be_normalised_says_so(x):
    """Densities on a simplex or a sphere have other units, energies have no constant."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    dirichlet = torch.distributions.Dirichlet(torch.ones(2))
    assert adapt(dirichlet, 2).normalised is None
    assert adapt(stats.dirichlet([1.0, 2.0]), 2).normalised is None

    class Energy(torch.nn.Module):
        def log_prob(self, rows):
            return -0.5 * (rows**2).sum(-1)

    both = {"energy": Energy(), "normal": stats.multivariate_normal([0, 0])}
    line = refused(lambda: relfit.compare(x, both, discrepancy="loglik"), "'energy'", "normalised=True", "ksd")
    assert "nan" not in line.lower()


@pytest.mark.parametrize(
    ("density", "words"),
    [
        (relfit.Density(score=lambda x: -x), "a score only"),
        (relfit.Density(log_prob=lambda x: -x[:, 0], normalised=False), "up to a constant"),
        (relfit.Density(log_prob=lambda x: -x[:, 0]), "not known"),
        (relfit.Density(log_prob=lambda x: np.full(len(x), np.nan), normalised=True), "nan at 150 of 150 rows"),
        (relfit.Density(log_prob=lambda x: np.full(len(x), np.inf), normalised=True), "inf at 150 of 150 rows"),
        (relfit.Density(log_prob=lambda x: -1e300 * x[:, 0] ** 2, normalised=True), "of 150 rows"),
    ],
)
def test_refusals_name_the_model(x, density, words):
    models = {"it": density, "normal": stats.multivariate_normal([0, 0])}
    refused(lambda: relfit.compare(x, models, discrepancy="loglik"), "model 'it'", words)
