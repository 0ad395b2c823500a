"""RelPSI, RelMulti and the pair tests: by hand, by closed forms and by brute force."""

import numpy as np
import pytest
from scipy.stats import norm

from relfit.api import decide
from relfit.stats.decision import adjust, resolve_correction, sign_condition
from relfit.stats.joint import JointEstimate
from relfit.stats.tests.pair import fixed_relpsi, relative_z
from relfit.stats.tests.relmulti import relmulti
from relfit.stats.tests.relpsi import relpsi
from relfit.stats.truncnorm import selective_threshold
from relfit.util.errors import InputError


def joint(values, covariance, names=None):
    return JointEstimate(names or tuple(f"m{k}" for k in range(len(values))), values, covariance)


def test_relpsi_for_two_models_by_hand():
    """l = 2: given J, t = D_i − D_J is |N(0, s²)|: p = 2(1 − Φ(t/s)), limits [0, ∞)."""
    decision = relpsi(joint([0.0, 0.3], [[0.01, 0.002], [0.002, 0.02]]), 0.05)
    s = np.sqrt(0.01 + 0.02 - 0.004)
    assert decision.best == 0
    np.testing.assert_array_equal(decision.truncation[1], [0.0, np.inf])
    assert np.exp(decision.log_pvalue[1]) == pytest.approx(2 * norm.sf(0.3 / s), rel=1e-12)


def test_relpsi_limits_for_three_independent_models_by_hand():
    """V = I, D = (0, 1, 3), J = 0, i = 1: s² = 2, c = (−½, ½, 0), d = c − c_J = (0, 1, ½).

    V⁻ = max(t − 1/1, t − 3/½) = max(0, −5) = 0, nothing bounds t above. For i = 2: d = (0, ½, 1) and
    V⁻ = max(3 − 1/½, 3 − 3/1) = max(1, 0) = 1.
    """
    decision = relpsi(joint([0.0, 1.0, 3.0], np.eye(3)), 0.05)
    np.testing.assert_allclose(decision.truncation[1:], [[0.0, np.inf], [1.0, np.inf]])
    expected = norm.sf(3 / np.sqrt(2)) / norm.sf(1 / np.sqrt(2))
    assert np.exp(decision.log_pvalue[2]) == pytest.approx(expected, rel=1e-12)


