"""Two models: the power of every test in closed form, as a function of the signal r = μ/s(n).

μ = D_2 − D_1 > 0 is the gap, s(n) = s(n₀)√(n₀/n) its standard error with n rows.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

# Beyond this signal every power is 1 to rounding.
_LARGEST_SIGNAL = 1e3
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)
# Half the width, in standard errors, of what is integrated.
_REACH = 9.0
# Best-set is the one test that corrects for both of two hypotheses: what its smaller p-value is multiplied by.
_PENALTY = {"none": 1.0, "holm": 2.0, "bonferroni": 2.0, "bh": 2.0, "by": 3.0, "auto": 3.0}


def power_of_two(test: str, signal: float, alpha: float, select_fraction: float, correction: str) -> float:
    """The probability that the worse one of two models is declared worse.

    RelPSI: Φ(r − z_{1−α/2}). RelMulti: Φ(√ρ r − z_{1−α}) Φ(√(1−ρ) r), ρ the test share. Best set: Φ(r − z_{1−α}).
    Carving (γ = 1): see `_carve`. A correction changes the best set alone: the others have one hypothesis left.

    >>> round(power_of_two("best-set", 2.4865, 0.05, 0.25, "none"), 3)
    0.8
    """
    if test == "relpsi":
        return float(ndtr(signal + ndtri(alpha / 2.0)))
    if test == "relmulti":
        chosen = ndtr(math.sqrt(select_fraction) * signal)
        return float(chosen * ndtr(math.sqrt(1.0 - select_fraction) * signal + ndtri(alpha)))
    if test == "best-set":
        return float(ndtr(signal + ndtri(alpha / _PENALTY[correction])))
    return _carve(signal, alpha)


def signal_needed(test: str, power: float, alpha: float, select_fraction: float, correction: str) -> float:
    """The signal r at which the test has this power; 0 if it has it without any."""

    def excess(signal: float) -> float:
        return power_of_two(test, signal, alpha, select_fraction, correction) - power

    if excess(0.0) >= 0.0:
        return 0.0
    return float(brentq(excess, 0.0, _LARGEST_SIGNAL, xtol=1e-12))


def _carve(signal: float, alpha: float) -> float:
    """∫_c^∞ φ(t − r) Φ(t) dt with Φ(c) = √(1−α).

    J = argmin(D + w) selects the better model with probability Φ(t), t = (D_2 − D_1)/s, as w_2 − w_1 has the same
    spread. The p-value is 2∫_t^∞ φΦ = 1 − Φ(t)², at most α from c on.
    """
    cut = float(ndtri(math.sqrt(1.0 - alpha)))
    low, high = max(cut, signal - _REACH), max(cut, signal) + _REACH
    t = low + (high - low) * (_NODES + 1.0) / 2.0
    density = np.exp(-0.5 * (t - signal) ** 2) / math.sqrt(2.0 * math.pi)
    return float(min(1.0, (high - low) / 2.0 * (_WEIGHTS @ (density * ndtr(t)))))
