"""The study of tables, on a small made-up table in place of the real one."""

import numpy as np
import pytest

from relfit.data.tables import Cells, Table
from studies import tables


@pytest.fixture(autouse=True)
def small(monkeypatch):
    rng = np.random.default_rng(0)
    numbers = {name: Cells("number", rng.normal(size=900)) for name in ("carat", "depth", "price")}
    levels = {name: Cells("text", rng.integers(0, 4, 900), tuple("abcd")) for name in ("cut", "color", "clarity")}
    made = Table("diamonds", {**numbers, **levels})
    monkeypatch.setattr(tables, "diamonds", lambda: made)


def test_every_way_of_being_wrong_changes_one_column_only():
    rng = np.random.default_rng(1)
    (sample,) = tables.parts(200, 1, rng)
    for name, how, size in tables.WRONG.values():
        wrong = tables.corrupted(sample, name, how, size, rng)
        changed = [key for key in sample.columns if wrong.columns[key] is not sample.columns[key]]
        assert changed == [name]
        assert not np.array_equal(wrong.columns[name].values, sample.columns[name].values, equal_nan=True)


def test_trials_and_rows():
    for setting in tables.ties()[:1] + tables.ties()[3:]:
        setting = {**setting, "n": 80}
        (row,) = tables.tie_rows(setting, [tables.tie_trial(setting, seed) for seed in range(2)])
        assert row["level"] in ("kept", "EXCEEDED")
    setting = {**tables.wrongs()[0], "n": 120}
    (row,) = tables.wrong_rows(setting, [tables.wrong_trial(setting, seed) for seed in range(2)])
    assert "wrong model declared worse" in row
    (row,) = tables.named_rows(setting, [tables.named_trial(setting, seed) for seed in range(2)])
    assert row["has the largest share"][0] == 1.0
