"""Rates, error rates of many models, and claims, on outcomes written by hand."""

import numpy as np
import pytest
from refusals import refused

from relfit.paper import tpr
from relfit.paper.experiment import Cell, Point, curve, level_kept, markdown_table, rate
from relfit.paper.synthetic import (
    CALIBRATED,
    calibration_checks,
    calibration_table,
    false_discoveries,
    false_positives,
    true_positives,
)


def cell(setting, **verdicts):
    """A trial for each letter of a test's word: y rejected, n not."""
    count = len(next(iter(verdicts.values())))
    outcomes = [
        {"decisions": [{"test": t, "model": "P2", "worse": w[k] == "y", "pvalue": 0.5} for t, w in verdicts.items()]}
        for k in range(count)
    ]
    return Cell(setting, outcomes)


def decisions(truly_best, worse):
    return [{"truly_best": b == "b", "worse": w == "y"} for b, w in zip(truly_best, worse, strict=True)]


def test_rates_by_hand():
    """Values 0, ½, 1: mean ½, Σ(v−½)² = ½, standard error √(½/(3·2)) = √(1/12)."""
    mean, error = rate([0, 0.5, 1])
    assert mean == 0.5
    assert error == pytest.approx(np.sqrt(1 / 12))
    # 2 of 4 and 0 of 4; the standard error of the first is √(.5·.5/3).
    points = curve([cell({"n": 10}, A="yynn", B="nnnn")], "A")
    assert points == [Point(10, 0.5, pytest.approx(np.sqrt(0.25 / 3)))]
    assert curve([cell({"n": 10}, A="yynn", B="nnnn")], "B") == [Point(10, 0.0, 0.0)]
    # Three best models of which one is declared, two worse of which one: FPR 1/3, TPR 1/2, FDR 1/2.
    found = decisions("bbbww", "ynnyn")
    assert false_positives(found) == pytest.approx(1 / 3)
    assert true_positives(found) == 0.5
    assert false_discoveries(found) == 0.5
    assert false_discoveries(decisions("bw", "nn")) == 0.0


def test_markdown_table():
    rows = [{"test": "a|b", "TPR": (0.5, 0.25), "n": 10}, {"test": "c", "TPR": 1.0, "n": None}]
    assert markdown_table(rows) == (
        "| test | TPR           | n    |\n"
        "| ---- | ------------- | ---- |\n"
        "| a\\|b | 0.500 ± 0.250 | 10   |\n"
        "| c    | 1.000         | None |\n"
    )
    for rows in ([], [{"a": 1}, {"b": 2}]):
        refused(lambda rows=rows: markdown_table(rows), "rows")


def test_rates_that_break_a_claim_fail_its_check():
    assert level_kept("c", "n", [Point(1, 0.08, 0.011)]).ok
    broken = level_kept("c", "n", [Point(1, 0.08, 0.009), Point(2, 0.01, 0.001)])
    assert not broken.ok
    assert "0.080" in broken.figure
    # Ten trials in which only the split rejects, ten in which both do: −.5 is far below −2 s.e.
    words = {"RelPSI": "n" * 10 + "y" * 10, "RelMulti 25%": "y" * 20}
    words |= {"RelMulti 50%": "n" * 20, "RelMulti 75%": "n" * 20}
    found = tpr.checks("n", [cell({"n": 1000}, **words)])
    verdicts = {check.claim.split(" − ")[0]: check.ok for check in found if "≥ RelMulti" in check.claim}
    assert verdicts == {"RelPSI ≥ RelMulti 25%": False, "RelPSI ≥ RelMulti 50%": True, "RelPSI ≥ RelMulti 75%": True}
    # At n = 1000 RelPSI should reject .386 of the time; 40 rejections in 40 trials are not it.
    found = tpr.checks("n", [cell({"n": 1000}, **dict.fromkeys(tpr.TESTS, "y" * 40))])
    assert [check.ok for check in found if "should show" in check.claim] == [False] * 4


def panel(pvalues, status, mu=(0.5, -0.5)):
    outcomes = [
        {
            "decisions": [
                {"test": t, "model": "P1", "worse": p <= 0.05, "pvalue": p, "status": status} for t in CALIBRATED
            ]
        }
        for p in pvalues
    ]
    return Cell({"panel": "a", "mu1": mu[0], "mu2": mu[1], "n": 500}, outcomes)


def test_pvalues_off_the_diagonal_and_a_silent_density_fail_the_check():
    even = (np.arange(100) + 0.5) / 100
    assert all(check.ok for check in calibration_checks([panel(even, [])]))
    assert not any(check.ok for check in calibration_checks([panel(even**2, [])]))
    same = panel([1.0] * 5, ["duplicate of P1"], (2.5, 2.5))
    assert calibration_checks([same])[1].ok
    assert calibration_table([same])[1]["says"] == "indistinguishable"
    silent = panel([1.0] * 5, [], (2.5, 2.5))
    assert not calibration_checks([silent])[1].ok
