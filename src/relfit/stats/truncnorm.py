"""The truncated normal in logs, and selective inference built on it.

Notation: φ and Φ are the standard normal density and distribution function, Z ~ N(0, 1), and a ≤ b are
truncation limits, either of which may be infinite. Everything rests on one integral,

    I(x, w) = ∫_0^w exp(−x s − s²/2) ds = [Φ(x + w) − Φ(x)] / φ(x),

evaluated without cancellation for every sign of x and every width w. For t in (a, b) the factor φ(t) is
common to the mass on either side of t, so the log odds

    λ = log P(Z < t | a < Z < b) − log P(Z > t | a < Z < b) = log I(−t, t − a) − log I(t, b − t)

never subtract large numbers, and log P(Z > t | a < Z < b) = −log(1 + e^λ) keeps its *relative* accuracy at
both ends: for p near 0 it is about −λ, for p near 1 about −e^λ.

λ depends on the position of t and on its distances to the two limits only. For N(μ, s²) those are (t − μ)/s,
(t − a)/s and (b − t)/s: differences are formed before the division, so a narrow interval far from zero loses
nothing to rounding.

Valid input is a ≤ b, s positive and finite, α and level in [0, 1], log q ≤ 0; it never gives NaN or a
warning. Anything else, NaN included, gives NaN: checking what a user typed is the task of the layers above.
Distances over s are taken to lie between 1e−300 and 1e300; beyond that they are clipped and digits are lost.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import erf, erfcx, ndtr

Array = npt.NDArray[np.float64]

_ROOT_HALF = math.sqrt(0.5)
_ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_TWO = math.log(2.0)
_SMALLEST, _LARGEST = 5e-324, 1e300
_SIGN_MASK = np.int64(0x7FFFFFFFFFFFFFFF)

_legendre_nodes, _legendre_weights = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = 0.5 * (1.0 + _legendre_nodes), 0.5 * _legendre_weights


def log_mass(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """log(Φ(b) − Φ(a)), elementwise; −inf where a ≥ b.

    The interval is reflected so that |a| ≤ |b|. Then a ≥ 0 gives log φ(a) + log I(a, b − a); a < 0 < b gives
    log of ½[erf(b/√2) + erf(−a/√2)], whose terms have one sign. A mass above one half is written
    log1p(−[Φ(a) + Φ(−b)]), which keeps its relative accuracy as the mass tends to 1.

    >>> round(float(log_mass(-1.0, 1.0)), 6)
    -0.381715
    >>> float(log_mass(40.0, 41.0)) < -800
    True
    """
    a, b = np.broadcast_arrays(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64))
    proper, missing = a < b, np.isnan(a) | np.isnan(b)
    a, b = np.where(proper, a, -1.0), np.where(proper, b, 1.0)
    mirrored = b < -a
    a, b = np.where(mirrored, -b, a), np.where(mirrored, -a, b)
    with np.errstate(over="ignore", under="ignore"):
        outside = ndtr(a) + ndtr(-b)
        tail = -0.5 * a * a - _LOG_ROOT_TWO_PI + _log_decaying(np.clip(a, 0.0, _LARGEST), b - a)
        straddling = np.log(erf(b * _ROOT_HALF) - erf(np.minimum(a, 0.0) * _ROOT_HALF)) - _LOG_TWO
        value = np.where(a < 0.0, straddling, tail)
        value = np.where(outside < 0.5, np.log1p(-np.minimum(outside, 0.5)), value) + 0.0
    return np.where(proper, value, np.where(missing, np.nan, -np.inf))[()]


def log_sf(t: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """log P(Z > t | a < Z < b), elementwise.

    t ≤ a gives 0.0 and t ≥ b gives −inf, except that zero width (a = b) gives 0.0 whatever t is: p = 1, and
    the caller says `tie`.

    >>> round(float(log_sf(1.0, 0.0, float("inf"))), 6)  # log 2(1 − Φ(1))
    -1.147874
    """
    return _log_survival(t, a, b, 1.0)


def log_cdf(t: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """log P(Z < t | a < Z < b) = log_sf(−t, −b, −a), elementwise.

    t ≥ b gives 0.0 and t ≤ a gives −inf. Zero width gives 0.0, as in `log_sf`: both are the inclusive
    probabilities of a point mass at t.

    >>> round(float(log_cdf(0.0, -2.0, 2.0)), 6)  # log ½
    -0.693147
    """
    t, a, b = (np.asarray(value, dtype=np.float64) for value in (t, a, b))
    return _log_survival(-t, -b, -a, 1.0)


def isf(log_q: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """The smallest double x in [a, b] with log_sf(x, a, b) ≤ log_q, elementwise.

    log_q = 0 gives a, log_q = −inf gives b, zero width gives the only point there is.

    >>> round(float(isf(np.log(0.05), -np.inf, np.inf)), 6)
    1.644854
    """
    return _quantile(log_q, a, b, 1.0)


def selective_log_pvalue(
    statistic: npt.ArrayLike, standard_error: npt.ArrayLike, lower: npt.ArrayLike, upper: npt.ArrayLike
) -> Array:
    """log P(N(0, s²) > t | V⁻ ≤ N(0, s²) ≤ V⁺), elementwise; a t outside [V⁻, V⁺] counts as the nearer end.

    >>> round(float(np.exp(selective_log_pvalue(1.96, 1.0, 0.0, np.inf))), 4)
    0.05
    """
    return _log_survival(statistic, lower, upper, standard_error)


def selective_threshold(
    alpha: npt.ArrayLike, standard_error: npt.ArrayLike, lower: npt.ArrayLike, upper: npt.ArrayLike
) -> Array:
    """The smallest double t in [V⁻, V⁺] whose selective p-value is at most α, elementwise.

    It is found from `selective_log_pvalue` itself, so `statistic ≥ threshold` and `p ≤ α` are one decision
    up to rounding. Zero width gives +inf: p = 1 there, so nothing is rejected.

    >>> round(float(selective_threshold(0.05, 2.0, 0.0, np.inf)), 4)  # 2 Φ⁻¹(0.975)
    3.9199
    """
    lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    alpha = np.asarray(alpha, dtype=np.float64)
    usable = (alpha >= 0.0) & (alpha <= 1.0)
    with np.errstate(divide="ignore"):
        log_alpha = np.where(usable, np.log(np.where(usable, alpha, 1.0)), np.nan)
    threshold = _quantile(log_alpha, lower, upper, standard_error)
    return np.where((lower == upper) & (log_alpha < 0.0) & ~np.isnan(threshold), np.inf, threshold)[()]


def truncation_limits(
    values: npt.ArrayLike, covariance: npt.ArrayLike, i: int, best: int, excluded: npt.ArrayLike | None = None
) -> tuple[float, float]:
    """The interval [V⁻, V⁺] of t = D_i − D_J over which J stays the argmin, all else of D held fixed.

    values D (l,), covariance V (l, l), J = `best` = argmin D, i ≠ J. With η = e_i − e_J, s² = ηᵀVη and
    c = Vη/s², the part of D independent of t is D − c t. Writing gap_k = D_k − D_J ≥ 0 and d_k = c_k − c_J,

        V⁻ = max_{d_k > 0} (t − gap_k/d_k),    V⁺ = min_{d_k < 0} (t − gap_k/d_k),

    with −inf and +inf for empty sets. A d_k no larger than 1e−12 of the four covariances it is a sum of is
    rounding and its row is dropped, as are the rows of the boolean mask `excluded` (models whose difference
    to J has no variance). Row i always counts: d_i = 1 and gap_i = t, so V⁻ ≥ 0. V⁻ ≤ t ≤ V⁺ always.
    s² ≤ 0 gives (nan, nan): such a pair is decided before any truncation.

    >>> truncation_limits([0.0, 1.0, 3.0], np.eye(3), i=1, best=0)
    (0.0, inf)
    """
    d, v = np.asarray(values, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    slope = selection_slopes(v, i, best)
    if slope is None:
        return math.nan, math.nan
    counted = np.ones(d.shape, dtype=bool) if excluded is None else ~np.asarray(excluded, dtype=bool)
    counted[best], counted[i] = False, True
    t = float(d[i] - d[best])
    crossing = np.full(d.shape, np.nan)
    with np.errstate(over="ignore", under="ignore"):
        np.divide(d - d[best], slope, out=crossing, where=counted & (slope != 0.0))
    lower = np.max(t - crossing[counted & (slope > 0.0)], initial=-np.inf)
    upper = np.min(t - crossing[counted & (slope < 0.0)], initial=np.inf)
    return min(float(lower), t), max(float(upper), t)


def selective_interval(
    statistic: float, standard_error: float, lower: float, upper: float, level: float
) -> tuple[float, float]:
    """Equal-tailed interval for the mean μ of N(μ, s²) truncated to [V⁻, V⁺] and observed at t (scalars).

    P_μ(T > t | V⁻ < T < V⁺) increases with μ; the ends solve it = (1 − level)/2 and = (1 + level)/2. Where no
    finite end exists (t on a limit, zero width, level 1) the answer is −inf below and +inf above: no
    information, rather than an empty interval.

    >>> lo, hi = selective_interval(1.0, 1.0, -np.inf, np.inf, 0.95)
    >>> round(lo, 4), round(hi, 4)
    (-0.96, 2.96)
    """
    tail = 0.5 * (1.0 - level)
    target = math.log((1.0 - tail) / tail) if 0.0 < tail <= 0.5 else (math.inf if tail == 0.0 else math.nan)
    return (
        _mean_at_log_odds(statistic, standard_error, lower, upper, target, -math.inf),
        _mean_at_log_odds(statistic, standard_error, lower, upper, -target, math.inf),
    )


def selective_lower_bound(
    statistic: float,
    standard_error: float,
    lower: float,
    upper: float,
    level: float,
) -> float:
    """One-sided lower confidence bound for the same mean: P_μ(T > t | V⁻ < T < V⁺) = 1 − level (scalars).

    It is above 0 exactly when the selective p-value is below 1 − level; −inf where no finite bound exists.

    >>> round(selective_lower_bound(1.0, 1.0, -np.inf, np.inf, 0.95), 4)
    -0.6449
    """
    inside = 0.0 < level < 1.0
    target = math.log(level / (1.0 - level)) if inside else (math.inf if level in (0.0, 1.0) else math.nan)
    return _mean_at_log_odds(statistic, standard_error, lower, upper, target, -math.inf)


def _log_decaying(x: Array, w: Array) -> Array:
    """log I(x, w) for x ≥ 0 and w > 0: the integrand falls from its left end.

    A short interval, w(1 + x) < 1, is done by Gauss–Legendre quadrature on [0, 1] (12 nodes: the integrand is
    within e^−1 of constant, so 8 already reach 2e−17). On a longer one
    √(π/2)[erfcx(x/√2) − exp(−w(w + 2x)/2) erfcx((x + w)/√2)] keeps at least half of its first term, so the
    subtraction costs one bit.
    """
    w = np.maximum(w, _SMALLEST)
    short = w * (1.0 + x) < 1.0
    x_short, w_short = np.where(short, x, 0.0)[..., None], np.where(short, w, 0.0)[..., None]
    exponent = _NODES * w_short * (x_short + 0.5 * w_short * _NODES)
    mean = np.sum(_WEIGHTS * np.exp(-exponent), axis=-1)
    decay = np.exp(-0.5 * w * (w + 2.0 * x))
    closed = _ROOT_HALF_PI * (erfcx(x * _ROOT_HALF) - decay * erfcx((x + w) * _ROOT_HALF))
    result: Array = np.log(np.where(short, w * mean, closed))
    return result


def _log_integral(x: Array, w: Array) -> Array:
    """log I(x, w) for any finite x and w > 0, each case anchored at the point of [x, x + w] nearest to 0.

    x ≥ 0: as `_log_decaying`. x + w ≤ 0: seen from the other end, w(2|x| − w)/2 + log I(|x| − w, w).
    Otherwise 0 is inside: x²/2 + log √(π/2)[erf(|x|/√2) + erf((w − |x|)/√2)], two terms of one sign.
    """
    size = np.abs(x)
    rising = x < 0.0
    crosses = rising & (w > size)
    lift = np.where(rising & ~crosses, 0.5 * w * (2.0 * size - w), 0.0)
    one_sided = lift + _log_decaying(np.where(rising, np.maximum(size - w, 0.0), x), w)
    before_zero = np.where(crosses, size, 0.0)
    both = erf(before_zero * _ROOT_HALF) + erf(np.maximum(w - before_zero, _SMALLEST) * _ROOT_HALF)
    two_sided = 0.5 * size * size + np.log(_ROOT_HALF_PI * both)
    return np.where(crosses, two_sided, one_sided)


def _log_odds(x: Array, left: Array, right: Array) -> Array:
    """λ of the module's opening: log odds of falling below x in (x − left, x + right), left, right > 0."""
    with np.errstate(over="ignore", under="ignore"):
        x = np.clip(x, -_LARGEST, _LARGEST)
        return _log_integral(-x, left) - _log_integral(x, right)


