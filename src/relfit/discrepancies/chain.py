"""KSD² of Markov chain draws to a target density: neighbouring draws depend on each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import ksd
from relfit.discrepancies.psi import centred
from relfit.kernels import Kernel
from relfit.tiles import Runtime

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ChainEstimate:
    """KSD² of one chain, its ψ averaged over batches, and how the batches were chosen."""

    value: float
    batch_psi: Array
    batch_length: int
    autocorrelation_time: float


def chain_ksd(x: Array, scores: Array, kernel: Kernel, runtime: Runtime) -> ChainEstimate:
    """KSD² from the pairs of draws (m, d) at least one batch length apart, with ψ as batch means.

    Near pairs depend on each other and would bias D; they are left out. The variance of the mean of a
    correlated series is that of its batch means, ``V = Σ_b ψ̄_b²/(B(B−1))`` over B batches of length L.
    """
    m = len(x)
    sums = ksd.row_sums(x, [scores], kernel, runtime)[:, 0]
    tau = autocorrelation_time(sums)
    length = batch_length(m, tau)
    sums -= _near_sums(x, scores, kernel, length)
    g = sums * (m / _far_pairs(m, length))
    batches = m // length
    psi = centred(g)[: batches * length].reshape(batches, length).mean(axis=1)
    return ChainEstimate(float(g.mean()), psi - psi.mean(), length, tau)


def batch_length(m: int, tau: float) -> int:
    """``L = ⌈m^{1/3} τ^{2/3}⌉``: the order that balances the bias and the variance of batch means."""
    return int(min(max(1, math.ceil(m ** (1 / 3) * tau ** (2 / 3))), max(1, m // 4)))


def autocorrelation_time(series: Array) -> float:
    """τ = 1 + 2Σρ_k of a stationary series (m,), the sum ended by Geyer's initial positive sequence rule.

    >>> white = np.random.default_rng(0).normal(size=4000)
    >>> 0.7 < autocorrelation_time(white) < 1.4
    True
    """
    centre = series - series.mean()
    m = len(centre)
    size = 1 << (2 * m - 1).bit_length()
    spectrum = np.fft.rfft(centre, size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size)[:m]
    if covariance[0] <= 0.0:
        return 1.0
    rho = covariance / covariance[0]
    pairs = rho[: m // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0.0)
    end = int(negative[0]) if len(negative) else len(pairs)
    return max(1.0, float(2.0 * pairs[:end].sum() - 1.0))


def _near_sums(x: Array, scores: Array, kernel: Kernel, length: int) -> Array:
    """Σ u(x_a, x_b) over 0 < |a − b| < L, for every a."""
    near = np.zeros(len(x))
    for lag in range(1, length):
        u = ksd.pair_values(kernel, (x[:-lag], [scores[:-lag]]), (x[lag:], [scores[lag:]]))[:, 0]
        near[:-lag] += u
        near[lag:] += u
    return near


def _far_pairs(m: int, length: int) -> int:
    """The number of ordered pairs with |a − b| ≥ L."""
    return (m - length) * (m - length + 1)
