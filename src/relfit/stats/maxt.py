"""The law of maxima of studentised differences: what a max-t test compares its statistic with.

The best set, bounds and ranks use `null_laws` with `maximum_log_pvalues`, and `law` with `Law.maxima` and
`Law.critical`; planning uses `Maxima`. Random numbers belong to a model and not to its place in the list: permuting the
models permutes the draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, stdtr, stdtrit

from relfit.stats.joint import SMALL_SAMPLE, JointEstimate, Psi, has_psi_covariance, psi_rows, smallest_sample
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.libraries import usable_cores
from relfit.util.random import stream

GAUSSIAN, STUDENT, BOOTSTRAP, SERIES = "gaussian", "student", "bootstrap", "series"
# Draws at once: temporaries of a few megabytes, near the processor.
CHUNK, CHUNK_NUMBERS = 2048, 2_000_000
# Draws in a block of normal pairs, and the models from which on threads share the blocks.
_BLOCK, _MANY_MODELS = 256, 200
# With fewer draws than this beyond it, a quantile is mostly noise.
FEWEST_BEYOND = 10
# Draws beyond a statistic that settle its p-value to a thirtieth of itself: at α = .05 that takes all 20,000.
ENOUGH_BEYOND = 1000
# Sets of models whose law of the maximum is remembered, 160 kB each.
_MOST_REMEMBERED = 500
# Ratios that differ by less than this are the same.
_SAME_RATIO = 1e-9
# A resample whose standard error is this small a part of the data's has none.
_SMALLEST_ERROR = 1e-6

Pairs = Callable[[int, Rows], Array]
"""Given i and k models j: (k, draws) values of Z_ij."""

Source = np.random.Generator | Callable[[str | None], np.random.Generator]
"""A Generator, or a function from a model's name (None: the reference) to its own Generator."""


@dataclass(frozen=True)
class Streams:
    """One generator for the reference and one per model; they may all be the same one."""

    reference: np.random.Generator
    models: tuple[np.random.Generator, ...]


def streams(source: Source, names: Sequence[str]) -> Streams:
    """The generators of these models, in their order.

    With a function of the name the noise follows the models when they are permuted; a single Generator
    serves them in turn.
    """
    if isinstance(source, np.random.Generator):
        return Streams(source, (source,) * len(names))
    return Streams(source(None), tuple(source(name) for name in names))


def seeded(seed: int, test: str) -> Source:
    """The source a test draws from in a comparison with this seed: one stream per model name."""

    def source(name: str | None) -> np.random.Generator:
        return stream(seed, test, "reference" if name is None else f"model {name}")

    return source


def normal_draws(root: Array, models: Sequence[np.random.Generator], draws: int) -> Array:
    """(l, draws) columns of N(0, V), with `root` from `covariance_root`."""
    return np.asarray(root @ np.stack([rng.standard_normal(draws) for rng in models]))


