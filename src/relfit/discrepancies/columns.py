"""Right-hand sides that repeat each other are multiplied once.

The scores of related models span few columns: those of Gaussians are combinations of 1 and x, those of
networks that differ in one unit share the others. A kernel matrix times their independent columns gives
the rest by a small product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

Array = NDArray[np.float64]

# Columns count as dependent only when every row is reproduced to this part of the column's size.
TOLERANCE = 1e-13
# Below this saving the search is not worth its cost.
WORTHWHILE = 0.8


@dataclass(frozen=True)
class Columns:
    """``matrix ≈ basis @ coefficients``, to rounding; coefficients None means the matrix itself."""

    basis: Array
    coefficients: Array | None = None

    def expand(self, product: Array) -> Array:
        """K @ matrix, given K @ basis."""
        return product if self.coefficients is None else product @ self.coefficients


def independent_columns(matrix: Array) -> Columns:
    """Some columns of the matrix (n, c) that the others are combinations of; all of them where that saves little.

    A matrix on a device is left as it is: there products cost less than the search.
    """
    n, c = matrix.shape
    whole = Columns(matrix)
    if c > n // 8 or not isinstance(matrix, np.ndarray):
        return whole
    some = matrix[:: max(1, n // (2 * c + 32))]
    scale = _sizes(some)
    triangle, order = qr(some / scale, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(triangle))
    rank = int((diagonal > TOLERANCE * diagonal[0]).sum())
    if not 0 < rank <= WORTHWHILE * c:
        return whole
    coefficients = np.zeros((rank, c))
    coefficients[:, order[:rank]] = np.eye(rank)
    coefficients[:, order[rank:]] = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
    basis = matrix[:, order[:rank]]
    coefficients *= scale / scale[order[:rank], None]
    # The rows looked at may agree by accident: keep the short form only if every row does.
    if np.abs(basis @ coefficients - matrix).max(axis=0) @ (1.0 / _sizes(matrix)) > 100.0 * TOLERANCE * c:
        return whole
    return Columns(np.ascontiguousarray(basis), coefficients)


def _sizes(matrix: Array) -> Array:
    """The largest entry of each column, 1 for a column of zeros."""
    largest = np.abs(matrix).max(axis=0)
    return np.where(largest == 0.0, 1.0, largest)
