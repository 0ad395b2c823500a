"""Values of the pairs (a, a+1), …, (a, a+R) of rows: a band of a kernel matrix, by small matrix products.

Differences of rows, pair by pair, would read 2d numbers for every pair; in a product of eight rows with the rows
that follow them, each row is read once for all of its pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray

from relfit.compute.backend import NumpyBackend, Points
from relfit.compute.reduce import DEFAULT_MEMORY, Runtime
from relfit.compute.schedulers import local_executor, local_results
from relfit.estimators.base import Estimates, Plan
from relfit.kernels.base import Kernel, Weight
from relfit.stats.joint import Psi, centred, mixed, positive_part
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError

# Rows multiplied at once: more would evaluate many pairs outside the band, fewer would leave BLAS idle.
STEP = 8


class Part(NamedTuple):
    """The pairs (a, a+r), first ≤ a < last, r = 1..lags, of a window of rows that holds last + lags of them."""

    first: int
    last: int
    lags: int


BandValues = Callable[[Part], Array]
"""The values h_i of the pairs of a part, for each model: (l, last−first, lags)."""


def mmd_values(kernel: Kernel) -> Callable[[Sequence[Array]], BandValues]:
    """``h_i = k(x,x') + k(r,r') − k(x,r') − k(x',r)`` in windows that hold the reference's rows, then each model's."""

    def of_window(window: Sequence[Array]) -> BandValues:
        reference, *models = (_prepared(kernel, rows) for rows in window)

        def values(part: Part) -> Array:
            def k(x: _Window, y: _Window) -> Array:
                return x.weights(y, part, ("phi",))[0]

            within = k(reference, reference)
            found = np.empty((len(models), *within.shape))
            for out, x in zip(found, models, strict=True):
                np.add(k(x, x), within, out=out)
                out -= k(x, reference)
                out -= k(reference, x)
            return found

        return values

    return of_window


def ksd_values(kernel: Kernel) -> Callable[[Sequence[Array]], BandValues]:
    """``u_i = φ s·s' − 2φ'(x−x')·(s−s') − 2dφ' − 4r²φ''`` in windows that hold rows, then each model's scores there."""

    def of_window(window: Sequence[Array]) -> BandValues:
        rows, *scores = window
        x = _prepared(kernel, rows)
        if kernel.tilt is not None:
            scores = [s + kernel.tilt.gradient(rows) for s in scores]
        return (_radial if x.kernel.unit_rate is None else _gaussian)(x, rows, scores)

    return of_window


def _gaussian(x: _Window, rows: Array, scores: Sequence[Array]) -> BandValues:
    """With φ' = −γφ, v = s − 2γx and c = 2γ s·x − 2γ²‖x‖² + dγ: ``u = φ (v·v' + c + c' − 2γ² r²)``."""
    gamma = -(x.kernel.unit_rate or 0.0) / x.kernel.length**2
    shared = rows.shape[1] * gamma - 2.0 * gamma**2 * np.einsum("ij,ij->i", rows, rows)
    sides = [
        _with_sums(s - 2.0 * gamma * rows, s - 2.0 * gamma * rows, 2.0 * gamma * _dots(s, rows) + shared)
        for s in scores
    ]

    def values(part: Part) -> Array:
        exponent = x.argument(x, part)  # −γr²
        phi = x.tilted(x, part, np.exp(exponent))
        exponent *= 2.0 * gamma
        found = np.empty((len(sides), *phi.shape))
        for out, side in zip(found, sides, strict=True):
            np.add(products(*side, part), exponent, out=out)
            out *= phi
        return found

    return values


def _radial(x: _Window, rows: Array, scores: Sequence[Array]) -> BandValues:
    """Any radial kernel: s·s' is one product, and −(x−x')·(s−s') = x·s' + s·x' − x·s − x'·s' another."""
    sides = [_with_sums(np.hstack([rows, s]), np.hstack([s, rows]), -_dots(rows, s)) for s in scores]

    def values(part: Part) -> Array:
        phi, dphi, r2ddphi = x.weights(x, part, ("phi", "dphi", "r2ddphi"))
        trace = -2.0 * rows.shape[1] * dphi - 4.0 * r2ddphi
        dphi = 2.0 * dphi
        found = np.empty((len(sides), *phi.shape))
        for out, s, side in zip(found, scores, sides, strict=True):
            np.multiply(products(s, s.T, part), phi, out=out)
            out += products(*side, part) * dphi
            out += trace
        return found

    return values


def _with_sums(left: Array, right: Array, own: Array) -> tuple[Array, Array]:
    """Sides whose products are left_a·right_b + own_a + own_b."""
    ones = np.ones(len(own))
    return np.column_stack([left, own, ones]), np.column_stack([right, ones, own]).T