def covariance_root(covariance: Array) -> Array:
    """A matrix A with A Aᵀ = V, which exists for singular V too: A = S C^½, V = S C S, S the standard errors.

    C^½ is the symmetric root of the correlations. A permutation P of the models turns A into P A Pᵀ, which
    no triangular root does: permuted noise gives permuted draws.

    >>> covariance_root(np.array([[4.0, 0.0], [0.0, 0.0]])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    scale = np.sqrt(np.diag(covariance))
    safe = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / safe / safe[:, None])
    return np.asarray(scale[:, None] * ((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T))


@dataclass(frozen=True)
class Law:
    """Draws of Z_ij ≈ (D_i − D_j − E)/s_ij, jointly for all pairs, by one `method`.

    Each call draws anew. Nothing of the size draws × l × l is ever held.
    """

    method: str
    draws: int
    rows: int | None
    chunk: Callable[[int], Pairs]
    pair_freedom: Array | None = None

    @property
    def freedom(self) -> int | None:
        """The degrees of freedom of the tails; None for normal ones."""
        return None if self.rows is None or self.method == GAUSSIAN else self.rows - 1

    def maxima(self, offsets: Array, reverse: Array | None = None) -> Array:
        """(l, draws) values of max_j (Z_ij + offset_ij), or of max_j max(Z_ij + offset_ij, −Z_ij + reverse_ij).

        An offset of −inf, as pairs without variance and the diagonal must have, leaves the pair out.
        """
        everyone = np.arange(len(offsets))
        parts = [_row_maxima(self.chunk(count), offsets, reverse, everyone, count) for count in self._counts()]
        return np.concatenate(parts, axis=1)

    def exceedances(self, offsets: Array, statistic: Array) -> tuple[Rows, Rows]:
        """(l,) the number of draws of max_j (Z_ij + offset_ij) that reach T_i, and of those made for model i.

        A model leaves once ENOUGH_BEYOND draws have reached its statistic (Besag and Clifford 1991): its p-value is
        known well enough, and a small one is still settled by all `draws`.
        """
        reached, made = np.zeros((2, len(offsets)), dtype=np.intp)
        statistic = self._drawn(statistic)
        left = np.flatnonzero((offsets > -math.inf).any(axis=1))
        for count in self._counts():
            if not len(left):
                break
            top = _row_maxima(self.chunk(count), offsets, None, left, count)
            reached[left] += (top >= statistic[left, None]).sum(axis=1)
            made[left] += count
            left = left[reached[left] < ENOUGH_BEYOND]
        return reached, made

    def steps(self, offsets: Array, statistic: Array, order: Rows) -> tuple[Rows, Rows, int]:
        """How often the maxima of one draw reach the statistics T, for models in the order of falling T.

        (l,) the draws of max_j (Z_ij + offset_ij) that reach T_i, and of the largest of these maxima over i and all
        models after it; and the number of draws made. Models in front whose union bound is below the resolution of the
        draws need none. Once ENOUGH_BEYOND draws have reached the first statistic that does, its p-value is plainly
        large, and those after it are no smaller.
        """
        own, later = np.zeros((2, len(offsets)), dtype=np.intp)
        first = 0
        if self.method != BOOTSTRAP:
            settled = self._log_steps(offsets, statistic, order) <= -math.log1p(self.draws)
            first = int(np.argmin(settled)) if not settled.all() else len(order)
        models, made = order[first:], 0
        if not (offsets[models] > -math.inf).any():
            return own, later, 0
        # Resamples of 0/1 losses often equal the statistic, but for rounding.
        reach = self._drawn(statistic)[models, None] - _SAME_RATIO
        for count in self._counts():
            top = _row_maxima(self.chunk(count), offsets, None, models, count)
            own[models] += (top >= reach).sum(axis=1)
            np.maximum.accumulate(top[::-1], axis=0, out=top[::-1])
            later[models] += (top >= reach).sum(axis=1)
            made += count
            if later[models[0]] >= ENOUGH_BEYOND:
                break
        return own, later, made

    def _log_steps(self, offsets: Array, statistic: Array, order: Rows) -> Array:
        """(l,) in the order given: the log of the sum of P(Z_kj ≥ T_i) over the pairs (k, j) of i and all after it."""
        pairs = np.cumsum((offsets[order] > -math.inf).sum(axis=1)[::-1])[::-1]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(pairs) + self._log_tail(statistic[order]))

    def _log_tail(self, distance: Array) -> Array:
        """log P(Z ≥ distance) of a single pair."""
        if self.freedom is None:
            return np.asarray(log_ndtr(-distance))
        with np.errstate(divide="ignore"):
            return np.asarray(
                np.log(np.where(distance < math.inf, np.maximum(stdtr(self.freedom, -distance), 5e-324), 0))
            )

    def log_union(self, offsets: Array, statistic: Array) -> Array:
        """(l,) log Σ_j P(Z_ij + offset_ij ≥ T_i), an upper bound: normal tails, or Student's with few rows."""
        distance = offsets - statistic[:, None]
        if self.freedom is None:
            return np.asarray(np.logaddexp.reduce(log_ndtr(distance), axis=1))
        each = self.freedom if self.pair_freedom is None else self.pair_freedom
        tail = np.maximum(stdtr(each, distance), np.where(distance > -math.inf, 5e-324, 0.0))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(tail.sum(axis=1)))

    def critical(self, top: Array, level: float, pairs: int) -> float:
        """The `level` quantile of these draws of a maximum over `pairs` pairs (offsets ≤ 0).

        The ⌈level (draws + 1)⌉-th smallest. Where fewer than ten draws lie beyond it, the union bound instead,
        and for a single pair too, where it is exact unless the draws are resamples.
        """
        tail = 1.0 - level
        if pairs == 0:
            return -math.inf
        if tail * (len(top) + 1) < FEWEST_BEYOND or (pairs == 1 and self.method != BOOTSTRAP):
            return -float(ndtri(tail / pairs) if self.freedom is None else stdtrit(self.freedom, tail / pairs))
        place = math.ceil(level * (len(top) + 1)) - 1
        found = float(np.partition(top, place)[place])
        return found if self.method != SERIES else float(stdtrit(self.freedom, ndtr(found)))

    def _drawn(self, statistic: Array) -> Array:
        """The statistic in the units of the draws: those of a series are normal, and each pair has Student's tails."""
        return statistic if self.method != SERIES else np.asarray(-ndtri(stdtr(self.freedom, -statistic)))

    def _counts(self) -> Iterator[int]:
        at_once = _table_width(self.rows) if self.method == BOOTSTRAP else CHUNK
        for start in range(0, self.draws, at_once):
            yield min(at_once, self.draws - start)


