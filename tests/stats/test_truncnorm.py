"""The truncated normal against high-precision arithmetic, hand-derived values, laws and simulation.

Every call runs with warnings turned into errors and NumPy's floating-point errors raised (`strict`).
"""

from __future__ import annotations

import math
import warnings

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtri

from relfit.stats import truncnorm as tn

INF = math.inf
laws = settings(max_examples=300, deadline=None, database=None)
finite = st.floats(-1e3, 1e3, allow_nan=False)
limit = st.one_of(finite, st.sampled_from([-INF, INF]))
any_float = st.floats(allow_nan=False)


def log_sf(t, a, b):
    """log P(Z > t | a < Z < b)."""
    return tn.selective_log_pvalue(t, 1.0, a, b)


def log_cdf(t, a, b):
    """log P(Z < t | a < Z < b)."""
    return log_sf(*(-np.asarray(value, dtype=float) for value in (t, b, a)))


def isf(log_q, a, b):
    """The smallest double whose log SF is at most log_q."""
    return tn._quantile(log_q, a, b, 1.0)


def interval(t, s, lower, upper, level):
    """The equal-tailed interval: a lower bound, and that of the mirrored statistic."""
    one_sided = (1.0 + level) / 2.0
    below = tn.selective_lower_bound(t, s, lower, upper, one_sided)
    return below, -tn.selective_lower_bound(-t, s, -upper, -lower, one_sided)


