"""Several kernels that differ in length only, from one matrix of distances."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol, Self, TypeVar

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

T = TypeVar("T", bound="HasKernels")

# Rows and columns of a tile: few tiles, since threads wait for the interpreter between them.
_HEIGHT = 224
_WIDTH = 2048
# Rows and columns of a matrix that is a single block.
_WHOLE = 2048
# The ratio of the two lengths at which the Gaussian of the shorter one is φ^16 of the longer
# one.
_FOUR = 4.0


@dataclass(frozen=True)
class Together(Kernel):
    """Kernels whose sums are taken together, from the longest to the shortest; not for users.

    Its weights have names such as (0, "phi"), φ of the first kernel.
    """

    kernels: tuple[Kernel, ...]

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return self.kernels

    @property
    def names(self) -> list[Any]:
        """The name of φ of each kernel."""
        return [(k, "phi") for k in range(len(self.kernels))]

    def phi(self, t: Array) -> NoReturn:
        raise NotImplementedError


class HasKernels(Protocol):
    """Sums of several kernels."""

    def of_kernel(self, k: int) -> Self:
        """Those of one of them."""


@dataclass
class SharedSums:
    """Sums over kernel matrices for estimates that differ in their kernel only.

    The estimates are made one after another and ask for the same sums in the same order. The
    first computes and keeps those of all `kernels`.
    """

    kernels: tuple[Kernel, ...]
    kept: dict[Kernel, deque[Any]] = field(default_factory=dict)

    def sums(self, reduction: Any, compute: Callable[[Any], Sequence[T]]) -> list[T]:
        """The sums of the reduction; `compute` makes those of a reduction with any kernel."""
        waiting = self.kept.setdefault(reduction.kernel, deque())
        if not waiting:
            every = compute(replace(reduction, kernel=Together(self.kernels)))
            for k, kernel in enumerate(self.kernels):
                each = [sums.of_kernel(k) for sums in every]
                self.kept.setdefault(kernel, deque()).append(each)
        own: list[T] = waiting.popleft()
        return own


@dataclass(frozen=True)
class NearbyBackend(NumpyBackend):
    """Computes the distances of a block once for all kernels of a `Together`.

    In single precision, blocks that would lose too many digits are in double precision.
    """

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """Whole matrices of up to 2048 rows: there are several of them, and each block has a
        price of its own.
        """
        return longest if longest <= _WHOLE else super().block_rows(longest, sides, memory)

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """The rows, prepared for the longest kernel."""
        return super().points(_kernels(kernel)[0], rows)

    def block_sums(self, block: Job) -> Products:
        with np.errstate(over="ignore", under="ignore"):
            return super().block_sums(block)

    def operands(self, block: Job, dtype: Any) -> Operands:
        kernels = _kernels(block.kernel)
        block = replace(block, kernel=kernels[0])
        single = self.precision == "single" and fits_single(block, kernels[-1].length)
        return _Operands(block, np.float32 if single else np.float64, kernels)


def _kernels(kernel: Kernel) -> tuple[Kernel, ...]:
    assert isinstance(kernel, Together)  # noqa: S101  (no other kernel comes with this backend)
    return kernel.kernels


class _Operands(Operands):
    """A tile of every weight of every kernel from one tile of distances."""

    def __init__(self, block: Job, dtype: Any, kernels: Sequence[Kernel]) -> None:
        self.kernels = kernels
        names: Any = block.right
        self.which = tuple(dict.fromkeys(name for _, name in names))
        self.squares = np.zeros(len(kernels))
        super().__init__(block, dtype)

    def tile_sizes(self, dtype: Any, columns: int) -> tuple[int, int]:
        return _HEIGHT, min(_WIDTH, max(len(self.across), _HEIGHT))

    def more_tiles(self) -> int:
        return 1

    def products(self) -> Products:
        """The products with every kernel, and the squares of each."""
        block = replace(self.block, squares=False)
        every: Any = add_up_tiles(block, self, self.height, self.width, float)
        every.squares = self.squares
        return every  # type: ignore[no-any-return]

    def weights(self, i: slice, j: slice) -> Any:
        weights: Any = super().weights(i, j)
        if self.block.squares:
            twice = 2.0 if self.block.symmetric and i != j else 1.0
            for k in range(len(self.kernels)):
                tile = weights[k, "phi"].ravel()
                self.squares[k] += twice * float(tile @ tile)
        return weights

    def values(self, argument: Array) -> Any:
        """The weights of every kernel.

        For Gaussians of the lengths 2b and b/2 one exponential gives both: φ of the second
        is φ¹⁶ of the first.
        """
        longest = self.kernels[0]
        if longest.unit_rate is None:
            t = np.maximum(argument, 0.0, out=argument)
            each = [kernel.weights(t.copy(), self.which) for kernel in self.kernels]
            return {
                (k, name): tile
                for k, tiles in enumerate(each)
                for name, tile in zip(self.which, tiles, strict=True)
            }
        if len(self.kernels) == 2 and longest.length == _FOUR * self.kernels[1].length:
            first = np.exp(argument, out=argument)
            second = self.tiles[: argument.size].reshape(argument.shape)
            np.multiply(first, first, out=second)
            for _ in range(3):
                np.multiply(second, second, out=second)
            return {(0, "phi"): first, (1, "phi"): second}
        return {
            (k, "phi"): np.exp(argument * (longest.length / each.length) ** 2)
            for k, each in enumerate(self.kernels)
        }
