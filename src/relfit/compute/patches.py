"""Kernel matrices cut into patches: the work that is handed to another process or noted in a checkpoint.

A patch is the part of one kernel matrix between some rows of two samples, large enough to be worth a journey (about a
second or more of one core). It reduces to a few numbers for each of its rows. Patches are cut from the sizes alone and
added up in their order, wherever they were computed, so that the answer is the same bits for any number of workers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from relfit.compute.backend import Backend
from relfit.compute.rows import LazyRows
from relfit.compute.tiles import Job, Products, Runtime, stream
from relfit.kernels.base import Kernel
from relfit.util.arrays import Array, host
from relfit.util.errors import InputError

# A thousand million pairs: one to ten seconds of one core. A whole number of blocks, so that no edges are wasted.
PATCH_ROWS, BLOCK_ROWS = 18 * 1792, 1792
# Numbers that go with each pair, beyond which patches are made smaller.
EASY = 256
# Prepared parts that are kept: all of them where the rows are in memory anyway, two where they are read from files.
KEPT, KEPT_OF_FILES = 64, 2


@dataclass(frozen=True)
class Patch:
    """The kernel values between the rows i of sample x and the rows j of sample y, as (first, last + 1).

    Of a sample with itself (x = y) every pair is evaluated once and counts for both its rows.
    """

    x: int
    y: int
    i: tuple[int, int]
    j: tuple[int, int]

    @property
    def symmetric(self) -> bool:
        """Whether the patch lies on the diagonal of the kernel matrix of one sample."""
        return self.x == self.y and self.i == self.j

    @property
    def pairs(self) -> int:
        """The number of kernel values to evaluate."""
        height, width = self.i[1] - self.i[0], self.j[1] - self.j[0]
        return height * (height - 1) // 2 if self.symmetric else height * width


@dataclass(frozen=True)
class Sums:
    """What a patch or a whole matrix reduces to: one number or l of them for each row, the same for columns, Σk²."""

    rows: Array
    columns: Array | None = None
    squares: float = 0.0

    def on_host(self) -> Sums:
        """The same as NumPy arrays."""
        return Sums(host(self.rows), None if self.columns is None else host(self.columns), self.squares)


class Measure(Protocol):
    """What is computed on every patch: a picklable value. `sources` are arrays, or rows that stay in their files."""

    @property
    def passes(self) -> int:
        """How often the kernel is evaluated for every pair."""

    def key(self) -> str:
        """All that decides the sums besides the sources, in words that are the same in every process."""

    def needs(self, patch: Patch) -> tuple[int, ...]:
        """Which sources a patch is made from."""

    def width(self, sources: Sequence[Any]) -> int:
        """How many numbers go with each pair of rows."""

    def side(self, sources: Sequence[Any], which: int, rows: slice, backend: Backend) -> Any:
        """All that belongs to these rows of one sample, prepared once for every patch they occur in."""

    def jobs(self, x: Any, y: Any, patch: Patch) -> list[Job]:
        """The products wanted between two prepared sides; y is x for a symmetric patch."""

    def sums(self, x: Any, y: Any, products: Sequence[Products]) -> Sums:
        """What these products come to."""


@dataclass(frozen=True)
class Work:
    """One pass: what is measured, on which sources, on which patches of which kernel matrices."""

    measure: Measure
    sources: tuple[Any, ...]
    patches: tuple[Patch, ...]

    @property
    def pairs(self) -> int:
        """The number of kernel values to evaluate."""
        return self.measure.passes * sum(patch.pairs for patch in self.patches)


class Crew(Protocol):
    """Workers elsewhere that compute patches."""

    def scale(self, backend: Backend) -> int:
        """How many times as long the sides of their patches are with this backend: 1 for cores, more for devices."""

    def sums(self, work: Work, runtime: Runtime) -> Generator[Sums]:
        """The sums of every patch in turn; progress is reported by the caller."""


class Resumed(Protocol):
    """The patches of a work that are done."""

    @property
    def done(self) -> frozenset[int]:
        """The numbers of the finished patches."""

    def get(self, number: int) -> Sums:
        """What a finished patch came to."""

    def put(self, number: int, sums: Sums) -> None:
        """Note a patch, on disk when this returns."""


class Notebook(Protocol):
    """Where finished patches are noted."""

    def resume(self, work: Work, runtime: Runtime) -> Resumed:
        """What is there of this work already; a refusal where other work is."""


def matrix_sums(
    measure: Measure, sources: Sequence[Any], matrices: Sequence[tuple[int, int]], runtime: Runtime
) -> list[Sums]:
    """The sums of whole kernel matrices, each of the rows of two of the samples or of one with itself.

    Arrays are where the backend computes if a matrix is a single patch, on the host otherwise.
    """
    lengths = {k: len(sources[k]) for pair in matrices for k in pair}
    scale = 1 if runtime.crew is None else runtime.crew.scale(runtime.backend)
    size = patch_rows(measure.width(sources), runtime.backend, runtime.patch_rows, scale)
    cut = [(k, patch) for k, (x, y) in enumerate(matrices) for patch in _patches(x, y, lengths, size)]
    work = Work(measure, tuple(sources), tuple(patch for _, patch in cut))
    found: list[Sums | None] = [None] * len(matrices)
    for (k, patch), sums in zip(cut, _computed(work, runtime), strict=True):
        found[k] = _added(found[k], patch, sums, (lengths[patch.x], lengths[patch.y]))
    return [sums for sums in found if sums is not None]


def patch_rows(width: int, backend: Backend, most: int | None = None, scale: int = 1) -> int:
    """Rows and columns of a patch, for so many numbers to each pair.

    A backend without threads, a device, takes whole matrices: it is not shared.
    """
    if not backend.threads:
        return 2**62
    rows = math.ceil(PATCH_ROWS / math.sqrt(max(1.0, width / EASY)) / BLOCK_ROWS) * BLOCK_ROWS
    rows *= scale
    return rows if most is None else max(1, min(rows, most))


def _patches(x: int, y: int, lengths: dict[int, int], size: int) -> list[Patch]:
    first, second = _cuts(lengths[x], size), _cuts(lengths[y], size)
    if x == y:
        return [Patch(x, y, i, j) for a, i in enumerate(first) for j in first[a:]]
    return [Patch(x, y, i, j) for i in first for j in second]


def _cuts(n: int, size: int) -> list[tuple[int, int]]:
    return [(a, min(a + size, n)) for a in range(0, n, size)]


def _added(total: Sums | None, patch: Patch, sums: Sums, shape: tuple[int, int]) -> Sums:
    """The sums of a matrix with one more patch."""
    if total is None:
        if (patch.i, patch.j) == ((0, shape[0]), (0, shape[1])):
            return sums
        total = _zeros(patch, sums, shape)
    i, j = slice(*patch.i), slice(*patch.j)
    total.rows[i] += host(sums.rows)
    if sums.columns is not None:
        target = total.rows if patch.x == patch.y else total.columns
        assert target is not None  # noqa: S101  (a cross matrix has columns in every patch)
        target[j] += host(sums.columns)
    twice = patch.x == patch.y and not patch.symmetric
    return replace(total, squares=total.squares + (2.0 if twice else 1.0) * sums.squares)


def _zeros(patch: Patch, sums: Sums, shape: tuple[int, int]) -> Sums:
    more = tuple(sums.rows.shape[1:])
    return Sums(np.zeros((shape[0], *more)), None if patch.x == patch.y else np.zeros((shape[1], *more)))


def _computed(work: Work, runtime: Runtime) -> Iterator[Sums]:
    """The sums of every patch in turn: those noted, and the others computed, and noted."""
    noted: Resumed | None = None if runtime.notebook is None else runtime.notebook.resume(work, runtime)
    done = frozenset[int]() if noted is None else noted.done
    missing = replace(work, patches=tuple(p for k, p in enumerate(work.patches) if k not in done))
    runtime = _from(runtime, work.pairs - missing.pairs, work.pairs)
    # Closed at once when something goes wrong, so that nobody works on.
    with closing((sums_here if runtime.crew is None else runtime.crew.sums)(missing, runtime)) as fresh:
        for k in range(len(work.patches)):
            if noted is not None and k in done:
                yield noted.get(k)
                continue
            sums = next(fresh)
            if noted is not None:
                noted.put(k, sums.on_host())
            yield sums


def _from(runtime: Runtime, done: int, total: int) -> Runtime:
    """The runtime with its progress counted from what is done already."""
    report = runtime.progress
    if report is None or not done:
        return runtime
    report(done, total)
    return replace(runtime, progress=lambda more, _: report(done + more, total))


def sums_here(work: Work, runtime: Runtime) -> Generator[Sums]:
    """The sums of every patch in turn, computed in this process."""
    measure, sources = work.measure, work.sources
    in_memory = not any(isinstance(source, LazyRows) for source in sources)

    @lru_cache(KEPT if in_memory else KEPT_OF_FILES)
    def side(which: int, rows: tuple[int, int]) -> Any:
        return measure.side(sources, which, slice(*rows), runtime.backend)

    if in_memory:
        yield from _streamed(work, runtime, side)
        return
    done = 0
    for patch in work.patches:
        # One after the other: blocks of the next ones would hold their rows already.
        one = replace(work, patches=(patch,))
        yield from _streamed(one, _from(runtime, done, work.pairs), side, work.pairs)
        done += one.pairs


def _streamed(
    work: Work, runtime: Runtime, side: Callable[[int, tuple[int, int]], Any], pairs: int | None = None
) -> Iterator[Sums]:
    """The sums of every patch; `pairs`, if there are more than these patches have, decide whether threads pay."""
    measure = work.measure
    started: deque[tuple[Any, Any, int]] = deque()

    def jobs() -> Iterable[Job]:
        for patch in work.patches:
            x = side(patch.x, patch.i)
            y = x if patch.symmetric else side(patch.y, patch.j)
            wanted = measure.jobs(x, y, patch)
            started.append((x, y, len(wanted)))
            yield from wanted

    with closing(stream(jobs(), runtime, work.pairs if pairs is None else pairs)) as products:
        for _ in work.patches:
            first = next(products)
            x, y, count = started.popleft()
            yield measure.sums(x, y, [first, *(next(products) for _ in range(count - 1))])


def described(kernel: Kernel, centre: Array | float) -> str:
    """A kernel and the point its rows are shifted by, for `Measure.key`."""
    if not kernel.writable:
        raise InputError(
            f"checkpoint: expected a kernel that can be told from others by its numbers, got {kernel.describe()}; "
            "functions of your own may change between two runs"
        )
    return f"{kernel!r} {np.asarray(centre, dtype='<f8').tobytes().hex()}"


# --------------------
# What happens where a worker is: the backend it has, and the work on one patch.


def patch_sums(measure: Measure, sources: Sequence[Any], patch: Patch, backend: Backend, memory: int) -> Sums:
    """One patch, on one core of this machine or on its device."""
    work = Work(measure, tuple(sources), (patch,))
    return next(sums_here(work, Runtime(backend, memory=memory, threads=1))).on_host()


def sources_for(work: Work, patch: Patch, sources: Sequence[Any]) -> list[Any]:
    """The sources that a patch needs, in their places; None in the others'."""
    needed = work.measure.needs(patch)
    return [source if k in needed else None for k, source in enumerate(sources)]
