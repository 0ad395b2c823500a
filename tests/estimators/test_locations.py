"""UME and FSSD at given locations: against hand values, independent implementations and closed forms."""

import numpy as np
import pytest

from relfit.compute.reduce import Runtime
from relfit.estimators import locations as at
from relfit.estimators import mmd
from relfit.kernels.composite import Decay, MultiScale, Tilted
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial

PLAIN = Polynomial(1, 0.0, 1.0)  # k(x, y) = x·y, so that MMD is the squared distance of means of whatever the rows are
KERNELS = {
    "gaussian": Gaussian(1.5),
    "imq": IMQ(0.7),
    "multiscale": MultiScale(bandwidth=1.2),
    "tilted": Tilted(Gaussian(1.1), Decay(1.0, 2.0, 0.3)),
}


def ume(reference, samples, points, kernel, dependence="independent"):
    return at.ume(reference, samples, points, kernel, dependence)


def fssd(reference, scores, points, kernel):
    return at.fssd(reference, lambda part: [s[part] for s in scores], points, kernel)


def values(kernel, rows, points):
    """k(x_a, v_j) by the kernel's own pair function."""
    a, j = np.meshgrid(np.arange(len(rows)), np.arange(len(points)), indexing="ij")
    return kernel.pairs(rows[a.ravel()], points[j.ravel()]).reshape(a.shape)


def stein_features(kernel, rows, score, points, step=1e-5):
    """s k + ∇_x k with the gradient by central differences: (n, J·d)."""
    d = rows.shape[1]
    features = values(kernel, rows, points)[:, :, None] * score[:, None]
    for c in range(d):
        move = step * np.eye(d)[c]
        features[:, :, c] += (values(kernel, rows + move, points) - values(kernel, rows - move, points)) / (2 * step)
    return features.reshape(len(rows), -1)


def test_few_rows_by_hand():
    """k(x, v) = xv at v = 1, so τ(x) = x. R = {0, 2}, X = {1, 3}: D = 1·3 + 0·2 − 2·(2·1) = −1.

    g(0) = 0·(2 − 2) = 0 and g(2) = 2·(0 − 2) = −4, so ψR = 2(g − ḡ) = ±4; f(1) = 1·(3 − 1) = 2 and
    f(3) = 3·(1 − 1) = 0, so ψX = ±2. V = (16 + 16)/(2·1) + (4 + 4)/(2·1) = 20.
    """
    found = ume(np.array([[0.0], [2.0]]), [np.array([[1.0], [3.0]])], np.array([[1.0]]), PLAIN)
    assert found.values.tolist() == [-1.0]
    assert found.psi.reference.tolist() == [[4.0], [-4.0]]
    assert found.psi.models[0].tolist() == [2.0, -2.0]
    assert found.psi.covariance().tolist() == [[20.0]]
    # Rows ±1, location 0, score −x, k = exp(−r²/2): τ(x) = −2x e^(−½), so D = τ(1)·τ(−1) = −4/e.
    x = np.array([[1.0], [-1.0], [1.0]])
    found = fssd(x, [-x], np.zeros((1, 1)), Gaussian(1.0))
    # Pairs (1,−1), (1,1), (−1,1): the mean of −4/e, 4/e, −4/e.
    assert found.values[0] == pytest.approx(-4.0 / np.e / 3.0, rel=1e-14)


@pytest.mark.parametrize("name", [*KERNELS, "polynomial"])
@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
def test_ume_is_the_mmd_of_the_features(name, dependence, rng):
    """MMD with the linear kernel on rows (k(x, v_j))_j/√J is another implementation of the same statistic."""
    kernel = KERNELS.get(name, Polynomial(3, 1.0, 0.5))
    sizes = {"independent": (25, 40, 31), "shared": (25, 25, 25), "paired": (40, 40, 40)}[dependence]
    reference, points = rng.normal(size=(40, 3)), rng.normal(size=(6, 3))
    samples = [rng.normal(0.4, 1.0, (m, 3)) for m in sizes]
    found = ume(reference, samples, points, kernel, dependence)
    rows = [values(kernel, x, points) / np.sqrt(6) for x in (reference, *samples)]
    expected = mmd.complete(rows[0], rows[1:], PLAIN, dependence, Runtime())
    np.testing.assert_allclose(found.values, expected.values, atol=1e-12 * np.abs(rows[0]).max() ** 2)
    np.testing.assert_allclose(found.psi.covariance(), expected.psi.covariance(), rtol=1e-9, atol=1e-16)


@pytest.mark.parametrize("kernel", [*KERNELS.values(), Matern(1.5, 1.3)], ids=[*KERNELS, "matern"])
def test_fssd_is_the_u_statistic_of_its_features(kernel, rng):
    x, points = rng.normal(size=(30, 3)), rng.normal(size=(4, 3))
    scores = [-x, -(x - 0.5), rng.normal(size=(30, 3))]
    found = fssd(x, scores, points, kernel)
    for i, score in enumerate(scores):
        tau = stein_features(kernel, x, score, points) / np.sqrt(12)
        gram = tau @ tau.T
        np.fill_diagonal(gram, 0.0)
        g = gram.sum(axis=1) / 29
        assert found.values[i] == pytest.approx(g.mean(), rel=1e-6, abs=1e-9)
        np.testing.assert_allclose(found.psi.reference[:, i], 2 * (g - g.mean()) * 29 / 28, rtol=1e-5, atol=1e-8)
        centred = tau - tau.mean(axis=0)
        squares = np.square(centred @ centred.T)
        np.fill_diagonal(squares, 0.0)
        assert found.second_order[i, i] == pytest.approx(2 * squares.sum() / (30 * 29) ** 2, rel=1e-5)
