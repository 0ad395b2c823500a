"""Densities with edges (D1): KSD is refused there or replaced by the log-likelihood, and nowhere else."""

import warnings
from functools import partial

import numpy as np
import pytest
from scipy import special, stats

import relfit
from relfit import Density
from relfit.data.adapters import adapt
from relfit.data.densities import ends
from tests.refusals import refused

WITH_EDGES = {
    "uniform": stats.uniform(2.0, 3.0),
    "exponential": stats.expon(),
    "exponential far from 0": stats.expon(1e6),
    "beta": stats.beta(1.0, 2.0),
    "infinite at both ends": stats.beta(0.5, 0.5),
    "gamma(1)": stats.gamma(1.0),
    "gamma(1.05)": stats.gamma(1.05),
    "Pareto": stats.pareto(3.0),
    "Pareto without a mean": stats.pareto(0.8),
    "half-normal": stats.halfnorm(),
    "truncated": stats.truncnorm(-1.0, 1.0),
    "von Mises on a line": stats.vonmises_line(0.5),
    "Weibull(1)": stats.weibull_min(1.0),
}
WITHOUT = {
    "gamma(5)": stats.gamma(5.0),
    "gamma(1.5)": stats.gamma(1.5),
    "beta(3, 3)": stats.beta(3.0, 3.0),
    "lognormal": stats.lognorm(1.0),
    "inverse gamma": stats.invgamma(3.0),
    "truncated far out": stats.truncnorm(-6.0, 6.0),
    "normal": stats.norm(),
    "t": stats.t(2.0),
    "laplace": stats.laplace(),
}


def other(x):
    return stats.norm(float(np.median(x)), float(x.std()))


@pytest.mark.parametrize("name", WITH_EDGES)
@pytest.mark.parametrize("n", [30, 400])
def test_ksd_is_refused_at_an_edge_in_one_line(name, n):
    """D1: at 56062bd the true exponential density is declared worse, in 20 of 20 samples of 300 rows."""
    x = WITH_EDGES[name].rvs(size=n, random_state=1)
    models = {"true": WITH_EDGES[name], "normal": other(x)}
    places = [f"'true' at {bound:.6g}" for bound in WITH_EDGES[name].support()]
    advice = 'use discrepancy="loglik"'
    for compared in (partial(relfit.compare, discrepancy="ksd"), partial(relfit.compare, discrepancy="fssd")):
        message = refused(lambda compared=compared: compared(x, models, rng=0), advice)
        assert any(place in message for place in places)
    # What the library declares and what is found by a search agree.
    found = Density(log_prob=lambda x: WITH_EDGES[name].logpdf(x[:, 0]))
    message = refused(lambda: relfit.compare(x, models | {"true": found}, rng=0), advice, "if the densities are")
    assert any(place in message for place in places)
    assert "whole line" in message


@pytest.mark.parametrize("name", WITH_EDGES)
def test_normalised_densities_with_edges_are_compared_by_likelihood(name):
    """D1: by default; the true density is best, and a note names the density and the edge."""
    x = WITH_EDGES[name].rvs(size=400, random_state=2)
    result = relfit.compare(x, {"true": WITH_EDGES[name], "normal": other(x)}, rng=0)
    assert result.measure == "loglik"
    assert result.best == "true"
    (note,) = [note for note in result.warnings if "instead" in note]
    assert "'true' at " in note
    assert 'discrepancy="loglik" was used' in note


@pytest.mark.parametrize("name", WITHOUT)
def test_densities_that_vanish_at_the_edge_keep_ksd(name):
    x = WITHOUT[name].rvs(size=300, random_state=3)
    for true in (WITHOUT[name], Density(log_prob=lambda x: WITHOUT[name].logpdf(x[:, 0]))):
        result = relfit.compare(x, {"true": true, "normal": other(x)}, rng=0)
        assert result.measure == "ksd"
        assert not result.worse[result.names.index("true")]


def test_every_way_to_compare_densities_knows_also_rows_of_density_0(rng):
    """D1: pairs and estimates, and with them plans, as well."""
    x = stats.expon().rvs(size=(200, 1), random_state=0)
    models = {"true": stats.expon(), "normal": stats.norm(1.0, 1.0)}
    refused(lambda: relfit.compare_pair(x, *models.values(), discrepancy="ksd"), "'a' at 0")
    refused(lambda: relfit.estimate(x, models, discrepancy="ksd"), "'true' at 0")
    pair = relfit.compare_pair(x, *models.values(), rng=0)
    assert pair.measure == "loglik"
    assert any("instead" in note for note in pair.warnings)
    joint = relfit.estimate(x, models)
    assert joint.measure == "loglik"
    assert any("instead" in note for note in joint.notes)
    assert any("instead" in note for note in relfit.decide(joint).warnings)
    assert any("instead" in note for note in relfit.plan(joint).notes)
    # D1: an edge inside the data, where the density stops or vanishes.
    x = rng.normal(size=(200, 1))
    for density in (stats.expon(), stats.lognorm(1.0)):
        models = {"half": density, "normal": stats.norm(), "shifted": stats.norm(1.0)}
        result = relfit.compare(x, models, rng=0)
        assert result.measure == "loglik"
        assert result.best == "normal"
        assert result.impossible["half"] > 0
        assert any("instead" in note for note in result.warnings)
        refused(lambda models=models: relfit.compare(x, models, discrepancy="ksd", rng=0), "half")


