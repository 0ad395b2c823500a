"""Means of items that depend on each other: covariances, and degrees of freedom of every
difference, for clusters and for series.

Both are functions of rows ψ (n, l), the losses of l models on n items without their means.
The degrees of freedom of the variance of D_i − D_j are at (i, j), and those of D_i itself on
the diagonal.

Rows that were taken for independent may depend on those before them. Let ``q_a = x_a x_{a+1}``
be the products of successive contributions x (a row's ψ, or the difference of two models' ψ).
The lag-1 autocorrelation is ``r = Σ q_a/Σ x_a²``, and ``T = Σ q_a/√(Σ q_a²)`` tests it
one-sided: the test of Diebold (1986) that allows for heteroskedasticity. Of independent rows
the q_a are uncorrelated, and their third moment (E x³)² is never negative, so T exceeds a
normal quantile no more often than a normal variable does, also for heavy tails; a few rare
products cannot make T large, since T is at most the root of their number. A negative
autocorrelation makes standard errors too large and no verdict false: it is not looked for.

Diebold, F. X. (1986). Testing for serial correlation in the presence of ARCH. Proceedings of
the American Statistical Association, Business and Economic Statistics Section, 323–328.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from relfit.stats.joint import ROUNDING, Psi, gram, positive_part
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


# ── rows in the order given ──────────────────────────────────────────────────────────────────────

# With fewer pairs of successive rows nothing is tested.
FEWEST_PAIRS = 30
# Of independent rows a note appears with at most this probability, over all models together,
# and a doubt with at most the second.
NOTE_LEVEL = 1e-3
DOUBT_LEVEL = 1e-4
# By how much dependence that fades geometrically from row to row would make a standard error
# larger, √((1 + r)/(1 − r)). With 10% (r = 0.10) a one-sided test at level 5% has an error of
# 6.7%: worth a note. With 25% (r = 0.22) it has 9.4%, nearly twice as much as was asked for: no
# gate should answer.
NOTE_INFLATION = 1.10
DOUBT_INFLATION = 1.25
# Dependence fades if rows five steps apart are much less alike than neighbours: r_5 is below
# 60% of r_1, as in an AR(1) with φ < 0.88 or in groups of ten rows, or 1 − r_5 is above 1.6
# times 1 − r_1, as in one with a larger φ. The rows of a file sorted by task or class are
# nearly as alike five steps on.
STEPS = 5
FADES = 0.6
SPREADS = 1.6
# Many rows are looked at in runs, evenly spaced: 8,000 rows show an r of 0.05.
MOST_ROWS = 8000
RUN = 500
# Statistics this close to each other are equal: copies of a model differ by rounding.
_ROUNDING = 1e-9
# The largest r that an inflation is computed for.
LARGEST = 0.99


@dataclass(frozen=True)
class OrderEffect:
    """How far the rows of one sample depend on the rows before them.

    Attributes:
        model: the model whose difference to the best is affected most.
        sample: the model whose rows depend on each other; None for the rows of the
            reference, or items, that all models have in common.
        autocorrelation: r.
        inflation: by what factor the standard error of the difference would be larger.
        fades: True if neighbours are more alike than rows five steps apart, as in the order of
            time.
        doubtful: True if it is large and sure enough that a gate should not answer.
    """

    model: int
    sample: int | None
    autocorrelation: float
    inflation: float
    fades: bool
    doubtful: bool


def successive(
    n: int, order: Rows | None = None, strata: Rows | None = None
) -> tuple[Any, Rows | None]:
    """The rows 0 … n−1 in the given order (by default their own), and the run that each one
    is in.

    Two rows follow each other where they are neighbours in one run: those of one stratum, or
    of many rows some that are looked at. None is one run.
    """
    if order is None and strata is None and n <= MOST_ROWS:
        return slice(None), None
    rows = np.arange(n) if order is None else order
    if strata is not None:
        rows = rows[np.argsort(strata[rows], kind="stable")]
    run = None if strata is None else strata[rows]
    if n <= MOST_ROWS:
        return rows, run
    starts = np.linspace(0, n - RUN, MOST_ROWS // RUN).astype(np.intp)
    places = (starts[:, None] + np.arange(RUN)).ravel()
    part = np.repeat(np.arange(len(starts)), RUN)
    return rows[places], part if run is None else part * (int(run.max()) + 1) + run[places]


def autocorrelations(
    x: Array, run: Rows | None = None, steps: int = 1
) -> tuple[Array, Array, Array]:
    """(k,) autocorrelations r of the columns of x (k, n) so many steps apart, T of each, and
    Σ x².

    >>> flip = np.array([[1.0, -1.0] * 50])
    >>> r, t, size = autocorrelations(flip)
    >>> r.tolist(), t.round(1).tolist(), size.tolist()
    ([-0.99], [-9.9], [100.0])
    """
    if x.shape[1] <= FEWEST_PAIRS:
        return np.zeros(len(x)), np.zeros(len(x)), np.ones(len(x))
    products = x[:, steps:] * x[:, :-steps]
    if run is not None:
        products *= run[steps:] == run[:-steps]
    total = products.sum(axis=1)
    size = np.einsum("ij,ij->i", x, x)
    spread = np.sqrt(np.einsum("ij,ij->i", products, products))
    r = np.divide(total, size, out=np.zeros_like(total), where=size > 0.0)
    t = np.divide(total, spread, out=np.zeros_like(total), where=spread > 0.0)
    return r, t, size


@dataclass(frozen=True)
class _Series:
    """Contributions (k, n) of one sample's rows to the differences of k models to the best.

    The rows of one model are a single series, which is part of the differences of all `models`.
    """

    sample: int | None
    x: Array
    run: Rows | None
    models: list[int]


def order_effect(
    psi: Psi, best: int, order: Rows | None = None, strata: Rows | None = None
) -> OrderEffect | None:
    """The clearest dependence of rows on the rows before them, as it affects differences to
    the best.

    The rows of ψ are independent by assumption; `order` and `strata` are those of the
    reference rows or items. None where nothing is found, or there are too few rows.

    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(200, 2))
    >>> order_effect(Psi(rows), 0)
    >>> effect = order_effect(Psi(rows.cumsum(axis=0)), 0)
    >>> effect.model, effect.doubtful
    (1, True)
    """
    count = len(psi.models) if psi.reference is None else psi.reference.shape[1]
    if count < 2:
        return None
    series = _series_of(psi, best, count, order, strata)
    note, doubt = -ndtri(
        np.array([NOTE_LEVEL, DOUBT_LEVEL]) / sum(len(each.x) for each in series)
    )
    tested = [autocorrelations(each.x, each.run) for each in series]
    largest = [float(t.max()) for _, t, _ in tested]
    clear = _first_largest(largest)
    if largest[clear] <= note:
        return None
    inflation = _inflation(series, tested, note, count)
    one = series[clear]
    k = _first_largest(tested[clear][1])
    model = one.models[k if len(one.x) > 1 else _first_largest(inflation[one.models])]
    if inflation[model] < NOTE_INFLATION:
        return None
    near = float(tested[clear][0][k])
    apart = float(autocorrelations(one.x[k : k + 1], one.run, STEPS)[0][0])
    fades = apart < FADES * near or 1.0 - apart > SPREADS * (1.0 - near)
    doubtful = fades and largest[clear] > doubt and bool(inflation[model] >= DOUBT_INFLATION)
    return OrderEffect(model, one.sample, near, float(inflation[model]), fades, doubtful)


def _first_largest(values: Sequence[float] | Array) -> int:
    """The place of the largest value, the first of those that are equal up to rounding."""
    numbers = np.asarray(values, dtype=float)
    largest = numbers.max()
    return int(np.argmax(numbers >= largest - _ROUNDING * abs(largest)))


def _inflation(
    series: list[_Series], tested: list[tuple[Array, Array, Array]], note: float, count: int
) -> Array:
    """(count,) the factors of the standard errors of the differences to the best, from rows
    that clearly depend.
    """
    variance, inflated = np.zeros((2, count))
    for each, (r, t, size) in zip(series, tested, strict=True):
        # The rows that are looked at stand for all.
        parts = size / each.x.shape[1] ** 2
        capped = np.where(t > note, np.minimum(r, LARGEST), 0.0)
        variance[each.models] += parts
        inflated[each.models] += parts * (1.0 + capped) / (1.0 - capped)
    return np.sqrt(np.divide(inflated, variance, out=np.ones(count), where=variance > 0.0))


def _series_of(
    psi: Psi, best: int, count: int, order: Rows | None, strata: Rows | None
) -> list[_Series]:
    others = [i for i in range(count) if i != best]
    series = []
    if psi.reference is not None:
        rows, run = successive(len(psi.reference), order, strata)
        x = np.ascontiguousarray(psi.reference[rows].T)
        series.append(_Series(None, _differences(x, others, best), run, others))
    if psi.models and psi.shared:
        rows, run = successive(len(psi.models[0]))
        x = np.stack([each[rows] for each in psi.models])
        series.append(_Series(None, _differences(x, others, best), run, others))
    elif psi.models:
        for i, each in enumerate(psi.models):
            rows, run = successive(len(each))
            series.append(_Series(i, each[rows][None], run, others if i == best else [i]))
    return series


def _differences(x: Array, others: list[int], best: int) -> Array:
    """The differences to the best; 0 where only rounding is left, whose order shows nothing."""
    found: Array = x[others] - x[best]
    sizes = np.linalg.norm(x, axis=1)
    found[np.linalg.norm(found, axis=1) <= ROUNDING * (sizes[others] + sizes[best])] = 0.0
    return found


def is_sorted(rows: Array) -> bool:
    """True if the rows (n, d) are in the order of one of their columns.

    >>> is_sorted(np.array([[0.0, 3.0], [1.0, 1.0], [0.0, 1.0]]))
    True
    """
    steps = np.diff(rows, axis=0)
    moves = steps.any(axis=0)
    return bool((moves & ((steps >= 0.0).all(axis=0) | (steps <= 0.0).all(axis=0))).any())
