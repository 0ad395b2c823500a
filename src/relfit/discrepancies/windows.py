"""The rows of a pair design, a window at a time: memory is bounded, and every row is fetched once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies.bands import STEP, BandValues, Part
from relfit.tiles import DEFAULT_MEMORY, SERIAL_PAIRS, Runtime

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
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


@dataclass(frozen=True)
class Source:
    """Where a pair design takes its rows and values from.

    Args:
        rows: n.
        models: l.
        fetch: from m positions in 0..n−1 to arrays of m rows: the data's, then each model's rows or scores there.
        values: from the arrays of a window to the values of its pairs.
        width: the numbers of one row in all those arrays.
    """

    rows: int
    models: int
    fetch: Callable[[Rows], list[Array]]
    values: Callable[[Sequence[Array]], BandValues]
    width: int = 1


def each_part(
    source: Source, lags: int, reduce: Callable[[int, Array], T], runtime: Runtime, *, ends: int | None = None
) -> Iterator[tuple[int, T]]:
    """(a, reduce(a, h)) for parts of the rows, with h (l, rows, lags) the values of the pairs of row a and those after.

    Pairs of the last rows reach around to the first. `ends` says that no pair is wanted across a multiple of it:
    h then has fewer lags where none of its rows needs more. Slices run on threads and come in the rows' order.
    """

    def work(start: int, slice_: Sequence[Array]) -> list[tuple[int, T]]:
        values = source.values(slice_)
        cut = _parts(start, start + len(slice_[0]) - lags, lags, ends)
        return [(start + part.first, reduce(start + part.first, values(part))) for part in cut]

    size, threads = slices(source.width, lags, runtime)
    with _mapping(source.rows * lags, runtime, threads) as mapped:
        for start, window in windows(source, lags, runtime.memory):
            stop = start + len(window[0]) - lags
            starts = range(start, stop, size)
            cut = ([array[a - start : a - start + size + lags] for array in window] for a in starts)
            for found in mapped(work, starts, cut):
                yield from found
            # Or it would still be held while the next is fetched.
            window.clear()
            if runtime.progress is not None:
                runtime.progress(stop, source.rows)


def slices(width: int, lags: int, runtime: Runtime) -> tuple[int, int]:
    """The rows of a slice and the number of threads: half of the memory holds what they make of their slices.

    The size does not depend on how many threads there are, which therefore change no bit of the answer.
    """
    room = runtime.memory // (2 * _SLICE_BYTES * width)
    size = max(FEWEST_SLICE, lags, min(SLICE_ROWS, room // _THREADS - lags))
    return size, max(1, min(runtime.threads, room // (size + lags)))


def pairs_at_once(width: int, memory: int) -> int:
    """Pairs of rows of `width` numbers whose values are evaluated together."""
    return max(STEP, min(PAIR_CHUNK, memory // (_WINDOW_BYTES * width)))


def fewest_bytes(width: int, lags: int) -> int:
    """What the smallest windows and slices of rows of `width` numbers take."""
    window = _WINDOW_BYTES * (max(STEP, lags) + 2 * lags)
    return width * max(window, 2 * _SLICE_BYTES * (max(FEWEST_SLICE, lags) + lags))


def windows(source: Source, lags: int, memory: int = DEFAULT_MEMORY) -> Iterator[tuple[int, list[Array]]]:
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


@contextmanager
def _mapping(pairs: int, runtime: Runtime, threads: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """`map`, on a thread per core where the work is worth it; who gives an executor (for tiles) gets no threads."""
    if runtime.executor is not None or pairs < SERIAL_PAIRS or threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as workers:
        yield workers.map
