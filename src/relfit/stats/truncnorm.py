"""The truncated normal in logs, and selective inference built on it.

Notation: φ and Φ are the standard normal density and distribution function, Z ~ N(0, 1), and
a ≤ b are truncation limits, either of which may be infinite. Everything rests on one
integral,

    I(x, w) = ∫_0^w exp(−x s − s²/2) ds = [Φ(x + w) − Φ(x)] / φ(x),

evaluated without cancellation for every sign of x and every width w. For t in (a, b) the
factor φ(t) is common to the mass on either side of t, so the log odds

    λ = log P(Z < t | a < Z < b) − log P(Z > t | a < Z < b) = log I(−t, t − a) − log I(t, b − t)

never subtract large numbers, and log P(Z > t | a < Z < b) = −log(1 + e^λ) keeps its
*relative* accuracy at both ends: for p near 0 it is about −λ, for p near 1 about −e^λ.

λ depends on the position of t and on its distances to the two limits only. For N(μ, s²)
those are (t − μ)/s, (t − a)/s and (b − t)/s: differences are formed before the division, so
a narrow interval far from zero loses nothing to rounding.

Valid input is a ≤ b, s positive and finite, α and level in [0, 1], log q ≤ 0; it never gives
NaN or a warning. Anything else, NaN included, gives NaN: what a user typed is checked
elsewhere. Distances over s are taken to lie between 1e−300 and 1e300; beyond that they are
clipped and digits are lost.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import erf, erfcx, ndtr

from relfit.util.arrays import Array

_ROOT_HALF = math.sqrt(0.5)
_ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_TWO = math.log(2.0)
_SMALLEST = 5e-324
_LARGEST = 1e300
_SIGN_MASK = np.int64(0x7FFFFFFFFFFFFFFF)

_legendre_nodes, _legendre_weights = np.polynomial.legendre.leggauss(12)
_NODES = 0.5 * (1.0 + _legendre_nodes)
_WEIGHTS = 0.5 * _legendre_weights


def log_mass(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """log(Φ(b) − Φ(a)), elementwise; −inf where a ≥ b.

    The interval is reflected so that |a| ≤ |b|. Then a ≥ 0 gives log φ(a) + log I(a, b − a);
    a < 0 < b gives log of ½[erf(b/√2) + erf(−a/√2)], whose terms have one sign. A mass above
    one half is written log1p(−[Φ(a) + Φ(−b)]), which keeps its relative accuracy as the mass
    tends to 1.

    >>> round(float(log_mass(-1.0, 1.0)), 6)
    -0.381715
    >>> float(log_mass(40.0, 41.0)) < -800
    True
    """
    a, b = np.broadcast_arrays(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64))
    proper = a < b
    missing = np.isnan(a) | np.isnan(b)
    a = np.where(proper, a, -1.0)
    b = np.where(proper, b, 1.0)
    mirrored = b < -a
    a, b = np.where(mirrored, -b, a), np.where(mirrored, -a, b)
    with np.errstate(over="ignore", under="ignore"):
        outside = ndtr(a) + ndtr(-b)
        tail = -0.5 * a * a - _LOG_ROOT_TWO_PI + _log_decaying(np.clip(a, 0.0, _LARGEST), b - a)
        straddling = (
            np.log(erf(b * _ROOT_HALF) - erf(np.minimum(a, 0.0) * _ROOT_HALF)) - _LOG_TWO
        )
        value = np.where(a < 0.0, straddling, tail)
        value = np.where(outside < 0.5, np.log1p(-np.minimum(outside, 0.5)), value) + 0.0
    return np.where(proper, value, np.where(missing, np.nan, -np.inf))[()]


def selective_log_pvalue(
    statistic: npt.ArrayLike,
    standard_error: npt.ArrayLike,
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
) -> Array:
    """log P(N(0, s²) > t | V⁻ ≤ N(0, s²) ≤ V⁺), elementwise.

    t ≤ V⁻ gives 0.0 and t ≥ V⁺ gives −inf, except that zero width (V⁻ = V⁺) gives 0.0
    whatever t is: p = 1, and the caller says `tie`.

    >>> round(float(np.exp(selective_log_pvalue(1.96, 1.0, 0.0, np.inf))), 4)
    0.05
    """
    arrays = (
        np.asarray(value, dtype=np.float64)
        for value in (statistic, standard_error, lower, upper)
    )
    t, s, a, b = np.broadcast_arrays(*arrays)
    valid = (a <= b) & (s > 0.0) & (s < np.inf) & ~np.isnan(t)
    inside = valid & (a < t) & (t < b)
    t_in = np.where(inside, t, 0.0)
    s_in = np.where(inside, s, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        left = (t_in - np.where(inside, a, -1.0)) / s_in
        right = (np.where(inside, b, 1.0) - t_in) / s_in
        value = -np.logaddexp(0.0, _log_odds(t_in / s_in, left, right)) + 0.0
    edge = np.where((t <= a) | (a == b), 0.0, -np.inf)
    return np.where(inside, value, np.where(valid, edge, np.nan))[()]


def selective_threshold(
    alpha: npt.ArrayLike,
    standard_error: npt.ArrayLike,
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
) -> Array:
    """The smallest double t in [V⁻, V⁺] whose selective p-value is at most α, elementwise.

    It is found from `selective_log_pvalue` itself, so `statistic ≥ threshold` and `p ≤ α`
    are one decision. Zero width gives +inf: p = 1 there, so nothing is rejected.

    >>> round(float(selective_threshold(0.05, 2.0, 0.0, np.inf)), 4)  # 2 Φ⁻¹(0.975)
    3.9199
    """
    lower = np.asarray(lower, dtype=np.float64)
    upper = np.asarray(upper, dtype=np.float64)
    alpha = np.asarray(alpha, dtype=np.float64)
    usable = (alpha >= 0.0) & (alpha <= 1.0)
    with np.errstate(divide="ignore"):
        log_alpha = np.where(usable, np.log(np.where(usable, alpha, 1.0)), np.nan)
    threshold = _quantile(log_alpha, lower, upper, standard_error)
    return np.where(
        (lower == upper) & (log_alpha < 0.0) & ~np.isnan(threshold), np.inf, threshold
    )[()]


def selective_lower_bound(
    statistic: float, standard_error: float, lower: float, upper: float, level: float
) -> float:
    """One-sided lower confidence bound for the mean μ of N(μ, s²) truncated to [V⁻, V⁺] and
    observed at t (scalars).

    P_μ(T > t | V⁻ < T < V⁺) increases with μ, and is 1 − level at the bound. The bound is
    above 0 exactly when the selective p-value is below 1 − level. Where no finite one exists
    (t on a limit, zero width, level 0 or 1) the answer is −inf: no information. An upper
    bound is that of −t, mirrored.

    >>> round(selective_lower_bound(1.0, 1.0, -np.inf, np.inf, 0.95), 4)
    -0.6449
    """
    inside = 0.0 < level < 1.0
    target = (
        math.log(level / (1.0 - level))
        if inside
        else (math.inf if level in (0.0, 1.0) else math.nan)
    )
    t = float(statistic)
    s = float(standard_error)
    a = float(lower)
    b = float(upper)
    if not (a <= b and 0.0 < s < math.inf) or math.isnan(t) or math.isnan(target):
        return math.nan
    left = np.asarray((t - a) / s)
    right = np.asarray((b - t) / s)
    if not (left > 0.0 and right > 0.0 and math.isfinite(target)):
        return -math.inf

    def excess(x: float) -> float:
        return float(_log_odds(np.asarray(x), left, right)) - target

    # In x = (t − μ)/s the log odds increase without bound: bracketed by doubling, then Brent.
    near = 0.0
    far = math.copysign(1.0, -excess(0.0))
    while excess(far) * far < 0.0 and abs(far) < _LARGEST:
        near = far
        far = 2.0 * far
    if excess(far) * far < 0.0:
        return -math.inf
    return t - s * float(brentq(excess, near, far, xtol=1e-14, rtol=1e-15, maxiter=1000))


def _log_decaying(x: Array, w: Array) -> Array:
    """log I(x, w) for x ≥ 0 and w > 0: the integrand falls from its left end.

    A short interval, w(1 + x) < 1, is done by Gauss–Legendre quadrature on [0, 1] (12 nodes:
    the integrand is within e^−1 of constant, so 8 already reach 2e−17). On a longer one
    √(π/2)[erfcx(x/√2) − exp(−w(w + 2x)/2) erfcx((x + w)/√2)] keeps at least half of its
    first term, so the subtraction costs one bit.
    """
    w = np.maximum(w, _SMALLEST)
    short = w * (1.0 + x) < 1.0
    decay = np.exp(-0.5 * w * (w + 2.0 * x))
    integral = np.asarray(
        _ROOT_HALF_PI * (erfcx(x * _ROOT_HALF) - decay * erfcx((x + w) * _ROOT_HALF))
    )
    if short.any():
        start = x[short][:, None]
        width = w[short][:, None]
        exponent = _NODES * width * (start + 0.5 * width * _NODES)
        integral[short] = width[:, 0] * np.sum(_WEIGHTS * np.exp(-exponent), axis=-1)
    return np.asarray(np.log(integral))


def _log_integral(x: Array, w: Array) -> Array:
    """log I(x, w) for any finite x and w > 0, each case anchored at the point of [x, x + w]
    nearest to 0.

    x ≥ 0: as `_log_decaying`. x + w ≤ 0: seen from the other end, w(2|x| − w)/2 + log I(|x|
    − w, w). Otherwise 0 is inside: x²/2 + log √(π/2)[erf(|x|/√2) + erf((w − |x|)/√2)], two
    terms of one sign.
    """
    size = np.abs(x)
    rising = x < 0.0
    crosses = rising & (w > size)
    lift = np.where(rising & ~crosses, 0.5 * w * (2.0 * size - w), 0.0)
    one_sided = lift + _log_decaying(np.where(rising, np.maximum(size - w, 0.0), x), w)
    before_zero = np.where(crosses, size, 0.0)
    both = erf(before_zero * _ROOT_HALF) + erf(
        np.maximum(w - before_zero, _SMALLEST) * _ROOT_HALF
    )
    two_sided = 0.5 * size * size + np.log(_ROOT_HALF_PI * both)
    return np.where(crosses, two_sided, one_sided)


def _log_odds(x: Array, left: Array, right: Array) -> Array:
    """λ of the module's opening: log odds of falling below x in (x − left, x + right), left,
    right > 0.
    """
    with np.errstate(over="ignore", under="ignore"):
        x = np.clip(x, -_LARGEST, _LARGEST)
        return _log_integral(-x, left) - _log_integral(x, right)


def _ordered(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bits of doubles to integers in the same order, and back: the map is its own inverse."""
    return bits ^ ((bits >> 63) & _SIGN_MASK)


