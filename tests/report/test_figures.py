"""Forest rows: values, intervals and bounds are the result's own, and everything drawn is on the scale."""

from __future__ import annotations

import numpy as np
import pytest

import relfit
from relfit.report.figures import (
    difference_forest,
    discrepancy_forest,
    who_beats_whom,
)


def test_discrepancies_by_hand(make):
    """α = 0.1: z = 1.6449, so 1 ± 1.6449 · 0.5 = 0.18 to 1.82; the line is the best's value."""
    drawn = discrepancy_forest(make([1.0, 5.0], errors=0.5, alpha=0.1))
    assert [(bar.name, bar.kind) for bar in drawn.bars] == [("m1", "best"), ("m2", "worse")]
    assert drawn.bars[0].low == pytest.approx(1.0 - 1.6448536 * 0.5)
    assert drawn.shown(drawn.bars[0]) == "0.18 to 1.82"
    assert (drawn.line, drawn.level) == (1.0, 0.9)


@pytest.mark.parametrize("test", ["relpsi", "best-set", "carve"])
def test_differences_are_the_tests_own(test):
    joint = relfit.JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3), sizes=(500,))
    result = relfit.decide(joint, test=test, rng=0)
    intervals = result.graded_intervals()
    for bar in difference_forest(result).bars:
        i = result.names.index(bar.name)
        assert (bar.low, bar.high) == tuple(intervals[i])
        assert (bar.low > 0.0) == (bar.kind in ("alone", "worse"))


def test_a_margin_moves_the_line():
    joint = relfit.JointEstimate(("a", "b"), [0.0, 0.5], 0.001 * np.eye(2))
    drawn = difference_forest(relfit.decide(joint, margin=0.2))
    assert drawn.line == 0.2
    assert drawn.bars[1].kind == "worse"
    assert drawn.bars[1].low > 0.2


def test_who_beats_whom_by_hand(make):
    """Values 0, 0.1, 5 with errors 0.1: only the last is told from the others, in both directions of reading."""
    values, names = [5.0, 0.0, 0.1], ("c", "a", "b")
    result = relfit.decide(relfit.JointEstimate(names, values, 0.01 * np.eye(3)), rng=0)
    no, up, down, own = "no evidence", "clearly better", "clearly worse", "itself"
    assert who_beats_whom(result) == [[own, no, up], [no, own, up], [down, down, own]]
    # RelPSI compares with the selected model only.
    assert who_beats_whom(make(values, names=names)) == [
        [own, no, up],
        [no, own, "not tested"],
        [down, "not tested", own],
    ]
