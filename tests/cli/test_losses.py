"""`relfit losses`: a table of scores in, the outputs of `relfit compare` out."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

import relfit
from relfit.cli import main

NAMES = ("old", "new", "small")


@pytest.fixture
def right(rng):
    return (rng.random((90, 3)) < [0.8, 0.85, 0.3]).astype(int)


@pytest.fixture
def folder(tmp_path, monkeypatch, right):
    """The same scores as a wide and as a long table, the long one in another order."""
    lines = [",".join(map(str, row)) for row in right]
    (tmp_path / "wide.csv").write_text("\n".join(["old,new,small", *lines]))
    long = [
        {"doc": f"d{k % 45}", "task": "arc" if k < 45 else "mmlu", "model": name, "acc": int(right[k, j])}
        for j, name in enumerate(NAMES)
        for k in range(90)
    ]
    order = np.random.default_rng(3).permutation(len(long))
    (tmp_path / "long.jsonl").write_text("\n".join(json.dumps(long[k]) for k in order))
    monkeypatch.chdir(tmp_path)
    return tmp_path


LONG = ["long.jsonl", "--item", "doc", "--model", "model", "--score", "acc", "--stratum", "task", "--higher-is-better"]


def test_the_table_is_that_of_python(folder, capsys, right):
    assert main(["losses", "wide.csv", "--higher-is-better", "--seed", "4"]) == 0
    out = capsys.readouterr().out.rstrip("\n")
    assert out == str(relfit.compare_losses(right, names=NAMES, higher_is_better=True, rng=4))
    assert "mean score (larger is better)" in out
    assert "step-down" in out


def test_every_output(folder, capsys, right):
    outputs = ["--json", "r.json", "--html", "r.html", "--junit", "r.xml", "--show", "ranks", "--show", "pairs"]
    assert main(["losses", *LONG, "--gate", "small", *outputs]) == 1
    out, err = capsys.readouterr()
    assert "gate: small is clearly worse than" in err
    assert "rank" in out
    result = relfit.Comparison.from_json((folder / "r.json").read_text())
    means = (right[:45].mean(0) + right[45:].mean(0)) / 2
    np.testing.assert_allclose([result.discrepancy[result.names.index(name)] for name in NAMES], means)
    assert result.design == "macro average over 2 strata"
    assert json.loads((folder / "r.json").read_text())["gate"]["verdict"] == "failed"
    page = (folder / "r.html").read_text()
    assert "mean score (larger is better)" in page
    assert "relfit losses long.jsonl" in page
    assert "Stratum by stratum" in page
    assert "<h3>small</h3>" in page
    assert ElementTree.parse(folder / "r.xml").getroot().attrib["failures"] == "1"
    assert main(["losses", *LONG, "--gate", "new", "--gate-against", "small"]) == 0


def test_weights(folder, capsys, right):
    options = ["--weight", "arc=3", "--weight", "mmlu=1", "--json", "-"]
    assert main(["losses", *LONG, *options]) == 0
    result = relfit.Comparison.from_json(capsys.readouterr().out)
    means = 0.75 * right[:45].mean(0) + 0.25 * right[45:].mean(0)
    np.testing.assert_allclose([result.discrepancy[result.names.index(name)] for name in NAMES], means)


def test_results_can_be_repeated(folder, capsys):
    assert main(["losses", *LONG, "--json", "r.json"]) == 0
    assert main(["rerun", "r.json"]) == 0
    assert "Agrees" in capsys.readouterr().out
    text = (folder / "long.jsonl").read_text()
    (folder / "long.jsonl").write_text(text.replace('"acc": 1', '"acc": 0', 1))
    assert main(["rerun", "r.json"]) == 2
    assert "no longer what was compared" in capsys.readouterr().err
    assert main(["report", "r.json", "--format", "latex"]) == 0
    assert "below best" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv"], "no such file"),
        (["wide.csv", "--gate", "phi"], "--gate: expected the name of a model (old, new or small), got 'phi'"),
        (["wide.csv", "--json", "wide.csv"], "it is an input too"),
        (["wide.csv", "--item", "doc"], "item: expected the name of a column"),
        (["wide.csv", "--lags", "3"], "lags: belongs to"),
        (["wide.csv", "--weight", "arc"], "--weight: expected STRATUM=NUMBER"),
        (["wide.csv", "--weight", "arc=1"], "weights: belongs to strata="),
        (["wide.csv", "--test", "relpsi", "--correction", "stepdown"], "belongs to"),
        (["wide.csv", "--test", "relmulti"], "relmulti"),
        (["long.jsonl"], "(text)"),
        (["wide.csv", "--label", "old"], "--label: expected with --model"),
    ],
)
def test_refusals(folder, capsys, arguments, words):
    assert main(["losses", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.strip().splitlines()) == 1
