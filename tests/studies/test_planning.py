"""The check of plans: its rows, their summary, and how pilots are counted."""

from studies import planning


def test_rows_and_their_summary(monkeypatch):
    monkeypatch.setattr(planning, "FORECAST_TRIALS", 200)
    setting = planning.cells()[-1]
    assert len(planning.cells()) == 6
    rows = planning.rows(setting, [planning.trial(setting, seed) for seed in range(3)])
    assert [row["model"] for row in rows[:3]] == ["m3"] * 3
    assert {row["test"] for row in rows} == {"relpsi", "best-set", "carve"}
    assert all(row["difference"] == row["forecast"][0] - row["realised"][0] for row in rows)
    summary = planning.summary(rows)
    assert [row["models"] for row in summary] == [3, 3, 3]
    assert summary[0]["largest difference"][0] == max(abs(r["difference"]) for r in rows if r["test"] == "relpsi")
