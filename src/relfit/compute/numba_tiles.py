"""Fused tiles for the CPU, compiled by Numba: from the argument of a tile to kernel values
and to their sums.

NumPy needs several passes over a tile, and its exponential is slow on processors without
AVX-512. Here one pass does it all, with an exponential and a logarithm that LLVM turns into
the vector instructions of whatever processor there is: no calls, no table, no conversion
between floating point and 64-bit integers. The product that gives the argument stays in
BLAS. This file imports numba, which is optional; `backend.NumbaBackend` imports it when it
is used.

Functions are compiled when they are first used, for one precision, in about half a second
each, and are kept in Numba's
cache: a folder beside this file, or that of the user, if one of them can be written to. What
is damaged there is compiled again.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.core.caching import FunctionCache
from numba.extending import overload

from relfit.kernels.base import Sum
from relfit.kernels.composite import MultiScale
from relfit.kernels.standard import IMQ, Gaussian, Matern, RationalQuadratic

# Rows whose column sums are added up in the precision of the tile before they are added to
# those in double precision, and those that `tile_sums` takes at once: so many that LLVM takes
# one vector of each, which spills no registers.
STRIP = 60
TOGETHER = 6
F = np.float32


def _exp(x):
    """e^x for x ≤ 700: 0 below the normal numbers of the type (−708, −87), NaN for NaN; the
    error is below one ulp.
    """


def _exp64(x):
    # e^x = 2^n e^r with n = x/ln 2 rounded: adding 1.5·2⁵² rounds, and leaves n in the last
    # bits.
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    n = shifted - 6755399441055744.0
    r = x - n * 0.6931471803691238
    r = r - n * 1.9082149292705877e-10
    # The polynomial with the smallest largest relative error, 4e-17, for |r| ≤ ln 2/2.
    p = 2.4685020450324106e-08
    p = p * r + 2.7619618910561944e-07
    p = p * r + 2.755839774528683e-06
    p = p * r + 2.4801521117721713e-05
    p = p * r + 0.00019841268814214428
    p = p * r + 0.001388888891870776
    p = p * r + 0.008333333333709782
    p = p * r + 0.04166666666661466
    p = p * r + 0.16666666666666247
    p = p * r + 0.5000000000000002
    p = p * r + 1.0
    p = p * r + 1.0
    # Added to the exponent of p, n multiplies it by 2^n.
    bits = np.float64(p).view(np.int64) + (np.float64(shifted).view(np.int64) << np.int64(52))
    return 0.0 if x < -708.0 else np.int64(bits).view(np.float64)


def _exp32(x):
    shifted = x * F(1.4426950408889634) + F(12582912.0)
    n = shifted - F(12582912.0)
    r = x - n * F(0.693359375)
    r = r + n * F(2.12194440e-4)
    p = F(0.0013341191224753857)
    p = p * r + F(0.008359183557331562)
    p = p * r + F(0.04167375713586807)
    p = p * r + F(0.16666600108146667)
    p = p * r + F(0.4999998211860657)
    p = p * r + F(1.0)
    p = p * r + F(1.0)
    bits = np.float32(p).view(np.int32) + np.int32(
        np.float32(shifted).view(np.int32) << np.int32(23)
    )
    return F(0.0) if x < F(-87.0) else np.int32(bits).view(np.float32)


@overload(_exp, jit_options={"fastmath": {"contract"}})
def _exp_of_type(x):
    return _exp32 if x == types.float32 else _exp64


class _Cache(FunctionCache):
    """Numba's cache, without which the functions work as well: a damaged file or a full disk
    stops nothing.
    """

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001  (the files are pickles, and anything may be in them)
            with suppress(Exception):
                self.flush()
            return None

    def save_overload(self, sig, data):
        with suppress(Exception):
            super().save_overload(sig, data)


def _compiled(*more):
    """Compile with fused multiplications and additions, and these `more` liberties."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", *more}}

    def decorate(function):
        compiled = njit(**options)(function)
        with suppress(RuntimeError):  # No folder for the cache can be written to.
            compiled._cache = _Cache(function)
        return compiled

    return decorate


