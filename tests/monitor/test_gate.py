"""The gate of a monitor: what an inconclusive answer says about the items that would decide."""

import math
from dataclasses import replace

import numpy as np
import pytest

import relfit
from relfit.report.gate import judge_monitor


@pytest.fixture
def result(tmp_path):
    rng = np.random.default_rng(0)
    new, old = (rng.random((2, 80)).T < [0.45, 0.30]).astype(float).T
    with relfit.Monitor(["new", "old"], path=tmp_path / "gate.sqlite", higher_is_better=False) as monitor:
        monitor.update({"new": new, "old": old}, items=range(80))
        return monitor.result()


def test_evidence_that_grows_decides_after_a_multiple_of_the_items(result):
    """log e = 1 after 80 items: 1/α = 20 takes log 20 times as many, 80 · (2.996 − 1) ≈ 160 more."""
    evidence = replace(result, log_pair_evalue=np.array([[0.0, 1.0], [-1.0, 0.0]]))
    words = judge_monitor(evidence, "new", "old").words
    assert words == (
        "new is not shown to be worse than old after 80 items; at this rate about 160 more items would decide"
    )
    nothing = replace(result, log_pair_evalue=np.zeros((2, 2)))
    assert judge_monitor(nothing, "new", "old").words == "new is not shown to be worse than old after 80 items"


def test_limits_that_shrink_decide_when_the_margin_is_outside(result):
    """Limits −.1 to .4, margin .05: half their distance .25 must shrink to .1, which takes 6.25 times as many items."""
    limits = {"lower": np.array([[0.0, -0.1], [-0.4, 0.0]]), "upper": np.array([[0.0, 0.4], [0.1, 0.0]])}
    words = judge_monitor(replace(result, **limits), "new", "old", margin=0.05).words
    assert words.endswith("after 80 items; at this rate about 420 more items would decide")
    assert math.isclose(80 * (6.25 - 1.0), 420)
