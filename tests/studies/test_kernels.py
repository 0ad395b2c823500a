"""The simulation behind docs/evidence/kernels.md: its trials run, and its rates are those of the verdicts."""

import pytest

from studies import kernels


@pytest.mark.parametrize("problem", ["fig1-meanshift", "cauchy"])
def test_a_trial_decides_with_every_kernel(problem):
    setting = {"problem": problem, "measure": "ksd", "n": 100}
    first, second = (kernels.trial(setting, 3) for _ in range(2))
    assert first == second
    runs = kernels.TAILS if problem == "cauchy" else (*kernels.SELECTIVE, *kernels.BEST_SET)
    assert {f"{test}/{kernel}" for test, kernel in runs} == set(first) - {"factor"}


def test_rates_by_hand():
    """Two trials of the Cauchy problem: P1, one of two tied models, is declared once; P3, worse, twice."""
    setting = {"problem": "cauchy", "measure": "ksd", "n": 200}
    names = [f"{test}/{kernel}" for test, kernel in kernels.TAILS]
    rows = kernels.rows(setting, [dict.fromkeys(names, declared) for declared in (["P1", "P3"], ["P3"])])
    assert [row["FPR"] for row in rows] == [(0.25, 0.25)] * 4
    assert [row["TPR"] for row in rows] == [(1.0, 0.0)] * 4
    assert [row["level"] for row in rows] == ["kept"] * 4


def test_a_trial_of_units():
    """At n = 300 the narrow sampler is found with whitening, in this trial, and is not without."""
    first, second = (kernels.unit_trial({"ties": "exact", "n": 300}, 3) for _ in range(2))
    assert first == second
    assert "mean field" in first["whiten"]
    assert "mean field" in first["known"]
    assert "mean field" not in first["none"]


def test_rates_of_units_by_hand():
    """Two trials: one of the four tied samplers is declared once, the narrow one twice."""
    results = [dict.fromkeys(kernels.Units.runs, declared) for declared in (["P1", "mean field"], ["mean field"])]
    rows = kernels.unit_rows({"ties": "exact", "n": 300}, results)
    assert [row["FPR"] for row in rows] == [(0.125, 0.125)] * 3
    assert [row["TPR"] for row in rows] == [(1.0, 0.0)] * 3
