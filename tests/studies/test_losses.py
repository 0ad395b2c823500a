"""The simulation of the best set beside MCS and McNemar's test: truths, procedures where it is clear, rates by hand."""

import numpy as np
import pytest
from scipy.stats import binomtest

pytest.importorskip("arch", reason="arch is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")
losses = pytest.importorskip("studies.losses")


def _drawn(name, times, seed):
    case = losses.CASES[name]
    return case, case.draw(times * case.items, np.random.default_rng(seed))


@pytest.mark.parametrize("name", losses.CASES)
def test_mean_losses_are_apart_by_the_gaps(name):
    """Within 4.5 standard errors on many items; of a series, whose items are like a third as many, √3 of them."""
    case, drawn = _drawn(name, 100 if name != "leaderboard" else 20, seed=1)
    if case.strata:
        tasks = np.resize(losses.STRATA, len(drawn))
        drawn = drawn * (len(drawn) / 30 / np.bincount(tasks))[tasks, None]
    differences = drawn - drawn[:, [1]]
    error = 4.5 * (np.sqrt(3.0) if case.series else 1.0) * differences.std(axis=0) / np.sqrt(len(drawn))
    means, best = differences.mean(axis=0), case.gaps == 0.0
    assert (np.abs(means[best]) <= error[best]).all()
    if name == "leaderboard":
        assert (best.sum(), len(best), case.items) == (8, 134, 468)
        assert (means[~best] > 0.0).all()
    else:
        assert (np.abs(means - case.gaps) <= error).all()


def test_mcnemar_is_the_exact_sign_test_of_the_items_that_differ():
    drawn = (np.random.default_rng(5).random((60, 6)) < [0.1, 0.2, 0.25, 0.3, 0.35, 0.5]).astype(float)
    kept = losses.mcnemar_against_the_leader(drawn)
    leader = drawn[:, drawn.mean(axis=0).argmin()]
    for k in range(6):
        differ = drawn[:, k] != leader
        p = binomtest(int(drawn[differ, k].sum()), int(differ.sum())).pvalue if differ.any() else 1.0
        assert kept[k] == (p > 0.05)
    assert 0 < kept.sum() < 6


def test_rates_by_hand():
    """Two trials: one drops a best model of four and all four worse ones, the other drops nothing."""
    some, nothing = [False, True, True, True, False, False, False, False], [True] * 8
    kept = {seed: np.array(each) for seed, each in enumerate((some, nothing))}
    rows = losses.rows({"case": "independent", "n": 200}, dict.fromkeys(("step-down", "Holm", "MCS"), kept))
    assert [row["procedure"] for row in rows] == ["step-down", "Holm", "MCS"]
    assert rows[0]["trials"] == 2
    assert rows[0]["a best model lost"] == (0.5, 0.5)
    assert rows[0]["share of best lost"] == (0.125, 0.125)
    assert rows[0]["worse found"] == (0.5, 0.5)
