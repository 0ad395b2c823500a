"""Margins: "worse by more than δ" and "equivalent within δ", by hand and at the boundary by simulation."""

import numpy as np
import pytest
from scipy.stats import norm

import relfit
from relfit.api import decide
from relfit.stats.joint import JointEstimate
from relfit.stats.pairs import fixed_relpsi, relative_z
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.best_set import best_set
from relfit.stats.tests.carve import carve, select
from relfit.stats.tests.relmulti import RelMulti
from relfit.stats.tests.relpsi import RelPSI

ALPHA = 0.05
Z = norm.isf(ALPHA)


def joint(values, covariance, n=None):
    return JointEstimate(tuple(f"m{k}" for k in range(len(values))), values, covariance, None if n is None else (n,))


def correlated(l, seed=1):
    root = np.random.default_rng(seed).normal(size=(l, l))
    return root @ root.T / l + 0.2 * np.eye(l)


def test_a_constant_difference_within_the_margin_is_still_called_known():
    joint = JointEstimate(("a", "b"), [0.0, 0.5], 0.01 * np.ones((2, 2)), (100,))
    assert best_set(joint, 0.05, rng=np.random.default_rng(0), margin=1.0).status[1] == ("deterministic",)


def test_pair_z_by_hand():
    """s = 1: p = Φ(δ − t), threshold δ + z. Equivalent where t ≤ δ − z."""
    estimate = joint([2.0, 0.0], 0.5 * np.eye(2))
    got = relative_z(estimate, ALPHA, 0.5)
    assert np.exp(got.log_pvalue) == pytest.approx(norm.sf(1.5), rel=1e-12)
    assert got.threshold == pytest.approx(0.5 + Z, rel=1e-12)
    assert relative_z(estimate, ALPHA, 2.0 + Z + 1e-9).equivalent
    assert not relative_z(estimate, ALPHA, 2.0 + Z - 1e-9).equivalent
    assert relative_z(estimate, ALPHA).equivalent is None


def test_relpsi_by_hand():
    """l = 2, s = 1, t = 2.5, T in [0, ∞) with mean δ = 1: p = Φ̄(1.5)/Φ̄(−1), P(T ≤ t) its complement."""
    decision = RelPSI().decide(joint([0.0, 2.5], 0.5 * np.eye(2)), Criteria(ALPHA, margin=1.0))
    assert np.exp(decision.log_pvalue[1]) == pytest.approx(norm.sf(1.5) / norm.sf(-1.0), rel=1e-12)
    # Φ(2.5 − δ) ≤ α from δ = 2.5 + z on; given T ≥ 0 the probability is smaller still, so the plain test decides.
    assert RelPSI().decide(joint([0.0, 2.5], 0.5 * np.eye(2)), Criteria(ALPHA, margin=2.5 + Z + 1e-6)).equivalent[1]
    assert not RelPSI().decide(joint([0.0, 2.5], 0.5 * np.eye(2)), Criteria(ALPHA, margin=2.5 + Z - 1e-6)).equivalent[1]


def test_fixed_relpsi_by_hand():
    """As above with η fixed: b selected, [0, ∞); the threshold is where p = α."""
    estimate = joint([2.5, 0.0], 0.5 * np.eye(2))
    got = fixed_relpsi(estimate, ALPHA, 1.0)
    assert np.exp(got.log_pvalue) == pytest.approx(norm.sf(1.5) / norm.sf(-1.0), rel=1e-12)
    assert norm.sf(got.threshold - 1.0) / norm.sf(-1.0) == pytest.approx(ALPHA, rel=1e-9)
    # a selected, T in (−∞, 0]: the threshold c has P(c < T ≤ 0) = α P(T ≤ 0).
    other = fixed_relpsi(joint([0.0, 2.5], 0.5 * np.eye(2)), ALPHA, 1.0)
    assert norm.cdf(other.threshold - 1.0) / norm.cdf(-1.0) == pytest.approx(1 - ALPHA, rel=1e-9)