def law(joint: JointEstimate, error: Array, source: Source, draws: int, method: str | None = None) -> Law:
    """The law of the studentised differences of these estimates (`error` = s_ij).

    "gaussian": Z_ij = (G_i − G_j)/s_ij, G ~ N(0, V). "student": that over √(χ²_{n−1}/(n−1)), one χ² for all pairs, n
    the rows (or groups) of the smallest sample: V, too, was estimated from them. "bootstrap": percentile-t bootstrap
    of the ψ rows. By default, with fewer than 300 rows, the bootstrap where V is that of the ψ rows and Student's law
    where it is not; otherwise gaussian, and also where the number of rows is not known.

    A series with L lags has Student's law at every n, with 3n/(2(L + 1)) degrees of freedom, as many as Bartlett's
    estimate of the variance has. These estimates err by much, and each pair of models in its own way: "series" is the
    law of max (G_i − G_j)/s_ij with the tails of each pair made Student's, and not with one χ² for all of them. The
    bootstrap resamples blocks of successive rows.
    """
    generators, rows = streams(source, joint.names), psi_rows(joint) or smallest_sample(joint)
    if method is None:
        small = rows is not None and 1 < rows < SMALL_SAMPLE
        method = GAUSSIAN if not small else BOOTSTRAP if has_psi_covariance(joint) else STUDENT
    if joint.lags is not None and rows is not None:
        method = BOOTSTRAP if method == BOOTSTRAP else SERIES
        rows = 1 + max(1, int(1.5 * rows / (joint.lags + 1)))
    if method == BOOTSTRAP and joint.psi is not None:
        chunk = bootstrap(joint.psi, error, generators, min(draws, _table_width(rows)))
        return Law(BOOTSTRAP, draws, rows, chunk)
    if rows is None or rows < 2:
        method = GAUSSIAN
    if method == STUDENT and joint.psi is not None and joint.psi.reference is None and not joint.psi.shared:
        return _welch_law(joint, [len(psi) - 1.0 for psi in joint.psi.models], generators, draws, rows)
    root, freedom = covariance_root(joint.covariance), None if method != STUDENT or rows is None else rows - 1

    def normal(count: int) -> Pairs:
        return studentised_normal(normal_draws(root, generators.models, count), error, generators, freedom)

    return Law(method, draws, rows, normal)


