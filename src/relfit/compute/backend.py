"""Backends: the libraries that do the arithmetic on one block of a kernel matrix.

`Backend` is the narrow interface between the cutting of kernel matrices (`reduce`) and the
arithmetic. What there is to compute is a `Job`; a block of a job is a job too.
`NumpyBackend`, the reference, is always available: cache-sized tiles, one matrix product for
r², the kernel function in place, sums by BLAS. In single precision its tiles are float32,
and what is summed over them is float64. `NumbaBackend` is the same with the compiled passes
of `numba_tiles`. `LookupBackend` is for kernels given as a matrix of their values, and
`NearbyBackend` for several kernels that differ in length only, from one matrix of distances.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from scipy.spatial.distance import cdist

from relfit.kernels.base import Kernel, Weight
from relfit.kernels.standard import Gaussian
from relfit.util.arrays import Array, cuts
from relfit.util.libraries import without_warnings
from relfit.util.text import first_line

Precision = Literal["double", "single"]
PRECISIONS = ("double", "single")
BACKENDS = ("auto", "numpy", "numba", "torch", "triton")

# Rows and columns of a tile: large enough that threads seldom wait for the interpreter, small
# enough for the cache.
TILE = 448
# With at least this many columns to multiply, tiles are as wide as their block.
MANY_COLUMNS = 16
# Blocks are whole numbers of tiles, so that no edges are wasted.
SMALLEST_BLOCK = TILE
LARGEST_BLOCK = 4 * TILE
# Blocks that are submitted at a time: enough to keep any local executor busy, few enough to
# bound memory.
BLOCKS_IN_FLIGHT = 32

# The product gives r² up to 2⁻⁵² max‖x‖²; beyond this many squared kernel lengths, differences
# are exact instead.
LARGEST_PRODUCT_RATIO = 1e5
# The same for float32 tiles; beyond the second, sums that cancel, as those of KSD do, need
# float64.
LARGEST_SINGLE_RATIO = 64.0
LARGEST_WITH_SIDES = 16.0
# Between these lengths all powers of them stay within float32.
SINGLE_LENGTHS = (1e-4, 1e4)
# With several kernels, rows and columns of a tile: few tiles, since threads wait for the
# interpreter between them; and those of a matrix that is a single block.
SHARED_TILE = (224, 2048)
WHOLE = 2048


@dataclass(frozen=True)
class Points:
    """Rows prepared once for squared distances by one matrix product.

    ``x.left @ y.right`` of two prepared samples, (n, d+2) and (d+2, m), is ``q r²`` directly
    (or x·y). `rows` are the centred rows themselves, used instead where the product would
    lose digits (`by_differences`). All are arrays of the backend's library; for torch, all
    three are the rows, and `largest` is their largest squared norm. `single` is left and
    right in float32, if they were asked for. `operands` is for a backend to keep what it
    makes of the rows.
    """

    rows: Any
    left: Any
    right: Any
    by_differences: bool
    largest: float = 0.0
    single: Any = None
    operands: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, block: slice) -> Points:
        if block == slice(0, len(self)):
            return self
        single = self.single and (self.single[0][block], self.single[1][:, block])
        return replace(
            self,
            rows=self.rows[block],
            left=self.left[block],
            right=self.right[:, block],
            single=single,
            operands={},
        )


@dataclass(frozen=True)
class Job:
    """Products of a kernel matrix, or of a block of one, for each weight W among φ, φ', r²φ''.

    ``rows[W] = W(x, y) @ right[W]`` and ``columns[W] = W(x, y)ᵀ @ left[W]``. Right-hand
    sides are vectors or matrices. With ``y=None`` the matrix is symmetric: each pair is
    evaluated once, the diagonal is left out and there are no columns. `diagonal=False`
    leaves out equal row numbers of a square cross matrix. `squares` asks for Σφ².
    """

    kernel: Kernel
    x: Points
    y: Points | None
    right: Mapping[Weight, Array]
    left: Mapping[Weight, Array] = field(default_factory=dict)
    diagonal: bool = True
    squares: bool = False

    @property
    def symmetric(self) -> bool:
        """True for the kernel matrix of one sample with itself."""
        return self.y is None

    @property
    def without_diagonal(self) -> bool:
        """True if pairs of equal row numbers are left out."""
        return self.symmetric or not self.diagonal

    @property
    def across(self) -> Points:
        """The points that belong to the columns."""
        return self.x if self.y is None else self.y

    @property
    def sides(self) -> list[Array]:
        return [*self.right.values(), *self.left.values()]

    @property
    def pairs(self) -> int:
        """The number of kernel values to evaluate."""
        n = len(self.x)
        return n * (n - 1) // 2 if self.symmetric else n * len(self.across)

    def block(self, i: slice, j: slice) -> Job:
        right = {w: side[j] for w, side in self.right.items()}
        if self.symmetric and i == j:
            return Job(self.kernel, self.x[i], None, right, squares=self.squares)
        # Off the diagonal of a symmetric matrix, the transposed half is the column products.
        left = {w: side[i] for w, side in (self.right if self.symmetric else self.left).items()}
        return Job(
            self.kernel,
            self.x[i],
            self.across[j],
            right,
            left,
            self.diagonal or i != j,
            self.squares,
        )

    def products(self, values: Array) -> Products:
        """The transposed products, given the kernel values; the pairs that are left out are
        set to 0.
        """
        if self.without_diagonal:
            np.fill_diagonal(values, 0.0)
        rows = {w: (values @ side).T for w, side in self.right.items()}
        columns = {w: (values.T @ side).T for w, side in self.left.items()}
        return Products(rows, columns, float(np.vdot(values, values)) if self.squares else 0.0)

    def zeros(self) -> Products:
        """Zeros for the transposed products, in the library of the right-hand sides."""

        def zeros(sides: Mapping[Weight, Any], length: int) -> dict[Weight, Array]:
            found = {}
            for w, side in sides.items():
                shape = (*side.shape[1:], length)
                of_numpy = isinstance(side, np.ndarray)
                found[w] = np.zeros(shape) if of_numpy else side.new_zeros(shape)
            return found

        return Products(zeros(self.right, len(self.x)), zeros(self.left, len(self.across)))


@dataclass
class Products:
    """Row products and column products, and Σφ² over all pairs (0 unless asked for), in
    float64, where they were made.

    Those of a block are transposed, (right-hand sides, rows), or (rows,) for a single
    right-hand side.
    """

    rows: dict[Weight, Array]
    columns: dict[Weight, Array]
    squares: float = 0.0

    def map(self, function: Callable[[Array], Array]) -> Products:
        rows, columns = (
            {w: function(a) for w, a in each.items()} for each in (self.rows, self.columns)
        )
        return Products(rows, columns, self.squares)


class Backend(Protocol):
    """A library that can prepare points and reduce a block. Implementations must be
    picklable values.
    """

    @property
    def name(self) -> str:
        """The name shown in results."""

    @property
    def threads(self) -> bool:
        """True if blocks run faster in threads; False for a library with its own threads,
        and for a device.
        """

    def array(self, values: Array) -> Array:
        """The values as the library's own float64 array, where it computes."""

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """Rows and columns of a block, for a matrix this long, the number of right-hand
        sides and a byte budget.
        """

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """The rows, already centred, prepared for this kernel."""

    def block_sums(self, block: Job) -> Products:
        """The products of one block, transposed, where the library computes."""


