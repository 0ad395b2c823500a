"""Bounds of a comparison, intervals of all pairs and ranks: by hand, and against each other."""

import numpy as np
import pytest
from refusals import refused
from scipy.stats import norm, studentized_range

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
def test_bounds_are_nested_grow_with_the_level_and_know_constants(test):
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    compared = result(3 * rng.normal(size=5), root @ root.T / 5, test=test, rng=1)
    lower, upper, interval = compared.lower_bound(0.95), compared.upper_bound(0.95), compared.confidence_interval(0.95)
    assert (interval[:, 0] <= lower + 1e-9).all()
    assert (upper <= interval[:, 1] + 1e-9).all()
    assert (lower <= upper).all()
    assert (compared.lower_bound(0.99) <= lower + 1e-9).all()
    assert (compared.upper_bound(0.99) >= upper - 1e-9).all()
    # b is a plus 0.5, c is a again.
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


def test_intervals_of_all_pairs_by_hand_and_of_copies():
    """Independent models with equal variances: Tukey's studentised range, to a draw's accuracy."""
    values = np.array([0.0, 0.1, 2.0, 2.5])
    found = result(values, 0.01 * np.eye(4), test="relpsi").pair_intervals(0.9)
    gap = np.subtract.outer(values, values)
    np.testing.assert_allclose(found.mean(axis=2), gap, atol=1e-12)
    reach = studentized_range.ppf(0.9, 4, np.inf) * 0.1
    np.testing.assert_allclose(np.ptp(found, axis=2)[gap != 0.0] / 2.0, reach, rtol=0.02)
    np.testing.assert_array_equal(found, -found.transpose(1, 0, 2)[:, :, ::-1])
    np.testing.assert_array_equal(np.diagonal(found), 0.0)
    one = JointEstimate(("a", "b", "c"), [0.0, 0.0, 1.0], np.ones((3, 3)))
    found = decide(one, test="relpsi").pair_intervals()
    np.testing.assert_allclose(found[0, 1], [0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found[2, 0], [1.0, 1.0], atol=1e-12)
    rng = np.random.default_rng(0)
    data, a, b = rng.normal(size=(3, 150, 2))
    found = compare(data, {"a": a, "b": b, "again": a}, rng=0).pair_intervals()
    np.testing.assert_array_equal(found[0, 2], 0.0)
    np.testing.assert_array_equal(found[1, 2], found[1, 0])


def test_bad_levels_and_corrections_are_refused():
    compared = result([0.0, 1.0], np.eye(2))
    refused(lambda: compared.pair_intervals(95), "level: ")
    refused(lambda: compared.ranks(1.0), "level: ")
    refused(lambda: compared.pairs("fdr"), "correction: ")
