"""scipy.stats: frozen continuous distributions, multivariate normal and t, Gaussian kernel density estimates."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from relfit.data.adapters.mixtures import gaussian_mixture, shared_mixture
from relfit.data.autodiff import first_line
from relfit.data.models import Density
from relfit.util.arrays import Array
from relfit.util.errors import InputError

# Derivatives of the log density of a standardised variable, given the shape parameters.
_SLOPES: dict[str, Callable[..., Array]] = {
    "norm": lambda z: -z,
    "t": lambda z, df: -(df + 1.0) * z / (df + z**2),
    "cauchy": lambda z: -2.0 * z / (1.0 + z**2),
    "logistic": lambda z: -np.tanh(0.5 * z),
    "laplace": lambda z: -np.sign(z),
    "gumbel_r": lambda z: np.expm1(-z),
    "gumbel_l": lambda z: -np.expm1(z),
}


def adapt(value: Any, dim: int) -> Density | None:
    """A frozen distribution or a `gaussian_kde` as a density; None for anything else.

    Closed forms where they are listed here; the others by finite differences of ``logpdf``.
    """
    stats = sys.modules.get("scipy.stats")
    if stats is None or not type(value).__module__.startswith("scipy.stats"):
        return None
    if isinstance(value, stats.gaussian_kde):
        return _kernel_density(value)
    if isinstance(value, stats.distributions.rv_frozen):
        return _univariate(value, stats)
    special = {"multivariate_normal_frozen": _normal, "multivariate_t_frozen": _t}.get(type(value).__name__)
    if special is not None:
        return special(value)
    if not callable(getattr(value, "logpdf", None)):
        raise InputError(f"{type(value).__name__}: expected a continuous distribution with logpdf, got one without")
    return _through_logpdf(value, dim)


def _univariate(value: Any, stats: Any) -> Density:
    name = value.dist.name
    if not isinstance(value.dist, stats.rv_continuous):
        raise InputError(f"{name}: expected a continuous distribution, got a discrete one; use a sample of it and MMD")
    shapes, loc, scale = value.dist._parse_args(*value.args, **value.kwds)
    if any(np.size(part) != 1 for part in (*shapes, loc, scale)):
        raise InputError(f"{name}: expected one distribution, got an array of them; freeze it with single numbers")
    slope = _SLOPES.get(name)

    def score(x: Array) -> Array:
        assert slope is not None  # noqa: S101  (given to Density only if so)
        return np.asarray(slope((x - loc) / scale, *shapes) / scale)

    return Density(score if slope else None, lambda x: value.logpdf(x[:, 0]), 1)


def _normal(value: Any) -> Density:
    mean, covariance = np.atleast_1d(value.mean), np.atleast_2d(np.asarray(value.cov, dtype=np.float64))
    return gaussian_mixture(np.ones(1), mean[None], _root(covariance, "multivariate_normal")[None])


def _t(value: Any) -> Density:
    """Log density −½(ν + d) log(1 + q/ν) with q = (x − μ)ᵀΣ⁻¹(x − μ): the score is −(ν + d)/(ν + q) Σ⁻¹(x − μ)."""
    if np.isinf(value.df):
        return gaussian_mixture(np.ones(1), value.loc[None], _root(value.shape, "multivariate_t")[None])
    root, df, d = _root(value.shape, "multivariate_t"), float(value.df), value.dim

    def score(x: Array) -> Array:
        z = (x - value.loc) @ root
        return np.asarray(-(df + d) / (df + (z**2).sum(axis=1, keepdims=True)) * (z @ root.T))

    return Density(score, lambda x: np.reshape(value.logpdf(x), len(x)), d)


def _kernel_density(value: Any) -> Density:
    root = _root(np.asarray(value.covariance, dtype=np.float64), "gaussian_kde")
    return shared_mixture(np.asarray(value.weights), np.asarray(value.dataset, dtype=np.float64).T, root)


def _through_logpdf(value: Any, dim: int) -> Density:
    def log_prob(x: Array) -> Any:
        try:
            return np.reshape(value.logpdf(x[:, 0] if dim == 1 else x), len(x))
        except ValueError as error:
            name = type(value).__name__
            raise InputError(f"{name}: logpdf failed on {len(x)} rows of {dim} columns: {first_line(error)}") from None

    return Density(log_prob=log_prob)


def _root(covariance: Array, name: str) -> Array:
    """R with RRᵀ = C⁻¹."""
    try:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)).T)
    except np.linalg.LinAlgError:
        raise InputError(f"{name}: expected a positive definite covariance, got a singular one") from None
