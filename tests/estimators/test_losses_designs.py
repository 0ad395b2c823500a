"""Means that are more than plain ones: strata, groups inside them, series, and judges corrected by people."""

import math

import numpy as np
import pytest
from refusals import refused
from scipy.signal import lfilter

import relfit
from relfit.stats.joint import has_psi_covariance

# ── strata ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_macro_averages(rng):
    """D = Σ w_t mean_t and V = Σ w_t² cov_t/n_t, by their definition, and V is that of the ψ rows."""
    sizes = [5, 40, 17]
    tasks = np.repeat(["a", "b", "c"], sizes)
    losses = rng.exponential(size=(62, 4)) + np.repeat([0.0, 1.0, 5.0], sizes)[:, None]
    order = rng.permutation(62)
    for weights in (None, {"a": 1.0, "b": 3.0, "c": 4.0}):
        w = np.full(3, 1 / 3) if weights is None else np.array([1, 3, 4]) / 8
        parts = [losses[tasks == task] for task in "abc"]
        joint = relfit.from_losses(losses[order], strata=tasks[order], weights=weights)
        np.testing.assert_allclose(joint.values, sum(k * part.mean(0) for k, part in zip(w, parts, strict=True)))
        expected = sum(k**2 * np.cov(part.T) / len(part) for k, part in zip(w, parts, strict=True))
        np.testing.assert_allclose(joint.covariance, expected, rtol=1e-12)
        assert has_psi_covariance(joint)
        assert joint.design == "macro average over 3 strata"
    result = relfit.compare_losses(losses, strata=tasks, higher_is_better=False, rng=0)
    assert "macro average over 3 strata" in str(result).splitlines()[0]
    assert relfit.Comparison.from_json(result.to_json()).design == result.design
    assert "macro average over 3 strata" in result.methods_text()
    # D46: "macro average over 1 strata".
    scores = np.random.default_rng(0).normal(size=(20, 2))
    joint = relfit.from_losses(scores, higher_is_better=False, strata=np.zeros(20))
    assert joint.design is None
    assert "macro" not in str(relfit.decide(joint))


def test_degrees_of_freedom_of_a_macro_average(rng):
    """ν_ij = (Σ_t v_t)²/Σ_t v_t²/(n_t − 1), v_t = w_t² var_t(L_i − L_j)/n_t; for one stratum none are stored."""
    sizes = np.array([3, 40, 17])
    tasks = np.repeat(["a", "b", "c"], sizes)
    losses = rng.exponential(size=(60, 3))
    weights = np.array([1, 3, 4]) / 8
    joint = relfit.from_losses(losses, strata=tasks, weights={"a": 1.0, "b": 3.0, "c": 4.0})
    differences = losses[:, 0] - losses[:, 2]
    parts = weights**2 * [differences[tasks == task].var(ddof=1) for task in "abc"] / sizes
    expected = parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum()
    assert joint.freedom[0, 2] == pytest.approx(expected)
    assert relfit.from_losses(losses).freedom is None
    result = relfit.compare_losses(losses, strata=tasks, higher_is_better=False, rng=0)
    again = relfit.Comparison.from_json(result.to_json())
    np.testing.assert_array_equal(again.freedom, result.freedom)
    np.testing.assert_array_equal(again.confidence_interval(0.9), result.confidence_interval(0.9))


def test_a_few_items_that_decide_a_macro_average_keep_the_level():
    """Tasks of 3 to 60 items: with n − 1 degrees of freedom, .17 of the trials lost a best model."""
    trials = 150
    sizes = [3, 4, 5, 8, 12, 20, 30, 60]
    tasks = np.repeat(np.arange(8), sizes)
    lost = 0
    for seed in range(trials):
        rng = np.random.default_rng([32, seed])
        losses = (rng.exponential(size=(142, 6)) - 1.0) * np.where(tasks[:, None] < 2, 3.0, 1.0)
        lost += relfit.compare_losses(losses, strata=tasks, higher_is_better=False, rng=seed).worse.any()
    assert lost / trials <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / trials)


