import numpy as np
import pytest
from oracle import dense

import relfit
from relfit.compute.reduce import Runtime
from relfit.estimators import mmd
from relfit.kernels.composite import MultiScale
from relfit.kernels.standard import IMQ, Gaussian, Polynomial

KERNELS = [Gaussian(1.5), IMQ(), Gaussian(0.8) + IMQ(2.0), MultiScale(bandwidth=1.0), Polynomial(scale=1 / 3)]
RUNTIME = Runtime()


@pytest.fixture(params=KERNELS, ids=str)
def kernel(request):
    return request.param


def test_two_points_a_side_by_hand():
    """R = {0, 1}, X = {0, 2}, k = exp(−r²/2): D = k(2) + k(1) − ½(k(0) + k(1) + k(2) + k(1)).

    With k(0) = 1: D = ½k(2) − ½, as the k(1) terms cancel.
    """
    got = mmd.complete(np.array([[0.0], [1.0]]), [np.array([[0.0], [2.0]])], Gaussian(1.0), "independent", RUNTIME)
    assert got.values[0] == pytest.approx(0.5 * np.exp(-2.0) - 0.5, abs=1e-15)


@pytest.mark.parametrize("sizes", [(30, [30, 30]), (41, [20, 57, 300])])
def test_values_and_psi_rows_agree_with_the_formulas(kernel, sizes, rng):
    n, lengths = sizes
    reference = rng.normal(size=(n, 3))
    samples = [rng.normal(0.2 * k, 1, (m, 3)) for k, m in enumerate(lengths)]
    got = mmd.complete(reference, samples, kernel, "independent", RUNTIME)
    values, psi_r, psi_x = dense.mmd(reference, samples, kernel)
    np.testing.assert_allclose(got.values, values, atol=1e-13)
    np.testing.assert_allclose(got.psi.reference, psi_r, atol=1e-12)
    for mine, theirs in zip(got.psi.models, psi_x, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)
    covariance = psi_r.T @ psi_r / (n * (n - 1)) + np.diag([p @ p / (len(p) * (len(p) - 1)) for p in psi_x])
    np.testing.assert_allclose(got.psi.covariance(), covariance, atol=1e-14)


def test_paired_is_the_papers_form(kernel, rng):
    reference = rng.normal(size=(35, 2))
    samples = [reference + 0.1 * rng.normal(size=(35, 2)), rng.normal(size=(35, 2))]
    got = mmd.complete(reference, samples, kernel, "paired", RUNTIME)
    values, psi = dense.mmd_paired(reference, samples, kernel)
    np.testing.assert_allclose(got.values, values, atol=1e-13)
    # Times ((n − 1)/(n − 2))², the jackknife's factor.
    np.testing.assert_allclose(got.psi.covariance(), (34 / 33) ** 2 * psi.T @ psi / (35 * 34), atol=1e-14)


def test_second_order_part_is_that_of_the_centred_grams(kernel, rng):
    """The reference's part is common to all models, the others belong to one: off the diagonal only 2ζ_rr/(n(n−1))."""
    reference, samples = rng.normal(size=(40, 2)), [rng.normal(size=(m, 2)) for m in (25, 33)]
    got = mmd.complete(reference, samples, kernel, "independent", RUNTIME).second_order
    zeta_rr = dense.double_centred_mean_square(dense.gram(kernel, reference, reference), True)
    expected = np.full((2, 2), 2 * zeta_rr / (40 * 39))
    for k, x in enumerate(samples):
        m = len(x)
        zeta_xx = dense.double_centred_mean_square(dense.gram(kernel, x, x), True)
        zeta_xr = dense.double_centred_mean_square(dense.gram(kernel, x, reference), False)
        expected[k, k] += 2 * zeta_xx / (m * (m - 1)) + 4 * zeta_xr / (40 * m)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("far", [0.0, 1e6])
def test_components_are_those_of_the_kernel_values_of_pairs(kernel, far, rng):
    """Far from the centre a product of the rows would lose the digits of their distances."""
    rows = rng.normal(size=(40, 3))
    rows[::2] += far if kernel.variable == "r2" else 0.0
    first, second = np.triu_indices(40, 1)
    matrix = np.zeros((40, 40))
    matrix[first, second] = matrix[second, first] = kernel.pairs(rows[first], rows[second])
    sums = matrix.sum(axis=1)
    matrix += sums.sum() / (39 * 38) - (sums[:, None] + sums) / 38
    np.fill_diagonal(matrix, 0.0)
    square = np.square(matrix).sum() / (40 * 39)
    cube = np.einsum("ab,bc,ca->", matrix, matrix, matrix) / (40 * 39 * 38)
    assert mmd._components(kernel, rows) == pytest.approx(square**3 / cube**2, rel=1e-9)


def test_paired_covariance_is_the_jackknife():
    """Leave out one pair of rows after the other: at n = 60 the plain projection has .966 of this."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(60, 2))
    models = {f"m{k}": data + rng.normal(k, 1, (60, 2)) for k in range(3)}
    options = {
        "kernel": relfit.Gaussian(1.5),
        "dependence": "paired",
        "estimator": relfit.Complete(variance="projection"),
    }
    joint = relfit.estimate(data, models, **options)
    left_out = []
    for a in range(60):
        keep = np.arange(60) != a
        left_out.append(relfit.estimate(data[keep], {k: x[keep] for k, x in models.items()}, **options).values)
    deviations = np.array(left_out) - np.mean(left_out, axis=0)
    np.testing.assert_allclose(joint.covariance, 59 / 60 * deviations.T @ deviations, rtol=1e-8)
