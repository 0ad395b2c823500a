"""Kernel and Stein kernel values: by hand, against differences of the kernel, and the same in every layout of pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relfit.compute.reduce import Runtime
from relfit.estimators import ksd
from relfit.estimators.pairkernel import PRODUCT_COLUMNS, ROW_BY_ROW, Band, PairKernel, squared_distances
from relfit.kernels.composite import Decay, MultiScale, Tilted
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial, RationalQuadratic

SMOOTH = {
    "gaussian": Gaussian(1.5),
    "imq": IMQ(0.7, -0.8),
    "matern 3/2": Matern(1.5, 1.2),
    "matern 5/2": Matern(2.5, 1.2),
    "multiscale": MultiScale(bandwidth=1.0),
    "rational quadratic": RationalQuadratic(1.3, 0.7),
    "sum": Gaussian(0.8) + IMQ(2.0),
    "tilted gaussian": Tilted(Gaussian(1.5), Decay(scale=1.0, centre=0.3)),
    "tilted imq": Tilted(IMQ(), Decay(scale=1.0, centre=0.3)),
    "tilted matern 5/2": Tilted(Matern(2.5, 1.4), Decay(0.7, 1.3, 0.2)),
    "tilted sum": Tilted(Gaussian(0.8) + IMQ(2.0), Decay(0.5, 2.0, 0.0)),
    "tilted by functions": Tilted(IMQ(), (lambda x: -0.1 * np.square(x).sum(axis=1), lambda x: -0.2 * x)),
}
KERNELS = {**SMOOTH, "matern 1/2": Matern(0.5, 1.2), "polynomial": Polynomial(scale=0.2)}
COLUMNS = [1, 3, PRODUCT_COLUMNS + 8]


def all_pairs(n, m):
    a, b = np.meshgrid(np.arange(n), np.arange(m), indexing="ij")
    return a.ravel(), b.ravel()


def rows_with_scores(seed, n, d, models=2):
    return list(np.random.default_rng(seed).normal(size=(1 + models, n, d)))


def assert_close(got, expected, within=1e-12):
    np.testing.assert_allclose(got, expected, rtol=0.0, atol=within * max(1.0, np.abs(expected).max()))


def test_imq_by_hand():
    """d = 1, s = −x, k = (1 + r²)^−½: φ' = −½(1+r²)^−3/2 and φ'' = ¾(1+r²)^−5/2.

    u(0,0) = −2φ' = 1 and u(1,1) = φ·1 − 2φ' = 2. At (0,1) s·s' = 0 and 2φ'(0−1)(−1−0) = 2φ' cancels −2φ', so that
    u = −4φ''(1) = −3·2^−5/2.
    """
    x = np.array([[0.0], [1.0]])
    across = -3.0 * 2.0**-2.5
    [u] = PairKernel(IMQ(1.0, -0.5)).stein([x, -x], [x, -x])
    np.testing.assert_allclose(u, [[1.0, across], [across, 2.0]], rtol=1e-14)
    [pairs] = PairKernel(IMQ(1.0, -0.5)).stein([x, -x], [x[::-1], -x[::-1]], ROW_BY_ROW)
    np.testing.assert_allclose(pairs, [across, across], rtol=1e-14)


def test_tilted_gaussian_by_hand():
    """d = 1, s = −x, k = e^(−r²/2), w = (1 + x²)^−½, ∇ log w = −x/(1 + x²): w(1) = 1/√2, and s + ∇ log w = −3/2 at 1.

    At (0,1) the plain u is φ(0·t + 2·½·t + 1 − 1) = φt with the score t at 1, here −3/2, so that
    w(0) w(1) u = −3/(2√2) e^−½. At (1,1) it is ½ (9/4 + 1).
    """
    kernel = PairKernel(Tilted(Gaussian(1.0), Decay(exponent=0.5, scale=1.0, centre=0.0)))
    x = np.array([[0.0], [1.0]])
    [u] = kernel.stein([x, -x], [x, -x])
    across = -1.5 / np.sqrt(2.0) * np.exp(-0.5)
    np.testing.assert_allclose(u, [[1.0, across], [across, 1.625]], rtol=1e-14)


@pytest.mark.parametrize("name", SMOOTH)
def test_stein_values_are_those_of_differences_of_the_kernel(name, rng):
    """u = s·s'k + s·∇_y k + ∇_x k·s' + tr ∇_x∇_y k, every derivative a central difference of k alone."""
    n, d, step = 12, 2, 1e-4
    x, y, s, t = rng.normal(size=(4, n, d))
    k = PairKernel(SMOOTH[name])
    expected = (s * t).sum(axis=1) * k.values(x, y, ROW_BY_ROW)
    for j, e in enumerate(step * np.eye(d)):
        above, below = k.values(x + e, y, ROW_BY_ROW), k.values(x - e, y, ROW_BY_ROW)
        expected += t[:, j] * (above - below) / (2.0 * step)
        above, below = k.values(x, y + e, ROW_BY_ROW), k.values(x, y - e, ROW_BY_ROW)
        expected += s[:, j] * (above - below) / (2.0 * step)
        same = k.values(x + e, y + e, ROW_BY_ROW) + k.values(x - e, y - e, ROW_BY_ROW)
        across = k.values(x + e, y - e, ROW_BY_ROW) + k.values(x - e, y + e, ROW_BY_ROW)
        expected += (same - across) / (4.0 * step**2)
    np.testing.assert_allclose(k.stein_pairs([x, s], [y, t])[:, 0], expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("d", COLUMNS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 9), m=st.integers(1, 9))
def test_dense_values_are_those_of_the_pairs(name, d, seed, n, m):
    x, y = rows_with_scores(seed, n, d, 0)[0], rows_with_scores(seed + 1, m, d, 0)[0]
    k = PairKernel(KERNELS[name])
    a, b = all_pairs(n, m)
    assert_close(k.values(x, y).ravel(), k.values(x[a], y[b], ROW_BY_ROW))


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("d", COLUMNS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 12))
def test_stein_values_are_the_same_in_every_layout(name, d, seed, n):
    """Of all pairs, row by row, in bands, and as row sums of columns, for two models at once."""
    rows = rows_with_scores(seed, n, d)
    k = PairKernel(SMOOTH[name])
    a, b = all_pairs(n, n)
    pairs = k.stein_pairs([each[a] for each in rows], [each[b] for each in rows]).T.reshape(2, n, n)
    assert_close(np.array(k.stein(rows, rows)), pairs)
    # The second derivative of Matérn 3/2 holds 1/r: rounding of r² from a product counts where two rows are close.
    within = 1e-10 if name == "matern 3/2" else 1e-12
    bands = np.array(k.stein(rows, rows, Band(n - 1)))
    assert_close(bands[:, 0], pairs[:, 0, 1:], within)
    sums = ksd.row_sums(rows[0], rows[1:], SMOOTH[name], Runtime())
    diagonals = np.einsum("iaa->ai", pairs)
    assert_close(sums, pairs.sum(axis=2).T - diagonals, within)


@pytest.mark.parametrize("d", COLUMNS)
def test_distances_of_rows_far_out_and_of_equal_rows(d, rng):
    """Neighbours 1 apart, two clusters 1e8 apart: products of rows would lose r² altogether."""
    x = rng.normal(size=(6, d)) / np.sqrt(d)
    x[3:] += 1e8
    a, b = all_pairs(6, 6)
    exact = np.square(x[a] - x[b]).sum(axis=1).reshape(6, 6)
    np.testing.assert_allclose(squared_distances(x, x, 1.0), exact, rtol=1e-12)
    # Matérn kernels take the root of r²: rounding of 1e-16 would become 1e-8 of a length.
    x = rng.normal(3.0, 1.0, (6, d))
    np.testing.assert_array_equal(np.diag(squared_distances(x, x.copy(), 1.0)), np.zeros(6))
