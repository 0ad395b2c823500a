"""One scale of verdicts: grades, intervals, pairs and files never contradict one another, whatever the test."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr

import relfit
from relfit.results.verdicts import SCALE

WORSE = ("worse", "clearly worse")
CORRECTIONS = ("none", "holm", "bonferroni", "bh", "by", "stepdown")


def agree(result):
    """Grades, p-values, `worse`, intervals and pairs say the same; returns the result."""
    grades, intervals, pairs = np.array(result.grade), result.graded_intervals(), result.graded_pairs()
    found = np.isin(grades, WORSE)
    assert set(result.grade) <= {grade.name for grade in SCALE}
    assert result.grade.count("best") == 1 == (grades[result.best_index] == "best")
    # What was asked for is found, and what is found with a correction for all models is clear.
    assert found[result.worse].all()
    if result.correction in ("holm", "bonferroni", "stepdown"):
        np.testing.assert_array_equal(result.worse, grades == "clearly worse")
    else:
        np.testing.assert_array_equal(result.worse, found)
    assert (result.simultaneous_pvalue >= result.adjusted_pvalue).all()
    if result.confidence_set is not None:
        assert result.confidence_set == tuple(np.array(result.names)[~result.worse])
    for i, (grade, (low, high)) in enumerate(zip(grades, intervals, strict=True)):
        assert low <= high
        assert (low > result.margin) == (grade in WORSE), (grade, low)
        if result.margin and grade in ("equivalent", "no evidence"):
            assert (high <= result.margin) == (grade == "equivalent")
        assert ("clearly worse" in pairs[i]) == (grade == "clearly worse")
        assert bool({*pairs[i]} & {*WORSE}) == (grade in WORSE)
    opposite = {"worse": "better", "clearly worse": "clearly better"}
    for i, j in itertools.permutations(range(len(grades)), 2):
        assert pairs[i, j] not in WORSE or pairs[j, i] == opposite[pairs[i, j]]
    assert relfit.Comparison.from_json(result.to_json()).grade == result.grade
    return result


def random_estimate(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 9))
    root = rng.normal(size=(count, count))
    covariance = 0.01 * (root @ root.T / count + rng.choice([0.05, 1.0]) * np.eye(count))
    values = rng.normal(size=count) * rng.choice([0.05, 0.2, 0.6])
    return relfit.JointEstimate(tuple("abcdefghi"[:count]), values, covariance, (int(rng.choice([60, 500])),))


@pytest.mark.parametrize("margin", [0.0, 0.15])
@pytest.mark.parametrize("test", ["best-set", "relpsi", "carve"])
def test_nothing_contradicts_anything(test, margin):
    seen = set()
    for seed in range(12 if test == "carve" else 40):
        correction = CORRECTIONS[seed % (6 if test == "best-set" else 5)]
        seen |= {*agree(relfit.decide(random_estimate(seed), test=test, correction=correction, margin=margin)).grade}
    assert {"best", "no evidence", "clearly worse"} <= seen


@pytest.mark.parametrize("test", ["best-set", "relmulti"])
@pytest.mark.parametrize("margin", [0.0, 0.01])
def test_of_data_with_copies(test, margin):
    """MMD, where p-values come from the law with both its parts: copies have the grade of their original."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(200, 2))
    models = {f"m{k}": rng.normal(0.2 * k, 1, (200, 2)) for k in range(6)}
    models |= {"best again": models["m0"], "far again": models["m5"]}
    result = agree(relfit.compare(data, models, test=test, margin=margin, rng=0))
    grades = dict(zip(result.names, result.grade, strict=True))
    assert grades["far again"] == grades["m5"] == "clearly worse"
    if result.best == "m0":
        assert grades["best again"] == "same"


def test_alone_and_at_once_by_hand():
    """Two models, D_b − D_a = 0.25, s = 0.1414: p = Φ(−1.768) = .0386 alone, and twice that for both at once."""
    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.25], 0.01 * np.eye(2), (500,))
    result = agree(relfit.decide(joint, rng=0))
    assert result.grade == ("best", "worse")
    assert result.pvalue[1] == pytest.approx(ndtr(-0.25 / np.sqrt(0.02)))
    assert result.simultaneous_pvalue[1] == pytest.approx(2.0 * ndtr(-0.25 / np.sqrt(0.02)), rel=0.05)
    # 0.25 − 1.645 s to 0.25 + 1.645 s.
    np.testing.assert_allclose(
        result.graded_intervals()[1], 0.25 + 1.6449 * np.sqrt(0.02) * np.array([-1, 1]), atol=1e-3
    )
    at_once = agree(relfit.decide(joint, correction="stepdown", rng=0))
    assert at_once.grade == ("best", "worse")
    assert not at_once.worse.any()
    # With a gap of 0.30 it is clear, and its lower bound is the one for both at once: 0.30 − 1.96 s.
    clear = relfit.decide(relfit.JointEstimate(("a", "b"), [0.0, 0.30], 0.01 * np.eye(2), (500,)), rng=0)
    assert agree(clear).grade == ("best", "clearly worse")
    assert clear.graded_intervals()[1, 0] == pytest.approx(0.30 - 1.96 * np.sqrt(0.02), abs=2e-3)


def test_a_false_discovery_rate_decides_what_is_worse():
    """p-values .03, .03 and .9 of two-sided z tests given the selection: BH rejects at .05, BY does not."""
    joint = relfit.JointEstimate(tuple("abcd"), [0.0, 0.31, 0.31, 0.02], 0.01 * np.eye(4), (500,))
    by_name = {name: agree(relfit.decide(joint, correction=name, rng=0)) for name in ("none", "bh", "by")}
    for result in by_name.values():
        np.testing.assert_array_equal(result.worse, np.isin(result.grade, WORSE))
    assert by_name["by"].worse.sum() <= by_name["bh"].worse.sum() <= by_name["none"].worse.sum()
    assert "taken alone" not in str(by_name["bh"])
