"""Verdicts in a result file are those of its p-values at its level: every test's can be read back, others are not."""

import numpy as np
import pytest
from refusals import refused

from relfit.api import compare
from relfit.kernels.standard import IMQ, Gaussian
from relfit.results.comparison import Comparison, comparison
from relfit.stats.joint import JointEstimate, Psi
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.best_set import BestSet

TESTS = ("relpsi", "relmulti", "best-set", "carve")


@pytest.fixture(scope="module")
def data():
    """The best twice, a model level with it, a worse one twice."""
    rng = np.random.default_rng(3)
    near, level, far = (rng.normal(shift, 1, (120, 2)) for shift in (0.0, 0.1, 0.8))
    return rng.normal(size=(120, 2)), {"far": far, "near": near, "near again": near, "level": level, "far again": far}


def again(result):
    """Read back the same; at a level on the other side of a worse model's p-value refused."""
    text = result.to_json()
    assert Comparison.from_json(text).to_json() == text
    worse = result.adjusted_pvalue[result.worse]
    for alpha in worse[worse > 0.0] / 2.0:
        refused(lambda alpha=alpha: Comparison.from_dict({**result.to_dict(), "alpha": alpha}), "contradicts itself")
    for i, name in enumerate(result.names):
        flipped = result.worse.tolist()
        flipped[i] = not flipped[i]
        refused(
            lambda flipped=flipped: Comparison.from_dict({**result.to_dict(), "worse": flipped}),
            f"data: contradicts itself: {name!r} is {'worse' if flipped[i] else 'not worse'}, with an adjusted p-value",
        )
    return result


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("correction", [None, "holm", "auto"])
@pytest.mark.parametrize("margin", [0.0, 0.01])
def test_every_test(data, test, correction, margin):
    result = again(compare(*data, test=test, correction=correction, margin=margin, rng=0))
    assert result.worse.any()
    # Two levels with different verdicts: the p-values are the same, so a level is changed by comparing with them.
    other = again(compare(*data, test=test, correction=correction, margin=margin, alpha=1e-30, rng=0))
    assert other.adjusted_pvalue.tolist() == result.adjusted_pvalue.tolist()
    assert other.worse.sum() < result.worse.sum()


def test_several_kernels_that_agree_and_that_do_not(data):
    again(compare(*data, kernel=[Gaussian(0.5), Gaussian(2.0), IMQ(1.0)], rng=0))
    # b has the smaller mean and stays the best, though its p is below alpha: a is far better under one kernel.
    rows = np.random.default_rng(0).normal(size=(400, 4))
    rows -= rows.mean(axis=0)
    parts = [Psi(rows[:, :2]), Psi(rows[:, 2:])]
    values = ([0.0, 1.0], [2.0, 0.0])
    joints = [JointEstimate(("a", "b"), v, p.covariance(), (400,), p) for v, p in zip(values, parts, strict=True)]
    mean, decision = BestSet().decide_under_all(joints, ["one", "two"], Criteria(0.05))
    copies = {"b too": "b"}
    result = again(comparison(mean, decision, BestSet(), Criteria(0.05), names=("a", "b", "b too"), copies=copies))
    assert result.adjusted_pvalue[1] <= 0.05
    assert result.worse.tolist() == [True, False, False]
