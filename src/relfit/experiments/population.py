"""What a test of two models should show, from the exact means and variances: the closed forms for l = 2.

The problems are Gaussian mixtures in one or two dimensions, so expectations are sums over Gauss–Hermite nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from relfit.problems import GaussianMixture, Problem

Array = NDArray[np.float64]

ORDER = 32  # nodes per dimension and component: means and variances are right to 2e-4 or better on these problems


class Gap(NamedTuple):
    """D_2 − D_1 of a problem: its mean, and Var = first/n + second/n² of its complete estimate at size n."""

    mean: float
    first: float
    second: float

    def signal(self, n: float) -> float:
        """The mean over the standard deviation at size n."""
        return self.mean / float(np.sqrt(self.first / n + self.second / n**2))


def tpr_relpsi(gap: Gap, n: float, alpha: float = 0.05) -> float:
    """P(P2 is declared worse) = Φ(μ/s(n) − z_{1−α/2}).

    >>> round(tpr_relpsi(Gap(0.1, 1.0, 0.0), 400), 4)
    0.516
    """
    return float(norm.cdf(gap.signal(n) - norm.isf(alpha / 2.0)))


def tpr_relmulti(gap: Gap, n: float, select_fraction: float, alpha: float = 0.05) -> float:
    """P(P1 is selected) P(P2 is then declared worse) = Φ(μ/s(n(1−ρ))) Φ(μ/s(nρ) − z_{1−α}), ρ the test share."""
    chosen = norm.cdf(gap.signal(n * select_fraction))
    return float(chosen * norm.cdf(gap.signal(n * (1.0 - select_fraction)) - norm.isf(alpha)))


def mmd_gap(problem: Problem, bandwidth: float) -> Gap:
    """The gap between the two models' MMD² under exp(−r²/(2σ²)), with samples of equal size.

    D_2 − D_1 = E k(x₂,x₂') − E k(x₁,x₁') − 2 E k(x₂,r) + 2 E k(x₁,r): the reference's own term cancels.
    """
    r, wr = nodes(problem.reference.as_mixture())
    signs, mean, first, second = (-1.0, 1.0), 0.0, 0.0, 0.0
    on_reference = np.zeros(len(wr))
    for sign, distribution in zip(signs, problem.distributions, strict=True):
        x, wx = nodes(distribution.as_mixture())
        own, cross = _gaussian(x, x, bandwidth), _gaussian(x, r, bandwidth)
        witness = own @ wx - cross @ wr
        mean += sign * float(wx @ (own @ wx) - 2.0 * wx @ cross @ wr)
        first += 4.0 * _variance(witness, wx)
        on_reference -= sign * (wx @ cross)
        second += 2.0 * _interaction(own, wx, wx) + 4.0 * _interaction(cross, wx, wr)
    return Gap(mean, first + 4.0 * _variance(on_reference, wr), second)


def ksd_gap(problem: Problem, bandwidth: float) -> Gap:
    """The gap between the two models' KSD² under exp(−r²/(2σ²))."""
    r, w = nodes(problem.reference.as_mixture())
    lower, upper = (_stein(r, problem.score(name)(r), bandwidth) for name in problem.models)
    h = upper - lower
    projection = h @ w
    return Gap(float(w @ projection), 4.0 * _variance(projection, w), 2.0 * _interaction(h, w, w))


def nodes(mixture: GaussianMixture) -> tuple[Array, Array]:
    """Points (m, d) and weights (m,) with Σ w f(x) = E f(x) for smooth f."""
    abscissae, weights = np.polynomial.hermite_e.hermegauss(ORDER)
    d = mixture.means.shape[1]
    grid = np.stack(np.meshgrid(*[abscissae] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weight = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * d, indexing="ij"), axis=-1), axis=-1).ravel()
    spread = grid @ np.linalg.cholesky(mixture.covariance).T
    points = (mixture.means[:, None, :] + spread).reshape(-1, d)
    return points, np.asarray(np.outer(mixture.weights, weight).ravel())


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


def _variance(values: Array, weights: Array) -> float:
    return float(weights @ (values - weights @ values) ** 2)


def _interaction(h: Array, wx: Array, wy: Array) -> float:
    """E h̃², h̃ the doubly centred h: the part of a pair's value that neither point explains alone."""
    rows, columns = h @ wy, wx @ h
    centred = h - rows[:, None] - columns[None, :] + float(wx @ rows)
    return float(wx @ centred**2 @ wy)
