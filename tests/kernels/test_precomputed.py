"""Kernels given as the matrix of their values: the answers of the kernel itself, and every misuse."""

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.kernels.composite import Select, Tilted
from relfit.kernels.custom import Precomputed
from relfit.kernels.standard import Gaussian


def gram(kernel, rows):
    return kernel.phi(np.square(rows[:, None] - rows).sum(axis=2))


@pytest.fixture
def pooled(rng):
    """Rows of the reference and two models, one below the other, and their kernel matrix."""
    reference = rng.normal(size=(60, 2))
    models = {"a": rng.normal(size=(60, 2)), "b": rng.normal(1.0, 1.0, (45, 2))}
    rows = np.concatenate([reference, *models.values()])
    return reference, models, Precomputed(gram(Gaussian(1.3), rows))


@pytest.mark.parametrize(
    "options",
    [{}, {"test": "relmulti"}, {"test": "best-set"}, {"estimator": relfit.Complete(variance="projection")}],
    ids=str,
)
def test_a_matrix_gives_what_its_kernel_gives(pooled, options):
    reference, models, kernel = pooled
    by_rows = relfit.compare(reference, models, kernel=Gaussian(1.3), rng=0, **options)
    by_matrix = relfit.compare(60, {"a": 60, "b": 45}, kernel=kernel, rng=0, **options)
    np.testing.assert_allclose(by_matrix.discrepancy, by_rows.discrepancy, rtol=1e-9)
    np.testing.assert_allclose(by_matrix.covariance, by_rows.covariance, rtol=1e-8)
    np.testing.assert_allclose(by_matrix.near_degeneracy, by_rows.near_degeneracy, rtol=1e-7)
    np.testing.assert_allclose(by_matrix.pvalue, by_rows.pvalue, rtol=1e-6)
    assert "kernel matrix of 165 items" in str(by_matrix)
    assert relfit.Comparison.from_json(by_matrix.to_json()).to_json() == by_matrix.to_json()


def test_linear_estimates_pair_items_and_matrices_can_be_chosen_from(pooled):
    reference, models, kernel = pooled
    by_rows = relfit.estimate(reference, {"a": models["a"]}, kernel=Gaussian(1.3), rng=0, estimator="linear")
    items = {"a": np.arange(60, 120)}
    by_matrix = relfit.estimate(np.arange(60), items, kernel=kernel, rng=0, estimator="linear")
    np.testing.assert_allclose(by_matrix.values, by_rows.values, rtol=1e-12)
    np.testing.assert_allclose(by_matrix.covariance, by_rows.covariance, rtol=1e-12)
    # The identity, under which all distinct items are equally unlike, separates nothing.
    _, _, kernel = pooled
    blind = Precomputed(np.eye(165))
    result = relfit.compare(60, [60, 45], kernel=Select((blind, kernel), fraction=0.5), rng=0)
    assert result.kernel is kernel
    refused(lambda: relfit.compare(60, [60, 45], kernel=Select((blind, Gaussian()))), "kernel matrices", "some of each")


def test_misused_matrices_are_refused(pooled):
    _, _, kernel = pooled
    good = kernel.matrix
    refused(lambda: Precomputed(good[:60]), "square matrix", "(60, 165)")
    refused(lambda: Precomputed([["a"]]), "square matrix of numbers")
    refused(lambda: Precomputed(np.where(good > 0.99, np.nan, good)), "finite")
    refused(lambda: Precomputed(np.triu(good)), "symmetric")
    refused(lambda: Precomputed(np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))), "are these distances?")
    refused(lambda: Precomputed(-np.eye(5)), "kernel values")
    refused(lambda: relfit.compare(60, [60, 44], kernel=kernel), "add up to the 165 rows", "60 + 60 + 44 = 164")
    refused(lambda: relfit.compare(60, [105, 0], kernel=kernel), "add up")
    refused(lambda: relfit.compare(60, [60, np.arange(45)], kernel=kernel), "model 'm2'", "number of items")
    refused(lambda: relfit.compare(np.arange(60), [np.arange(60, 166), np.arange(9)], kernel=kernel), "0 to 164", "165")
    refused(lambda: relfit.compare(np.zeros(60, int), [np.arange(60), np.arange(9)], kernel=kernel), "more than once")
    refused(lambda: relfit.compare(good[:60], [good[60:], good[:9]], kernel=kernel), "reference", "row numbers")
    refused(lambda: relfit.compare(60, [60, 45], kernel=kernel, estimator="incomplete"), "matrix", "'incomplete'")
    refused(lambda: Tilted(kernel), "kernel of Tilted")
    refused(lambda: kernel + Gaussian(), "cannot add")
    with pytest.raises(ValueError, match="read-only"):
        kernel.matrix[0, 0] = 2.0
    density = relfit.Density(score=lambda x: -x, dim=1)
    refused(lambda: relfit.compare(np.arange(60), [density, density], kernel=kernel), "model 'm1'", "Density")
