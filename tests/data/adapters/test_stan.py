"""Stan models on their unconstrained parameters, through pystan and BridgeStan."""

import asyncio
import shutil
import subprocess
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from refusals import refused
from slopes import slopes

from relfit.data.adapters import adapt
from relfit.data.models import scores_of

PROGRAM = """
data { int<lower=0> n; array[n] real y; }
parameters { real mu; real<lower=0> sigma; }
model { mu ~ normal(0, 2); sigma ~ lognormal(0, 1); y ~ normal(mu, sigma); }
"""
Y = np.array([0.3, -0.4, 1.1, 0.8])


def log_posterior(rows):
    """Of (μ, log σ), written out: the prior of σ is normal in log σ, so the Jacobian σ cancels its 1/σ."""
    mu, log_sigma = rows[:, 0], rows[:, 1]
    fit = ((Y - mu[:, None]) ** 2).sum(axis=1) * np.exp(-2.0 * log_sigma)
    return -0.125 * mu**2 - 0.5 * log_sigma**2 - 0.5 * fit - len(Y) * log_sigma


@pytest.fixture
def x(rng):
    return rng.normal(size=(40, 2)) * 0.7


# --- pystan


@pytest.fixture(scope="module")
def model():
    if shutil.which("g++") is None:
        pytest.skip("pystan compiles models with g++, which is not here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pystan 3.10 imports the deprecated pkg_resources
        stan = pytest.importorskip("stan", reason="pystan is not installed", exc_type=ImportError)
        return stan.build(PROGRAM, data={"n": len(Y), "y": Y.tolist()}, random_seed=1)


def test_pystan_scores_are_the_slopes_of_pystans_log_density_and_of_the_formula(model, x):
    density = adapt(model, 2)
    scores = density.scores(x)
    np.testing.assert_allclose(scores, slopes(log_posterior, x), rtol=1e-7, atol=1e-7)
    own = slopes(lambda rows: np.array([model.log_prob(row.tolist()) for row in rows]), x[:5])
    np.testing.assert_allclose(scores[:5], own, rtol=1e-7, atol=1e-7)
    gap = density.log_probs(x) - log_posterior(x)
    np.testing.assert_allclose(gap, gap[0], atol=1e-9)


def test_what_pystan_cannot_do_is_refused(model, x):
    async def cell():
        return adapt(model, 2)

    refused(
        lambda: asyncio.run(cell()), "Stan model: pystan cannot run inside another event loop", "nest_asyncio.apply()"
    )
    density = adapt(model, 2)
    with ThreadPoolExecutor(1) as pool:
        refused(lambda: pool.submit(density.scores, x[:2]).result(), "Stan model: pystan works in the main thread only")
    refused(lambda: adapt(model, 3), "Stan model: expected rows of its unconstrained parameters (mu, sigma), got 3")
    x[7, 1] = -2000.0  # σ = 0, which Stan rejects
    refused(lambda: scores_of("s", adapt(model, 2), x), "model 's'", "1 of 40 rows", "row 7", "log_prob is not finite")


# --- BridgeStan: its Python class over a library with its C interface, since its C++ sources are no Python package

LIBRARY = """
#include <stdbool.h>
#include <string.h>
int bs_major_version = %d, bs_minor_version = %d, bs_patch_version = %d;
static int handle;
void *bs_model_construct(const char *data, unsigned seed, char **err) { return &handle; }
void bs_model_destruct(void *m) {}
void bs_free_error_msg(char *err) {}
int bs_set_print_callback(void *f, char **err) { return 0; }
const char *bs_name(void *m) { return "quartic"; }
const char *bs_model_info(void *m) { return ""; }
const char *bs_param_names(void *m, bool tp, bool gq) { return "a,b"; }
const char *bs_param_unc_names(void *m) { return "a,b"; }
int bs_param_num(void *m, bool tp, bool gq) { return 2; }
int bs_param_unc_num(void *m) { return 2; }
int bs_param_constrain() { return -1; }
int bs_param_unconstrain() { return -1; }
int bs_param_unconstrain_json() { return -1; }
int bs_param_initialize() { return -1; }
int bs_log_density_hessian() { return -1; }
int bs_log_density_hessian_vector_product() { return -1; }
void *bs_rng_construct(unsigned seed, char **err) { return &handle; }
void bs_rng_destruct(void *r) {}
int bs_log_density_gradient(void *m, bool propto, bool jac, const double *t, double *v, double *g, char **err) {
  if (t[0] > 50.0) return -1;
  *v = -t[0] * t[0] * t[0] * t[0] - t[0] * t[1] - t[1] * t[1] + (propto ? 0.0 : 7.0);
  g[0] = -4.0 * t[0] * t[0] * t[0] - t[1];
  g[1] = -t[0] - 2.0 * t[1];
  return 0;
}
int bs_log_density(void *m, bool propto, bool jac, const double *t, double *v, char **err) {
  double g[2];
  return bs_log_density_gradient(m, propto, jac, t, v, g, err);
}
"""


@pytest.fixture(scope="module")
def bridged(tmp_path_factory):
    bridgestan = pytest.importorskip("bridgestan", reason="bridgestan is not installed")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("bridgestan")
    version = tuple(int(part) for part in bridgestan.__version__.split(".")[:3])
    (folder / "model.c").write_text(LIBRARY % version)
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", folder / "model.so", folder / "model.c"], check=True)
    return bridgestan.StanModel(str(folder / "model.so"))


def test_bridgestan(bridged, x):
    """The constants of log densities are kept: BridgeStan drops them unless told not to."""

    def log_prob(rows):
        return -(rows[:, 0] ** 4) - rows[:, 0] * rows[:, 1] - rows[:, 1] ** 2

    density = adapt(bridged, 2)
    np.testing.assert_allclose(density.scores(x), slopes(log_prob, x), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(density.log_probs(x), log_prob(x) + 7.0, rtol=1e-14)
    assert density.normalised is None
    refused(lambda: adapt(bridged, 3), "expected dimension 3 like the data, got 2")
    x[3, 0] = 60.0
    refused(lambda: scores_of("s", density, x), "model 's'", "1 of 40 rows", "row 3")
