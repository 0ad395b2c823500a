"""The step-down best set: against the algorithm written out, hand-derived values, its level, and what refuses it."""

import math

import numpy as np
import pytest
from refusals import refused
from scipy.special import ndtr

import relfit
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import NormalPairs, kept_pairs, row_maxima
from relfit.stats.tests.best_set import DRAWS, best_set


def written_out(joint, draws=200_000):
    """Adjusted p by the definition: one contender leaves at a time, every step with the law of those that are left."""
    d, v, count = joint.values, joint.covariance, len(joint.names)
    s = np.sqrt(np.maximum(np.diag(v)[:, None] + np.diag(v) - 2 * v, 0.0))
    np.fill_diagonal(s, 1.0)
    ratio = (d[:, None] - d) / s
    np.fill_diagonal(ratio, -math.inf)
    kappa = math.sqrt(math.log(joint.sizes[0]))
    g = np.random.default_rng(5).multivariate_normal(np.zeros(count), v, size=draws)

    def tail(models, others, statistic):
        if set(models) == set(others) and len(models) == 2:
            i, j = models
            return float((np.abs(g[:, i] - g[:, j]) / s[i, j] >= statistic).mean())
        top = np.full(draws, -math.inf)
        for i in models:
            for j in others:
                if i != j and ratio[i, j] > -kappa:
                    top = np.maximum(top, (g[:, i] - g[:, j]) / s[i, j])
        return float((top >= statistic).mean()) if top.max() > -math.inf else 1.0

    everyone = range(count)
    single = np.array([tail([i], everyone, ratio[i].max()) for i in everyone])
    contenders = [i for i in everyone if single[i] > 2 * ndtr(-kappa)]
    adjusted = np.ones(count)
    for i in set(everyone) - set(contenders):
        adjusted[i] = tail([i, *contenders], [i, *contenders], ratio[i, contenders].max())
    left, largest = list(contenders), 0.0
    while left:
        i = max(left, key=lambda k: max((ratio[k, j] for j in left if j != k), default=0.0))
        others = [k for k in left if k != i]
        step = [i, *others]
        largest = max(largest, tail(step, step, ratio[i, others].max()) if others else 1.0)
        adjusted[i] = largest
        left.remove(i)
    return np.maximum(adjusted, single)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_algorithm_written_out(seed):
    rng = np.random.default_rng(seed)
    count, root = 6, rng.normal(size=(6, 6))
    covariance = 0.01 * (root @ root.T / 6 + 0.3 * np.eye(6))
    joint = JointEstimate(tuple("abcdef"), rng.normal(0.0, 0.25, count), covariance, (1000,))
    decision = best_set(joint, 0.05, "stepdown", rng=np.random.default_rng(1))
    expected = written_out(joint)
    error = np.sqrt(expected * (1 - expected) * (1 / DRAWS + 1 / 200_000))
    # Early stopping leaves p-values above .05 to at least 1000 draws beyond.
    loose = np.where(expected > 0.04, expected / math.sqrt(1000), error)
    assert (np.abs(decision.adjusted_pvalue - expected) <= 4.5 * loose + 1e-4).all()
    single = best_set(joint, 0.05, "none", rng=np.random.default_rng(1)).adjusted_pvalue
    assert (decision.adjusted_pvalue >= single - 0.03 * single - 1e-4).all()


def test_two_models_that_could_both_be_best():
    """max(Z, −Z) ≥ T has probability 2Φ(−T), however far apart the two are."""
    near = JointEstimate(("a", "b"), [0.0, 2.0], 0.5 * np.eye(2), (1000,))
    decision = best_set(near, 0.05, "stepdown", rng=np.random.default_rng(0))
    assert decision.adjusted_pvalue[1] == pytest.approx(2 * ndtr(-2.0), rel=0.07)
    assert decision.log_pvalue[1] == pytest.approx(math.log(ndtr(-2.0)), rel=1e-12)
    far = JointEstimate(("a", "b"), [0.0, 4.0], 0.5 * np.eye(2), (1000,))
    decision = best_set(far, 0.05, "stepdown", rng=np.random.default_rng(0))
    assert decision.adjusted_pvalue[1] == pytest.approx(2 * ndtr(-4.0), rel=1e-12)
    assert decision.adjusted_pvalue[0] == 1.0


