"""The tables of both pages about scale are those that benchmarks/scale.py makes of what was measured."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
EVIDENCE = (ROOT / "docs" / "evidence" / "scale.md").read_text(encoding="utf-8")
HERE = json.loads((ROOT / "benchmarks" / "results-scale.json").read_text(encoding="utf-8"))
GPU = json.loads((ROOT / "benchmarks" / "results-gpu.json").read_text(encoding="utf-8"))


@pytest.fixture
def scale(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("scale")


def _between(name, page=PAGE):
    return re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end of {name} -->", page, flags=re.DOTALL)[1]


def _rows(text):
    return [[field.strip() for field in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_the_page_has_the_tables_of_what_was_measured(scale):
    assert _between("times") == scale.time_table(HERE, GPU), "run python benchmarks/scale.py --table"
    rates = scale.powers(scale.POWER.read_text(encoding="utf-8"))
    assert _between("power") == scale.power_table(rates), "run python benchmarks/scale.py --table"


def test_sizes_reach_from_a_thousand_to_a_hundred_million_and_forecasts_are_marked(scale):
    rows = _rows(_between("times"))
    assert [row[0] for row in rows] == [f"{10**k:,}" for k in range(3, 9)]
    places = {"landmarks": 1, "complete": 5, "incomplete": 8, "random features": 9, "compress-then-test": 10}
    measured = {(c["way"], f"{c['n']:,}") for c in HERE["cells"]}
    for way, place in places.items():
        for row in rows:
            assert row[place].startswith("≈") != ((way, row[0]) in measured)
    # Nothing was run on 32 workers, and what takes them less than ten seconds is not forecast.
    assert all(row[place].startswith("≈") or not row[place] for row in rows for place in (3, 6))

    assert [row[3] for row in rows][:5] == [""] * 5
    assert [row[6] for row in rows][:3] == [""] * 3


def test_every_column_says_what_it_is(scale):
    titles = [title.strip() for title in _between("times").splitlines()[0].strip("|").split("|")]
    assert len(set(titles)) == len(titles)
    assert {"landmarks, Dask", "landmarks, H200", "complete, Dask", "complete, H200"} < set(titles)


def test_times_of_cores_are_processor_times(scale):
    assert scale.processor_times(HERE)["complete"][10**5] == pytest.approx(147.96, abs=0.01)
    assert _rows(_between("times"))[2][5] == "2.47 min"


def test_both_pages_forecast_the_same(scale):
    forecast = _between("forecast", EVIDENCE)
    assert forecast == scale.costs(HERE, GPU, 4.0, 1.25), "run python benchmarks/scale.py"
    costs = re.search(r"^\| n \| complete.*?\n\n", forecast, flags=re.DOTALL | re.MULTILINE)[0].strip()
    times = {row[0]: row for row in _rows(_between("times"))}
    for row in _rows(costs):
        n, cores, device, *_, landmarks, landmarks_device, incomplete = row
        assert [cores, landmarks, incomplete] == [times[n][k] for k in (5, 1, 8)]
        assert [device.split(",")[0], landmarks_device.split(",")[0]] == [times[n][k].split(",")[0] for k in (7, 4)]


def test_values_grow_from_the_largest_that_was_measured(scale):
    assert scale.grown({10: 1.0, 100: 10.0}, 100) == (10.0, True)
    assert scale.grown({10: 1.0, 100: 100.0}, 1000) == (pytest.approx(1e4), False)
    assert scale.grown({10: 1.0, 100: 2.0}, 1000) == (pytest.approx(20.0), False)
    assert scale.grown({10: 1.0, 100: 2.0}, 1000, lambda n: n**2) == (pytest.approx(200.0), False)


def test_times_are_written_without_powers_of_ten(scale):
    times = {0.0214: "0.021 s", 4.0: "4 s", 110.0: "110 s", 120.0: "2 min", 7_500.0: "2.08 h"}
    assert {seconds: scale.in_words(seconds) for seconds in times} == times
    assert "e+" not in _between("times")


def test_what_the_device_did_is_shown_and_larger_sizes_are_forecast(scale):
    runs = [
        {"n": 10**6, "d": 16, "l": 5, "s": 0.7, "GB": 3.21, "backend": "torch", "where": "device"},
        {"n": 10**6, "d": 16, "l": 5, "s": 0.5, "GB": 1.21, "backend": "triton", "where": "device"},
        {"n": 10**7, "d": 10, "l": 5, "s": 0.1, "GB": 1.0, "backend": "triton", "where": "device"},
    ]
    rows = _rows(scale.time_table(HERE, {**GPU, "landmarks": runs}))
    assert [row[4] for row in rows] == ["", "", "", "0.5 s, 1.2 GB", "≈ 5 s", "≈ 50 s"]
    rows = _rows(scale.time_table(HERE, {**GPU, "landmarks": []}))
    assert {row[4] for row in rows} == {""}


def test_power_is_read_from_the_page_of_the_study(scale):
    text = "\n".join(
        [
            "| rows | method | worse one found |",
            "| --- | --- | --- |",
            "| 1,000 | landmarks | 0.5 ± 0.1 |",
            "| 1,000 | Fourier | 0.9 ± 0.1 |",
            "| 1,000 | compressed, over bins | 0.2 ± 0.1 |",
        ]
    )
    expected = {(1000, "landmarks"): "0.5 ± 0.1", (1000, "compress-then-test"): "0.2 ± 0.1"}
    assert scale.powers(text) == expected
    assert scale.power_table(expected).splitlines()[2] == "| 1,000 |  | 0.5 ± 0.1 |  |  | 0.2 ± 0.1 |"
