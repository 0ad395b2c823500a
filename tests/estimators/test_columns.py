import numpy as np
import pytest

from relfit.estimators.sums import independent_columns


def test_combinations_of_few_columns_are_found(rng):
    basis = rng.normal(size=(900, 5))
    matrix = np.hstack([basis, basis @ rng.normal(size=(5, 30)) * 10.0 ** rng.integers(-8, 8, size=30)])
    got = independent_columns(matrix)
    assert got.basis.shape == (900, 5)
    kernel = rng.random((40, 900))
    size = np.abs(matrix).max(axis=0)
    np.testing.assert_allclose(got.expand(kernel @ got.basis) / size, kernel @ matrix / size, atol=1e-10)


def test_unrelated_columns_are_left_alone(rng):
    matrix = rng.normal(size=(500, 12))
    assert independent_columns(matrix).coefficients is None


def test_one_deviating_row_is_enough_to_keep_every_column(rng):
    """Row 7 of 4000 is not among the rows first looked at; it alone breaks the dependence."""
    basis = rng.normal(size=(4000, 2))
    matrix = np.hstack([basis, basis @ rng.normal(size=(2, 10))])
    matrix[7, -1] += 1e-6
    assert independent_columns(matrix).coefficients is None


@pytest.mark.parametrize("matrix", [np.zeros((100, 8)), np.ones((100, 8)), np.ones((100, 1)), np.ones((3, 50))])
def test_degenerate_matrices(matrix):
    got = independent_columns(matrix)
    np.testing.assert_allclose(got.expand(got.basis), matrix, atol=1e-15)
