"""scikit-learn: GaussianMixture, BayesianGaussianMixture and KernelDensity, in closed form."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax

from relfit.data.adapters.scipy_stats import gaussian_mixture, in_pieces, shared_mixture
from relfit.data.models import Density, Draw
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import loaded


def density(value: Any, dim: int) -> Density | None:
    """A fitted mixture or kernel density estimate as a density; None for any other value.

    A BayesianGaussianMixture is the mixture of its fitted weights, means and covariances, from which its ``sample``
    draws. (Its ``score_samples`` is a variational bound, and not the log of a density.)
    """
    mixture, neighbors = loaded("sklearn.mixture"), loaded("sklearn.neighbors")
    if mixture is not None and isinstance(value, mixture.GaussianMixture | mixture.BayesianGaussianMixture):
        return _mixture(value)
    if neighbors is not None and isinstance(value, neighbors.KernelDensity):
        return _kernel_density(value)
    return None


def sampler(value: Any) -> Draw | None:
    """Draws from any estimator that has ``sample``."""
    if not type(value).__module__.startswith("sklearn.") or not hasattr(value, "sample"):
        return None

    def draw(n: int, rng: np.random.Generator) -> Any:
        seed = int(rng.integers(2**31))
        if "random_state" in inspect.signature(value.sample).parameters:
            return value.sample(n, random_state=seed)
        # Mixtures draw from their own random_state: it is set on a copy, and the user's object stays as it is.
        estimator = copy.copy(value)
        estimator.random_state = seed
        rows, components = estimator.sample(n)
        # The rows are sorted by component, which a split or pairing by row must not see.
        return rows[rng.permutation(len(components))]

    return draw


def _mixture(value: Any) -> Density:
    _require_fitted(value, "means_")
    weights, means = (np.asarray(part, dtype=np.float64) for part in (value.weights_, value.means_))
    roots = np.asarray(value.precisions_cholesky_, dtype=np.float64)
    k, d = means.shape
    if value.covariance_type == "tied":
        return shared_mixture(weights, means, roots)
    if value.covariance_type == "diag":
        roots = roots[:, :, None] * np.eye(d)
    elif value.covariance_type == "spherical":
        roots = roots.reshape(k, 1, 1) * np.eye(d)
    return gaussian_mixture(weights, means, roots)


def _kernel_density(value: Any) -> Density:
    _require_fitted(value, "tree_")
    if value.metric != "euclidean" or value.kernel not in ("gaussian", "exponential"):
        raise InputError(
            f'KernelDensity: expected kernel "gaussian" or "exponential" and metric "euclidean", got {value.kernel!r} '
            f"and {value.metric!r}; other kernels are 0 away from the points, but KSD needs a positive density"
        )
    points = np.asarray(value.tree_.data, dtype=np.float64)
    sample_weight = getattr(value.tree_, "sample_weight", None)
    weights = np.ones(len(points)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if value.kernel == "gaussian":
        return shared_mixture(weights / weights.sum(), points, np.eye(points.shape[1]) / value.bandwidth_)
    return _exponential(weights / weights.sum(), points, float(value.bandwidth_))


def _exponential(weights: Array, points: Array, h: float) -> Density:
    """p(x) ∝ Σ_j w_j exp(−‖x − x_j‖/h), and so ``∇ log p = Σ_j r_j(x) (x_j − x)/(h‖x − x_j‖)``."""
    kept = weights > 0.0
    points, heights = points[kept], np.log(weights[kept])

    def score(x: Array) -> Array:
        distance = cdist(x, points)
        posterior = softmax(heights - distance / h, axis=1)
        pull = np.divide(posterior, h * distance, out=np.zeros_like(posterior), where=distance > 0.0)
        return np.asarray(pull @ points - pull.sum(axis=1, keepdims=True) * x)

    def log_prob(x: Array) -> Array:
        return np.asarray(logsumexp(heights - cdist(x, points) / h, axis=1))

    return Density(in_pieces(score, len(points)), in_pieces(log_prob, len(points)), points.shape[1])


def _require_fitted(value: Any, attribute: str) -> None:
    if not hasattr(value, attribute):
        raise InputError(f"{type(value).__name__}: expected a fitted model, got one that is not fitted; call fit first")
