"""relfit rerun: the same answer again, changed inputs refused, code run only when allowed."""

import json

import numpy as np
import pytest

from relfit import Comparison, compare
from relfit.cli import main
from relfit.cli_rerun import _without_outputs, agreement


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    for name, shift in {"ref": 0.0, "near": 0.1, "far": 1.0}.items():
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, (60, 2)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args):
    return main(["compare", "ref.npy", "near.npy", "far.npy", "--json", "result.json", *args])


def test_same_answer(folder, capsys):
    assert run("--test", "carve", "--seed", "7", "--html", "page.html") == 0
    capsys.readouterr()
    before = (folder / "result.json").read_bytes()
    assert main(["rerun", "result.json"]) == 0
    assert capsys.readouterr().out == "Agrees: every number is the same.\n"
    assert (folder / "result.json").read_bytes() == before
    assert not list(folder.glob("*.tmp*"))


def test_record_is_the_same_wherever_the_result_goes(folder):
    run()
    first = (folder / "result.json").read_text()
    main(["compare", "ref.npy", "near.npy", "far.npy", "--json=other.json", "--gate", "near"])
    assert (folder / "other.json").read_text() == first
    assert Comparison.from_json(first).command == ("compare", "ref.npy", "near.npy", "far.npy")


def test_changed_input_is_named(folder, capsys):
    run()
    np.save("far.npy", np.load("far.npy") + 1e-9)
    assert main(["rerun", "result.json"]) == 2
    assert "model 'far' is no longer what was compared then" in capsys.readouterr().err
    assert main(["rerun", "--help"]) == 0
    assert "Exit status 1 if the answer differs, 2 if the files do" in " ".join(capsys.readouterr().out.split())


def test_another_answer_is_said(folder, capsys):
    run()
    record = json.loads((folder / "result.json").read_text())
    record["worse"] = [False, False]
    record["pvalue"] = [1.0, 0.5]
    record["versions"]["numpy"] = "1.0"
    (folder / "result.json").write_text(json.dumps(record))
    capsys.readouterr()
    assert main(["rerun", "result.json"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("Differs: 'far' was not worse and is worse; ")
    assert "numpy was 1.0 and is" in said


def test_rounding_agrees():
    rng = np.random.default_rng(0)
    result = compare(rng.normal(size=(40, 1)), [rng.normal(size=(40, 1)), rng.normal(2, 1, (40, 1))], rng=0)
    moved = Comparison.from_dict({**result.to_dict(), "discrepancy": (result.discrepancy * (1 + 1e-12)).tolist()})
    lines, same = agreement(result, moved)
    assert same
    assert lines[0].startswith("Agrees to rounding")


def test_code_is_not_run_unless_allowed(folder, capsys):
    (folder / "own.py").write_text("import numpy as np\nopen('ran', 'w').close()\nx = np.load('ref.npy') + 0.5\n")
    assert main(["compare", "ref.npy", "near.npy", "own.py:x", "--json", "result.json"]) == 0
    (folder / "ran").unlink()
    capsys.readouterr()
    assert main(["rerun", "result.json"]) == 2
    assert "would run the code of 'own.py:x'" in capsys.readouterr().err
    assert not (folder / "ran").exists()
    assert main(["rerun", "result.json", "--run-code"]) == 0


def test_result_made_in_python(folder, capsys):
    result = compare("ref.npy", ["near.npy", "far.npy"], rng=0)
    (folder / "result.json").write_text(result.to_json())
    assert main(["rerun", "result.json"]) == 2
    assert "got one that Python made" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["reproduce", "all"], ["demo"], ["compare", "--", "--json", "x"]])
def test_other_commands_in_the_record(folder, capsys, command):
    """Only compare is repeated; what follows "--" are file names, not options."""
    run()
    record = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**record, "command": command}))
    assert main(["rerun", "result.json"]) == 2


def test_outputs_are_left_out_of_the_record():
    typed = ["compare", "a", "--json", "x", "--html=y", "b", "--quiet", "--seed", "3", "--", "--json", "c"]
    assert _without_outputs(typed) == ["compare", "a", "b", "--seed", "3", "--", "--json", "c"]
