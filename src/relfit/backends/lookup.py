"""The backend of kernels that are given as a matrix of their values: blocks are looked up, not computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from relfit.backends.base import Block, BlockSums, Points, TileKernel
from relfit.backends.numpy_backend import NumpyBackend

Array = NDArray[np.float64]


class _Table(Protocol):
    def block(self, x: Array, y: Array, /) -> Array:
        """Kernel values between the items numbered x (n, 1) and y (m, 1)."""


@dataclass(frozen=True)
class LookupBackend(NumpyBackend):
    """Products with blocks of a given kernel matrix."""

    def points(self, kernel: TileKernel, rows: Array) -> Points:
        """The row numbers (n, 1) themselves."""
        return Points(rows, rows, rows.T, by_differences=False)

    def block_sums(self, block: Block) -> BlockSums:
        """The products of the block with φ = its values."""
        values = cast(_Table, block.kernel).block(block.x.rows, block.y.rows)
        if not block.diagonal:
            np.fill_diagonal(values, 0.0)
        rows = {w: (values @ side).T for w, side in block.right.items()}
        columns = {w: (values.T @ side).T for w, side in block.left.items()}
        return BlockSums(rows, columns, float(np.vdot(values, values)) if block.squares else 0.0)
