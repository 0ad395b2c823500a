"""The GitHub action: its script is run as the action runs it, and what it really writes is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "gate_action.sh"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the script needs bash")


@pytest.fixture
def act(tmp_path):
    """Run the script in a folder of samples with these inputs, as the action would."""
    rng = np.random.default_rng(1)
    for name, shift in (("reference", 0.0), ("production", 0.0), ("far", 1.0), ("two words", 0.0)):
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, (100, 2)))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "relfit"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m relfit "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    paths = {"GITHUB_STEP_SUMMARY": tmp_path / "summary.md", "GITHUB_OUTPUT": tmp_path / "output.txt"}

    def run(**inputs):
        given = {"reference": "reference.npy", "models": "far.npy\nproduction.npy\n", "folder": "relfit-gate", **inputs}
        (compare,) = [step for step in STEPS if step.get("id") == "compare"]
        names = {value.split("inputs.")[1].split(" ")[0]: key for key, value in compare["env"].items()}
        # As on GitHub: an input that is not given is an empty variable.
        env = dict.fromkeys(names.values(), "") | {names[key]: value for key, value in given.items()}
        env = {**os.environ, **env, **{key: str(path) for key, path in paths.items()}}
        env["PATH"] = f"{tmp_path / 'bin'}:{env['PATH']}"
        done = subprocess.run(["bash", SCRIPT], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        texts = {key: path.read_text(encoding="utf-8") if path.exists() else "" for key, path in paths.items()}
        outputs = dict(line.split("=", 1) for line in texts["GITHUB_OUTPUT"].splitlines())
        return done, texts["GITHUB_STEP_SUMMARY"], outputs

    return run


def test_a_worse_model_fails_the_step(act, tmp_path):
    done, summary, outputs = act(gate="far", **{"gate-against": "production", "alpha": "0.01"})
    assert done.returncode == 1
    assert summary.startswith("**Gate failed:** far is worse than production")
    assert "| model | MMD² |" in summary
    assert "::error title=relfit: the gate failed::relfit: gate: far is worse" in done.stdout
    assert outputs == {
        "status": "1",
        "verdict": "failed",
        "folder": "relfit-gate",
        "comment": "relfit-gate/gate.md",
    }
    assert {path.name for path in (tmp_path / "relfit-gate").iterdir()} >= {"report.html", "result.json", "gate.xml"}
    assert (tmp_path / outputs["comment"]).read_text(encoding="utf-8") == summary


def test_a_model_that_is_no_worse_passes(act):
    done, summary, outputs = act(gate="production")
    assert (done.returncode, outputs["verdict"]) == (0, "passed")
    assert summary.startswith("**Gate passed:**")
    assert "::error" not in done.stdout


def test_without_a_gate_nothing_fails(act):
    done, summary, outputs = act()
    assert (done.returncode, outputs["verdict"]) == (0, "none")
    assert summary.startswith("| model |")


def test_bad_input_is_no_verdict(act):
    done, summary, outputs = act(gate="nobody")
    assert (done.returncode, outputs["verdict"], summary) == (2, "none", "")
    assert "::error title=relfit: no answer (status 2)::relfit" in done.stdout


def test_inputs_are_never_commands(act, tmp_path):
    done, _, _ = act(models="two words.npy\nfar.npy\n$(touch hacked).npy\n`touch hacked`.npy", gate="far; touch hacked")
    assert done.returncode == 2
    done, _, outputs = act(models="two words.npy\nfar.npy", gate="two words", options="--estimator\nlinear")
    assert (done.returncode, outputs["verdict"]) == (0, "passed")
    assert not (tmp_path / "hacked").exists()
    # Only the environment carries inputs: a ${{ }} in a script would be pasted into it.
    assert not any("inputs." in step.get("run", "") for step in STEPS)


def test_actions_are_pinned_by_commit():
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert all(len(name.partition("@")[2]) == 40 for name in used)
