"""Ranks and the pairwise matrix of a comparison: by hand, with copies, as JSON and as text."""

import numpy as np
import pytest
from scipy.stats import norm, studentized_range

import relfit
from relfit.api import decide
from relfit.stats.joint import JointEstimate


def result(values=(0.0, 0.1, 2.0), variance=0.01, **options):
    names = tuple("abcdefgh"[: len(values)])
    return decide(JointEstimate(names, values, variance * np.eye(len(values))), **{"test": "relpsi", **options})


def test_ranks_by_hand():
    """s = √.02: a and b differ by .7 s, c from both by 13 s: ranks {1, 2}, {1, 2}, {3}."""
    ranks = result().ranks()
    assert ranks.lower.tolist() == [1, 1, 3]
    assert ranks.upper.tolist() == [2, 2, 3]
    assert ranks.worse.tolist() == [[False] * 3, [False] * 3, [True, True, False]]


def test_pairs_by_hand():
    """p = Φ(−(D_i − D_j)/s) over six ordered pairs; Bonferroni multiplies by 6."""
    found = result().pairs("bonferroni")
    s = np.sqrt(0.02)
    expected = norm.sf(np.subtract.outer([0.0, 0.1, 2.0], [0.0, 0.1, 2.0]) / s)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(found.pvalue[off], expected[off], rtol=1e-12)
    np.testing.assert_allclose(found.adjusted_pvalue[off], np.minimum(6 * expected[off], 1.0), rtol=1e-12)
    assert (np.diag(found.pvalue) == 1.0).all()
    assert found.worse.tolist() == [[False] * 3, [False] * 3, [True, True, False]]


def test_intervals_of_all_pairs_by_hand():
    """Independent models with equal variances: Tukey's studentised range, to a draw's accuracy."""
    values = np.array([0.0, 0.1, 2.0, 2.5])
    found = result(tuple(values)).pair_intervals(0.9)
    gap = np.subtract.outer(values, values)
    np.testing.assert_allclose(found.mean(axis=2), gap, atol=1e-12)
    reach = studentized_range.ppf(0.9, 4, np.inf) * 0.1
    np.testing.assert_allclose(np.ptp(found, axis=2)[gap != 0.0] / 2.0, reach, rtol=0.02)
    np.testing.assert_array_equal(found, -found.transpose(1, 0, 2)[:, :, ::-1])
    np.testing.assert_array_equal(np.diagonal(found), 0.0)


def test_pair_intervals_of_a_copy_and_of_a_constant_difference():
    one = JointEstimate(("a", "b", "c"), [0.0, 0.0, 1.0], np.ones((3, 3)))
    found = decide(one, test="relpsi").pair_intervals()
    np.testing.assert_allclose(found[0, 1], [0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found[2, 0], [1.0, 1.0], atol=1e-12)
    rng = np.random.default_rng(0)
    data, a, b = rng.normal(size=(3, 150, 2))
    found = relfit.compare(data, {"a": a, "b": b, "again": a}, rng=0).pair_intervals()
    np.testing.assert_array_equal(found[0, 2], 0.0)
    np.testing.assert_array_equal(found[1, 2], found[1, 0])
    with pytest.raises(relfit.InputError, match="level"):
        result().pair_intervals(95)


def test_bad_levels_and_corrections_are_refused():
    with pytest.raises(relfit.InputError, match="level"):
        result().ranks(1.0)
    with pytest.raises(relfit.InputError, match="correction"):
        result().pairs("fdr")
