"""True UME² and FSSD² at given locations, for Gaussian kernels and problems made of Gaussians."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relfit.paper.problems import Distribution, GaussianMixture, Problem

Array = NDArray[np.float64]


def mirrored_points(d: int, pairs: int = 5) -> Array:
    """2·pairs locations that the reflection of the first axis maps onto each other: N(±m e₁, I) are tied there."""
    points = np.random.default_rng(7).standard_normal((pairs, d))
    return np.concatenate([points, points * np.where(np.arange(d) == 0, -1.0, 1.0)])


def population_ume(problem: Problem, points: Array, bandwidth: float) -> Array:
    """``mean_j (E k(x,v_j) − E k(r,v_j))²`` of every model under exp(−r²/(2b²)), exact: (l,).

    >>> from relfit.paper.problems import mean_shift_pair
    >>> values = population_ume(mean_shift_pair(2), mirrored_points(2), bandwidth=1.0)
    >>> bool(np.isclose(values[0], values[1], rtol=1e-12))
    True
    """
    ours = mean_embedding(problem.reference, points, bandwidth)
    theirs = [mean_embedding(model, points, bandwidth) for model in problem.distributions]
    return np.array([np.mean(np.square(x - ours)) for x in theirs])


def population_fssd(problem: Problem, points: Array, bandwidth: float) -> Array:
    """FSSD² of mean shifts N(m_i, I) of N(0, I): scores differ by m_i, so it is ``‖m_i‖² mean_j (E k(r,v_j))²/d``."""
    means = np.array([model.as_mixture().means[0] for model in problem.distributions])
    seen = np.mean(np.square(mean_embedding(problem.reference, points, bandwidth)))
    return np.asarray(np.square(means).sum(axis=1) * seen / problem.dim)


def mean_embedding(model: Distribution, points: Array, bandwidth: float) -> Array:
    """E k(x, v_j) of x from the model: (J,)."""
    mixture, still = model.as_mixture(), np.zeros((points.shape[1],) * 2)
    at = [GaussianMixture(np.ones(1), point[None], still) for point in points]
    return np.array([mixture.mean_kernel(point, bandwidth) for point in at])
