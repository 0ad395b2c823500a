"""Ranks and the pairwise matrix of a comparison: by hand, with copies, as JSON and as text."""

import json

import numpy as np
import pytest
from scipy.stats import norm

import relfit
from relfit import JointEstimate, decide


def result(values=(0.0, 0.1, 2.0), variance=0.01, **options):
    names = tuple("abcdefgh"[: len(values)])
    return decide(JointEstimate(names, values, variance * np.eye(len(values))), **{"test": "relpsi", **options})


def test_ranks_by_hand():
    """s = √.02: a and b differ by .7 s, c from both by 13 s: ranks {1, 2}, {1, 2}, {3}."""
    ranks = result().ranks()
    assert ranks.lower.tolist() == [1, 1, 3]
    assert ranks.upper.tolist() == [2, 2, 3]
    assert ranks.worse.tolist() == [[False] * 3, [False] * 3, [True, True, False]]


def test_each_rank_by_itself_is_no_wider():
    one = result((0.0, 0.2, 0.35, 0.6, 0.8)).ranks(simultaneous=False)
    all_ = result((0.0, 0.2, 0.35, 0.6, 0.8)).ranks()
    assert (one.lower >= all_.lower).all()
    assert (one.upper <= all_.upper).all()
    assert "Each rank is in its set with probability 95%." in str(one)


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


def test_a_copy_ties_with_its_original_and_costs_nothing():
    rng = np.random.default_rng(0)
    data, a = rng.normal(size=(150, 2)), rng.normal(size=(150, 2))
    models = {"a": a, "far": rng.normal(2, 1, (150, 2)), "near": rng.normal(0.3, 1, (150, 2))}
    plain = relfit.compare(data, models, rng=0)
    more = relfit.compare(data, {**models, "again": a}, rng=0)
    np.testing.assert_array_equal(more.pairs().adjusted_pvalue[:3, :3], plain.pairs().adjusted_pvalue)
    assert more.pairs().pvalue[0, 3] == 1.0
    ranks = more.ranks()
    assert (ranks.lower[3], ranks.upper[3]) == (ranks.lower[0], ranks.upper[0])
    assert ranks.lower[1] == 4


@pytest.mark.parametrize("test", ["relpsi", "best-set", "carve"])
def test_they_do_not_depend_on_the_test(test):
    np.testing.assert_array_equal(result(test=test, rng=3).ranks().lower, result(rng=3).ranks().lower)
    np.testing.assert_array_equal(result(test=test, rng=3).pairs().pvalue, result(rng=3).pairs().pvalue)


def test_json_and_text():
    found = result()
    ranks = json.loads(found.ranks().to_json())
    assert (ranks["type"], ranks["names"], ranks["lower"]) == ("relfit.Ranks", ["a", "b", "c"], [1, 1, 3])
    pairs = json.loads(found.pairs().to_json())
    assert (pairs["type"], pairs["correction"], pairs["worse"][2]) == ("relfit.PairMatrix", "holm", [True, True, False])
    lines = str(found.pairs()).splitlines()
    assert lines[0].split() == ["a", "b", "c"]
    assert lines[3].split()[0] == "c"
    assert lines[3].count("*") == 2
    assert lines[4].startswith("p-values of “no worse than”")


def test_bad_levels_and_corrections_are_refused():
    with pytest.raises(relfit.InputError, match="level"):
        result().ranks(1.0)
    with pytest.raises(relfit.InputError, match="correction"):
        result().pairs("fdr")
