"""Which pairs of rows are used: all of them, or those of a cheaper design.

The rows of a cheaper design come a window at a time, so that memory is bounded and every row
is fetched once. Its pairs (a, a+1), …, (a, a+R) form a band of a kernel matrix, evaluated by
small matrix products: differences of rows, pair by pair, would read 2d numbers for every
pair; in a product of eight rows with the rows that follow them, each row is read once for
all of its pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from relfit.compute.reduce import DEFAULT_MEMORY, Runtime, local_executor, local_results
from relfit.estimators.base import (
    Estimates,
    PairDesign,
    PairSource,
)
from relfit.estimators.pairkernel import STEP, Band
from relfit.stats.joint import Psi, centred, mixed, positive_part
from relfit.util.arrays import Array, cuts
from relfit.util.checks import Whole, described, option
from relfit.util.errors import InputError

T = TypeVar("T")

# The rows of a window, for which scores are evaluated together, and the numbers they hold: 32
# MB.
WINDOW_ROWS = 16_384
WINDOW_NUMBERS = 4_000_000
# Pairs evaluated at once: few enough for the processor's cache.
PAIR_CHUNK = 32_768
FEWEST_PART = 32
# Parts are made small enough for this many threads.
_THREADS = 4
# Bytes for each number of a window, which is fetched and put together in half of the memory,
# and of a part.
_WINDOW_BYTES = 64
_PART_BYTES = 48
# Lags of the cyclic design by default: docs/evidence/estimators.md shows what more of them
# would gain.
DEFAULT_LAGS = 25
# A covariance of l models from fewer block values than this for each is mostly noise.
BLOCKS_PER_MODEL = 5
FEWEST_BLOCKS = 40


def shuffled() -> Any:
    """The option of designs that pair rows by their places."""
    help = "whether the rows are taken in random order, and not in the order given"
    return option(True, None, help, kw_only=True)


@described
@dataclass(frozen=True)
class Linear(PairDesign):
    """The disjoint pairs (0,1), (2,3), … of rows: O(n) kernel evaluations."""

    shuffle: bool = shuffled()

    name: ClassVar[str] = "linear"
    words: ClassVar[str] = "the linear-time estimate over disjoint pairs of observations"
    fewest_rows: ClassVar[int] = 40
    fewest_selection_rows: ClassVar[int] = 10
    numbers_kept: ClassVar[int] = 2

    def fewest_bytes(self, rows: int, models: int, width: int) -> int:
        return _WINDOW_BYTES * STEP * width

    def values(self, rows: int, lengths: Sequence[int], columns: int = 1) -> int:
        return rows * len(lengths)

    def from_pairs(self, source: PairSource, runtime: Runtime) -> Estimates:
        """``D = mean h`` over the M = ⌊n/2⌋ pairs and ``V = cov(h)/M``; an odd last row is
        left out.
        """
        pairs = source.rows // 2
        size = max(STEP, min(PAIR_CHUNK, runtime.memory // (_WINDOW_BYTES * source.width)))
        parts = []
        for part in cuts(pairs, size):
            first = 2 * np.arange(part.start, part.stop)
            parts.append(source.values_between(first, first + 1))
            if runtime.progress is not None:
                runtime.progress(part.stop, pairs)
        h = np.concatenate(parts)
        values = h.mean(axis=0)
        odd = (
            ("linear estimator: one row has no partner and was not used",)
            if source.rows % 2
            else ()
        )
        return Estimates(values, Psi(h - values), notes=odd)


@described
@dataclass(frozen=True)
class Block(PairDesign):
    """All pairs of rows within blocks."""

    blocks: int | None = option(
        None,
        Whole(1),
        "the number of blocks",
        flag="--blocks NUMBER",
        recorded="block_count",
        shown=f"√n, at least {FEWEST_BLOCKS}",
        python=f"There are at least {BLOCKS_PER_MODEL} for each model.",
    )
    shuffle: bool = shuffled()

    name: ClassVar[str] = "block"
    words: ClassVar[str] = "an average over blocks of observations [zaremba2013btest]"
    fewest_rows: ClassVar[int] = 40
    fewest_selection_rows: ClassVar[int] = 10

    def check_rows(self, rows: int, models: int, *, selection: bool) -> None:
        """Refuse blocks of one row, and too few blocks for the joint covariance of so many
        models.
        """
        block_size(rows, models, self.blocks)
        fewest = BLOCKS_PER_MODEL * models
        each = f"{BLOCKS_PER_MODEL} for each of {models} models"
        if not selection and self.blocks is None and rows < 2 * fewest:
            raise InputError(
                f'estimator="block": expected at least {2 * fewest} rows (blocks of two, '
                f"{each}), got {rows}; "
                'use estimator="complete"'
            )
        if not selection and self.blocks is not None and self.blocks < fewest:
            raise InputError(f"blocks: expected at least {fewest} ({each}), got {self.blocks}")

    def fewest_bytes(self, rows: int, models: int, width: int) -> int:
        return fewest_window_bytes(width, block_size(rows, models, self.blocks) - 1)

    def from_pairs(self, source: PairSource, runtime: Runtime) -> Estimates:
        n = source.rows
        size = block_size(n, source.models, self.blocks)
        unused = f"; {n % size} rows are left over and were not used" if n % size else ""
        estimates = block(replace(source, rows=n // size * size), size, runtime)
        return replace(
            estimates, notes=(f"block estimator: {n // size} blocks of {size} rows{unused}",)
        )


@described
@dataclass(frozen=True)
class Incomplete(PairDesign):
    """Each row with some others: far cheaper than all pairs, and nearly as powerful."""

    pairs: int | None = option(
        None,
        Whole(1),
        "the number of pairs",
        flag="--pairs NUMBER",
        recorded="pair_count",
        shown=f"{DEFAULT_LAGS} for each row",
        python="It is rounded to whole pairs for each row.",
    )
    shuffle: bool = shuffled()

    name: ClassVar[str] = "incomplete"
    words: ClassVar[str] = "an incomplete U-statistic [blom1976incomplete]"

    def check_rows(self, rows: int, models: int, *, selection: bool) -> None:
        lags_of(rows, self.pairs)

    def fewest_bytes(self, rows: int, models: int, width: int) -> int:
        return fewest_window_bytes(width, lags_of(rows, self.pairs))

    def values(self, rows: int, lengths: Sequence[int], columns: int = 1) -> int:
        return 3 * DEFAULT_LAGS * rows * len(lengths)

    def from_pairs(self, source: PairSource, runtime: Runtime) -> Estimates:
        n = source.rows
        lags = lags_of(source.rows, self.pairs)
        pairs = f"{n * lags:,} of {n * (n - 1) // 2:,} pairs of rows"
        note = (
            f"incomplete estimator: {pairs}, each row with the {lags} after it in random order"
        )
        return replace(incomplete(source, lags, runtime), notes=(note,))


def lags_of(rows: int, pairs: int | None) -> int:
    """R of the cyclic design, which has nR pairs: round(pairs/n), at most (n−1)/2, where
    nearly all are used.

    >>> lags_of(1000, 10_000), lags_of(1000, None), lags_of(21, None)
    (10, 25, 10)
    """
    lags = DEFAULT_LAGS if pairs is None else math.floor(pairs / rows + 0.5)
    if lags < 1:
        raise InputError(
            f"pairs: expected at least {rows} (one for every row), got {pairs}; for fewer use "
            f'estimator="linear"'
        )
    return min(lags, (rows - 1) // 2)


def block_size(rows: int, models: int, blocks: int | None) -> int:
    """The number of rows b = ⌊n/B⌋ of a block; all blocks of that size that fit are used, B
    or a few more.

    By default B is √n, but at least 40 and at least 5 for each model.

    >>> block_size(10_000, 3, None), block_size(10_000, 3, 500)
    (100, 20)
    """
    most = rows // 2
    if blocks is None:
        return rows // min(
            max(math.isqrt(rows), FEWEST_BLOCKS, BLOCKS_PER_MODEL * models), most
        )
    if blocks > most:
        raise InputError(
            f"blocks: expected at most {most} for {rows} rows (two rows or more "
            f"per block), got {blocks}"
        )
    return rows // blocks


def incomplete(source: PairSource, lags: int, runtime: Runtime) -> Estimates:
    """The cyclic design: the M = nR pairs (a, a+r mod n), r = 1..R ≤ (n−1)/2, so that every
    row is in 2R of them.

    ``g_a = mean of h over the pairs of a``, ``D = mean g`` and ``ψ = 2(g − ḡ)``; the
    covariance is `regular_covariance`, O(nR) kernel evaluations and no more than n·l numbers
    besides a window of rows.
    """
    n = source.rows
    totals = np.zeros((source.models, n + lags))
    counts = []
    means = []
    scatter = np.zeros((source.models, source.models))

    def reduce(_: int, h: Array) -> tuple[Array, Array, Array]:
        flat = h.reshape(len(h), -1)
        mean = flat.mean(axis=1)
        sums = _row_sums(h)
        flat -= mean[:, None]
        return sums, mean, flat @ flat.T

    for a, (sums, mean, part) in each_part(source, lags, reduce, runtime):
        totals[:, a : a + sums.shape[1]] += sums
        counts.append((sums.shape[1] - lags) * lags)
        means.append(mean)
        scatter += part
    totals[:, :lags] += totals[:, n:]
    g = totals[:, :n].T / (2 * lags)
    values = g.mean(axis=0)
    between = np.array(means) - values
    pairs = n * lags
    spread = (scatter + (between.T * counts) @ between) / pairs
    psi = Psi(centred(g))
    return Estimates(
        values, psi, covariance=regular_covariance(psi.covariance(), spread, n, pairs)
    )


def _row_sums(h: Array) -> Array:
    """Each row's sum over its pairs in a part (l, rows, lags), as the first and as the
    second: (l, rows + lags).
    """
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

    With h = θ + (first-order parts) + …, σ² = Cov h, and P = ψᵀψ/(n(n−1)), C = the
    covariance of h over the pairs: ``E P = ((n−4) V + nσ²/M)/(n−1)`` and ``E C = σ² − V``,
    so that ``V̂ = ((n−1)P − (n/M)C)/(n − 4 + n/M)`` is unbiased for V. P alone counts the
    pairs' own noise σ²/M twice. What V holds beyond that noise is at least 0, so it is
    estimated by the positive part of ``V̂ − C/M``. With disjoint pairs the result is exactly
    C/(M−1).
    """
    noise = spread / pairs
    unbiased = ((rows - 1) * projection - rows * noise) / (rows - 4 + rows / pairs)
    return positive_part(unbiased - noise, mixed(noise, projection)) + noise


