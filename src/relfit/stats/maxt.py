"""The law of maxima of studentised differences: what a max-t test compares its statistic with.

It is the normal law of `law`. Few rows and skewness are allowed for in the ratios
(`decision.Differences`), each on the scale of its own p-value. Tests use it by
`relfit.stats.distribution`, bounds and ranks by `Law.maxima` and
`quantile`; planning uses `Maxima`. Random numbers belong to the ranks of the estimates:
permuting the models permutes the draws, and other names change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtri

from relfit.stats.joint import JointEstimate
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.libraries import usable_cores
from relfit.util.random import stream

# Draws at once: temporaries of a few megabytes, near the processor.
CHUNK = 2000
# Draws of normal pairs in a block, at least and of all models, and the models from which on
# threads share the blocks.
_BLOCK = 256
_BLOCK_NUMBERS = 2**14
MANY_MODELS = 200
# With fewer draws than this beyond it, a quantile is mostly noise.
FEWEST_BEYOND = 10
# Draws beyond a statistic that settle its p-value to a thirtieth of itself: at α = .05 that
# takes all 20,000.
ENOUGH_BEYOND = 1000
# Sets of models whose law of the maximum is remembered, 160 kB each.
_MOST_REMEMBERED = 500

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
            row_maxima(self.chunk(count), offsets, reverse, everyone, count)
            for count in self.counts()
        ]
        return np.concatenate(parts, axis=1)

    def counts(self) -> Iterator[int]:
        """The numbers of draws at once."""
        for start in range(0, self.draws, CHUNK):
            yield min(CHUNK, self.draws - start)


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


def studentised(g: Array, error: Array, cap: Array | None = None) -> NormalPairs:
    """Z_ij of the draws g (l, draws) of G."""
    return NormalPairs(
        g, np.divide(1.0, error, out=np.zeros_like(error), where=error > 0.0), cap
    )


@dataclass(frozen=True)
class NormalPairs:
    """Z_ij = (G_i − G_j) scale_ij of draws G (l, draws), and no further from 0 than cap_ij."""

    g: Any
    scale: Any
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
        many = len(order) >= MANY_MODELS
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


def row_maxima(
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
