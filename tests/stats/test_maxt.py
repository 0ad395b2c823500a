"""The law of maxima: its order statistics, its tails, and the pieces of a resample."""

import numpy as np
import pytest
from scipy.special import stdtrit
from scipy.stats import norm

from relfit.stats import maxt
from relfit.stats.joint import JointEstimate, Psi, smallest_sample
from relfit.stats.maxt import Law, Maxima, Streams
from relfit.stats.tests.best_set import best_set


def _law(method="gaussian", rows=30):
    return Law(method, 999, rows, lambda _count: None)


def test_a_quantile_of_199_draws_is_the_190th():
    """⌈.95 · 200⌉ = 190."""
    drawn = np.random.default_rng(0).permutation(np.arange(1.0, 200.0))
    assert _law().critical(drawn, 0.95, 2) == 190.0


@pytest.mark.parametrize("method", ["bootstrap", "student"])
def test_where_draws_are_too_few_the_union_bound_has_students_tails(method):
    """30 rows have 29 degrees of freedom; three pairs share the error of .001."""
    assert _law(method).critical(np.zeros(50), 0.999, 3) == pytest.approx(-stdtrit(29, 0.001 / 3), rel=1e-12)


def test_a_resample_of_every_row_once_has_the_variance_of_psi():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(7, 3))
    rows -= rows.mean(axis=0)
    v = Psi(rows, (), shared=False).covariance()
    found = maxt._variance(rows, np.ones((1, 7)), 0, np.array([1, 2]), np.zeros((2, 1)), 7)[:, 0]
    np.testing.assert_allclose(found, [v[0, 0] + v[k, k] - 2 * v[0, k] for k in (1, 2)], rtol=1e-12)
    models = tuple(rows.T.copy())
    _, own = maxt._separate(models, {7: np.ones((1, 7))}, Streams(rng, (rng,) * 3), 1)
    np.testing.assert_allclose(own[:, 0], np.diag(Psi(None, models, shared=False).covariance()), rtol=1e-12)


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
