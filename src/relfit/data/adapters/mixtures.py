"""Mixtures of Gaussians in closed form: many components of their own shape, or very many of one shape."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax

from relfit.data.models import Density
from relfit.util.arrays import Array

# Entries of the rows × components matrix that are held at once.
_MOST_ENTRIES = 2_000_000


def gaussian_mixture(weights: Array, means: Array, roots: Array) -> Density:
    """Σ_k w_k N(μ_k, Λ_k⁻¹) with Λ_k = R_kR_kᵀ: weights (K,), means (K, d), roots (K, d, d).

    ``∇ log p(x) = −Σ_k r_k(x) R_kR_kᵀ(x − μ_k)``, with r_k(x) the posterior of component k.

    >>> pair = gaussian_mixture(np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.ones((2, 1, 1)))
    >>> bool(np.isclose(pair.scores(np.array([[0.3]]))[0, 0], np.tanh(0.3) - 0.3))
    True
    """
    kept = weights > 0.0
    weights, means, roots = weights[kept], means[kept], roots[kept]
    heights = np.log(weights) + np.linalg.slogdet(roots)[1]

    def whitened(x: Array) -> Array:
        return np.stack([(x - mean) @ root for mean, root in zip(means, roots, strict=True)], axis=1)

    def log_joint(z: Array) -> Array:
        return np.asarray(heights - 0.5 * (z**2).sum(axis=2))

    def score(x: Array) -> Array:
        z = whitened(x)
        return np.asarray(-np.einsum("nk,nkj,kij->ni", softmax(log_joint(z), axis=1), z, roots, optimize=True))

    d = means.shape[1]
    return Density(
        in_pieces(score, len(weights) * d),
        in_pieces(lambda x: logsumexp(log_joint(whitened(x)), axis=1), len(weights) * d),
        d,
    )


def shared_mixture(weights: Array, means: Array, root: Array) -> Density:
    """Σ_k w_k N(μ_k, Λ⁻¹) with one Λ = RRᵀ, such as a Gaussian kernel density estimate: root (d, d).

    ``∇ log p(x) = Λ(Σ_k r_k(x) μ_k − x)``: one matrix product for all components.
    """
    kept = weights > 0.0
    heights = np.log(weights[kept])
    # Differences are taken from one of the means, so that an offset costs no digits.
    origin = means[0]
    centres = (means[kept] - origin) @ root

    def log_joint(z: Array) -> Array:
        return np.asarray(heights - 0.5 * cdist(z, centres, "sqeuclidean"))

    def score(x: Array) -> Array:
        z = (x - origin) @ root
        return np.asarray((softmax(log_joint(z), axis=1) @ centres - z) @ root.T)

    def log_prob(x: Array) -> Array:
        return np.asarray(logsumexp(log_joint((x - origin) @ root), axis=1))

    return Density(in_pieces(score, len(heights)), in_pieces(log_prob, len(heights)), means.shape[1])


def in_pieces(function: Callable[[Array], Array], width: int) -> Callable[[Array], Array]:
    """The function over pieces of the rows, for one that needs `width` numbers per row."""
    step = max(1, _MOST_ENTRIES // width)

    def call(x: Array) -> Array:
        return np.concatenate([function(x[a : a + step]) for a in range(0, len(x), step)])

    return call
