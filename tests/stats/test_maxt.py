"""The law of maxima: its order statistics, its tails, and who is compared with whom."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from relfit.stats.joint import JointEstimate, Psi, smallest_sample
from relfit.stats.maxt import Maxima, quantile, seeded
from relfit.stats.tests.best_set import best_set


def test_a_quantile_of_199_draws_is_the_190th():
    """⌈.95 · 200⌉ = 190."""
    drawn = np.random.default_rng(0).permutation(np.arange(1.0, 200.0))
    assert quantile(drawn, 0.95, 2) == 190.0


def test_where_draws_are_too_few_the_union_bound():
    """Three pairs share the error of .001."""
    assert quantile(np.zeros(50), 0.999, 3) == pytest.approx(norm.isf(0.001 / 3), rel=1e-9)


def test_moment_selection_keeps_what_is_not_far_better():
    """√log 400 = 2.4477: a model better by 2.5 standard errors has nothing to be tested against, by 2.4 it has."""
    for gap, p in ((2.5, 1.0), (2.4, norm.cdf(2.4))):
        estimate = JointEstimate(("a", "b"), [0.0, gap], 0.5 * np.eye(2), (400,))
        assert np.exp(best_set(estimate, 0.05, rng=np.random.default_rng(0)).log_pvalue[0]) == pytest.approx(p)


def test_groups_count_as_rows():
    grouped = JointEstimate(("a", "b"), [0.0, 1.0], np.eye(2), (1000,), groups=(40,))
    assert smallest_sample(grouped) == 40


def test_a_draw_equal_to_the_statistic_counts():
    """(1 + #{max ≥ T})/(1 + draws): of the differences 1, 2, 2, 3 three reach 2."""
    maxima = Maxima(np.array([[1.0, 2.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert maxima.tail(0, np.array([False, True]), np.array([2.0, 3.5])).tolist() == [4 / 5, 1 / 5]


def test_a_short_sample_makes_no_other_pair_uncertain(rng):
    """Three samples without a reference, the last of eight rows and far off: the first pair has its own law."""
    rows = [rng.normal(size=m) for m in (400, 400, 8)]
    psi = Psi(None, tuple(x - x.mean() for x in rows))
    variances = np.diag(psi.covariance())
    error = float(np.sqrt(variances[0] + variances[1]))
    joint = JointEstimate(("a", "b", "c"), [0.0, 2.2 * error, 50.0], np.diag(variances), (0, 400, 400, 8), psi)
    pair = joint.at([0, 1], ("a", "b"))
    alone = best_set(replace(pair, psi=Psi(None, psi.models[:2])), 0.05, rng=seeded(1, "t")).log_pvalue[1]
    together = best_set(joint, 0.05, rng=seeded(1, "t")).log_pvalue[1]
    # Student's law with 7 degrees of freedom would give 0.032 instead of about 0.014.
    assert np.exp(together) < 0.02
    assert np.exp(together) == pytest.approx(np.exp(alone), abs=0.005)


@pytest.mark.parametrize(("correction", "alpha"), [("none", 0.041), ("stepdown", 0.113)])
def test_more_draws_are_made_near_alpha(correction, alpha):
    """p = 0.0434, by step-down 0.117, is just above α: 4,000 draws say so for some of eight seeds only."""
    joint = JointEstimate(("a", "b", "c"), [0.0, 0.01, 0.28], 0.01 * np.eye(3))

    def pvalues(alpha):
        decisions = [best_set(joint, alpha, correction, rng=seeded(seed, "t"), draws=4000) for seed in range(8)]
        return np.array([decision.adjusted_pvalue[2] for decision in decisions])

    assert 0 < np.count_nonzero(pvalues(0.5) <= alpha) < 8
    assert (pvalues(alpha) > alpha).all()
