"""0/1 losses: exact counts of discordant items, score intervals, and verdicts where models agree on all items."""

import math

import numpy as np
import pytest
from scipy.special import ndtri

import relfit
from relfit.stats.decision import PairedBinary


def pair(b, c, n):
    return PairedBinary(np.array([[0.0, b], [c, 0.0]]), float(n), 1.0)


def test_counts_come_from_values_and_covariance(rng):
    losses = (rng.random((200, 3)) < [0.1, 0.2, 0.4]).astype(float) * 2.5
    counts = PairedBinary.of(relfit.from_losses(losses))
    expected = ((losses[:, :, None] > 0) & (losses[:, None] == 0)).sum(axis=0)
    np.testing.assert_array_equal(counts.first, expected)
    assert counts.step == pytest.approx(2.5)


@pytest.mark.parametrize(("b", "c", "n"), [(0, 0, 50), (3, 1, 44), (20, 11, 100), (5, 0, 20)])
def test_the_limit_is_where_the_score_statistic_is_the_critical_value(b, c, n):
    """The statistic by its definition, with the constrained maximum found on a fine grid."""
    critical = float(ndtri(0.975))
    limit = pair(b, c, n).upper(critical)[0, 1]
    rates = np.linspace(0.0, (1.0 - limit) / 2.0, 400_001)[1:]
    likelihood = (
        b * np.log(rates + limit) + c * np.log(rates) + (n - b - c) * np.log(1.0 - limit - 2.0 * rates + 1e-300)
    )
    rate = rates[np.argmax(likelihood)]
    statistic = (b - c - n * limit) / math.sqrt(n * (2.0 * rate + limit * (1.0 - limit)))
    assert statistic == pytest.approx(-critical, abs=2e-3)


def test_models_that_agree_on_all_items_are_not_shown_to_be_equivalent():
    """A true gap of .07 beyond δ = .05 on 20 items: a zero variance read as certainty said "equivalent" in .22."""
    shown = 0
    for seed in range(100):
        rng = np.random.default_rng([41, seed])
        base = rng.random(20) < 0.2
        more = base | (rng.random(20) < 0.07 / 0.8)
        losses = np.stack([base, more], axis=1).astype(float)
        result = relfit.compare_losses(losses, higher_is_better=False, margin=0.05, rng=0)
        shown += result.equivalent[1]
    assert shown <= 2


def test_intervals_of_equal_columns_have_a_length():
    right = np.zeros(60)
    right[:20] = 1.0
    result = relfit.compare_losses(np.c_[right, right], higher_is_better=False, rng=0)
    again = relfit.Comparison.from_json(result.to_json())
    limit = 1.959964**2 / (60 + 1.959964**2)
    for each in (result, again):
        np.testing.assert_allclose(each.pair_intervals(0.95)[0, 1], [-limit, limit], rtol=1e-4)
        assert each.confidence_interval(0.95)[1, 1] == pytest.approx(limit, rel=1e-4)


def test_a_model_that_errs_on_all_items_has_the_sign_tests_pvalue():
    """2⁻³⁰ against a model that never errs, and not the 1/31 of other losses."""
    errs = np.zeros((30, 3))
    errs[:, 1] = 1.0
    errs[:27, 2] = 1.0
    result = relfit.compare_losses(errs, higher_is_better=False, rng=0)
    assert result.log_pvalue[1] <= -30.0 * math.log(2.0) + 1e-9
    assert (result.simultaneous_pvalue[1:] < 1e-3).all()


def test_a_constant_difference_does_not_hide_a_smaller_pvalue(rng):
    """c is worse than b by the same on all 40 items, p = 1/41, and far worse than a."""
    scores = rng.normal(size=(40, 3))
    scores[:, 1] = scores[:, 0] + 0.01 * rng.normal(size=40) + 3.0
    scores[:, 2] = scores[:, 1] + 0.5
    result = relfit.compare_losses(scores, names=list("abc"), higher_is_better=False, rng=0)
    assert result.pvalue[2] < 1e-6
    assert result.adjusted_pvalue[2] < 1e-6
