"""Looking after every item: bets on differences of losses, whose wealth is evidence at any
time.

With d_s = L_is − L_js from −1 to 1 and fixed bets λ_k, Σ_s log(1 + λ_k d_s) is all that is
kept of a pair of models. Fixed bets, because their wealth tests the average over the items
so far, whatever the order of hard and easy items; bets that follow the past test only
whether i is no worse at every single item (docs/evidence/derivations.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relfit.util.arrays import Array, Mask

# The mixture loses a factor of 12 at most to the best of its bets, which suits gaps of a
# ten-thousandth to a half.
BETS = tuple(0.9 * 0.5**k for k in range(12))
# A loss by a larger bet could be a factor of which a few are no longer a number.
LARGEST_BET = 0.999
# Items between two logarithms: 0.001^64 is still a number.
CHUNK = 64
# Logarithms of e-values are cut off here, so that means of them are numbers.
LARGEST_LOG = 600.0


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the losses of l models on the items so far amount to; axes before the models are
    repetitions.

    Attributes:
        wealth: (k, …, l, l) Σ log(1 + λ_k (L_i − L_j)) over the items that both models have.
        counts, totals: (…, l, l) the number of these items, and Σ (L_i − L_j) over them.
        sums: (…, l) Σ L_i over the items that a model has.
        items: the number of items.
        peak: (…, l) the largest log e-value of a model so far, corrected for the number of
            models.
        out: (…, l) the number of items after which a model was out, 0 while it is not.
    """

    wealth: Array
    counts: Array
    totals: Array
    sums: Array
    items: int
    peak: Array
    out: Array


def no_evidence(models: int, bets: int, repetitions: tuple[int, ...] = ()) -> Evidence:
    """The state before the first item."""
    each = (*repetitions, models)
    pairs = (*repetitions, models, models)
    wealth = np.zeros((bets, *pairs))
    counts = np.zeros(pairs)
    totals = np.zeros(pairs)
    return Evidence(
        wealth, counts, totals, np.zeros(each), 0, np.full(each, -LARGEST_LOG), np.zeros(each)
    )


def advance(evidence: Evidence, losses: Array, bets: Sequence[float], alpha: float) -> Evidence:
    """The evidence after (n, …, l) more losses, NaN where a model has none; any two of an
    item differ by at most 1.

    There is a look after every item, so that the answer does not depend on how many are
    given at once.
    """
    for start in range(0, len(losses), CHUNK):
        evidence = _chunk(
            evidence, losses[start : start + CHUNK], np.asarray(bets), math.log(1.0 / alpha)
        )
    return evidence


def _chunk(before: Evidence, losses: Array, bets: Array, level: float) -> Evidence:
    gaps = losses[..., :, None] - losses[..., None, :]
    missing = np.isnan(gaps)
    gaps[missing] = 0.0
    own = np.eye(gaps.shape[-1], dtype=bool)
    shift = np.where(own, -np.inf, before.wealth).max(axis=(0, -1))
    start = np.where(own, 0.0, np.exp(before.wealth - shift[..., None]))
    growth = np.ones_like(start)
    step = np.empty_like(start)
    by_bet = bets.reshape(-1, *(1,) * (start.ndim - 1))
    held = np.empty((len(gaps), *shift.shape))
    for k, gap in enumerate(gaps):
        np.multiply(by_bet, gap, out=step)
        step += 1.0
        growth *= step
        np.multiply(start, growth, out=step)
        held[k] = step.sum(axis=0).sum(axis=-1)
    log_e = closed(shift + np.log(held) - math.log(len(bets) * (gaps.shape[-1] - 1)))
    crossed = log_e >= level
    first = before.items + 1.0 + crossed.argmax(axis=0)
    return Evidence(
        before.wealth + np.log(growth),
        before.counts + (~missing).sum(axis=0),
        before.totals + gaps.sum(axis=0),
        before.sums + np.where(np.isnan(losses), 0.0, losses).sum(axis=0),
        before.items + len(losses),
        np.maximum(before.peak, log_e.max(axis=0)),
        np.where((before.out == 0.0) & crossed.any(axis=0), first, before.out),
    )


def closed(log_e: Array) -> Array:
    """Log e-values (…, l) corrected for all models at once: the smallest mean of a set of
    them with the model's own.

    If the models of a set S are all among the best, the mean over S is an e-process (Vovk
    and Wang 2021). The smallest mean is over the model and some of those with the least
    evidence.

    >>> np.exp(closed(np.log([1.0, 2.0, 30.0]))).round(6).tolist()
    [1.0, 1.5, 11.0]
    """
    order = np.argsort(log_e, axis=-1)
    e = np.exp(np.clip(np.take_along_axis(log_e, order, axis=-1), -LARGEST_LOG, LARGEST_LOG))
    fewer = np.concatenate(
        [np.zeros_like(e[..., :1]), np.cumsum(e, axis=-1)[..., :-1]], axis=-1
    )
    place = np.arange(e.shape[-1])
    means = (e[..., :, None] + fewer[..., None, :]) / (place + 1.0)
    means = np.where(place <= place[:, None], means, np.inf).min(axis=-1)
    result = np.empty_like(e)
    np.put_along_axis(result, order, np.log(means), axis=-1)
    return result


