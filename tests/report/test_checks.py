"""How far to trust it, how many rows it takes, what was tested: sentences that are true for the result at hand."""

from __future__ import annotations

import numpy as np
import pytest

import relfit
from relfit.checks.data import separated_clusters
from relfit.report.checks import about, bandwidth_sensitivity, checks, rows_advice
from relfit.report.recall import recall


def _checks(result, data=None):
    recalled = None if data is None else recall(result, data)
    sensitivity = None if recalled is None else bandwidth_sensitivity(result, recalled)
    return {check.title: check for check in checks(result, recalled, sensitivity)}


@pytest.fixture
def samples(rng):
    return rng.normal(size=(100, 2)), {"a": rng.normal(0.4, 1, (100, 2)), "b": rng.normal(1.5, 1, (100, 2))}


def test_a_clean_comparison(samples):
    result = relfit.compare(*samples, rng=0)
    found = _checks(result, samples)
    assert found["Rows shared with the reference"].state == "good"
    assert found["Kernel"].sentences[0] == f"Gaussian kernel, bandwidth {result.kernel.length:.3g} (median)."
    assert found["Models very close to the data"].state == "good"
    assert found["Another bandwidth"].state == "good"
    assert "Score check" not in found
    assert "Separate clusters in the data" not in found


def test_bandwidth_that_matters(rng):
    """Blobs: the fine structure is seen at small bandwidths only, so the verdict changes and the models are named."""
    centres = 6.0 * np.array([(i, j) for i in range(3) for j in range(3)])
    data, good = (centres[rng.integers(9, size=300)] + 0.3 * rng.normal(size=(300, 2)) for _ in range(2))
    smeared = centres[rng.integers(9, size=300)] + 1.2 * rng.normal(size=(300, 2))
    models = {"good": good, "smeared": smeared}
    result = relfit.compare(data, models, rng=0, kernel=relfit.Gaussian(4.0))
    found = _checks(result, (data, models))["Another bandwidth"]
    sensitivity = bandwidth_sensitivity(result, recall(result, (data, models)))
    assert sensitivity.changed()
    assert found.state == "mind"
    assert "smeared" in found.sentences[0]


def test_densities_get_a_score_check_and_the_word_about_weights(rng):
    data = np.concatenate([rng.normal(-9, 1, (60, 1)), rng.normal(9, 1, (140, 1))])

    def mixture(weight, wrong=1.0):
        def log_prob(x):
            return np.logaddexp(np.log(weight) - 0.5 * (x[:, 0] + 9) ** 2, np.log1p(-weight) - 0.5 * (x[:, 0] - 9) ** 2)

        def score(x):
            share = 1.0 / (1.0 + (1.0 - weight) / weight * np.exp(np.clip(18.0 * x[:, 0], -700, 700)))
            return wrong * (share * (-9.0 - x[:, 0]) + (1.0 - share) * (9.0 - x[:, 0]))[:, None]

        return relfit.Density(score=score, log_prob=log_prob, dim=1)

    models = {"right": mixture(0.3), "wrong": mixture(0.3, wrong=2.0)}
    found = _checks(relfit.compare(data, models, rng=0), (data, models))
    clusters = found["Separate clusters in the data"]
    assert clusters.state == "mind"
    assert clusters.sentences[0].startswith("The data fall into clusters: 30% and 70% of the rows")
    assert "nearly blind to how much weight" in clusters.sentences[1]
    assert found["Score check"].state == "mind"
    assert any("wrong: the score is 2 times the gradient" in sentence for sentence in found["Score check"].sentences)
    assert any("right: the score is the gradient" in sentence for sentence in found["Score check"].sentences)
    bare = _checks(relfit.compare(data, models, rng=0))
    assert bare["Separate clusters in the data"].state == "plain"
    assert "without the data" in bare["Score check"].sentences[0]


def test_rows_advice_is_the_plans():
    """Two models have closed forms: the number in the sentence is `plan`'s, to two digits."""
    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.2], 0.01 * np.eye(2), sizes=(200,))
    result = relfit.decide(joint, test="relpsi")
    (sentence,) = rows_advice(result)
    needed = relfit.plan(joint, tests=["relpsi"]).needed("b", "relpsi")
    assert sentence.startswith(f"To tell b from a you would need about n = {about(needed)} rows; ")


def test_two_clusters_by_hand():
    """Eleven points a unit apart, a gap of ten, nine more: 45% and 55%, the gap is 10 steps of 1."""
    x = np.concatenate([np.arange(11.0), np.arange(20.0, 29.0)])[:, None]
    fraction, steps = separated_clusters(x)
    assert fraction == pytest.approx(0.45)
    assert steps == 10.0


@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform"])
def test_a_tail_is_no_cluster(draw):
    """In one column 39% of exponential draws, and 8% of normal ones, were said to fall into clusters."""
    found = [separated_clusters(getattr(np.random.default_rng(k), draw)(size=(300, 1))) for k in range(100)]
    assert sum(each is not None for each in found) <= 3