def in_box(x):
    return np.where(((x > 0.0) & (x < 1.0)).all(axis=1), 0.0, -np.inf)


def on_orthant(x):
    return np.where((x > 0.0).all(axis=1), -x.sum(axis=1), -np.inf)


@pytest.mark.parametrize("d", [2, 10, 50])
def test_edges_are_found_in_several_columns(rng, d):
    flat = adapt(stats.multivariate_normal(np.zeros(d)), d)
    for log_prob, x in ((in_box, rng.random((300, d))), (on_orthant, rng.exponential(size=(300, d)))):
        (place,) = ends({"edge": Density(log_prob=log_prob), "normal": flat}, x)
        assert place.startswith("'edge' at ")
        assert "in column " in place


def test_torch_declares_its_supports(rng):
    torch = pytest.importorskip("torch")
    distributions = torch.distributions
    x = rng.exponential(size=(200, 1))
    models = {"true": distributions.Exponential(1.0), "normal": distributions.Normal(1.0, 1.0)}
    assert relfit.compare(x, models, rng=0).measure == "loglik"
    refused(lambda: relfit.compare(x, models, discrepancy="ksd", rng=0), "'true' at 0")
    assert adapt(models["normal"], 1).support == "whole"
    box = distributions.Independent(distributions.Uniform(torch.zeros(3), torch.tensor([1.0, 1.0, 9.0])), 1)
    assert ends({"box": adapt(box, 3)}, rng.random((100, 3))) == ["'box' at 0 in column 0"]
    # A transform declares the whole line, whatever its base is.
    scale = distributions.AffineTransform(1.0, -2.0)
    moved = distributions.TransformedDistribution(distributions.Exponential(1.0), [scale])
    assert ends({"moved": adapt(moved, 1)}, 1.0 - 2.0 * x) == ["'moved' at 1"]
    chain = [distributions.TanhTransform(), scale]
    inside = adapt(distributions.TransformedDistribution(distributions.Normal(0.0, 1.0), chain), 1)
    ends_at = np.isfinite(inside.log_probs(np.array([[-1.5], [-0.9], [2.9], [3.1]])))
    assert ends_at.tolist() == [False, True, True, False]


def test_numpyro_declares_its_supports(rng):
    numpyro = pytest.importorskip("numpyro.distributions")
    x = rng.exponential(size=(100, 1))
    assert ends({"true": adapt(numpyro.Exponential(1.0), 1)}, x) == ["'true' at 0"]
    assert adapt(numpyro.Normal(0.0, 1.0), 1).support == "whole"


def smooth(d):
    """Densities on all of R^d, some computed in ways that underflow."""
    log_probs = {
        "normal": lambda x: -0.5 * (x**2).sum(axis=1),
        "narrow": lambda x: -5e5 * (x**2).sum(axis=1),
        "underflowing": lambda x: np.log(np.exp(-0.5 * (x**2).sum(axis=1))),
        "Laplace": lambda x: -np.abs(x).sum(axis=1),
        "t": lambda x: -2.0 * np.log1p((x**2).sum(axis=1) / 3.0),
        "Cauchy": lambda x: -np.log1p(x**2).sum(axis=1),
        "mixture": lambda x: special.logsumexp(
            [-0.5 * ((x - 4.0) ** 2).sum(axis=1), -0.5 * ((x + 4.0) ** 2).sum(axis=1)], axis=0
        ),
        "banana": lambda x: -0.5 * x[:, 0] ** 2 - 5.0 * (x[:, -1] - x[:, 0] ** 2) ** 2,
        "quartic": lambda x: -(x**4).sum(axis=1),
        "Gumbel": lambda x: -(x + np.exp(-x)).sum(axis=1),
        "logistic": lambda x: -(x + 2.0 * np.log1p(np.exp(-x))).sum(axis=1),
        "funnel": lambda x: (
            -0.5 * x[:, 0] ** 2 / 9.0
            - 0.5 * (x[:, 1:] ** 2).sum(axis=1) * np.exp(-x[:, 0])
            - 0.5 * (x.shape[1] - 1) * x[:, 0]
        ),
    }
    single = {"in float32": lambda x: np.float32(-0.5) * (x.astype(np.float32) ** 2).sum(axis=1)}
    densities = {name: Density(log_prob=each) for name, each in (log_probs | single).items()}
    return densities | {"multivariate t": adapt(stats.multivariate_t(np.zeros(d), np.eye(d), 3.0), d)}


