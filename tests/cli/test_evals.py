"""`relfit evals`: from logs to verdicts, files and exit status."""

import json
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from commands import refused_line, run

import relfit
from relfit.cli import main

LOGS = Path(__file__).parents[1] / "data" / "evals" / "fixtures" / "lm_eval"


def write_log(folder, model, scores, task="t", metric="acc", first=0):
    """A log of lm-eval with these scores, of the items from this number on."""
    path = folder / model / f"samples_{task}_2026-01-02T03-04-05.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"doc_id": k, "filter": "none", "metrics": [metric], metric: score} for k, score in enumerate(scores, first)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_one_command_from_a_folder_to_the_page(capsys, tmp_path):
    page, result = tmp_path / "report.html", tmp_path / "result.json"
    status, out, err = run(capsys, "evals", LOGS, "--html", page, "--json", result)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == (
        "best set · mean score (larger is better) · n = 50 · macro average over 2 strata · α = 0.05 · step-down"
    )
    assert [line.split()[0] for line in lines[2:5]] == ["large", "medium", "small"]
    assert lines[4].endswith("worse")
    shown = unescape(page.read_text(encoding="utf-8"))
    assert "<h3>small</h3>" in shown
    assert "Task by task" in shown
    item = relfit.read_evals(LOGS).differing("small", "large", most=1)[0]
    assert item["prompt"] in shown
    kept = relfit.Comparison.from_json(result.read_text(encoding="utf-8"))
    assert kept.command[0] == "evals"
    assert str(kept) in out
    again = tmp_path / "again.html"
    assert main(["report", str(result), str(LOGS), "--html", str(again)]) == 0
    written = unescape(again.read_text(encoding="utf-8"))
    assert "Task by task" in written
    assert item["prompt"] in written


def test_items_that_a_model_lacks_are_left_out_and_counted(capsys, tmp_path):
    rng = np.random.default_rng(1)
    write_log(tmp_path, "a", rng.integers(0, 2, 100).tolist())
    write_log(tmp_path, "b", rng.integers(0, 2, 96).tolist())
    _, out, _ = run(capsys, "evals", tmp_path)
    assert "n = 96" in out
    assert "Note: 4 of 100 items were left out, for which some model has no score\n" in out
    assert "Note: acc: higher is better, by its name\n" in out
    write_log(tmp_path, "b", [None, *rng.integers(0, 2, 93).tolist()])
    _, out, _ = run(capsys, "evals", tmp_path)
    assert "n = 93" in out
    assert "7 of 100 items were left out, for which some model has no score" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([LOGS / "small"], "RUNS: expected runs of at least two models, got one ('small')"),
        ([LOGS, "--name", "a", "--name", "b"], "--name: expected one for each of the 1 RUNS, got 2"),
        (
            [LOGS / "small", LOGS / "large", *["--name", "a"] * 2],
            "--name: expected different names, got one of them twice",
        ),
        ([LOGS, "--gate", "huge"], "--gate: expected the name of a model (large, medium or small), got 'huge'"),
        ([LOGS, "--task", "mmlu"], "--task: expected 'doubles' or 'sums', got 'mmlu'"),
        (["nowhere"], "nowhere: no such file"),
    ],
)
def test_refusals(capsys, arguments, message):
    assert run(capsys, "evals", *arguments) == (2, "", f"relfit: error: {message}\n")


def test_runs_made_differently_do_not_pass_the_gate(capsys, tmp_path):
    """D3: five shots beside none, in silence, is the commonest mistake; the settings are named, or allowed."""
    copied = Path(shutil.copytree(LOGS, tmp_path / "logs"))
    for model, shots in (("large", 5), ("medium", 0), ("small", 0)):
        (file,) = (copied / model).glob("results_*.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "n-shot": {"sums": shots, "doubles": 0}}))
    said = "the runs differ in the number of shots on sums: 5 (large), 0 (medium and small); differences between models"
    status, out, _ = run(capsys, "evals", copied)
    assert (status, f"Note: {said}" in out) == (0, True)
    status, _, err = run(capsys, "evals", copied, "--gate", "medium")
    assert (status, said in err, "or pass --allow-different shots" in err) == (2, True, True)
    assert run(capsys, "evals", copied, "--gate", "medium", "--allow-different", "shots")[0] == 0
    status, _, err = run(capsys, "evals", copied, "--gate", "medium", "--sequential")
    assert (status, said in err) == (2, True)
    status, out, _ = run(capsys, "evals", copied, "--sequential")
    assert (status, f"Note: {said}" in out) == (0, True)
    evals = relfit.read_evals(copied)
    result = relfit.compare_losses(evals, rng=0)
    assert said in result.doubts[0]
    assert result.warnings[0] == f"the score is {evals.metric}"


def test_a_table_of_scores_belongs_to_another_command(capsys, tmp_path):
    """D24: AlpacaEval's annotations were refused without a way on; a folder of them, too."""
    path = tmp_path / "annotations.json"
    path.write_text('[{"instruction": "a", "generator_2": "m", "preference": 1.5}]')
    for given in (path, tmp_path):
        status, _, err = run(capsys, "evals", given)
        assert status == 2
        options = "--item COLUMN --model COLUMN --score COLUMN"
        assert err.endswith(f"; for a table of scores use  relfit losses {path} {options}\n")


def test_models_with_other_items_of_the_same_tasks(capsys, tmp_path):
    """D26: "the same tasks" was the advice where the tasks are the same and the items are not."""
    for k in range(8):
        write_log(tmp_path, f"m{k}", [1, 0] * 20, first=100 * k)
    status, _, err = run(capsys, "evals", tmp_path)
    assert status == 2
    shown = ", ".join(f"'m{k}' has 40" for k in range(7))
    assert f"{shown} and 'm7' has 40; score all models on the same items, or leave out a model" in err


def test_both_directions_can_be_given(capsys):
    """D12: ``--higher-is-better`` was answered with "Did you mean '--lower-is-better'?", the opposite."""
    assert run(capsys, "evals", LOGS, "--higher-is-better")[0] == 0
    _, out, _ = run(capsys, "evals", LOGS, "--lower-is-better")
    assert "small has the smallest mean loss (smaller is better)" in out
    assert "is usually better when larger; smaller is taken as better, as requested" in out


def test_a_suggestion_is_not_the_opposite(capsys):
    # D12.
    for typed in ("--higher-is-beter", "--lower-is-beter", "--highr-is-better"):
        line = refused_line(capsys, "evals", LOGS, typed)
        suggested, opposite = ("higher", "lower") if "high" in typed else ("lower", "higher")
        assert f"Did you mean '--{suggested}-is-better'?" in line
        assert opposite not in line
