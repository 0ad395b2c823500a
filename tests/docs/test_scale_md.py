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


def test_both_pages_forecast_the_same(scale):
    forecast = _between("forecast", EVIDENCE)
    assert forecast == scale.costs(HERE, GPU, 4.0, 1.25), "run python benchmarks/scale.py"
    costs = re.search(r"^\| n \| complete.*?\n\n", forecast, flags=re.DOTALL | re.MULTILINE)[0].strip()
    times = {row[0]: row for row in _rows(_between("times"))}
    for row in _rows(costs):
        n, cores, device, *_, landmarks, landmarks_device, incomplete = row
        assert [cores, landmarks, incomplete] == [times[n][k] for k in (5, 1, 8)]
        assert [device.split(",")[0], landmarks_device.split(",")[0]] == [times[n][k].split(",")[0] for k in (7, 4)]


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
