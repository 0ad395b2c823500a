"""Distributions that can be sampled exactly and whose score is closed form: finite mixtures of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Distribution(Protocol):
    """What a problem needs of a distribution on R^d."""

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d) independent draws."""

    def log_density(self, x: Array) -> Array:
        """Normalised log density at the rows of x, (n,)."""

    def score(self, x: Array) -> Array:
        """∇ log p at the rows of x, (n, d)."""

    def as_mixture(self) -> GaussianMixture:
        """The same distribution as a mixture of Gaussians."""


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Mixture Σ_k w_k N(μ_k, C) with one covariance: `weights` (K,), `means` (K, d), `covariance` (d, d)."""

    weights: Array
    means: Array
    covariance: Array

    @cached_property
    def _precision(self) -> Array:
        return np.asarray(np.linalg.inv(self.covariance), dtype=np.float64)

    def as_mixture(self) -> GaussianMixture:
        """The same distribution as a mixture of Gaussians."""
        return self

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d) independent draws: a component, then its Gaussian."""
        labels = rng.choice(len(self.weights), size=n, p=self.weights)
        noise = rng.standard_normal((n, self.means.shape[1]))
        return self.means[labels] + noise @ np.linalg.cholesky(self.covariance).T

    def _log_joint(self, x: Array) -> Array:
        """log w_k + xᵀC⁻¹μ_k − ½ μ_kᵀC⁻¹μ_k, (n, K): log density of each component less what all share."""
        shifted = self.means @ self._precision
        return np.asarray(np.log(self.weights) - 0.5 * (shifted * self.means).sum(1) + x @ shifted.T)

    def log_density(self, x: Array) -> Array:
        """Log density at the rows of x, (n,)."""
        log_det = np.linalg.slogdet(2.0 * np.pi * self.covariance)[1]
        shared = -0.5 * ((x @ self._precision) * x).sum(1) - 0.5 * log_det
        return np.asarray(shared + np.logaddexp.reduce(self._log_joint(x), axis=1))

    def score(self, x: Array) -> Array:
        """∇ log p(x) = C⁻¹(Σ_k r_k(x) μ_k − x), (n, d), with r_k(x) the posterior of component k."""
        a = self._log_joint(x)
        responsibility = np.exp(a - np.logaddexp.reduce(a, axis=1, keepdims=True))
        return np.asarray((responsibility @ self.means - x) @ self._precision)

    def mean_kernel(self, other: GaussianMixture, bandwidth: float) -> float:
        """E exp(−‖x−y‖²/(2σ²)) of independent x from this and y from the other mixture.

        For Gaussians with covariances A and B: |I + (A+B)/σ²|^(−½) exp(−½ δᵀ(σ²I + A + B)⁻¹δ), δ = μ_x − μ_y.
        """
        d = self.means.shape[1]
        spread = np.eye(d) * bandwidth**2 + self.covariance + other.covariance
        gap = self.means[:, None, :] - other.means[None, :, :]
        exponent = -0.5 * np.einsum("ijk,kl,ijl->ij", gap, np.linalg.inv(spread), gap)
        scale = np.exp(d * np.log(bandwidth) - 0.5 * np.linalg.slogdet(spread)[1])
        return float(scale * (self.weights @ np.exp(exponent) @ other.weights))


@dataclass(frozen=True, eq=False)
class GaussianBernoulliRBM:
    """p(y) ∝ Σ_{h∈{−1,1}^q} exp(½ yᵀBh + bᵀy + cᵀh − ½‖y‖²).

    `coupling` is B (d, q), `visible` is b (d,), `latent` is c (q,).
    Summed over h it is a mixture of 2^q Gaussians N(½Bh + b, I) with log-weights cᵀh + ½‖½Bh + b‖².
    """

    coupling: Array
    visible: Array
    latent: Array

    @cached_property
    def _states(self) -> tuple[Array, Array]:
        """All 2^q means and unnormalised log-weights."""
        q = len(self.latent)
        h = 2.0 * ((np.arange(2**q)[:, None] >> np.arange(q)) & 1) - 1.0
        means = 0.5 * h @ self.coupling.T + self.visible
        return means, h @ self.latent + 0.5 * (means**2).sum(1)

    @cached_property
    def _mixture(self) -> GaussianMixture:
        means, log_weights = self._states
        weights = np.exp(log_weights - log_weights.max())
        return GaussianMixture(weights / weights.sum(), means, np.eye(len(self.visible)))

    def as_mixture(self) -> GaussianMixture:
        """The same distribution as a mixture of Gaussians."""
        return self._mixture

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d) exact, independent draws: no Gibbs chain, because the latent states can be listed."""
        return self._mixture.sample(n, rng)

    def log_density(self, x: Array) -> Array:
        """bᵀy − ½‖y‖² + Σ_j log 2cosh(½B_jᵀy + c_j) − log Z at the rows of x, (n,)."""
        a = 0.5 * x @ self.coupling + self.latent
        log_z = np.logaddexp.reduce(self._states[1]) + 0.5 * len(self.visible) * np.log(2.0 * np.pi)
        return np.asarray(x @ self.visible - 0.5 * (x**2).sum(1) + np.logaddexp(a, -a).sum(1) - log_z)

    def score(self, x: Array) -> Array:
        """b − y + ½ B tanh(½Bᵀy + c), (n, d)."""
        return self.visible - x + 0.5 * np.tanh(0.5 * x @ self.coupling + self.latent) @ self.coupling.T