@pytest.mark.parametrize("d", [1, 2, 10, 40])
@pytest.mark.parametrize("n", [25, 1000])
def test_no_density_on_the_whole_space_is_refused(rng, d, n):
    """Whatever the data: a false alarm would be as bad as none."""
    z = rng.normal(size=(n, d))
    data = {
        "normal": z,
        "heavy": rng.standard_t(2.0, size=(n, d)),
        "half a line": rng.exponential(size=(n, d)),
        "a box": rng.random((n, d)),
        "two modes": z + 4.0 * rng.choice([-1.0, 1.0], size=(n, 1)),
        "far away": 1e-3 * z + 1e3,
        "a constant column": np.hstack([z[:, 1:], np.ones((n, 1))]),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in data.values():
            assert ends(smooth(d), x) == []


def test_a_target_that_ends_among_the_draws_is_refused(rng):
    """D1, the density being the reference: even exact draws would be found worse."""
    draws = {"exact": rng.exponential(size=300), "wide": 1.2 * rng.exponential(size=300)}
    message = refused(lambda: relfit.compare(stats.expon(), draws, rng=0), "reference: ", "an edge at 0", "whole line")
    assert "exact draws" in message
    refused(lambda: relfit.compare_pair(stats.expon(), *draws.values(), rng=0), "an edge at 0")
    found = Density(log_prob=lambda x: stats.expon().logpdf(x[:, 0]))
    refused(lambda: relfit.compare(found, draws, rng=0), "an edge at 0")
    draws = {"exact": rng.gamma(5.0, size=300), "wide": 1.2 * rng.gamma(5.0, size=300)}
    assert relfit.compare(stats.gamma(5.0), draws, rng=0).best == "exact"


@pytest.mark.parametrize("kernel", ["tophat", "epanechnikov", "linear", "cosine"])
def test_kernel_density_estimates_that_end_have_a_likelihood(rng, kernel):
    """D1: KSD names the kernel, and the log-likelihood takes the density."""
    neighbors = pytest.importorskip("sklearn.neighbors")
    x = rng.exponential(size=(300, 1))
    fitted = neighbors.KernelDensity(kernel=kernel, bandwidth=2.0).fit(x)
    models = {"estimate": fitted, "normal": stats.norm(1.0, 1.0)}
    refused(lambda: relfit.compare(x, models, discrepancy="ksd", rng=0), "'estimate'", f"got '{kernel}'")
    result = relfit.compare(x, models, discrepancy="loglik", rng=0)
    expected = -fitted.score_samples(x).mean()
    assert result.discrepancy[result.names.index("estimate")] == pytest.approx(expected)


def test_discrete_distributions_have_a_likelihood(rng):
    """D35: the probability mass function of scipy's discrete distributions is a normalised density."""
    x = rng.poisson(3.0, size=300)
    models = {"3": stats.poisson(3.0), "4": stats.poisson(4.0), "binomial": stats.binom(12, 0.25)}
    result = relfit.compare(x, models, discrepancy="loglik", rng=0)
    assert result.best != "4"
    assert result.worse[result.names.index("4")]
    expected = -stats.poisson(3.0).logpmf(x).mean()
    assert result.discrepancy[result.names.index("3")] == pytest.approx(expected)
    refused(lambda: relfit.compare(x, models, discrepancy="ksd", rng=0), "'3'", 'discrepancy="loglik"')
    mixed = {"poisson": stats.poisson(3.0), "normal": stats.norm(3.0, 2.0)}
    refused(lambda: relfit.compare(x, mixed, discrepancy="loglik", rng=0), "'poisson', which is discrete", "'normal'")
    assert relfit.compare(x, models, rng=0).measure == "mmd"


def test_a_batch_of_torch_distributions_beside_a_density_is_told_how_to_be_one(rng):
    """D33: a batch of three normals is no density of three columns until it is wrapped."""
    torch = pytest.importorskip("torch")
    x = rng.normal(size=(200, 3))
    batch = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
    models = {"batch": batch, "normal": stats.multivariate_normal(np.zeros(3) + 0.1)}
    for name in ("ksd", "loglik", "fssd"):
        compared = partial(relfit.compare, discrepancy=name, rng=0)
        refused(lambda compared=compared: compared(x, models), "'batch'", "Independent(distribution, 1)")
    (note,) = [note for note in relfit.compare(x, models, rng=0).warnings if "drew" in note]
    assert "Independent(distribution, 1)" in note
    assert "cannot be mixed" not in note
    beside = {"batch": batch, "score": Density(score=lambda x: -x)}
    refused(lambda: relfit.compare(x, beside, rng=0), "Independent(distribution, 1)")