def test_groups_inside_and_across_strata(rng):
    """Σ_t w_t² G_t/(G_t − 1) Σ_g (Σ_{a∈g} (x_a − mean_t)/n_t)², written out."""
    tasks = np.repeat([0, 1], [48, 72])
    groups = np.concatenate([np.repeat(np.arange(12), 4), np.repeat(np.arange(100, 112), 6)])
    losses = rng.normal(size=(120, 3)) + rng.normal(size=(212, 3))[groups]
    joint = relfit.from_losses(losses, strata=tasks, groups=groups)
    expected = np.zeros((3, 3))
    for task in (0, 1):
        part, labels = losses[tasks == task], groups[tasks == task]
        totals = np.array([(part[labels == g] - part.mean(0)).sum(0) / len(part) for g in np.unique(labels)])
        expected += 0.25 * 12 / 11 * totals.T @ totals
    np.testing.assert_allclose(joint.covariance, expected, rtol=1e-12)
    assert joint.groups == (24,)
    alone = relfit.from_losses(losses, strata=tasks, groups=np.arange(120))
    np.testing.assert_allclose(alone.covariance, relfit.from_losses(losses, strata=tasks).covariance, rtol=1e-12)
    # A text with questions in both tasks is one unit: G/(G − 1) Σ_g U_g².
    tasks, groups = np.repeat([0, 1], 30), np.tile(np.arange(30), 2)
    losses = rng.normal(size=(60, 2)) + np.tile(rng.normal(size=(30, 2)), (2, 1))
    joint = relfit.from_losses(losses, strata=tasks, groups=groups)
    centred = np.concatenate([losses[:30] - losses[:30].mean(0), losses[30:] - losses[30:].mean(0)]) / 60
    totals = centred[:30] + centred[30:]
    np.testing.assert_allclose(joint.covariance, 30 / 29 * totals.T @ totals, rtol=1e-12)


# ── series ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def ar(rng, n, count, rho=0.5):
    return lfilter([1.0], [1.0, -rho], rng.normal(size=(n + 100, count)), axis=0)[100:]


@pytest.mark.parametrize("lags", [0, 1, 5])
def test_bartletts_weights(rng, lags):
    rows = ar(rng, 60, 3)
    psi, n = rows - rows.mean(0), 60
    gammas = [psi[: n - k].T @ psi[k:] / n for k in range(lags + 1)]
    expected = gammas[0] + sum((1 - k / (lags + 1)) * (gammas[k] + gammas[k].T) for k in range(1, lags + 1))
    joint = relfit.from_losses(rows, dependence="series", lags=lags)
    np.testing.assert_allclose(joint.covariance, expected / (n - 1 - lags), rtol=1e-10)
    assert has_psi_covariance(joint)
    if lags == 0:
        np.testing.assert_allclose(joint.covariance, relfit.from_losses(rows).covariance, rtol=1e-12)


GOLDEN = {1: 0.6860283292922746, 2: 2.2794938522781165, 4: 1.5455473347649542}


def forecasts():
    at = np.arange(80.0)
    return (np.sin(1.7 * at) + 0.3 * np.cos(0.31 * at) + 0.4) ** 2, (
        np.cos(2.3 * at) + 0.5 * np.sin(0.17 * at + 1)
    ) ** 2


def diebold_mariano(a, b, h):
    """With B_L = (n − 1 − L) V_L flat weights are h B_{h−1} − (h − 1) B_{h−2}; and the factor of HLN."""
    n = len(a)

    def bartlett(lags):
        v = relfit.from_losses({"a": a, "b": b}, dependence="series", lags=lags).covariance
        return (n - 1 - lags) * (v[0, 0] + v[1, 1] - 2 * v[0, 1])

    flat = h * bartlett(h - 1) - ((h - 1) * bartlett(h - 2) if h > 1 else 0.0)
    factor = (n + 1 - 2 * h + h * (h - 1) / n) / n
    return (a.mean() - b.mean()) / math.sqrt(flat / n) * math.sqrt(factor)


@pytest.mark.parametrize("h", GOLDEN)
def test_diebold_mariano(h):
    """What scores 2.7.0 prints (method="HLN") for these forecasts."""
    assert diebold_mariano(*forecasts(), h) == pytest.approx(GOLDEN[h], rel=1e-9)


