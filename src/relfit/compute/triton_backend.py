"""The fused backend: one pass over a kernel matrix whose tiles never leave a CUDA device's registers.

Rows become halves: float16 operands whose tensor-core product is the kernel's argument to float32 accuracy. A number is
split into ``high + low``, two halves of 11 bits each. Of the four products of two split numbers the three largest are
kept, ``low·high + high·low + high·high``, so 22 bits remain: the accuracy of a three-term split in TF32 at twice its
speed. The split rows stand side by side, so that the three products are one, three times as long.

A launch of the fused kernel for sums is cut into units: one column tile with a run of row tiles, every pair of rows
once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relfit.compute.backend import Job, Products
from relfit.compute.torch_backend import TensorPoints, TorchBackend, all_ones
from relfit.kernels.base import Kernel, Weight

GAUSSIAN, RADIAL, DOT = 0, 1, 2

# Squared norms above this, in units of the kernel's length, would cost kernel values more than four digits.
LARGEST_NORM = 512.0
# Above this, the sums of KSD cancel so far that single precision leaves too few digits.
LARGEST_NORM_WITH_SIDES = 32.0
# The largest row of a function of x·y is scaled to this, so that the low halves keep their digits.
LARGEST_ROW = 1024.0
# Right-hand sides that tensor cores multiply at once, and the most that are multiplied at once.
SIDE_WIDTHS = (16, 32, 64, 128)
MOST_SIDES = 130
# The exponent of the largest right-hand side.
LARGEST_SIDE = 14.0
# The fused kernels split kernel values multiplied by this.
VALUE_RANGE = 2.0**14
# The powers of x·y that the fused kernels implement.
DEGREES = (1.0, 2.0, 3.0, 4.0)
# Numbers turned into halves at once, so that the float64 temporaries stay small.
CONVERTED_AT_ONCE = 2**24
# Operands with more columns than this are read in pieces.
LONGEST_HELD = 256
# Rows and columns of the tiles of the three fused kernels, and their warps.
SUMS = (64, 128, 4)
DEEP = (128, 128, 8)
PRODUCTS = (64, 64, 4)
# Chunks of a long product that a tensor core sums by itself; more would cost digits.
SEGMENT = 8
# Operands are padded to whole tiles of any kernel.
PADDING = 128
# Columns that are summed in float32 before a product is flushed to float64, and the memory that its parts may take.
FLUSHED = 4096
PARTS_MEMORY = 256 * 2**20
# The column sums of a unit are added up in float32: over more tiles than this they would lose digits.
LONGEST_RUN = 256
SHORTEST_RUN = 16
# Enough units that the last ones do not leave a large device idle.
WANTED_UNITS = 16_384
# Column tiles that work on the same rows at a time, and so find them in the cache.
NEIGHBOURS = 16

Units = NDArray[np.int32]


@dataclass(frozen=True)
class TritonBackend(TorchBackend):
    """Fused kernels on a CUDA device, to float32 accuracy; what they cannot compute is left to torch in float64."""

    device: str = "cuda"

    @property
    def name(self) -> str:
        """The device."""
        return f"triton ({self.device})"

    def points(self, kernel: Kernel, rows: Any) -> TensorPoints:
        """The rows on the device as they are."""
        tensor = self.array(rows)
        largest = float((tensor * tensor).sum(dim=1).max())
        return TensorPoints(tensor, tensor, tensor, by_differences=False, largest=largest)

    def block_sums(self, block: Job) -> Products:
        """The products of the block, each by the fused kernel that fits."""
        import torch

        # Triton launches on the current device, wherever its arguments are.
        with torch.no_grad(), nullcontext() if self.device == "cpu" else torch.cuda.device(self.device):
            if not is_usable_for(block):
                return self._by_torch(block)
            return self._block_sums(block)

    def _block_sums(self, block: Job) -> Products:
        products = {w: _products_of(block, w, _form(block, w)) for w in block.right}
        squares = products["phi"].squares if block.squares else 0.0
        if math.isnan(squares):
            squares = _sums(block, _form(block, "phi")).squares
        rows, columns = (
            {w: product.rows for w, product in products.items()},
            {w: products[w].columns for w in block.left},
        )
        return Products(rows, columns, squares)

    def _by_torch(self, block: Job) -> Products:
        plain = TorchBackend(self.device)
        x, y = (plain.points(block.kernel, part.rows) for part in (block.x, block.across))
        return plain.block_sums(replace(block, x=x, y=None if block.symmetric else y))


def is_usable_for(block: Job) -> bool:
    """True if the fused kernels give every product of the block to float32 accuracy.

    They do not for kernels that are neither a Gaussian nor a power, for rows too far apart in units of the kernel's
    length, and for products with right-hand sides if the rows are too long to be held.
    """
    sides = not all(all_ones(side) for side in block.sides)
    return fits(block.kernel, {*block.right, *block.left}, _largest(block), block.x.rows.shape[1], sides=sides)


class _Sums(NamedTuple):
    """Row and column products of one weight, transposed, and Σφ² (NaN if it was not computed with them)."""

    rows: Any
    columns: Any
    squares: float


def _form(block: Job, weight: Weight) -> Any:
    return form_of(block.kernel, weight, _largest(block))


def _largest(block: Job) -> float:
    """The largest squared norm of a row."""
    points: Any = (block.x, block.across)
    return float(max(side.largest for side in points))


def _products_of(block: Job, weight: Weight, form: Form) -> _Sums:
    right, left = block.right[weight], block.left.get(weight)
    if all_ones(right) and (left is None or all_ones(left)):
        return _sums(block, form)
    rows = _product(block.x.rows, block.across.rows, right, form, skip=block.without_diagonal)
    columns = (
        None if left is None else _product(block.across.rows, block.x.rows, left, form, skip=block.without_diagonal)
    )
    return _Sums(rows, columns, math.nan)


def _sums(block: Job, form: Form) -> _Sums:
    """Row and column sums and the sum of squares in one pass, over the upper half of a symmetric matrix."""
    import torch

    n, m = len(block.x), len(block.across)
    layout = layout_of(block.x.rows.shape[1], form.kind)
    left = operand(block.x.rows, form, "left", _padded(n))
    right = operand(block.across.rows, form, "right", _padded(m))
    rows = torch.zeros(len(left), dtype=torch.int64, device=left.device)
    columns = rows if block.symmetric else torch.zeros(len(right), dtype=torch.int64, device=left.device)
    # At most max(n, m) values of size 1 are added to one another: 62 bits hold their sum.
    fixed = 2.0 ** (62 - math.ceil(math.log2(max(n, m) + 1)))
    launch = _launch_held if layout.held else _launch_deep
    squares = launch(block, form, layout, (left, right, rows, columns), fixed)
    out = [sums.double() * (form.factor / fixed) for sums in (rows[:n], columns[:m])]
    return _Sums(out[0], out[1], float(squares) * form.factor**2 * (2.0 if block.symmetric else 1.0))


def _launch_held(block: Job, form: Form, layout: Layout, arrays: tuple[Any, ...], fixed: float) -> Any:
    import torch

    from relfit.compute import triton_kernels

    left, right, rows, columns = arrays
    height, width, warps = SUMS
    matrix = Matrix(len(block.x), len(block.across), block.symmetric, block.without_diagonal, height, width)
    total = torch.zeros((), dtype=torch.float64, device=left.device)
    for units, masked in zip(_units_on(matrix, str(left.device)), (False, True), strict=True):
        if len(units):
            squares = torch.zeros(len(units), dtype=torch.float64, device=left.device)
            triton_kernels.sums[(len(units),)](
                *(left, right, units, rows, columns, squares, len(block.x), len(block.across), fixed),
                *(form.unit, form.offset),
                **_constants(form, block),
                MASKED=masked,
                SQUARES=block.squares,
                **_columns_of(layout),
                BM=height,
                BN=width,
                STAGES=3 if layout.columns <= 96 else 2,
                num_warps=warps,
            )
            total += squares.sum()
    return total


@lru_cache(maxsize=16)
def _units_on(matrix: Matrix, device: str) -> tuple[Any, Any]:
    import torch

    clear, masked = (torch.as_tensor(units, device=device) for units in units_of(matrix))
    return clear, masked


def _launch_deep(block: Job, form: Form, layout: Layout, arrays: tuple[Any, ...], fixed: float) -> Any:
    import torch

    from relfit.compute import triton_kernels

    left, right, rows, columns = arrays
    height, width, warps = DEEP
    count = -(-len(block.x) // height) * -(-len(block.across) // width)
    squares = torch.zeros(count, dtype=torch.float64, device=left.device)
    triton_kernels.deep_sums[(count,)](
        *(left, right, rows, columns, squares, len(block.x), len(block.across), layout.columns, fixed),
        *(form.unit, form.offset, 1.0),
        **_constants(form, block),
        SQUARES=block.squares,
        KC=layout.piece,
        SEGMENT=SEGMENT,
        GROUP=8,
        BM=height,
        BN=width,
        STAGES=3,
        num_warps=warps,
    )
    return squares.sum()


def _product(x: Any, y: Any, side: Any, form: Form, *, skip: bool) -> Any:
    """The kernel matrix of x and y times the right-hand sides (m,) or (m, c): (n,) or (c, n)."""
    import torch

    matrix = side[:, None] if side.ndim == 1 else side
    left, right = operand(x, form, "left", _padded(len(x))), operand(y, form, "right", _padded(len(y)))
    parts = []
    layout = layout_of(x.shape[1], form.kind)
    for start in range(0, matrix.shape[1], MOST_SIDES):
        some = sides(matrix[:, start : start + MOST_SIDES], len(right))
        sums = _launch_products((left, right), some, len(x), len(y), layout, form, skip)
        parts.append(sums * (some.unscale * form.factor))
    product = torch.cat(parts, dim=1)
    return product[:, 0] if side.ndim == 1 else product.T


def _launch_products(
    operands: tuple[Any, Any], some: Sides, n: int, m: int, layout: Layout, form: Form, skip: bool
) -> Any:
    """The products (n, sides), panel by panel of rows, so that the parts to be summed in float64 stay small."""
    import torch

    from relfit.compute import triton_kernels

    height, width, warps = PRODUCTS
    count, extra = -(-m // FLUSHED), max(0, len(some.unscale) - some.width)
    panel = max(height, PARTS_MEMORY // (4 * count * some.width) // height * height)
    panels = []
    for start in range(0, n, panel):
        tiles = -(-min(panel, n - start) // height)
        out, extra_out = (
            torch.zeros(count, tiles * height, columns, dtype=torch.float32, device=some.high.device)
            for columns in (some.width, 2)
        )
        triton_kernels.products[(tiles, count)](
            *(*operands, some.high, some.low, some.extra, out, extra_out),
            *(start, m, len(some.high), FLUSHED // width, form.unit, form.offset, 1.0),
            **_constants(form),
            SKIP=skip,
            C=some.width,
            EXTRA=extra,
            **_columns_of(layout),
            BM=height,
            BN=width,
            STAGES=2,
            num_warps=warps,
        )
        sums = [part.sum(dim=0, dtype=torch.float64)[: n - start] for part in (out, extra_out)]
        panels.append(torch.cat([sums[0][:, : len(some.unscale) - extra], sums[1][:, :extra]], dim=1))
    return torch.cat(panels)


def _constants(form: Form, block: Job | None = None) -> dict[str, Any]:
    shape = {} if block is None else {"SYMMETRIC": block.symmetric, "PAIRED": block.without_diagonal}
    return {"FORM": form.kind, "EXPONENT": form.exponent, "TIMES_T": form.times_r2, **shape}


def _columns_of(layout: Layout) -> dict[str, int]:
    return {"KC": layout.piece, "NK": layout.pieces, "TAIL": layout.tail}


def _padded(rows: int) -> int:
    return -(-rows // PADDING) * PADDING


@dataclass(frozen=True)
class Form:
    """What a fused kernel computes: 2^s, max(s, 1)^e (times r²), or (unit·s + offset)^e, all at most 1 in size.

    Rows are multiplied by `scale` first; the kernel's weight is `factor` times the result.
    """

    kind: int
    scale: float
    factor: float = 1.0
    exponent: float = 0.0
    times_r2: bool = False
    unit: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Layout:
    """The columns of an operand: `pieces` of `piece` columns and a `tail`; `held` if a program keeps them all."""

    piece: int
    pieces: int
    tail: int
    held: bool

    @property
    def columns(self) -> int:
        """The number of all columns."""
        return self.piece * self.pieces + self.tail


def form_of(kernel: Kernel, weight: Weight, largest: float) -> Form | None:
    """The form of a kernel's weight for rows of squared norm up to `largest`, or None if it has none.

    A Gaussian φ = exp(q r²/ℓ²) is 2^s with s = x·y − ‖x‖²/2 − ‖y‖²/2 for rows multiplied by √(−2q log₂e)/ℓ.
    """
    if kernel.unit_rate is not None:
        scale = math.sqrt(-2.0 * kernel.unit_rate * math.log2(math.e)) / kernel.length
        usable = weight == "phi" and math.sqrt(largest) * scale <= math.sqrt(LARGEST_NORM)
        return Form(GAUSSIAN, scale) if usable else None
    if kernel.power is None:
        return None
    peak, offset, slope, exponent = kernel.power
    if kernel.variable == "dot":
        return _dot_form(peak, offset, slope, exponent, largest) if weight == "phi" else None
    if offset != 1.0 or math.sqrt(largest * slope) > math.sqrt(LARGEST_NORM):
        return None
    scale = math.sqrt(slope)
    if weight == "phi":
        return Form(RADIAL, scale, peak, exponent)
    if weight == "dphi":
        return Form(RADIAL, scale, peak * exponent * slope, exponent - 1.0)
    return Form(RADIAL, scale, peak * exponent * (exponent - 1.0) * slope, exponent - 2.0, times_r2=True)


def fits(kernel: Kernel, weights: Iterable[Weight], largest: float, dim: int, *, sides: bool) -> bool:
    """True if the fused kernels give these weights of rows up to this squared norm to float32 accuracy.

    `sides` means that products with right-hand sides are needed, not only sums: then rows must be short enough to be
    held, and nearer to each other.
    """
    forms = [form_of(kernel, weight, largest) for weight in weights]
    if not sides or None in forms:
        return None not in forms
    near = all(form is None or form.kind == DOT or largest * form.scale**2 <= LARGEST_NORM_WITH_SIDES for form in forms)
    return near and all(form is None or layout_of(dim, form.kind).held for form in forms)


def _dot_form(peak: float, offset: float, slope: float, exponent: float, largest: float) -> Form | None:
    bound = offset + slope * largest
    if not 0.0 < bound < math.inf or exponent not in DEGREES:
        return None
    scale = LARGEST_ROW / math.sqrt(largest) if largest > 0.0 else 1.0
    factor = peak * bound**exponent
    if not math.isfinite(factor):
        return None
    return Form(DOT, scale, factor, exponent, unit=slope / (scale**2 * bound), offset=offset / bound)


def layout_of(dim: int, kind: int) -> Layout:
    """The columns that operands of rows of this dimension need, padded to what the fused kernels read at once."""
    needed = 3 * dim + (0 if kind == DOT else 6)
    padded = -(-needed // 16) * 16
    if padded > LONGEST_HELD:
        return Layout(64, -(-needed // 64), 0, held=False)
    if padded <= 48:
        return Layout(min(padded, 32), 1, padded - min(padded, 32), held=True)
    pieces, tail = divmod(padded, 64)
    return Layout(64, pieces + 1, 0, held=True) if tail == 48 else Layout(64, pieces, tail, held=True)


def operand(rows: Any, form: Form, side: Literal["left", "right"], padded: int) -> Any:
    """The rows (n, d) as the left or right operand of a product: (padded, columns) float16, zeros beyond n.

    Left and right rows are ``[x_h, x_l, x_h, a, 1]`` and ``[y_l, y_h, y_h, 1, b]``, with a and b what the norms add
    in three halves each: s = x·y + a + b. A radial power has −2x on the left and 1 + ‖x‖² in a.
    """
    import torch

    n, d = rows.shape
    out = torch.zeros(padded, layout_of(d, form.kind).columns, dtype=torch.float16, device=rows.device)
    step = max(1, CONVERTED_AT_ONCE // d)
    for start in range(0, n, step):
        part = rows[start : start + step]
        _fill(out[start : start + len(part)], part.double() * form.scale, form, left=side == "left")
    return out


def _fill(out: Any, scaled: Any, form: Form, *, left: bool) -> None:
    import torch

    d = scaled.shape[1]
    if form.kind != DOT:
        norm = torch.einsum("ij,ij->i", scaled, scaled)[:, None]
        added = -0.5 * norm if form.kind == GAUSSIAN else norm + (1.0 if left else 0.0)
        out[:, 3 * d : 3 * d + 6] = 1.0
        out[:, 3 * d + (0 if left else 3) : 3 * d + (3 if left else 6)] = _halves(added, 3)
    if left and form.kind == RADIAL:
        scaled *= -2.0
    high, low = _halves(scaled, 2).split(d, dim=1)
    for k, part in enumerate((high, low, high) if left else (low, high, high)):
        out[:, k * d : (k + 1) * d] = part


@dataclass(frozen=True)
class Sides:
    """Right-hand sides for the fused products: `high` and `low` halves (padded, width), and up to two more in float32.

    `extra` is (2, padded). Products with each of the c sides have to be multiplied by `unscale` (c,).
    """

    high: Any
    low: Any
    extra: Any
    unscale: Any

    @property
    def width(self) -> int:
        """The number of columns split in halves."""
        return int(self.high.shape[1])


def sides(matrix: Any, padded: int) -> Sides:
    """Right-hand sides (m, c), c ≤ `MOST_SIDES`, split for the fused products.

    Columns are scaled by powers of two, which lose nothing, so that their largest entries use float16's range. Tensor
    cores multiply 16, 32, 64 or 128 columns; one or two more are multiplied without them, instead of doubling those.
    """
    import torch

    m, c = matrix.shape
    width = next(width for width in SIDE_WIDTHS if width >= c - 2)
    halved = min(width, c)
    largest = matrix.abs().amax(dim=0)
    exponent = torch.ceil(torch.log2(largest.where(largest > 0.0, largest.new_ones(()))))
    scale = torch.exp2(LARGEST_SIDE - exponent)
    scaled = matrix * scale
    high, low = (torch.zeros(padded, width, dtype=torch.float16, device=matrix.device) for _ in range(2))
    high[:m, :halved], low[:m, :halved] = _halves(scaled[:, :halved], 2).split(halved, dim=1)
    extra = torch.zeros(2, padded, dtype=torch.float32, device=matrix.device)
    extra[: c - halved, :m] = scaled[:, halved:].T
    return Sides(high, low, extra, 1.0 / (scale * VALUE_RANGE))


def _halves(numbers: Any, count: int) -> Any:
    """Float64 numbers (n, d) as the sum of `count` halves, (n, count·d)."""
    import torch

    parts = []
    for _ in range(count):
        parts.append(numbers.half())
        numbers = numbers - parts[-1].double()
    return torch.cat(parts, dim=1)


class Matrix(NamedTuple):
    """A kernel matrix in tiles: above the diagonal if it is symmetric, all but the diagonal if it is paired."""

    rows: int
    columns: int
    symmetric: bool
    paired: bool
    height: int
    width: int


class Runs(NamedTuple):
    """Row tiles first … last − 1 of every column tile j."""

    j: Units
    first: Units
    last: Units


def units_of(matrix: Matrix) -> tuple[Units, Units]:
    """Units (j, first, last) of tiles inside the matrix, and of tiles on its edges or diagonal, which need a mask."""
    clear, masked = _runs(matrix)
    tiles = sum(int((run.last - run.first).clip(0).sum()) for run in (*clear, *masked))
    longest = int(np.clip(tiles // WANTED_UNITS, SHORTEST_RUN, LONGEST_RUN))
    return _cut(clear, longest), _cut(masked, longest)


def _runs(matrix: Matrix) -> tuple[list[Runs], list[Runs]]:
    """Clear and masked runs of every column tile: up to the diagonal, across it, beyond it, the last rows."""
    j = np.arange(-(-matrix.columns // matrix.width), dtype=np.int32)
    whole, tiles = matrix.rows // matrix.height, -(-matrix.rows // matrix.height)
    above = (j * matrix.width // matrix.height).clip(max=whole)
    below = (-(-((j + 1) * matrix.width) // matrix.height)).clip(max=tiles)
    ragged = (j + 1) * matrix.width > matrix.columns
    zero, end = np.zeros_like(j), np.full_like(j, tiles)
    if matrix.symmetric:
        above = np.where(ragged, 0, above)
        return [Runs(j, zero, above)], [Runs(j, above, below)]
    if not matrix.paired:
        above = below = np.full_like(j, whole)
    above = np.where(ragged, 0, above)
    below = np.where(ragged, tiles, below)
    after = np.maximum(below, np.where(ragged, tiles, whole))
    return [Runs(j, zero, above), Runs(j, below, after)], [Runs(j, above, below), Runs(j, after, end)]


def _cut(runs: list[Runs], longest: int) -> Units:
    parts = [_pieces(run, longest) for run in runs]
    units = np.concatenate(parts)
    order = np.lexsort((units[:, 0], units[:, 1], units[:, 0] // NEIGHBOURS))
    return np.ascontiguousarray(units[order], dtype=np.int32)


def _pieces(run: Runs, longest: int) -> Units:
    counts = -(-(run.last - run.first).clip(0) // longest)
    which = np.repeat(np.arange(len(run.j)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = run.first[which] + number * longest
    return np.stack([run.j[which], first, np.minimum(first + longest, run.last[which])], axis=1).astype(np.int32)
