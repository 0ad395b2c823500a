"""RelPSI, RelMulti and the pair tests: by hand, by closed forms and by brute force."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from trials import pvalues, trials, worse

from relfit.stats.decision import adjust, differences, sign_condition
from relfit.stats.joint import JointEstimate
from relfit.stats.pairs import fixed_relpsi, relative_z
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.relmulti import RelMulti
from relfit.stats.tests.relpsi import RelPSI
from relfit.stats.truncnorm import selective_threshold


def joint(values, covariance, names=None):
    return JointEstimate(names or tuple(f"m{k}" for k in range(len(values))), values, covariance)


def test_relpsi_for_two_models_by_hand():
    """l = 2: given J, t = D_i − D_J is |N(0, s²)|: p = 2(1 − Φ(t/s)), limits [0, ∞)."""
    decision = RelPSI().decide(joint([0.0, 0.3], [[0.01, 0.002], [0.002, 0.02]]), Criteria(0.05))
    s = np.sqrt(0.01 + 0.02 - 0.004)
    assert decision.best == 0
    np.testing.assert_array_equal(decision.truncation[1], [0.0, np.inf])
    assert np.exp(decision.log_pvalue[1]) == pytest.approx(2 * norm.sf(0.3 / s), rel=1e-12)


def test_relpsi_limits_for_three_independent_models_by_hand():
    """V = I, D = (0, 1, 3), J = 0, i = 1: s² = 2, c = (−½, ½, 0), d = c − c_J = (0, 1, ½).

    V⁻ = max(t − 1/1, t − 3/½) = max(0, −5) = 0, nothing bounds t above. For i = 2: d = (0, ½, 1) and
    V⁻ = max(3 − 1/½, 3 − 3/1) = max(1, 0) = 1.
    """
    decision = RelPSI().decide(joint([0.0, 1.0, 3.0], np.eye(3)), Criteria(0.05))
    np.testing.assert_allclose(decision.truncation[1:], [[0.0, np.inf], [1.0, np.inf]])
    expected = norm.sf(3 / np.sqrt(2)) / norm.sf(1 / np.sqrt(2))
    assert np.exp(decision.log_pvalue[2]) == pytest.approx(expected, rel=1e-12)


def limits(values, covariance, i):
    """The truncation of model i, with every warning and floating-point error an exception."""
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        return tuple(RelPSI().decide(joint(values, covariance), Criteria(0.05)).truncation[i].tolist())


def test_truncation_by_hand():
    """V = I, J = 0, i = 1: s² = 2, c = (−½, ½, 0), d = (0, 1, ½). D = (0, 3, 1): t = 3 and
    V⁻ = max(3 − 3/1, 3 − 1/½) = 1, no d < 0 so V⁺ = ∞.
    V_JJ = 1, V_ii = V_kk = 3, V_ik = −2: s² = 4, d_k = (−2 + 1)/4 = −¼. D = (0, 1, 2): V⁺ = 1 + 2·4 = 9.
    A model that differs from J by a constant says nothing about its selection.
    """
    assert limits([0.0, 3.0, 1.0], np.eye(3), 1) == (1.0, math.inf)
    assert limits([0.0, 1.0, 2.0], [[1.0, 0.0, 0.0], [0.0, 3.0, -2.0], [0.0, -2.0, 3.0]], 1) == (0.0, 9.0)
    assert limits([0.0, 1.0], np.eye(2), 1) == (0.0, math.inf)
    shifted = [[2.0, 1.0, 2.0], [1.0, 1.0, 1.0], [2.0, 1.0, 2.0]]
    assert limits([0.0, 3.0, 1.0], shifted, 1) == limits([0.0, 3.0], [[2.0, 1.0], [1.0, 1.0]], 1)


def test_truncation_drops_rows_that_are_rounding():
    """V_kJ = V_JJ and V_ki = V_Ji make d_k = 0: t says nothing of D_k − D_J. Two ulps of noise in V must not bring the
    row back: with D_k = D_J and d_k > 0 it would shut the interval at t, with D_k just above D_J and d_k < 0 put a
    limit above t. Row i stays however small s² is.
    """
    v = np.array([[1.0, 0.3, 1.0], [0.3, 2.0, 0.3], [1.0, 0.3, 1.7]])
    for noise in (0.0, 4.4e-16, -4.4e-16):
        v[2, 0] = v[0, 2] = 1.0 + noise
        assert limits([0.0, 1.0, 0.0], v, 1) == (0.0, math.inf)
        assert limits([0.0, 1.0, 1e-6], v, 1) == (0.0, math.inf)
    close = 1.0 - 2.0**-32
    assert limits([0.0, 1.0], [[1.0, close], [close, 1.0]], 1) == (0.0, math.inf)


def random_estimate(rng, models):
    root = rng.normal(size=(models, models + 1))
    return rng.normal(size=models), root @ root.T / models


@settings(max_examples=300, deadline=None, database=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7))
def test_truncation_is_where_the_argmin_stays(seed, models):
    """D moved along c = Vη/s² keeps argmin = J for t in [V⁻, V⁺] and nowhere else: brute force on a grid."""
    rng = np.random.default_rng(seed)
    d, v = random_estimate(rng, models)
    best = int(np.argmin(d))
    i = int(rng.choice(np.delete(np.arange(models), best)))
    lower, upper = limits(d, v, i)
    eta = np.eye(models)[i] - np.eye(models)[best]
    c, t = v @ eta / (eta @ v @ eta), eta @ d
    assert 0.0 <= lower <= t <= upper
    ends = [e + side * 1e-6 * (1 + abs(e)) for e in (lower, upper) if np.isfinite(e) for side in (-1, 1)]
    for tau in [*np.linspace(lower - 3, min(upper, t + 10) + 3, 41), *ends]:
        if min(abs(tau - lower), abs(tau - upper)) > 1e-8 * (1 + abs(tau)):
            assert (int(np.argmin(d + c * (tau - t))) == best) == (lower < tau < upper)


def test_relpsi_pvalues_are_uniform_given_the_selection():
    """Brute force: draw D ~ N(0, V), keep the draws where model 0 wins, and test model 3 against it."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    covariance = root @ root.T
    draws = rng.multivariate_normal(np.zeros(5), covariance, size=6000)
    best, p = pvalues(RelPSI(), trials(draws, covariance))
    p = p[best == 0, 3]
    grid = np.linspace(0.05, 0.95, 19)
    ecdf = (p[:, None] <= grid).mean(0)
    assert len(p) > 300
    assert (np.abs(ecdf - grid) < 4 * np.sqrt(grid * (1 - grid) / len(p))).all()


