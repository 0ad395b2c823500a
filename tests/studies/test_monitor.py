"""The study of the monitor, on small numbers."""

import numpy as np
import pytest

from studies import monitor


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(monitor, "RUNS", 6)
    monkeypatch.setattr(monitor, "ITEMS", 300)
    monkeypatch.setattr(monitor, "BATCHES", 3)


@pytest.mark.parametrize("case", monitor.CASES)
def test_levels(case):
    (row,) = monitor.level_rows({"case": case}, [monitor.level_trial({"case": case}, 0)])
    assert row["level"] in ("kept", "EXCEEDED")
    assert row["runs"] == 6


@pytest.mark.parametrize("case", ["unlike laws of one mean", "dependence between models"])
def test_ties_are_ties(case, monkeypatch):
    monkeypatch.setattr(monitor, "ITEMS", 20_000)
    losses = np.concatenate(list(monitor.blocks(case, 0, 20_000))).reshape(-1, 4)
    np.testing.assert_allclose(losses.mean(axis=0), losses.mean(), atol=0.01)


def test_the_other_parts():
    (row,) = monitor.power_rows({"n": 60, "runs": 2}, [monitor.power_trial({"n": 60, "runs": 2}, 0)])
    assert row["runs"] == 2
    (row,) = monitor.needed_rows({"gap": 0.5}, [monitor.needed_trial({"gap": 0.5}, 0)])
    assert row["out in 50%"] <= row["out in 95%"]
    (row,) = monitor.batches_rows({"shift": 1.0}, [monitor.batches_trial({"shift": 1.0, "runs": 2}, 0)])
    assert row["rows, in batches"] == "more than 150"
