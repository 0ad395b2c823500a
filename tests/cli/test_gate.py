"""The gate on the command line: the page, the result file and the JUnit file say what the terminal says."""

from __future__ import annotations

import json
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest

import relfit
from relfit.cli import main


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Samples of two models beside the data, and a copy of one of them."""
    rng = np.random.default_rng(1)
    for name, shift in (("reference", 0.0), ("production", 0.0), ("far", 1.0)):
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, (100, 2)))
    np.save(tmp_path / "newcopy.npy", np.load(tmp_path / "production.npy"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("gated", "status", "words"),
    [
        ("far", 1, "far is worse than production"),
        ("newcopy", 0, "newcopy holds the same rows as production"),
    ],
)
def test_every_file_says_what_the_terminal_says(files, capsys, gated, status, words):
    command = ["compare", "reference.npy", "far.npy", "production.npy", "newcopy.npy", "--gate", gated]
    outputs = ["--html", "report.html", "--json", "result.json", "--junit", "gate.xml"]
    assert main([*command, "--gate-against", "production", *outputs]) == status
    out, err = capsys.readouterr()
    said = (err if status else out).strip().splitlines()
    line = next(line for line in said if words in line)
    sentence = line.removeprefix("relfit: gate: ").removeprefix("Gate passed: ").removesuffix(".")
    whole = f"Gate {'failed' if status else 'passed'}: {sentence}."
    assert whole in unescape((files / "report.html").read_text(encoding="utf-8"))
    text = (files / "result.json").read_text(encoding="utf-8")
    gate = json.loads(text)["gate"]
    assert (gate["model"], gate["against"], gate["verdict"]) == (gated, "production", whole.split()[1].rstrip(":"))
    assert gate["sentence"] == whole
    case = ElementTree.parse(files / "gate.xml").find(f".//testcase[@name='{gated}']/system-out")
    assert case.text.startswith(sentence)
    assert "gate" not in relfit.Comparison.from_json(text).to_dict()


def test_without_a_gate_the_result_file_has_none(files):
    assert main(["compare", "reference.npy", "far.npy", "production.npy", "--json", "result.json"]) == 0
    assert "gate" not in json.loads((files / "result.json").read_text(encoding="utf-8"))


def test_the_junit_file_has_times_and_the_dashes_of_the_table(files):
    assert main(["compare", "reference.npy", "far.npy", "production.npy", "--test=relpsi", "--junit=out.xml"]) == 0
    suite = ElementTree.parse(files / "out.xml").find("testsuite")
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert 0.0 < float(suite.get("time")) < 60.0
    assert sum(float(case.get("time")) for case in cases.values()) == pytest.approx(float(suite.get("time")), abs=0.002)
    assert cases["production"].find("system-out").text.endswith("difference to the best —; p-value —")
    assert "—" not in cases["far"].find("system-out").text
