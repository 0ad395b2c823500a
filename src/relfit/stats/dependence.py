"""Means of items that depend on each other: covariances, and degrees of freedom of every
difference, for clusters and for series.

Both are functions of rows ψ (n, l), the losses of l models on n items without their means.
The degrees of freedom of the variance of D_i − D_j are at (i, j), and those of D_i itself on
the diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relfit.stats.joint import gram, positive_part
from relfit.util.arrays import Array, Rows

# Bartlett's lags of a series without prewhitening: up to so many in short series.
MOST_SHORT_LAGS = 24
# The largest autocorrelation that a series is freed of.
LARGEST_AUTOCORRELATION = 0.97


def pair_variances(covariance: Array) -> Array:
    """(l, l) variances of the differences D_i − D_j, and on the diagonal those of D_i."""
    own = np.diag(covariance)
    variances = np.maximum(own[:, None] + own - 2.0 * covariance, 0.0)
    np.fill_diagonal(variances, own)
    return variances


# ── clusters ──────────────────────────────────────────────────────────────────────────────────


def cluster_freedom(psi: Array, members: Rows) -> Array:
    """(l, l) degrees of freedom of the CR2 variance of means over clusters of n_g items.

    With U_g the sum of ψ over cluster g, over n, and the leverages h_g = n_g/n, CR2 is
    ``V = Σ_g U_g U_gᵀ/(1 − h_g)`` (Bell and McCaffrey 2002). It is unbiased for independent
    items. For each pair of models the number of degrees of freedom is Satterthwaite's
    ``ν = tr(B)²/tr(B²)``, B the covariance matrix of the U_g/√(1 − h_g) for sums of clusters
    with the variances ``τ_g = σ² h_g/n + ω² h_g²`` (Imbens and Kolesár 2016). The components
    σ² within and ω² between clusters are those of the analysis of variance of the pair's
    differences, ω² at least 0. For G clusters of one size ν = G − 1.

    >>> psi = np.array([[-1.0], [2.0], [0.5], [0.5], [-2.5], [0.5]])
    >>> round(float(cluster_freedom(psi, np.array([0, 0, 1, 1, 2, 2]))[0, 0]), 9)
    2.0
    """
    n = len(psi)
    counts = np.bincount(members)
    clusters = len(counts)
    sums = np.zeros((clusters, psi.shape[1]))
    np.add.at(sums, members, psi)
    across = pair_variances((sums / counts[:, None]).T @ sums)
    inside = np.maximum(pair_variances(psi.T @ psi) - across, 0.0)
    between_square = across / (clusters - 1.0)
    within = inside / (n - clusters) if n > clusters else between_square
    size = (n - float(np.square(counts).sum()) / n) / (clusters - 1.0)
    between = np.maximum(between_square - within, 0.0) / size
    share = counts / n
    return satterthwaite_freedom(share, (share / n, np.square(share)), (within, between))


def satterthwaite_freedom(
    share: Array, parts: tuple[Array, Array], sizes: tuple[Array, Array]
) -> Array:
    """tr(B)²/tr(B²) for sums of clusters with the variances ``τ = sizes_1 parts_1 + sizes_2
    parts_2``.

    ``B = W^½ (I − h1ᵀ) diag(τ) (I − 1hᵀ) W^½`` with h = `share` and W = diag(1/(1 − h)): the
    sums have the mean subtracted. Differences without variance have G − 1.
    """
    first, second = sizes
    trace = first * _trace(share, parts[0]) + second * _trace(share, parts[1])
    squares = (
        np.square(first) * _trace_of_product(share, parts[0], parts[0])
        + 2.0 * first * second * _trace_of_product(share, parts[0], parts[1])
        + np.square(second) * _trace_of_product(share, parts[1], parts[1])
    )
    freedom = np.full(trace.shape, len(share) - 1.0)
    np.divide(np.square(trace), squares, out=freedom, where=squares > 0.0)
    return freedom


def _trace(share: Array, tau: Array) -> float:
    """tr(B): B_gg = (τ_g − 2h_g τ_g + h_g² Σ τ)/(1 − h_g)."""
    own = tau * (1.0 - 2.0 * share) + np.square(share) * tau.sum()
    return float((own / (1.0 - share)).sum())


def _trace_of_product(share: Array, tau: Array, other: Array) -> float:
    """tr(B B') for two vectors of variances, in time linear in the clusters.

    (I − h1ᵀ) diag(τ) (I − 1hᵀ) = diag(τ) + P M Pᵀ with P = (h, τ) and M = ((Σ τ, −1), (−1, 0)).
    """
    weight = 1.0 / (1.0 - share)
    total, other_total = float(tau.sum()), float(other.sum())
    square = np.square(weight)
    diagonal = square * tau * other
    crossed = square * tau * share * (other_total * share - 2.0 * other)
    crossed += square * other * share * (total * share - 2.0 * tau)
    left = np.stack([share, tau])
    right = np.stack([share, other])
    between = (left * weight) @ right.T
    inner = np.array([[total, -1.0], [-1.0, 0.0]])
    other_inner = np.array([[other_total, -1.0], [-1.0, 0.0]])
    low_rank = float(np.trace(inner @ between @ other_inner @ between.T))
    return float((diagonal + crossed).sum()) + low_rank


def welch_freedom(parts: Sequence[tuple[Array, Array]]) -> Array:
    """(l, l) ``ν = (Σ_t v_t)²/Σ_t v_t²/ν_t`` of sums over strata t, from v_t and ν_t of each
    (Welch 1947, Satterthwaite 1946).

    v_t is the part of stratum t in the variance. Differences without variance have Σ_t ν_t.
    """
    total = np.sum([variance for variance, _ in parts], axis=0)
    uncertain = np.sum([np.square(variance) / own for variance, own in parts], axis=0)
    freedom = np.sum([own for _, own in parts], axis=0)
    np.divide(np.square(total), uncertain, out=freedom, where=uncertain > 0.0)
    return np.asarray(freedom)


# ── series ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class SeriesLaw:
    """The covariance V (l, l) of the means of a series, the degrees of freedom (l, l), the
    lags L and the autocorrelation ρ that the rows were freed of.
    """

    covariance: Array
    freedom: Array
    lags: int
    autocorrelation: float


def series_law(psi: Array) -> SeriesLaw:
    """The covariance of the means of a series of unknown dependence, by prewhitening.

    The rows ψ_t = r_t + m_t 1 have a part m_t that models have in common. With ρ the lag-1
    autocorrelation of r, pooled over the models and freed of its bias (1 + 3ρ)/n, and μ that
    of m, the prewhitened rows are ``e_t = (r_t − ρ r_{t−1})/(1 − ρ) + (m_t − μ m_{t−1})/(1 −
    μ) 1`` (Andrews and Monahan 1992). One number for all models is known much better than
    one for each pair, and as few lags are left, the covariance H by Bartlett's weights with
    L = n^⅓ lags of e is not nearly singular, as those with many lags are in short series.

    Where pairs of models depend on each other for longer than ρ says, H is too small. B, from
    ψ itself with K = `long_lags` lags, sees this: ``V = H + (B − H)₊`` with
    `joint.positive_part`, which leaves out what may be noise.

    ``1/ν = (L + 1)/(1.5 n) + (1 + ρ)/((1 − ρ) n (l − 1))``: the errors of H and of ρ. Where B
    has the larger variance of a difference, ν is that of B, 1.5 n/(K + 1), at most.
    """
    n, count = psi.shape
    common = psi.mean(axis=1, keepdims=True)
    apart = psi - common
    own = autocorrelation(common)
    rho = autocorrelation(apart) if count > 1 else own
    rows = _prewhitened(apart, rho) + _prewhitened(common, own)
    rows -= rows.mean(axis=0)
    lags = round(n ** (1.0 / 3.0))
    longer = long_lags(n)
    short = gram(rows, lags)
    long = gram(psi, longer)
    noise = np.full((count, count), _spread(rho) / max(count - 1, 1))
    np.fill_diagonal(noise, max(_spread(rho), _spread(own)))
    freedom = 1.0 / ((lags + 1.0) / (1.5 * n) + noise / n)
    few = pair_variances(long) > pair_variances(short)
    freedom[few] = np.minimum(freedom[few], 1.5 * n / (longer + 1.0))
    covariance = short + positive_part(long - short, short)
    return SeriesLaw(covariance, np.maximum(freedom, 1.0), lags, rho)


def autocorrelation(rows: Array) -> float:
    """The lag-1 autocorrelation ρ of all columns together, plus (1 + 3ρ)/n, which is its bias;
    0 for rows that are constant.
    """
    square = float(np.square(rows).sum())
    if square == 0.0:
        return 0.0
    rho = float((rows[1:] * rows[:-1]).sum()) / square
    corrected = rho + (1.0 + 3.0 * rho) / len(rows)
    return min(max(corrected, -LARGEST_AUTOCORRELATION), LARGEST_AUTOCORRELATION)


def long_lags(n: int) -> int:
    """⌈1.3 √n⌉ − 1 lags (Lazarus, Lewis, Stock and Watson 2018), and in short series up to 23,
    less than a quarter of the rows.
    """
    return max(math.ceil(1.3 * math.sqrt(n)), min(MOST_SHORT_LAGS, n // 4)) - 1


def _prewhitened(rows: Array, rho: float) -> Array:
    return (rows[1:] - rho * rows[:-1]) / (1.0 - rho)


def _spread(rho: float) -> float:
    return (1.0 + rho) / (1.0 - rho)
