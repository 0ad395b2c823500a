"""relfit report, --gate-against, --junit and --items as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from commands import refused_line

import relfit
from relfit.cli import main

FILES = ["human.npy", "gpt.npy", "claude.npy", "llama.npy"]


@pytest.fixture
def data(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    for name, shift in {"human": 0.0, "claude": 0.0, "llama": 0.3, "gpt": 1.0}.items():
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, (120, 3)))
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{name} says <{k}>" for k in range(120)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_items_are_shown(data, capsys):
    assert (
        main(["compare", *FILES, "--html", "page.html", "--items", "reference=human.txt", "--items", "gpt=gpt.txt"])
        == 0
    )
    page = (data / "page.html").read_text(encoding="utf-8")
    assert "human says &lt;" in page
    assert "gpt says &lt;" in page


@pytest.fixture
def result(data, capsys):
    assert main(["compare", *FILES, "--json", "result.json"]) == 0
    capsys.readouterr()
    return relfit.Comparison.from_json(Path("result.json").read_text(encoding="utf-8"))


def test_report_prints_what_compare_printed_and_pages_with_and_without_data(result, capsys, data):
    assert main(["report", "result.json"]) == 0
    assert capsys.readouterr().out == f"{result}\n"
    assert main(["report", "result.json", "--html", "bare.html"]) == 0
    assert main(["report", "result.json", *FILES, "--html", "full.html", "--items", "gpt=gpt.txt"]) == 0
    assert capsys.readouterr().out == "Report: bare.html\nReport: full.html\n"
    bare, full = (Path(name).read_text(encoding="utf-8") for name in ("bare.html", "full.html"))
    assert "Where the models and the data differ" not in bare
    assert "Where the models and the data differ" in full
    assert "gpt says &lt;" in full


def test_pages_of_scores_that_are_given_again(tmp_path, monkeypatch, capsys):
    """With the options of the recorded command, so that the page is the one that `relfit losses --html` wrote."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"q{k},t{k % 2},{model},{rng.normal(gap):.3f}" for k in range(60) for model, gap in (("a", 0), ("b", 1))]
    Path("scores.csv").write_text("\n".join(["id,task,model,loss", *lines]), encoding="utf-8")
    options = ["--item", "id", "--model", "model", "--score", "loss", "--stratum", "task", "--lower-is-better"]
    assert main(["losses", "scores.csv", *options, "--json", "result.json", "--html", "first.html"]) == 0
    assert main(["report", "result.json", "scores.csv", "--html", "again.html"]) == 0
    assert main(["report", "result.json", "--html", "bare.html"]) == 0
    first, again, bare = (Path(f"{name}.html").read_text(encoding="utf-8") for name in ("first", "again", "bare"))
    assert "all strata" in first
    assert "all strata" in again
    assert "all strata" not in bare
    assert again == first.replace(" --json result.json --html first.html", "")
    capsys.readouterr()
    Path("other.csv").write_text("\n".join(["id,task,model,loss", *lines[:100]]), encoding="utf-8")
    assert "expected the scores" in refused_line(capsys, "report", "result.json", "other.csv", "--html", "a.html")
    assert "expected one table" in refused_line(capsys, "report", "result.json", "a.csv", "b.csv", "--html", "a.html")


def test_report_refusals(data, result, capsys):
    assert "none.json: no such file" in refused_line(capsys, "report", "none.json")
    Path("other.json").write_text(json.dumps({"a": 1}), encoding="utf-8")
    assert "expected a result written by relfit compare --json" in refused_line(capsys, "report", "other.json")
    assert "got something else of schema None" in refused_line(capsys, "report", "other.json")
    assert main(["pair", *FILES[:3], "--json", "pair.json"]) == 0
    capsys.readouterr()
    assert "got a relfit.PairComparison of schema 2" in refused_line(capsys, "report", "pair.json")
    assert "expected a result" in refused_line(capsys, "report", "gpt.npy")
    assert "give --html PATH too" in refused_line(capsys, "report", "result.json", *FILES)
    page = ["--html", "a.html"]
    line = refused_line(capsys, "report", "result.json", *FILES[:3], *page)
    assert "expected 3 files, one for each model, got 2" in line
    line = refused_line(capsys, "report", "result.json", FILES[0], *FILES[:0:-1], *page)
    assert "expected the data this result was made from" in line
    assert "it is an input too" in refused_line(capsys, "report", "result.json", "--html", "result.json")
    assert not Path("a.html").exists()


def test_the_verdict_is_told_before_the_page_is_made(data, capsys, monkeypatch):
    """What fails while the page is made costs neither the table nor the gate nor its file."""

    def broken(*_args, **_options):
        raise relfit.InputError("page: broken")

    monkeypatch.setattr(relfit.Comparison, "report", broken)
    assert main(["compare", *FILES, "--html", "page.html", "--gate", "gpt", "--junit", "gate.xml"]) == 2
    out, err = capsys.readouterr()
    assert "Significantly worse: llama and gpt" in out
    assert "gate: gpt is significantly worse" in err
    assert ElementTree.parse("gate.xml").getroot().find(".//failure") is not None
