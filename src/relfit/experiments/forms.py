"""The true positive rate of two-model tests from the population alone: for large n in closed form, and at a given n.

Rejecting needs D_2 − D_1 > z ŝ, which for large n is normal with a known s. At a finite n three things differ:
the variance has a part of order 1/n², the estimated one counts that part twice, and it moves with the estimate. All
three follow from the U-statistic's expansion with means ē_k of n rows taken to be normal, η_k = √n ē_k:

    D_2 − D_1 = μ + (2/√n) Σ b_k η_k + (1/n) Σ ν_k (η_k² − 1),    ŝ² = (4/n) Σ (b_k + ν_k η_k/√n)².
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from relfit.experiments.population import Gap

Array = NDArray[np.float64]

DRAWS = 50_000
# Terms with smaller |ν| than this part of the largest are drawn as one normal number: their sum is normal enough.
SMALL = 0.005


def relpsi_limit(gap: Gap, n: float, alpha: float = 0.05) -> float:
    """P(P2 is declared worse) = Φ(√n μ/σ − z_{1−α/2}), σ² = `gap.first`."""
    return float(norm.cdf(_signal(gap, n) - norm.isf(alpha / 2.0)))


def relmulti_limit(gap: Gap, n: float, select_fraction: float, alpha: float = 0.05) -> float:
    """P(P1 is selected) P(P2 is then declared worse) = Φ(√(n(1−ρ)) μ/σ) Φ(√(nρ) μ/σ − z_{1−α}), ρ the test share."""
    chosen = norm.cdf(_signal(gap, n * select_fraction))
    return float(chosen * norm.cdf(_signal(gap, n * (1.0 - select_fraction)) - norm.isf(alpha)))


def relpsi_at(gap: Gap, n: int, alpha: float = 0.05) -> float:
    """P(D_2 − D_1 > z_{1−α/2} ŝ) at n rows: given that P1 is selected, t/ŝ is compared with a normal cut at 0."""
    return _exceeds(gap, n, float(norm.isf(alpha / 2.0)))


def relmulti_at(gap: Gap, n: int, select_fraction: float, alpha: float = 0.05) -> float:
    """P(D_2 − D_1 > 0) on the selection share times P(D_2 − D_1 > z_{1−α} ŝ) on the testing share."""
    selecting = round(select_fraction * n)
    return _exceeds(gap, selecting, 0.0) * _exceeds(gap, n - selecting, float(norm.isf(alpha)))


def relmulti_steps(gap: Gap, n: int, select_fraction: float, alpha: float = 0.05) -> dict[str, float]:
    """From the closed form to the rate at n rows, one cause after the other."""
    selecting = round(select_fraction * n)
    testing, z = n - selecting, float(norm.isf(alpha))
    spread, told = (math.sqrt(gap.first / testing + times * gap.second / testing**2) for times in (1.0, 2.0))
    chosen = norm.cdf(gap.mean / math.sqrt(gap.first / selecting + gap.second / selecting**2))
    return {
        "closed form, σ²/n": relmulti_limit(gap, n, select_fraction, alpha),
        "the variance of the estimate at n": float(chosen * norm.cdf(gap.mean / spread - z)),
        "the mean estimated variance in the threshold": float(chosen * norm.cdf((gap.mean - z * told) / spread)),
        "the estimated variance moves with the estimate": relmulti_at(gap, n, select_fraction, alpha),
    }


def estimates(gap: Gap, n: int) -> tuple[Array, Array]:
    """DRAWS pairs of the gap's estimate and its estimated variance at n rows, the same normal numbers for every n."""
    rng = np.random.default_rng(0)
    kept = np.abs(gap.eigenvalues) > SMALL * np.abs(gap.eigenvalues).max()
    b, nu = gap.projections[kept], gap.eigenvalues[kept]
    eta = rng.standard_normal((DRAWS, len(b)))
    linear = float((gap.projections[~kept] ** 2).sum())
    square = float((gap.eigenvalues[~kept] ** 2).sum())
    value = gap.mean + (2.0 / math.sqrt(n)) * (eta @ b) + ((eta**2 - 1.0) @ nu) / n
    value += math.sqrt(4.0 * linear / n + 2.0 * square / n**2) * rng.standard_normal(DRAWS)
    variance = (4.0 / n) * (((b + nu * eta / math.sqrt(n)) ** 2).sum(axis=1) + linear + square / n)
    return value, variance


@lru_cache
def _exceeds(gap: Gap, n: int, z: float) -> float:
    """P(D_2 − D_1 > z ŝ)."""
    value, variance = estimates(gap, n)
    return float(np.mean(value > z * np.sqrt(variance)))


def _signal(gap: Gap, n: float) -> float:
    return gap.mean / math.sqrt(gap.first / n)
