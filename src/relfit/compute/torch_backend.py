"""The torch backend: tiles on the CPU or on a CUDA device, in float64 or float32, with sums in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from relfit.compute.backend import Block, BlockSums, Points, TileKernel, length_unit
from relfit.kernels.base import Weight
from relfit.util.arrays import Array

Precision = Literal["double", "single"]

# Tiles that stay in a CPU's cache; on a device, tiles large enough to fill it.
TILE, DEVICE_TILE = 512, 4096

# A product gives r² up to a rounding of the largest norm; beyond so many squared kernel lengths, differences do.
LARGEST_PRODUCT_RATIO = {"double": 1e5, "single": 64.0}
# Above this many squared kernel lengths, the sums of KSD cancel too far for float32.
LARGEST_WITH_SIDES = 16.0
# Fourth powers of lengths, and squares of kernel values, must stay within float32.
LARGEST_LENGTH, LARGEST_SINGLE = 1e4, 1e18


@dataclass(frozen=True)
class TensorPoints(Points):
    """Centred rows (n, d) as a float64 tensor, and their largest squared norm; operands are made tile by tile."""

    largest: float = 0.0

    def __getitem__(self, block: slice) -> TensorPoints:
        rows = self.rows[block]
        return replace(self, rows=rows, left=rows, right=rows)


@dataclass(frozen=True)
class TorchBackend:
    """Tensors on one device."""

    device: str = "cpu"
    precision: Precision = "double"
    threads: bool = False

    @property
    def name(self) -> str:
        """The device, and the precision where it is not float64."""
        return f"torch ({self.device}{', float32' if self.precision == 'single' else ''})"

    def array(self, values: Any) -> Any:
        """A float64 tensor on the device; one that is there already is not copied."""
        import torch

        return torch.as_tensor(values, dtype=torch.float64, device=self.device)

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """The whole matrix: its tiles are the backend's own affair."""
        return max(longest, 1)

    def points(self, kernel: TileKernel, rows: Array) -> TensorPoints:
        """The rows on the device, in units near a Gaussian's bandwidth."""
        there = self.array(rows) / length_unit(kernel)[0]
        largest = float((there * there).sum(dim=1).max())
        ratio = LARGEST_PRODUCT_RATIO[self.precision] * (kernel.length / length_unit(kernel)[0]) ** 2
        far = kernel.variable == "r2" and not largest <= ratio
        return TensorPoints(there, there, there, by_differences=far, largest=largest)

    def block_sums(self, block: Block) -> BlockSums:
        """The products of the block, tile by tile in a fixed order; at most a few tiles are in memory."""
        import torch

        with torch.no_grad(), _float32_products_in_full():
            return self._block_sums(block)

    def _block_sums(self, block: Block) -> BlockSums:
        import torch

        single = self.precision == "single" and fits_float32(block)
        work = _Work(block, torch.float32 if single else torch.float64)
        zeros = {w: _zeros(b, len(block.x)) for w, b in block.right.items()}
        columns = {w: _zeros(b, len(block.y)) for w, b in block.left.items()}
        squares = torch.zeros((), dtype=torch.float64, device=self.device)
        for i, j in tiles_of(block, TILE if self.device == "cpu" else DEVICE_TILE):
            weights = work.weights(i, j)
            mirrored = block.symmetric and i != j
            for w, tile in weights.items():
                zeros[w][..., i] += work.right[w].product(tile, j)
                if mirrored:
                    zeros[w][..., j] += work.right[w].product(tile.T, i)
                elif w in columns:
                    columns[w][..., j] += work.left[w].product(tile.T, i)
            if block.squares:
                norm = torch.linalg.vector_norm(weights["phi"])
                squares += norm.double() ** 2 * (2.0 if mirrored else 1.0)
        return BlockSums(zeros, columns, float(squares))


