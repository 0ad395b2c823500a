"""The percentile-t bootstrap of the ψ rows: against its definition, its limits, and its level where it matters."""

import warnings

import numpy as np
import pytest
from scipy.stats import t as student

from relfit.stats import maxt
from relfit.stats.decision import difference_errors, differences
from relfit.stats.joint import JointEstimate, Psi
from relfit.stats.maxt import BOOTSTRAP, GAUSSIAN, STUDENT, law, maximum_log_pvalues, null_laws
from relfit.stats.pairs import pair_intervals
from relfit.stats.tests.best_set import best_set

ALPHA = 0.05


def joint(values, covariance, n=None, psi=None):
    names = tuple(f"m{k}" for k in range(len(values)))
    return JointEstimate(names, values, covariance, None if n is None else (n,), psi)


def pvalues(estimate, method, seed=0, draws=20_000):
    """The p-values under one law alone, without moment selection; `seed` may be a Generator."""
    pairs = differences(estimate)
    alone = law(estimate, pairs.error, np.random.default_rng(seed), draws, method)
    offsets = np.where(pairs.varies, 0.0, -np.inf)
    assert alone.method == method
    return np.exp(maximum_log_pvalues([alone], [offsets], pairs.ratio.max(axis=1)))


def skewed_psi(n, l, seed, models=0, shared=False):
    """Centred exponential rows: skewed enough for the percentile-t to matter."""
    rng = np.random.default_rng(seed)
    rows = rng.exponential(size=(n, l))
    own = tuple(x - x.mean() for x in rng.exponential(size=(l, models))) if models else ()
    return Psi(rows - rows.mean(axis=0), own, shared)


def naive_bootstrap_pvalues(values, psi, draws, seed):
    """One resample at a time, every pair, no moment selection: the definition."""
    rng = np.random.default_rng(seed)
    l = len(values)
    parts = [(psi.reference, None)] if psi.reference is not None else []
    if psi.models and psi.shared:
        parts.append((np.stack(psi.models, axis=1), None))
    elif psi.models:
        parts += [(np.outer(x, np.eye(l)[i]), i) for i, x in enumerate(psi.models)]

    def moments(resample):
        mean, covariance = np.zeros(l), np.zeros((l, l))
        for rows, _ in parts:
            drawn = rows[rng.integers(len(rows), size=len(rows))] if resample else rows
            mean += drawn.mean(axis=0)
            covariance += np.cov(drawn.T) / len(drawn)
        return mean, covariance

    def ratios(mean, covariance):
        v = np.diag(covariance)
        s = np.sqrt(v[:, None] + v - 2 * covariance + 1e300 * np.eye(l))
        return np.where(np.eye(l, dtype=bool), -np.inf, (mean[:, None] - mean) / s)

    statistic = ratios(values, moments(False)[1]).max(axis=1)
    tops = np.array([ratios(*moments(True)).max(axis=1) for _ in range(draws)])
    return (1 + (tops >= statistic).sum(axis=0)) / (1 + draws)


@pytest.mark.parametrize("case", ["reference", "independent", "shared", "no reference", "unequal"])
def test_percentile_t_bootstrap_against_the_definition(case):
    if case == "reference":
        psi = skewed_psi(25, 3, seed=2)
    elif case == "no reference":
        psi = Psi(None, skewed_psi(25, 3, seed=2, models=20).models)
    elif case == "unequal":
        whole = skewed_psi(25, 3, seed=2, models=40)
        cut = tuple(x[:k] - x[:k].mean() for x, k in zip(whole.models, (20, 30, 40), strict=True))
        psi = Psi(whole.reference, cut)
    else:
        psi = skewed_psi(25, 3, seed=2, models=20, shared=case == "shared")
    values = np.array([0.0, 0.2, 0.45])
    got = pvalues(joint(values, psi.covariance(), psi=psi), BOOTSTRAP, seed=5)
    expected = naive_bootstrap_pvalues(values, psi, 4000, seed=6)
    error = np.sqrt(expected * (1 - expected) * (1 / 4000 + 1 / 20_000))
    assert (np.abs(got - expected) < 4.5 * error + 1e-3).all()


