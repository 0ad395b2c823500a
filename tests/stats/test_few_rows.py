"""Few rows and skewed ones: every difference on the scale of its own p-value, by hand and by simulation."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from relfit.stats.close import skewed, unfollowed
from relfit.stats.decision import differences
from relfit.stats.distribution import alone
from relfit.stats.joint import JointEstimate, Psi
from relfit.stats.pairs import pair_intervals
from relfit.stats.tests.best_set import best_set, distribution

ALPHA = 0.05


def joint(values, covariance, n=None, psi=None):
    names = tuple(f"m{k}" for k in range(len(values)))
    return JointEstimate(names, values, covariance, None if n is None else (n,), psi)


def of_rows(rows):
    psi = Psi(rows - rows.mean(axis=0))
    return joint(rows.mean(axis=0), psi.covariance(), n=len(rows), psi=psi)


def test_degrees_of_freedom_by_the_rows():
    """n − 1 below 300 rows; Welch's for samples that have nothing in common; half as many lags, twice as many."""
    for n, freedom in ((299, 298.0), (300, np.inf), (None, np.inf)):
        assert (differences(joint([0.0, 0.1, 0.2], np.eye(3), n=n)).freedom == freedom).all()
    psi = Psi(None, (np.array([1.0, -1.0, 0.0]), np.arange(5.0) - 2.0))
    v = np.diag(psi.covariance())
    welch = differences(joint([0.0, 1.0], np.diag(v), psi=psi)).freedom[0, 1]
    assert welch == pytest.approx((v[0] + v[1]) ** 2 / (v[0] ** 2 / 2 + v[1] ** 2 / 4))
    series = JointEstimate(("a", "b"), [0.0, 1.0], np.eye(2), (400,), lags=9)
    assert differences(series).freedom[0, 1] == 60.0


def test_ratios_are_on_the_scale_of_their_pvalue(rng):
    """Skewness first, then Student's law; a bound is as far away as the ratio says."""
    rows = rng.exponential(size=(30, 3)) ** 2
    pairs = differences(of_rows(rows))
    off = ~np.eye(3, dtype=bool)
    corrected = skewed(pairs.gap[off] / pairs.error[off], pairs.skewness[off])
    np.testing.assert_allclose(norm.sf(pairs.ratio[off]), student.sf(corrected, 29), rtol=1e-9)
    assert (pairs.skewness[off] != 0.0).all()
    x = rows[:, 0] - rows[:, 1]
    assert pairs.skewness[0, 1] == pytest.approx(((x - x.mean()) ** 3).sum() / 30**3 / pairs.error[0, 1] ** 3)
    reach = pairs.reach(1.7) / np.where(off, pairs.error, 1.0)
    np.testing.assert_allclose(student.sf(skewed(reach[off], pairs.skewness[off]), 29), norm.sf(1.7), rtol=1e-6)


def test_a_standard_error_that_follows_the_estimate(rng):
    """T ≈ z − γz²/3 to both sides: z = ±1 at γ = −.3 is T = 1.1 and −.9; a bound is as far away as the ratio says."""
    near = np.array([1.0, -1.0])
    np.testing.assert_allclose(unfollowed(near, np.array([-0.3, -0.3])), [1.107, -0.906], atol=1e-3)
    follows = np.array([[2e-4, 1e-5, 0.0], [3e-5, 1e-4, 0.0], [0.0, 0.0, 3e-4]])
    estimate = replace(joint([0.0, 0.1, 0.3], 0.01 * np.eye(3), n=80), follows=follows)
    pairs = differences(estimate)
    assert (pairs.follows != 0.0).any()
    off = ~np.eye(3, dtype=bool)
    bound = replace(pairs, gap=pairs.reach(1.7)).ratio
    np.testing.assert_allclose(bound[off], 1.7, rtol=1e-6)


def test_fewer_draws_where_the_answer_is_plain():
    """A statistic that 1000 draws have reached needs no more; one that few reach gets all."""
    estimate = joint([0.0, 0.3, 2.2, 5.0], 0.5 * np.eye(4))
    found = distribution(estimate, 0.0, np.random.default_rng(0), 20_000)
    _, tails = alone([found], range(4))
    assert [tail.made for tail in tails] == [2000, 2000, 20_000, 20_000]
    share = np.array(
        [(found.tops([family.parts[0]], 0) >= family.statistic).mean() for family in alone([found], [1])[0]]
    )
    assert np.exp(tails[1].log_p) == pytest.approx(share[0], abs=1e-3)


def test_few_rows_that_differ_are_no_evidence():
    """100 items, two models that differ on two of them: Student's law, as the skewness speaks for the difference."""
    losses = np.zeros((100, 2))
    losses[:20], losses[20:22, 1] = 1.0, 1.0
    found = best_set(of_rows(losses), ALPHA, rng=np.random.default_rng(0))
    z = 0.02 / np.sqrt((0.02 - 0.02**2) / 99)
    assert np.exp(found.log_pvalue[1]) == pytest.approx(student.sf(z, 99), rel=1e-9)
    assert not found.worse.any()


def test_two_models_by_students_law():
    """V = I/2, s = 1, n = 12 rows: p = P(t_11 > 1.5), and the interval of the difference reaches t_11's quantile."""
    estimate = joint([0.0, 1.5], 0.5 * np.eye(2), n=12)
    found = best_set(estimate, ALPHA, rng=np.random.default_rng(0))
    assert np.exp(found.log_pvalue[1]) == pytest.approx(student.sf(1.5, 11), rel=1e-9)
    interval = pair_intervals(estimate, rng=np.random.default_rng(0), draws=100_000)[1, 0]
    np.testing.assert_allclose(interval, 1.5 + student.ppf([0.025, 0.975], 11), atol=0.05)