def _welch_law(
    joint: JointEstimate, freedom: Sequence[float], generators: Streams, draws: int, rows: int | None
) -> Law:
    """Student's law of samples that have nothing in common: each variance has its own degrees of freedom.

    ``Z_ij = (G_i − G_j)/√(V_ii c_i + V_jj c_j)``, c = χ²_ν/ν; a pair by itself has Welch's degrees of freedom. A short
    sample, or a chain that mixes slowly, makes the tails of its own differences heavy, and of no others.
    """
    variances, each = np.diag(joint.covariance), np.asarray(freedom)[:, None]

    def chunk(count: int) -> Pairs:
        g = np.sqrt(variances)[:, None] * np.stack([rng.standard_normal(count) for rng in generators.models])
        chi = [rng.chisquare(nu, count) / nu for rng, nu in zip(generators.models, freedom, strict=True)]
        spread = variances[:, None] * np.stack(chi)

        def pairs(i: int, others: Rows) -> Array:
            gap, error = g[i] - g[others], np.sqrt(spread[i] + spread[others])
            return np.asarray(np.divide(gap, error, out=np.zeros_like(gap), where=error > 0.0))

        return pairs

    total, parts = variances[:, None] + variances, np.square(variances)[:, None] / each
    uncertain = parts + parts.T
    welch = np.divide(np.square(total), uncertain, out=np.ones_like(total), where=uncertain > 0.0)
    return Law(STUDENT, draws, rows, chunk, welch)


def null_laws(joint: JointEstimate, error: Array, source: Source, draws: int) -> list[Law]:
    """The laws, if all models are equally good, that a test compares its statistic with; the largest p-value counts.

    A bootstrap alone gives far too small p-values where a few rows make up a difference, as with 0/1 losses: resampled,
    such a difference moves with its own standard error. So Student's law is used as well.
    """
    first = law(joint, error, source, draws)
    return [first, law(joint, error, source, draws, STUDENT)] if first.method == BOOTSTRAP else [first]


def maximum_log_pvalues(laws: Sequence[Law], offsets: Sequence[Array], statistic: Array) -> Array:
    """(l,) log P(max_j (Z_ij + offset_ij) ≥ T_i) under a law, or under several, one for each kernel.

    The draws of several laws belong together, and the maximum is over the kernels too. ``(1 + #{max ≥ T_i})/(1 +
    draws)``, no larger than the sum of the pairs' own tails, exactly that for a single pair, and 1 where no pair is
    left. The tails of a bootstrap are Student's, and used only below the resolution of the draws, where none reached
    T_i.
    """
    members = np.sum([(each > -math.inf).sum(axis=1) for each in offsets], axis=0)
    statistic = np.where(members > 0, statistic, 0.0)
    if len(laws) == 1:
        reached, made = laws[0].exceedances(offsets[0], statistic)
    else:
        maxima = np.maximum.reduce([each.maxima(offset) for each, offset in zip(laws, offsets, strict=True)])
        reached, made = (maxima >= statistic[:, None]).sum(axis=1), np.full(len(statistic), laws[0].draws)
    log_p = np.log((1.0 + reached) / (1.0 + made))
    unions = [each.log_union(offset, statistic) for each, offset in zip(laws, offsets, strict=True)]
    union = np.logaddexp.reduce(unions, axis=0)
    if laws[0].method != BOOTSTRAP:
        log_p = np.where(members == 1, union, np.minimum(log_p, union))
    else:
        log_p = np.where(reached == 0, np.minimum(log_p, union), log_p)
    return np.where(members > 0, np.minimum(log_p, 0.0), 0.0)


