"""The examples of docs/report.md and docs/gate.md run, and the pipelines' commands do what the page says."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from relfit.cli import main

DOCS = Path(__file__).parents[2] / "docs"


def _blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), flags=re.S | re.M)


@pytest.mark.parametrize("page", ["report.md", "gate.md"])
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks, names = _blocks(page, "python"), {}
    assert len(blocks) == {"report.md": 1, "gate.md": 3}[page]
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert (tmp_path / "report.html").exists() == (page == "report.md")


def _commands(block):
    """The relfit commands of a pipeline: a step's folded lines are one command."""
    joined = re.sub(r"\n +(?=--|relfit)", " ", block)
    return [shlex.split(found)[1:] for found in re.findall(r"(relfit compare [^\n]+)", joined)]


PIPELINES = [command for block in _blocks("gate.md", "yaml") for command in _commands(block)]


@pytest.mark.parametrize("command", PIPELINES, ids=["gitlab"])
@pytest.mark.parametrize(("shift", "status"), [(0.0, 0), (1.0, 1)])
def test_pipelines_stop_what_is_worse(command, shift, status, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for name, own in (("reference", 0.0), ("production", 0.0), ("new", shift)):
        np.save(f"{name}.npy", rng.normal(own, 1, (100, 2)))
    assert main(command) == status
    assert {"report.html", "result.json", "gate.xml"} <= {path.name for path in tmp_path.iterdir()}
    said = capsys.readouterr().err
    assert said.startswith("relfit: gate: new is worse than production") == (status == 1)