def test_mmd_and_several_kernels_step_down(rng):
    data = rng.normal(size=(150, 2))
    models = {str(k): rng.normal(k, 1, (150, 2)) for k in (0.0, 0.1, 1.5)}
    for kernel in (None, [relfit.Gaussian(1.0), relfit.Gaussian(3.0)]):
        result = relfit.compare(data, models, correction="stepdown", kernel=kernel, rng=0)
        assert result.correction == "stepdown"
        assert result.worse.tolist() == [False, False, True]
        assert "step-down" in str(result)
        assert relfit.Comparison.from_json(result.to_json()).correction == "stepdown"
        assert "step-down procedure" in result.methods_text()


def test_what_cannot_step_down_says_so(rng):
    data = rng.normal(size=(60, 2))
    models = {str(k): rng.normal(k, 1, (60, 2)) for k in (0.0, 1.0)}
    for test in ("relpsi", "carve", "relmulti"):
        refused(lambda test=test: relfit.compare(data, models, test=test, correction="stepdown"), "belongs to", "holm")
    result = relfit.decide(relfit.estimate(data, models), correction="stepdown")
    refused(lambda: result.pairs("stepdown"), "correction: expected one of")


@pytest.mark.parametrize("many", [False, True])
def test_blocks_of_draws_change_no_bit(rng, monkeypatch, many):
    """The maxima of normal pairs in blocks, beside the loop over single pairs; for many models in single precision."""
    from relfit.stats import maxt

    monkeypatch.setattr(maxt, "MANY_MODELS", 2 if many else 10**9)
    g, error = rng.normal(size=(9, 700)), rng.uniform(0.5, 2.0, (9, 9))
    scale = 1.0 / (error + error.T)
    kept = rng.random((9, 9)) < 0.6
    np.fill_diagonal(kept, False)
    models = np.array([4, 1, 7, 2])
    got = row_maxima(NormalPairs(g, scale), kept_pairs(kept), None, models, 700)
    for row, i in zip(got, models, strict=True):
        z = np.array([(g[i] - g[j]) * scale[i, j] for j in range(9) if kept[i, j]])
        np.testing.assert_allclose(row, z.max(axis=0), rtol=3e-7 if many else 0.0, atol=1e-6 if many else 0.0)


def test_pairs_that_cannot_reach_a_statistic_do_not_count():
    """Two models differ on 4 items: no sign test of theirs is below 1/16, so a third one is tested as if alone."""
    losses = np.zeros((400, 3))
    losses[:2, 0] = losses[2:4, 1] = 1.0
    losses[10:24, 2] = 1.0
    found = relfit.compare_losses(losses, higher_is_better=False, rng=0)
    z = 12 / 400 / found.difference_standard_error[2]
    assert found.adjusted_pvalue[2] <= 2 * ndtr(-z) * 1.01
    assert found.adjusted_pvalue[2] > ndtr(-z)


# ── rare errors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_few_discordant_items_have_the_sign_tests_pvalue():
    """One model is wrong on 5 items of 400, the other on none: P(Bin(5, ½) ≥ 5) = 1/32, where z would say .012.

    The loss of a wrong answer may be any number.
    """
    losses = np.zeros((400, 2))
    losses[:5, 0] = 1.0
    result = relfit.compare_losses(losses, higher_is_better=False, correction="none", rng=0)
    assert result.pvalue[0] == pytest.approx(1 / 32, rel=1e-9)
    thrice = relfit.compare_losses(losses * 3.0, higher_is_better=False, correction="none", rng=0)
    assert thrice.pvalue[0] == pytest.approx(1 / 32, rel=1e-9)
    plain = relfit.compare_losses(losses + 0.5, higher_is_better=False, correction="none", rng=0)
    assert plain.pvalue[0] == pytest.approx(ndtr(-result.difference[0] / result.difference_standard_error[0]))


def test_ten_discordant_items_and_other_numbers_keep_the_normal_law():
    losses = np.zeros((500, 2))
    losses[:10, 0] = 1.0
    result = relfit.compare_losses(losses, higher_is_better=False, correction="none", rng=0)
    assert result.pvalue[0] == pytest.approx(ndtr(-result.difference[0] / result.difference_standard_error[0]))