ALPHA, Z2, Z1 = 0.05, norm.isf(0.025), norm.isf(0.05)


@pytest.mark.parametrize("gap", [0.0, 0.5, 1.5, 3.0])
def test_closed_forms_for_two_models(gap):
    """With √n μ/σ = gap: P(select the better) = Φ(gap), TPR_PSI = Φ(gap − z_{1−α/2}) where the better is
    selected, TPR_Multi = Φ(√ρ gap − z_{1−α}) Φ(√(1−ρ) gap).
    """
    rng = np.random.default_rng(int(10 * gap) + 1)
    count, rho = 6000, 0.75
    covariance = np.array([[1.0, 0.3], [0.3, 0.8]])
    s = np.sqrt(1.8 - 0.6)
    mean = np.array([0.0, gap * s])
    whole = rng.multivariate_normal(mean, covariance, size=count)
    selection = rng.multivariate_normal(mean, covariance / (1 - rho), size=count)
    testing = rng.multivariate_normal(mean, covariance / rho, size=count)
    selected, psi = pvalues(RelPSI(), trials(whole, covariance))
    best, multi = pvalues(RelMulti(1 - rho), trials(testing, covariance / rho, selection=selection))
    found = selected == 0, psi[:, 1] <= ALPHA, worse(best, multi, "by")[:, 1]
    expected = [norm.cdf(gap), norm.cdf(gap - Z2), norm.cdf(np.sqrt(rho) * gap - Z1) * norm.cdf(np.sqrt(1 - rho) * gap)]
    for got, truth in zip(found, expected, strict=True):
        assert abs(got.mean() - truth) < 3.5 * np.sqrt(truth * (1 - truth) / count) + 1e-4


