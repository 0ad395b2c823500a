"""Backends: the libraries that do the arithmetic on one block of a kernel matrix.

`Backend` is the narrow interface between the cutting of kernel matrices (`reduce`) and the arithmetic. `NumpyBackend`,
the reference, is always available: cache-sized tiles, one matrix product for r², the kernel function in place, sums by
BLAS. In single precision its tiles are float32, and what is summed over them is float64. `LookupBackend` is for kernels
given as a matrix of their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from scipy.spatial.distance import cdist

from relfit.compute.rows import cuts
from relfit.kernels.base import Kernel, Weight
from relfit.util.arrays import Array

Precision = Literal["double", "single"]

# Rows and columns of a tile: large enough that threads seldom wait for the interpreter, small enough for the cache.
TILE = 448
# With at least this many columns to multiply, tiles are as wide as their block.
MANY_COLUMNS = 16

# Blocks are whole numbers of tiles, so that no edges are wasted.
SMALLEST_BLOCK = 448
LARGEST_BLOCK = 4 * SMALLEST_BLOCK
# Blocks that are submitted at a time: enough to keep any local executor busy, few enough to bound memory.
BLOCKS_IN_FLIGHT = 32

# The product gives r² up to 2⁻⁵² max‖x‖²; beyond this many squared kernel lengths, differences are exact instead.
LARGEST_PRODUCT_RATIO = 1e5
# The same for float32 tiles; beyond the second, sums that cancel, as those of KSD do, need float64.
LARGEST_SINGLE_RATIO, LARGEST_WITH_SIDES = 64.0, 16.0
# Between these lengths all powers of them stay within float32.
SINGLE_LENGTHS = (1e-4, 1e4)


@dataclass(frozen=True)
class Points:
    """Rows prepared once for squared distances by one matrix product.

    ``x.left @ y.right`` of two prepared samples, (n, d+2) and (d+2, m), is ``q r²`` directly (or x·y). `rows` are the
    centred rows themselves, used instead where the product would lose digits (`by_differences`).
    """

    rows: Array
    left: Array
    right: Array
    by_differences: bool

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, block: slice) -> Points:
        return Points(self.rows[block], self.left[block], self.right[:, block], self.by_differences)


@dataclass(frozen=True)
class Block:
    """One block of kernel values and what to multiply it by, for each weight W among φ, φ', r²φ''.

    ``rows[W] = W(x, y) @ right[W]`` and ``columns[W] = W(x, y)ᵀ @ left[W]``. Right-hand sides are vectors or matrices.
    A symmetric block has x = y: each pair is evaluated once and there are no columns. `diagonal=False` leaves out the
    pairs with equal row numbers. `squares` asks for Σφ².
    """

    kernel: Kernel
    x: Points
    y: Points
    right: Mapping[Weight, Array]
    left: Mapping[Weight, Array]
    symmetric: bool
    diagonal: bool
    squares: bool


@dataclass
class Products:
    """Row products and column products, and Σφ² over all pairs (0 unless asked for), in float64.

    Those of a block are transposed, (right-hand sides, rows), or (rows,) for a single right-hand side.
    """

    rows: dict[Weight, Array]
    columns: dict[Weight, Array]
    squares: float = 0.0


def zero_products(side: Any, length: int) -> Array:
    """Zeros for the transposed products of a matrix of `length` rows with a right-hand side, where that is."""
    shape = (*side.shape[1:], length)
    return np.zeros(shape) if isinstance(side, np.ndarray) else side.new_zeros(shape)


class Backend(Protocol):
    """A library that can prepare points and reduce a block. Implementations must be picklable values."""

    @property
    def name(self) -> str:
        """The name shown in results."""

    @property
    def threads(self) -> bool:
        """True if blocks run faster in threads; False for a library with its own threads, and for a device."""

    def array(self, values: Array) -> Array:
        """The values as the library's own float64 array, where it computes."""

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """Rows and columns of a block, for a matrix this long, the number of right-hand sides and a byte budget."""

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """The rows, already centred, prepared for this kernel."""

    def block_sums(self, block: Block) -> Products:
        """The products of one block, where the library computes."""


def length_unit(kernel: Kernel) -> tuple[float, float]:
    """The unit rows are divided by, and q for rows in that unit.

    A Gaussian is evaluated in units near its bandwidth, so that no scale of the data over- or underflows. The unit is a
    power of two, so that the division loses no digit.
    """
    if kernel.unit_rate is None:
        return 1.0, 1.0
    unit = math.ldexp(1.0, math.frexp(kernel.length)[1])
    return unit, kernel.unit_rate * (unit / kernel.length) ** 2


