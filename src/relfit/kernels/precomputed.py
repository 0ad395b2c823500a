"""A kernel given as the matrix of its values: kernels of graphs, strings or sets, for a few
thousand items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np

from relfit.kernels.base import Kernel, Variable
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError

# Rows that are checked at a time, so that the checks need little memory beside the matrix.
_CHECKED_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Precomputed(Kernel):
    """``k(a, b) = matrix[a, b]``: a row of data is the number of an item. For MMD.

    In `compare`, `reference` and `models` then say which items are theirs: either counts,
    taken from the matrix in that order (the reference's items first), or arrays of row
    numbers of the matrix, from 0. The matrix is held in memory: 8N² bytes for N items in
    all, 800 MB for 10,000.

    >>> kernel = Precomputed(np.eye(60) + 1.0)
    >>> kernel.pairs(np.array([[0.0], [0.0]]), np.array([[0.0], [1.0]]))
    array([2., 1.])
    """

    matrix: Array = field(repr=False)
    plain: ClassVar[bool] = False
    smooth: ClassVar[bool] = False
    writable: ClassVar[bool] = False
    # Row numbers must not be shifted, as the rows of a radial kernel may be.
    variable: ClassVar[Variable] = "dot"

    # Two kernels are equal if they are the same object: comparing all entries would cost as
    # much as a test.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        matrix = _matrix(self.matrix)
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    def phi(self, t: Array) -> NoReturn:
        raise InputError("kernel: Precomputed is not a function of r² or x·y")

    def block(self, x: Array, y: Array) -> Array:
        """k between the items numbered x (n, 1) and those numbered y (m, 1): (n, m)."""
        return self.matrix[np.ix_(_items(x), _items(y))]

    def diagonal(self, rows: Array) -> Array:
        return self.pairs(rows, rows)

    def pairs(self, x: Array, y: Array) -> Array:
        return np.asarray(self.matrix[_items(x), _items(y)])

    def describe(self) -> str:
        return f"kernel matrix of {len(self.matrix)} items"

    def inputs(self, reference: Any, models: Any) -> tuple[Rows, dict[str, Rows]]:
        """The reference and the models, which are counts of items or row numbers, as row
        numbers of the matrix.
        """
        named = (
            dict(models)
            if isinstance(models, Mapping)
            else {f"m{k}": model for k, model in enumerate(models, 1)}
        )
        labels = ["reference", *(f"model {name!r}" for name in named)]
        values = [reference, *named.values()]
        is_count = [
            isinstance(value, int | np.integer) and not isinstance(value, bool)
            for value in values
        ]
        if not any(is_count):
            first, *others = (
                self._checked(label, value) for label, value in zip(labels, values, strict=True)
            )
            return first, dict(zip(named, others, strict=True))
        if not all(is_count):
            odd = is_count.index(False)
            raise InputError(
                f"{labels[odd]}: expected a number of items like the others, got "
                f"{type(values[odd]).__name__}; give "
                "numbers for all or arrays of row numbers for all"
            )
        ends = np.cumsum([int(value) for value in values])
        if min(values) < 1 or ends[-1] != len(self.matrix):
            raise InputError(
                f"reference and models: expected numbers of items that add up to the "
                f"{len(self.matrix)} rows of the "
                f"kernel matrix, got {' + '.join(str(value) for value in values)} = {ends[-1]}"
            )
        first, *others = np.split(np.arange(len(self.matrix)), ends[:-1])
        return first, dict(zip(named, others, strict=True))

    def _checked(self, label: str, value: Any) -> Rows:
        rows = np.asarray(value)
        size = len(self.matrix)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size:
            came = type(value).__name__
            if rows.dtype != object:
                came = f"{rows.dtype} of shape {rows.shape}"
            raise InputError(
                f"{label}: expected row numbers of the kernel matrix (a 1-d array of whole "
                f"numbers) or a count, got {came}"
            )
        if rows.min() < 0 or rows.max() >= size:
            wrong = rows[(rows < 0) | (rows >= size)][0]
            raise InputError(
                f"{label}: expected row numbers of the kernel matrix from 0 to "
                f"{size - 1}, got {wrong}"
            )
        if len(np.unique(rows)) < len(rows):
            raise InputError(
                f"{label}: expected different row numbers of the kernel matrix, "
                f"got one more than once"
            )
        return rows


def _items(rows: Array) -> Rows:
    return rows[:, 0].astype(np.intp)


def _matrix(value: Any) -> Array:
    """The matrix in float64, if it can hold the values of a kernel."""
    array = np.asarray(value)
    if (
        array.dtype.kind not in "biuf"
        or array.ndim != 2
        or array.shape[0] != array.shape[1]
        or not array.size
    ):
        came = f"{array.dtype} of shape {array.shape}"
        raise InputError(
            f"matrix of Precomputed: expected a square matrix of numbers over "
            f"all items, got {came}"
        )
    matrix = array.astype(np.float64, copy=False).view()
    size = max(float(matrix.max()), -float(matrix.min()))
    if not math.isfinite(size):
        raise InputError("matrix of Precomputed: expected finite numbers, got NaN or infinity")
    root = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    tolerance = 1e-8 * size
    for start in range(0, len(matrix), _CHECKED_ROWS):
        part = slice(start, start + _CHECKED_ROWS)
        if (np.abs(matrix[part] - matrix[:, part].T) > tolerance).any():
            raise InputError(
                "matrix of Precomputed: expected a symmetric matrix over all "
                "items, got one that is not"
            )
        # The Cauchy–Schwarz inequality, for the diagonal too: a negative k(a,a) has root 0.
        if (np.abs(matrix[part]) > np.outer(root[part], root) + tolerance).any():
            raise InputError(
                "matrix of Precomputed: expected kernel values, |k(a,b)| ≤ √(k(a,a) k(b,b)), "
                "got larger ones; are "
                "these distances?"
            )
    return matrix
