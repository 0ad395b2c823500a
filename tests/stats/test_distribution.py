"""The distribution of the estimates at a tie: its tails, its critical values, and decisions that agree with them."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import relfit
from relfit.stats.decision import decisive_levels
from relfit.stats.distribution import Tail, alone, log_union, step_down, union_point
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import seeded
from relfit.stats.tests.best_set import best_set, distribution

CORRECTIONS = ("none", "holm", "bonferroni", "bh", "by", "stepdown", "auto")
KINDS = ("losses", "binary", "given", "mmd", "ksd", "groups", "shared")


def losses(rng, models, n, options):
    values = rng.exponential(size=(n, models)) + rng.normal(size=models) * rng.choice([0.0, 0.1, 0.5])
    if n >= 40 and rng.random() < 0.4:
        options["groups"] = np.repeat(np.arange(n // 4), 4)
    return lambda **asked: relfit.compare_losses(values, higher_is_better=False, rng=0, **options, **asked)


def binary(rng, models, n, options):
    values = rng.random((n, models)) < np.clip(0.2 + 0.1 * rng.normal(size=models), 0.02, 0.9)
    return lambda **asked: relfit.compare_losses(values.astype(float), higher_is_better=False, rng=0, **asked)


def given(rng, models, n, options):
    root = rng.normal(size=(models, models))
    covariance = 0.01 * (root @ root.T / models + 0.1 * np.eye(models))
    names = tuple("abcdefgh"[:models])
    joint = JointEstimate(names, rng.normal(size=models) * rng.choice([0.05, 0.2, 0.6]), covariance, (n,))
    return lambda **asked: relfit.decide(joint, rng=0, **asked)


def discrepancies(rng, models, n, options, *, densities=False):
    n = 40 if n == 20 else 60
    shifts = np.abs(rng.normal(size=models)) * rng.choice([0.0, 0.3, 1.0])
    named = {f"m{k}": shift for k, shift in enumerate(shifts)}
    data = rng.normal(size=(n, 2))
    if densities:
        found = {name: relfit.Density(score=lambda x, s=s: np.array([s, 0.0]) - x, dim=2) for name, s in named.items()}
    else:
        found = {name: rng.normal(size=(n, 2)) + np.array([shift, 0.0]) for name, shift in named.items()}
    if options.pop("grouped", False):
        options["groups"] = {name: np.repeat(np.arange(n // 2), 2) for name in ("reference", *found)}
    joint = relfit.estimate(data, found, kernel=relfit.Gaussian(1.5), rng=0, progress=False, **options)
    return lambda **asked: relfit.decide(joint, rng=0, **asked)


def random_case(seed):
    """A function that decides random models, and a margin that is about as large as their differences."""
    rng = np.random.default_rng([9, seed])
    kind = KINDS[seed % len(KINDS)]
    models = int(rng.integers(2, 8))
    n = int(rng.choice([20, 40, 120, 400]))
    if kind in ("losses", "binary", "given"):
        return {"losses": losses, "binary": binary, "given": given}[kind](rng, models, n, {}), 0.05
    options = {"groups": {"grouped": True}, "shared": {"dependence": "shared"}}.get(kind, {})
    return discrepancies(rng, models, n, options, densities=kind == "ksd"), 0.02


@pytest.mark.parametrize("block", range(3))
def test_random_decisions_agree(block):
    """Adjusted p-values, verdicts, bounds, intervals, pairs and the confidence set, of 147 random decisions.

    A bound is compared with the margin as it is: nothing is moved to the verdict's side.
    """
    for seed in range(49 * block, 49 * block + 49):
        decide, size = random_case(seed)
        margin = size if seed % 5 == 0 else 0.0
        alpha = (0.05, 0.1, 0.01)[seed % 3]
        result = decide(correction=CORRECTIONS[(seed // 7) % 7], margin=margin, alpha=alpha)
        decision = result.decision
        rejected = decision.adjusted_pvalue <= alpha
        np.testing.assert_array_equal(decision.decided_bounds.max(axis=1) > margin, rejected, str(seed))
        worse = rejected.copy()
        worse[decision.best] = False
        np.testing.assert_array_equal(result.worse, worse)
        assert result.confidence_set == tuple(np.array(result.names)[~worse])
        np.testing.assert_array_equal(result.verdict_intervals()[:, 0] > margin, worse)
        np.testing.assert_array_equal((result.verdict_pairs() == "worse").any(axis=1), worse)
        again = relfit.Comparison.from_json(result.to_json())
        np.testing.assert_array_equal(again.verdict_intervals(), result.verdict_intervals())
        np.testing.assert_array_equal(again.verdict_pairs(), result.verdict_pairs())
        assert again.draws == result.draws


@pytest.mark.parametrize("kind", [*KINDS, "paired"])
@pytest.mark.parametrize("gap", [0.0, 0.5, 1.5])
def test_two_models_have_both_tails_of_one_distribution(kind, gap):
    """For all at once the p-value is the sum of the two one-sided tails at T, from the same draws."""
    rng = np.random.default_rng(5)
    n = 60
    data = rng.normal(size=(n, 2))
    if kind in ("losses", "binary", "given"):
        worse = rng.exponential(size=(n, 2)) + gap * np.array([0.0, 0.5])
        if kind == "binary":
            worse = (rng.random((n, 2)) < [0.2, 0.2 + 0.2 * gap]).astype(float)
        joint = relfit.compare_losses(worse, higher_is_better=False).estimate
        if kind == "given":
            joint = JointEstimate(("a", "b"), [0.0, gap], 0.2 * np.eye(2), (n,))
    elif kind == "ksd":
        models = {str(s): relfit.Density(score=lambda x, s=s: np.array([s, 0.0]) - x, dim=2) for s in (0.0, gap + 0.01)}
        joint = relfit.estimate(data, models, kernel=relfit.Gaussian(1.5), rng=0)
    else:
        models = {str(s): rng.normal(size=(n, 2)) + np.array([s, 0.0]) for s in (0.0, gap + 0.01)}
        options = {"dependence": kind} if kind in ("shared", "paired") else {}
        if kind == "groups":
            options["groups"] = {name: np.repeat(np.arange(n // 2), 2) for name in ("reference", *models)}
        joint = relfit.estimate(data, models, kernel=relfit.Gaussian(1.5), rng=0, **options)
    rng = seeded(0, "best-set")
    decision = best_set(joint, 0.05, rng=rng)
    high = int(np.argmax(joint.values))
    law = distribution(joint, 0.0, rng)
    (one,), _ = alone([law], [high], None, decision.draws)
    if law.trusted == 1.0:
        tails = 2.0 * norm.sf(one.statistic)
    else:
        draws = math.ceil(decision.draws / law.draws)
        up = np.concatenate([law.tops([one.parts[0]], batch)[0] for batch in range(draws)])
        tails = (np.abs(up) >= one.statistic).mean()
    assert decision.simultaneous_pvalue[high] == pytest.approx(tails, abs=1e-3)
    assert decision.simultaneous_pvalue[high] >= np.exp(decision.log_pvalue[high])


def test_a_critical_value_is_the_order_statistic_of_the_draws():
    """Of 1999 draws 1, …, 1999 p ≤ .05 means that at most 99 reach T: T is above the 100th largest, 1900."""
    top = np.random.default_rng(0).permutation(np.arange(1.0, 2000.0))
    for statistic, rejected in ((1900.0, False), (1900.5, True)):
        tail = Tail(statistic, ((1000, 1e-3),), 1e-9, top)
        assert (math.exp(tail.log_p) <= 0.05) == rejected
        assert (statistic > tail.critical(0.05)) == rejected


def test_the_union_of_tails_and_its_inverse():
    for tally in (((3, math.inf),), ((2, math.inf), (4, 7.0)), ((1, 3.0), (1, 40.0))):
        for level in (0.2, 0.05, 1e-6):
            assert math.exp(log_union(tally, union_point(tally, level))) == pytest.approx(level, rel=1e-6)


def test_levels_of_corrections_by_hand():
    """Of four p-values Holm rejects .01 ≤ .05/4 and stops at .02 > .05/3; BH rejects three, as .03 ≤ 3 · .05/4."""
    p = np.array([0.01, 0.9, 0.03, 0.02])
    np.testing.assert_allclose(decisive_levels(p, "holm", 0.05), np.array([1 / 4, 1 / 3, 1 / 3, 1 / 3]) * 0.05)
    np.testing.assert_allclose(decisive_levels(p, "bh", 0.05), 3 * 0.05 / 4)
    np.testing.assert_allclose(decisive_levels(p, "bonferroni", 0.05), 0.05 / 4)
    np.testing.assert_allclose(decisive_levels(p, "none", 0.05), 0.05)


def test_step_down_stops_for_all_that_are_left():
    """Of models at 0, 0.1 and 5 with s = 1 the last one leaves, and the others have one critical value."""
    joint = JointEstimate(("a", "b", "c"), [0.0, 0.1, 5.0], 0.5 * np.eye(3))
    law = distribution(joint, 0.0, seeded(0, "t"))
    steps = step_down([law], np.ones(3, dtype=bool), 0.05)
    assert steps.log_p[2] < math.log(1e-4)
    assert steps.tails[0] is steps.tails[1]
    assert steps.tails[0].critical(0.05) == pytest.approx(norm.isf(0.025), rel=1e-6)


def test_the_number_of_draws_is_recorded():
    rng = np.random.default_rng(0)
    result = relfit.compare_losses(rng.normal(size=(100, 4)), higher_is_better=False, rng=0)
    assert result.draws >= 2000
    assert relfit.Comparison.from_json(result.to_json()).draws == result.draws