# Sums may be taken in any order, so that they are taken in vectors; the order is fixed when
# this is compiled.
@_compiled("reassoc", "nsz")
def tile_sums(tile, values, right, left, rows, columns, upper):
    """Add tile @ right to `rows` and tileᵀ @ left to `columns`; returns the sum of squares.

    The tile holds exponents of a Gaussian, or kernel values if `values` is not None. If
    `upper`, only the pairs above its diagonal count. The sums are in double precision; right
    and left have the tile's type.
    """
    height, width = tile.shape
    partial = np.zeros(width, tile.dtype)
    zero = tile.dtype.type(0)
    squares = 0.0
    for start in range(0, height, STRIP):
        partial[:] = 0
        stop = min(start + STRIP, height)
        # Without exponentials, one row at a time is faster.
        first = start if upper or values is not None else stop - (stop - start) % TOGETHER
        for a in range(start, first, TOGETHER):
            w0 = left[a]
            w1 = left[a + 1]
            w2 = left[a + 2]
            w3 = left[a + 3]
            w4 = left[a + 4]
            w5 = left[a + 5]
            t0 = zero
            t1 = zero
            t2 = zero
            t3 = zero
            t4 = zero
            t5 = zero
            square = zero
            # An unsigned number needs no test for negative ones, which would keep LLVM from
            # using vectors.
            for b in range(np.uintp(0), np.uintp(width)):
                p0 = _exp(tile[a, b])
                p1 = _exp(tile[a + 1, b])
                p2 = _exp(tile[a + 2, b])
                p3 = _exp(tile[a + 3, b])
                p4 = _exp(tile[a + 4, b])
                p5 = _exp(tile[a + 5, b])
                r = right[b]
                t0 = t0 + p0 * r
                t1 = t1 + p1 * r
                t2 = t2 + p2 * r
                t3 = t3 + p3 * r
                t4 = t4 + p4 * r
                t5 = t5 + p5 * r
                partial[b] += p0 * w0 + p1 * w1 + p2 * w2 + p3 * w3 + p4 * w4 + p5 * w5
                square += p0 * p0 + p1 * p1 + p2 * p2 + p3 * p3 + p4 * p4 + p5 * p5
            for k, total in enumerate((t0, t1, t2, t3, t4, t5)):
                rows[a + k] += total
            squares += square
        for a in range(first, stop):
            weight = left[a]
            total = zero
            square = zero
            for b in range(np.uintp(a + 1 if upper else 0), np.uintp(width)):
                phi = tile[a, b]
                if values is None:
                    phi = _exp(phi)
                total += phi * right[b]
                partial[b] += phi * weight
                square += phi * phi
            rows[a] += total
            squares += square
        for b in range(width):
            columns[b] += partial[b]
    return squares


@_compiled()
def exponentials(tile):
    """The exponentials of a tile, in place."""
    for a in range(tile.shape[0]):
        for b in range(tile.shape[1]):
            tile[a, b] = _exp(tile[a, b])


# ── kernels other than the Gaussian: sums of terms, each a tuple of numbers of the tile's type


class Exponential(NamedTuple):
    """φ = e^(rate·t)."""

    rate: float
    square: float


class Decaying(NamedTuple):
    """With a = √(rate·t): φ = (one + p1 a + p2 a²) e^−a, φ' = (q0 + q1 a) e^−a and r²φ'' =
    (s1 a + s2 a²) e^−a.

    A factor that is constant is so for infinite a too, where NumPy's is: there a is limited
    by `ends` and `slope_ends`.
    """

    rate: float
    one: float
    p1: float
    p2: float
    q0: float
    q1: float
    s1: float
    s2: float
    ends: float
    slope_ends: float


class Power(NamedTuple):
    """φ = base^e with base = offset + slope·t; `first` is e·slope and `second` (e −
    1)·slope.
    """

    offset: float
    slope: float
    first: float
    second: float
    one: float
    exponent: float


class Root(Power):
    """The same with e = −½."""


class Inverse(Power):
    """The same with e = −1."""


def _values(t, term):
    """φ, φ' and r²φ'' of a term at t ≥ 0."""


def _exponential(t, term):
    phi = _exp(term.rate * t)
    return phi, term.rate * phi, term.square * t * phi


def _decaying(t, term):
    a = np.sqrt(term.rate * t)
    decay = _exp(-a)
    b = term.ends if a > term.ends else a
    c = term.slope_ends if a > term.slope_ends else a
    phi = (term.one + b * (term.p1 + b * term.p2)) * decay
    return phi, (term.q0 + c * term.q1) * decay, a * (term.s1 + a * term.s2) * decay


def _root(t, term):
    base = term.offset + term.slope * t
    inverse = term.one / base
    phi = term.one / np.sqrt(base)
    dphi = term.first * phi * inverse
    return phi, dphi, term.second * dphi * (t * inverse)


def _inverse(t, term):
    base = term.offset + term.slope * t
    inverse = term.one / base
    dphi = term.first * inverse * inverse
    return inverse, dphi, term.second * dphi * (t * inverse)


def _power(t, term):
    base = term.offset + term.slope * t
    inverse = term.one / base
    wide = np.float64(base)
    # An infinite base, or NaN, has no logarithm; the powers are negative.
    phi = _exp(term.exponent * _log(wide)) if wide < np.inf else np.float64(inverse)
    dphi = term.first * phi * inverse
    return phi, dphi, term.second * dphi * (t * inverse)


