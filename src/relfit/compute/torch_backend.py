"""The torch backend: tiles on the CPU or on a CUDA device, in float64 or float32, with sums in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relfit.compute.backend import LARGEST_WITH_SIDES, Block, Points, Precision, Products, length_unit, zero_products
from relfit.compute.rows import cuts
from relfit.kernels.base import Kernel, Weight
from relfit.util.arrays import Array

# Tiles that stay in a CPU's cache; on a device, tiles large enough to fill it.
TILE, DEVICE_TILE = 512, 4096

# A product gives r² up to a rounding of the largest norm; beyond this many squared kernel lengths, differences do.
LARGEST_PRODUCT_RATIO = {"double": 1e5, "single": 64.0}
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
        """The device, and the precision if it is not float64."""
        return f"torch ({self.device}{', float32' if self.precision == 'single' else ''})"

    def array(self, values: Any) -> Any:
        """The values as a float64 tensor on the device; one that is already there is not copied."""
        import torch

        return torch.as_tensor(values, dtype=torch.float64, device=self.device)

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """The whole matrix; the backend cuts it into tiles itself."""
        return max(longest, 1)

    def points(self, kernel: Kernel, rows: Array) -> TensorPoints:
        """The rows on the device, in units near a Gaussian's bandwidth."""
        unit = length_unit(kernel)[0]
        scaled = self.array(rows) / unit
        largest = float((scaled * scaled).sum(dim=1).max())
        far = not largest <= LARGEST_PRODUCT_RATIO[self.precision] * (kernel.length / unit) ** 2
        return TensorPoints(scaled, scaled, scaled, by_differences=far and kernel.variable == "r2", largest=largest)

    def block_sums(self, block: Block) -> Products:
        """The products of the block, tile by tile in a fixed order; at most a few tiles are in memory."""
        import torch

        with torch.no_grad(), _float32_products_in_full():
            return self._block_sums(block)

    def _block_sums(self, block: Block) -> Products:
        import torch

        single = self.precision == "single" and _fits_single(block)
        operands = _Operands(block, torch.float32 if single else torch.float64)
        rows = {w: zero_products(side, len(block.x)) for w, side in block.right.items()}
        columns = {w: zero_products(side, len(block.y)) for w, side in block.left.items()}
        squares = torch.zeros((), dtype=torch.float64, device=self.device)
        for i, j in _tiles(block, TILE if self.device == "cpu" else DEVICE_TILE):
            weights = operands.weights(i, j)
            mirrored = block.symmetric and i != j
            for w, tile in weights.items():
                rows[w][..., i] += operands.right[w].product(tile, j)
                if mirrored:
                    rows[w][..., j] += operands.right[w].product(tile.T, i)
                elif w in columns:
                    columns[w][..., j] += operands.left[w].product(tile.T, i)
            if block.squares:
                norm = torch.linalg.vector_norm(weights["phi"])
                squares += norm.double() ** 2 * (2.0 if mirrored else 1.0)
        return Products(rows, columns, float(squares))


class _Operands:
    """A block's operands in the working precision, prepared once for all of its tiles."""

    def __init__(self, block: Block, dtype: Any) -> None:
        self.block, self.dtype = block, dtype
        self.right = {w: _Side(b, dtype) for w, b in block.right.items()}
        self.left = {w: _Side(b, dtype) for w, b in block.left.items()}
        self.by_differences = block.x.by_differences or block.y.by_differences
        if not self.by_differences:
            self.x, self.y = self._factors()

    def weights(self, i: slice, j: slice) -> Mapping[Weight, Any]:
        """One tile of every weight that is asked for; pairs that are left out are 0."""
        block, kernel, which = self.block, self.block.kernel, tuple(self.block.right)
        t = self._differences(i, j) if self.by_differences else self.x[i] @ self.y[j].T
        if kernel.unit_rate is not None:
            weights: dict[Weight, Any] = {"phi": t.exp_()}
        else:
            t = t.clamp_(min=0.0) if kernel.variable == "r2" else t
            weights = dict(zip(which, kernel.weights(t, which), strict=True))
        if not block.diagonal:
            for tile in weights.values():
                _clear_diagonal(tile, i.start - j.start)
        return weights

    def _factors(self) -> tuple[Any, Any]:
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


def _tiles(block: Block, size: int) -> Iterator[tuple[slice, slice]]:
    """The tiles of a block; those on and above the diagonal of a symmetric one."""
    for i in cuts(len(block.x), size):
        for j in cuts(len(block.y), size, start=i.start if block.symmetric else 0):
            yield i, j


def all_ones(side: Any) -> bool:
    """True if products with this right-hand side are plain sums."""
    return side.ndim == 1 and bool((side == 1.0).all())


class _Side:
    """A right-hand side in the working precision, its columns divided by their largest entries; not for plain sums."""

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


def _fits_single(block: Block) -> bool:
    """True if float32 holds all numbers of a tile, and keeps enough digits of sums that cancel, as those of KSD do."""
    kernel, largest = block.kernel, max(block.x.largest, block.y.largest)  # type: ignore[attr-defined]
    lengths = largest * (length_unit(kernel)[0] / kernel.length) ** 2
    if lengths > LARGEST_WITH_SIDES and not all(map(all_ones, (*block.right.values(), *block.left.values()))):
        return False
    if kernel.unit_rate is not None:
        return True
    if kernel.variable == "dot":
        return float(kernel.weights(np.array([largest]), ("phi",))[0][0]) < LARGEST_SINGLE
    return 1.0 / LARGEST_LENGTH < kernel.length < LARGEST_LENGTH and largest < LARGEST_SINGLE


def _clear_diagonal(tile: Any, offset: int) -> None:
    """Set pairs of equal row numbers to 0; `offset` is the tile's first row number minus its first column number."""
    if -tile.shape[0] < offset < tile.shape[1]:
        tile.diagonal(-offset).zero_()


@contextmanager
def _float32_products_in_full() -> Iterator[None]:
    """Switch off TF32 products, which a user may have switched on: they keep only three digits."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
