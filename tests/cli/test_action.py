"""The GitHub action: its script is run as the action runs it, and what it really writes is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "gate_action.py"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]


@pytest.fixture
def act(tmp_path):
    """Run the script in a folder of samples with these inputs, as the action would."""
    rng = np.random.default_rng(1)
    for name, shift in (("reference", 0.0), ("production", 0.0), ("far", 1.0), ("two words", 0.0)):
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, (100, 2)))
    paths = {"GITHUB_STEP_SUMMARY": tmp_path / "summary.md", "GITHUB_OUTPUT": tmp_path / "output.txt"}

    def run(**inputs):
        given = {"files": "reference.npy\nfar.npy\nproduction.npy\n", "folder": "relfit-gate", **inputs}
        (compare,) = [step for step in STEPS if step.get("id") == "compare"]
        names = {value.split("inputs.")[1].split(" ")[0]: key for key, value in compare["env"].items()}
        # As on GitHub: an input that is not given is an empty variable.
        env = dict.fromkeys(names.values(), "") | {names[key]: value for key, value in given.items()}
        env = {**os.environ, **env, **{key: str(path) for key, path in paths.items()}}
        for path in paths.values():
            path.write_text("", encoding="utf-8")
        done = subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, env=env, capture_output=True, check=False)
        done.stdout, done.stderr = (stream.decode("utf-8") for stream in (done.stdout, done.stderr))
        texts = {key: path.read_text(encoding="utf-8") for key, path in paths.items()}
        outputs = [line.split("=", 1) for line in texts["GITHUB_OUTPUT"].splitlines()]
        assert [name for name, _ in outputs] == ["status", "verdict", "folder", "comment"]
        assert dict(outputs)["status"] == str(done.returncode)
        return done, texts["GITHUB_STEP_SUMMARY"], dict(outputs)

    return run


def test_a_worse_model_fails_the_step(act, tmp_path):
    done, summary, outputs = act(gate="far", **{"gate-against": "production", "alpha": "0.01"})
    assert done.returncode == 1
    assert summary.startswith("**Gate failed:** far is significantly worse than production")
    assert "| model | MMD² |" in summary
    assert "::error title=relfit gate failed::relfit: gate: far is significantly worse" in done.stdout
    assert outputs == {"status": "1", "verdict": "worse", "folder": "relfit-gate", "comment": "relfit-gate/gate.md"}
    assert {path.name for path in (tmp_path / "relfit-gate").iterdir()} == {
        *("report.html", "result.json", "gate.xml", "gate.md")
    }
    assert (tmp_path / outputs["comment"]).read_text(encoding="utf-8") == summary


def test_a_model_that_is_shown_to_be_no_worse_passes(act):
    done, summary, outputs = act(gate="production")
    assert (done.returncode, outputs["verdict"]) == (0, "non-inferior")
    assert summary.startswith("**Gate passed:**")
    assert "::error" not in done.stdout


def test_an_inconclusive_answer_fails_only_where_non_inferiority_is_required(act):
    files = "reference.npy\nproduction.npy\ntwo words.npy"
    done, summary, outputs = act(files=files, gate="two words")
    assert (done.returncode, outputs["verdict"], "::error" in done.stdout) == (0, "inconclusive", False)
    assert summary.startswith("**Gate inconclusive:** 'two words' compared with")
    done, _, outputs = act(files=files, gate="two words", **{"gate-require": "non-inferior"})
    assert (done.returncode, outputs["verdict"]) == (3, "inconclusive")
    assert "::error title=relfit gate inconclusive::relfit: gate: inconclusive (non-inferiority" in done.stdout


def test_the_action_reads_tables_and_logs(act, tmp_path):
    """Everyone who evaluates language models has these, and no samples."""
    scores = "".join(f"{k},{k % 2},{int(k % 3 > 0)}\n" for k in range(90))
    (tmp_path / "losses.csv").write_text(f"item,new,old\n{scores}", encoding="utf-8")
    options = "--item\nitem\n--lower-is-better"
    done, _, outputs = act(command="losses", files="losses.csv", gate="old", options=options)
    assert (done.returncode, outputs["verdict"]) == (1, "worse")
    logs = ROOT / "tests" / "data" / "evals" / "fixtures" / "lm_eval"
    done, summary, outputs = act(command="evals", files=str(logs), **{"alpha": "0.01"})
    assert (done.returncode, outputs["verdict"]) == (0, "none")
    assert "mean score" in summary
    done, _, outputs = act(command="doctor")
    assert (done.returncode, outputs["verdict"]) == (2, "error")
    assert "command: expected one of compare, losses, evals, got 'doctor'" in done.stdout


def test_bad_input_is_no_verdict(act):
    done, summary, outputs = act(gate="nobody")
    assert (done.returncode, outputs["verdict"], outputs["comment"]) == (2, "error", "")
    assert "::error title=relfit gate no answer (status 2)::relfit: error: --gate: expected" in done.stdout
    assert summary.startswith("**Gate without an answer:**\n\n    relfit: error: --gate: expected")


def test_the_answer_of_an_earlier_run_is_not_shown(act, tmp_path):
    """N6: the folder may be there from a cache: a run without an answer must not show the answer of another one."""
    assert act(gate="production")[2]["verdict"] == "non-inferior"
    _, summary, outputs = act(gate="production", files="reference.npy\nfar.npy\nmissing.npy\nproduction.npy")
    assert (outputs["status"], outputs["verdict"], outputs["comment"]) == ("2", "error", "")
    assert "Gate passed" not in summary
    assert not list((tmp_path / "relfit-gate").iterdir())


def test_a_name_is_no_workflow_command(act):
    """A row of the table begins with the model's name: GitHub must not read ::add-mask::m2 as its own."""
    done, _, _ = act(options="--name\n::add-mask::m2\n--name\nproduction", gate="production")
    found = done.stdout.splitlines()
    token = found[0].removeprefix("::stop-commands::")
    assert len(token) == 32
    assert any(line.startswith("::add-mask::m2") for line in found[1 : found.index(f"::{token}::")])
    assert not any(line.startswith("::") for line in found[found.index(f"::{token}::") + 1 :])