def test_relpsi_pvalues_are_uniform_given_the_selection():
    """Brute force: draw D ~ N(0, V), keep the draws where model 0 wins, and test model 3 against it."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    covariance = root @ root.T
    draws = rng.multivariate_normal(np.zeros(5), covariance, size=6000)
    p = [np.exp(relpsi(joint(d, covariance), 0.05).log_pvalue[3]) for d in draws if d.argmin() == 0]
    grid = np.linspace(0.05, 0.95, 19)
    ecdf = (np.array(p)[:, None] <= grid).mean(0)
    assert len(p) > 300
    assert (np.abs(ecdf - grid) < 4 * np.sqrt(grid * (1 - grid) / len(p))).all()


@pytest.mark.parametrize("l", [2, 5, 10])
def test_false_positive_rate_when_all_tie_is_alpha_times_l_minus_one_over_l(l):
    """The selected model is never declared worse, so an exact RelPSI has FPR α(l−1)/l."""
    rng = np.random.default_rng(l)
    trials, covariance = 4000, 0.5 * np.eye(l) + 0.5
    draws = rng.multivariate_normal(np.zeros(l), covariance, size=trials)
    worse = np.array([relpsi(joint(d, covariance), 0.05).worse.mean() for d in draws])
    assert abs(worse.mean() - 0.05 * (l - 1) / l) < 3.5 * worse.std() / np.sqrt(trials)


ALPHA, Z2, Z1 = 0.05, norm.isf(0.025), norm.isf(0.05)


@pytest.mark.parametrize("gap", [0.0, 0.5, 1.5, 3.0])
def test_closed_forms_for_two_models(gap):
    """With √n μ/σ = gap: P(select the better) = Φ(gap), TPR_PSI = Φ(gap − z_{1−α/2}) where the better is
    selected, TPR_Multi = Φ(√ρ gap − z_{1−α}) Φ(√(1−ρ) gap).
    """
    rng = np.random.default_rng(int(10 * gap) + 1)
    trials, rho = 6000, 0.75
    covariance = np.array([[1.0, 0.3], [0.3, 0.8]])
    s = np.sqrt(1.8 - 0.6)
    mean = np.array([0.0, gap * s])
    whole = rng.multivariate_normal(mean, covariance, size=trials)
    selection = rng.multivariate_normal(mean, covariance / (1 - rho), size=trials)
    testing = rng.multivariate_normal(mean, covariance / rho, size=trials)
    psi_decisions = [relpsi(joint(d, covariance), ALPHA) for d in whole]
    multi_decisions = [
        relmulti(joint(a, covariance / (1 - rho)), joint(b, covariance / rho), ALPHA, "by")
        for a, b in zip(selection, testing, strict=True)
    ]
    chosen = np.array([decision.best == 0 for decision in psi_decisions])
    psi = np.array([decision.worse[1] for decision in psi_decisions])
    multi = np.array([decision.worse[1] for decision in multi_decisions])
    expected = [norm.cdf(gap), norm.cdf(gap - Z2), norm.cdf(np.sqrt(rho) * gap - Z1) * norm.cdf(np.sqrt(1 - rho) * gap)]
    for got, truth in zip((chosen, psi, multi), expected, strict=True):
        assert abs(got.mean() - truth) < 3.5 * np.sqrt(truth * (1 - truth) / trials) + 1e-4


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


def test_fixed_hypothesis_level_is_alpha_when_tied():
    rng = np.random.default_rng(8)
    covariance = np.diag([0.3, 0.7])
    draws = rng.multivariate_normal([0.0, 0.0], covariance, size=20_000)
    rejected = np.mean([np.exp(fixed_relpsi(joint(d, covariance), ALPHA).log_pvalue) <= ALPHA for d in draws])
    assert abs(rejected - ALPHA) < 3.5 * np.sqrt(ALPHA * (1 - ALPHA) / 20_000)


def test_relative_z_is_a_one_sided_z_test():
    got = relative_z(joint([0.5, 0.1], [[0.02, 0.01], [0.01, 0.03]]), ALPHA)
    s = np.sqrt(0.03)
    assert np.exp(got.log_pvalue) == pytest.approx(norm.sf(0.4 / s), rel=1e-12)
    assert got.threshold == pytest.approx(norm.isf(ALPHA) * s, rel=1e-12)


def test_relmulti_selects_on_one_share_and_tests_on_the_other():
    selection = joint([0.0, 1.0, 2.0], np.eye(3))
    testing = joint([0.5, 0.0, 3.0], np.eye(3))
    decision = relmulti(selection, testing, ALPHA, "none")
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
    assert sign_condition(positive, 0)
    assert resolve_correction("auto", positive, 0) == "bh"
    assert not sign_condition(np.array([[2.0, 1.1, -0.5], [1.1, 1.0, 0.0], [-0.5, 0.0, 2.0]]), 1)
    assert resolve_correction("by", np.eye(2), 0) == "none"


def test_decide_refuses_relmulti_and_single_models():
    with pytest.raises(InputError, match="split"):
        decide(joint([0.0, 1.0], np.eye(2)), test="relmulti")
    with pytest.raises(InputError, match="at least 2"):
        decide(joint([0.0], np.eye(1)))


def test_an_exact_tie_for_best_is_no_evidence_against_a_third_model():
    """V = I, D = (0, 0, 1): model 1 is level with the best. d_1 = ½ > 0 for i = 2, so V⁻ = t and p = 1.

    With Cov(D_1, D_2) = −.9 instead, d_1 = (V_12 − V_01 − V_02 + V_00)/s² = (−.9 − 0 − 0 + .2)/2.2 < 0 and
    model 1 would set V⁺ = t, hence p = 0; it must not.
    """
    plain = relpsi(joint([0.0, 0.0, 1.0], np.eye(3)), ALPHA)
    assert np.exp(plain.log_pvalue[2]) == 1.0
    covariance = np.array([[0.2, 0.0, 0.0], [0.0, 1.0, -0.9], [0.0, -0.9, 2.0]])
    against = relpsi(joint([0.0, 0.0, 1.0], covariance), ALPHA)
    s = np.sqrt(2.2)
    assert np.exp(against.log_pvalue[2]) == pytest.approx(2 * norm.sf(1 / s), rel=1e-9)
    assert against.status[:2] == (("tie",), ("tie",))
