"""The command line's --margin, --groups and --show."""

import json

import numpy as np
import pytest
from commands import refused_line

import relfit
from relfit.cli import main

SHIFTS = {"human": 0.0, "good": 0.05, "off": 0.6}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three files of 40 prompts with three rows each, once as .npy and once as .csv with a column `prompt`."""
    rng = np.random.default_rng(0)
    prompts = np.repeat(np.arange(40), 3)
    for name, shift in SHIFTS.items():
        rows = rng.normal(shift, 1, (40, 2))[prompts] + 0.3 * rng.normal(size=(120, 2))
        np.save(tmp_path / f"{name}.npy", rows)
        np.save(tmp_path / f"{name}-labelled.npy", np.column_stack([rows[:, 0], prompts, rows[:, 1]]))
        lines = [f"{x:.17g},p{p},{y:.17g}" for (x, y), p in zip(rows, prompts, strict=True)]
        (tmp_path / f"{name}.csv").write_text("x,prompt,y\n" + "\n".join(lines) + "\n")
    (tmp_path / "prompts.csv").write_text("prompt\n" + "\n".join(map(str, prompts)) + "\n")
    (tmp_path / "named.csv").write_text("prompt\n" + "\n".join(f"p{p}" for p in prompts) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *args):
    status = main(["compare", *args, "--json", "-"])
    return status, json.loads(capsys.readouterr().out)


def data(folder, kind="npy"):
    return [str(folder / f"{name}.{kind}") for name in SHIFTS]


def expected(folder, **options):
    reference, *models = (np.load(path) for path in data(folder))
    return relfit.compare(reference, dict(zip(("good", "off"), models, strict=True)), rng=0, **options)


def test_margin_and_gate(folder, capsys):
    """The gap is about 0.1: worse than the best, but not by more than 0.5, within which it is."""
    rng = np.random.default_rng(1)
    for name, shift in SHIFTS.items():
        np.save(folder / f"{name}.npy", rng.normal(shift, 1, (120, 2)))
    gate = ["--test", "best-set", "--gate", "off"]
    status, plain = run(capsys, *data(folder), *gate)
    assert (status, plain["margin"], plain["equivalent"]) == (1, 0.0, None)
    status, wide = run(capsys, *data(folder), *gate, "--margin", "0.5")
    assert (status, wide["margin"], wide["equivalent"]) == (0, 0.5, [True, True])
    assert main(["compare", *data(folder), *gate, "--margin", "0.5"]) == 0
    assert "Gate passed: off is non-inferior to the best within 0.5." in capsys.readouterr().out
    assert main(["compare", *data(folder), *gate, "--margin", "1e-4"]) == 1
    assert "off is significantly worse than good by more than 0.0001 (p-value" in capsys.readouterr().err


def test_a_gate_on_rows_that_depend_on_each_other_has_no_answer(folder, capsys):
    """D4: three rows of one prompt, one after the other, without --groups."""
    assert main(["compare", *data(folder), "--test", "best-set", "--gate", "off"]) == 2
    error = capsys.readouterr().err
    assert "successive rows of" in error
    assert "depend on each other" in error
    assert "--groups" in error


def test_groups_by_a_column_of_every_table_or_a_file_of_labels(folder, capsys):
    _, got = run(capsys, *data(folder, "csv"), "--groups", "prompt", "--scale", "none")
    prompts = np.repeat(np.arange(40), 3)
    wanted = expected(folder, groups={"reference": prompts, "good": prompts, "off": prompts})
    assert got["groups"] == [40, 40, 40]
    np.testing.assert_allclose(got["covariance"], wanted.covariance, rtol=1e-9)
    _, got = run(capsys, *data(folder), "--groups", "prompts.csv", "--dependence", "paired")
    wanted = expected(folder, groups=np.repeat(np.arange(40), 3), dependence="paired")
    np.testing.assert_allclose(got["covariance"], wanted.covariance, rtol=1e-12)


@pytest.mark.parametrize("folder_there", [True, False])
def test_what_is_called_like_the_column_does_not_hide_it(folder, capsys, folder_there):
    _, wanted = run(capsys, *data(folder, "csv"), "--groups", "prompt")
    if folder_there:
        (folder / "prompt").mkdir()
    else:
        (folder / "prompt").write_text("1\n2\n")
    assert run(capsys, *data(folder, "csv"), "--groups", "prompt") == (0, wanted)
    assert main(["compare", *data(folder), "--groups", "prompt"]) == 2
    said = "--groups: there is no such column, and prompt is no file of labels; "
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("csv", ["--groups", "nothing"], "expected a column called 'nothing'"),
        ("npy", ["--groups", "prompts.csv"], "(dependence independent), got one list for all (ndarray); name a column"),
        (
            "npy",
            ["--groups", "named.csv", "--dependence", "paired"],
            "got 121, one more than rows; is the first a header?",
        ),
        ("npy", ["--groups", "7"], "expected columns from 0 to 1"),
        ("csv", ["--groups", "prompt", "--rows", "50"], "--rows"),
        ("npy", ["--groups", "human.npy", "--dependence", "paired"], "one label per row"),
    ],
)
def test_refusals(folder, capsys, kind, options, words):
    assert words in refused_line(capsys, "compare", *data(folder, kind), *options)