def _log_survival(t: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike, scale: npt.ArrayLike) -> Array:
    """log P(T > t | a < T < b) for T ~ N(0, scale²), with the conventions of `log_sf`."""
    t, a, b, scale = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (t, a, b, scale)))
    valid = (a <= b) & (scale > 0.0) & (scale < np.inf) & ~np.isnan(t)
    inside = valid & (a < t) & (t < b)
    t_in, scale_in = np.where(inside, t, 0.0), np.where(inside, scale, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        left = (t_in - np.where(inside, a, -1.0)) / scale_in
        right = (np.where(inside, b, 1.0) - t_in) / scale_in
        value = -np.logaddexp(0.0, _log_odds(t_in / scale_in, left, right)) + 0.0
    edge = np.where((t <= a) | (a == b), 0.0, -np.inf)
    return np.where(inside, value, np.where(valid, edge, np.nan))[()]


def _ordered(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bits of doubles to integers in the same order, and back: the map is its own inverse."""
    return bits ^ ((bits >> 63) & _SIGN_MASK)


def _quantile(log_q: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike, scale: npt.ArrayLike) -> Array:
    """The smallest double x in [a, b] with _log_survival(x, a, b, scale) ≤ log_q.

    Bisection over the doubles themselves, in their order as 64-bit integers: at most 64 steps to two
    neighbours, for narrow, wide and infinite intervals alike, with no bracket to find and no tolerance.
    """
    log_q, a, b, scale = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (log_q, a, b, scale)))
    valid = (a <= b) & (scale > 0.0) & (scale < np.inf) & (log_q <= 0.0)
    low, high = _ordered(a.copy().view(np.int64)), _ordered(b.copy().view(np.int64))
    for _ in range(64):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        if np.all(middle == low):
            break
        above = _log_survival(_ordered(middle).view(np.float64), a, b, scale) > log_q
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    x = _ordered(high).view(np.float64) + 0.0
    x = np.where((log_q == 0.0) | (a == b), a, np.where(np.isneginf(log_q), b, x))
    return np.where(valid, x, np.nan)[()]


def selection_slopes(v: Array, i: int, best: int) -> Array | None:
    """d_k = Cov(D_k − D_J, D_i − D_J)/s², 0 where that is rounding, exactly 1 at i; None if s² ≤ 0."""
    toward = v[:, i] - v[:, best]
    variance = toward[i] - toward[best]
    if not variance > 0.0:
        return None
    size = np.abs(v[:, i]) + np.abs(v[:, best]) + abs(v[best, i]) + abs(v[best, best])
    covariance = toward - toward[best]
    with np.errstate(over="ignore", under="ignore"):
        slope: Array = np.where(np.abs(covariance) <= 1e-12 * size, 0.0, covariance / variance)
    slope[i] = 1.0
    return slope


def _mean_at_log_odds(t: float, s: float, lower: float, upper: float, target: float, default: float) -> float:
    """The mean μ at which the log odds of falling below t are `target`; `default` where no finite μ has them.

    Solved for x = (t − μ)/s, in which the log odds increase without bound: bracketed by doubling, then Brent.
    """
    t, s, lower, upper = float(t), float(s), float(lower), float(upper)
    if not (lower <= upper and 0.0 < s < math.inf) or math.isnan(t) or math.isnan(target):
        return math.nan
    left, right = np.asarray((t - lower) / s), np.asarray((upper - t) / s)
    if not (left > 0.0 and right > 0.0 and math.isfinite(target)):
        return default

    def excess(x: float) -> float:
        return float(_log_odds(np.asarray(x), left, right)) - target

    near, far = 0.0, math.copysign(1.0, -excess(0.0))
    while excess(far) * far < 0.0 and abs(far) < _LARGEST:
        near, far = far, 2.0 * far
    if excess(far) * far < 0.0:
        return default
    return t - s * float(brentq(excess, near, far, xtol=1e-14, rtol=1e-15, maxiter=1000))