def log_e_pairs(evidence: Evidence, bets: Sequence[float], shift: Array | float = 0.0) -> Array:
    """(…, l, l) log e-values of "on average i is worse than j by at most `shift`"."""
    by_bet = np.asarray(bets).reshape(-1, *(1,) * (evidence.wealth.ndim - 1))
    logs = evidence.wealth - evidence.counts * np.log1p(by_bet * shift)
    return np.asarray(np.logaddexp.reduce(logs, axis=0)) - math.log(len(bets))


def log_e_models(evidence: Evidence, bets: Sequence[float]) -> Array:
    """(…, l) log e-values of "i is among the best", corrected for all models at once, after
    the last item.
    """
    return closed(_log_e_each(evidence, bets))


def _log_e_each(evidence: Evidence, bets: Sequence[float], shift: Array | float = 0.0) -> Array:
    """(…, l) log e-values of "i is worse than the best of the others by at most `shift`"."""
    pairs = log_e_pairs(evidence, bets, shift)
    own = np.eye(pairs.shape[-1], dtype=bool)
    sums = np.asarray(np.logaddexp.reduce(np.where(own, -np.inf, pairs), axis=-1))
    return sums - math.log(pairs.shape[-1] - 1)


def lower_limits(evidence: Evidence, bets: Sequence[float], alpha: float) -> Array:
    """(…, l, l) lower limits, each of level 1 − alpha at all times, for the average of L_i −
    L_j over the items so far.

    log E(m) = log mean_k exp(W_k − n log(1 + λ_k m)) falls in m; the limit is where it is
    log(1/alpha), by bisection.
    """
    low = np.full_like(evidence.totals, -1.0)
    high = np.ones_like(evidence.totals)
    level = math.log(1.0 / alpha)
    for _ in range(50):
        middle = (low + high) / 2.0
        refuted: Mask = log_e_pairs(evidence, bets, middle) >= level
        low = np.where(refuted, middle, low)
        high = np.where(refuted, high, middle)
    return low


def regrets(evidence: Evidence, bets: Sequence[float], alpha: float, lower: Array) -> Array:
    """(3, l) by how much each model is worse than the best of the others so far, and limits
    for that.

    With F_k the sum of the k smallest e-values of the other models, the closed e-value of i
    is at least 1/α where e_i ≥ max_k (k + 1)/α − F_k. The lower limit is the largest m ≥ 0
    at which this holds for e_i(m), the evidence against "i is worse than the best of the
    others by at most m"; it is 0 where it never holds. The upper limit is the largest of
    those for pairs, of which `lower` are the lower limits. Each model's limits have level 1
    − α at all times; see docs/evidence/derivations.md.
    """
    models = evidence.counts.shape[-1]
    e = np.exp(np.clip(_log_e_each(evidence, bets), -LARGEST_LOG, LARGEST_LOG))
    order = np.argsort(e)
    rank = np.argsort(order)[:, None]
    sums = np.concatenate([[0.0], np.cumsum(e[order])])
    k = np.arange(models)
    fewer = np.where(k <= rank, sums[k], sums[k + 1] - e[:, None])
    level = np.log(((k + 1.0) / alpha - fewer).max(axis=1))
    low = np.zeros(models)
    high = np.ones(models)
    for _ in range(24):
        middle = (low + high) / 2.0
        refuted: Mask = _log_e_each(evidence, bets, middle[:, None]) >= level
        low = np.where(refuted, middle, low)
        high = np.where(refuted, high, middle)
    own = np.eye(models, dtype=bool)
    upper = np.where(own, -1.0, -lower.T).max(axis=1)
    met = ~own & (evidence.counts > 0.0)
    gaps = np.divide(evidence.totals, evidence.counts, out=np.full(met.shape, -1.0), where=met)
    return np.stack([gaps.max(axis=1), low, upper])


def ranks(losses: Array) -> Array:
    """The losses (n, l) as ranks within each item: 0 for the best model, 1 for the worst,
    means for ties.

    >>> ranks(np.array([[0.3, 7.0, 0.3], [1.0, np.nan, 0.0]])).tolist()
    [[0.25, 1.0, 0.25], [1.0, nan, 0.0]]
    """
    above = (losses[:, :, None] > losses[:, None, :]).sum(axis=-1)
    level = (losses[:, :, None] == losses[:, None, :]).sum(axis=-1)
    there = (~np.isnan(losses)).sum(axis=-1, keepdims=True)
    return np.where(
        np.isnan(losses), np.nan, (above + 0.5 * (level - 1)) / np.maximum(there - 1, 1)
    )
