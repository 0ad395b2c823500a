"""--columns, --rows, --verbose and --quiet of `relfit compare` and `relfit pair`."""

import json

import numpy as np
import pytest
from commands import refused_line

import relfit
from relfit.cli import inputs as cli_inputs
from relfit.cli import main
from relfit.cli.inputs import Inputs, expected_seconds
from relfit.util.random import stream

NAMES = ("human", "gpt", "claude")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Files of 150 rows, as the working folder: .npy, and .csv with a column of text."""
    rng = np.random.default_rng(3)
    arrays = {name: rng.normal(shift, 1, (150, 3)) for name, shift in zip(NAMES, (0.0, 1.0, 0.0), strict=True)}
    for name, rows in arrays.items():
        np.save(tmp_path / f"{name}.npy", rows)
        lines = [f"row {k},{','.join(map(repr, row))}" for k, row in enumerate(rows.tolist())]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,x,y,z", *lines]))
    np.save(tmp_path / "short.npy", rng.normal(size=(90, 3)))
    monkeypatch.chdir(tmp_path)
    return arrays


def _json(capsys, *args):
    assert main([*args, "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    # The record of the command differs where the commands do, and Python has none.
    return {key: None if key == "command" else value for key, value in json.loads(out).items()}


def _compare(kind="npy"):
    return ["compare", *(f"{name}.{kind}" for name in NAMES)]


# --- columns


def test_columns_apply_to_every_file(data, capsys):
    printed = _json(capsys, *_compare("csv"), "--columns", "z,x", "--scale", "none")
    assert printed == _json(capsys, *_compare("csv"), "--columns", "3,x", "--scale", "none")
    assert [column["name"] for column in printed["encoding"]["columns"]] == ["z", "x"]
    chosen = {name: rows[:, [2, 0]] for name, rows in data.items()}
    expected = relfit.compare(chosen.pop("human"), chosen, rng=0).to_dict()
    assert {**printed, "encoding": None} == {**expected, "reference": "human.csv"}
    assert _json(capsys, *_compare("npy"), "--columns", "2,0") == {**expected, "reference": "human.npy"}


# --- rows


@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
def test_rows_that_belong_together_are_drawn_together(tmp_path, monkeypatch, dependence):
    """Every row holds its own number, so that the rows a command takes can be seen."""
    settings = {"columns": None, "rows": 30, "verbose": None, "seed": 2, "dependence": dependence, "progress": None}
    numbers = np.arange(100.0)
    for name in NAMES:
        np.save(tmp_path / f"{name}.npy", numbers)
    monkeypatch.chdir(tmp_path)
    files = {name: f"{name}.npy" for name in NAMES[1:]}
    taken = cli_inputs.read_inputs("human.npy", files, {**settings, "estimator": "complete"})
    gpt, claude = taken.models.values()
    assert len(np.unique(gpt)) == 30
    np.testing.assert_array_equal(gpt, claude)
    np.testing.assert_array_equal(gpt, np.sort(gpt))
    assert np.array_equal(gpt, taken.reference) == (dependence == "paired")


def test_files_of_unequal_length_have_no_rows_that_belong_together(data, capsys):
    """100 rows of 150 and of 90 would both be cut to size and then pass for rows of one prompt."""
    files = ["compare", "human.npy", "gpt.npy", "short.npy", "--rows", "50"]
    said = "--rows: --dependence shared expects files of equal length, got [90, 150] rows"
    assert said in refused_line(capsys, *files, "--dependence", "shared")
    assert "got [90, 150] rows" in refused_line(capsys, *files, "--dependence", "paired")
    assert main([*files, "--dependence", "independent"]) == 0
    files = ["compare", "short.npy", "gpt.npy", "claude.npy", "--rows", "50"]
    assert main([*files, "--dependence", "shared"]) == 0
    capsys.readouterr()
    assert "got [90, 150] rows" in refused_line(capsys, *files, "--dependence", "paired")


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("csv", ["--columns", "w"], "human.csv: expected a column called 'w', got 'id', 'x', 'y' and 'z'"),
        ("csv", ["--columns", "x,x"], "human.csv: expected each column once"),
        ("csv", ["--columns", "id"], "human.csv: no column is left to compare; left out: 'id' (free text or an id"),
        ("csv", ["--columns", "9"], "human.csv: expected columns from 0 to 3, got 9"),
        ("csv", ["--columns", ""], "columns: expected names, numbers or ranges"),
        ("npy", ["--rows", "0"], "--rows"),
        ("npy", ["--rows", "many"], "--rows"),
        ("npy", ["--rows", "10"], "expected at least 20 rows"),
        (
            "npy",
            ["--rows", "50", "--dependence", "chain"],
            "--rows: a random choice of rows breaks the order of a chain",
        ),
    ],
)
def test_refusals(data, capsys, kind, options, said):
    assert said in refused_line(capsys, *_compare(kind), *options)


def test_only_the_rows_drawn_are_read_from_a_mapped_file(data):
    """What is not drawn may even be bad: a file too large to look through is not looked through."""
    rows = np.sort(stream(0, "rows", "models").choice(150, 60, replace=False))
    spoilt = data["gpt"].copy()
    spoilt[np.setdiff1d(np.arange(150), rows)] = np.nan
    np.save("gpt.npy", spoilt)
    assert main([*_compare(), "--rows", "60"]) == 0
    assert main(_compare()) == 2


# --- sizes told


def _sizes(capsys, *options):
    assert main([*_compare(), *options]) == 0
    return capsys.readouterr().err


def test_landmarks_are_suggested_where_all_pairs_take_long(data, capsys, monkeypatch):
    monkeypatch.setattr(cli_inputs, "SUGGESTED", 0.0)
    line = "the complete estimate takes about a second; --estimator auto uses landmarks, in about a second, where"
    assert _sizes(capsys) == f"relfit: {line} they add at most 20% to the variance\n"
    for options in (["--quiet"], ["--estimator", "landmarks"], ["--estimator", "auto"], ["--discrepancy", "ume"]):
        assert _sizes(capsys, *options) == ""


def test_the_estimate_counts_pairs(monkeypatch):
    """One core, d = 2: 1.7 ns for each of n²/2 + Σ(m²/2 + nm) pairs; with n = m = 10⁴ and two models 3.5·10⁸.

    The linear estimate evaluates n/2 pairs for each model, in about twice as many values of 8.3 ns each.
    """
    monkeypatch.setattr("relfit.estimators.base.usable_cores", lambda: 1)
    x = np.broadcast_to(0.0, (10_000, 2))
    inputs = Inputs(x, {"a": x, "b": x}, ())
    assert expected_seconds(inputs, "complete") == pytest.approx(1.7e-9 * 3.5e8, rel=1e-3)
    assert expected_seconds(inputs, "linear") == pytest.approx(8.3e-9 * 2e4)
    monkeypatch.setattr("relfit.estimators.base.usable_cores", lambda: 4)
    assert expected_seconds(inputs, "complete") == pytest.approx(1.7e-9 / 4 * 3.5e8, rel=1e-3)
    assert expected_seconds(Inputs(len, {"a": len}, ()), "complete") == 0.0