def test_bootstrap_of_an_all_but_constant_row_set_stays_finite():
    """29 zeros and a one: a third of the resamples have no variance at all."""
    rows = np.zeros((30, 2))
    rows[0, 0] = 1.0
    psi = Psi(rows - rows.mean(axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate = joint([0.1, 0.0], psi.covariance(), psi=psi)
        decision = best_set(estimate, ALPHA, rng=np.random.default_rng(0))
        p = pvalues(estimate, BOOTSTRAP)
    assert np.isfinite(decision.log_pvalue).all()
    assert (p > 0.0).all()


def small_estimate():
    """25 rows, D = (0, .2 s, 1.9 s) with s the standard error of D_2 − D_0; every j is kept."""
    psi = skewed_psi(25, 3, seed=3, models=25)
    v = psi.covariance()
    s = np.sqrt(v[0, 0] + v[2, 2] - 2 * v[0, 2])
    estimate = joint([0.0, 0.2 * s, 1.9 * s], v, psi=psi)
    object.__setattr__(estimate, "sizes", (10**9,))
    return estimate


def test_dealing_one_table_of_counts_again_is_as_good_as_drawing_new_ones():
    """2048 resamples a table, dealt ten times: p near .05 must vary between seeds as with 20,000 independent draws.

    The worst case is few rows, where the counts say most about a resample. The ratio of the two standard deviations
    is 1 but for the noise of 40 seeds, √(1/80) = .11 each way.
    """
    p = [np.exp(best_set(small_estimate(), ALPHA, rng=np.random.default_rng(k)).log_pvalue[2]) for k in range(40)]
    assert 0.02 < np.mean(p) < 0.1
    spread = np.sqrt(np.mean(p) * (1 - np.mean(p)) / min(20_000, 1000 / np.mean(p)))
    assert 0.6 < np.std(p) / spread < 1.5


@pytest.mark.parametrize("method", [GAUSSIAN, BOOTSTRAP])
def test_fewer_draws_where_the_answer_is_plain(method):
    """A statistic that 1000 draws have reached needs no more; one that few reach gets all of them."""
    estimate = small_estimate()
    pairs = differences(estimate)
    reference = law(estimate, pairs.error, np.random.default_rng(0), 20_000, method)
    offsets = np.where(pairs.varies, 0.0, -np.inf)
    statistic = np.array([-1.0, 0.2, 4.0])
    reached, made = reference.exceedances(offsets, statistic)
    assert made[0] == made[1] == 2048
    assert made[2] == 20_000
    top = law(estimate, pairs.error, np.random.default_rng(1), 20_000, method).maxima(offsets)
    share = (top >= statistic[:, None]).mean(axis=1)
    error = np.sqrt(share * (1 - share) * (1 / made + 1 / 20_000))
    assert (np.abs(reached / made - share) < 4.5 * error).all()


def test_the_law_is_chosen_by_the_rows():
    """Student's law comes with the bootstrap, and is replaced by the normal one where no rows are known."""
    small, large = skewed_psi(299, 3, seed=0), skewed_psi(300, 3, seed=0)

    def methods(covariance, **options):
        estimate = joint([0.0, 0.1, 0.2], covariance, **options)
        laws = null_laws(estimate, difference_errors(covariance), np.random.default_rng(0), 100)
        assert law(estimate, difference_errors(covariance), np.random.default_rng(0), 100).method == laws[0].method
        return [each.method for each in laws]

    assert methods(small.covariance(), psi=small) == [BOOTSTRAP, STUDENT]
    assert methods(large.covariance(), psi=large) == [GAUSSIAN]
    assert methods(0.9 * small.covariance(), psi=small) == [STUDENT]
    assert methods(np.eye(3), n=50) == [STUDENT]
    assert methods(np.eye(3), n=300) == [GAUSSIAN]
    assert methods(np.eye(3)) == [GAUSSIAN]
    unknown = joint([0.0, 0.1, 0.2], np.eye(3))
    assert law(unknown, difference_errors(np.eye(3)), np.random.default_rng(0), 100, STUDENT).method == GAUSSIAN


def test_percentile_t_keeps_the_level_on_small_skewed_samples():
    """n = 30 rows, differences of exponentials with unlike scales: the normal test errs far too often on the
    model whose losses have the long right tail (its mean is underestimated with a small standard error).
    """
    rng = np.random.default_rng(7)
    trials, n = 1500, 30
    wrong = {GAUSSIAN: 0, BOOTSTRAP: 0, "best set": 0}
    for trial in range(trials):
        rows = np.column_stack([rng.exponential(size=n), 1.0 + 0.1 * rng.normal(size=n)])
        psi = Psi(rows - rows.mean(axis=0))
        estimate = joint(rows.mean(axis=0), psi.covariance(), psi=psi)
        for method in (GAUSSIAN, BOOTSTRAP):
            wrong[method] += pvalues(estimate, method, rng, 499)[1] <= ALPHA
        wrong["best set"] += best_set(estimate, ALPHA, rng=np.random.default_rng(trial), draws=499).worse[1]
    error = np.sqrt(ALPHA * (1 - ALPHA) / trials)
    assert wrong[GAUSSIAN] / trials > ALPHA + 5 * error
    assert wrong[BOOTSTRAP] / trials < ALPHA + 3.5 * error
    assert wrong["best set"] / trials < ALPHA + 3.5 * error


def test_few_rows_that_differ_are_no_evidence():
    """100 items, two models that differ on two of them: one-sided z of 2 against 0, and a sign test has p = 1/4.

    Resamples of such a difference move with their own standard error, and the bootstrap alone finds p = .02.
    """
    losses = np.zeros((100, 2))
    losses[:20], losses[20:22, 1] = 1.0, 1.0
    rows = losses - losses.mean(axis=0)
    psi = Psi(rows, (), shared=False)
    estimate = joint(losses.mean(axis=0), psi.covariance(), n=100, psi=psi)
    assert pvalues(estimate, BOOTSTRAP)[1] < 0.03
    both = best_set(estimate, ALPHA, rng=np.random.default_rng(0))
    z = 0.02 / np.sqrt((0.02 - 0.02**2) / 99)
    assert np.exp(both.log_pvalue[1]) == pytest.approx(student.sf(z, 99), rel=1e-9)
    assert not both.worse.any()


def test_with_few_rows_the_larger_of_two_pvalues():
    """The bootstrap comes first and has the draws that it has alone; Student's law is drawn after it."""
    psi = skewed_psi(60, 3, seed=2)
    estimate = joint([0.0, 0.15, 0.3], psi.covariance(), n=10**9, psi=psi)  # √log n = 4.55: every j is kept
    both = np.exp(best_set(estimate, ALPHA, rng=np.random.default_rng(3), draws=4000).log_pvalue)
    resampled, normal = (pvalues(estimate, method, seed=3, draws=4000) for method in (BOOTSTRAP, STUDENT))
    assert (both >= resampled).all()
    np.testing.assert_allclose(both, np.maximum(resampled, normal), atol=0.03)


def test_two_models_by_students_law():
    """V = I/2, s = 1, n = 12 rows: p = P(t_11 > 1.5), and the interval of the difference reaches t_11's quantile."""
    estimate = joint([0.0, 1.5], 0.5 * np.eye(2), n=12)
    decision = best_set(estimate, ALPHA, rng=np.random.default_rng(0))
    assert np.exp(decision.log_pvalue[1]) == pytest.approx(student.sf(1.5, 11), rel=1e-9)
    interval = pair_intervals(estimate, rng=np.random.default_rng(0), draws=100_000)[1, 0]
    np.testing.assert_allclose(interval, 1.5 + student.ppf([0.025, 0.975], 11), atol=0.05)


def test_all_intervals_hold_with_few_rows(monkeypatch):
    """Six tied models, 20 rows: normal draws cover .891 of the time, Student's law .928 (1500 trials)."""
    rng, trials, held = np.random.default_rng(4), 300, {GAUSSIAN: 0, STUDENT: 0}
    small = maxt.SMALL_SAMPLE
    for _ in range(trials):
        losses = rng.normal(size=(20, 6))
        estimate = joint(losses.mean(axis=0), np.cov(losses.T) / 20, n=20)
        for method in held:
            monkeypatch.setattr(maxt, "SMALL_SAMPLE", small if method == STUDENT else 0)
            ends = pair_intervals(estimate, rng=np.random.default_rng(0), draws=2000)
            held[method] += bool(((ends[:, :, 0] <= 0.0) & (ends[:, :, 1] >= 0.0)).all())
    assert held[STUDENT] / trials >= 0.95 - 3.0 * np.sqrt(0.05 * 0.95 / trials)
    assert held[GAUSSIAN] < held[STUDENT] - 0.03 * trials