def test_relmulti_by_hand():
    selection, testing = joint([0.0, 1.0, 1.0], np.eye(3)), joint([0.0, 2.0, -3.0], 0.5 * np.eye(3))
    decision = RelMulti().decide(testing, Criteria(ALPHA, "none", margin=0.5), selection)
    np.testing.assert_allclose(np.exp(decision.log_pvalue), [1.0, norm.sf(1.5), norm.sf(-3.5)], rtol=1e-12)
    assert decision.equivalent.tolist() == [True, False, True]
    # Bonferroni over the two others: Φ(−3.5) · 2 ≤ α still, but not Φ(−1.7) · 2.
    near = RelMulti().decide(
        joint([0.0, 2.0, -1.2], 0.5 * np.eye(3)), Criteria(ALPHA, "bonferroni", margin=0.5), selection
    )
    assert near.equivalent.tolist() == [True, False, False]


def test_carving_moves_the_mean_of_its_conditional_law():
    """p(δ) is the fraction of the law's mass above t at mean δ; without a margin it is that at mean 0."""
    estimate = joint([0.0, 0.4, 2.0], correlated(3))
    decision = carve(estimate, ALPHA, rng=np.random.default_rng(3), margin=0.7)
    selection = select(estimate, np.random.default_rng(3))
    for i in set(range(3)) - {selection.best}:
        law = selection.law(i)
        mean = 0.7 / law.s[0]
        inside = np.clip(norm.cdf(law.b - mean) - norm.cdf(np.maximum(law.a, law.t) - mean), 0.0, None)
        whole = np.clip(norm.cdf(law.b - mean) - norm.cdf(law.a - mean), 0.0, None)
        assert np.exp(decision.log_pvalue[i]) == pytest.approx(inside.sum() / whole.sum(), rel=1e-9)


def test_best_set_is_equivalent_where_its_upper_bound_says_so():
    """Two models, s = 1, gap 3 > z: C = {0} and R_1 ≤ 3 + z."""
    estimate = joint([0.0, 3.0], 0.5 * np.eye(2))
    for margin, shown in ((3.0 + Z - 1e-6, False), (3.0 + Z + 1e-6, True)):
        decision = best_set(estimate, ALPHA, rng=np.random.default_rng(0), margin=margin)
        assert decision.equivalent.tolist() == [True, shown]


@pytest.mark.parametrize("test", ["relpsi", "best-set", "carve"])
def test_a_constant_difference_is_compared_with_the_margin_itself(test):
    estimate = joint([0.0, 0.5, 0.0], np.ones((3, 3)))
    below = decide(estimate, test=test, margin=0.4, rng=0)
    above = decide(estimate, test=test, margin=0.6, rng=0)
    assert below.worse.tolist() == [False, True, False]
    assert below.equivalent.tolist() == [True, False, True]
    assert not above.worse.any()
    assert above.equivalent.all()


def test_a_near_tie_for_best_makes_no_model_equivalent():
    """Given the selection V⁻ is just below t, so T can hardly be smaller; but t is ten times the margin."""
    estimate = joint([0.0, 1e-6, 5.0], 0.5 * np.eye(3))
    decision = RelPSI().decide(estimate, Criteria(ALPHA, margin=0.5))
    assert not decision.worse[2]
    assert not decision.equivalent[2]


def test_the_words_and_the_table_follow(capsys):
    estimate = joint([0.0, 0.02, 0.3, 1.0], 0.002 * np.eye(4), n=500)
    result = decide(estimate, test="best-set", margin=0.2, rng=0)
    verdict = {row["name"]: row["verdict"] for row in result.rows()}
    assert verdict == {
        "m0": "best observed",
        "m1": "equivalent within 0.2",
        "m2": "inconclusive",
        "m3": "significantly worse by more than 0.2",
    }
    assert [row["equivalent"] for row in result.rows()] == [True, True, False, False]
    assert "margin 0.2" in str(result)
    assert "Equivalent within 0.2: m1. Inconclusive: m2." in str(result)
    back = relfit.Comparison.from_json(result.to_json())
    assert back.margin == 0.2
    np.testing.assert_array_equal(back.equivalent, result.equivalent)
    plain = decide(estimate, test="best-set", rng=0)
    assert plain.equivalent is None
    assert all(row["equivalent"] is None for row in plain.rows())
