"""The gap D_2 − D_1 of two models in the population: all that the law of its complete estimate depends on.

The problems are Gaussian mixtures in one or two dimensions, so expectations are sums over Gauss–Hermite nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.problems import GaussianMixture, Problem

Array = NDArray[np.float64]

ORDER = 32  # nodes per dimension and component: means and variances are right to 2e-4 or better on these problems
# How D_2 − D_1 of MMD combines the kernel means of R, P1 and P2: the reference's own term cancels.
_SIGNS = np.array([[0.0, 1.0, -1.0], [1.0, -1.0, 0.0], [-1.0, 0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class Gap:
    """D_2 − D_1 of a problem: its mean μ, and the eigenvalues ν_k and projections b_k of its pair kernel.

    With h the pair kernel, g its mean over one of the two points and h̃ = h − g − g' + μ, the ν_k and e_k are the
    eigenvalues and eigenfunctions of h̃, and b_k = E (g − μ) e_k. They are those of the U-statistic's expansion
    μ + 2 Σ b_k ē_k + Σ ν_k (ē_k² − 1/n), ē_k the mean of e_k over the rows.
    """

    mean: float
    projections: Array
    eigenvalues: Array

    @property
    def first(self) -> float:
        """4 Σ b_k²: the variance of the estimate is first/n + second/n²."""
        return 4.0 * float(self.projections @ self.projections)

    @property
    def second(self) -> float:
        """2 Σ ν_k²."""
        return 2.0 * float(self.eigenvalues @ self.eigenvalues)


def mmd_gap(problem: Problem, bandwidth: float) -> Gap:
    """The gap between the two models' MMD² under exp(−r²/(2σ²)), with samples of equal size.

    D_2 − D_1 = E k(x₂,x₂') − E k(x₁,x₁') − 2 E k(x₂,r) + 2 E k(x₁,r).
    """
    groups = [nodes(one.as_mixture()) for one in (problem.reference, *problem.distributions)]
    kernels = [
        [sign * _gaussian(x, y, bandwidth) for sign, (y, _) in zip(signs, groups, strict=True)]
        for signs, (x, _) in zip(_SIGNS, groups, strict=True)
    ]
    return _gap(kernels, [w for _, w in groups])


def ksd_gap(problem: Problem, bandwidth: float) -> Gap:
    """The gap between the two models' KSD² under exp(−r²/(2σ²))."""
    r, w = nodes(problem.reference.as_mixture())
    lower, upper = (_stein(r, problem.score(name)(r), bandwidth) for name in problem.models)
    return _gap([[upper - lower]], [w])


def gaussian_ksd(problem: Problem, bandwidth: float) -> Array:
    """KSD² of every model under exp(−r²/(2σ²)), exact: (l,), for a Gaussian reference and Gaussian models.

    D = E δ(x)·δ(y) k(x,y) with δ(x) = M(x − m) + c the difference of the scores, m the reference's mean. Under the
    density proportional to k(x,y) r(x) r(y) the rows are Gaussian: D = E k · (tr M Q Mᵀ + ‖c‖²), Q = Cov(x, y) there.
    """
    reference = problem.reference.as_mixture()
    mean, d = reference.means[0], reference.means.shape[1]
    eye = np.eye(d)
    tie = np.kron(np.array([[1.0, -1.0], [-1.0, 1.0]]), eye) / bandwidth**2
    precision = np.kron(np.eye(2), np.linalg.inv(reference.covariance)) + tie
    mean_kernel = (np.linalg.det(precision) * np.linalg.det(reference.covariance) ** 2) ** -0.5
    across = np.linalg.inv(precision)[:d, d:]
    out = []
    for name in problem.models:
        at = np.vstack([mean, mean + eye])
        delta = problem.score(name)(at) - reference.score(at)
        slope = (delta[1:] - delta[0]).T
        out.append(mean_kernel * (np.trace(slope @ across @ slope.T) + delta[0] @ delta[0]))
    return np.array(out)


def nodes(mixture: GaussianMixture) -> tuple[Array, Array]:
    """Points (m, d) and weights (m,) with Σ w f(x) = E f(x) for smooth f."""
    abscissae, weights = np.polynomial.hermite_e.hermegauss(ORDER)
    d = mixture.means.shape[1]
    grid = np.stack(np.meshgrid(*[abscissae] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weight = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * d, indexing="ij"), axis=-1), axis=-1).ravel()
    spread = grid @ np.linalg.cholesky(mixture.covariance).T
    points = (mixture.means[:, None, :] + spread).reshape(-1, d)
    return points, np.asarray(np.outer(mixture.weights, weight).ravel())


def _gap(kernels: Sequence[Sequence[Array]], weights: Sequence[Array]) -> Gap:
    """The gap of a pair kernel given in blocks, a block for two of the independent samples.

    √w scales the blocks so that sums over nodes are expectations.
    """
    count = range(len(weights))
    rows = [[kernels[i][j] @ weights[j] for j in count] for i in count]
    columns = [[weights[i] @ kernels[i][j] for j in count] for i in count]
    means = [[float(weights[i] @ rows[i][j]) for j in count] for i in count]
    roots = [np.sqrt(w) for w in weights]
    centred = [
        [
            roots[i][:, None] * (kernels[i][j] - rows[i][j][:, None] - columns[i][j] + means[i][j]) * roots[j]
            for j in count
        ]
        for i in count
    ]
    projection = [roots[i] * (np.sum(rows[i], axis=0) - sum(means[i])) for i in count]
    eigenvalues, vectors = np.linalg.eigh(np.block(centred))
    return Gap(float(np.sum(means)), np.concatenate(projection) @ vectors, eigenvalues)


def _gaussian(x: Array, y: Array, bandwidth: float) -> Array:
    squares = ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1)
    return np.asarray(np.exp(-0.5 * squares / bandwidth**2))


def _stein(x: Array, s: Array, bandwidth: float) -> Array:
    """u(x,y) = k·[s(x)·s(y) + (s(x) − s(y))·(x−y)/σ² + d/σ² − ‖x−y‖²/σ⁴], the Gaussian kernel's Stein kernel."""
    b2 = bandwidth**2
    along = s @ x.T
    own = np.diag(along)
    squares = ((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=-1)
    push = own[:, None] - along + own[None, :] - along.T
    return np.asarray(np.exp(-0.5 * squares / b2) * (s @ s.T + push / b2 + x.shape[1] / b2 - squares / b2**2))
