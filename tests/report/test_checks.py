"""How far to trust it, and how many rows it takes: true for the result at hand, and said by the terminal, too."""

from __future__ import annotations

import numpy as np
import pytest

import relfit
from relfit.checks.data import separated_clusters
from relfit.checks.robustness import SHARED_COLUMNS, scaled
from relfit.kernels.composite import Decay, Tilted
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


def test_rows_advice_is_the_plans_and_every_check_has_a_comparison():
    """Two models have closed forms: the number in the sentence is `plan`'s, to two digits."""
    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.2], 0.01 * np.eye(2), sizes=(200,))
    result = relfit.decide(joint, test="relpsi")
    (sentence,) = rows_advice(result)
    needed = relfit.plan(joint, tests=["relpsi"]).needed("b", "relpsi")
    assert sentence.startswith(f"To tell b from a you would need about n = {about(needed)} rows; ")
    # A new check of the report needs a note and a comparison here.
    assert {case[1] for case in CASES} - {None} == set(NOTES)


def test_two_clusters_by_hand_and_a_tail_that_is_none():
    """Eleven points a unit apart, a gap of ten, nine more: 45% and 55%, the gap is 10 steps of 1."""
    x = np.concatenate([np.arange(11.0), np.arange(20.0, 29.0)])[:, None]
    fraction, steps = separated_clusters(x)
    assert fraction == pytest.approx(0.45)
    assert steps == 10.0
    # In one column 39% of exponential draws, and 8% of normal ones, were said to fall into clusters.
    for draw in ("normal", "exponential", "uniform"):
        found = [separated_clusters(getattr(np.random.default_rng(k), draw)(size=(300, 1))) for k in range(100)]
        assert sum(each is not None for each in found) <= 3


@pytest.mark.parametrize("test", ["best-set", "relmulti"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dependence": "paired"},
        {"dependence": "shared", "estimator": relfit.Complete(variance="projection")},
        {"kernel": "tilted"},
    ],
    ids=["independent", "paired", "shared", "tilted"],
)
def test_many_columns_share_their_distances(test, options):
    """From 128 columns on distances are computed once: the numbers are those of separate comparisons, to rounding."""
    rng = np.random.default_rng(1)
    d = SHARED_COLUMNS + 2
    data = rng.normal(3.0, 1.0, (90, d))
    models = {k: rng.normal(3.0 + m, 1.0, (90, d)) for k, m in (("a", 0.0), ("b", 0.03), ("c", 0.1))}
    if options.get("kernel") == "tilted":
        options = {"kernel": Tilted(relfit.Gaussian(12.0), Decay(exponent=1.0, scale=30.0, centre=3.0))}
    # At such a level no p-value is near it: near it the separate comparisons draw on.
    options = {**options, "alpha": 0.001}
    result = relfit.compare(data, models, test=test, rng=3, **options)
    recalled = recall(result, (data, models))
    found = bandwidth_sensitivity(result, recalled, (0.5, 1.0, 3.0))
    for factor, (joint, decision) in zip(found.factors, found.results, strict=True):
        settings = {**options, "kernel": scaled(result.kernel, factor)}
        separate = relfit.compare(data, models, test=test, rng=3, **settings)
        np.testing.assert_allclose(joint.values, separate.discrepancy, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(joint.standard_error, separate.standard_error, rtol=1e-9)
        np.testing.assert_allclose(np.exp(decision.log_pvalue), separate.pvalue, rtol=1e-6)
        assert joint.names[decision.best] == separate.best


# What the note of each check says. A check that can be "mind" must be here, with a comparison below.
NOTES = {
    "Another bandwidth": "may hold for this kernel only",
    "Structure finer than the bandwidth": "does not resolve such tight clusters",
    "Models very close to the data": "so well that real differences may be missed",
    "Rows shared with the reference": "also occur in the reference",
    "Separate clusters in the data": "the data fall into clusters",
    "Score check": ("times the gradient of log_prob", "the gradient of no log density"),
    "Random choice": "another seed would select another model",
}


def normal(m=0.0, factor=1.0):
    return relfit.Density(score=lambda x: factor * (m - x), log_prob=lambda x: -0.5 * ((x - m) ** 2).sum(axis=1))


def turning(x):
    return np.stack([-x[:, 0] + x[:, 1], -x[:, 1] - x[:, 0]], axis=1)


def comparisons():
    """Name, title of the check that must be "mind", data, models, options."""
    rng = np.random.default_rng(3)
    centres = 6.0 * np.array([(i, j) for i in range(3) for j in range(3)])

    def blobs(width, apart=1.0):
        return apart * centres[rng.integers(9, size=300)] + width * rng.normal(size=(300, 2))

    data = rng.normal(size=(300, 2))
    samples = {"a": rng.normal(size=(300, 2)), "b": rng.normal(0.1, 1.0, (300, 2))}
    few, near, far = np.random.default_rng(0).normal(size=(3, 100, 2))
    close = {"a": near, "b": far + 1.0}
    copied = {**samples, "b": np.concatenate([data[:20], samples["b"][20:]])}
    two = np.concatenate([rng.normal(-9.0, 1.0, (60, 2)), rng.normal(9.0, 1.0, (140, 2))])
    densities = {"a": normal(), "b": normal(0.5)}
    return [
        ("bandwidth", "Another bandwidth", blobs(0.3), {"a": blobs(0.3), "b": blobs(1.2)}, {"kernel": 2.5}),
        ("fine", "Structure finer than the bandwidth", blobs(0.05), {"a": blobs(0.05), "b": blobs(1.0)}, {}),
        ("close", "Models very close to the data", few, close, {"test": "relpsi"}),
        ("shared", "Rows shared with the reference", data, copied, {}),
        ("clusters", "Separate clusters in the data", two, densities, {}),
        ("wrong score", "Score check", data, {"a": normal(), "b": normal(0.5, 2.0)}, {}),
        ("no gradient", "Score check", data, {"a": normal(), "b": relfit.Density(score=turning)}, {}),
        ("carving", "Random choice", data, samples, {"test": "carve"}),
        ("nothing", None, data, {"a": samples["a"], "far": samples["b"] + 2.0}, {}),
        ("nothing, densities", None, data, {"a": normal(), "b": normal(2.0)}, {}),
        ("nothing, target", None, normal(), {"a": data, "far": data + 2.0}, {}),
        ("nothing, carving", None, data, {"a": samples["a"], "far": samples["b"] + 2.0}, {"test": "carve"}),
    ]


CASES = comparisons()


@pytest.mark.parametrize(("title", "data", "models", "options"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_the_page_minds_is_in_the_warnings(title, data, models, options):
    if "kernel" in options:
        options = {"kernel": relfit.Gaussian(options["kernel"])}
    result = relfit.compare(data, models, rng=1, progress=False, **options)
    recalled = recall(result, (data, models))
    found = checks(result, recalled, bandwidth_sensitivity(result, recalled))
    bare = checks(result, None, None)
    minded = {check.title for check in (*found, *bare) if check.state == "mind"}
    assert title is None or title in minded
    for each in minded:
        expected = NOTES[each] if isinstance(NOTES[each], tuple) else (NOTES[each],)
        assert any(text in note for text in expected for note in result.warnings), each
    if title is None:
        assert minded == set()
        texts = [text for each in NOTES.values() for text in ((each,) if isinstance(each, str) else each)]
        assert not any(text in note for text in texts for note in result.warnings)