def test_fixed_hypothesis_thresholds():
    """J = b: truncation [0, ∞), threshold sΦ⁻¹(1 − α/2); J = a: (−∞, 0], threshold sΦ⁻¹(½ − α/2)."""
    covariance = np.diag([0.3, 0.7])
    up = fixed_relpsi(joint([0.4, 0.0], covariance), ALPHA)
    down = fixed_relpsi(joint([0.0, 0.4], covariance), ALPHA)
    assert up.threshold == pytest.approx(norm.isf(ALPHA / 2), rel=1e-9)
    assert down.threshold == pytest.approx(norm.ppf(0.5 - ALPHA / 2), rel=1e-9)
    for got in (up, down):
        assert got.threshold == pytest.approx(float(selective_threshold(ALPHA, 1.0, *got.truncation)), rel=1e-9)
    assert up.truncation == (0.0, np.inf)
    assert down.truncation == (-np.inf, 0.0)


def test_relative_z_is_a_one_sided_z_test():
    got = relative_z(joint([0.5, 0.1], [[0.02, 0.01], [0.01, 0.03]]), ALPHA)
    s = np.sqrt(0.03)
    assert np.exp(got.log_pvalue) == pytest.approx(norm.sf(0.4 / s), rel=1e-12)
    assert got.threshold == pytest.approx(norm.isf(ALPHA) * s, rel=1e-12)


def test_relmulti_selects_on_one_share_and_tests_on_the_other():
    selection = joint([0.0, 1.0, 2.0], np.eye(3))
    testing = joint([0.5, 0.0, 3.0], np.eye(3))
    decision = RelMulti().decide(testing, Criteria(ALPHA, "none"), selection)
    p = [1.0, norm.sf(-0.5 / np.sqrt(2)), norm.sf(2.5 / np.sqrt(2))]
    assert decision.best == 0
    np.testing.assert_allclose(np.exp(decision.log_pvalue), p, rtol=1e-12)


def test_corrections_by_hand():
    """p = (.01, .04, .03): BH .03, .04, .04; BY × (1 + ½ + ⅓); Holm .03, .06, .06; Bonferroni × 3."""
    p = np.array([0.01, 0.04, 0.03])
    np.testing.assert_allclose(adjust(p, "bh"), [0.03, 0.04, 0.04])
    np.testing.assert_allclose(adjust(p, "by"), np.array([0.03, 0.04, 0.04]) * 11 / 6)
    np.testing.assert_allclose(adjust(p, "holm"), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(adjust(p, "bonferroni"), [0.03, 0.12, 0.09])
    np.testing.assert_array_equal(adjust(p, "none"), p)
    np.testing.assert_array_equal(adjust(p[:1], "by"), p[:1])


def test_automatic_correction_follows_the_sign_condition():
    """Cov(D_0 − D_1, D_2 − D_1) = V_02 − V_01 − V_12 + V_11 = −.5 − 1.1 − 0 + 1 < 0 in the second matrix."""
    positive = 0.5 * np.eye(4) + 0.5
    negative = np.array([[2.0, 1.1, -0.5], [1.1, 1.0, 0.0], [-0.5, 0.0, 2.0]])
    assert sign_condition(positive, 0)
    assert not sign_condition(negative, 1)
    # Differences with covariances of 1 and -.01: a small one counts too.
    assert not sign_condition(np.array([[0.0, 0.0, 0.0], [0.0, 1.0, -0.01], [0.0, -0.01, 1.0]]), 0)
    assert RelMulti.resolved_correction("auto", positive, 0) == "bh"
    assert RelMulti.resolved_correction("auto", negative, 1) == "by"
    assert RelMulti.resolved_correction("by", np.eye(2), 0) == "none"
    assert [RelPSI.resolved_correction(name, positive, 0) for name in ("auto", "holm")] == ["by", "holm"]


def test_a_gap_that_is_no_tie_is_tested():
    """With V = I a gap of 1e-8 standard errors is still a gap; only below 1e-9 does rounding decide."""
    for gap, words in ((1e-8, ()), (1e-9, ("tie",))):
        assert RelPSI().decide(joint([0.0, gap], np.eye(2)), Criteria(ALPHA)).status == (words, words)


def test_a_constant_difference_is_rounding_only_far_below_the_errors():
    """Two models that err together, s.e. 1: a gap of 0.01 is certain, one of 1e-6 is rounding."""
    together = np.ones((2, 2))
    assert differences(JointEstimate(("a", "b"), [0.0, 0.01], together)).certain[1, 0]
    rounding = differences(JointEstimate(("a", "b"), [0.0, 1e-6], together))
    assert rounding.same[1, 0]
    assert not rounding.certain[1, 0]
