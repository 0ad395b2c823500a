"""The fused backend: one pass over a kernel matrix whose tiles never leave a CUDA device's
registers.

Rows become halves: float16 operands whose tensor-core product is the kernel's argument to
float32 accuracy. A number is split into ``high + low``, two halves of 11 bits each. Of the
four products of two split numbers the three largest are kept, ``low·high + high·low +
high·high``, so 22 bits remain: the accuracy of a three-term split in TF32 at twice its
speed. The split rows stand side by side, so that the three products are one, three times as
long.

A launch of the fused kernel for sums is cut into units: one column tile with a run of row
tiles, every pair of rows once.
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

from relfit.compute.backend import Job, Points, Products
from relfit.compute.torch_backend import TorchBackend, all_ones
from relfit.kernels.base import Kernel, Weight
from relfit.util.arrays import cuts

GAUSSIAN = 0
RADIAL = 1
DOT = 2

# Squared norms above this, in units of the kernel's length, would cost kernel values more than
# four digits.
LARGEST_NORM = 512.0
# Above this, the sums of KSD cancel so far that single precision leaves too few digits.
LARGEST_NORM_WITH_SIDES = 32.0
# The largest row of a function of x·y is scaled to this, so that the low halves keep their
# digits.
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
# Rows that become an operand at once.
OPERAND_ROWS = 32
# Operands of more bytes than this are made again for every matrix.
LARGEST_KEPT = 2**28
# Operands are padded to whole tiles of any kernel.
PADDING = 128
# Columns that are summed in float32 before a product is flushed to float64, and the memory that
# its parts may take.
FLUSHED = 4096
PARTS_MEMORY = 256 * 2**20
# The column sums of a unit are added up in float32: over more tiles than this they would lose
# digits.
LONGEST_RUN = 256
SHORTEST_RUN = 16
# Enough units that the last ones do not leave a large device idle.
WANTED_UNITS = 16_384
# With so few units a second launch takes longer than masks for all of them.
FEW_UNITS = 4096
# Column tiles that work on the same rows at a time, and so find them in the cache.
NEIGHBOURS = 16

Units = NDArray[np.int32]


@dataclass(frozen=True)
class TritonBackend(TorchBackend):
    """Fused kernels on a CUDA device, to float32 accuracy; what they cannot compute is left
    to torch in float64.
    """

    device: str = "cuda"

    @property
    def name(self) -> str:
        return f"triton ({self.device})"

    def points(self, kernel: Kernel, rows: Any) -> Points:
        """The rows on the device as they are."""
        tensor = self.array(rows)
        largest = float((tensor * tensor).sum(dim=1).max())
        return Points(tensor, tensor, tensor.T, by_differences=False, largest=largest)

    def block_sums(self, block: Job) -> Products:
        """The products of the block, each by the fused kernel that fits."""
        import torch

        # Triton launches on the current device, wherever its arguments are.
        with (
            torch.no_grad(),
            nullcontext() if self.device == "cpu" else torch.cuda.device(self.device),
        ):
            if is_usable_for(block):
                return _fused_products(block)
            kernel = block.kernel
            plain = TorchBackend(self.device)
            y = None if block.y is None else plain.points(kernel, block.y.rows)
            return plain.block_sums(replace(block, x=plain.points(kernel, block.x.rows), y=y))


def is_usable_for(block: Job) -> bool:
    """True if the fused kernels give every product of the block to float32 accuracy.

    They do not for kernels that are neither a Gaussian nor a power, for rows too far apart
    in units of the kernel's length, and for products with right-hand sides if the rows are
    too long to be held.
    """
    sides = not all(map(all_ones, block.sides))
    dim = block.x.rows.shape[1]
    return fits(block.kernel, block.right, _largest(block), dim, sides=sides)


def _largest(block: Job) -> float:
    """The largest squared norm of a row."""
    return max(block.x.largest, block.across.largest)


def _fused_products(block: Job) -> Products:
    rows = {}
    columns = {}
    squares = None
    for w, right in block.right.items():
        form: Any = form_of(block.kernel, w, _largest(block))
        left = block.left.get(w)
        if all_ones(right) and (left is None or all_ones(left)):
            rows[w], columns[w], sum_of_squares = _sums(block, form)
            squares = sum_of_squares if w == "phi" else squares
        else:
            x = block.x
            y = block.across
            rows[w] = _product(x, y, right, form, skip=block.without_diagonal)
            if left is not None:
                columns[w] = _product(y, x, left, form, skip=block.without_diagonal)
    if block.squares and squares is None:
        squares = _sums(block, form_of(block.kernel, "phi", _largest(block)))[2]
    return Products(
        rows, {w: columns[w] for w in block.left}, 0.0 if squares is None else squares
    )


def _sums(block: Job, form: Any) -> tuple[Any, Any, Any]:
    """Row sums, column sums and the sum of squares in one pass, over the upper half of a
    symmetric matrix.
    """
    import torch

    n = len(block.x)
    m = len(block.across)
    layout = layout_of(block.x.rows.shape[1], form.kind)
    left, right = _operands(block.x, block.across, form)
    whole = torch.zeros(
        len(left) + len(right) * (not block.symmetric), dtype=torch.int64, device=left.device
    )
    rows = whole[: len(left)]
    columns = whole[-len(right) :]
    # At most max(n, m) values of size 1 are added to one another: 62 bits hold their sum.
    fixed = 2.0 ** (62 - math.ceil(math.log2(max(n, m) + 1)))
    launch = _launch_held if layout.held else _launch_deep
    squares = launch(block, form, layout, (left, right, rows, columns), fixed)
    total = squares * (form.factor**2 * (2.0 if block.symmetric else 1.0))
    sums = whole.double() * (form.factor / fixed)
    return sums[:n], sums[-len(right) :][:m], total


def _launch_held(
    block: Job, form: Form, layout: Layout, arrays: tuple[Any, ...], fixed: float
) -> Any:
    import torch

    from relfit.compute import triton_kernels

    left, right, rows, columns = arrays
    height, width, warps = SUMS
    n = len(block.x)
    m = len(block.across)
    matrix = Matrix(n, m, block.symmetric, block.without_diagonal, height, width)
    inside, edges = _units_on(matrix, str(left.device))
    squares = torch.zeros(len(inside) + len(edges), dtype=torch.float64, device=left.device)
    for units, masked, start in ((inside, False, 0), (edges, True, len(inside))):
        if len(units):
            triton_kernels.sums[(len(units),)](
                left,
                right,
                units,
                rows,
                columns,
                squares[start:],
                n,
                m,
                fixed,
                form.unit,
                form.offset,
                **form.constants,
                MASKED=masked,
                SYMMETRIC=block.symmetric,
                PAIRED=block.without_diagonal,
                **layout.constants,
                SQUARES=block.squares,
                BM=height,
                BN=width,
                num_warps=warps,
                STAGES=3 if layout.columns <= 96 else 2,
            )
    return squares.sum()


@lru_cache(maxsize=16)
def _units_on(matrix: Matrix, device: str) -> tuple[Any, ...]:
    import torch

    inside, edges = units_of(matrix)
    if len(inside) + len(edges) <= FEW_UNITS:
        edges = np.concatenate([inside, edges])
        inside = inside[:0]
    return tuple(torch.as_tensor(units, device=device) for units in (inside, edges))


def _launch_deep(
    block: Job, form: Form, layout: Layout, arrays: tuple[Any, ...], fixed: float
) -> Any:
    import torch

    from relfit.compute import triton_kernels

    left, right, rows, columns = arrays
    height, width, warps = DEEP
    n = len(block.x)
    m = len(block.across)
    count = -(-n // height) * -(-m // width)
    squares = torch.zeros(count, dtype=torch.float64, device=left.device)
    triton_kernels.deep_sums[(count,)](
        left,
        right,
        rows,
        columns,
        squares,
        n,
        m,
        layout.columns,
        fixed,
        form.unit,
        form.offset,
        1.0,
        **form.constants,
        SYMMETRIC=block.symmetric,
        PAIRED=block.without_diagonal,
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


def _product(x: Points, y: Points, side: Any, form: Form, *, skip: bool) -> Any:
    """The kernel matrix of x and y times the right-hand sides (m,) or (m, c): (n,) or (c,
    n).
    """
    import torch

    matrix = side[:, None] if side.ndim == 1 else side
    operands = _operands(x, y, form)
    layout = layout_of(x.rows.shape[1], form.kind)
    parts = []
    for start in range(0, matrix.shape[1], MOST_SIDES):
        some = sides(matrix[:, start : start + MOST_SIDES], len(operands[1]))
        sums = _launch_products(operands, some, len(x), len(y), layout, form, skip)
        parts.append(sums * (some.unscale * form.factor))
    product = torch.cat(parts, dim=1)
    return product[:, 0] if side.ndim == 1 else product.T


def _launch_products(
    operands: tuple[Any, ...],
    some: Sides,
    n: int,
    m: int,
    layout: Layout,
    form: Form,
    skip: bool,
) -> Any:
    """The products (n, sides), panel by panel of rows, so that the parts to be summed in
    float64 stay small.
    """
    import torch

    from relfit.compute import triton_kernels

    height, width, warps = PRODUCTS
    halved = some.high.shape[1]
    count = -(-m // FLUSHED)
    extra = max(0, len(some.unscale) - halved)
    panel = max(height, PARTS_MEMORY // (4 * count * halved) // height * height)
    panels = []
    for start in range(0, n, panel):
        tiles = -(-min(panel, n - start) // height)
        out, extra_out = (
            torch.zeros(
                count, tiles * height, columns, dtype=torch.float32, device=some.high.device
            )
            for columns in (halved, 2)
        )
        triton_kernels.products[(tiles, count)](
            *operands,
            some.high,
            some.low,
            some.extra,
            out,
            extra_out,
            start,
            m,
            len(some.high),
            FLUSHED // width,
            form.unit,
            form.offset,
            1.0,
            **form.constants,
            SKIP=skip,
            C=halved,
            EXTRA=extra,
            **layout.constants,
            BM=height,
            BN=width,
            STAGES=2,
            num_warps=warps,
        )
        sums = [part.sum(dim=0, dtype=torch.float64)[: n - start] for part in (out, extra_out)]
        panels.append(
            torch.cat([sums[0][:, : len(some.unscale) - extra], sums[1][:, :extra]], dim=1)
        )
    return torch.cat(panels)


@dataclass(frozen=True)
class Form:
    """What a fused kernel computes: 2^s, max(s, 1)^e (times r²), or (unit·s + offset)^e, all
    at most 1 in size.

    Rows are multiplied by `scale` first; the kernel's weight is `factor` times the result.
    """

    kind: int
    scale: float
    factor: float = 1.0
    exponent: float = 0.0
    times_r2: bool = False
    unit: float = 1.0
    offset: float = 0.0

    @property
    def constants(self) -> dict[str, Any]:
        """What a fused kernel is compiled for."""
        return {"FORM": self.kind, "EXPONENT": self.exponent, "TIMES_T": self.times_r2}


@dataclass(frozen=True)
class Layout:
    """The columns of an operand: `pieces` of `piece` columns and a `tail`; `held` if a
    program keeps them all.
    """

    piece: int
    pieces: int
    tail: int
    held: bool

    @property
    def columns(self) -> int:
        """The number of all columns."""
        return self.piece * self.pieces + self.tail

    @property
    def constants(self) -> dict[str, int]:
        """What a fused kernel that holds its rows is compiled for."""
        return {"KC": self.piece, "NK": self.pieces, "TAIL": self.tail}


def form_of(kernel: Kernel, weight: Weight, largest: float) -> Form | None:
    """The form of a kernel's weight for rows of squared norm up to `largest`, or None if it
    has none.

    A Gaussian φ = exp(q r²/ℓ²) is 2^s with s = x·y − ‖x‖²/2 − ‖y‖²/2 for rows multiplied by
    √(−2q log₂e)/ℓ.
    """
    if kernel.unit_rate is not None:
        scale = math.sqrt(-2.0 * kernel.unit_rate * math.log2(math.e)) / kernel.length
        usable = weight == "phi" and math.sqrt(largest) * scale <= math.sqrt(LARGEST_NORM)
        return Form(GAUSSIAN, scale) if usable else None
    if kernel.power is None:
        return None
    peak, offset, slope, exponent = kernel.power
    if kernel.variable == "dot":
        bound = offset + slope * largest
        if weight != "phi" or exponent not in DEGREES or not 0.0 < bound < math.inf:
            return None
        scale = LARGEST_ROW / math.sqrt(largest) if largest > 0.0 else 1.0
        factor = peak * bound**exponent
        form = Form(
            DOT, scale, factor, exponent, unit=slope / (scale**2 * bound), offset=offset / bound
        )
        return form if math.isfinite(factor) else None
    if offset != 1.0 or math.sqrt(largest * slope) > math.sqrt(LARGEST_NORM):
        return None
    scale = math.sqrt(slope)
    if weight == "phi":
        return Form(RADIAL, scale, peak, exponent)
    if weight == "dphi":
        return Form(RADIAL, scale, peak * exponent * slope, exponent - 1.0)
    return Form(
        RADIAL, scale, peak * exponent * (exponent - 1.0) * slope, exponent - 2.0, times_r2=True
    )


def fits(
    kernel: Kernel, weights: Iterable[Weight], largest: float, dim: int, *, sides: bool
) -> bool:
    """True if the fused kernels give these weights of rows up to this squared norm to
    float32 accuracy.

    `sides` means that products with right-hand sides are needed, not only sums: then rows
    must be short enough to be held, and nearer to each other.
    """
    for form in (form_of(kernel, weight, largest) for weight in weights):
        if form is None:
            return False
        near = form.kind == DOT or largest * form.scale**2 <= LARGEST_NORM_WITH_SIDES
        if sides and not (near and layout_of(dim, form.kind).held):
            return False
    return True


def layout_of(dim: int, kind: int) -> Layout:
    """The columns that operands of rows of this dimension need, padded to what the fused
    kernels read at once.
    """
    needed = 3 * dim + (0 if kind == DOT else 6)
    padded = -(-needed // 16) * 16
    if padded > LONGEST_HELD:
        return Layout(64, -(-needed // 64), 0, held=False)
    if padded <= 48:
        return Layout(min(padded, 32), 1, padded - min(padded, 32), held=True)
    pieces, tail = divmod(padded, 64)
    if tail == 48:
        pieces += 1
        tail = 0
    return Layout(64, pieces, tail, held=True)


def operand(rows: Any, form: Form, side: Literal["left", "right"], padded: int) -> Any:
    """The rows (n, d) as the left or right operand of a product: (padded, columns) float16,
    zeros beyond n.

    Left and right rows are ``[x_h, x_l, x_h, a, 1]`` and ``[y_l, y_h, y_h, 1, b]``, with a
    and b what the norms add in three halves each: s = x·y + a + b. A radial power has −2x on
    the left and 1 + ‖x‖² in a.
    """
    import torch

    n, d = rows.shape
    left = side == "left"
    layout = layout_of(d, form.kind)
    if layout.held:
        return _short_operand(rows, form, left, padded)
    whole = torch.zeros(padded, layout.columns, dtype=torch.float16, device=rows.device)
    for some in cuts(n, max(1, CONVERTED_AT_ONCE // d)):
        out = whole[some]
        scaled = rows[some].double() * form.scale
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
    return whole


def _short_operand(rows: Any, form: Form, left: bool, padded: int) -> Any:
    """The same for rows that a program can hold, by one kernel: small samples would wait for
    many small launches.
    """
    import torch

    from relfit.compute import triton_kernels

    n, d = rows.shape
    columns = layout_of(d, form.kind).columns
    out = torch.empty(padded, columns, dtype=torch.float16, device=rows.device)
    width = 1 << (max(d, columns - 3 * d) - 1).bit_length()
    triton_kernels.operand[(padded // OPERAND_ROWS,)](
        rows.double() * form.scale,
        out,
        n,
        d,
        FORM=form.kind,
        LEFT=left,
        K=columns,
        BM=OPERAND_ROWS,
        BD=width,
    )
    return out


def _operands(x: Points, y: Points, form: Form) -> tuple[Any, Any]:
    """The left and the right operand, padded to whole tiles of any kernel; short ones are
    kept for the next matrix.
    """

    def made(points: Points, side: Literal["left", "right"]) -> Any:
        known = points.operands.get((form, side))
        if known is None:
            known = operand(points.rows, form, side, -(-len(points) // PADDING) * PADDING)
            if known.nbytes <= LARGEST_KEPT:
                points.operands[form, side] = known
        return known

    return made(x, "left"), made(y, "right")


@dataclass(frozen=True)
class Sides:
    """Right-hand sides for the fused products: `high` and `low` halves (padded, width), and
    up to two more in float32.

    `extra` is (2, padded). Products with each of the c sides have to be multiplied by
    `unscale` (c,).
    """

    high: Any
    low: Any
    extra: Any
    unscale: Any


def sides(matrix: Any, padded: int) -> Sides:
    """Right-hand sides (m, c), c ≤ `MOST_SIDES`, split for the fused products.

    Columns are scaled by powers of two, which lose nothing, so that their largest entries
    use float16's range. Tensor cores multiply 16, 32, 64 or 128 columns; one or two more are
    multiplied without them, instead of doubling those.
    """
    import torch

    m, c = matrix.shape
    width = next(width for width in SIDE_WIDTHS if width >= c - 2)
    halved = min(width, c)
    largest = matrix.abs().amax(dim=0)
    exponent = torch.ceil(torch.log2(largest.where(largest > 0.0, largest.new_ones(()))))
    scale = torch.exp2(LARGEST_SIDE - exponent)
    scaled = matrix * scale
    high, low = (
        torch.zeros(padded, width, dtype=torch.float16, device=matrix.device) for _ in range(2)
    )
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
    """A kernel matrix in tiles: above the diagonal if it is symmetric, all but the diagonal
    if it is paired.
    """

    rows: int
    columns: int
    symmetric: bool
    paired: bool
    height: int
    width: int


def units_of(matrix: Matrix) -> tuple[Units, Units]:
    """Units (j, first, last) of tiles inside the matrix, and of tiles on its edges or
    diagonal, which need a mask.
    """
    j = np.arange(-(-matrix.columns // matrix.width), dtype=np.int32)
    whole = matrix.rows // matrix.height
    tiles = -(-matrix.rows // matrix.height)
    above = (j * matrix.width // matrix.height).clip(max=whole)
    below = (-(-((j + 1) * matrix.width) // matrix.height)).clip(max=tiles)
    ragged = (j + 1) * matrix.width > matrix.columns
    if not matrix.symmetric and not matrix.paired:
        above = below = np.full_like(j, whole)
    above = np.where(ragged, 0, above)
    # Runs of row tiles first … last − 1 of column tile j: up to the diagonal, across it, beyond
    # it, the last rows.
    clear = np.array([j, np.zeros_like(j), above])
    masked = np.array([j, above, below])
    if not matrix.symmetric:
        below = np.where(ragged, tiles, below)
        after = np.maximum(below, np.where(ragged, tiles, whole))
        clear = np.hstack([clear, [j, below, after]])
        masked = np.hstack([[j, above, below], [j, after, np.full_like(j, tiles)]])
    count = sum(int((last - first).clip(0).sum()) for _, first, last in (clear, masked))
    longest = int(np.clip(count // WANTED_UNITS, SHORTEST_RUN, LONGEST_RUN))
    return _cut(clear, longest), _cut(masked, longest)


def _cut(runs: Units, longest: int) -> Units:
    """The runs in units of at most `longest` row tiles, those of neighbouring column tiles
    together.
    """
    j, first, last = runs
    counts = -(-(last - first).clip(0) // longest)
    which = np.repeat(np.arange(len(j)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = first[which] + number * longest
    units = np.stack([j[which], start, np.minimum(start + longest, last[which])], axis=1)
    order = np.lexsort((units[:, 0], units[:, 1], units[:, 0] // NEIGHBOURS))
    return np.ascontiguousarray(units[order], dtype=np.int32)