def length_unit(kernel: Kernel) -> tuple[float, float]:
    """The unit rows are divided by, and q for rows in that unit.

    A Gaussian is evaluated in units near its bandwidth, so that no scale of the data over-
    or underflows. The unit is a power of two, so that the division loses no digit.
    """
    if kernel.unit_rate is None:
        return 1.0, 1.0
    unit = math.ldexp(1.0, math.frexp(kernel.length)[1])
    return unit, kernel.unit_rate * (unit / kernel.length) ** 2


@dataclass(frozen=True)
class NumpyBackend:
    """The reference backend; always available."""

    precision: Precision = "double"
    library: ClassVar[str] = "numpy"
    threads: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.library if self.precision == "double" else f"{self.library} (float32)"

    def array(self, values: Array) -> Array:
        return values

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """Whole numbers of tiles; about five blocks a side keep a few workers evenly busy.

        Two are enough for plain sums: these come with several matrices at once, and each is
        computed so quickly that submitting more blocks would cost noticeable time.
        """
        affordable = memory // (BLOCKS_IN_FLIGHT * 8 * 2 * max(sides, 1))
        blocks = 2 if sides <= 2 else 5
        balanced = -(-longest // (blocks * SMALLEST_BLOCK)) * SMALLEST_BLOCK
        return int(max(SMALLEST_BLOCK, min(LARGEST_BLOCK, affordable, balanced)))

    def points(self, kernel: Kernel, rows: Array) -> Points:
        """``left = [−2q x, q‖x‖², 1]`` and ``right = [y, 1, q‖y‖²]ᵀ``, so that ``left @
        right = q r²``.

        For a Gaussian q r² is its exponent; for other kernels q = 1.
        """
        if kernel.variable == "dot":
            return Points(rows, rows, np.ascontiguousarray(rows.T), by_differences=False)
        unit, rate = length_unit(kernel)
        rows, (n, d) = rows / unit, rows.shape
        norms = np.einsum("ij,ij->i", rows, rows)
        left = np.empty((n, d + 2))
        right = np.empty((d + 2, n))
        np.multiply(rows, -2.0 * rate, out=left[:, :d])
        left[:, d] = right[d + 1] = rate * norms
        left[:, d + 1] = right[d] = 1.0
        right[:d] = rows.T
        far = (
            not float(norms.max(initial=0.0))
            <= LARGEST_PRODUCT_RATIO * (kernel.length / unit) ** 2
        )
        single = None
        if self.precision == "single":
            # Here and not for every block; what does not fit into float32 is computed in double
            # precision.
            with np.errstate(over="ignore"):
                single = left.astype(np.float32), right.astype(np.float32)
        return Points(rows, left, right, far, single=single)

    def block_sums(self, block: Job) -> Products:
        single = self.precision == "single" and fits_single(block)
        operands = self.operands(block, np.float32 if single else np.float64)
        products = operands.products()
        for w, (_, scale) in operands.right.items():
            products.rows[w] *= scale
        for w, (_, scale) in operands.left.items():
            products.columns[w] *= scale
        return products

    def operands(self, block: Job, dtype: Any) -> Operands:
        return Operands(block, dtype)


@dataclass(frozen=True)
class NumbaBackend(NumpyBackend):
    """NumPy's blocks and tiles, with kernel values and their sums by one compiled pass over
    each tile.

    A process that lacks Numba, such as a worker, computes with NumPy: the same sums up to
    rounding.
    """

    library: ClassVar[str] = "numba"

    def operands(self, block: Job, dtype: Any) -> Operands:
        return Operands(block, dtype) if numba_problem() else _FusedOperands(block, dtype)


@cache
def numba_problem() -> str:
    """Why Numba cannot be used by this process; empty if it can: it is installed, and its
    sums are NumPy's.
    """
    if find_spec("numba") is None:
        return 'numba is not installed; install it with  pip install "relfit[fast]"'
    backend = NumpyBackend()
    kernel = Gaussian(1.0)
    points = backend.points(kernel, np.linspace(-4.0, 4.0, 150).reshape(75, 2))
    job = Job(kernel, points, None, {"phi": np.linspace(1.0, 2.0, 75)}, squares=True)
    try:
        # Numba warns of environment variables that it cannot read.
        with without_warnings:
            sums, exact = (
                kind(job, np.float64).products() for kind in (_FusedOperands, Operands)
            )
    except Exception as error:  # noqa: BLE001  (a compiler may fail in any way)
        return f"numba does not work here ({type(error).__name__}: {first_line(error)})"
    off = np.abs(sums.rows["phi"] / exact.rows["phi"] - 1.0).max()
    off += abs(sums.squares / exact.squares - 1.0)
    return "" if off < 1e-13 else f"numba's sums are off by {off:.0e} from NumPy's"


def add_up_tiles(block: Job, operands: Any) -> Products:
    """The products of a block, transposed, tile by tile in a fixed order.

    ``operands.weights(i, j)`` is one tile of every weight, ``operands.product(side, part,
    tile)`` is ``(tile @ side[part])ᵀ``, and ``operands.squared_norm(tile)`` is Σφ².
    """
    products = block.zeros()
    squares = 0.0

    def add(sums: Array, at: slice, side: Any, part: slice, tile: Array) -> None:
        view = sums[..., at]
        view += operands.product(side, part, tile)

    for i, j in _tiles(block, operands.height, operands.width):
        weights = operands.weights(i, j)
        mirrored = block.symmetric and i != j
        for w, tile in weights.items():
            add(products.rows[w], i, operands.right[w], j, tile)
            if mirrored:
                add(products.rows[w], j, operands.right[w], i, tile.T)
            elif w in operands.left:
                add(products.columns[w], j, operands.left[w], i, tile.T)
        if block.squares:
            squares += operands.squared_norm(weights["phi"]) * (2.0 if mirrored else 1.0)
    products.squares = squares
    return products


def _tiles(block: Job, height: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the tiles; those of a symmetric block are squares on its diagonal
    and all right of them.
    """
    for i in cuts(len(block.x), height):
        if block.symmetric:
            yield i, i
        for j in cuts(len(block.across), width, start=i.stop if block.symmetric else 0):
            yield i, j


class _Scratch(threading.local):
    """Memory for the tiles of one block at a time, kept by each thread.

    New arrays of this size for every block would be taken from and returned to the system
    each time.
    """

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)

    def arrays(self, dtype: Any, *sizes: int) -> list[Array]:
        """Flat arrays of these sizes, which the thread's next block overwrites."""
        needed = sum(sizes) * np.dtype(dtype).itemsize
        if needed > len(self.memory):
            self.memory = np.empty(needed, np.uint8)
        memory = self.memory[:needed].view(dtype)
        return [
            memory[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)
        ]


_scratch = _Scratch()
_Side = tuple[Array, Any]


def _side(side: Array, dtype: Any) -> _Side:
    """A right-hand side in the working precision; in float32 its columns are divided by a
    scale, so that they fit.
    """
    if dtype == np.float64:
        return side, 1.0
    largest = np.abs(side).max(axis=0, initial=0.0)
    scale = np.where(largest > 0.0, largest, 1.0)
    return (side / scale).astype(np.float32), np.asarray(scale)[..., None]


class Operands:
    """A block's operands in the working precision, prepared once for all tiles."""

    def __init__(self, block: Job, dtype: Any) -> None:
        self.block = block
        self.across = block.across
        self.by_differences = block.x.by_differences or self.across.by_differences
        single = dtype == np.float32
        self.x = block.x.single[0] if single else block.x.left
        self.y = self.across.single[1] if single else self.across.right
        self.right, self.left = (
            {w: _side(b, dtype) for w, b in sides.items()}
            for sides in (block.right, block.left)
        )
        columns = max(math.prod(side.shape[1:]) for side in block.sides)
        self.height, self.width = self.tile_sizes(dtype, columns)
        size = self.height * self.width
        self.tile, self.out, self.tiles = _scratch.arrays(
            dtype, size, columns * self.width, len(block.right) * size
        )

    def tile_sizes(self, dtype: Any, columns: int) -> tuple[int, int]:
        """Rows and columns of a tile."""
        if self.block.kernel.unit_rate is not None and columns >= MANY_COLUMNS:
            # Strips: adding up the products of square tiles would cost noticeable time. Kernels
            # other than the Gaussian need several tiles at once, which are kept small.
            return TILE, max(TILE, len(self.across))
        return TILE, TILE if dtype == np.float64 else 2 * TILE

    def argument(self, i: slice, j: slice) -> Array:
        """One tile of q r² (or x·y)."""
        height = i.stop - i.start
        width = j.stop - j.start
        tile = self.tile[: height * width].reshape(height, width)
        if not self.by_differences:
            return np.matmul(self.x[i], self.y[:, j], out=tile)
        cdist(self.block.x.rows[i], self.across.rows[j], "sqeuclidean", out=tile)
        tile *= length_unit(self.block.kernel)[1]
        return tile

    def values(self, argument: Array) -> dict[Weight, Array]:
        """The tile of every weight that is asked for, from the tile of q r², which may be
        overwritten.
        """
        kernel = self.block.kernel
        which = tuple(self.block.right)
        if kernel.unit_rate is not None:
            # φ' and r²φ'' are multiples of φ and of r²φ here, and callers ask for φ alone.
            return {"phi": np.exp(argument, out=argument)}
        if kernel.variable == "r2":
            np.maximum(argument, 0.0, out=argument)
        return dict(zip(which, kernel.weights(argument, which), strict=True))

    def weights(self, i: slice, j: slice) -> dict[Weight, Array]:
        """One tile of every weight that is asked for; pairs that are left out are 0."""
        weights = self.values(self.argument(i, j))
        for weight in weights.values():
            self.drop_diagonal(weight, i, j, 0.0)
        return weights

    def drop_diagonal(self, tile: Array, i: slice, j: slice, value: float) -> None:
        """Give the pairs that are left out this value."""
        if self.block.without_diagonal and j.start <= i.start < j.stop:
            np.fill_diagonal(tile[:, i.start - j.start :], value)

    def product(self, side: _Side, part: slice, tile: Array) -> Array:
        """(tile @ side[part])ᵀ, as (right-hand sides × rows) @ tile: the shape at which BLAS
        is fastest.
        """
        columns = side[0][part].T
        out = self.out[: columns.size // columns.shape[-1] * len(tile)].reshape(
            *columns.shape[:-1], len(tile)
        )
        return np.matmul(columns, tile.T, out=out)

    def products(self) -> Products:
        """The products of the block, with columns still divided by their scale."""
        return add_up_tiles(self.block, self)

    def squared_norm(self, tile: Array) -> float:
        """The sum of squares of a tile."""
        flat = tile.ravel()
        return float(flat @ flat)


class _FusedOperands(Operands):
    """The same with compiled passes: products with vectors in one pass over each tile,
    others by BLAS.
    """

    def __init__(self, block: Job, dtype: Any) -> None:
        super().__init__(block, dtype)
        self.compiled = import_module("relfit.compute.numba_tiles")
        self.terms = self.compiled.terms_of(block.kernel, dtype)

    def values(self, argument: Array) -> dict[Weight, Array]:
        if self.block.kernel.unit_rate is not None:
            self.compiled.exponentials(argument)
            return {"phi": argument}
        which = tuple(self.block.right)
        if self.terms is None or not (
            which == ("phi",) or (len(which) == 3 and self.block.kernel.smooth)
        ):
            return super().values(argument)
        out = self.tiles.reshape(len(which), -1)[:, : argument.size]
        tiles = [*out, None, None][:3]
        for number, term in enumerate(self.terms):
            self.compiled.tile_values(argument.reshape(-1), term, number > 0, *tiles)
        return dict(zip(which, out.reshape(len(which), *argument.shape), strict=True))

    def products(self) -> Products:
        block = self.block
        if list(block.right) != ["phi"] or any(side.ndim > 1 for side in block.sides):
            return super().products()
        products = block.zeros()
        right = self.right["phi"][0]
        rows = products.rows["phi"]
        symmetric = block.symmetric
        gaussian = block.kernel.unit_rate is not None
        if symmetric:
            left = right
            columns = rows
        elif block.left:
            left = self.left["phi"][0]
            columns = products.columns["phi"]
        else:
            left = np.zeros(len(block.x), right.dtype)
            columns = np.zeros(len(block.across))
        for i, j in _tiles(block, self.height, self.width):
            tile = self.argument(i, j)
            if not gaussian:
                tile = self.values(tile)["phi"]
            upper = symmetric and i == j
            if not upper:
                self.drop_diagonal(tile, i, j, -math.inf if gaussian else 0.0)
            products.squares += self.compiled.tile_sums(
                tile, None if gaussian else True, right[j], left[i], rows[i], columns[j], upper
            )
        if not block.squares:
            products.squares = 0.0
        elif symmetric:
            products.squares *= 2.0
        return products


def fits_single(block: Job, length: float | None = None) -> bool:
    """True if float32 tiles keep enough digits: distances come from a product and are not
    too long for the kernel.

    `length` is that of the kernel, unless the points are prepared for another one.
    """
    kernel = block.kernel
    if kernel.variable == "dot" or block.x.by_differences or block.across.by_differences:
        return False
    length = kernel.length if length is None else length
    if kernel.unit_rate is None and not SINGLE_LENGTHS[0] < length < SINGLE_LENGTHS[1]:
        return False
    unit, rate = length_unit(kernel)
    # The last row of the prepared columns is q‖x‖².
    norm = max(
        float(np.abs(points.right[-1]).max(initial=0.0)) for points in (block.x, block.across)
    )
    ratio = (
        LARGEST_SINGLE_RATIO
        if all((side == 1.0).all() for side in block.sides)
        else LARGEST_WITH_SIDES
    )
    return norm <= ratio * abs(rate) * (length / unit) ** 2


@dataclass(frozen=True)
class LookupBackend(NumpyBackend):
    """Products with blocks of a given kernel matrix, which are looked up instead of
    computed.
    """

    def points(self, kernel: Kernel, rows: Array) -> Points:
        return Points(rows, rows, rows.T, by_differences=False)

    def block_sums(self, block: Job) -> Products:
        kernel: Any = block.kernel
        return block.products(kernel.block(block.x.rows, block.across.rows))


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


@dataclass
class SharedSums:
    """Sums over kernel matrices for estimates that differ in their kernel only.

    The estimates are made one after another and ask for the same sums in the same order. The
    first computes and keeps those of all `kernels`.
    """

    kernels: tuple[Kernel, ...]
    kept: dict[Kernel, deque[list[Any]]] = field(default_factory=dict)

    def sums(self, reduction: Any, compute: Callable[[Any], Sequence[Any]]) -> list[Any]:
        """The sums of the reduction; `compute` makes those of a reduction with any kernel."""
        waiting = self.kept.setdefault(reduction.kernel, deque())
        if not waiting:
            every = compute(replace(reduction, kernel=Together(self.kernels)))
            for k, kernel in enumerate(self.kernels):
                each = [sums.of_kernel(k) for sums in every]
                self.kept.setdefault(kernel, deque()).append(each)
        return waiting.popleft()


@dataclass(frozen=True)
class NearbyBackend(NumpyBackend):
    """Computes the distances of a block once for all kernels of a `Together`.

    In single precision, blocks that would lose too many digits are in double precision.
    """

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """Whole matrices of up to 2048 rows: there are several of them, and each block has a
        price of its own.
        """
        return longest if longest <= WHOLE else super().block_rows(longest, sides, memory)

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
        return _SharedOperands(block, np.float32 if single else np.float64, kernels)


def _kernels(kernel: Kernel) -> tuple[Kernel, ...]:
    assert isinstance(kernel, Together)  # noqa: S101  (no other kernel comes with this backend)
    return kernel.kernels


class _SharedOperands(Operands):
    """A tile of every weight of every kernel from one tile of distances."""

    def __init__(self, block: Job, dtype: Any, kernels: Sequence[Kernel]) -> None:
        self.kernels = kernels
        names: Any = block.right
        self.which = tuple(dict.fromkeys(name for _, name in names))
        self.squares = np.zeros(len(kernels))
        super().__init__(block, dtype)

    def tile_sizes(self, dtype: Any, columns: int) -> tuple[int, int]:
        height, width = SHARED_TILE
        return height, min(width, max(len(self.across), height))

    def products(self) -> Products:
        """The products with every kernel, and the squares of each."""
        block = replace(self.block, squares=False)
        every: Any = add_up_tiles(block, self)
        every.squares = self.squares
        return every  # type: ignore[no-any-return]

    def weights(self, i: slice, j: slice) -> Any:
        weights: Any = super().weights(i, j)
        if self.block.squares:
            twice = 2.0 if self.block.symmetric and i != j else 1.0
            for k in range(len(self.kernels)):
                self.squares[k] += twice * self.squared_norm(weights[k, "phi"])
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
        if len(self.kernels) == 2 and longest.length == 4.0 * self.kernels[1].length:
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
