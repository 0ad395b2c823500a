"""The plan of tiles and its reduction: every sum over a kernel matrix, without ever holding the matrix.

A `Job` asks for the products of one kernel matrix with right-hand sides. Jobs are cut into blocks by a
plan that depends on their sizes and the byte budget alone; blocks run on any `concurrent.futures`
executor and are combined in the plan's order, so the answer is the same bits for any number of workers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from relfit.compute.backend import Backend, Block, BlockSums, Points
from relfit.compute.numpy_backend import BLOCKS_IN_FLIGHT, NumpyBackend
from relfit.kernels.base import Kernel, Weight
from relfit.util.arrays import Array, host
from relfit.util.libraries import usable_cores

Progress = Callable[[int, int], None]

NUMPY = NumpyBackend()
DEFAULT_MEMORY = 256 * 2**20
# Below this many pairs the work takes milliseconds, and starting threads would cost more than it gains.
SERIAL_PAIRS = 2_000_000


@dataclass(frozen=True)
class Job:
    """Products of one kernel matrix: ``rows[W] = W(x, y) @ right[W]``, ``columns[W] = W(x, y)ᵀ @ left[W]``.

    With ``y=None`` the matrix is symmetric, its diagonal is left out and there are no columns.
    `diagonal=False` leaves out equal row numbers of a square cross matrix. `squares` asks for Σφ².
    """

    kernel: Kernel
    x: Points
    y: Points | None
    right: Mapping[Weight, Array]
    left: Mapping[Weight, Array] = field(default_factory=dict)
    diagonal: bool = True
    squares: bool = False

    @property
    def pairs(self) -> int:
        """The number of kernel values to evaluate."""
        n = len(self.x)
        return n * (n - 1) // 2 if self.y is None else n * len(self.y)


@dataclass
class Products:
    """What a job reduces to, in float64."""

    rows: dict[Weight, Array]
    columns: dict[Weight, Array]
    squares: float = 0.0


@dataclass(frozen=True)
class Runtime:
    """Where and how the work runs; nothing in here changes the answer beyond rounding.

    `executor` takes blocks, in this process; a `crew` takes patches (see `patches`) elsewhere, of at most `patch_rows`
    rows, and a `notebook` notes those that are done.
    """

    backend: Backend = field(default_factory=NumpyBackend)
    executor: Executor | None = None
    memory: int = DEFAULT_MEMORY
    progress: Progress | None = None
    threads: int = field(default_factory=lambda: usable_cores())
    crew: Any = None
    notebook: Any = None
    patch_rows: int | None = None


def run(jobs: Sequence[Job], runtime: Runtime) -> list[Products]:
    """The products of every job, on the host."""
    return [_on_host(products) for products in run_in_place(jobs, runtime)]


def run_in_place(jobs: Sequence[Job], runtime: Runtime) -> list[Products]:
    """The products of every job, in the backend's own arrays, where it computes."""
    return list(stream(jobs, runtime, sum(job.pairs for job in jobs)))


def stream(jobs: Iterable[Job], runtime: Runtime, pairs: int) -> Generator[Products]:
    """The products of every job in turn, where the backend computes; `pairs` is how many they have together.

    Blocks of all jobs share one queue, so no worker waits between jobs, and a job is asked for only when workers are
    about to run out of blocks, so that few are held at a time.
    """
    backend, done = runtime.backend, 0
    with _workers(runtime, pairs) as workers, one_blas_thread():
        for part, sums in _in_order(backend, _parts(jobs, runtime), workers):
            _combine(part, sums)
            done += part.pairs
            if runtime.progress is not None:
                runtime.progress(done, pairs)
            if part.last:
                yield _upright(part.into)


@dataclass(frozen=True)
class _Part:
    """A block's place: its job, where its sums go, its rows and columns, and whether it is the job's last."""

    job: Job
    into: Products
    i: slice
    j: slice
    last: bool

    @property
    def pairs(self) -> int:
        height, width = int(self.i.stop - self.i.start), int(self.j.stop - self.j.start)
        return height * (height - 1) // 2 if self.job.y is None and self.i == self.j else height * width


def _parts(jobs: Iterable[Job], runtime: Runtime) -> Iterator[_Part]:
    for given in jobs:
        job = _moved(given, runtime.backend)
        into, blocks = _empty(job), plan_blocks(job, runtime.memory, runtime.backend)
        for k, (i, j) in enumerate(blocks, 1):
            yield _Part(job, into, i, j, k == len(blocks))