# The bits of √½ and of 1, and of 2⁵², to which a whole number below 2⁵² is added by setting its
# last bits.
LOG_ROOT = np.uint64(0x3FE6A09E667F3BCD)
LOG_ONE = np.uint64(0x3FF0000000000000)
LOG_MAGIC = np.uint64(0x4330000000000000)


@njit(fastmath={"contract"})
def _log(x):
    """log x of a positive normal number, to one ulp: with x = 2^n m, m between √½ and √2,
    and log m a series in s.
    """
    bits = np.float64(x).view(np.uint64)
    k = np.uint64(bits - LOG_ROOT + LOG_ONE) >> np.uint64(52)
    n = np.uint64(k | LOG_MAGIC).view(np.float64) - (4503599627370496.0 + 1023.0)
    f = np.uint64(bits - np.uint64(k << np.uint64(52)) + LOG_ONE).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = z * (
        0.6666666666666735
        + w * (0.2857142874366239 + w * (0.1818357216161805 + w * 0.14798198605116586))
    )
    even = w * (0.3999999999940942 + w * (0.22222198432149784 + w * 0.15313837699209373))
    half = 0.5 * f * f
    return n * 0.6931471803691238 - (
        (half - (s * (half + odd + even) + n * 1.9082149292705877e-10)) - f
    )


_FORMULAS = {
    Exponential: _exponential,
    Decaying: _decaying,
    Power: _power,
    Root: _root,
    Inverse: _inverse,
}


@overload(_values, jit_options={"fastmath": {"contract"}})
def _values_of_term(t, term):  # noqa: ARG001  (the names must be those of `_values`)
    return _FORMULAS[term.instance_class]


@_compiled()
def tile_values(argument, term, more, phi, dphi, r2ddphi):
    """Set φ, and φ' and r²φ'' unless they are None, to the term's at a flat tile of r²; add
    it if there are `more`.
    """
    zero = argument.dtype.type(0)
    for k in range(len(argument)):
        t = argument[k]
        values = _values(zero if t < zero else t, term)
        phi[k] = phi[k] + values[0] if more else values[0]
        if dphi is not None:
            dphi[k] = dphi[k] + values[1] if more else values[1]
            r2ddphi[k] = r2ddphi[k] + values[2] if more else values[2]


def terms_of(kernel, dtype):
    """A radial kernel as terms, in numbers of this type; None if it is not a sum of these,
    or they do not fit.
    """
    try:
        terms = [type(term)(*map(dtype, term)) for term in _terms(kernel)]
    except (KeyError, OverflowError, ZeroDivisionError):
        return None
    limits = np.finfo(dtype)
    # A number beyond the type, and a power that is so large at 0 that _exp does not hold it,
    # are left to NumPy.
    largest = math.log(float(limits.max)) - 10.0
    for term in terms:
        if not all(map(math.isfinite, term[:-2] if isinstance(term, Decaying) else term)):
            return None
        if isinstance(term, Power) and not (
            term.offset >= limits.tiny and term.exponent * math.log(term.offset) < largest
        ):
            return None
    return terms


def _terms(kernel):
    if isinstance(kernel, Sum):
        return [term for part in kernel.terms for term in _terms(part)]
    return _TERMS[type(kernel)](kernel)


def _gaussian_term(length):
    rate = -0.5 / length**2
    return Exponential(rate, rate**2)


def _power_term(offset, slope, exponent):
    return {-0.5: Root, -1.0: Inverse}.get(exponent, Power)(
        offset, slope, exponent * slope, (exponent - 1.0) * slope, 1.0, exponent
    )


def _matern_term(kernel):
    rate = 2.0 * kernel.smoothness / kernel.length**2
    scale = 1.0 / kernel.length**2
    if kernel.smoothness == 0.5:
        return Decaying(rate, 1.0, *(0.0,) * 6, 1e4, 1e4)
    if kernel.smoothness == 1.5:
        return Decaying(
            rate, 1.0, 1.0, 0.0, -1.5 * scale, 0.0, 0.75 * scale, 0.0, math.inf, 1e4
        )
    slope = -5.0 / 6.0 * scale
    return Decaying(
        rate, 1.0, 1.0, 1.0 / 3.0, slope, slope, 0.0, 5.0 / 12.0 * scale, math.inf, math.inf
    )


_TERMS = {
    Gaussian: lambda kernel: [_gaussian_term(kernel.length)],
    MultiScale: lambda kernel: [
        _gaussian_term(factor * kernel.bandwidth) for factor in kernel.factors
    ],
    Matern: lambda kernel: [_matern_term(kernel)],
    IMQ: lambda kernel: [_power_term(kernel.length**2, 1.0, kernel.exponent)],
    RationalQuadratic: lambda kernel: [
        _power_term(1.0, 0.5 / (kernel.alpha * kernel.length**2), -kernel.alpha)
    ],
}