class _Work:
    """A block's operands in the working precision, prepared once for all of its tiles."""

    def __init__(self, block: Block, dtype: Any) -> None:
        self.block, self.dtype = block, dtype
        self.right = {w: _Side(b, dtype) for w, b in block.right.items()}
        self.left = {w: _Side(b, dtype) for w, b in block.left.items()}
        self.by_differences = block.x.by_differences or block.y.by_differences
        if not self.by_differences:
            self.x, self.y = self._operands()

    def weights(self, i: slice, j: slice) -> Mapping[Weight, Any]:
        """The tile of every weight asked for, without the pairs that are left out."""
        block, kernel, which = self.block, self.block.kernel, tuple(self.block.right)
        t = self._differences(i, j) if self.by_differences else self.x[i] @ self.y[j].T
        if kernel.unit_rate is not None:
            found: dict[Weight, Any] = {"phi": t.exp_()}
        else:
            t = t.clamp_(min=0.0) if kernel.variable == "r2" else t
            found = dict(zip(which, kernel.weights(t, which), strict=True))
        if not block.diagonal:
            for tile in found.values():
                _clear_diagonal(tile, i.start - j.start)
        return found

    def _operands(self) -> tuple[Any, Any]:
        """``[−2q x, q‖x‖², 1]`` and ``[y, 1, q‖y‖²]``, whose product is q r²; the rows themselves for x·y."""
        import torch

        x: Any = self.block.x.rows
        y: Any = self.block.y.rows
        if self.block.kernel.variable == "dot":
            return x.to(self.dtype), y.to(self.dtype)
        rate = length_unit(self.block.kernel)[1]
        norms = [rate * torch.einsum("ij,ij->i", rows, rows)[:, None] for rows in (x, y)]
        ones = [torch.ones_like(norm) for norm in norms]
        left, right = [-2.0 * rate * x, norms[0], ones[0]], [y, ones[1], norms[1]]
        return torch.cat(left, dim=1).to(self.dtype), torch.cat(right, dim=1).to(self.dtype)

    def _differences(self, i: slice, j: slice) -> Any:
        import torch

        x, y = self.block.x.rows[i], self.block.y.rows[j]
        distances = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return (distances.square_() * length_unit(self.block.kernel)[1]).to(self.dtype)


def tiles_of(block: Block, size: int) -> Iterator[tuple[slice, slice]]:
    """The tiles of a block; of a symmetric one those on and above the diagonal."""
    for a in range(0, len(block.x), size):
        for b in range(a if block.symmetric else 0, len(block.y), size):
            yield slice(a, min(a + size, len(block.x))), slice(b, min(b + size, len(block.y)))


def all_ones(side: Any) -> bool:
    """Whether products with this right-hand side are plain sums."""
    return side.ndim == 1 and bool((side == 1.0).all())


class _Side:
    """A right-hand side in the working precision, its columns divided by their sizes; nothing for plain sums."""

    def __init__(self, side: Any, dtype: Any) -> None:
        self.ones = all_ones(side)
        if not self.ones:
            largest = side.abs().amax(dim=0)
            self.scale = largest.where(largest > 0.0, largest.new_ones(()))
            self.scaled = (side / self.scale).to(dtype)

    def product(self, tile: Any, part: slice) -> Any:
        """tile @ side in float64, transposed."""
        if self.ones:
            return tile.sum(dim=1).double()
        product = (tile @ self.scaled[part]).double() * self.scale
        return product if product.ndim == 1 else product.T


def fits_float32(block: Block) -> bool:
    """Whether float32 holds all numbers of a tile, and leaves enough of sums that cancel, as those of KSD do."""
    kernel, largest = block.kernel, max(block.x.largest, block.y.largest)  # type: ignore[attr-defined]
    lengths = largest * (length_unit(kernel)[0] / kernel.length) ** 2
    if lengths > LARGEST_WITH_SIDES and not all(map(all_ones, (*block.right.values(), *block.left.values()))):
        return False
    if kernel.unit_rate is not None:
        return True
    if kernel.variable == "dot":
        return float(kernel.weights(np.array([largest]), ("phi",))[0][0]) < LARGEST_SINGLE
    return 1.0 / LARGEST_LENGTH < kernel.length < LARGEST_LENGTH and largest < LARGEST_SINGLE


def _zeros(side: Any, length: int) -> Any:
    return side.new_zeros((*side.shape[1:], length))


def _clear_diagonal(tile: Any, offset: int) -> None:
    """Set the pairs of equal row numbers to 0; the tile's first row number is `offset` above its first column's."""
    if -tile.shape[0] < offset < tile.shape[1]:
        tile.diagonal(-offset).zero_()


@contextmanager
def _float32_products_in_full() -> Iterator[None]:
    """TF32 products, which a user may have switched on, would leave three digits."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