def plan_blocks(job: Job, memory: int = DEFAULT_MEMORY, backend: Backend = NUMPY) -> list[tuple[slice, slice]]:
    """The blocks of a job, from its sizes, the byte budget and the backend: never from the number of workers."""
    sides = sum(math.prod(b.shape[1:]) for b in (*job.right.values(), *job.left.values()))
    size = backend.block_rows(max(len(job.x), 0 if job.y is None else len(job.y)), sides, memory)
    x = _cuts(len(job.x), size)
    if job.y is None:
        return [(i, j) for a, i in enumerate(x) for j in x[a:]]
    return [(i, j) for i in x for j in _cuts(len(job.y), size)]


def _cuts(n: int, size: int) -> list[slice]:
    return [slice(a, min(a + size, n)) for a in range(0, n, size)]


def _moved(job: Job, backend: Backend) -> Job:
    """The job with its right-hand sides where the backend computes."""
    right, left = ({w: backend.array(b) for w, b in sides.items()} for sides in (job.right, job.left))
    return replace(job, right=right, left=left)


def _empty(job: Job) -> Products:
    width = 0 if job.y is None else len(job.y)
    return Products(
        {w: _zeros(b, len(job.x)) for w, b in job.right.items()}, {w: _zeros(b, width) for w, b in job.left.items()}
    )


def _zeros(side: Any, length: int) -> Array:
    """Room for transposed products with a right-hand side, where that is."""
    shape = (*side.shape[1:], length)
    return np.zeros(shape) if isinstance(side, np.ndarray) else side.new_zeros(shape)


def _upright(sums: Products) -> Products:
    """Sums are gathered transposed, as blocks give them, and turned once at the end."""
    rows, columns = ({w: a if a.ndim == 1 else a.T for w, a in part.items()} for part in (sums.rows, sums.columns))
    return Products(rows, columns, sums.squares)


def _on_host(sums: Products) -> Products:
    return Products(
        {w: host(a) for w, a in sums.rows.items()}, {w: host(a) for w, a in sums.columns.items()}, sums.squares
    )


def _block(part: _Part) -> Block:
    job, i, j = part.job, part.i, part.j
    y = job.x if job.y is None else job.y
    own = job.y is None and i == j
    # Off the diagonal of a symmetric matrix, the transposed half is the column products.
    left = job.right if job.y is None and not own else job.left
    return Block(
        kernel=job.kernel,
        x=job.x[i],
        y=y[j],
        right={w: b[j] for w, b in job.right.items()},
        left={} if own else {w: b[i] for w, b in left.items()},
        symmetric=own,
        diagonal=(job.diagonal and job.y is not None) or i != j,
        squares=job.squares,
    )


def _combine(part: _Part, sums: BlockSums) -> None:
    job, into, i, j = part.job, part.into, part.i, part.j
    for w, rows in sums.rows.items():
        into.rows[w][..., i] += rows
    target = into.rows if job.y is None else into.columns
    for w, columns in sums.columns.items():
        target[w][..., j] += columns
    into.squares += sums.squares * (2.0 if job.y is None and i != j else 1.0)


def _in_order(backend: Backend, parts: Iterable[_Part], workers: Executor | None) -> Iterator[tuple[_Part, BlockSums]]:
    if workers is None:
        for part in parts:
            yield part, backend.block_sums(_block(part))
        return
    waiting: deque[tuple[_Part, Future[BlockSums]]] = deque()
    try:
        for part in parts:
            waiting.append((part, workers.submit(backend.block_sums, _block(part))))
            if len(waiting) >= BLOCKS_IN_FLIGHT:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        for _, future in waiting:
            future.cancel()


@contextmanager
def _workers(runtime: Runtime, pairs: int) -> Iterator[Executor | None]:
    if runtime.executor is not None:
        yield runtime.executor
    elif not runtime.backend.threads or pairs < SERIAL_PAIRS or runtime.threads == 1:
        yield None
    else:
        with ThreadPoolExecutor(runtime.threads) as threads:
            yield threads


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS at one thread: tiles use every core already, and BLAS's own threads go on spinning after each call."""
    with _blas().limit(limits=1, user_api="blas"):
        yield
