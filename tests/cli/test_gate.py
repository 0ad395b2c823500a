"""The gate on the command line: the page, the result file and the JUnit file say what the terminal says."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import relfit
from relfit.cli import main, scores

LOGS = Path(__file__).parents[1] / "data" / "evals" / "fixtures" / "lm_eval"


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
        ("far", 1, "far is significantly worse than production"),
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
    heading = "Gate failed" if status else "Gate inconclusive"
    sentence = line.removeprefix("relfit: gate: ").removeprefix("Gate inconclusive: ").removesuffix(".")
    whole = f"{heading}: {sentence}."
    assert whole in unescape((files / "report.html").read_text(encoding="utf-8"))
    text = (files / "result.json").read_text(encoding="utf-8")
    gate = json.loads(text)["gate"]
    verdict = "worse" if status else "inconclusive"
    assert (gate["model"], gate["against"], gate["verdict"]) == (gated, "production", verdict)
    assert gate["sentence"] == whole
    case = ElementTree.parse(files / "gate.xml").find(f".//testcase[@name='{gated}']/system-out")
    assert case.text.startswith(sentence)
    assert "gate" not in relfit.Comparison.from_json(text).to_dict()


@pytest.mark.parametrize(
    ("models", "options", "status", "words"),
    [
        (
            ["far.npy", "production.npy"],
            ["--gate"],
            1,
            "relfit: gate: far is significantly worse than production (p-value ",
        ),
        (["far.npy", "production.npy"], [], 0, "far is significantly worse than production."),
        (["production.npy", "far.npy"], ["--gate"], 0, "Gate passed: production is non-inferior to far."),
        (["newcopy.npy", "production.npy"], ["--gate"], 0, "Gate inconclusive: newcopy holds the same rows as"),
        (["newcopy.npy", "production.npy"], ["--gate", "--gate-require=non-inferior"], 3, "newcopy holds the same"),
        (["far.npy", "production.npy"], ["--gate-require=non-inferior"], 2, "--gate-require: expected together with"),
        (["far.npy", "production.npy"], ["--gate", "--bandwidth=1e-9"], 2, "--kernel: expected one that separates"),
    ],
)
def test_a_pair_has_the_same_gate(files, capsys, models, options, status, words):
    assert main(["pair", "reference.npy", *models, *options, "--json", "pair.json"]) == status
    assert words in "".join(capsys.readouterr())
    if "--gate" in options:
        verdicts = {0: ("inconclusive", "non-inferior"), 1: ("worse",), 2: ("error",), 3: ("inconclusive",)}
        stored = json.loads((files / "pair.json").read_text(encoding="utf-8"))
        assert stored["gate"]["verdict"] in verdicts[status]


@pytest.mark.parametrize("command", ["losses", "evals"])
def test_doubts_are_an_error_after_everything_was_written(files, capsys, monkeypatch, command):
    """Whoever reads the files of the job finds why there is no answer, and the table."""
    compared = scores.compare_losses

    def doubted(*args, **settings):
        result = compared(*args, **settings)
        return result.changed(doubts=("items depend on each other; give --group",))

    monkeypatch.setattr(scores, "compare_losses", doubted)
    (files / "s.csv").write_text("item,small,large\n" + "".join(f"{k},{k % 2},1\n" for k in range(40)))
    given = {"losses": ["s.csv", "--item=item", "--higher-is-better"], "evals": [str(LOGS)]}[command]
    paths = {"--html": "r.html", "--json": "r.json", "--junit": "r.xml", "--markdown": "r.md"}
    outputs = [f"{option}={path}" for option, path in paths.items()]
    assert main([command, *given, "--gate", "small", *outputs]) == 2
    out, err = capsys.readouterr()
    assert err == "relfit: error: --gate: items depend on each other; give --group\n"
    assert "best set" in out
    sentence = "Gate without an answer: items depend on each other; give --group."
    assert sentence in unescape((files / "r.html").read_text(encoding="utf-8"))
    gate = json.loads((files / "r.json").read_text(encoding="utf-8"))["gate"]
    assert (gate["verdict"], gate["sentence"]) == ("error", sentence)
    assert (files / "r.md").read_text(encoding="utf-8").startswith("**Gate without an answer:**")
    suite = ElementTree.parse(files / "r.xml").find("testsuite")
    assert (suite.get("name"), suite.get("errors")) == (f"relfit {command}", "1")
