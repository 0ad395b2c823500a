"""What the law of models close to the data needs to know (`relfit.stats.close`), from features at landmarks."""

from __future__ import annotations

import numpy as np

from relfit.data.load import Data
from relfit.estimators.base import Estimates, EstimateSettings, samples_of
from relfit.estimators.groups import row_orders
from relfit.estimators.kernel import centre_for
from relfit.estimators.locations import Chunked, FeatureSample, kernel_values, whitening
from relfit.stats.close import CloseLaw
from relfit.util.arrays import Array, host
from relfit.util.random import stream

# Landmarks and draws: enough for the law of the maximum to be off by less than its Monte-Carlo error at α = .05.
LANDMARKS, DRAWS = 100, 4000


def close_law(data: Data, settings: EstimateSettings, estimates: Estimates) -> CloseLaw:
    """The law of MMD² of independent samples, both its parts.

    The features are those of Nyström at landmarks, which are rows of all samples. They give the direction of each
    μ_i − μ_r and the covariances of the rows. How large the second-order part is comes from all pairs of rows
    (`estimates.unbiased_second_order`).
    """
    kernel, seed = settings.kernel, settings.seed
    centre = centre_for(data.reference, kernel)
    kernel = kernel.moved(centre)
    samples, half = {key: host(x) for key, x in samples_of(data).items()}, min(LANDMARKS, len(data.reference) // 2) // 2
    counts = {key: half if key is None else -(-half // len(data.samples)) for key in samples}
    orders = row_orders(data, settings.dependence, seed, "landmarks")
    points = np.concatenate([rows[orders[key][: counts[key]]] for key, rows in samples.items()]) - centre
    points = points[np.lexsort(points.T)]
    root = whitening(kernel, points)

    def sample(key: str | None) -> FeatureSample:
        # Without the landmarks, whose kernel values with themselves no other row has.
        chunked = Chunked(
            samples[key],
            np.sort(orders[key][counts[key] :]),
            centre if isinstance(centre, np.ndarray) else None,
            len(points),
        )
        return FeatureSample(chunked, lambda part: kernel_values(kernel, chunked[part], points) @ root)

    ours, *theirs = map(sample, samples)
    n, sizes = len(data.reference), [len(x) for x in data.samples.values()]
    reference = ours.covariance / n
    directions = np.stack([x.mean - ours.mean for x in theirs])
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), np.finfo(float).tiny)
    spreads = [reference + x.covariance / m for x, m in zip(theirs, sizes, strict=True)]
    along = np.array([4.0 * float(u @ spread @ u) for u, spread in zip(directions, spreads, strict=True)])

    def errors(covariance: Array, who: str) -> Array:
        values, vectors = np.linalg.eigh(covariance)
        half = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray((half @ vectors.T) @ stream(seed, "close law", who).standard_normal((len(values), DRAWS)))

    reference_error = errors(reference, "reference")
    second = np.empty((len(theirs), DRAWS))
    for row, x, m, name in zip(second, theirs, sizes, data.samples, strict=True):
        apart = errors(x.covariance / m, f"model {name}") - reference_error
        np.einsum("ij,ij->j", apart, apart, out=row)
    second -= second.mean(axis=1, keepdims=True)
    normal, rest = (
        np.stack([stream(seed, f"close law, {part}", f"model {name}").standard_normal(DRAWS) for name in data.samples])
        for part in ("first order", "rest")
    )
    whole = estimates.unbiased_second_order
    assert whole is not None  # noqa: S101  (complete estimates of samples have it)
    noise, spread = np.sqrt(np.diag(whole)), second.std(axis=1)
    # Without variance, as of constant rows, there is nothing to draw.
    second *= np.divide(np.minimum(noise, spread), spread, out=np.zeros_like(spread), where=spread > 0.0)[:, None]
    missing_sizes, axes = np.linalg.eigh(whole - second @ second.T / DRAWS)
    second += (axes * np.sqrt(np.maximum(missing_sizes, 0.0))) @ (axes.T @ rest)
    first = estimates.projection - 2.0 * whole
    # Far from the data the ratio of two unbiased estimates gives the variance along δ; close to it, the features do.
    variance, distance = np.maximum(np.diag(first), 0.0) + noise * along, np.maximum(estimates.values, 0.0) + noise
    along = np.divide(variance, distance, out=np.zeros_like(variance), where=distance > 0.0)
    freedom = min(n, *sizes) - 1
    shrunk = np.sqrt(stream(seed, "close law", "freedom").chisquare(freedom, DRAWS) / freedom)
    return CloseLaw(first, along, whole, second, normal, shrunk)
