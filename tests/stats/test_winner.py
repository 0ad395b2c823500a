"""The interval for the selected model's own value allows for the selection."""

import numpy as np
import pytest
from scipy import stats

import relfit
from relfit.stats.pairs import FIRST_STEP, own_freedom, winner_interval


def joint(values, covariance, **fields):
    names = tuple(f"m{k}" for k in range(len(values)))
    return relfit.JointEstimate(names, values, covariance, **fields)


def test_a_model_far_ahead_has_the_ordinary_t_interval():
    estimate = joint([1.0, 9.0, 9.5], 0.01 * np.eye(3), sizes=(80,), measure="loss")
    low, high = winner_interval(estimate, 0, 0.05)
    reach = 0.1 * stats.t(79).isf((1.0 - FIRST_STEP) * 0.05 / 2.0)
    assert (low, high) == pytest.approx((1.0 - reach, 1.0 + reach), rel=1e-12)
    assert reach == pytest.approx(0.1 * stats.t(79).isf(0.025), rel=0.005)


def test_it_covers_where_all_models_tie():
    covariance = 0.01 * (0.5 * np.eye(24) + 0.5)
    rng = np.random.default_rng(1)
    values = rng.multivariate_normal(np.zeros(24), covariance, size=400)
    missed = {"smallest": 0, "other rows": 0}
    for row in values:
        for selection in missed:
            low, high = winner_interval(joint(row, covariance), int(row.argmin()), 0.05, selection)
            missed[selection] += not low <= 0.0 <= high
    assert missed["smallest"] / 400 <= 0.05 + 3.0 * np.sqrt(0.05 * 0.95 / 400)
    assert missed["other rows"] / 400 > 0.2


def test_it_is_never_shorter_than_the_ordinary_one_and_only_its_upper_end_is_further_away():
    estimate = joint([0.0, 0.05, 0.1], 0.01 * np.eye(3))
    low, high = winner_interval(estimate, 0, 0.05)
    ordinary_low, ordinary_high = winner_interval(estimate, 0, (1.0 - FIRST_STEP) * 0.05, "other rows")
    assert low == ordinary_low
    assert high > ordinary_high + 0.02


def test_other_names_and_another_order_change_nothing():
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(60, 5)) + rng.normal(size=(60, 1))
    order = [3, 0, 4, 1, 2]
    first = relfit.compare_losses(scores, names=list("abcde"), higher_is_better=True)
    second = relfit.compare_losses(scores[:, order], names=list("vwxyz"), higher_is_better=True)
    assert first.best_interval() == pytest.approx(second.best_interval(), rel=1e-12)


def test_scores_of_which_larger_ones_are_better_are_mirrored():
    scores = np.random.default_rng(4).normal(size=(60, 5))
    larger = relfit.compare_losses(scores, higher_is_better=True).best_interval()
    smaller = relfit.compare_losses(-scores, higher_is_better=False).best_interval()
    assert larger == pytest.approx((-smaller[1], -smaller[0]), rel=1e-12)


def test_a_model_that_other_rows_selected_has_the_ordinary_interval():
    rng = np.random.default_rng(5)
    models = {name: rng.normal(size=(200, 2)) + 1.0 for name in "abc"}
    result = relfit.compare(rng.normal(size=(200, 2)), models, test="relmulti", rng=0)
    ordinary = winner_interval(result.estimate, result.best_index, 0.05, "other rows")
    assert result.best_interval() == pytest.approx(ordinary)


def test_after_carving_it_holds_for_all_models():
    rng = np.random.default_rng(5)
    models = {name: rng.normal(size=(200, 2)) + 1.0 for name in "abc"}
    data = rng.normal(size=(200, 2))
    carved = relfit.compare(data, models, test="carve", rng=0)
    low, high = carved.best_interval()
    i = carved.best_index
    ordinary = winner_interval(carved.estimate, i, 0.05, "other rows")
    assert low < ordinary[0] < ordinary[1] < high


def test_squared_distances_have_intervals_from_zero_on():
    estimate = joint([-0.5, 0.3], 0.01 * np.eye(2), measure="mmd")
    low, high = winner_interval(estimate, 0, 0.05)
    assert low == 0.0
    assert 0.19 < high < 0.3


def test_rates_of_zero_and_one_have_wilsons_interval():
    scores = np.ones((50, 2))
    scores[:20, 1] = 0.0
    low, high = relfit.compare_losses(scores, higher_is_better=True).best_interval()
    assert high == pytest.approx(1.0)
    assert 0.85 < low < 0.95
    losses = relfit.compare_losses(1.0 - scores, higher_is_better=False).best_interval()
    assert losses == pytest.approx((1.0 - high, 1.0 - low))
    scores[:, 0] = 0.0
    far = relfit.compare_losses(scores, higher_is_better=True)
    level = 1.0 - (1.0 - FIRST_STEP) * 0.05
    expected = stats.binomtest(30, 50).proportion_ci(level, method="wilson")
    assert far.best_interval() == pytest.approx((expected.low, expected.high))


def test_losses_that_never_vary_say_nothing_about_other_items():
    losses = np.column_stack([np.full(30, 0.5), np.random.default_rng(0).normal(2.0, 1.0, 30)])
    result = relfit.compare_losses(losses, higher_is_better=False)
    assert result.best_interval() == (-np.inf, np.inf)
    assert relfit.Comparison.from_json(result.to_json()).best_interval() == (-np.inf, np.inf)


def test_strata_have_degrees_of_freedom_of_their_own():
    rng = np.random.default_rng(6)
    strata = np.repeat(["small", "large"], [4, 60])
    losses = rng.normal(size=(64, 3)) * np.where(strata == "small", 5.0, 1.0)[:, None]
    estimate = relfit.from_losses(losses, strata=strata, higher_is_better=False)
    parts = np.array(
        [losses[strata == name, 0].var(ddof=1) / count / 4.0 for name, count in (("small", 4), ("large", 60))]
    )
    expected = parts.sum() ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 59)
    assert own_freedom(estimate)[0] == pytest.approx(expected)


def test_a_file_has_the_interval_at_the_level_of_the_test():
    scores = np.random.default_rng(7).normal(size=(60, 3))
    result = relfit.compare_losses(scores, higher_is_better=True, alpha=0.1)
    assert result.to_dict()["best_interval"] == list(result.best_interval(0.9))
    assert relfit.Comparison.from_json(result.to_json()).best_interval() == result.best_interval()
