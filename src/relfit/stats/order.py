"""Do rows that follow each other depend on each other, although they were taken for
independent?

Let ``q_a = x_a x_{a+1}`` be the products of successive contributions x (a row's ψ, or the
difference of two models' ψ). The lag-1 autocorrelation is ``r = Σ q_a/Σ x_a²``, and ``T = Σ
q_a/√(Σ q_a²)`` tests it one-sided: the test of Diebold (1986) that allows for
heteroskedasticity. Of independent rows the q_a are uncorrelated, and their third moment (E
x³)² is never negative, so T exceeds a normal quantile no more often than a normal variable
does, also for heavy tails; a few rare products cannot make T large, since T is at most the
root of their number. A negative autocorrelation makes standard errors too large and no
verdict false: it is not looked for.

Diebold, F. X. (1986). Testing for serial correlation in the presence of ARCH. Proceedings of
the American Statistical Association, Business and Economic Statistics Section, 323–328.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from relfit.stats.joint import ROUNDING, Psi
from relfit.util.arrays import Array, Rows

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
