"""The torch backend: tiles on the CPU or on a CUDA device, in float64 or float32, with sums
in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from relfit.compute.backend import (
    LARGEST_PRODUCT_RATIO,
    LARGEST_SINGLE_RATIO,
    LARGEST_WITH_SIDES,
    Job,
    Points,
    Precision,
    Products,
    add_up_tiles,
    length_unit,
)
from relfit.kernels.base import Kernel, Weight
from relfit.util.arrays import Array

# Tiles that stay in a CPU's cache; on a device, tiles large enough to fill it.
TILE = 512
DEVICE_TILE = 4096

# Fourth powers of lengths, and squares of kernel values, must stay within float32.
LARGEST_LENGTH = 1e4
LARGEST_SINGLE = 1e18


@dataclass(frozen=True)
class TorchBackend:
    """Tensors on one device."""

    device: str = "cpu"
    precision: Precision = "double"
    threads: bool = False

    @property
    def name(self) -> str:
        return f"torch ({self.device}{', float32' if self.precision == 'single' else ''})"

    def array(self, values: Any) -> Any:
        """The values as a float64 tensor on the device; one that is already there is not
        copied. Ones take no room.
        """
        import torch

        if isinstance(values, np.ndarray) and values.ndim == 1:
            if (values == 1.0).all():
                return torch.ones(1, dtype=torch.float64, device=self.device).expand(
                    len(values)
                )
            values = np.ascontiguousarray(values)
        return torch.as_tensor(values, dtype=torch.float64, device=self.device)

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        return max(longest, 1)  # The whole matrix, which is cut into tiles only.

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """The rows on the device, in units near a Gaussian's bandwidth; operands are made
        block by block.
        """
        unit = length_unit(kernel)[0]
        scaled = self.array(rows) / unit
        largest = float((scaled * scaled).sum(dim=1).max())
        ratio = LARGEST_PRODUCT_RATIO if self.precision == "double" else LARGEST_SINGLE_RATIO
        far = not largest <= ratio * (kernel.length / unit) ** 2
        return Points(
            scaled,
            scaled,
            scaled.T,
            by_differences=far and kernel.variable == "r2",
            largest=largest,
        )

    def block_sums(self, block: Job) -> Products:
        """The products of the block, tile by tile in a fixed order; at most a few tiles are
        in memory.
        """
        import torch

        with torch.no_grad(), _float32_products_in_full():
            single = self.precision == "single" and _fits_single(block)
            dtype = torch.float32 if single else torch.float64
            size = TILE if self.device == "cpu" else DEVICE_TILE
            return add_up_tiles(block, _Operands(block, dtype, size))


class _Operands:
    # See `relfit.compute.backend.Operands`.
    def __init__(self, block: Job, dtype: Any, size: int) -> None:
        import torch

        self.block = block
        self.dtype = dtype
        self.height = size
        self.width = size
        self.right, self.left = (
            {w: _scaled(b, dtype) for w, b in sides.items()}
            for sides in (block.right, block.left)
        )
        self.by_differences = block.x.by_differences or block.across.by_differences
        x = block.x.rows
        y = block.across.rows
        if block.kernel.variable == "dot":
            self.x = x.to(dtype)
            self.y = y.to(dtype)
        elif not self.by_differences:
            # [−2q x, q‖x‖², 1] and [y, 1, q‖y‖²], whose product is q r².
            rate = length_unit(block.kernel)[1]
            norms = [rate * torch.einsum("ij,ij->i", rows, rows)[:, None] for rows in (x, y)]
            ones = [torch.ones_like(norm) for norm in norms]
            self.x = torch.cat([-2.0 * rate * x, norms[0], ones[0]], dim=1).to(dtype)
            self.y = torch.cat([y, ones[1], norms[1]], dim=1).to(dtype)

    def weights(self, i: slice, j: slice) -> Mapping[Weight, Any]:
        import torch

        block = self.block
        kernel = block.kernel
        which = tuple(block.right)
        if self.by_differences:
            distances = torch.cdist(
                block.x.rows[i],
                block.across.rows[j],
                compute_mode="donot_use_mm_for_euclid_dist",
            )
            t = (distances.square_() * length_unit(kernel)[1]).to(self.dtype)
        else:
            t = self.x[i] @ self.y[j].T
        if kernel.unit_rate is not None:
            weights: dict[Weight, Any] = {"phi": t.exp_()}
        else:
            t = t.clamp_(min=0.0) if kernel.variable == "r2" else t
            weights = dict(zip(which, kernel.weights(t, which), strict=True))
        offset = i.start - j.start
        if block.without_diagonal and i.start - i.stop < offset < j.stop - j.start:
            for tile in weights.values():
                tile.diagonal(-offset).zero_()
        return weights

    def product(self, side: tuple[Any, Any] | None, part: slice, tile: Any) -> Any:
        if side is None:
            return tile.sum(dim=1).double()
        scaled, scale = side
        product = (tile @ scaled[part]).double() * scale
        return product if product.ndim == 1 else product.T

    def squared_norm(self, tile: Any) -> Any:
        import torch

        return torch.linalg.vector_norm(tile).double() ** 2


def all_ones(side: Any) -> bool:
    """True if products with this right-hand side are plain sums.

    `TorchBackend.array` gives ones, and nothing else, a stride of 0: to look at the numbers
    is to wait for the device.
    """
    return bool(side.ndim == 1 and side.stride(0) == 0)


def _scaled(side: Any, dtype: Any) -> tuple[Any, Any] | None:
    """A right-hand side in the working precision, its columns divided by their largest
    entries, and these; None for plain sums.
    """
    if all_ones(side):
        return None
    largest = side.abs().amax(dim=0)
    scale = largest.where(largest > 0.0, largest.new_ones(()))
    return (side / scale).to(dtype), scale


def _fits_single(block: Job) -> bool:
    """True if float32 holds all numbers of a tile, and keeps enough digits of sums that
    cancel, as those of KSD do.
    """
    kernel = block.kernel
    largest = max(block.x.largest, block.across.largest)
    lengths = largest * (length_unit(kernel)[0] / kernel.length) ** 2
    if lengths > LARGEST_WITH_SIDES and not all(map(all_ones, block.sides)):
        return False
    if kernel.unit_rate is not None:
        return True
    if kernel.variable == "dot":
        return float(kernel.weights(np.array([largest]), ("phi",))[0][0]) < LARGEST_SINGLE
    return 1.0 / LARGEST_LENGTH < kernel.length < LARGEST_LENGTH and largest < LARGEST_SINGLE


@contextmanager
def _float32_products_in_full() -> Iterator[None]:
    """Switch off TF32 products, which a user may have switched on: they keep only three
    digits.
    """
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
