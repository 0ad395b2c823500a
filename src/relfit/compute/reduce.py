"""Sums over kernel matrices, without ever holding a matrix.

A `Reduction` says what is summed: the rows of k for MMD, those of every Stein kernel for
KSD. `matrix_sums` computes it for whole kernel matrices:

1. Every matrix is cut into *patches*, each the part between some rows of two samples. A patch
   is large enough (about a second of one core or more) to be sent to another process, and its
   sums are small enough to be kept in a checkpoint.
2. The reduction *prepares* the rows of both sides of a patch, once for all patches they occur
   in, and *combines* them: it asks for products of the kernel matrix between them with
   right-hand sides, mostly for a single `Job`.
3. The threads compute a patch in *blocks*, and those of all patches share one queue. The
   backend works through a block in *tiles* that fit into the cache.
4. The products of blocks are added up, the reduction *finishes* them into the sums of the
   patch, and the sums of all patches are added up to those of the matrix.

Patches and blocks are cut by the sizes, the byte budget and the backend alone, and are added
up in their order wherever they were computed, so that the answer has the same bits for any
number of workers.

A `Runtime` says where and how this is done. `chosen_backend` chooses its backend: by name,
or by where the data live, what is installed and how much there is to compute.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
import threadpoolctl

from relfit.compute.backend import (
    BLOCKS_IN_FLIGHT,
    Backend,
    Job,
    NumbaBackend,
    NumpyBackend,
    Precision,
    Products,
    SharedSums,
    numba_problem,
)
from relfit.compute.checkpoint import Checkpoint
from relfit.compute.memory import opened
from relfit.compute.schedulers import Scheduler, Task, in_order
from relfit.kernels.base import Kernel
from relfit.util.arrays import Array, cuts, host, parts
from relfit.util.errors import BackendUnavailable, InputError
from relfit.util.libraries import Shared, has_cuda, usable_cores

T = TypeVar("T")
# Fewer pairs than this take milliseconds, less than it takes to start threads.
SERIAL_PAIRS = 2_000_000

# Pairs that take two cores about twenty seconds: longer than it takes to start torch and a
# device.
DEVICE_PAIRS = 20_000_000_000
# Pairs that take NumPy about as long as it takes to load Numba and its compiled tiles.
COMPILED_PAIRS = 500_000_000
DEFAULT_MEMORY = 256 * 2**20
# A thousand million pairs: one to ten seconds of one core. A whole number of blocks, so that no
# edges are wasted.
PATCH_ROWS = 18 * 1792
BLOCK_ROWS = 1792
# With more numbers than this to each pair of rows, patches are made smaller.
NARROW = 256
# Patches for devices are this much longer on both sides: devices are a thousand times as fast
# and would wait for work.
DEVICE_SCALE = 32
# Prepared sides that are kept, and where memory is bounded.
KEPT_SIDES = 64
KEPT_SIDES_OF_FEW = 2
# Numbers in a side of a patch on a device, and the bytes of the sides that are kept there,
# about 24 for each number.
DEVICE_NUMBERS = 2**28
DEVICE_BYTES = 2**34


@dataclass(frozen=True)
class Workload:
    """What there is to compute: the device that the data live on (None: the host), the pairs
    of rows, the kernel.

    `largest` gives the largest squared norm of the centred rows, which have `dim` columns;
    it is only called if the fused kernels might be used. `sides` is True if the kernel
    matrix is multiplied with more than ones, as for KSD, and `executor` if the user gave
    one.
    """

    device: str | None
    pairs: int
    kernel: Kernel
    largest: Callable[[], float]
    dim: int = 1
    sides: bool = False
    executor: bool = False


def chosen_backend(
    name: str, precision: str, workload: Workload
) -> tuple[Backend, tuple[str, ...]]:
    """The backend for this workload, and notes about the choice for the reader.

    "numpy" and "numba" compute on the host, "torch" where the data live, "triton" on a CUDA
    device. "auto" stays where the data live, unless they are on the host, there is a CUDA
    device, and enough to compute to make up for the transfer. On the host it uses Numba if
    that works and there is enough to compute to make up for loading it. What the fused
    kernels cannot compute to float32 accuracy is left to torch in float64.
    """
    if workload.executor and name in ("torch", "triton"):
        raise InputError(
            f"executor: cannot be combined with backend={name!r}, which has its own threads; "
            'leave it out or use backend="numpy"'
        )
    device = workload.device
    if name == "auto":
        worth_it = workload.pairs >= DEVICE_PAIRS and not workload.executor
        if device is None and worth_it and has_cuda():
            device = "cuda:0"
        if device is None:
            name = "numba" if fits_compiled(workload) else "numpy"
        elif precision == "single" and _has("triton") and has_cuda() and fits_fused(workload):
            return _tensor_backend(device, fused=True), ()
        else:
            name = "torch"
    if name == "numpy":
        return NumpyBackend(cast(Precision, precision)), ()
    if name == "numba":
        if numba_problem():
            raise BackendUnavailable(f'backend: {numba_problem()}, or use backend="numpy"')
        return NumbaBackend(cast(Precision, precision)), ()
    for library in ("torch", name):
        if not _has(library):
            raise BackendUnavailable(
                f"backend: {library} is not installed; install it with  pip install "
                f'{library}, or use backend="numpy"'
            )
    if name == "torch":
        return _tensor_backend(device or "cpu", cast(Precision, precision)), ()
    if os.environ.get("TRITON_INTERPRET") == "1":
        device = "cpu"  # Triton's interpreter: slow, for tests.
    elif not has_cuda():
        raise BackendUnavailable(
            'backend: "triton" needs a CUDA device and torch sees none; use "auto" or "torch"'
        )
    if fits_fused(workload):
        return _tensor_backend(device or "cuda:0", fused=True), ()
    note = (
        "the fused kernels do not fit this kernel, or rows so far apart in its units; "
        "torch computed in float64"
    )
    return _tensor_backend(device or "cuda:0"), (note,)


def _tensor_backend(
    device: str, precision: Precision = "double", *, fused: bool = False
) -> Backend:
    if fused:
        from relfit.compute.triton_backend import TritonBackend

        return TritonBackend(device)
    from relfit.compute.torch_backend import TorchBackend

    return TorchBackend(device, precision)


def fits_compiled(workload: Workload) -> bool:
    """True if Numba works and there is enough to compute to make up for loading it: never by
    what ran before.
    """
    return workload.pairs >= COMPILED_PAIRS and not numba_problem()


def fits_fused(workload: Workload) -> bool:
    """True if the fused kernels can compute this workload to float32 accuracy."""
    from relfit.compute.triton_backend import fits

    return fits(
        workload.kernel, ("phi",), workload.largest(), workload.dim, sides=workload.sides
    )


@cache
def _has(library: str) -> bool:
    return find_spec(library) is not None


@dataclass(frozen=True)
class LocalBackend(NumpyBackend):
    """The backend of the worker that computes: its CUDA device, where Triton's kernels fit
    if `fused`, or its host.

    On the host it is Numba if `compiled`, else NumPy.
    """

    fused: bool = False
    compiled: bool = False

    @property
    def name(self) -> str:
        return self._on_host().name

    def _on_host(self) -> Backend:
        return (NumbaBackend if self.compiled else NumpyBackend)(self.precision)

    def here(self) -> Backend:
        if not has_cuda():
            return self._on_host()
        return _tensor_backend("cuda:0", self.precision, fused=self.fused and _has("triton"))


@dataclass(frozen=True)
class Runtime:
    """Where and how sums are computed; nothing here changes the answer by more than rounding.

    Blocks of at most `memory` bytes in all are computed by the `backend`, in our own
    `threads` or on the caller's `executor`, in this process. A `scheduler` sends patches, of
    at most `patch_rows` rows, to workers elsewhere, and a `checkpoint` records the finished
    ones. `progress` is called with the numbers of finished pairs and of all pairs. `shared`
    is set where several kernels are summed together.
    """

    backend: Backend = field(default_factory=NumpyBackend)
    executor: Executor | None = None
    memory: int = DEFAULT_MEMORY
    progress: Callable[[int, int], None] | None = None
    threads: int = field(default_factory=usable_cores)
    scheduler: Scheduler | None = None
    checkpoint: Checkpoint | None = None
    patch_rows: int | None = None
    shared: SharedSums | None = None

    def in_this_process(self) -> Runtime:
        """The same backend for a small estimate, which needs no workers and keeps nothing."""
        return replace(self, executor=None, scheduler=None, checkpoint=None, progress=None)


@dataclass(frozen=True)
class Patch:
    """The kernel values between the rows i of sample x and the rows j of sample y, as
    (first, last + 1).

    For a sample with itself (x = y) every pair is evaluated once and counts for both its rows.
    """

    x: int
    y: int
    i: tuple[int, int]
    j: tuple[int, int]

    @property
    def symmetric(self) -> bool:
        """True if the patch lies on the diagonal of the kernel matrix of one sample."""
        return self.x == self.y and self.i == self.j

    @property
    def pairs(self) -> int:
        height = self.i[1] - self.i[0]
        width = self.j[1] - self.j[0]
        return height * (height - 1) // 2 if self.symmetric else height * width


@dataclass(frozen=True)
class Sums:
    """The sums of a patch or of a whole matrix: one number or l of them for each row, the
    same for columns, and Σk².

    Several kernels have one after another along the second axis.
    """

    rows: Array
    columns: Array | None = None
    squares: float = 0.0

    def on_host(self) -> Sums:
        return Sums(
            host(self.rows),
            None if self.columns is None else host(self.columns),
            self.squares if isinstance(self.squares, np.ndarray) else float(self.squares),
        )

    def of_kernel(self, k: int) -> Sums:
        """Those of one of several kernels."""
        rows = np.ascontiguousarray(self.rows[:, k])
        columns = None if self.columns is None else np.ascontiguousarray(self.columns[:, k])
        squares = np.asarray(self.squares)
        return Sums(rows, columns, float(squares[k] if squares.ndim else squares))


class Reduction(Protocol):
    """What is computed on every patch: a picklable value. `sources` are arrays."""

    @property
    def passes(self) -> int:
        """The number of times that the kernel is evaluated for every pair."""

    def key(self) -> str:
        """Everything that decides the sums besides the sources, as text that is the same in
        every process.
        """

    def needs(self, patch: Patch) -> tuple[int, ...]:
        """The numbers of the sources that a patch is computed from."""

    def width(self, sources: Sequence[Any]) -> int:
        """The number of numbers that belong to each pair of rows."""

    def prepare(self, sources: Sequence[Any], which: int, rows: slice, backend: Backend) -> Any:
        """One side: everything that belongs to these rows of one sample, for every patch
        they occur in.
        """

    def combine(self, x: Any, y: Any, patch: Patch) -> list[Job]:
        """The products needed between two prepared sides; y is x for a symmetric patch."""

    def finish(self, x: Any, y: Any, products: Sequence[Products]) -> Sums:
        """The sums of the patch, from these products."""


@dataclass(frozen=True)
class Work:
    """A reduction, the sources it reads, and the patches of one or more kernel matrices to
    compute it on.
    """

    reduction: Reduction
    sources: tuple[Any, ...]
    patches: tuple[Patch, ...]

    @property
    def pairs(self) -> int:
        return self.reduction.passes * sum(patch.pairs for patch in self.patches)

    def digest(self, runtime: Runtime) -> str:
        """A hash of everything that decides the sums, to the last bit."""
        digest = hashlib.sha256()
        for part in (
            self.reduction.key(),
            runtime.backend.name,
            runtime.memory,
            self.patches,
            np.__version__,
        ):
            digest.update(f"{part!r}\n".encode())
        for source in self.sources:
            digest.update(f"{source.shape}\n".encode())
            for rows in parts(source.shape):
                digest.update(np.ascontiguousarray(source[rows], dtype="<f8").data)
        return digest.hexdigest()


def kernel_key(kernel: Kernel, centre: Array | float) -> str:
    """A kernel and the point that rows are shifted by, as text for `Reduction.key`."""
    if not kernel.writable:
        raise InputError(
            f"checkpoint: expected a kernel that is identified by its numbers, got "
            f"{kernel.describe()}; functions of "
            "your own may change between two runs"
        )
    return f"{kernel!r} {np.asarray(centre, dtype='<f8').tobytes().hex()}"


def matrix_sums(
    reduction: Reduction,
    sources: Sequence[Any],
    matrices: Sequence[tuple[int, int]],
    runtime: Runtime,
) -> list[Sums]:
    """The sums of whole kernel matrices, each between two of the samples, or of one sample
    with itself.

    Arrays are where the backend computes if every matrix is a single patch, on the host
    otherwise.
    """
    if runtime.shared is not None:
        alone = replace(runtime, shared=None)
        return runtime.shared.sums(
            reduction, lambda every: matrix_sums(every, sources, matrices, alone)
        )
    size = patch_rows(reduction.width(sources), runtime)
    shapes = [(len(sources[x]), len(sources[y])) for x, y in matrices]
    cut = [
        (k, patch)
        for k, (x, y) in enumerate(matrices)
        for patch in cut_matrix(x, y, shapes[k], size)
    ]
    work = Work(reduction, tuple(sources), tuple(patch for _, patch in cut))
    totals: list[Sums | None] = [None] * len(matrices)
    for (k, patch), sums in zip(cut, _patch_sums(work, runtime), strict=True):
        totals[k] = _added(totals[k], patch, sums, shapes[k])
    found = [total for total in totals if total is not None]
    return found if len(cut) == len(matrices) else [total.on_host() for total in found]


def patch_rows(width: int, runtime: Runtime) -> int:
    """Rows and columns of a patch, for this many numbers to each pair."""
    if not runtime.backend.threads:
        # A device is not shared: it gets whole matrices, as far as they fit.
        return DEVICE_NUMBERS // width
    rows = math.ceil(PATCH_ROWS / math.sqrt(max(1.0, width / NARROW)) / BLOCK_ROWS) * BLOCK_ROWS
    if (
        isinstance(runtime.backend, LocalBackend)
        and runtime.scheduler is not None
        and runtime.scheduler.has_devices()
    ):
        rows *= DEVICE_SCALE
    return rows if runtime.patch_rows is None else max(1, min(rows, runtime.patch_rows))


def cut_matrix(x: int, y: int, shape: tuple[int, int], size: int) -> list[Patch]:
    """The patches of the kernel matrix of samples x and y; those on and above the diagonal
    if x = y.
    """
    return [
        Patch(x, y, (i.start, i.stop), (j.start, j.stop))
        for i, j in _grid(shape, size, upper=x == y)
    ]


def _grid(shape: tuple[int, int], size: int, upper: bool) -> list[tuple[slice, slice]]:
    """Rows and columns of the parts of a matrix; only those on and above the diagonal if
    `upper`.
    """
    rows, columns = (list(cuts(length, size)) for length in shape)
    return [(i, j) for a, i in enumerate(rows) for j in columns[a if upper else 0 :]]


def _added(total: Sums | None, patch: Patch, sums: Sums, shape: tuple[int, int]) -> Sums:
    if total is None:
        if (patch.i, patch.j) == ((0, shape[0]), (0, shape[1])):
            return sums
        more = tuple(sums.rows.shape[1:])
        total = Sums(
            np.zeros((shape[0], *more)),
            None if patch.x == patch.y else np.zeros((shape[1], *more)),
        )
    total.rows[slice(*patch.i)] += host(sums.rows)
    if sums.columns is not None:
        target = total.rows if patch.x == patch.y else cast(Array, total.columns)
        target[slice(*patch.j)] += host(sums.columns)
    twice = patch.x == patch.y and not patch.symmetric
    return replace(total, squares=total.squares + (2.0 if twice else 1.0) * sums.squares)


@dataclass
class _Progress:
    report: Callable[[int, int], None] | None
    total: int
    done: int = 0

    def add(self, pairs: int) -> None:
        self.done += pairs
        if self.report is not None:
            self.report(self.done, self.total)


def _patch_sums(work: Work, runtime: Runtime) -> Iterator[Sums]:
    """The sums of every patch in turn: read from the checkpoint, or computed and recorded
    there.
    """
    progress = _Progress(runtime.progress, work.pairs)
    if runtime.checkpoint is None:
        yield from _computed_sums(work, runtime, progress)
        return
    finished = runtime.checkpoint.resume(work.digest(runtime), len(work.patches))
    missing = replace(
        work,
        patches=tuple(
            patch for k, patch in enumerate(work.patches) if k not in finished.numbers
        ),
    )
    if finished.numbers:
        progress.add(work.pairs - missing.pairs)
    # Closed at once on an error, so that no worker continues.
    with closing(_computed_sums(missing, runtime, progress)) as computed:
        for k in range(len(work.patches)):
            if k in finished.numbers:
                yield Sums(*finished.get(k))
                continue
            sums = next(computed)
            kept = sums.on_host()
            finished.put(k, kept.rows, kept.columns, kept.squares)
            yield sums


def _computed_sums(work: Work, runtime: Runtime, progress: _Progress) -> Generator[Sums]:
    """The sums of every patch in turn, computed in this process or by the scheduler's
    workers.
    """
    if runtime.scheduler is None:
        yield from _local_sums(work, runtime, progress)
        return
    reduction = work.reduction
    # Two prepared sides, each of about four numbers for every number of a row.
    row_bytes = 8.0 * 4.0 * reduction.width(work.sources)

    def task(patch: Patch) -> Task:
        needed = row_bytes * (patch.i[1] - patch.i[0] + patch.j[1] - patch.j[0])
        arguments = (reduction, patch, runtime.backend, runtime.memory)
        return Task(patch_sums, arguments, reads=reduction.needs(patch), memory=needed)

    with closing(
        runtime.scheduler.results([task(patch) for patch in work.patches], work.sources)
    ) as results:
        for patch, sums in zip(work.patches, results, strict=True):
            progress.add(reduction.passes * patch.pairs)
            yield sums


def patch_sums(
    sources: Sequence[Any], reduction: Reduction, patch: Patch, backend: Backend, memory: int
) -> Sums:
    """The sums of one patch, computed by a worker on one core of its machine or on its
    device.
    """
    if isinstance(backend, LocalBackend):
        backend = backend.here()
    work = Work(reduction, tuple(map(opened, sources)), (patch,))
    [sums] = _local_sums(
        work, Runtime(backend, memory=memory, threads=1), _Progress(None, work.pairs)
    )
    return sums.on_host()


def _local_sums(work: Work, runtime: Runtime, progress: _Progress) -> Generator[Sums]:
    reduction = work.reduction
    sources = work.sources
    bounded = runtime.patch_rows is not None
    kept = KEPT_SIDES_OF_FEW if bounded else KEPT_SIDES
    sides = {
        (which, rows): None
        for patch in work.patches
        for which, rows in ((patch.x, patch.i), (patch.y, patch.j))
    }
    if not runtime.backend.threads:
        largest = max(
            (stop - start) * sources[which].shape[1] for which, (start, stop) in sides
        )
        kept = min(kept, max(2, DEVICE_BYTES // (24 * largest)))

    @lru_cache(kept)
    def side(which: int, rows: tuple[int, int]) -> Any:
        return reduction.prepare(sources, which, slice(*rows), runtime.backend)

    def running(patch: Patch) -> _Running[Sums]:
        x = side(patch.x, patch.i)
        y = x if patch.symmetric else side(patch.y, patch.j)
        return _Running(
            reduction.combine(x, y, patch), partial(reduction.finish, x, y), runtime
        )

    if not runtime.backend.threads and len(sides) <= kept:
        # First, since a side's size is asked for, and a device answers only when it has no
        # other work.
        for each in sides:
            side(*each)
    # With bounded memory one patch at a time: blocks of later patches would hold their rows
    # already.
    together = [(patch,) for patch in work.patches] if bounded else [work.patches]
    with _block_executor(runtime, work.pairs) as executor:
        for patches in together:
            yield from _finished(map(running, patches), executor, runtime, progress)


def kernel_products(jobs: Sequence[Job], runtime: Runtime) -> list[Products]:
    """The products of every job, on the host.

    >>> from relfit.kernels.standard import Gaussian
    >>> kernel, runtime = Gaussian(1.0), Runtime()
    >>> x = runtime.backend.points(kernel, np.array([[0.0], [1.0]]))
    >>> kernel_products([Job(kernel, x, None, {"phi": np.ones(2)})], runtime)[0].rows[
    ...     "phi"
    ... ].round(4)
    array([0.6065, 0.6065])
    """
    pairs = sum(job.pairs for job in jobs)
    running = (_Running([job], lambda products: products[0], runtime) for job in jobs)
    with _block_executor(runtime, pairs) as executor:
        results = list(
            _finished(running, executor, runtime, _Progress(runtime.progress, pairs))
        )
    return [
        replace(products.map(host), squares=float(products.squares)) for products in results
    ]


@contextmanager
def _block_executor(runtime: Runtime, pairs: int) -> Iterator[Executor | None]:
    """The threads for blocks of this many pairs, with BLAS held at one thread."""
    threads = runtime.threads if runtime.backend.threads else 1
    pool = (
        local_executor(pairs, threads)
        if runtime.executor is None
        else nullcontext(runtime.executor)
    )
    with pool as executor, one_blas_thread:
        yield executor


_blas = cache(threadpoolctl.ThreadpoolController)


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    limit = _blas().limit(limits=1, user_api="blas")
    _let_go()
    try:
        yield
    finally:
        try:
            limit.restore_original_limits()
        except KeyboardInterrupt:  # Between two libraries.
            limit.restore_original_limits()
            raise
        finally:
            _let_go()


def _let_go() -> None:
    """Since threadpoolctl 3.8 only the thread that set a limit may lift it, but the last
    caller may be another one.
    """
    owner = getattr(threadpoolctl, "OpenBLASController", None)
    getattr(owner, "clear_controlling_thread", lambda: None)()


# Blocks use every core already, and BLAS's own threads keep spinning after each call.
one_blas_thread = Shared(_one_blas_thread)


class _Running(Generic[T]):
    """A patch whose blocks are being computed: its jobs where the backend computes, and
    their products so far.
    """

    def __init__(
        self, jobs: Sequence[Job], finish: Callable[[list[Products]], T], runtime: Runtime
    ) -> None:
        self.jobs = [_on_backend(job, runtime.backend) for job in jobs]
        self.finish = finish
        self.blocks = plan_blocks(self.jobs[0], runtime)
        self.products = [job.zeros() for job in self.jobs] if len(self.blocks) > 1 else []

    def add(self, i: slice, j: slice, products: list[Products]) -> None:
        """Add the products of a block, which are transposed, as the sums of them are."""
        if len(self.blocks) == 1:
            self.products = products
            return
        for job, total, part in zip(self.jobs, self.products, products, strict=True):
            for w, rows in part.rows.items():
                total.rows[w][..., i] += rows
            target = total.rows if job.symmetric else total.columns
            for w, columns in part.columns.items():
                target[w][..., j] += columns
            total.squares += part.squares * (2.0 if job.symmetric and i != j else 1.0)

    def result(self) -> T:
        """What `finish` makes of the products of the whole patch, (rows, right-hand sides)."""
        return self.finish(
            [
                each.map(lambda array: array if array.ndim == 1 else array.T)
                for each in self.products
            ]
        )


def _on_backend(job: Job, backend: Backend) -> Job:
    right = {w: backend.array(side) for w, side in job.right.items()}
    left = {w: backend.array(side) for w, side in job.left.items()}
    return replace(job, right=right, left=left)


def plan_blocks(job: Job, runtime: Runtime) -> list[tuple[slice, slice]]:
    """The blocks of a job, from its sizes, the byte budget and the backend: never from the
    number of workers.
    """
    sides = sum(math.prod(side.shape[1:]) for side in job.sides)
    size = runtime.backend.block_rows(max(len(job.x), len(job.across)), sides, runtime.memory)
    return _grid((len(job.x), len(job.across)), size, upper=job.symmetric)


def _finished(
    patches: Iterable[_Running[T]],
    executor: Executor | None,
    runtime: Runtime,
    progress: _Progress,
) -> Generator[T]:
    """The result of every patch in turn.

    Blocks of all patches share one queue, so that no thread waits between two of them. A
    patch is asked for only when threads are about to run out of blocks, so that few are held
    at a time.
    """
    backend = runtime.backend
    tasks = (
        (patch, i, j, [job.block(i, j) for job in patch.jobs])
        for patch in patches
        for i, j in patch.blocks
    )
    with closing(
        local_results(tasks, lambda task: (_products_of, backend, task[3]), executor)
    ) as computed:
        for (patch, i, j, blocks), products in computed:
            patch.add(i, j, products)
            progress.add(sum(block.pairs for block in blocks))
            if (i, j) == patch.blocks[-1]:
                yield patch.result()


def _products_of(backend: Backend, blocks: Sequence[Job]) -> list[Products]:
    return [backend.block_sums(block) for block in blocks]


def local_executor(pairs: int, threads: int) -> AbstractContextManager[Executor | None]:
    """Threads for work on this many pairs of rows; None if starting them would take longer
    than the work.
    """
    serial = threads == 1 or pairs < SERIAL_PAIRS
    return nullcontext() if serial else ThreadPoolExecutor(threads)


def local_results(
    tasks: Iterable[T], call: Callable[[T], tuple[Any, ...]], executor: Executor | None
) -> Generator[tuple[T, Any]]:
    """`in_order` on an executor in this process, or in this thread; `call(task)` is a
    function and its arguments.
    """
    if executor is not None:
        yield from in_order(
            tasks, lambda task: executor.submit(*call(task)), lambda: BLOCKS_IN_FLIGHT
        )
        return
    for task in tasks:
        function, *arguments = call(task)
        yield task, function(*arguments)
