"""Percentile-t bootstrap of the ψ rows: the law of studentised differences in small samples.

*Few random numbers, many resamples.* A resample is a vector of counts, how often each of n rows is drawn, and
its law does not change when the counts are dealt to the rows in another order. So one table of counts serves
every chunk of draws: each chunk deals it to the rows anew. Draws of different chunks then share no more than how
often rows are repeated, which hardly moves a studentised mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies.psi import Psi
from relfit.procedures.streams import Streams

Array = NDArray[np.float64]
Pairs = Callable[[int, NDArray[np.intp]], Array]
"""Given i and k models j: (k, draws) values of Z_ij."""

# A resample whose standard error all but vanishes (it hit one row again and again) is kept finite by this.
SMALLEST_ERROR = 1e-6


@dataclass(frozen=True)
class _Joined:
    """Resampled rows (n, l) that all models share: their counts (draws, n) and their means (l, draws)."""

    rows: Array
    counts: Array
    mean: Array

    def difference_variance(self, i: int, others: NDArray[np.intp], gap: Array) -> Array:
        """(k, draws) variances of `gap` = mean*_i − mean*_j: Σ_a W_a(x_a − x̄*)²/(n(n−1)), x = ψ_i − ψ_j."""
        n = len(self.rows)
        square = np.square(self.rows[:, i, None] - self.rows[:, others])
        return np.asarray((square.T @ self.counts.T - n * np.square(gap)) / (n * (n - 1)))


def bootstrap(psi: Psi, error: Array, streams: Streams, at_once: int) -> Callable[[int], Pairs]:
    """A function of the number of draws (at most `at_once`) that draws anew each time it is called.

    It gives a function of i and models j with (k, draws) values of (δ*_i − δ*_j)/s*_ij: δ* = mean of the
    resampled ψR rows + each model's mean of its resampled ψX rows, and s*_ij computed from that same resample
    as s_ij was from the data. Reference rows are resampled together for all models (they are shared), each
    model's own rows separately, or together when they are `shared`.
    """
    together = [] if psi.reference is None else [psi.reference]
    together += [np.stack(psi.models, axis=1)] if psi.models and psi.shared else []
    separate = () if psi.shared else psi.models
    sizes = sorted({len(rows) for rows in (*together, *separate)})
    tables = {n: _counts(n, streams.reference, at_once) for n in sizes}

    def chunk(draws: int) -> Pairs:
        joined = [_deal(rows, tables[len(rows)], streams.reference, draws) for rows in together]
        own_mean, own_variance = _separate(separate, tables, streams, draws) if separate else (0.0, None)
        return _studentised(error, joined, np.asarray(own_mean), own_variance)

    return chunk


def _studentised(error: Array, joined: list[_Joined], own_mean: Array, own_variance: Array | None) -> Pairs:
    delta = np.asarray(own_mean + sum(part.mean for part in joined))

    def pairs(i: int, others: NDArray[np.intp]) -> Array:
        gap = delta[i] - delta[others]
        variance = np.zeros_like(gap) if own_variance is None else own_variance[i] + own_variance[others]
        for part in joined:
            own_gap = gap if len(joined) == 1 and own_variance is None else part.mean[i] - part.mean[others]
            variance += part.difference_variance(i, others, own_gap)
        spread = np.sqrt(np.maximum(variance, np.square(SMALLEST_ERROR * error[i, others, None])))
        return np.asarray(np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0.0))

    return pairs


def _deal(rows: Array, table: Array, rng: np.random.Generator, draws: int) -> _Joined:
    """The table's counts, dealt to the rows in a new order; draws shuffled, so that two parts share none."""
    dealt = rows[rng.permutation(len(rows))]
    counts = table[rng.permutation(len(table))[:draws]]
    return _Joined(dealt, counts, dealt.T @ counts.T / len(rows))


def _separate(models: tuple[Array, ...], tables: dict[int, Array], streams: Streams, draws: int) -> tuple[Array, Array]:
    """(l, draws) means of each model's resampled rows and their variances, independent between models.

    Each model has the table dealt in an order of its own, and reads its draws in an order of its own: in any
    one draw two models use different counts (but for one draw in as many as the table holds).
    """
    means, variances = np.empty((2, len(models), draws))
    for m, table in tables.items():
        same = [i for i, rows in enumerate(models) if len(rows) == m]
        dealt = np.stack([streams.models[i].permutation(models[i]) for i in same]) if same else np.empty((0, m))
        mean, square = dealt @ table.T / m, np.square(dealt) @ table.T
        variance = (square - m * np.square(mean)) / (m * (m - 1))
        for k, i in enumerate(same):
            order = streams.models[i].permutation(len(table))[:draws]
            means[i], variances[i] = mean[k, order], variance[k, order]
    return means, variances


def _counts(n: int, rng: np.random.Generator, draws: int) -> Array:
    """(draws, n): how often each of n rows is drawn in n drawings with replacement."""
    drawn = rng.integers(n, size=(draws, n)) + n * np.arange(draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=n * draws).reshape(draws, n).astype(float)
