"""The law of maxima of studentised differences: what a max-t test compares its statistic with.

It is the normal law of `law`. Few rows and skewness are allowed for in the ratios
(`decision.Differences`), each on the scale of its own p-value. The best set uses
`maximum_log_pvalues` and `stepdown_log_pvalues`, bounds and ranks `Law.maxima` and
`quantile`; planning uses `Maxima`. Random numbers belong to the ranks of the estimates:
permuting the models permutes the draws, and other names change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from scipy.special import log_ndtr, ndtri

from relfit.stats.close import most_draws, undecided
from relfit.stats.joint import JointEstimate
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.libraries import usable_cores
from relfit.util.random import stream

# Draws at once: temporaries of a few megabytes, near the processor.
CHUNK = 2048
# Draws of normal pairs in a block, at least and of all models, and the models from which on
# threads share the blocks.
_BLOCK = 256
_BLOCK_NUMBERS = 2**14
_MANY_MODELS = 200
# With fewer draws than this beyond it, a quantile is mostly noise.
FEWEST_BEYOND = 10
# Draws beyond a statistic that settle its p-value to a thirtieth of itself: at α = .05 that
# takes all 20,000.
ENOUGH_BEYOND = 1000
# Sets of models whose law of the maximum is remembered, 160 kB each.
_MOST_REMEMBERED = 500
# Ratios that differ by less than this are the same.
_SAME_RATIO = 1e-9

Source = np.random.Generator | Callable[[int | None], np.random.Generator]
"""A Generator, or a function from a model's rank (None: the reference) to its own Generator."""


@dataclass(frozen=True)
class Streams:
    """One generator for the reference and one per model; they may all be the same one."""

    reference: np.random.Generator
    models: tuple[np.random.Generator, ...]


def streams(source: Source, values: Array) -> Streams:
    """The generators of the models with these estimates, in their order.

    A function gives each rank a generator, so that the noise follows the models when they are
    permuted; a single Generator serves them in turn. Independent noise stays independent of
    the estimates when the estimates determine its order.
    """
    if isinstance(source, np.random.Generator):
        return Streams(source, (source,) * len(values))
    ranks = np.argsort(np.argsort(values, kind="stable"))
    return Streams(source(None), tuple(source(rank) for rank in ranks.tolist()))


def seeded(seed: int, test: str) -> Source:
    """The source a test draws from in a comparison with this seed: one stream for each rank
    of the estimates.
    """

    def source(rank: int | None) -> np.random.Generator:
        return stream(seed, test, "reference" if rank is None else f"rank {rank}")

    return source


def normal_draws(root: Array, models: Sequence[np.random.Generator], draws: int) -> Array:
    """(l, draws) columns of N(0, V), with `root` from `covariance_root`."""
    return np.asarray(root @ np.stack([rng.standard_normal(draws) for rng in models]))


