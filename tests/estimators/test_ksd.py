import numpy as np
import pytest
from oracle import dense

from relfit.compute.reduce import Runtime
from relfit.estimators import ksd
from relfit.estimators.ksd import autocorrelation_time, chain_ksd
from relfit.estimators.pairkernel import PairKernel
from relfit.estimators.sums import independent_columns
from relfit.kernels.composite import MultiScale
from relfit.kernels.standard import IMQ, Gaussian, Matern, RationalQuadratic

KERNELS = [
    Gaussian(1.5),
    IMQ(),
    IMQ(0.7, -0.8),
    Gaussian(0.8) + IMQ(2.0),
    Matern(2.5, 1.5),
    RationalQuadratic(1.0),
    MultiScale(bandwidth=1.0),
]
RUNTIME = Runtime()


@pytest.fixture(params=KERNELS, ids=str)
def kernel(request):
    return request.param


def draw(rng, n=37, d=3, models=3):
    x = rng.normal(size=(n, d))
    return x, [rng.normal(size=(n, d)) for _ in range(models)]


def complete(x, scores, kernel):
    return ksd.complete(x, scores, kernel, RUNTIME, 0)


def test_two_points_by_hand():
    """d = 1, x = {0, 1}, s = −x, k = exp(−r²/2).

    u(0,1) = 0·k + s(0)·∂_y k + ∂_x k·s(1) + ∂_x∂_y k with ∂_x k = −(x−y)k = k, ∂_y k = −k and
    ∂_x∂_y k = (1 − r²)k = 0; so u = 0 + 0 + k·(−1) + 0 = −e^{−1/2}.
    """
    x = np.array([[0.0], [1.0], [0.0], [1.0]])
    [got] = PairKernel(Gaussian(1.0)).stein((x[:1], -x[:1]), (x[1:2], -x[1:2]))
    assert got[0, 0] == pytest.approx(-np.exp(-0.5), abs=1e-15)


def test_values_agree_with_the_formulas(kernel, rng):
    x, scores = draw(rng)
    values, g = dense.ksd(x, scores, kernel)
    got = complete(x, scores, kernel)
    np.testing.assert_allclose(got.values, values, atol=1e-12)
    n = len(x)
    np.testing.assert_allclose(got.psi.reference, 2 * (g - g.mean(0)) * (n - 1) / (n - 2), atol=1e-11)


def test_covariance_is_the_jackknife(kernel, rng):
    """Leave each row out in turn and compute KSD² again: (n−1)/n Σ (D₍₋ₐ₎ − mean)(…)ᵀ."""
    x, scores = draw(rng, n=21)
    n = len(x)
    left_out = []
    for a in range(n):
        keep = np.arange(n) != a
        left_out.append(dense.ksd(x[keep], [s[keep] for s in scores], kernel)[0])
    deviations = np.array(left_out) - np.mean(left_out, axis=0)
    expected = (n - 1) / n * deviations.T @ deviations
    np.testing.assert_allclose(complete(x, scores, kernel).psi.covariance(), expected, rtol=1e-9, atol=1e-14)


def test_related_models_give_the_same_answer_as_one_by_one(kernel):
    """Scores of Gaussians are combinations of 1 and x: the shared columns must change nothing."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(800, 3))
    scores = [(mean - x) @ np.diag(rng.uniform(0.5, 2.0, 3)) for mean in rng.normal(size=(6, 3))]
    together = complete(x, scores, kernel)
    for k, s in enumerate(scores):
        u = complete(x, [s], kernel)
        assert together.values[k] == pytest.approx(u.values[0], abs=1e-11)
        np.testing.assert_allclose(together.psi.reference[:, k], u.psi.reference[:, 0], atol=1e-10)


def test_combinations_of_few_columns_are_found_and_others_left_alone(rng):
    basis = rng.normal(size=(900, 5))
    matrix = np.hstack([basis, basis @ rng.normal(size=(5, 30)) * 10.0 ** rng.integers(-8, 8, size=30)])
    got = independent_columns(matrix)
    assert got.basis.shape == (900, 5)
    kernel = rng.random((40, 900))
    size = np.abs(matrix).max(axis=0)
    np.testing.assert_allclose(got.expand(kernel @ got.basis) / size, kernel @ matrix / size, atol=1e-10)
    for matrix in (np.zeros((100, 8)), np.ones((100, 8)), np.ones((100, 1)), np.ones((3, 50))):
        got = independent_columns(matrix)
        np.testing.assert_allclose(got.expand(got.basis), matrix, atol=1e-15)
    matrix = rng.normal(size=(500, 12))
    assert independent_columns(matrix).coefficients is None
    # Row 7 of 4000 is not among the rows first looked at; it alone breaks the dependence.
    basis = rng.normal(size=(4000, 2))
    matrix = np.hstack([basis, basis @ rng.normal(size=(2, 10))])
    matrix[7, -1] += 1e-6
    assert independent_columns(matrix).coefficients is None


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
    assert autocorrelation_time(np.ones(50)) == 1.0
