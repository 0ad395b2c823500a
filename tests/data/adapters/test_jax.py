"""JAX functions and NumPyro distributions: jax.grad in float64, whatever JAX's own setting."""

import numpy as np
import pytest
from refusals import refused
from slopes import slopes

from relfit.data.adapters import adapt
from relfit.data.load import load
from relfit.data.models import Density, scores_of

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy


@pytest.fixture
def x(rng):
    return rng.normal(size=(100, 2))


def by_rows(x):
    return -jnp.logaddexp(0.5 * ((x - 1.0) ** 2).sum(-1), x[..., 0] ** 2)


def one_row(x):
    return -jnp.logaddexp(0.5 * ((x - 1.0) @ (x - 1.0)), x[0] ** 2)


def reference(x):
    return -np.logaddexp(0.5 * ((x - 1.0) ** 2).sum(-1), x[:, 0] ** 2)


@pytest.mark.parametrize("function", [by_rows, one_row], ids=["all rows", "one row"])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_log_densities_of_all_rows_or_of_one(x, function, wrap):
    density = Density(log_prob=wrap(function), autodiff="jax")
    np.testing.assert_allclose(density.scores(x), slopes(reference, x), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(density.log_probs(x), reference(x), rtol=1e-14)


def test_float64_is_used_for_the_call_and_only_for_it(x):
    before = jnp.ones(1).dtype
    assert before == jnp.float32
    density = Density(log_prob=by_rows, autodiff="jax")
    assert density.raw_scores(x).dtype == np.float64
    assert density.notes(x) == ()
    assert jnp.ones(1).dtype == before


@pytest.mark.parametrize(
    ("log_prob", "parts"),
    [
        (lambda x: -(x**2), ("expected shape (30,) for 30 rows, got (30, 2)",)),
        (lambda x: float(x.sum()), ("the JAX function failed on 30 rows",)),
        (lambda x: np.linalg.norm(x, axis=-1), ("the JAX function failed on 30 rows",)),
        (lambda x: jnp.log(x[..., 0]) - x.sum(-1), ("log_prob: expected finite values, got nan", "of 30 rows")),
        (lambda x: jnp.sqrt(jnp.maximum(x[..., 0], 0.0)), ("of 30 rows", "NaN or infinity")),
    ],
)
def test_bad_log_densities_are_one_line_that_names_the_model(rng, log_prob, parts):
    models = {"a": Density(score=lambda x: -x), "b": Density(log_prob=log_prob, autodiff="jax")}
    refused(lambda: load(rng.normal(size=(30, 2)), models), "model 'b': ", *parts)


# --- NumPyro


@pytest.fixture(scope="module")
def numpyro():
    return pytest.importorskip("numpyro.distributions", reason="numpyro is not installed")


def test_numpyro_distributions(numpyro, x):
    d, x = numpyro, x[:20]
    normal = d.MultivariateNormal(jnp.array([1.0, 2.0]), jnp.array([[1.0, 0.5], [0.5, 2.0]]))
    mixture = d.MixtureSameFamily(
        d.Categorical(jnp.array([0.25, 0.75])), d.MultivariateNormal(jnp.array([[0.0, 1.0], [2.0, 0.0]]), jnp.eye(2))
    )
    for distribution in (normal, mixture, d.StudentT(jnp.array([3.0, 4.0])).to_event(1)):
        with jax.enable_x64(True):
            expected = slopes(jax.jit(distribution.log_prob), x)
        np.testing.assert_allclose(adapt(distribution, 2).scores(x), expected, rtol=1e-7, atol=1e-7)


def test_numpyro_distributions_that_are_no_density_on_these_columns_are_refused(numpyro):
    """NumPyro evaluates its formula there too: log p(−1) of an exponential comes out as +1."""
    density = adapt(numpyro.Exponential(1.0), 1)
    np.testing.assert_allclose(density.log_probs(np.array([[-1.0], [1.0]])), [-np.inf, -1.0])
    refused(lambda: scores_of("e", density, np.array([[-1.0], [1.0]])), "model 'e'", "1 of 2 rows")
    refused(lambda: adapt(numpyro.Poisson(3.0), 1), "Poisson: expected a continuous distribution")
    refused(lambda: adapt(numpyro.Normal(jnp.zeros(2), 1.0), 2), "batch shape (2,)", "Independent")