def covariance_root(covariance: Array) -> Array:
    """A matrix A with A Aᵀ = V, which exists for singular V too: A = S C^½, V = S C S, S the
    standard errors.

    C^½ is the symmetric root of the correlations. A permutation P of the models turns A into
    P A Pᵀ, which no triangular root does: permuted noise gives permuted draws.

    >>> covariance_root(np.array([[4.0, 0.0], [0.0, 0.0]])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    scale = np.sqrt(np.diag(covariance))
    safe = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / safe / safe[:, None])
    return np.asarray(
        scale[:, None] * ((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
    )


@dataclass(frozen=True)
class Law:
    """Draws of Z_ij ≈ (D_i − D_j − E)/s_ij, jointly for all pairs.

    Each call draws anew. Nothing of the size draws × l × l is ever held.
    """

    draws: int
    chunk: Callable[[int], NormalPairs]

    def maxima(self, offsets: Array, reverse: Array | None = None) -> Array:
        """(l, draws) values of max_j (Z_ij + offset_ij), or of max_j max(Z_ij + offset_ij,
        −Z_ij + reverse_ij).

        An offset of −inf, as pairs without variance and the diagonal must have, leaves the
        pair out.
        """
        everyone = np.arange(len(offsets))
        parts = [
            _row_maxima(self.chunk(count), offsets, reverse, everyone, count)
            for count in self.counts()
        ]
        return np.concatenate(parts, axis=1)

    def exceedances(
        self, offsets: Array, statistic: Array, alpha: float | None = None
    ) -> tuple[Rows, Rows]:
        """(l,) the number of draws of max_j (Z_ij + offset_ij) that reach T_i, and of those
        made for model i.

        A model leaves once ENOUGH_BEYOND draws have reached its statistic (Besag and
        Clifford 1991): its p-value is known well enough, and a small one is still settled by
        all `draws`. A model whose union bound is below their resolution needs none. A model
        whose p-value is too near to `alpha` for a verdict stays (`stats.close.undecided`).
        """
        reached, made = np.zeros((2, len(offsets)), dtype=np.intp)
        left = np.flatnonzero(log_union(offsets, statistic) > -math.log1p(self.draws))
        for count in self.counts(len(offsets)):
            if not len(left):
                break
            top = _row_maxima(self.chunk(count), offsets, None, left, count)
            reached[left] += (top >= statistic[left, None] - _SAME_RATIO).sum(axis=1)
            made[left] += count
            enough = (reached[left] >= ENOUGH_BEYOND) | (made[left] >= self.draws)
            left = left[~enough | undecided(reached[left], made[left], alpha)]
        return reached, made

    def counts(self, models: int = 0) -> Iterator[int]:
        """The numbers of draws at once: those of the law, and with a number of models as many
        more as p-values near α may need.
        """
        for start in range(0, self.draws, CHUNK):
            yield min(CHUNK, self.draws - start)
        most = most_draws(models) if models else 0
        for _ in range(self.draws, most, CHUNK):
            yield CHUNK


def log_union(offsets: Array, statistic: Array) -> Array:
    """(l,) log Σ_j P(Z_ij + offset_ij ≥ T_i), an upper bound."""
    return np.asarray(np.logaddexp.reduce(log_ndtr(offsets - statistic[:, None]), axis=1))


def quantile(top: Array, level: float, pairs: int) -> float:
    """The `level` quantile of these draws of a maximum over `pairs` pairs (offsets ≤ 0).

    The ⌈level (draws + 1)⌉-th smallest. Where fewer than ten draws lie beyond it, the union
    bound instead, and for a single pair too, where it is exact.
    """
    tail = 1.0 - level
    if pairs == 0:
        return -math.inf
    if tail * (len(top) + 1) < FEWEST_BEYOND or pairs == 1:
        return -float(ndtri(tail / pairs))
    place = math.ceil(level * (len(top) + 1)) - 1
    return float(np.partition(top, place)[place])


def law(
    joint: JointEstimate, error: Array, source: Source, draws: int, cap: Array | None = None
) -> Law:
    """The law of the studentised differences of these estimates: Z_ij = (G_i − G_j)/s_ij
    (`error`), G ~ N(0, V).

    A pair whose ratio cannot exceed `cap` (l, l) has draws that do not either.
    """

    @cache
    def prepared() -> tuple[Array, Sequence[np.random.Generator]]:
        return covariance_root(joint.covariance), streams(source, joint.values).models

    def chunk(count: int) -> NormalPairs:
        return studentised(normal_draws(*prepared(), count), error, cap)

    return Law(draws, chunk)


def maximum_log_pvalues(
    laws: Sequence[Law],
    offsets: Sequence[Array],
    statistic: Array,
    alpha: float | None = None,
) -> Array:
    """(l,) log P(max_j (Z_ij + offset_ij) ≥ T_i) under a law, or under several, one for each
    kernel.

    The draws of several laws belong together, and the maximum is over the kernels too. ``(1
    + #{max ≥ T_i})/(1 + draws)``, no larger than the sum of the pairs' own tails, exactly
    that for a single pair, and 1 where no pair is left.
    """
    members = np.sum([(each > -math.inf).sum(axis=1) for each in offsets], axis=0)
    statistic = np.where(members > 0, statistic, 0.0)
    if len(laws) == 1:
        reached, made = laws[0].exceedances(offsets[0], statistic, alpha)
    else:
        maxima = np.maximum.reduce(
            [each.maxima(offset) for each, offset in zip(laws, offsets, strict=True)]
        )
        reached = (maxima >= statistic[:, None]).sum(axis=1)
        made = np.full(len(statistic), laws[0].draws)
    log_p = np.log((1.0 + reached) / (1.0 + made))
    union = np.logaddexp.reduce([log_union(offset, statistic) for offset in offsets], axis=0)
    log_p = np.where(members == 1, union, np.minimum(log_p, union))
    return np.where(members > 0, np.minimum(log_p, 0.0), 0.0)


def stepdown_log_pvalues(
    laws: Sequence[Law],
    offsets: Sequence[Array],
    ratios: Sequence[Array],
    log_p: Array,
    contenders: Mask,
    alpha: float | None = None,
) -> Array:
    """(l,) log adjusted p-values of all models at once, from log p of every model by itself.

    Contenders step down from the largest statistic. At the step of i its largest ratio to
    the contenders that are left is compared with the largest Z_kj, kept by the offsets (0 or
    −inf), of all pairs among them, i included. A model that is no contender is compared with
    the contenders in the same way. Adjusted p-values are the largest ones up to a model's
    own step, and no smaller than its p-value. One set of draws serves all steps.
    """
    count = len(log_p)
    order = np.flatnonzero(contenders)
    among = np.max([ratio[:, order].max(axis=1, initial=-math.inf) for ratio in ratios], axis=0)
    order = order[np.argsort(-among[order], kind="stable")]
    models = np.concatenate([np.flatnonzero(~contenders), order])
    first = count - len(order)
    kept = [offset == 0.0 for offset in offsets]
    others = [order[max(place - first + 1, 0) :] for place in range(count)]
    both = list(zip(models, others, strict=True))
    statistic = np.array(
        [max(ratio[i, rest].max(initial=-math.inf) for ratio in ratios) for i, rest in both]
    )
    pairs = np.array(
        [
            sum(int(keep[i, rest].sum() + keep[rest, i].sum()) for keep in kept)
            for i, rest in both
        ]
    )
    pairs[first:] = np.cumsum(pairs[first:][::-1])[::-1]
    pairs[:first] += pairs[first] if len(order) else 0
    with np.errstate(divide="ignore"):
        log_step = np.minimum(np.log(pairs) + log_ndtr(-statistic), 0.0)
    log_step[pairs == 0] = 0.0
    unsettled = (pairs > 1) & (log_step > -math.log1p(laws[0].draws))
    places = (
        np.flatnonzero(unsettled | (np.arange(count) >= first))
        if unsettled.any()
        else np.empty(0, dtype=np.intp)
    )
    reached = np.zeros(len(places), dtype=np.intp)
    made = 0
    last = int(np.searchsorted(places, first))
    for size in laws[0].counts(count) if len(places) else ():
        top = np.full((len(places), size), -math.inf)
        chunks = [each.chunk(size) for each in laws]
        for row, place in enumerate(places):
            i, rest = both[place]
            for keep, chunk in zip(kept, chunks, strict=True):
                z = chunk(int(i), rest)
                np.maximum(
                    top[row], z[keep[i, rest]].max(axis=0, initial=-math.inf), out=top[row]
                )
                np.maximum(
                    top[row], (-z[keep[rest, i]]).max(axis=0, initial=-math.inf), out=top[row]
                )
        np.maximum.accumulate(top[last:][::-1], axis=0, out=top[last:][::-1])
        if last < len(top):
            np.maximum(top[:last], top[last], out=top[:last])
        reached += (top >= statistic[places, None] - _SAME_RATIO).sum(axis=1)
        made += size
        near = undecided(reached, made, alpha)[unsettled[places]]
        enough = made >= laws[0].draws or bool((reached[: last + 1] >= ENOUGH_BEYOND).all())
        if enough and not near.any():
            break
    drawn = np.log((1.0 + reached) / (1.0 + made))
    log_step[places] = np.where(
        unsettled[places], np.minimum(log_step[places], drawn), log_step[places]
    )
    log_step[first:] = np.maximum.accumulate(log_step[first:])
    adjusted = np.empty(count)
    adjusted[models] = log_step
    return np.maximum(adjusted, log_p)


def studentised(g: Array, error: Array, cap: Array | None = None) -> NormalPairs:
    """Z_ij of the draws g (l, draws) of G."""
    return NormalPairs(
        g, np.divide(1.0, error, out=np.zeros_like(error), where=error > 0.0), cap
    )


@dataclass(frozen=True)
class NormalPairs:
    """Z_ij = (G_i − G_j) scale_ij of draws G (l, draws), and no further from 0 than cap_ij."""

    g: Array
    scale: Array
    cap: Array | None = None

    def __call__(self, i: int, others: Rows) -> Array:
        """(k, draws) values of Z_ij for k models j."""
        z = np.asarray((self.g[i] - self.g[others]) * self.scale[i, others, None])
        return (
            z
            if self.cap is None
            else np.clip(z, -self.cap[i, others, None], self.cap[i, others, None], out=z)
        )

    def maxima(self, kept: Mask, models: Rows, order: Rows) -> Array:
        """(k, draws) values of max_j Z_ij over the pairs that are kept, for k models, which
        come first in the order.

        Every draw is a problem of its own: blocks of them fit into the cache. For many
        models threads share the blocks, in single precision, which is far finer than the
        draws are.
        """
        many = len(order) >= _MANY_MODELS
        number = np.float32 if many else np.float64
        g = self.g[order].astype(number)
        scale = self.scale[np.ix_(order, order)].astype(number)
        cap = None if self.cap is None else self.cap[np.ix_(order, order)].astype(number)
        kept = kept[np.ix_(order, order)]
        top = np.full((len(models), g.shape[1]), -math.inf, dtype=number)
        either = kept | kept.T
        size = max(_BLOCK, _BLOCK_NUMBERS // len(order))
        others = [
            place + 1 + np.flatnonzero(either[place, place + 1 :])
            for place in range(len(models))
        ]

        def block(start: int) -> None:
            part = g[:, start : start + size]
            best = top[:, start : start + size]
            for place, those in enumerate(others):
                if not len(those):
                    continue
                # Slices need no copy.
                whole = len(those) == those[-1] - those[0] + 1
                z = (
                    part[place] - part[those[0] : those[-1] + 1]
                    if whole
                    else part[place] - part[those]
                )
                z *= scale[place, those, None]
                if cap is not None:
                    np.clip(
                        z, np.negative(cap[place, those, None]), cap[place, those, None], out=z
                    )
                at = kept[place, those]
                if at.any():
                    np.maximum(
                        best[place], (z if at.all() else z[at]).max(axis=0), out=best[place]
                    )
                back = kept[those, place] & (those < len(models))
                if back.any():
                    whole = whole and bool(back.all())
                    if whole:
                        rows = best[those[0] : those[-1] + 1]
                        np.maximum(rows, np.negative(z, out=z), out=rows)
                    else:
                        best[those[back]] = np.maximum(best[those[back]], -z[back])

        starts = range(0, g.shape[1], size)
        if many:
            with ThreadPoolExecutor(usable_cores()) as pool:
                list(pool.map(block, starts))
        else:
            list(map(block, starts))
        return top.astype(np.float64)


@dataclass(frozen=True)
class Maxima:
    """The law of max_{j∈K} (G_i − G_j)/s_ij for simulated trials, from (l, draws) draws of G
    ~ N(0, V).

    `remembered` holds the sorted maxima of every (i, K) asked for so far.
    """

    draws: Array
    error: Array
    remembered: dict[tuple[int, bytes], Array] = field(default_factory=dict)

    def tail(self, i: int, members: Mask, statistic: Array) -> Array:
        """(1 + #{max ≥ T})/(1 + draws) for every T, with the same set K for all."""
        key = (i, members.tobytes())
        if key not in self.remembered:
            if len(self.remembered) >= _MOST_REMEMBERED:
                self.remembered.clear()
            # A copy that varies in some trials has no law here; the other models bound its
            # maximum from below.
            varies = members & (self.error[i] > 0.0)
            z = (self.draws[i] - self.draws[varies]) / self.error[i, varies, None]
            self.remembered[key] = np.sort(z.max(axis=0, initial=-math.inf))
        maxima = self.remembered[key]
        return np.asarray(
            (1.0 + len(maxima) - np.searchsorted(maxima, statistic)) / (1.0 + len(maxima))
        )

    def tails(self, i: int, members: Mask, statistic: Array) -> Array:
        """The same with a set of its own for every T: members (trials, l)."""
        out = np.ones(len(statistic))
        if not len(out):
            return out
        sets, inverse = np.unique(members, axis=0, return_inverse=True)
        order = np.argsort(inverse.ravel(), kind="stable")
        bounds = np.searchsorted(inverse.ravel()[order], np.arange(len(sets) + 1))
        for k, common in enumerate(sets):
            trials = order[bounds[k] : bounds[k + 1]]
            out[trials] = self.tail(i, common, statistic[trials])
        return out


def kept_pairs(kept: Mask) -> Array:
    """(l, l) offsets: 0 for the pairs that are kept, and −inf for those that are left out."""
    return np.where(kept, 0.0, -math.inf)


def _row_maxima(
    chunk: NormalPairs, offsets: Array, reverse: Array | None, models: Rows, draws: int
) -> Array:
    """(k, draws) maxima of k models. A pair of two of them is computed once: Z_ji = −Z_ij."""
    rest = np.ones(len(offsets), dtype=bool)
    rest[models] = False
    order = np.concatenate([models, np.flatnonzero(rest)])
    if reverse is None and ((offsets == 0.0) | (offsets == -math.inf)).all():
        return chunk.maxima(offsets == 0.0, models, order)
    top = np.full((len(models), draws), -math.inf)
    for place, i in enumerate(models):
        others = order[place + 1 :]
        later = models[place + 1 :]
        if not len(others):
            break
        z = chunk(int(i), others)
        np.maximum(top[place], (z + offsets[i, others, None]).max(axis=0), out=top[place])
        np.maximum(
            top[place + 1 :], offsets[later, i, None] - z[: len(later)], out=top[place + 1 :]
        )
        if reverse is not None:
            np.maximum(top[place], (reverse[i, others, None] - z).max(axis=0), out=top[place])
            np.maximum(
                top[place + 1 :],
                z[: len(later)] + reverse[later, i, None],
                out=top[place + 1 :],
            )
    return top
