"""What the report says to mind, the terminal says too: every such check of the page has a note in `warnings`."""

from __future__ import annotations

import numpy as np
import pytest

import relfit
from relfit.report.checks import bandwidth_sensitivity, checks
from relfit.report.recall import recall

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


def test_every_check_that_can_be_minded_has_a_comparison():
    """A new check of the report needs a note and a comparison here."""
    assert {case[1] for case in CASES} - {None} == set(NOTES)
