"""Which pairs of rows are used: all of them, or those of a cheaper design.

The rows of a cheaper design come a window at a time: memory is bounded, and every row is fetched once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from relfit.compute.reduce import DEFAULT_MEMORY, Runtime
from relfit.compute.schedulers import local_executor, local_results
from relfit.estimators.bands import STEP, Part
from relfit.estimators.base import Estimates, Estimator, PairDesign, PairSource
from relfit.stats.joint import Psi, centred, mixed, positive_part
from relfit.util.arrays import Array
from relfit.util.checks import check_choice, check_whole
from relfit.util.errors import InputError

T = TypeVar("T")

# A window's rows, for which scores are evaluated together, and the numbers they hold: 32 MB.
WINDOW_ROWS, WINDOW_NUMBERS = 16_384, 4_000_000
# Rows prepared for the kernel together, by one thread, and pairs evaluated at once: near the processor.
SLICE_ROWS, PAIR_CHUNK = 512, 16_384
FEWEST_SLICE = 32
# Threads that slices are made small enough for.
_THREADS = 4
# Bytes for each number of a window, which is fetched and put together in half of the memory, and of a slice.
_WINDOW_BYTES, _SLICE_BYTES = 64, 48
# Lags of the cyclic design by default: docs/estimators.md shows what more of them would gain.
DEFAULT_LAGS = 25
# A covariance of l models from fewer block values than this for each is mostly noise.
BLOCKS_PER_MODEL, FEWEST_BLOCKS = 5, 40
VARIANCES = ("auto", "projection", "corrected")


@dataclass(frozen=True)
class Complete(Estimator):
    """All pairs of rows.

    Args:
        variance: "projection" (first-order theory, conservative for models close to the data) or "corrected" (its
            second-order part counted once); "auto" is projection.
    """

    variance: str = "auto"

    name: ClassVar[str] = "complete"
    fewest_rows: ClassVar[int] = 20
    fewest_selection_rows: ClassVar[int] = 5
    numbers_kept: ClassVar[int] = 6

    def __post_init__(self) -> None:
        check_choice("variance", self.variance, VARIANCES)

    @property
    def corrected(self) -> bool:
        return self.variance == "corrected"


@dataclass(frozen=True)
class Linear(PairDesign):
    """The disjoint pairs (0,1), (2,3), … of rows: O(n) kernel evaluations.

    Args:
        shuffle: False takes the rows in the order given, not in random order.
    """

    shuffle: bool = field(default=True, kw_only=True)

    name: ClassVar[str] = "linear"
    fewest_rows: ClassVar[int] = 40
    fewest_selection_rows: ClassVar[int] = 10
    numbers_kept: ClassVar[int] = 2

    def fewest_bytes(self, rows: int, models: int, width: int) -> int:
        return 64 * pairs_at_once(width, 0) * width

    def estimate(self, source: PairSource, runtime: Runtime) -> Estimates:
        """``D = mean h`` over the M = ⌊n/2⌋ pairs and ``V = cov(h)/M``; an odd last row is left out."""
        pairs, size = source.rows // 2, pairs_at_once(source.width, runtime.memory)
        parts = []
        for start in range(0, pairs, size):
            first = 2 * np.arange(start, min(start + size, pairs))
            parts.append(source.pair_values(source.fetch(first), source.fetch(first + 1)))
            if runtime.progress is not None:
                runtime.progress(start + len(first), pairs)
        h = np.concatenate(parts)
        values = h.mean(axis=0)
        odd = ("linear estimator: one row has no partner and was not used",) if source.rows % 2 else ()
        return Estimates(values, Psi(h - values), notes=odd)


@dataclass(frozen=True)
class Block(PairDesign):
    """All pairs of rows within blocks.

    Args:
        blocks: the number of blocks; None is √n, but at least 40 and at least 5 for each model.
        shuffle: False takes the rows in the order given, not in random order.
    """

    blocks: int | None = None
    shuffle: bool = field(default=True, kw_only=True)

    name: ClassVar[str] = "block"
    fewest_rows: ClassVar[int] = 40
    fewest_selection_rows: ClassVar[int] = 10
    numbers_kept: ClassVar[int] = 4

    def __post_init__(self) -> None:
        if self.blocks is not None:
            check_whole("blocks", self.blocks, 1)

    def check_rows(self, rows: int, models: int, *, selection: bool) -> None:
        block_size(rows, models, self.blocks)
        if not selection:
            check_blocks(rows, models, self.blocks)

    def fewest_bytes(self, rows: int, models: int, width: int) -> int:
        return fewest_window_bytes(width, block_size(rows, models, self.blocks) - 1)

    def estimate(self, source: PairSource, runtime: Runtime) -> Estimates:
        n = source.rows
        size = block_size(n, source.models, self.blocks)
        unused = f"; {n % size} rows are left over and were not used" if n % size else ""
        estimates = block(replace(source, rows=n // size * size), size, runtime)
        return replace(estimates, notes=(f"block estimator: {n // size} blocks of {size} rows{unused}",))


@dataclass(frozen=True)
class Incomplete(PairDesign):
    """Each row with some others: far cheaper than all pairs, and nearly as powerful.

    Args:
        pairs: the number of pairs of rows, rounded to whole pairs per row; None is 25 per row.
        shuffle: False takes the rows in the order given, not in random order.
    """

    pairs: int | None = None
    shuffle: bool = field(default=True, kw_only=True)

    name: ClassVar[str] = "incomplete"
    fewest_rows: ClassVar[int] = 20
    fewest_selection_rows: ClassVar[int] = 5
    numbers_kept: ClassVar[int] = 4

    def __post_init__(self) -> None:
        if self.pairs is not None:
            check_whole("pairs", self.pairs, 1)

    def check_rows(self, rows: int, models: int, *, selection: bool) -> None:
        lags_of(rows, self.pairs)

    def fewest_bytes(self, rows: int, models: int, width: int) -> int:
        return fewest_window_bytes(width, lags_of(rows, self.pairs))

    def estimate(self, source: PairSource, runtime: Runtime) -> Estimates:
        n = source.rows
        lags = lags_of(n, self.pairs)
        note = (
            f"incomplete estimator: {n * lags:,} of {n * (n - 1) // 2:,} pairs of rows, each row with the {lags} after "
            "it in random order"
        )
        return replace(incomplete(source, lags, runtime), notes=(note,))


ESTIMATORS: dict[str, type[Estimator]] = {each.name: each for each in (Complete, Linear, Block, Incomplete)}


def lags_of(rows: int, pairs: int | None) -> int:
    """R of the cyclic design, which has nR pairs: round(pairs/n), at most (n−1)/2, where nearly all are used.

    >>> lags_of(1000, 10_000), lags_of(1000, None), lags_of(21, None)
    (10, 25, 10)
    """
    wanted = DEFAULT_LAGS if pairs is None else math.floor(pairs / rows + 0.5)
    if wanted < 1:
        raise InputError(
            f'pairs: expected at least {rows} (one for every row), got {pairs}; for fewer use estimator="linear"'
        )
    return min(wanted, (rows - 1) // 2)


def block_size(rows: int, models: int, blocks: int | None) -> int:
    """The rows b = ⌊n/B⌋ of a block; as many blocks as there is room for are used, B or a few more.

    By default B is √n, and no fewer than 40 or 5 for each model.

    >>> block_size(10_000, 3, None), block_size(10_000, 3, 500)
    (100, 20)
    """
    most = rows // 2
    wanted = min(max(math.isqrt(rows), FEWEST_BLOCKS, BLOCKS_PER_MODEL * models), most) if blocks is None else blocks
    if wanted > most:
        raise InputError(f"blocks: expected at most {most} for {rows} rows (of two rows or more each), got {blocks}")
    return rows // wanted


def check_blocks(rows: int, models: int, blocks: int | None) -> None:
    """Refuse too few blocks for the joint covariance of so many models."""
    fewest = BLOCKS_PER_MODEL * models
    each = f"{BLOCKS_PER_MODEL} for each of {models} models"
    if blocks is None and rows < 2 * fewest:
        raise InputError(
            f'estimator="block": expected at least {2 * fewest} rows (blocks of two, {each}), got {rows}; '
            'use estimator="complete"'
        )
    if blocks is not None and blocks < fewest:
        raise InputError(f"blocks: expected at least {fewest} ({each}), got {blocks}")


def incomplete(source: PairSource, lags: int, runtime: Runtime) -> Estimates:
    """The cyclic design: the M = nR pairs (a, a+r mod n), r = 1..R ≤ (n−1)/2, so that every row is in 2R of them.

    ``g_a = mean of h over the pairs of a``, ``D = mean g`` and ``ψ = 2(g − ḡ)``; the covariance is
    `regular_covariance`, O(nR) kernel evaluations and no more than n·l numbers besides a window of rows.
    """
    n = source.rows
    totals = np.zeros((source.models, n + lags))
    counts, means, scatter = [], [], np.zeros((source.models, source.models))

    def reduce(_: int, h: Array) -> tuple[Array, Array, Array]:
        flat = h.reshape(len(h), -1)
        mean = flat.mean(axis=1)
        own = _row_sums(h)
        flat -= mean[:, None]
        return own, mean, flat @ flat.T

    for a, (own, mean, part) in each_part(source, lags, reduce, runtime):
        totals[:, a : a + own.shape[1]] += own
        counts.append((own.shape[1] - lags) * lags)
        means.append(mean)
        scatter += part
    totals[:, :lags] += totals[:, n:]
    g = totals[:, :n].T / (2 * lags)
    values = g.mean(axis=0)
    between = np.array(means) - values
    pairs = n * lags
    spread = (scatter + (between.T * counts) @ between) / pairs
    psi = Psi(centred(g))
    return Estimates(values, psi, covariance=regular_covariance(psi.covariance(), spread, n, pairs))


def _row_sums(h: Array) -> Array:
    """Each row's sum over its pairs in a part (l, rows, lags), as the first and as the second: (l, rows + lags)."""
    _, rows, lags = h.shape
    sums = np.zeros((len(h), rows + lags))
    sums[:, :rows] = h.sum(axis=2)
    if rows < lags:
        for a in range(rows):
            sums[:, a + 1 : a + 1 + lags] += h[:, a]
    else:
        for r in range(1, lags + 1):
            sums[:, r : r + rows] += h[:, :, r - 1]
    return sums