def _quantile(
    log_q: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike, scale: npt.ArrayLike
) -> Array:
    """The smallest double x in [a, b] with log P(N(0, scale²) > x | a, b) ≤ log_q.

    log_q = 0 gives a, log_q = −inf gives b, and zero width gives the only point there is.
    Otherwise by bisection over the doubles themselves, in their order as 64-bit integers: at
    most 64 steps to two neighbours, for narrow, wide and infinite intervals alike, with no
    bracket to find and no tolerance.
    """
    log_q, a, b, scale = np.broadcast_arrays(
        *(np.asarray(v, dtype=np.float64) for v in (log_q, a, b, scale))
    )
    valid = (a <= b) & (scale > 0.0) & (scale < np.inf) & (log_q <= 0.0)
    low = _ordered(a.copy().view(np.int64))
    high = _ordered(b.copy().view(np.int64))
    for _ in range(64):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        if np.all(middle == low):
            break
        above = selective_log_pvalue(_ordered(middle).view(np.float64), scale, a, b) > log_q
        low = np.where(above, middle, low)
        high = np.where(above, high, middle)
    x = _ordered(high).view(np.float64) + 0.0
    x = np.where((log_q == 0.0) | (a == b), a, np.where(np.isneginf(log_q), b, x))
    return np.where(valid, x, np.nan)[()]
