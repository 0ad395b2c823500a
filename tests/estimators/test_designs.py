import itertools

import numpy as np
import pytest
from oracle import dense
from scipy.linalg import eigh

from relfit.compute.reduce import Runtime
from relfit.estimators import designs
from relfit.estimators.base import PairSource
from relfit.estimators.pairkernel import PairKernel
from relfit.kernels.standard import IMQ
from relfit.stats.joint import Psi, centred, positive_part

RUNTIME = Runtime()


def table_source(h):
    """Rows 0..n−1 of a symmetric table h (n, n) for each model: h (l, n, n)."""

    def values(window, _, band):
        rows = window[0][:, 0].astype(int)
        a = np.arange(len(rows) - band.lags)[:, None]
        return h[:, rows[a], rows[a + np.arange(1, band.lags + 1)]]

    return PairSource(h.shape[1], len(h), lambda rows: [rows[:, None].astype(float)], values)


def random_table(rng, models, n):
    h = rng.normal(size=(models, n, n))
    return h + h.transpose(0, 2, 1)


def cyclic_pairs(n, lags):
    return [(a, (a + r) % n) for a in range(n) for r in range(1, lags + 1)]


@pytest.mark.parametrize(("n", "lags"), [(7, 1), (7, 3), (20, 4), (21, 10), (100, 30)])
def test_cyclic_design_by_a_plain_loop(n, lags, rng, monkeypatch):
    """Windows shorter than the lags, and parts of a few rows: nothing of that changes a number."""
    monkeypatch.setattr(designs, "WINDOW_ROWS", 9)
    monkeypatch.setattr(designs, "PAIR_CHUNK", 16)
    h = random_table(rng, 2, n)
    sums, values = np.zeros((n, 2)), []
    for a, b in cyclic_pairs(n, lags):
        values.append(h[:, a, b])
        sums[a] += h[:, a, b]
        sums[b] += h[:, a, b]
    values = np.array(values)
    got = designs.incomplete(table_source(h), lags, RUNTIME)
    g = sums / (2 * lags)
    np.testing.assert_allclose(got.values, values.mean(0), atol=1e-13)
    np.testing.assert_allclose(got.psi.reference, centred(g), atol=1e-12)
    expected = designs.regular_covariance(Psi(centred(g)).covariance(), np.cov(values.T, bias=True), n, n * lags)
    np.testing.assert_allclose(got.covariance, expected, atol=1e-13)


def test_all_lags_of_an_odd_number_of_rows_are_the_complete_estimate(rng):
    n = 31
    x = rng.normal(size=(n, 2))
    scores = [rng.normal(size=(n, 2)) for _ in range(2)]
    stein = PairKernel(IMQ()).stein
    source = PairSource(n, 2, lambda rows: [x[rows], *(s[rows] for s in scores)], lambda *a: np.stack(stein(*a)))
    got = designs.incomplete(source, 15, RUNTIME)
    values, g = dense.ksd(x, scores, IMQ())
    np.testing.assert_allclose(got.values, values, atol=1e-13)
    np.testing.assert_allclose(got.psi.reference, centred(g), atol=1e-12)


@pytest.mark.parametrize(
    ("n", "pairs"), [(6, cyclic_pairs(6, 1)), (7, cyclic_pairs(7, 2)), (6, [(0, 1), (2, 3), (4, 5)])]
)
def test_the_covariance_of_regular_designs_is_unbiased(n, pairs):
    """The mean over all 2ⁿ (equally likely) samples of coin flips is the variance of D, exactly; h has both orders.

    The positive part is left out: it is what keeps the estimate a covariance, at the price of a little bias.
    """

    def h(x, y):
        return np.array([x + y + 2.0 * x * y, x * y - 0.3 * (x + y)])

    values, estimates = [], []
    for flips in itertools.product((-1.0, 1.0), repeat=n):
        each = np.array([h(flips[a], flips[b]) for a, b in pairs])
        sums = np.zeros((n, 2))
        for (a, b), value in zip(pairs, each, strict=True):
            sums[a] += value
            sums[b] += value
        g = sums / (2 * len(pairs) / n)
        projection, own = Psi(centred(g)).covariance(), np.cov(each.T, bias=True) / len(pairs)
        values.append(each.mean(0))
        estimates.append(((n - 1) * projection - n * own) / (n - 4 + n / len(pairs)))
    np.testing.assert_allclose(np.mean(estimates, axis=0), np.cov(np.array(values).T, bias=True), atol=1e-13)


@pytest.mark.parametrize(("size", "blocks"), [(2, 6), (3, 4), (5, 2), (12, 3)])
def test_block_values_by_a_plain_loop(size, blocks, rng, monkeypatch):
    monkeypatch.setattr(designs, "WINDOW_ROWS", 16)
    monkeypatch.setattr(designs, "PAIR_CHUNK", 24)
    h = random_table(rng, 2, size * blocks)
    each = []
    for k in range(blocks):
        rows = range(k * size, (k + 1) * size)
        each.append(np.mean([h[:, a, b] for a in rows for b in rows if a < b], axis=0))
    got = designs.block(table_source(h), size, RUNTIME)
    np.testing.assert_allclose(got.values, np.mean(each, axis=0), atol=1e-13)
    np.testing.assert_allclose(got.psi.covariance(), np.cov(np.array(each).T) / blocks, atol=1e-13)


@pytest.mark.parametrize("n", [5, 16, 17, 100])
def test_every_row_is_fetched_once(n, monkeypatch):
    monkeypatch.setattr(designs, "WINDOW_ROWS", 8)
    fetched = []

    def fetch(rows):
        fetched.extend(rows)
        return [rows[:, None].astype(float)]

    held = [(start, window[0][:, 0]) for start, window in designs.windows(PairSource(n, 1, fetch, None), 2)]
    assert sorted(fetched) == list(range(n))
    for start, rows in held:
        np.testing.assert_array_equal(rows, np.arange(start, start + len(rows)) % n)


def test_positive_part_keeps_what_is_positive_and_maps_with_the_estimates(rng):
    """L A₊ Lᵀ: a linear map of the estimates, scales of 1e±6 included, maps the result; a covariance stays."""
    a, b, c = rng.normal(size=(3, 4, 6))
    unit, matrix = a @ a.T, b @ b.T - c @ c.T
    cut = positive_part(matrix, unit)
    change = rng.normal(size=(4, 4)) * np.array([1.0, 1e-6, 1e6, 1.0])[:, None]
    mapped = positive_part(change @ matrix @ change.T, change @ unit @ change.T)
    size = np.sqrt(np.diag(change @ unit @ change.T))
    np.testing.assert_allclose(mapped / np.outer(size, size), change @ cut @ change.T / np.outer(size, size), atol=1e-9)
    np.testing.assert_allclose(positive_part(unit, matrix @ matrix + unit), unit, rtol=1e-9)
    found, kept = (eigh(part, unit, eigvals_only=True) for part in (matrix, cut))
    lowered = [max(value - max(-found[0] - value, 0.0), 0.0) for value in found]
    np.testing.assert_allclose(kept, np.sort(lowered), atol=1e-9)
