"""One scale of verdicts: words, intervals, pairs and files never contradict one another, whatever the test."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr

import relfit
from relfit.results.scale import KINDS, SCALE, is_worse, kind_of

CORRECTIONS = ("none", "holm", "bonferroni", "bh", "by", "stepdown")


def agree(result):
    """Verdicts, p-values, `worse`, intervals and pairs are one decision; returns the result."""
    kinds, intervals, pairs = np.array(result.kinds), result.verdict_intervals(), result.verdict_pairs()
    found = np.array([is_worse(verdict) for verdict in result.verdicts])
    assert {*kinds} <= {*KINDS}
    assert kinds[result.best_index] == "best"
    np.testing.assert_array_equal(result.worse, found)
    np.testing.assert_array_equal(result.worse, result.adjusted_pvalue <= result.alpha)
    if result.confidence_set is not None:
        assert result.confidence_set == tuple(np.array(result.names)[~result.worse])
    for i, (kind, (low, high)) in enumerate(zip(kinds, intervals, strict=True)):
        assert low <= high
        assert (low > result.margin) == found[i], (kind, low)
        if result.margin and kind in ("equal", "open"):
            assert (high <= result.margin) == (kind == "equal")
        assert ("worse" in pairs[i]) == found[i]
    for i, j in itertools.permutations(range(len(kinds)), 2):
        assert (pairs[i, j] == "worse") == (pairs[j, i] == "better")
    assert [(row["lower"], row["upper"]) for row in result.rows()] == [
        tuple(intervals[result.names.index(row["name"])]) for row in result.rows()
    ]
    assert relfit.Comparison.from_json(result.to_json()).verdicts == result.verdicts
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
        result = agree(relfit.decide(random_estimate(seed), test=test, correction=correction, margin=margin))
        seen |= {*result.verdicts}
    best = "selected" if test == "carve" else "best observed"
    beyond = " by more than 0.15" if margin else ""
    assert {best, "inconclusive", f"significantly worse{beyond}"} <= seen
    equal = (
        {f"equivalent within {margin}" if test == "best-set" else f"non-inferior within {margin}"} if margin else set()
    )
    words = {best, "inconclusive", *equal}
    words |= {f"significantly worse{beyond}", f"worse{beyond} (unadjusted)", f"worse{beyond} (FDR)"}
    assert seen <= words


def test_each_verdict_has_its_own_words():
    """The kind is read from the words, so no verdict may begin with the name of another kind."""
    for verdict in SCALE:
        shown = verdict.shown.format(margin=" by more than 0.1", delta="0.1")
        assert shown.startswith(verdict.name)
        assert kind_of(shown) == verdict.kind


@pytest.mark.parametrize("test", ["best-set", "relmulti"])
@pytest.mark.parametrize("margin", [0.0, 0.01])
def test_of_data_with_copies(test, margin):
    """MMD, where p-values come from the distribution at a tie: copies have the verdict of their original."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(200, 2))
    models = {f"m{k}": rng.normal(0.2 * k, 1, (200, 2)) for k in range(6)}
    models |= {"best again": models["m0"], "far again": models["m5"]}
    result = agree(relfit.compare(data, models, test=test, margin=margin, rng=0))
    assert result.verdict("far again") == result.verdict("m5")
    assert is_worse(result.verdict("m5"))
    assert result.verdict("best again") == result.verdict("m0")


def test_step_down_of_two_models_by_hand():
    """Two models, D_b − D_a = 0.25, s = 0.1414: p = Φ(−1.768) = .0386 unadjusted, and twice that adjusted."""
    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.25], 0.01 * np.eye(2), (500,))
    unadjusted = agree(relfit.decide(joint, correction="none", rng=0))
    assert unadjusted.verdicts == ("best observed", "worse (unadjusted)")
    assert unadjusted.pvalue[1] == pytest.approx(ndtr(-0.25 / np.sqrt(0.02)))
    # 0.25 − 1.645 s to 0.25 + 1.645 s.
    np.testing.assert_allclose(
        unadjusted.verdict_intervals()[1], 0.25 + 1.6449 * np.sqrt(0.02) * np.array([-1, 1]), atol=1e-3
    )
    adjusted = agree(relfit.decide(joint, rng=0))
    assert adjusted.correction == "stepdown"
    assert adjusted.verdicts == ("best observed", "inconclusive")
    assert adjusted.adjusted_pvalue[1] == pytest.approx(2.0 * ndtr(-0.25 / np.sqrt(0.02)), rel=0.05)
    # With a difference of 0.30 it is significant, and its lower bound is that of the two-sided test: 0.30 − 1.96 s.
    clear = agree(relfit.decide(relfit.JointEstimate(("a", "b"), [0.0, 0.30], 0.01 * np.eye(2), (500,)), rng=0))
    assert clear.verdicts == ("best observed", "significantly worse")
    assert clear.verdict_intervals()[1, 0] == pytest.approx(0.30 - 1.96 * np.sqrt(0.02), abs=2e-3)


def test_a_false_discovery_rate_decides_what_is_worse():
    """Each of b and c is worse by 2.5 standard errors than two others: BH rejects at .05."""
    joint = relfit.JointEstimate(tuple("abcd"), [0.0, 0.36, 0.36, 0.0], 0.01 * np.eye(4), (500,))
    by_name = {name: agree(relfit.decide(joint, correction=name, rng=0)) for name in ("none", "bh", "by")}
    assert by_name["by"].worse.sum() <= by_name["bh"].worse.sum() <= by_name["none"].worse.sum()
    assert "worse (FDR)" in by_name["bh"].verdicts
    assert "worse (unadjusted)" in by_name["none"].verdicts
    assert "confidence set" not in str(by_name["bh"])
    assert "95% confidence set for the best model: " in str(by_name["none"])


def test_one_hypothesis_needs_no_adjustment():
    """RelPSI of two models tests one hypothesis: its level is the familywise error rate."""
    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.9], 0.01 * np.eye(2), (500,))
    for test in ("relpsi", "carve"):
        result = agree(relfit.decide(joint, test=test, rng=0))
        assert result.correction == "none"
        assert result.verdicts[1] == "significantly worse"


def test_the_best_models_interval_is_in_every_output():
    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.9], 0.01 * np.eye(2), (500,))
    result = relfit.decide(joint, rng=0)
    low, high = result.best_interval()
    assert f"95% interval for the score of a, adjusted for its selection: {low:.2f} to {high:.2f}." in str(result)
    assert result.to_dict()["best_interval"] == pytest.approx([low, high])