def strict(function, *args, **kwargs):
    """Call with every warning and every floating-point error an exception."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        return function(*args, **kwargs)


def ulp_up(x):
    with np.errstate(under="ignore"):
        return np.nextafter(x, INF)


def ulp_down(x):
    with np.errstate(under="ignore"):
        return np.nextafter(x, -INF)


# ---------------------------------------------------------------- reference in high-precision arithmetic


def mp_mass(a, b):
    """2[Φ(b) − Φ(a)] of mpmath numbers. On one side of 0, erf below 1 and erfc above it: two doubles differ
    by 1e−16 of their size or more, so of 70 digits the difference keeps at least 45."""
    if not a < b:
        return mp.mpf(0)
    if b <= 0:
        a, b = -b, -a
    a, b = a / mp.sqrt(2), b / mp.sqrt(2)
    return mp.erfc(a) - mp.erfc(b) if a >= 1 else mp.erf(b) - mp.erf(a)


def mp_log_sf(t, a, b, scale=1.0, mean=0.0):
    """log P(T > t | a < T < b) for T ~ N(mean, scale²) and the exact values of the doubles given."""
    with mp.workdps(70):
        t, a, b = ((mp.mpf(float(v)) - mp.mpf(float(mean))) / mp.mpf(float(scale)) for v in (t, a, b))
        above = mp_mass(t, b)
        return -mp.log1p(mp_mass(a, t) / above) if above else mp.mpf("-inf")


def mp_log_mass(a, b):
    """log(Φ(b) − Φ(a)); as the mass tends to 1, through its complement."""
    with mp.workdps(70):
        a, b = mp.mpf(float(a)), mp.mpf(float(b))
        if a < 0 < b:
            return mp.log1p(-(mp.erfc(b / mp.sqrt(2)) + mp.erfc(-a / mp.sqrt(2))) / 2)
        return mp.log(mp_mass(a, b) / 2)


def error(got, want):
    return float(abs(mp.mpf(float(got)) - want))


def assert_close(got, want, where, absolute=1e-14, relative=1e-15):
    """Far inside what is promised (1e−10 + 1e−15 |log p|): the absolute part is 1e−14."""
    if mp.isinf(want):
        assert float(got) == float(want), where
    else:
        assert error(got, want) <= absolute + relative * float(abs(want)), where


def log_uniform(rng, low, high, n):
    return 10.0 ** rng.uniform(math.log10(low), math.log10(high), n)


def random_points(n, seed):
    """(t, a, b): |limits| ≤ 1e3, widths 1e−12 to 2e3 or infinite, t anywhere in [a, b], ends included."""
    rng = np.random.default_rng(seed)
    a = rng.choice([-1.0, 1.0], n) * np.where(
        rng.random(n) < 0.6, log_uniform(rng, 1e-6, 1e3, n), rng.uniform(0, 10, n)
    )
    a[rng.random(n) < 0.03] = 0.0
    width = np.where(rng.random(n) < 0.7, log_uniform(rng, 1e-12, 2e3, n), log_uniform(rng, 1e-2, 20, n))
    b = np.clip(np.maximum(a + width, ulp_up(a)), -1e3, 1e3)
    a = np.where(a < b, a, ulp_down(b))
    open_end = rng.random(n)
    low, high = a.copy(), b.copy()
    a[open_end < 0.12], b[(open_end > 0.06) & (open_end < 0.18)] = -INF, INF
    share = np.where(rng.random(n) < 0.5, rng.random(n), log_uniform(rng, 1e-16, 1, n))
    step = (high - low) * share
    choices = [low + step, high - step, ulp_up(low), ulp_down(high), low + step / (1 + np.abs(low))]
    t = np.clip(np.choose(rng.integers(0, len(choices), n), choices), low, high)
    return t, a, b


# ------------------------------------------------------------------------------ accuracy


def test_log_sf_and_log_cdf_on_six_thousand_points():
    t, a, b = random_points(6000, seed=1)
    upper, lower = strict(log_sf, t, a, b), strict(log_cdf, t, a, b)
    for row in zip(t.tolist(), a.tolist(), b.tolist(), upper, lower, strict=True):
        assert_close(row[3], mp_log_sf(*row[:3]), row)
        assert_close(row[4], mp_log_sf(-row[0], -row[2], -row[1]), row)


def test_log_mass_on_two_thousand_intervals():
    _, a, b = random_points(2000, seed=3)
    for row in zip(a, b, strict(tn.log_mass, a, b), strict=True):
        assert_close(row[2], mp_log_mass(*row[:2]), row)
        if row[2] > -1e-3 and row[2] < -1e-300:
            assert_close(row[2], mp_log_mass(*row[:2]), row, absolute=0.0, relative=1e-12)


def test_selective_log_pvalue_loses_nothing_to_the_division_by_s():
    """The same accuracy on the doubles (t, s, V⁻, V⁺), widths of a few ulps of the limits included, where
    log_sf of the rounded quotients would be wrong in the first digit."""
    t, a, b = random_points(1500, seed=4)
    s = log_uniform(np.random.default_rng(5), 0.5, 1e6, t.size)
    got = strict(tn.selective_log_pvalue, t, s, a, b)
    for row in zip(t, a, b, s, got, strict=True):
        assert_close(row[4], mp_log_sf(*row[:4]), row)
    low, high = 0.3, 0.3 * (1 + 8e-16)
    middle = ulp_up(low)
    narrow = strict(tn.selective_log_pvalue, middle, 1e-3, low, high)
    assert_close(narrow, mp_log_sf(middle, low, high, 1e-3), "narrow")


# ------------------------------------------------------------------------------ values derived by hand


@pytest.mark.parametrize("t", [1e-8, 0.3, 1.96, 6.0, 37.0])
def test_half_line_above_zero(t):
    """P(Z > t | Z > 0) = P(Z > t)/½ = 2(1 − Φ(t)), so log p = log 2 + log Φ(−t)."""
    assert strict(log_sf, t, 0.0, INF) == pytest.approx(math.log(2) + log_ndtr(-t), rel=4e-15, abs=1e-15)


@pytest.mark.parametrize("alpha", [0.2, 0.05, 1e-3, 1e-9])
def test_thresholds_for_two_models(alpha):
    """[0, ∞): 2(1 − Φ(t/σ)) = α gives t = σΦ⁻¹(1 − α/2). (−∞, 0]: 1 − 2Φ(t/σ) = α gives t = σΦ⁻¹(½ − α/2)."""
    sigma = 2.5
    above = strict(tn.selective_threshold, alpha, sigma, 0.0, INF)
    below = strict(tn.selective_threshold, alpha, sigma, -INF, 0.0)
    assert above == pytest.approx(-sigma * ndtri(alpha / 2), rel=1e-13)
    assert below == pytest.approx(sigma * ndtri(0.5 - alpha / 2), rel=1e-7, abs=1e-15)


def test_narrow_interval_at_zero_is_uniform():
    """φ is flat to w²/2 = 5e−25 on (−1e−12, 1e−12): P(Z > t) = (b − t)/(b − a) = ¼ at t = ½b."""
    assert strict(log_sf, 0.5e-12, -1e-12, 1e-12) == pytest.approx(math.log(0.25), rel=1e-15)


def test_far_tail_is_exponential():
    """Mills: P(Z > x) ≈ φ(x)/x. With a = 2²⁰, t = a + 2⁻²⁰: (t² − a²)/2 = 1 + 2⁻⁴¹ and
    log(t/a) = log(1 + 2⁻⁴⁰) ≈ 2⁻⁴⁰, so log p = −1 − 2⁻⁴¹ − 2⁻⁴⁰; the next term is of size 2⁻⁸⁰."""
    a = 2.0**20
    got = strict(log_sf, a + 2.0**-20, a, INF)
    assert got == pytest.approx(-1 - 2.0**-41 - 2.0**-40, rel=0, abs=2e-15)


# ------------------------------------------------------------------------------ conventions and shapes


def test_edges():
    """t ≤ a: p = 1. t ≥ b: p = 0. Zero width: p = 1, whatever t. An empty interval has no mass."""
    for t, a, b in [(0.0, 0.0, 1.0), (-5.0, 0.0, 1.0), (-INF, -INF, INF), (-INF, 0.0, 1.0)]:
        assert strict(log_sf, t, a, b) == 0.0
        assert strict(log_cdf, t, a, b) == -INF
    for t, a, b in [(1.0, 0.0, 1.0), (5.0, 0.0, 1.0), (INF, -INF, INF), (INF, 0.0, INF)]:
        assert strict(log_sf, t, a, b) == -INF
        assert strict(log_cdf, t, a, b) == 0.0
    for t in (-INF, 0.0, 2.0, 3.0, INF):
        assert strict(log_sf, t, 2.0, 2.0) == strict(log_cdf, t, 2.0, 2.0) == 0.0
    assert strict(tn.log_mass, 1.0, 1.0) == strict(tn.log_mass, 2.0, 1.0) == -INF
    assert strict(tn.log_mass, -INF, INF) == 0.0
    assert strict(tn.log_mass, 0.0, 5e-324) == strict(tn.log_mass, -5e-324, 0.0) < -744.0
    assert strict(tn.selective_log_pvalue, 7.0, 2.0, 1.0, 5.0) == -INF
    assert strict(tn.selective_log_pvalue, 0.9, 2.0, 1.0, 5.0) == 0.0


def test_invalid_input_is_nan_and_never_a_number():
    for args in [(math.nan, 0, 1), (0.5, math.nan, 1), (0.5, 0, math.nan), (0.5, 1, 0)]:
        assert math.isnan(strict(log_sf, *args))
    assert math.isnan(strict(tn.log_mass, math.nan, 0.0))
    for s in (0.0, -1.0, INF, math.nan):
        assert math.isnan(strict(tn.selective_log_pvalue, 0.5, s, 0.0, 1.0))
        assert math.isnan(strict(tn.selective_lower_bound, 0.5, s, 0.0, 1.0, 0.9))
    for alpha in (-0.1, 1.1, math.nan):
        assert math.isnan(strict(tn.selective_threshold, alpha, 1.0, 0.0, 1.0))
        assert math.isnan(strict(tn.selective_lower_bound, 0.5, 1.0, 0.0, 1.0, alpha))
    assert math.isnan(strict(isf, 0.5, 0.0, 1.0))


# ------------------------------------------------------------------------------ laws


@settings(laws, max_examples=120)
@given(st.lists(any_float, min_size=3, max_size=3), st.floats(1e-300, 1e300), st.floats(-800, 0))
def test_any_doubles_give_a_probability(three, scale, log_q):
    """Over the whole range of doubles: no NaN, no warning, log p ≤ 0, a quantile inside the interval."""
    a, t, b = sorted(three)
    for value in (strict(log_sf, t, a, b), strict(tn.selective_log_pvalue, t, scale, a, b)):
        assert value <= 0.0
    assert strict(tn.log_mass, a, b) <= 0.0
    assert a <= strict(isf, log_q, a, b) <= b
    lo, hi = strict(interval, t, scale, a, b, 0.9)
    assert lo <= hi


@laws
@given(st.lists(limit, min_size=4, max_size=4, unique=True))
def test_chain_rule(four):
    """P(Z > u | a, b) = P(Z > t | a, b) P(Z > u | t, b) for a < t < u < b."""
    a, t, u, b = sorted(four)
    whole = strict(log_sf, u, a, b)
    parts = strict(log_sf, t, a, b) + strict(log_sf, u, t, b)
    assert abs(whole - parts) <= 1e-13 + 4e-15 * abs(whole)


@laws
@given(st.lists(limit, min_size=3, max_size=3, unique=True))
def test_reflection_and_complement(three):
    """P(Z > t) and P(Z < t), by reflection, add to 1, and log_mass is even."""
    a, t, b = sorted(three)
    upper, lower = strict(log_sf, t, a, b), strict(log_cdf, t, a, b)
    assert math.exp(upper) + math.exp(lower) == pytest.approx(1.0, rel=1e-14)
    assert strict(tn.log_mass, a, b) == strict(tn.log_mass, -b, -a)


# ------------------------------------------------------------------------------ quantile and threshold


@pytest.mark.parametrize("log_q", [-1e-18, -1e-6, -0.05, -0.7, -3.0, -40.0, -1e3, -1e5])
def test_quantile_brackets_its_probability(log_q):
    """x is a double with log SF(x) ≤ log q < log SF(one ulp below x), hence within an ulp of the truth."""
    _, a, b = random_points(300, seed=7)
    x = strict(isf, log_q, a, b)
    assert np.all((a <= x) & (x <= b))
    assert np.all(strict(log_sf, x, a, b) <= log_q)
    assert np.all((strict(log_sf, ulp_down(x), a, b) > log_q) | (x == a))
    assert np.all(strict(log_sf, ulp_up(x), a, b) <= log_q + 1e-10)


def test_quantile_ends():
    assert strict(isf, 0.0, -INF, 3.0) == -INF
    assert strict(isf, 0.0, 1.0, 3.0) == 1.0
    assert strict(isf, -INF, 1.0, INF) == INF
    assert strict(isf, -INF, 1.0, 3.0) == 3.0
    assert strict(isf, -2.0, 1.0, 1.0) == 1.0
    assert strict(tn.selective_threshold, 0.05, 1.0, 2.0, 2.0) == INF
    assert strict(tn.selective_threshold, 0.0, 1.0, 2.0, INF) == INF
    assert strict(tn.selective_threshold, 1.0, 1.0, 2.0, INF) == 2.0


def test_threshold_and_pvalue_are_one_decision():
    """statistic ≥ threshold ⇔ log p ≤ log α, at the threshold, one ulp to either side and anywhere else."""
    t, a, b = random_points(400, seed=8)
    rng = np.random.default_rng(9)
    s, alpha = log_uniform(rng, 0.1, 10, t.size), rng.choice([0.01, 0.05, 0.3], t.size)
    threshold = strict(tn.selective_threshold, alpha, s, a, b)
    for statistic in (t, threshold, ulp_up(threshold), ulp_down(threshold)):
        inside = (a < statistic) & (statistic < b)
        rejected = strict(tn.selective_log_pvalue, statistic, s, a, b) <= np.log(alpha)
        np.testing.assert_array_equal(rejected[inside], (statistic >= threshold)[inside])


# ------------------------------------------------------------------------------ selective intervals


def test_interval_without_truncation():
    """Limits at ±∞: the pivot is Φ(−(t − μ)/s), so the interval is t ± s z and the bound t − s z."""
    lo, hi = strict(interval, 1.3, 0.2, -INF, INF, 0.9)
    z = -ndtri(0.05)
    assert (lo, hi) == (pytest.approx(1.3 - 0.2 * z, rel=1e-13), pytest.approx(1.3 + 0.2 * z, rel=1e-13))
    assert strict(tn.selective_lower_bound, 1.3, 0.2, -INF, INF, 0.95) == pytest.approx(lo, rel=1e-13)


def test_interval_ends_solve_the_pivot():
    """The high-precision pivot at the ends is the tail asked for, narrow and one-sided limits included; the
    ends are doubles, and log p has slope at most (V⁺ − V⁻)/s² in μ, or (t − μ)/s² for infinite limits."""
    t, a, b = random_points(150, seed=13)
    t, a, b = (v[(np.abs(t) < 50) & (a < t) & (t < b)] for v in (t, a, b))
    assert t.size > 80
    for row in zip(t.tolist(), a.tolist(), b.tolist(), strict=True):
        lo, hi = strict(interval, row[0], 0.7, row[1], row[2], 0.9)
        bound = strict(tn.selective_lower_bound, row[0], 0.7, row[1], row[2], 0.8)
        assert lo <= bound <= hi
        for mean, p in ((lo, 0.05), (bound, 0.2), (hi, 0.95)):
            slope = min(row[2] - row[1], 100 + abs(mean)) / 0.49
            got = mp_log_sf(*row, 0.7, mean)
            assert error(math.log(p), got) <= 1e-10 + 4e-16 * (abs(mean) + abs(row[0])) * slope, (row, mean)


def test_no_finite_bound():
    """t on a limit or zero width carries no information on the mean; nor does an interval of level 1."""
    for t, lower, upper in [(0.0, 0.0, 1.0), (1.0, 0.0, 1.0), (2.0, 2.0, 2.0), (5.0, 0.0, 1.0)]:
        assert strict(interval, t, 1.0, lower, upper, 0.9) == (-INF, INF)
        assert strict(tn.selective_lower_bound, t, 1.0, lower, upper, 0.9) == -INF
    assert strict(interval, 0.5, 1.0, 0.0, 1.0, 1.0) == (-INF, INF)
    lo, hi = strict(interval, 0.5, 1.0, 0.0, 1.0, 0.0)
    assert lo == pytest.approx(hi, abs=1e-13) == pytest.approx(0.5, abs=1e-13)