def _dots(x: Array, y: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", x, y))


def products(left: Array, right: Array, part: Part) -> Array:
    """``left_a · right_{a+r}``: (last−first, lags), from left (n, c) and right (c, n).

    >>> x = np.arange(4.0)[:, None]
    >>> products(x, x.T, Part(0, 2, 2))
    array([[0., 0.],
           [2., 3.]])
    """
    first, last, lags = part
    whole = (last - first) // STEP * STEP
    out = np.empty((last - first, lags))
    if whole:
        few = left[first : first + whole].reshape(-1, STEP, left.shape[1])
        many = sliding_window_view(right[:, first + 1 : first + whole + lags], STEP + lags - 1, axis=1)[:, ::STEP]
        out[:whole] = _diagonals(few @ many.transpose(1, 0, 2), lags).reshape(whole, lags)
    if first + whole < last:
        rest = left[first + whole : last] @ right[:, first + whole + 1 : last + lags]
        out[whole:] = _diagonals(rest[None], lags)[0]
    return out


def _partners(values: Array, part: Part) -> Array:
    """``v_{a+r}``: (last−first, lags), from v (n,)."""
    return sliding_window_view(values[part.first + 1 : part.last + part.lags], part.lags)


def _diagonals(tiles: Array, lags: int) -> Array:
    """Row i of each tile (groups, rows, rows+lags−1) from its column i on: (groups, rows, lags)."""
    group, row, column = tiles.strides
    return as_strided(tiles, (*tiles.shape[:2], lags), (group, row + column, column), writeable=False)


@dataclass(frozen=True)
class _Window:
    """Rows prepared for one kernel, without its weight; `tilt` (n,) is that weight, if it has one."""

    kernel: Kernel
    rows: Array
    points: Points
    tilt: Array | None

    def argument(self, other: _Window, part: Part) -> Array:
        """What φ is a function of, or the exponent where φ is an exponential of r²."""
        if self.points.by_differences or other.points.by_differences:
            return self._by_differences(other, part)
        t = products(self.points.left, other.points.right, part)
        return t if self.kernel.variable == "dot" or self.kernel.unit_rate is not None else np.maximum(t, 0.0, out=t)

    def weights(self, other: _Window, part: Part, which: Sequence[Weight]) -> tuple[Array, ...]:
        """The asked-for functions of the pairs (x_a, y_{a+r})."""
        t = self.argument(other, part)
        found = self.kernel.weights(t, which) if self.kernel.unit_rate is None else (np.exp(t, out=t),)
        return tuple(self.tilted(other, part, w) for w in found)

    def tilted(self, other: _Window, part: Part, values: Array) -> Array:
        """The values times w(x_a) w(y_{a+r}), where there is a weight."""
        if self.tilt is None or other.tilt is None:
            return values
        return np.asarray(values * self.tilt[part.first : part.last, None] * _partners(other.tilt, part))

    def _by_differences(self, other: _Window, part: Part) -> Array:
        """The same pair by pair, for rows too far out for products of them to keep their digits."""
        first, last, lags = part
        rate = self.kernel.unit_rate
        unit = 1.0 if rate is None else self.kernel.length
        gaps = ((self.rows[first:last] - other.rows[first + r : last + r]) / unit for r in range(1, lags + 1))
        r2 = np.stack([np.einsum("ij,ij->i", gap, gap) for gap in gaps], axis=1)
        return r2 if rate is None else rate * r2


def _prepared(kernel: Kernel, rows: Array) -> _Window:
    plain = kernel.untilted
    tilt = None if kernel.tilt is None else kernel.tilt.weights(rows)
    return _Window(plain, rows, NumpyBackend().points(plain, rows), tilt)


# --------------------
# The rows of a pair design, a window at a time: memory is bounded, and every row is fetched once.

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

    def of_slice(start: int, arrays: Sequence[Array]) -> list[tuple[int, T]]:
        values = source.values(arrays)
        cut = _parts(start, start + len(arrays[0]) - lags, lags, ends)
        return [(start + part.first, reduce(start + part.first, values(part))) for part in cut]

    def of_window(start: int, window: Sequence[Array], executor: Executor) -> Iterator[tuple[int, T]]:
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
            # Otherwise it would still be held while the next window is fetched.
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


# --------------------
# Which pairs of rows are used. The complete design is built into `mmd` and `ksd`; here are the cheaper ones.

PairValues = Callable[[NDArray[np.intp], NDArray[np.intp]], Array]


def linear(rows: int, pair_values: PairValues, runtime: Runtime | None = None, width: int = 1) -> Estimates:
    """The linear-time estimate from the disjoint pairs (0,1), (2,3), …; an odd last row is left out.

    ``D = mean h`` over the M = ⌊n/2⌋ pairs and ``V = cov(h)/M``: O(n) kernel evaluations. `width` is how many numbers a
    row has, with all that belongs to it.
    """
    runtime = Runtime() if runtime is None else runtime
    pairs, size = rows // 2, pairs_at_once(width, runtime.memory)
    parts = []
    for start in range(0, pairs, size):
        first = 2 * np.arange(start, min(start + size, pairs))
        parts.append(pair_values(first, first + 1))
        if runtime.progress is not None:
            runtime.progress(start + len(first), pairs)
    h = np.concatenate(parts)
    values = h.mean(axis=0)
    return Estimates(values, Psi(h - values))


def incomplete(source: Source, lags: int, runtime: Runtime) -> Estimates:
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


def block(source: Source, size: int, runtime: Runtime) -> Estimates:
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


# --------------------
# How many pairs a design uses: the lags of the cyclic one, the blocks of the block one.

# Of the cyclic design, where nothing else is asked for: docs/estimators.md shows what more of them would gain.
DEFAULT_LAGS = 25
# A covariance of l models from fewer block values than this for each is mostly noise.
BLOCKS_PER_MODEL = 5
FEWEST_BLOCKS = 40


def of_pairs(source: Source, plan: Plan) -> Estimates:
    """The estimate by the block or the incomplete design; `source` gives its rows in the order wanted."""
    n = source.rows
    if plan.estimator == "incomplete":
        lags = lags_of(n, plan.pairs)
        said = f"{n * lags:,} of {n * (n - 1) // 2:,} pairs of rows, each row with the {lags} after it in random order"
        found = incomplete(source, lags, plan.runtime)
    else:
        size = block_size(n, source.models, plan.blocks)
        said = f"{n // size} blocks of {size} rows" + (f"; {n % size} rows left over and not used" if n % size else "")
        found = block(replace(source, rows=n // size * size), size, plan.runtime)
    return replace(found, notes=(f"{plan.estimator} estimator: {said}",))


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