def block(source: PairSource, size: int, runtime: Runtime) -> Estimates:
    """The complete estimate in each of B = n/b blocks of b consecutive rows: B·b(b−1)/2 pairs.

    D is the mean of the block values. They are independent, so ``V = cov(block values)/B``,
    and the values minus their mean are the ψ rows.
    """
    totals = np.zeros((source.rows // size, source.models))

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
    source: PairSource,
    lags: int,
    reduce: Callable[[int, Array], T],
    runtime: Runtime,
    *,
    ends: int | None = None,
) -> Iterator[tuple[int, T]]:
    """(a, reduce(a, h)) for parts of the rows, with h (l, rows, lags) the values of the
    pairs of row a and those after.

    Pairs of the last rows reach around to the first. With `ends`, no pair across a multiple
    of it is needed: h then has fewer lags where none of its rows needs more. Parts run on
    threads and come in the rows' order.
    """

    def result(first: int, arrays: Sequence[Array], band: Band) -> T:
        return reduce(first, source.values(arrays, arrays, band))

    size, threads = part_rows(source.width, lags, runtime)
    # A caller's executor is meant for blocks of kernel matrices; parts get no threads besides
    # it.
    threads = threads if runtime.executor is None else 1
    with local_executor(source.rows * lags, threads) as executor:
        for start, window in windows(source, lags, runtime.memory):
            stop = start + len(window[0]) - lags

            def call(part: tuple[int, int, int]) -> tuple[Any, ...]:
                first, last, needed = part
                rows = slice(first - start, last - start + needed)  # noqa: B023
                arrays = [array[rows] for array in window]  # noqa: B023
                return result, first, arrays, Band(needed)

            parts = _parts(start, stop, size, lags, ends)
            with closing(local_results(parts, call, executor)) as computed:
                for (first, _, _), reduced in computed:
                    yield first, reduced
            # Otherwise the window would still be held while the next one is fetched.
            window.clear()
            if runtime.progress is not None:
                runtime.progress(stop, source.rows)


def part_rows(width: int, lags: int, runtime: Runtime) -> tuple[int, int]:
    """The rows of a part, of about PAIR_CHUNK pairs, and the number of threads: half of the
    memory holds what the threads compute from parts.

    The size does not depend on the number of threads, which therefore changes no bit of the
    answer.
    """
    rows = runtime.memory // (2 * _PART_BYTES * width)
    size = max(STEP, min(PAIR_CHUNK // lags, rows // _THREADS - lags) // STEP * STEP)
    return size, max(1, min(runtime.threads, rows // (size + lags)))


def fewest_window_bytes(width: int, lags: int) -> int:
    """The memory that the smallest windows and slices of rows of `width` numbers take."""
    window = _WINDOW_BYTES * (max(STEP, lags) + 2 * lags)
    return width * max(window, 2 * _PART_BYTES * (max(FEWEST_PART, lags) + lags))


def windows(
    source: PairSource, lags: int, memory: int = DEFAULT_MEMORY
) -> Iterator[tuple[int, list[Array]]]:
    """(start, arrays) of windows that follow each other; each holds its rows and the `lags`
    rows after them, the first ones after the last.

    The rows that two windows have in common are carried over, so that each is fetched, and
    its scores are evaluated, once.
    """
    n = source.rows
    numbers = min(WINDOW_NUMBERS, memory // _WINDOW_BYTES)
    size = max(STEP, lags, min(WINDOW_ROWS, numbers // source.width))
    head = source.fetch(np.arange(lags))
    carried = head
    for part in cuts(n, size):
        first = part.start + lags
        last = part.stop + lags
        pieces = [carried]
        if first < n:
            pieces.append(source.fetch(np.arange(first, min(last, n))))
        if last > n:
            pieces.append([array[max(first - n, 0) : last - n] for array in head])
        window = [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]
        del pieces
        carried = [array[-lags:].copy() for array in window]
        yield part.start, window
        del window


def _parts(
    start: int, stop: int, size: int, lags: int, ends: int | None
) -> Iterator[tuple[int, int, int]]:
    """The rows start..stop−1 in parts: the first, the last + 1, and the lags that are
    needed.
    """
    for part in cuts(stop, size, start):
        needed = lags
        if ends is not None:
            # The largest lag that stays before the next multiple of `ends`, for any of the
            # rows.
            first = part.start % ends
            inside = first + part.stop - part.start <= ends
            needed = min(lags, ends - 1 - first if inside else ends - 1)
        if needed:
            yield part.start, part.stop, needed