def stepdown_log_pvalues(laws: Sequence[Law], offsets: Sequence[Array], statistic: Array) -> tuple[Array, Array]:
    """(l,) log p of every model by itself, as `maximum_log_pvalues`, and log p of the step at which its turn comes.

    Models step down from the largest T_i. At the step of i the statistic T_i is compared with the largest maximum
    max_j (Z_kj + offset_kj) over the models k that are left, i among them. Offsets are 0 or −inf. Adjusted p-values are
    the largest ones up to a model's own step (Romano and Wolf 2005). One set of draws serves all models and steps.
    """
    order = np.argsort(-statistic, kind="stable")
    if len(laws) == 1:
        own, later, made = laws[0].steps(offsets[0], statistic, order)
    else:
        top = np.maximum.reduce([each.maxima(offset) for each, offset in zip(laws, offsets, strict=True)])[order]
        own, later = np.zeros((2, len(order)), dtype=np.intp)
        own[order] = (top >= statistic[order, None]).sum(axis=1)
        later[order] = (np.maximum.accumulate(top[::-1], axis=0)[::-1] >= statistic[order, None]).sum(axis=1)
        made = laws[0].draws
    members = np.sum([(each > -math.inf).sum(axis=1) for each in offsets], axis=0)
    left = np.empty_like(members)
    left[order] = np.cumsum(members[order][::-1])[::-1]
    answers = []
    for reached, pairs in ((own, members), (later, left)):
        with np.errstate(divide="ignore"):
            union = np.log(pairs) + laws[0]._log_tail(statistic)
        log_p = np.log((1.0 + reached) / (1.0 + made))
        if laws[0].method != BOOTSTRAP:
            log_p = np.where(pairs == 1, union, np.minimum(log_p, union))
        else:
            log_p = np.where(reached == 0, np.minimum(log_p, union), log_p)
        answers.append(np.where(members > 0, np.minimum(log_p, 0.0), 0.0))
    return answers[0], answers[1]


def studentised_normal(g: Array, error: Array, generators: Streams, freedom: int | None) -> Pairs:
    """Z_ij of the draws g (l, draws) of G; with degrees of freedom Student's, from one χ² for each draw."""
    if freedom is not None:
        g = g / np.sqrt(generators.reference.chisquare(freedom, g.shape[1]) / freedom)
    return NormalPairs(g, np.divide(1.0, error, out=np.zeros_like(error), where=error > 0.0))


@dataclass(frozen=True)
class NormalPairs:
    """Z_ij = (G_i − G_j) scale_ij of draws G (l, draws)."""

    g: Array
    scale: Array

    def __call__(self, i: int, others: Rows) -> Array:
        """(k, draws) values of Z_ij for k models j."""
        return np.asarray((self.g[i] - self.g[others]) * self.scale[i, others, None])

    def maxima(self, kept: Mask, models: Rows, order: Rows) -> Array:
        """(k, draws) values of max_j Z_ij over the pairs that are kept, for k models, which come first in the order.

        Every draw is a problem of its own: blocks of them fit into the cache. For many models threads share the blocks,
        in single precision, which is far finer than the draws are.
        """
        many = len(order) >= _MANY_MODELS
        number = np.float32 if many else np.float64
        g, scale = self.g[order].astype(number), self.scale[np.ix_(order, order)].astype(number)
        kept, top = kept[np.ix_(order, order)], np.full((len(models), g.shape[1]), -math.inf, dtype=number)
        either = kept | kept.T
        others = [place + 1 + np.flatnonzero(either[place, place + 1 :]) for place in range(len(models))]

        def block(start: int) -> None:
            part, best = g[:, start : start + _BLOCK], top[:, start : start + _BLOCK]
            for place, those in enumerate(others):
                if not len(those):
                    continue
                # Slices need no copy.
                whole = len(those) == those[-1] - those[0] + 1
                z = part[place] - part[those[0] : those[-1] + 1] if whole else part[place] - part[those]
                z *= scale[place, those, None]
                at = kept[place, those]
                if at.any():
                    np.maximum(best[place], (z if at.all() else z[at]).max(axis=0), out=best[place])
                back = kept[those, place] & (those < len(models))
                if back.any():
                    whole = whole and bool(back.all())
                    if whole:
                        rows = best[those[0] : those[-1] + 1]
                        np.maximum(rows, np.negative(z, out=z), out=rows)
                    else:
                        best[those[back]] = np.maximum(best[those[back]], -z[back])

        starts = range(0, g.shape[1], _BLOCK)
        if many:
            with ThreadPoolExecutor(usable_cores()) as pool:
                list(pool.map(block, starts))
        else:
            list(map(block, starts))
        return top.astype(np.float64)