@dataclass(frozen=True)
class NumpyBackend:
    """The reference backend; always available."""

    precision: Precision = "double"
    threads: bool = True

    @property
    def name(self) -> str:
        """The name shown in results."""
        return "numpy" if self.precision == "double" else "numpy (float32)"

    def array(self, values: Array) -> Array:
        """The values themselves."""
        return values

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """Whole numbers of tiles; about five blocks a side keep a few workers evenly busy.

        Two are enough for plain sums: these come with several matrices at once, and each is computed so quickly that
        submitting more blocks would cost noticeable time.
        """
        affordable = memory // (BLOCKS_IN_FLIGHT * 8 * 2 * max(sides, 1))
        blocks = 2 if sides <= 2 else 5
        balanced = -(-longest // (blocks * SMALLEST_BLOCK)) * SMALLEST_BLOCK
        return int(max(SMALLEST_BLOCK, min(LARGEST_BLOCK, affordable, balanced)))

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """``left = [−2q x, q‖x‖², 1]`` and ``right = [y, 1, q‖y‖²]ᵀ``, so that ``left @ right = q r²``.

        For a Gaussian q r² is its exponent; for other kernels q = 1.
        """
        if kernel.variable == "dot":
            return Points(rows, rows, np.ascontiguousarray(rows.T), by_differences=False)
        unit, rate = length_unit(kernel)
        rows = rows / unit
        norms = np.einsum("ij,ij->i", rows, rows)[:, None]
        ones = np.ones_like(norms)
        return Points(
            rows=rows,
            left=np.hstack([-2.0 * rate * rows, rate * norms, ones]),
            right=np.ascontiguousarray(np.hstack([rows, ones, rate * norms]).T),
            by_differences=not float(norms.max(initial=0.0)) <= LARGEST_PRODUCT_RATIO * (kernel.length / unit) ** 2,
        )

    def block_sums(self, block: Block) -> Products:
        """The products of the block, tile by tile in a fixed order."""
        tiled = _TiledBlock(block, np.float32 if self.precision == "single" and _fits_single(block) else np.float64)
        squares = 0.0
        for i, j in _tiles(block, tiled.width):
            weights = tiled.weights(i, j)
            mirrored = block.symmetric and i != j
            for w, weight in weights.items():
                tiled.add(tiled.rows[w], i, tiled.right[w], j, weight.T)
                if mirrored:
                    tiled.add(tiled.rows[w], j, tiled.right[w], i, weight)
                elif w in tiled.columns:
                    tiled.add(tiled.columns[w], j, tiled.left[w], i, weight)
            if block.squares:
                phi = weights["phi"].reshape(-1)
                squares += float(phi @ phi) * (2.0 if mirrored else 1.0)
        return Products(*tiled.products(), squares)


class _TiledBlock:
    """A block's operands in the working precision, prepared once for all tiles, and its products so far."""

    def __init__(self, block: Block, dtype: Any) -> None:
        self.block = block
        self.x, self.y = (part.astype(dtype, copy=False) for part in (block.x.left, block.y.right))
        self.right, self.left = _sides(block.right, dtype), _sides(block.left, dtype)
        # (right-hand sides × rows) @ tile is the shape at which BLAS is fastest.
        self.rows = {w: zero_products(side, len(block.x)) for w, side in block.right.items()}
        self.columns = {w: zero_products(side, len(block.y)) for w, side in block.left.items()}
        self.width = _tile_width(block, dtype)
        self.tile = np.empty(TILE * self.width, dtype)
        # Reused: a new array of this size for every product would be taken from and returned to the system each time.
        self.product = np.empty(_most_columns(block) * self.width, dtype)

    def weights(self, i: slice, j: slice) -> dict[Weight, Array]:
        """One tile of every weight that is asked for; pairs that are left out are 0."""
        weights = self._all_weights(i, j)
        if not self.block.diagonal and j.start <= i.start < j.stop:
            for weight in weights.values():
                np.fill_diagonal(weight[:, i.start - j.start :], 0.0)
        return weights

    def _all_weights(self, i: slice, j: slice) -> dict[Weight, Array]:
        block, kernel, which = self.block, self.block.kernel, tuple(self.block.right)
        height, width = i.stop - i.start, j.stop - j.start
        tile = self.tile[: height * width].reshape(height, width)
        if block.x.by_differences or block.y.by_differences:
            cdist(block.x.rows[i], block.y.rows[j], "sqeuclidean", out=tile)
            tile *= length_unit(kernel)[1]
        else:
            np.matmul(self.x[i], self.y[:, j], out=tile)
        if kernel.unit_rate is not None:
            # φ' and r²φ'' are multiples of φ and of r²φ here, and callers ask for φ alone.
            return {"phi": np.exp(tile, out=tile)}
        if kernel.variable == "r2":
            np.maximum(tile, 0.0, out=tile)
        return dict(zip(which, kernel.weights(tile, which), strict=True))

    def add(self, sums: Array, at: slice, side: _Side, part: slice, weight: Array) -> None:
        """``sums[..., at] += side[part]ᵀ @ weight``."""
        into = sums[..., at]
        out = self.product[: into.size].reshape(into.shape)
        np.matmul(side.columns[part].T, weight, out=out)
        into += out

    def products(self) -> tuple[dict[Weight, Array], dict[Weight, Array]]:
        """Row and column products."""
        for sums, sides in ((self.rows, self.right), (self.columns, self.left)):
            for w, side in sides.items():
                if side.scale is not None:
                    sums[w] *= side.scale
        return self.rows, self.columns


@dataclass(frozen=True)
class _Side:
    """A right-hand side; in float32 its columns are divided by their `scale`, so that they fit float32."""

    columns: Array
    scale: Array | None = None


def _sides(sides: Mapping[Weight, Array], dtype: Any) -> dict[Weight, _Side]:
    return {w: _Side(side) if dtype == np.float64 else _single(side) for w, side in sides.items()}


def _single(side: Array) -> _Side:
    largest = np.abs(side).max(axis=0, initial=0.0)
    scale = np.where(largest > 0.0, largest, 1.0)
    return _Side((side / scale).astype(np.float32), np.asarray(scale)[..., None])


def _fits_single(block: Block) -> bool:
    """True if float32 tiles keep enough digits: distances come from a product and are not too long for the kernel."""
    kernel = block.kernel
    if kernel.variable == "dot" or block.x.by_differences or block.y.by_differences:
        return False
    if kernel.unit_rate is None and not SINGLE_LENGTHS[0] < kernel.length < SINGLE_LENGTHS[1]:
        return False
    unit, rate = length_unit(kernel)
    # The last column but one of the prepared rows is q‖x‖².
    norm = max(float(np.abs(points.left[:, -2]).max(initial=0.0)) for points in (block.x, block.y))
    ones = all((side == 1.0).all() for side in (*block.right.values(), *block.left.values()))
    ratio = LARGEST_SINGLE_RATIO if ones else LARGEST_WITH_SIDES
    return norm <= ratio * abs(rate) * (kernel.length / unit) ** 2


def _tile_width(block: Block, dtype: Any) -> int:
    """Square tiles in float64, as many bytes in float32; strips where many columns are multiplied.

    With many columns, adding up the products of square tiles would cost noticeable time. Kernels other than the
    Gaussian need several tiles at once, which are kept small.
    """
    if block.kernel.unit_rate is not None and _most_columns(block) >= MANY_COLUMNS:
        return max(TILE, len(block.y))
    return TILE if dtype == np.float64 else 2 * TILE


def _most_columns(block: Block) -> int:
    return int(max(math.prod(side.shape[1:]) for side in (*block.right.values(), *block.left.values())))


def _tiles(block: Block, width: int) -> Iterator[tuple[slice, slice]]:
    """The tiles of a block; for a symmetric one, the squares on the diagonal and everything to the right of them."""
    for i in cuts(len(block.x), TILE):
        if block.symmetric:
            yield i, i
        for j in cuts(len(block.y), width, start=i.stop if block.symmetric else 0):
            yield i, j


@dataclass(frozen=True)
class LookupBackend(NumpyBackend):
    """Products with blocks of a given kernel matrix, which are looked up instead of computed."""

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """The row numbers (n, 1) themselves."""
        return Points(rows, rows, rows.T, by_differences=False)

    def block_sums(self, block: Block) -> Products:
        """The products of the block with φ = its values."""
        kernel: Any = block.kernel
        values = kernel.block(block.x.rows, block.y.rows)
        if not block.diagonal:
            np.fill_diagonal(values, 0.0)
        rows = {w: (values @ side).T for w, side in block.right.items()}
        columns = {w: (values.T @ side).T for w, side in block.left.items()}
        return Products(rows, columns, float(np.vdot(values, values)) if block.squares else 0.0)