def test_a_gate_with_doubts_is_an_error_with_all_files(act, tmp_path):
    """A kernel that sees nothing: the files are there and say that there is no answer."""
    done, summary, outputs = act(gate="far", options="--bandwidth\n1e-9")
    assert (done.returncode, outputs["verdict"], outputs["comment"]) == (2, "error", "relfit-gate/gate.md")
    assert summary.startswith("**Gate without an answer:** kernel: expected one that separates")
    assert json.loads((tmp_path / "relfit-gate/result.json").read_text("utf-8"))["gate"]["verdict"] == "error"


def test_inputs_are_never_commands(act, tmp_path):
    bad = "reference.npy\ntwo words.npy\nfar.npy\n$(touch hacked).npy\n`touch hacked`.npy"
    assert act(files=bad, gate="far; touch hacked")[0].returncode == 2
    good = {"files": "reference.npy\ntwo words.npy\nfar.npy", "gate": "two words"}
    done, _, outputs = act(**good, options="--estimator\nlinear")
    assert (done.returncode, outputs["verdict"]) == (0, "non-inferior")
    assert not (tmp_path / "hacked").exists()
    # Only the environment carries inputs: a ${{ }} in a script would be pasted into it.
    assert not any("inputs." in step.get("run", "") for step in STEPS)


def test_actions_are_pinned_by_commit():
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert all(len(name.partition("@")[2]) == 40 for name in used)


@pytest.mark.parametrize("option", ["--help", "--json\nelsewhere.json"])
def test_only_a_result_of_this_run_is_an_answer(act, tmp_path, option):
    """--help ends with status 0, and an option could send the result elsewhere."""
    _, _, outputs = act(gate="far", options=option)
    assert outputs["verdict"] == ("error" if option == "--help" else "worse")
    assert outputs["status"] == ("2" if option == "--help" else "1")
    assert not (tmp_path / "elsewhere.json").exists()


def test_a_folder_that_is_no_line_or_cannot_be_made_is_no_verdict(act, tmp_path):
    """An output is a line: a folder with a newline could have added verdict=non-inferior after the true verdict."""
    done, _, outputs = act(gate="far", folder="out\nverdict=non-inferior")
    assert (done.returncode, outputs["verdict"], outputs["folder"]) == (2, "error", "")
    assert "folder: expected a name on one line" in done.stdout
    # N6: bash's own status 1 was taken for a failed gate.
    done, summary, outputs = act(gate="far", folder="far.npy")
    assert (done.returncode, outputs["verdict"], outputs["folder"]) == (2, "error", "")
    assert "Gate without an answer" in summary
    assert "failed::" not in done.stdout