def regular_covariance(projection: Array, spread: Array, rows: int, pairs: int) -> Array:
    """V of a design of M pairs in which every one of n rows is in equally many.

    With h = θ + (first-order parts) + …, σ² = Cov h, and P = ψᵀψ/(n(n−1)), C = the covariance of h over the pairs:
    ``E P = ((n−4) V + nσ²/M)/(n−1)`` and ``E C = σ² − V``, so that ``V̂ = ((n−1)P − (n/M)C)/(n − 4 + n/M)`` is
    unbiased for V. P alone counts the pairs' own noise σ²/M twice. What V holds beyond that noise is no less than 0,
    so it is estimated by the positive part of ``V̂ − C/M``. With disjoint pairs this is C/(M−1), exactly.
    """
    own = spread / pairs
    unbiased = ((rows - 1) * projection - rows * own) / (rows - 4 + rows / pairs)
    return positive_part(unbiased - own, mixed(own, projection)) + own


def block(source: PairSource, size: int, runtime: Runtime) -> Estimates:
    """The complete estimate in each of B = n/b blocks of b rows that follow each other.

    D is the mean of the block values; they are independent, so ``V = cov(block values)/B``, and the values less
    their mean are the ψ rows. B·b(b−1)/2 pairs.
    """
    blocks = source.rows // size
    totals = np.zeros((blocks, source.models))

    def reduce(a: int, h: Array) -> Array:
        place = np.arange(a, a + h.shape[1]) % size
        inside = place[:, None] + np.arange(1, h.shape[2] + 1) < size
        return np.asarray(np.einsum("iar,ar->ia", h, inside))

    for a, sums in each_part(source, size - 1, reduce, runtime, ends=size):
        np.add.at(totals, np.arange(a, a + sums.shape[1]) // size, sums.T)
    each = totals / (size * (size - 1) / 2)
    values = each.mean(axis=0)
    return Estimates(values, Psi(each - values))


def each_part(
    source: PairSource, lags: int, reduce: Callable[[int, Array], T], runtime: Runtime, *, ends: int | None = None
) -> Iterator[tuple[int, T]]:
    """(a, reduce(a, h)) for parts of the rows, with h (l, rows, lags) the values of the pairs of row a and those after.

    Pairs of the last rows reach around to the first. `ends` says that no pair is wanted across a multiple of it:
    h then has fewer lags where none of its rows needs more. Slices run on threads and come in the rows' order.
    """

    def of_slice(start: int, arrays: Sequence[Array]) -> list[tuple[int, T]]:
        values = source.band_values(arrays)
        parts = _parts(start, start + len(arrays[0]) - lags, lags, ends)
        return [(start + part.first, reduce(start + part.first, values(part))) for part in parts]

    def of_window(start: int, window: Sequence[Array], executor: Executor | None) -> Iterator[tuple[int, T]]:
        def call(first: int) -> tuple[Any, ...]:
            return of_slice, start + first, [array[first : first + size + lags] for array in window]

        with closing(local_results(range(0, len(window[0]) - lags, size), call, executor)) as computed:
            for _, results in computed:
                yield from results

    size, threads = slices(source.width, lags, runtime)
    # A caller's executor is meant for blocks of kernel matrices; slices get no threads besides it.
    with local_executor(source.rows * lags, threads if runtime.executor is None else 1) as executor:
        for start, window in windows(source, lags, runtime.memory):
            stop = start + len(window[0]) - lags
            yield from of_window(start, window, executor)
            # Otherwise it would still be held while the next one is fetched.
            window.clear()
            if runtime.progress is not None:
                runtime.progress(stop, source.rows)


def slices(width: int, lags: int, runtime: Runtime) -> tuple[int, int]:
    """The rows of a slice and the number of threads: half of the memory holds what they make of their slices.

    The size does not depend on how many threads there are, which therefore change no bit of the answer.
    """
    rows = runtime.memory // (2 * _SLICE_BYTES * width)
    size = max(FEWEST_SLICE, lags, min(SLICE_ROWS, rows // _THREADS - lags))
    return size, max(1, min(runtime.threads, rows // (size + lags)))


def pairs_at_once(width: int, memory: int) -> int:
    """Pairs of rows of `width` numbers whose values are evaluated together."""
    return max(STEP, min(PAIR_CHUNK, memory // (_WINDOW_BYTES * width)))


def fewest_window_bytes(width: int, lags: int) -> int:
    """What the smallest windows and slices of rows of `width` numbers take."""
    window = _WINDOW_BYTES * (max(STEP, lags) + 2 * lags)
    return width * max(window, 2 * _SLICE_BYTES * (max(FEWEST_SLICE, lags) + lags))


def windows(source: PairSource, lags: int, memory: int = DEFAULT_MEMORY) -> Iterator[tuple[int, list[Array]]]:
    """(start, arrays) of windows that follow each other; each holds its rows and the `lags` rows after them.

    The rows that a window shares with the next are handed on, so that each is fetched (and its scores are evaluated)
    once, and no more than a window and 2·lags rows are held.
    """
    n = source.rows
    head = source.fetch(np.arange(lags))
    numbers = min(WINDOW_NUMBERS, memory // _WINDOW_BYTES)
    size = max(STEP, lags, min(WINDOW_ROWS, numbers // sum(array.shape[1] for array in head)))
    carried = head
    for start in range(0, n, size):
        stop = min(start + size, n)
        pieces = [carried, [array[max(start + lags - n, 0) : max(stop + lags - n, 0)] for array in head]]
        if start + lags < n:
            pieces.insert(1, source.fetch(np.arange(start + lags, min(stop + lags, n))))
        window = [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]
        del pieces
        carried = [array[-lags:].copy() for array in window]
        yield start, window
        del window


def _parts(start: int, stop: int, lags: int, ends: int | None) -> list[Part]:
    size = max(STEP, PAIR_CHUNK // lags // STEP * STEP)
    cuts = [(a, min(a + size, stop)) for a in range(start, stop, size)]
    found = [Part(a - start, b - start, lags if ends is None else min(lags, _needed(a, b, ends))) for a, b in cuts]
    return [part for part in found if part.lags]


def _needed(a: int, b: int, ends: int) -> int:
    """The largest lag that stays before the next multiple of `ends`, for the rows a..b−1."""
    return ends - 1 if a // ends != (b - 1) // ends else ends - 1 - a % ends
