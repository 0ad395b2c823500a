"""Rows as halves: float16 operands whose tensor-core product is a kernel's argument to float32 accuracy.

A number is split into ``high + low``, two halves of 11 bits each. Of the four products of two split numbers the three
largest are kept, ``low·high + high·low + high·high``, so 22 bits remain: the accuracy of a three-term split in TF32
at twice its speed. The split rows stand side by side, so that the three products are one, three times as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from relfit.compute.backend import TileKernel
from relfit.kernels.base import Weight

GAUSSIAN, RADIAL, DOT = 0, 1, 2

# Squared norms above this, in units of the kernel's length, would cost kernel values more than four digits.
LARGEST_NORM = 512.0
# Above this, the sums of KSD cancel so far that single precision leaves too little.
LARGEST_NORM_WITH_SIDES = 32.0
# The largest row of a function of x·y is scaled to this, so that the low halves keep their digits.
LARGEST_ROW = 1024.0
# Right-hand sides multiplied by tensor cores at once, and all that are multiplied at once.
SIDE_WIDTHS = (16, 32, 64, 128)
MOST_SIDES = 130
# The exponent of the largest right-hand side.
LARGEST_SIDE = 14.0
# The fused kernels split kernel values multiplied by this.
VALUE_RANGE = 2.0**14
# The powers of x·y that the fused kernels know.
DEGREES = (1.0, 2.0, 3.0, 4.0)
# Numbers turned into halves at once: the float64 temporaries stay small.
CONVERTED_AT_ONCE = 2**24
# Operands with more columns than this are read in pieces.
LONGEST_HELD = 256


@dataclass(frozen=True)
class Form:
    """What a fused kernel computes: 2^s, max(s, 1)^e (times r²), or (unit·s + offset)^e, all at most 1 in size.

    Rows are multiplied by `scale` first; the kernel's weight is `factor` times what comes out.
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
    """How many columns an operand has: `pieces` of `piece` columns and a `tail`; `held` if a program keeps them all."""

    piece: int
    pieces: int
    tail: int
    held: bool

    @property
    def columns(self) -> int:
        """All columns."""
        return self.piece * self.pieces + self.tail


def form_of(kernel: TileKernel, weight: Weight, largest: float) -> Form | None:
    """The form of a kernel's weight for rows of squared norm up to `largest`; None if there is none.

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


def fits(kernel: TileKernel, weights: Iterable[Weight], largest: float, dim: int, *, sides: bool) -> bool:
    """Whether the fused kernels give these weights of rows up to this squared norm to float32 accuracy.

    `sides` says that products with right-hand sides are wanted, not only sums: then rows must be short enough to be
    held, and the rows nearer.
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
        own = -0.5 * norm if form.kind == GAUSSIAN else norm + (1.0 if left else 0.0)
        out[:, 3 * d : 3 * d + 6] = 1.0
        out[:, 3 * d + (0 if left else 3) : 3 * d + (3 if left else 6)] = _halves(own, 3)
    if left and form.kind == RADIAL:
        scaled *= -2.0
    high, low = _halves(scaled, 2).split(d, dim=1)
    for k, part in enumerate((high, low, high) if left else (low, high, high)):
        out[:, k * d : (k + 1) * d] = part


@dataclass(frozen=True)
class Sides:
    """Right-hand sides for the fused products: `high` and `low` halves (padded, width), and up to two more in float32.

    `extra` is (2, padded); `unscale` (c,) is what to multiply products with each of the c sides by.
    """

    high: Any
    low: Any
    extra: Any
    unscale: Any

    @property
    def width(self) -> int:
        """The columns split in halves."""
        return int(self.high.shape[1])


def sides(matrix: Any, padded: int) -> Sides:
    """Right-hand sides (m, c), c ≤ `MOST_SIDES`, split for the fused products.

    Columns are scaled by powers of two, which lose nothing, so that their largest entries use float16's range. Tensor
    cores multiply powers of two of columns; where one or two are left over, they are not worth a whole power.
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
    """Float64 numbers (n, d) as the sum of `count` halves: (n, count·d)."""
    import torch

    parts = []
    for _ in range(count):
        parts.append(numbers.half())
        numbers = numbers - parts[-1].double()
    return torch.cat(parts, dim=1)
