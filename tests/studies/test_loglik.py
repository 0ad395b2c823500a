"""The study of the log-likelihood: its truths, and its trials and rows."""

import numpy as np
import pytest

from studies import loglik


@pytest.mark.parametrize("name", loglik.CASES)
def test_the_true_gaps_are_those_of_very_many_rows(name):
    """Means over 400,000 rows, within five standard errors."""
    case = loglik.CASES[name]
    x = case.draw(400_000, np.random.default_rng(0))
    losses = -np.stack([log_prob(x) for log_prob in case.models.values()], axis=1)
    differences = losses - losses[:, :1]
    error = differences.std(axis=0) / np.sqrt(len(x))
    assert (np.abs(differences.mean(axis=0) - np.array(case.gaps)) <= 5.0 * error).all()


def test_the_power_by_the_normal_law_is_that_of_the_method():
    assert [round(loglik.forecast(weight, 400), 2) for weight in loglik.WEIGHTS] == [0.26, 0.92]


def test_trials_and_rows():
    setting = {**loglik.ties()[0], "n": 60}
    (row,) = loglik.tie_rows(setting, [loglik.tie_trial(setting, seed) for seed in range(2)])
    assert row["level"] in ("kept", "EXCEEDED")
    setting = loglik.modes()[1]
    (row,) = loglik.mode_rows(setting, [loglik.mode_trial(setting, seed) for seed in range(2)])
    assert row["KSD"] == (0.0, 0.0)
    assert row["KSD warns"] == (1.0, 0.0)
