"""Evidence that may be looked at after every item, against products written out by hand."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relfit.monitor.evidence import BETS, CHUNK, advance, log_e_models, log_e_pairs, lower_limits, no_evidence, regrets

ALPHA = 0.05


def evidence_of(losses, bets=BETS, alpha=ALPHA):
    losses = np.asarray(losses, dtype=float)
    return advance(no_evidence(losses.shape[-1], len(bets), losses.shape[1:-1]), losses, bets, alpha)


def by_hand(losses, bets, alpha):
    """Plain loops: the e-values of all models after every item, from products, and who is out after how many items."""
    l, out, peaks = losses.shape[1], {}, np.zeros(losses.shape[1])
    product = {(i, j, bet): 1.0 for i in range(l) for j in range(l) if i != j for bet in bets}
    for number, row in enumerate(losses, 1):
        for i, j, bet in product:
            if not math.isnan(row[i] - row[j]):
                product[i, j, bet] *= 1.0 + bet * (row[i] - row[j])
        single = [
            np.mean([np.mean([product[i, j, bet] for bet in bets]) for j in range(l) if j != i]) for i in range(l)
        ]
        stars = subset_means(single)
        peaks = np.maximum(peaks, stars)
        for i in range(l):
            if stars[i] >= 1.0 / alpha:
                out.setdefault(i, number)
    return np.array(stars), peaks, [out.get(i, 0) for i in range(l)]


def subset_means(e):
    """For each model the smallest mean over all sets that hold it."""
    everyone = range(len(e))
    sets = [s for size in range(1, len(e) + 1) for s in combinations(everyone, size)]
    return [min(np.mean([e[k] for k in s]) for s in sets if i in s) for i in everyone]


def test_one_bet_and_what_is_no_worse_on_average():
    """Bet 1/2 on 0.4, 0.4, −0.2: 1.2 · 1.2 · 0.9 = 1.296, and for the other model 0.8 · 0.8 · 1.1 = 0.704."""
    found = evidence_of([[0.4, 0.0], [0.9, 0.5], [0.0, 0.2]], bets=(0.5,))
    assert np.exp(log_e_pairs(found, (0.5,)))[[0, 1], [1, 0]] == pytest.approx([1.296, 0.704], rel=1e-12)
    # The smaller one stands alone, the larger one may be averaged with it: (1.296 + 0.704)/2 = 1.
    assert np.exp(log_e_models(found, (0.5,))) == pytest.approx([1.0, 0.704], rel=1e-12)
    # After two items 1.44 and 0.64 had the mean 1.04; after one, 1.2 and 0.8 had the mean 1.
    assert np.exp(found.peak)[0] == pytest.approx(1.04, rel=1e-12)
    # Better for 500 items, then worse by as much: Π(1 − 0.01λ²)^500 is below 1 for every bet.
    first = np.r_[np.zeros(500), np.full(500, 0.1)]
    found = evidence_of(np.column_stack([first, first[::-1]]))
    pairs = log_e_pairs(found, BETS)
    assert pairs[0, 1] < 0.0
    assert found.peak[0] <= 0.0
    assert found.out[1] > 0.0  # it was worse on average then


@pytest.mark.parametrize("models", [2, 3, 5])
def test_products_in_plain_loops(models):
    rng = np.random.default_rng(models)
    losses = rng.random((3 * CHUNK + 7, models)) * np.linspace(1.0, 0.2, models)
    losses[rng.random(losses.shape) < 0.1] = np.nan
    found = evidence_of(losses)
    stars, peaks, out = by_hand(losses, BETS, ALPHA)
    np.testing.assert_allclose(np.exp(log_e_models(found, BETS)), stars, rtol=1e-9)
    np.testing.assert_allclose(np.exp(found.peak), peaks, rtol=1e-9)
    assert found.out.tolist() == out
    assert max(out) > 0


def test_limits_of_a_model_that_is_out_by_hand():
    """Two models and one bet: e_2 ≈ 0, so that e_1(m) = ((1 + λd)/(1 + λm))ⁿ must be 2/α − e_2."""
    n, bet, d = 300, 0.5, 0.25
    found = evidence_of(np.tile([0.25, 0.0], (n, 1)), bets=(bet,))
    difference, lower, upper = regrets(found, (bet,), ALPHA, lower_limits(found, (bet,), ALPHA / 2.0))
    needed = 2.0 / ALPHA - (1.0 - bet * d) ** n
    assert difference[0] == pytest.approx(d)
    assert lower[0] == pytest.approx(((1.0 + bet * d) * needed ** (-1.0 / n) - 1.0) / bet, abs=1e-7)
    assert upper[0] == pytest.approx(-((1.0 - bet * d) * (ALPHA / 2.0) ** (1.0 / n) - 1.0) / bet, abs=1e-12)
    assert lower[1] == 0.0


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(0, 10**6), st.floats(0.0, 0.6))
def test_limits_of_models_that_are_out_invert_the_verdict(models, seed, gap):
    """At the limit the smallest mean of a set of e-values is 1/α, with all sets written out."""
    rng = np.random.default_rng(seed)
    losses = (rng.random((150, models)) < np.linspace(0.2, 0.2 + gap, models)).astype(float)
    found = evidence_of(losses)
    pairs = lower_limits(found, BETS, ALPHA / (models * (models - 1)))
    difference, lower, upper = regrets(found, BETS, ALPHA, pairs)
    now = log_e_models(found, BETS) >= math.log(1.0 / ALPHA)
    assert (lower[~now] == 0.0).all()
    assert ((lower < difference) & (difference < upper))[now].all()
    own = np.eye(models, dtype=bool)
    for i in np.flatnonzero(now):
        for m, above in ((max(lower[i] - 1e-6, 0.0), True), (lower[i] + 1e-6, False)):
            each = np.exp(np.where(own, -np.inf, log_e_pairs(found, BETS))).sum(axis=1) / (models - 1)
            shifted = np.exp(log_e_pairs(found, BETS, m))[i]
            each[i] = np.delete(shifted, i).mean()
            assert (subset_means(each)[i] >= 1.0 / ALPHA) == above
