"""One- and two-sided bounds of a comparison: by hand, and against each other."""

import numpy as np
import pytest
from scipy.stats import norm

from relfit.api import compare, decide
from relfit.stats.joint import JointEstimate


def result(values, covariance, **options):
    return decide(JointEstimate(tuple("abcdef"[: len(values)]), values, covariance), **options)


def test_relpsi_bounds_solve_the_truncated_law_by_hand():
    """l = 2, s = 1, t = 2 given t > 0: P_μ(T > 2 | T > 0) = Φ(μ − 2)/Φ(μ) is .05 at the lower bound, .95 at the upper,
    .025 and .975 at the ends of the interval.
    """
    compared = result([0.0, 2.0], 0.5 * np.eye(2), test="relpsi")
    ends = [compared.lower_bound(0.95)[1], compared.upper_bound(0.95)[1], *compared.confidence_interval(0.95)[1]]
    above = [norm.cdf(mu - 2.0) / norm.cdf(mu) for mu in ends]
    np.testing.assert_allclose(above, [0.05, 0.95, 0.025, 0.975], rtol=1e-8)
    assert compared.lower_bound()[0] == compared.upper_bound()[0] == 0.0


@pytest.mark.parametrize("test", ["relpsi", "carve", "best-set"])
def test_bounds_are_nested_and_grow_with_the_level(test):
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    compared = result(3 * rng.normal(size=5), root @ root.T / 5, test=test, rng=1)
    lower, upper, interval = compared.lower_bound(0.95), compared.upper_bound(0.95), compared.confidence_interval(0.95)
    assert (interval[:, 0] <= lower + 1e-9).all()
    assert (upper <= interval[:, 1] + 1e-9).all()
    assert (lower <= upper).all()
    assert (compared.lower_bound(0.99) <= lower + 1e-9).all()
    assert (compared.upper_bound(0.99) >= upper - 1e-9).all()


@pytest.mark.parametrize("test", ["relpsi", "carve", "best-set"])
def test_a_constant_difference_is_known(test):
    """b is a plus 0.5, c is a again."""
    compared = result([0.0, 0.5, 0.0], np.ones((3, 3)), test=test, rng=0)
    assert compared.lower_bound()[1] == compared.upper_bound()[1] == 0.5
    assert compared.upper_bound()[2] == 0.0


def test_bounds_know_the_sizes_and_groups_of_distinct_models():
    rng = np.random.default_rng(0)
    copied = rng.normal(size=(60, 2))
    data, models = rng.normal(size=(100, 2)), {"a": copied, "a2": copied, "b": rng.normal(size=(80, 2))}
    assert compare(data, models, rng=0).distinct().sizes == (100, 60, 80)
    labels = {
        "reference": np.arange(100) // 2,
        **dict.fromkeys(("a", "a2"), np.arange(60) // 3),
        "b": np.arange(80) // 4,
    }
    assert compare(data, models, groups=labels, rng=0).distinct().groups == (50, 20, 20)
