"""relfit rerun: the same answer again, changed inputs refused, code run only when allowed."""

import json

import numpy as np
import pytest
from commands import refused_line

from relfit.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    for name, shift in {"ref": 0.0, "near": 0.1, "far": 1.0}.items():
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, (60, 2)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args):
    return main(["compare", "ref.npy", "near.npy", "far.npy", "--json", "result.json", *args])


def edited(folder, capsys, **changes):
    """A result, with its file changed; returns what was in it."""
    run()
    record = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**record, **changes}))
    capsys.readouterr()
    return record


def test_same_answer_or_the_changed_input_is_named(folder, capsys):
    assert run("--test", "carve", "--seed", "7", "--html", "page.html") == 0
    capsys.readouterr()
    before = (folder / "result.json").read_bytes()
    assert main(["rerun", "result.json"]) == 0
    assert capsys.readouterr().out == "Agrees: every number is the same.\n"
    assert (folder / "result.json").read_bytes() == before
    assert not list(folder.glob("*.tmp*"))
    run()
    np.save("far.npy", np.load("far.npy") + 1e-9)
    assert main(["rerun", "result.json"]) == 2
    assert "model 'far' is no longer what was compared then" in capsys.readouterr().err
    assert main(["rerun", "--help"]) == 0
    assert "Exit status 1 if the answer differs, 2 if the files do" in " ".join(capsys.readouterr().out.split())


def test_code_is_not_run_unless_allowed(folder, capsys):
    (folder / "own.py").write_text("import numpy as np\nopen('ran', 'w').close()\nx = np.load('ref.npy') + 0.5\n")
    assert main(["compare", "ref.npy", "near.npy", "own.py:x", "--json", "result.json"]) == 0
    (folder / "ran").unlink()
    capsys.readouterr()
    assert main(["rerun", "result.json"]) == 2
    assert "would run the code of 'own.py:x'" in capsys.readouterr().err
    assert not (folder / "ran").exists()
    assert main(["rerun", "result.json", "--run-code"]) == 0


@pytest.mark.parametrize(
    "edit", [{"alpha": 1e-30}, {"worse": [False, False]}, {"worse": [True, True]}, {"margin": 0.5}]
)
@pytest.mark.parametrize("command", ["report", "rerun"])
def test_verdicts_that_are_not_those_of_alpha(folder, capsys, edit, command):
    assert edited(folder, capsys, **edit)["worse"] == [False, True]
    assert "contradicts itself: " in refused_line(capsys, command, "result.json")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"alpha": 0.051}, "alpha was 0.051 and is 0.05"),
        ({"bandwidth_rule": "given"}, "bandwidth_rule was 'given' and is 'median'"),
        ({"test": "relpsi"}, "test was 'relpsi' and is 'best-set'"),
        ({"correction": "holm"}, "correction was 'holm' and is 'stepdown'"),
    ],
)
def test_changed_settings_are_said(folder, capsys, edit, said):
    edited(folder, capsys, **edit)
    assert main(["rerun", "result.json"]) == 1
    assert capsys.readouterr().out.startswith(f"Differs: {said}; ")


@pytest.mark.parametrize("command", [["reproduce", "all"], ["demo"], ["compare", "--", "--json", "x"]])
def test_other_commands_in_the_record(folder, capsys, command):
    """Only compare is repeated; what follows "--" are file names, not options."""
    edited(folder, capsys, command=command)
    refused_line(capsys, "rerun", "result.json")


@pytest.mark.parametrize(
    "hidden",
    [
        ["--html", "victim.txt"],
        ["--json=victim.txt"],
        ["--junit", "victim.txt"],
        ["--markdown", "victim.txt"],
        ["--checkpoint", "victim.txt"],
        ["--cluster", "tcp://127.0.0.1:9"],
        ["--workers", "2"],
    ],
)
def test_a_crafted_command_neither_writes_nor_calls(folder, capsys, hidden):
    """`--` as the value of --name ends the options for a filter, not for click."""
    (folder / "victim.txt").write_text("mine")
    run()
    crafted = json.loads((folder / "result.json").read_text())
    crafted["command"] = ["compare", "--name", "--", *hidden, "--name", "x", "ref.npy", "near.npy", "far.npy"]
    (folder / "crafted.json").write_text(json.dumps(crafted))
    capsys.readouterr()
    assert main(["rerun", "crafted.json"]) == 2
    assert f"its command asks for {hidden[0].partition('=')[0]}," in capsys.readouterr().err
    assert (folder / "victim.txt").read_text() == "mine"
