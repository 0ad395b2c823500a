"""Common first mistakes on the command line: what is accepted, and errors with one clear way on."""

from __future__ import annotations

import numpy as np
import pytest
from commands import refused_line, run

import relfit

NAMES = ("real", "good", "meh")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(3, 60, 2))
    for name, sample in zip(NAMES, rows, strict=True):
        np.save(tmp_path / f"{name}.npy", sample)
    return tmp_path


COMPARE = ("compare", "real.npy", "good.npy", "meh.npy")


def test_names_have_any_case(folder, capsys):
    """D22: papers write RelPSI."""
    for option, typed in (("--test", "RelPSI"), ("--test", "Best-Set"), ("--preset", "KID")):
        status, out, _ = run(capsys, *COMPARE, option, typed)
        assert (status, out) == (0, run(capsys, *COMPARE, option, typed.lower())[1])


def test_a_command_or_option_that_does_not_exist(capsys):
    """D48: the most similar command is suggested; --dependence was suggested for a confidence."""
    for typed, meant in (("comapre", "compare"), ("eval", "evals"), ("loss", "losses"), ("Compare", "compare")):
        line = refused_line(capsys, typed, "real.npy")
        assert line == f"relfit: error: No such command '{typed}'. Did you mean 'relfit {meant}'? (see relfit --help)"
    for command in ("compare", "losses", "evals", "pair"):
        for option in ("--confidence", "--level"):
            line = refused_line(capsys, command, "a", "b", "c", option, "0.95")
            assert f"No such option '{option}'. Did you mean '--alpha'?" in line


@pytest.mark.parametrize(("name", "warned"), [("out.pdf", True), ("out.html", False), ("out.HTM", False)])
def test_a_report_whose_ending_is_not_that_of_html(folder, capsys, name, warned):
    """D48: --html out.pdf wrote HTML without a word."""
    status, out, err = run(capsys, *COMPARE, "--html", name)
    assert status == 0
    assert out.endswith(f"Report: {name}\n")
    warning = "relfit: warning: --html: out.pdf will hold HTML, which its ending does not show; use out.html\n"
    assert err == (warning if warned else "")


# --- tables of scores


@pytest.fixture
def scores(folder):
    """Accuracies of three models on 40 items, as the working folder's tables in several forms."""
    right = np.random.default_rng(1).random((40, 3)) < (0.9, 0.6, 0.5)
    lines = [f"q{k},{','.join(map(str, map(int, row)))}" for k, row in enumerate(right)]
    (folder / "wide.csv").write_text("\n".join(["doc_id,gpt,llama,qwen", *lines]))
    columns = [f"{name},{','.join(map(str, map(int, column)))}" for name, column in zip("abc", right.T, strict=True)]
    questions = ",".join(f"q{k}" for k in range(40))
    (folder / "turned.csv").write_text("\n".join([f"model,{questions}", *columns]))
    np.save(folder / "turned.npy", right.T.astype(float))
    indexed = [f"{k},{line.partition(',')[2]}" for k, line in enumerate(lines)]
    (folder / "indexed.csv").write_text("\n".join([",gpt,llama,qwen", *indexed]))
    (folder / "counted.csv").write_text("\n".join([",0,1,2", *indexed]))
    return folder


LOSSES = ("--higher-is-better", "--json", "-")


def decided(capsys, *args):
    """The estimates, names and notes of `relfit losses`."""
    status, out, err = run(capsys, "losses", *args, *LOSSES)
    assert (status, err) == (0, "")
    result = relfit.Comparison.from_json(out)
    return result.estimates.tolist(), result.names, result.warnings


def test_a_table_with_a_row_for_each_model(scores, capsys):
    """D23: `give losses.T` is no answer on the command line."""
    for name in ("turned.csv", "turned.npy"):
        line = refused_line(capsys, "losses", name, "--higher-is-better")
        assert line.endswith("; if rows are models, use --transpose")
    expected = decided(capsys, "wide.csv", "--item", "doc_id")[0]
    assert decided(capsys, "turned.csv", "--transpose")[:2] == (expected, ("a", "b", "c"))
    assert decided(capsys, "turned.csv", "--transpose", "--model", "model")[0] == expected
    assert decided(capsys, "turned.npy", "--transpose")[0] == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["turned.csv", "--item", "q1"], "--item: in a transposed table every column is an item; leave it out"),
        (
            ["indexed.csv"],
            "expected one column of text, the names of the models, got 0; name the column of the models ",
        ),
        (["turned.csv", "--model", "name"], "--model: expected the name of a column"),
        (["twice.csv"], "TABLE: expected one row for each model in a transposed table, got two of 'a'"),
    ],
)
def test_a_transposed_table_that_is_none(scores, capsys, arguments, said):
    (scores / "twice.csv").write_text((scores / "turned.csv").read_text().replace("\nb,", "\na,"))
    assert said in refused_line(capsys, "losses", *arguments, "--transpose", "--higher-is-better")


def test_what_else_is_meant_is_named(scores, capsys, folder):
    """D27: `relfit features` was advised for a folder of logs."""
    (scores / "my logs").mkdir()
    line = refused_line(capsys, "losses", "my logs", "--higher-is-better")
    assert line.endswith("expected a file, got a folder; for the logs of evaluations use  relfit evals 'my logs'")
    # D36: the reason, and what to use instead.
    line = refused_line(capsys, *COMPARE, "--preset", "fid")
    assert line == (
        "relfit: error: --preset: FID is not offered, because its estimate is biased by an amount that depends on the "
        "model and on the number of images; use --preset kid, on the same features"
    )
    assert "did you mean kid?" in refused_line(capsys, *COMPARE, "--preset", "kdi")
