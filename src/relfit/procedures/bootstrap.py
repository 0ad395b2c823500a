"""Percentile-t bootstrap of the ψ rows: the law of studentised differences in small samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies.psi import Psi
from relfit.procedures.streams import Streams

Array = NDArray[np.float64]

# A resample whose standard error all but vanishes (it hit one row again and again) is kept finite by this.
SMALLEST_ERROR = 1e-6


@dataclass(frozen=True)
class _Resample:
    """Means of resampled rows, (l, draws), and what is needed for the variance of any difference."""

    rows: Array
    counts: Array
    mean: Array

    def difference_variance(self, i: int) -> Array:
        """(l−1−i, draws) variances of mean*_i − mean*_j, j > i: Σ_a W_a(x_a − x̄*)²/(n(n−1)), x = ψ_i − ψ_j."""
        n = len(self.rows)
        square = np.square(self.rows[:, i, None] - self.rows[:, i + 1 :])
        centre = self.mean[i] - self.mean[i + 1 :]
        return np.asarray((square.T @ self.counts - n * np.square(centre)) / (n * (n - 1)))


def bootstrap_chunk(psi: Psi, error: Array, streams: Streams, draws: int) -> Callable[[int], Array]:
    """A function of i giving (l−1−i, draws) values of (δ*_i − δ*_j)/s*_ij, j > i.

    δ* = mean of the resampled ψR rows + each model's mean of its resampled ψX rows, and s*_ij is computed
    from that same resample as s_ij was from the data. Reference rows are resampled together for all models
    (they are shared), each model's own rows separately, or together when they are `shared`.
    """
    joined = [] if psi.reference is None else [_resample(psi.reference, streams.reference, draws)]
    own_mean, own_variance = np.zeros((2, len(error), draws))
    if psi.models and psi.shared:
        joined.append(_resample(np.stack(psi.models, axis=1), streams.reference, draws))
    elif psi.models:
        own_mean, own_variance = _separate(psi.models, streams, draws)
    delta = own_mean + sum(part.mean for part in joined)

    def studentised(i: int) -> Array:
        variance = own_variance[i] + own_variance[i + 1 :]
        for part in joined:
            variance = variance + part.difference_variance(i)
        floor = SMALLEST_ERROR * error[i, i + 1 :, None]
        spread = np.maximum(np.sqrt(np.maximum(variance, 0.0)), floor)
        gap = delta[i] - delta[i + 1 :]
        return np.asarray(np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0.0))

    return studentised


def _resample(rows: Array, rng: np.random.Generator, draws: int) -> _Resample:
    counts = _counts(len(rows), rng, draws)
    return _Resample(rows, counts, rows.T @ counts / len(rows))


def _separate(models: tuple[Array, ...], streams: Streams, draws: int) -> tuple[Array, Array]:
    """(l, draws) means of each model's resampled rows and their variances, independent between models.

    Models of one size share a table of resamples, and each reads its columns in a random order of its own:
    in any one draw two models use different resamples (but for one draw in `draws`).
    """
    means, variances = np.empty((2, len(models), draws))
    for m in sorted({len(rows) for rows in models}):
        counts = _counts(m, streams.reference, draws)
        for i in (i for i, rows in enumerate(models) if len(rows) == m):
            order = streams.models[i].permutation(draws)
            mean = (models[i] @ counts)[order] / m
            square = (np.square(models[i]) @ counts)[order]
            means[i], variances[i] = mean, (square - m * np.square(mean)) / (m * (m - 1))
    return means, variances


def _counts(n: int, rng: np.random.Generator, draws: int) -> Array:
    """(n, draws): how often each of n rows is drawn in n drawings with replacement."""
    drawn = rng.integers(n, size=(n, draws)) * draws + np.arange(draws)
    return np.bincount(drawn.ravel(), minlength=n * draws).reshape(n, draws).astype(float)
