"""A kernel given as the matrix of its values: kernels of graphs, strings, sets, for a few thousand items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from relfit.backends.base import Variable
from relfit.errors import InputError
from relfit.kernels.base import Array, Kernel

Rows = NDArray[np.intp]

# Rows looked at together: the checks need little memory beside the matrix.
_CHECKED_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Precomputed(Kernel):
    """``k(a, b) = matrix[a, b]``: rows are numbers of items. For MMD.

    In `compare`, `reference` and `models` then say which items are theirs: either how many, taken from the matrix in
    that order (the reference's first), or arrays of row numbers of the matrix, from 0. The matrix is held whole:
    8N² bytes for N items in all, 800 MB for 10,000.

    >>> kernel = Precomputed(np.eye(60) + 1.0)
    >>> kernel.pairs(np.array([[0.0], [0.0]]), np.array([[0.0], [1.0]]))
    array([2., 1.])
    """

    matrix: Array = field(repr=False)
    plain: ClassVar[bool] = False
    smooth: ClassVar[bool] = False

    # One matrix is one kernel: comparing all entries would be no cheaper than a test.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        matrix = _matrix(self.matrix)
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    @property
    def variable(self) -> Variable:
        """Row numbers must not be shifted, as rows of distances may."""
        return "dot"

    def phi(self, t: Array) -> NoReturn:
        """Refused: the kernel is no function of a distance."""
        raise InputError("kernel: Precomputed is no function of r² or x·y")

    def block(self, x: Array, y: Array) -> Array:
        """k between the items numbered x (n, 1) and those numbered y (m, 1): (n, m)."""
        return self.matrix[np.ix_(_items(x), _items(y))]

    def diagonal(self, rows: Array) -> Array:
        """k(a, a)."""
        return self.pairs(rows, rows)

    def pairs(self, x: Array, y: Array) -> Array:
        """k(x_a, y_a)."""
        return np.asarray(self.matrix[_items(x), _items(y)])

    def describe(self) -> str:
        """Its size."""
        return f"kernel matrix of {len(self.matrix)} items"

    @property
    def writable(self) -> bool:
        """The matrix is not written down."""
        return False

    def inputs(self, reference: Any, models: Any) -> tuple[Rows, Any]:
        """The reference and the models as arrays of row numbers of the matrix."""
        values = list(models.values()) if isinstance(models, Mapping) else list(models)
        names = list(models) if isinstance(models, Mapping) else [f"m{k}" for k in range(1, len(values) + 1)]
        labels = ["reference", *(f"model {name!r}" for name in names)]
        found = self._numbered(labels, [reference, *values])
        return found[0], dict(zip(names, found[1:], strict=True))

    def _numbered(self, labels: Sequence[str], given: Sequence[Any]) -> list[Rows]:
        counts = [isinstance(value, int | np.integer) and not isinstance(value, bool) for value in given]
        if not any(counts):
            return [self._checked(label, value) for label, value in zip(labels, given, strict=True)]
        if not all(counts):
            raise InputError(
                f"{labels[counts.index(False)]}: expected a number of items like the others, got "
                f"{type(given[counts.index(False)]).__name__}; give numbers for all or arrays of row numbers for all"
            )
        ends = np.cumsum([int(value) for value in given])
        if min(given) < 1 or ends[-1] != len(self.matrix):
            raise InputError(
                f"reference and models: expected numbers of items that add up to the {len(self.matrix)} rows of the "
                f"kernel matrix, got {' + '.join(str(value) for value in given)} = {ends[-1]}"
            )
        return list(np.split(np.arange(len(self.matrix)), ends[:-1]))

    def _checked(self, label: str, value: Any) -> Rows:
        rows = np.asarray(value)
        size = len(self.matrix)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size:
            raise InputError(
                f"{label}: expected row numbers of the kernel matrix (a 1-d array of whole numbers) or how many, got "
                f"{f'{rows.dtype} of shape {rows.shape}' if rows.dtype != object else type(value).__name__}"
            )
        if rows.min() < 0 or rows.max() >= size:
            wrong = rows[(rows < 0) | (rows >= size)][0]
            raise InputError(f"{label}: expected row numbers of the kernel matrix from 0 to {size - 1}, got {wrong}")
        if len(np.unique(rows)) < len(rows):
            raise InputError(f"{label}: expected different row numbers of the kernel matrix, got one more than once")
        return rows


def _items(rows: Array) -> Rows:
    return rows[:, 0].astype(np.intp)


def _matrix(value: Any) -> Array:
    given = np.asarray(value)
    if given.dtype.kind not in "biuf" or given.ndim != 2 or given.shape[0] != given.shape[1] or not given.size:
        came = f"{given.dtype} of shape {given.shape}"
        raise InputError(f"matrix of Precomputed: expected a square matrix of numbers over all items, got {came}")
    matrix = given.astype(np.float64, copy=False).view()
    diagonal = np.diag(matrix)
    size = max(float(matrix.max()), -float(matrix.min()))
    if not math.isfinite(size):
        raise InputError("matrix of Precomputed: expected finite numbers, got NaN or infinity")
    for start in range(0, len(matrix), _CHECKED_AT_ONCE):
        part = slice(start, start + _CHECKED_AT_ONCE)
        _check_rows(matrix[part], matrix[:, part].T, np.sqrt(np.maximum(diagonal, 0.0)), part, 1e-8 * size)
    return matrix


def _check_rows(rows: Array, mirrored: Array, root: Array, part: slice, tolerance: float) -> None:
    if (np.abs(rows - mirrored) > tolerance).any():
        raise InputError("matrix of Precomputed: expected a symmetric matrix over all items, got one that is not")
    # Cauchy and Schwarz, for the diagonal too: a negative k(a,a) has root 0.
    if (np.abs(rows) > np.outer(root[part], root) + tolerance).any():
        raise InputError(
            "matrix of Precomputed: expected kernel values, |k(a,b)| ≤ √(k(a,a) k(b,b)), got larger ones; are these "
            "distances?"
        )
