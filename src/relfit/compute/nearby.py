"""Several kernels that differ in length only, from one matrix of distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from relfit.compute.backend import (
    LARGEST_SINGLE_RATIO,
    SINGLE_LENGTHS,
    Job,
    NumpyBackend,
    Points,
    Products,
    length_unit,
)
from relfit.compute.rows import cuts
from relfit.kernels.base import Kernel
from relfit.util.arrays import Array

# Rows and columns of a tile of single precision: it fits into the cache of a core.
_HEIGHT, _WIDTH = 128, 896
# Rows and columns of a matrix that is a single block.
_WHOLE = 2048
# The ratio of the two lengths at which the Gaussian of the shorter one is φ^16 of the longer one.
_FOUR = 4.0


@dataclass(frozen=True)
class NearbyBackend(NumpyBackend):
    """Computes the distances of a block once for all `kernels`, from the longest to the shortest.

    For φ alone, as in MMD. An estimate with the first kernel computes and keeps the sums of all
    of them; estimates with the others, of the same rows, only look theirs up. In single precision
    blocks that would lose too many digits are in double precision. For Gaussians of the lengths 2b
    and b/2 one exponential gives both: φ of the second is φ¹⁶ of the first.
    """

    kernels: tuple[Kernel, ...] = ()
    known: dict[tuple[int, ...], list[Products]] = field(default_factory=dict, compare=False)
    starts: list[int] = field(default_factory=list, compare=False)

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """Whole matrices of up to 2048 rows: there are several of them, and each block has a price of its own."""
        return longest if longest <= _WHOLE else super().block_rows(longest, sides, memory)

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """The rows, prepared for the longest kernel, and in the place of the factors a number for each row.

        Estimates of the same rows ask for points in the same order, so the numbers are the same, too.
        """
        prepared = NumpyBackend().points(self.kernels[0], rows)
        start = sum(self.starts)
        self.starts.append(len(rows))
        numbers = np.arange(start, start + len(rows), dtype=np.float64)[:, None]
        both = prepared.left, prepared.right
        return Points(prepared.rows, numbers, numbers.T, prepared.by_differences, single=both)

    def block_sums(self, block: Job) -> Products:
        """The products of the block with φ of its kernel."""
        x = block.x.left
        y = block.across.left
        key = (int(x[0, 0]), len(x), int(y[0, 0]), len(y))
        if key not in self.known:
            with np.errstate(over="ignore", under="ignore"):
                self.known[key] = self._products(block)
        return self.known[key][self.kernels.index(block.kernel)]

    def _products(self, block: Job) -> list[Products]:
        """The products with every kernel, tile by tile."""
        single = self._fits_single(block)
        number: Any = np.float32 if single else np.float64
        left, right = self._factors(block, number)
        sides: dict[str, Any] = {"rows": block.right["phi"].astype(number)}
        across = block.right if block.symmetric else block.left
        sides["columns"] = across["phi"].astype(number) if across else np.zeros(len(block.x), number)
        found = [block.zeros() for _ in self.kernels]
        tile: Any = np.empty(_HEIGHT * _WIDTH, number)
        for i in cuts(len(block.x), _HEIGHT):
            spans = list(cuts(len(block.across), _WIDTH, start=i.stop if block.symmetric else 0))
            if block.symmetric:
                spans.insert(0, i)
            for j in spans:
                height = i.stop - i.start
                width = j.stop - j.start
                argument = tile[: height * width].reshape(height, width)
                self._fill(argument, block, left[i], right[:, j], i, j)
                self._add(block, argument, i, j, sides, found)
        return found

    def _add(
        self, block: Job, argument: Array, i: slice, j: slice, sides: dict[str, Array], found: Sequence[Products]
    ) -> None:
        """Add the sums of one tile of every kernel."""
        mirrored = block.symmetric and i != j
        for products, phi in zip(found, self._values(argument), strict=False):
            if block.without_diagonal:
                _without_diagonal(phi, i, j)
            products.rows["phi"][i] += phi @ sides["rows"][j]
            if mirrored:
                products.rows["phi"][j] += sides["columns"][i] @ phi
            elif block.left:
                products.columns["phi"][j] += sides["columns"][i] @ phi
            if block.squares:
                values = phi.ravel()
                products.squares += float(values @ values) * (2.0 if mirrored else 1.0)

    def _values(self, argument: Array) -> Any:
        """φ of every kernel in turn; a tile is overwritten once the next one is asked for."""
        longest = self.kernels[0]
        if longest.unit_rate is None:
            t = np.maximum(argument, 0.0, out=argument)
            for kernel in self.kernels:
                yield kernel.phi(t.copy())
            return
        if len(self.kernels) == 2 and longest.length == _FOUR * self.kernels[1].length:
            tile = np.exp(argument, out=argument)
            yield tile
            for _ in range(4):
                np.multiply(tile, tile, out=tile)
            yield tile
            return
        for kernel in self.kernels:
            yield np.exp(argument * (longest.length / kernel.length) ** 2)

    def _fill(self, argument: Array, block: Job, left: Array, right: Array, i: slice, j: slice) -> None:
        """Fill one tile with q r², for the longest kernel."""
        if not (block.x.by_differences or block.across.by_differences):
            np.matmul(left, right, out=argument)
            return
        cdist(block.x.rows[i], block.across.rows[j], "sqeuclidean", out=argument)
        argument *= length_unit(self.kernels[0])[1]

    def _factors(self, block: Job, number: Any) -> tuple[Array, Array]:
        """The factors of the matrix product that gives the arguments."""
        x: Any = block.x.single
        y: Any = block.across.single
        return x[0].astype(number, copy=False), y[1].astype(number, copy=False)

    def _fits_single(self, block: Job) -> bool:
        """True if float32 keeps enough digits for every kernel."""
        if self.precision == "double" or block.x.by_differences or block.across.by_differences:
            return False
        lengths = [kernel.length for kernel in self.kernels]
        if self.kernels[0].unit_rate is None and not SINGLE_LENGTHS[0] < min(lengths) < SINGLE_LENGTHS[1]:
            return False
        unit, rate = length_unit(self.kernels[0])
        sides: Any = (block.x.single, block.across.single)
        norm = max(float(np.abs(side[1][-1]).max(initial=0.0)) for side in sides)
        return norm <= LARGEST_SINGLE_RATIO * abs(rate) * (min(lengths) / unit) ** 2


def _without_diagonal(tile: Array, i: slice, j: slice) -> None:
    """Set the pairs of equal row numbers to 0."""
    first = max(i.start, j.start)
    last = min(i.stop, j.stop)
    if first < last:
        numbers = np.arange(first, last)
        tile[numbers - i.start, numbers - j.start] = 0.0
