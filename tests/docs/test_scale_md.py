"""The tables of both pages about scale are those that benchmarks/scale.py makes of what was measured."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
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
