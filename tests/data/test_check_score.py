"""check_score: what it finds wrong, in words, and what it lets pass."""

import numpy as np
import pytest
from refusals import refused
from scipy import stats

from relfit.data.check_score import ScoreCheck, check_score
from relfit.data.models import Density


@pytest.fixture
def x(rng):
    return rng.normal(size=(300, 2))


def normal_log_prob(x):
    return -0.5 * (x**2).sum(axis=1)


def found(check, *parts):
    return [message for message in check.messages if all(part in message for part in parts)]


def test_a_right_score_passes(x):
    check = check_score(Density(score=lambda x: -x, log_prob=normal_log_prob), x)
    assert check.ok
    assert check.largest_error < 1e-8
    assert (check.n_rows, check.n_bad_rows) == (300, 0)
    assert found(check, "the score is the gradient of log_prob")
    assert str(check).startswith("score check: nothing wrong found\n- the score")
    assert isinstance(check, ScoreCheck)


@pytest.mark.parametrize("factor", [-1.0, 2.0, 0.5, 1.01])
def test_a_wrong_factor_is_named(x, factor):
    check = check_score(Density(score=lambda x: -factor * x, log_prob=normal_log_prob), x)
    assert not check.ok
    assert found(check, f"the score is {factor:.4g} times the gradient of log_prob")
    np.testing.assert_allclose(check.largest_error, abs(factor - 1.0), rtol=1e-6)


def test_a_wrong_column_is_named(x):
    check = check_score(
        Density(score=lambda x: np.stack([-x[:, 0], -x[:, 1] + 0.1], axis=1), log_prob=normal_log_prob), x
    )
    assert not check.ok
    assert found(check, "is not the gradient of log_prob at 150 of 150 rows", "columns 1,")


def test_a_score_that_is_wrong_in_some_rows_is_found(x):
    score = Density(score=lambda x: np.where(x > 1.5, 0.0, -x), log_prob=normal_log_prob)
    wrong = int((x[::2] > 1.5).any(axis=1).sum())
    assert found(check_score(score, x), f"at {wrong} of 150 rows checked")


def test_non_finite_scores_are_counted(x):
    check = check_score(Density(score=lambda x: np.where(x > 2.0, np.nan, -x), log_prob=normal_log_prob), x)
    bad = int((x > 2.0).any(axis=1).sum())
    assert not check.ok
    assert check.n_bad_rows == bad > 0
    assert found(check, f"the score is NaN or infinite at {bad} of 300 rows")
    assert found(check, "the score is the gradient of log_prob")


def test_data_outside_the_support_are_counted(rng):
    x = rng.normal(size=(200, 1)) + 2.0
    check = check_score(stats.gamma(3.0), x)
    outside = int((x <= 0.0).sum())
    assert not check.ok
    assert check.n_bad_rows == outside > 0
    assert found(check, "the support does not cover the data", f"at {outside} of 200 rows")


@pytest.mark.parametrize(
    ("frozen", "places", "vanishes"),
    [
        (stats.expon(), ["0 in column 0"], False),
        (stats.uniform(-0.5, 30.0), ["-0.5 in column 0", "29.5 in column 0"], False),
        (stats.gamma(3.0), ["0 in column 0"], True),
        (stats.beta(3.0, 4.0, scale=20.0), ["0 in column 0", "20 in column 0"], True),
        (stats.beta(3.0, 1.0, scale=20.0), ["0 in column 0", "20 in column 0"], False),
        (stats.norm(3.0), [], True),
        (stats.t(2.0), [], True),
    ],
    ids=["exponential", "uniform", "gamma", "beta", "beta with one open end", "normal", "t"],
)
def test_edges_are_flagged_if_the_density_does_not_vanish_there(rng, frozen, places, vanishes):
    """KSD's expectation under the model itself is 0 only if p vanishes at the edges (integration by parts)."""
    x = frozen.rvs(size=(300, 1), random_state=rng)
    check = check_score(frozen, x)
    assert check.ok is vanishes
    edges = " ".join(found(check, "the support ends at"))
    assert all(place in edges for place in places)
    assert bool(edges) == bool(places)


def test_an_edge_that_no_data_come_near_does_no_harm(rng):
    """The boundary term is that of the data's own density at the edge."""
    x = rng.gamma(4.0, size=(300, 1)) + 1.0
    check = check_score(stats.uniform(-0.5, 30.0), x)
    assert check.ok
    assert found(check, "the support ends at -0.5 in column 0", "KSD allows as long as no data are near")


def test_a_score_without_log_prob_is_a_gradient_if_its_jacobian_is_symmetric(x):
    turning = np.array([[0.0, 0.2], [-0.2, 0.0]])
    assert check_score(Density(score=lambda x: -(x**3)), x).ok
    check = check_score(Density(score=lambda x: -x + x @ turning), x)
    assert not check.ok
    assert found(check, "Jacobian of the score is not symmetric", "not the gradient of any log density")
    check = check_score(Density(score=lambda x: -x), x[:, :1])
    assert check.ok
    assert found(check, "in one dimension any score is a gradient")


def test_low_precision_is_allowed_for_but_not_a_wrong_sign(x):
    def log_prob(x):
        return (-0.5 * (x.astype(np.float32) ** 2)).sum(axis=1)

    assert check_score(Density(score=lambda x: -x.astype(np.float32), log_prob=log_prob), x).ok
    assert not check_score(Density(score=lambda x: x.astype(np.float32), log_prob=log_prob), x).ok


def test_what_is_no_density_is_refused(x):
    refused(lambda: check_score(lambda x: -x, x), "density: expected a Density", "Density(score=...)")
    refused(lambda: check_score(x, x), "density: expected a Density", "ndarray")
    refused(lambda: check_score(stats.norm(), x), "expected dimension 2 like the data, got 1")
    refused(lambda: check_score(stats.norm(), [np.nan]), "x: expected finite numbers")
    refused(lambda: check_score(Density(score=lambda x: x[:, 0]), x), "score: expected shape (300, 2), got (300,)")