@dataclass(frozen=True)
class Maxima:
    """The law of max_{j∈K} (G_i − G_j)/s_ij for simulated trials, from (l, draws) draws of G ~ N(0, V).

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
            # A copy that varies in some trials has no law here; the other models bound its maximum from below.
            varies = members & (self.error[i] > 0.0)
            z = (self.draws[i] - self.draws[varies]) / self.error[i, varies, None]
            self.remembered[key] = np.sort(z.max(axis=0, initial=-math.inf))
        maxima = self.remembered[key]
        return np.asarray((1.0 + len(maxima) - np.searchsorted(maxima, statistic)) / (1.0 + len(maxima)))

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


def _table_width(rows: int | None) -> int:
    return max(64, min(CHUNK, CHUNK_NUMBERS // (rows or 1)))


def _row_maxima(chunk: Pairs, offsets: Array, reverse: Array | None, models: Rows, draws: int) -> Array:
    """(k, draws) maxima of k models. A pair of two of them is computed once: Z_ji = −Z_ij."""
    rest = np.setdiff1d(np.arange(len(offsets)), models)
    order = np.concatenate([models, rest])
    if isinstance(chunk, NormalPairs) and reverse is None and not offsets[np.isfinite(offsets)].any():
        return chunk.maxima(offsets == 0.0, models, order)
    top = np.full((len(models), draws), -math.inf)
    for place, i in enumerate(models):
        others, later = order[place + 1 :], models[place + 1 :]
        if not len(others):
            break
        z = chunk(int(i), others)
        np.maximum(top[place], (z + offsets[i, others, None]).max(axis=0), out=top[place])
        np.maximum(top[place + 1 :], offsets[later, i, None] - z[: len(later)], out=top[place + 1 :])
        if reverse is not None:
            np.maximum(top[place], (reverse[i, others, None] - z).max(axis=0), out=top[place])
            np.maximum(top[place + 1 :], z[: len(later)] + reverse[later, i, None], out=top[place + 1 :])
    return top


# ── the percentile-t bootstrap of the ψ rows: the law of studentised differences in small samples ────────────────────


def bootstrap(psi: Psi, error: Array, generators: Streams, at_once: int) -> Callable[[int], Pairs]:
    """A function of the number of draws (at most `at_once`) that draws anew each time it is called.

    It gives a function of i and models j with (k, draws) values of (δ*_i − δ*_j)/s*_ij: δ* = mean of the resampled ψR
    rows + each model's mean of its resampled ψX rows, and s*_ij computed from that same resample as s_ij was from the
    data. Reference rows are resampled together for all models (they are shared), each model's own rows separately, or
    together when they are `shared`.

    Few random numbers make many resamples: a resample is a vector of counts, how often each of n rows is drawn, and its
    law does not change when the counts are dealt to the rows in another order. So one table of counts serves every
    chunk of draws: each chunk deals it to the rows anew. Draws of different chunks then share no more than how often
    rows are repeated, which has little effect on a studentised mean.

    The rows of a series are the means of all its blocks of b = min(L + 1, ⌈1.5 n^⅓⌉) successive rows, L being its lags,
    of which a resample draws n/b (the moving-block bootstrap, studentised by the spread of its blocks: Götze and Künsch
    1996).
    """
    together = [] if psi.reference is None else [psi.reference]
    together += [np.stack(psi.models, axis=1)] if psi.models and psi.shared else []
    separate = () if psi.shared else psi.models
    drawn = {len(rows): len(rows) for rows in (*together, *separate)}
    if psi.lags and psi.reference is not None:
        length = min(psi.lags + 1, math.ceil(1.5 * len(psi.reference) ** (1.0 / 3.0)))
        blocks = np.lib.stride_tricks.sliding_window_view(psi.reference, length, axis=0).mean(axis=2)
        together = [blocks - blocks.mean(axis=0)]
        drawn = {len(blocks): len(psi.reference) // length}
    tables = {n: _counts(n, generators.reference, at_once, drawn[n]) for n in sorted(drawn)}

    def chunk(draws: int) -> Pairs:
        joined = [_deal(rows, tables[len(rows)], generators.reference, draws) for rows in together]
        joint_means = [rows.T @ counts.T / drawn[len(rows)] for rows, counts in joined]
        means, variances = _separate(separate, tables, generators, draws) if separate else (0.0, None)
        delta = np.asarray(means + sum(joint_means))

        def pairs(i: int, others: Rows) -> Array:
            gap = delta[i] - delta[others]
            variance = np.zeros_like(gap) if variances is None else variances[i] + variances[others]
            for (rows, counts), mean in zip(joined, joint_means, strict=True):
                alone = len(joined) == 1 and variances is None
                between = gap if alone else mean[i] - mean[others]
                variance += _variance(rows, counts, i, others, between, drawn[len(rows)])
            usual = error[i, others, None]
            # A resample without variance, which hit none of the few rows that differ, says nothing about the spread.
            spread = np.where(variance > np.square(_SMALLEST_ERROR * usual), np.sqrt(np.maximum(variance, 0.0)), usual)
            return np.asarray(np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0.0))

        return pairs

    return chunk


def _deal(rows: Array, table: Array, rng: np.random.Generator, draws: int) -> tuple[Array, Array]:
    """The rows (n, l) in a new order, and their counts (draws, n), shuffled, so that two parts share none."""
    return rows[rng.permutation(len(rows))], table[rng.permutation(len(table))[:draws]]


def _variance(rows: Array, counts: Array, i: int, others: Rows, gap: Array, n: int) -> Array:
    """(k, draws) variances of `gap` = mean*_i − mean*_j: Σ_a W_a(x_a − x̄*)²/(n(n−1)), x = ψ_i − ψ_j, n = Σ_a W_a."""
    square = np.square(rows[:, i, None] - rows[:, others])
    return np.asarray((square.T @ counts.T - n * np.square(gap)) / (n * (n - 1)))


def _separate(
    models: tuple[Array, ...], tables: dict[int, Array], generators: Streams, draws: int
) -> tuple[Array, Array]:
    """(l, draws) means of each model's resampled rows and their variances, independent between models.

    Each model has the table dealt in an order of its own, and reads its draws in an order of its own: in any one draw
    two models use different counts (except in one draw of as many as the table has).
    """
    means, variances = np.empty((2, len(models), draws))
    for m, table in tables.items():
        same = [i for i, rows in enumerate(models) if len(rows) == m]
        dealt = np.stack([generators.models[i].permutation(models[i]) for i in same]) if same else np.empty((0, m))
        mean, square = dealt @ table.T / m, np.square(dealt) @ table.T
        variance = (square - m * np.square(mean)) / (m * (m - 1))
        for k, i in enumerate(same):
            order = generators.models[i].permutation(len(table))[:draws]
            means[i], variances[i] = mean[k, order], variance[k, order]
    return means, variances


def _counts(n: int, rng: np.random.Generator, draws: int, number: int) -> Array:
    """(draws, n) times that each of n rows is drawn, in `number` drawings with replacement."""
    drawn = rng.integers(n, size=(draws, number)) + n * np.arange(draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=n * draws).reshape(draws, n).astype(float)
