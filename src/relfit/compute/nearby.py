"""Several kernels that differ in length only, from one matrix of distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relfit.compute.backend import (
    Job,
    NumpyBackend,
    Operands,
    Points,
    Products,
    add_up_tiles,
    fits_single,
)
from relfit.kernels.base import Kernel
from relfit.util.arrays import Array

# Rows and columns of a tile: it fits into the cache of a core.
_HEIGHT = 128
_WIDTH = 896
# Rows and columns of a matrix that is a single block.
_WHOLE = 2048
# The ratio of the two lengths at which the Gaussian of the shorter one is φ^16 of the longer
# one.
_FOUR = 4.0


@dataclass(frozen=True)
class NearbyBackend(NumpyBackend):
    """Computes the distances of a block once for all `kernels`, from the longest to the
    shortest.

    For φ alone, as in MMD. An estimate with the first kernel computes and keeps the sums of
    all of them; estimates with the others, of the same rows, only look theirs up. In single
    precision blocks that would lose too many digits are in double precision.
    """

    kernels: tuple[Kernel, ...] = ()
    known: dict[tuple[int, ...], list[Products]] = field(default_factory=dict, compare=False)
    starts: list[int] = field(default_factory=list, compare=False)

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """Whole matrices of up to 2048 rows: there are several of them, and each block has a
        price of its own.
        """
        return longest if longest <= _WHOLE else super().block_rows(longest, sides, memory)

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """The rows, prepared for the longest kernel and numbered.

        Estimates of the same rows ask for points in the same order, so the numbers are the
        same, too.
        """
        start = sum(self.starts)
        self.starts.append(len(rows))
        return replace(super().points(self.kernels[0], rows), start=start)

    def block_sums(self, block: Job) -> Products:
        """The products of the block with φ of its kernel."""
        key = (block.x.start, len(block.x), block.across.start, len(block.across))
        if key not in self.known:
            with np.errstate(over="ignore", under="ignore"):
                self.known[key] = self._products(block)
        return self.known[key][self.kernels.index(block.kernel)]

    def _products(self, block: Job) -> list[Products]:
        """The products with every kernel, which have numbers in the place of weights."""
        numbers: Any = range(len(self.kernels))
        right = dict.fromkeys(numbers, block.right["phi"])
        left = dict.fromkeys(numbers, block.left["phi"]) if block.left else {}
        every: Any = super().block_sums(
            replace(block, kernel=self.kernels[0], right=right, left=left)
        )
        return [
            Products(
                {"phi": every.rows[k]},
                {"phi": every.columns[k]} if left else {},
                every.squares[k],
            )
            for k in numbers
        ]

    def operands(self, block: Job, dtype: Any) -> Operands:
        return _Operands(
            block,
            dtype if fits_single(block, self.kernels[-1].length) else np.float64,
            self.kernels,
        )


class _Operands(Operands):
    """A tile of φ for every kernel from one tile of distances."""

    def __init__(self, block: Job, dtype: Any, kernels: Sequence[Kernel]) -> None:
        self.kernels = kernels
        self.squares = np.zeros(len(kernels))
        super().__init__(block, dtype)

    def tile_sizes(self, dtype: Any, columns: int) -> tuple[int, int]:
        return _HEIGHT, _WIDTH

    def more_tiles(self) -> int:
        return 1

    def products(self) -> Any:
        """The products with every kernel, and the squares of each."""
        every: Any = add_up_tiles(
            replace(self.block, squares=False), self, self.height, self.width, float
        )
        every.squares = self.squares
        return every

    def weights(self, i: slice, j: slice) -> Any:
        weights: Any = super().weights(i, j)
        for k, tile in weights.items():
            twice = self.block.symmetric and i != j
            self.squares[k] += (2.0 if twice else 1.0) * float(tile.ravel() @ tile.ravel())
        return weights

    def values(self, argument: Array) -> Any:
        """φ of every kernel.

        For Gaussians of the lengths 2b and b/2 one exponential gives both: φ of the second
        is φ¹⁶ of the first.
        """
        longest = self.kernels[0]
        if longest.unit_rate is None:
            t = np.maximum(argument, 0.0, out=argument)
            return {k: kernel.phi(t.copy()) for k, kernel in enumerate(self.kernels)}
        if len(self.kernels) == 2 and longest.length == _FOUR * self.kernels[1].length:
            first = np.exp(argument, out=argument)
            second = self.tiles[: argument.size].reshape(argument.shape)
            np.multiply(first, first, out=second)
            for _ in range(3):
                np.multiply(second, second, out=second)
            return {0: first, 1: second}
        return {
            k: np.exp(argument * (longest.length / each.length) ** 2)
            for k, each in enumerate(self.kernels)
        }
