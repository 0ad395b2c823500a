"""The coverage study: its closed forms against simulation, its trials against the public methods."""

import numpy as np
import pytest

import relfit
from relfit.paper.problems import draw, mean_shift_l10
from studies import coverage


@pytest.mark.parametrize("measure", ["mmd", "ksd"])
def test_population_values_are_what_large_samples_estimate(measure):
    """n = 4000 rows, estimates within 5 standard errors of the closed forms."""
    problem = mean_shift_l10()
    reference, samples = draw(problem, 4000, 3)
    candidates = samples if measure == "mmd" else problem.densities()
    models = {name: candidates[name] for name in ("P1", "P10")}
    joint = relfit.estimate(reference, models, kernel=relfit.Gaussian(coverage.BANDWIDTH), rng=0)
    truth = coverage.population(measure)[[0, 9]]
    assert (np.abs(joint.values - truth) < 5 * joint.standard_error).all()
    assert (5 * joint.standard_error < np.abs(truth)).all()


@pytest.mark.parametrize("test", ["relpsi", "carve"])
@pytest.mark.parametrize("second_order", [None, 0.1])
def test_a_trial_counts_what_the_bounds_of_a_result_hold(test, second_order):
    rng = np.random.default_rng(1)
    theta = coverage.MEANS["graded"]
    shares = None if second_order is None else np.full(10, second_order)
    for seed in range(3):
        values = rng.multivariate_normal(theta, 2 * coverage.known_covariance())
        joint = relfit.JointEstimate(
            tuple("abcdefghij"), values, coverage.known_covariance(), (200,), near_degeneracy=shares
        )
        result = relfit.decide(joint, test=test, rng=seed)
        carved = test == "carve"
        held = coverage._carve_held(joint, theta, seed) if carved else coverage._relpsi_held(joint, theta)
        others = np.arange(10) != result.best_index
        truth = (theta - theta[result.best_index])[others]
        low, high = result.confidence_interval(0.95)[others].T
        assert held["lower"] == (result.lower_bound(0.95)[others] <= truth).mean()
        assert held["upper"] == (result.upper_bound(0.95)[others] >= truth).mean()
        assert held["interval"] == ((low <= truth) & (truth <= high)).mean()


def test_trials_and_rows_have_every_column():
    cases = (
        (coverage.known_cells()[1], coverage.known_trial, coverage.coverage_rows, 3),
        (coverage.data_cells()[2], coverage.margin_trial, coverage.margin_rows, 3),
        (coverage.group_cells()[4], coverage.group_trial, coverage.group_rows, 1),
    )
    for cell, trial, rows, count in cases:
        made = rows(cell, [trial(cell, seed) for seed in range(2)])
        assert len(made) == count
        assert all(list(row) == list(made[0]) for row in made)
