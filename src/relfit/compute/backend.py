"""The narrow interface between the plan of tiles and the library that does the arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from relfit.kernels.base import Power, Variable, Weight
from relfit.util.arrays import Array


class TileKernel(Protocol):
    """What a backend needs to know of a kernel φ(t), t = r² or x·y."""

    @property
    def variable(self) -> Variable:
        """What φ is a function of."""

    @property
    def unit_rate(self) -> float | None:
        """The number q with φ(r²) = exp(q r²/length²), or None when φ is not of that form."""

    @property
    def power(self) -> Power | None:
        """φ as a power of t, or None when it is none."""

    @property
    def length(self) -> float:
        """The shortest distance over which the kernel changes noticeably."""

    def weights(self, t: Array, which: Sequence[Weight], /) -> tuple[Array, ...]:
        """The asked-for functions of t, on one tile."""


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

    ``rows[W] = W(x, y) @ right[W]`` and ``columns[W] = W(x, y)ᵀ @ left[W]``. Right-hand sides are
    vectors or matrices. A symmetric block has x = y: each pair is evaluated once and there are no
    columns. `diagonal=False` leaves out the pairs with equal row numbers.
    """

    kernel: TileKernel
    x: Points
    y: Points
    right: Mapping[Weight, Array]
    left: Mapping[Weight, Array]
    symmetric: bool
    diagonal: bool
    squares: bool


@dataclass(frozen=True)
class BlockSums:
    """What a block reduces to: row products, column products, Σφ² over its pairs (0 unless asked).

    The products are transposed, (right-hand sides, rows), or (rows,) for a single right-hand side.
    """

    rows: dict[Weight, Array]
    columns: dict[Weight, Array]
    squares: float


class Backend(Protocol):
    """A library that can prepare points and reduce a block. Implementations must be picklable values."""

    @property
    def name(self) -> str:
        """The name shown in results."""

    @property
    def threads(self) -> bool:
        """Whether blocks gain by running in threads; a library with threads of its own, or a device, does not."""

    def array(self, values: Array) -> Array:
        """The numbers as the library's own float64 array, where it computes."""

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """Rows and columns of a block, for a matrix this long, so many right-hand sides and a budget in bytes."""

    def points(self, kernel: TileKernel, rows: Array) -> Points:
        """The rows, already centred, prepared for this kernel."""

    def block_sums(self, block: Block) -> BlockSums:
        """The products of one block, in float64, where the library computes."""


def length_unit(kernel: TileKernel) -> tuple[float, float]:
    """The unit rows are divided by, and q for rows in that unit.

    A Gaussian is evaluated in units near its bandwidth, so that no scale of the data over- or
    underflows; a power of two, so that the division loses no digit.
    """
    if kernel.unit_rate is None:
        return 1.0, 1.0
    unit = math.ldexp(1.0, math.frexp(kernel.length)[1])
    return unit, kernel.unit_rate * (unit / kernel.length) ** 2