# ── a judge and people ───────────────────────────────────────────────────────────────────────────────────────────────


def judged(rng, n=600, count=80, noise=0.3):
    people = rng.normal([0.0, 0.5], 1.0, (n, 2))
    judge = 0.8 * people + [0.7, 0.0] + noise * rng.normal(size=(n, 2))
    labels = np.full((n, 2), np.nan)
    labels[rng.permutation(n)[:count]] = 0.0
    return judge, np.where(np.isnan(labels), np.nan, people)


def test_judge_corrected_by_people_in_every_form(rng):
    judge, labels = judged(rng)
    joint = relfit.from_losses(judge, labels=labels)
    there = ~np.isnan(labels).any(axis=1)
    values, variance = np.zeros(2), np.zeros((2, 2))

    def slopes(people, of_judge):
        part = np.array([np.cov(people[:, k], of_judge[:, k])[0, 1] / judge[:, k].var(ddof=1) for k in (0, 1)])
        return np.clip(part / (1 + 80 / 520), 0, 1)

    people, of_judge = labels[there], judge[there]
    without = np.array([slopes(np.delete(people, a, axis=0), np.delete(of_judge, a, axis=0)) for a in range(80)])
    for rows in (people - without * of_judge, slopes(people, of_judge) * judge[~there]):
        values += rows.mean(0)
        variance += np.cov(rows.T) / len(rows)
    np.testing.assert_allclose(joint.values, values)
    np.testing.assert_allclose(joint.covariance, variance, rtol=1e-12)
    assert has_psi_covariance(joint)
    assert joint.design == "a judge corrected by people on 80 of 600 items"
    # The judge alone has the models the wrong way round, and people alone have larger errors.
    assert joint.values[0] < joint.values[1]
    assert relfit.from_losses(judge).values[0] > relfit.from_losses(judge).values[1]
    assert (joint.standard_error < 0.6 * relfit.from_losses(labels[there]).standard_error).all()
    judge, labels = judged(rng, n=100, count=30)
    rows = [(k, model, judge[k, j], labels[k, j]) for k in range(100) for j, model in enumerate("ab")]
    order = rng.permutation(len(rows))
    columns = {name: [rows[k][c] for k in order] for c, name in enumerate(("item", "model", "judge", "human"))}
    joint = relfit.from_losses(columns, item="item", model="model", score="judge", labels="human")
    at = [joint.names.index(name) for name in "ab"]
    np.testing.assert_allclose(joint.values[at], relfit.from_losses(judge, labels=labels).values)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lags": 3}, "lags: belongs to"),
        ({"weights": {0: 1.0}}, "weights: belongs to strata="),
        ({"strata": np.zeros(60), "weights": {1: 1.0}}, "weights: expected a mapping with a weight for each stratum"),
        ({"strata": np.zeros(60), "weights": {0.0: -1.0}}, "weight of '0'"),
        ({"strata": np.r_[1, np.zeros(59)]}, "at least 2 items"),
        ({"strata": [1, 2]}, "strata: expected 60 labels"),
        ({"dependence": "chain"}, "dependence: expected one of"),
        ({"dependence": "series", "strata": np.arange(60) // 20}, "strata: cannot be combined"),
        ({"dependence": "series", "groups": np.arange(60) // 4}, "groups: expected at least 20 groups in a series"),
        ({"dependence": "series", "strata": np.zeros(60)}, "strata: cannot be combined"),
        ({"dependence": "series", "lags": 30}, "lags: expected at most a quarter"),
        ({"dependence": "series", "lags": -1}, "lags: expected a whole number"),
        ({"dependence": "series", "lags": "two"}, "lags: expected a whole number"),
        ({"labels": np.zeros((60, 3))}, "labels: expected shape (60, 2)"),
        ({"labels": np.zeros((60, 2))}, "as many without, got 60 and 0"),
        ({"labels": np.full((60, 2), np.nan)}, "got 0 and 60"),
        ({"labels": np.zeros((60, 2)), "strata": np.zeros(60)}, "labels: cannot be combined"),
    ],
)
def test_refusals(rng, options, words):
    refused(lambda: relfit.from_losses(rng.normal(size=(60, 2)), **options), words)
