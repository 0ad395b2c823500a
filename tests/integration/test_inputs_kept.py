"""No input is ever written over: whatever option named it, whatever name the output has, in every command."""

import itertools
import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import relfit
from relfit import cli
from relfit.util import files

FILES = ["r.npy", "a.npy", "b.npy"]
LOG = "samples_task_2026-01-01T00-00-00.000000.jsonl"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Inputs of every kind."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for k, name in enumerate(FILES):
        np.save(name, rng.normal(k / 4, 1.0, (60, 2)))
    np.savetxt("labels.csv", np.repeat(np.arange(20), 3), fmt="g%d")
    Path("texts.txt").write_text("".join(f"text {k}\n" for k in range(60)))
    np.savetxt("table.csv", rng.normal(size=(60, 2)), delimiter=",", header="x,y", comments="")
    for model, low in (("x", 0.2), ("y", 0.5)):
        Path("logs", model).mkdir(parents=True)
        lines = [{"doc_id": k, "acc": float(k / 60 > low), "filter": "none", "metrics": ["acc"]} for k in range(60)]
        Path("logs", model, LOG).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


GROUPED = ["--dependence", "paired", "--groups", "labels.csv"]
CASES = {
    "compare --groups --json": ["compare", *FILES, *GROUPED, "--json", "labels.csv"],
    "compare --groups --html": ["compare", *FILES, *GROUPED, "--html", "labels.csv"],
    "compare --groups --junit": ["compare", *FILES, *GROUPED, "--junit", "labels.csv"],
    "compare --groups --checkpoint": ["compare", *FILES, *GROUPED, "--checkpoint", "labels.csv"],
    "compare --items": ["compare", *FILES, "--items", "a=texts.txt", "--html", "texts.txt"],
    "compare --items, the result": ["compare", *FILES, "--items", "a=texts.txt", "--html", "x", "--json", "texts.txt"],
    "compare, a link": ["compare", *FILES, "--json", "link"],
    "compare, a hard link": ["compare", *FILES, "--json", "hard"],
    "compare, a way round": ["compare", *FILES, "--json", "logs/../b.npy"],
    "compare, an array of a file": ["compare", "r.npy", "a.npy", "two.npz:x", "--json", "two.npz"],
    "compare, code": ["compare", "r.npy", "code.py:a", "code.py:b", "--json", "code.py"],
    "pair --groups": ["pair", *FILES, *GROUPED, "--json", "labels.csv"],
    "plan --groups --json": ["plan", *FILES, *GROUPED, "--json", "labels.csv"],
    "plan --plot": ["plan", *FILES, "--plot", "hard.png"],
    "report": ["report", "result.json", "--html", "result.json"],
    "report, a hard link": ["report", "result.json", *FILES, "--html", "hard"],
    "report --items": ["report", "result.json", *FILES, "--items", "a=texts.txt", "--html", "texts.txt"],
    "losses": ["losses", "table.csv", "--lower-is-better", "--html", "logs/../table.csv"],
    "losses --junit": ["losses", "table.csv", "--lower-is-better", "--junit", "hard-table"],
    "evals": ["evals", "logs", "--json", f"logs/x/{LOG}"],
    "features": ["features", "texts.txt", "--model", "minilm", "-o", "texts.txt"],
    "features, the names": ["features", "f.names.txt", "--model", "minilm", "-o", "f.npy"],
    "reproduce": ["reproduce", "table2-chicago", "--data", "table.csv", "--docs", "table.csv"],
}


@pytest.mark.parametrize("case", CASES)
def test_no_command_writes_over_an_input(folder, case, capsys):
    Path("result.json").write_text(relfit.compare("r.npy", FILES[1:], rng=0).to_json())
    Path("link").symlink_to("a.npy")
    for name, other in (("hard", "b.npy"), ("hard.png", "a.npy"), ("hard-table", "table.csv")):
        os.link(other, name)
    np.savez("two.npz", x=np.load("a.npy"), y=np.load("b.npy"))
    Path("code.py").write_text("import numpy as np\na = np.load('a.npy')\nb = np.load('b.npy')\n")
    shutil.copy("texts.txt", "f.names.txt")
    before = contents(folder)
    assert cli.main(CASES[case]) == 2
    said = capsys.readouterr().err
    assert said.startswith("relfit: error: "), said
    assert said.count("\n") == 1
    assert "it is an input too" in said
    assert contents(folder) == before


def test_another_name_is_written(folder):
    """The same commands with outputs of their own, over those of an earlier run too, and beside their inputs."""
    for _ in range(2):
        assert cli.main(["compare", *FILES, *GROUPED, "--json", "out.json", "--html", "out.html"]) == 0
        assert cli.main(["compare", *FILES, "--items", "a=texts.txt", "--html", "out.html"]) == 0
        assert cli.main(["evals", "logs", "--html", "logs/out.html"]) == 0
        assert cli.main(["report", "out.json", "--html", "out.html"]) == 0
    assert Path("out.html").read_text().startswith("<!")


def test_python_too(folder):
    """`report` knows the files that were compared and those behind the rows."""
    os.link("a.npy", "hard")
    result = relfit.compare("r.npy", FILES[1:], rng=0)
    items = {"a": [Path(f"logs/x/{LOG}")] * 60}
    before = contents(folder)
    for path, data, shown in (
        ("r.npy", None, None),
        ("hard", None, None),
        (items["a"][0], ("r.npy", FILES[1:]), items),
    ):
        with pytest.raises(relfit.InputError, match=r"^path: cannot write .* it is an input too; give another"):
            result.report(path, data, items=shown)
    assert contents(folder) == before
    result.report("page.html")
    result.report("page.html")


@pytest.mark.parametrize("link", ["out", "place"])
def test_links_that_change_meanwhile(folder, link):
    """Somebody else turns a link, or a folder of the path, to an input and back all the time: the input stays."""
    for name in ("inputs", "outputs"):
        Path(name).mkdir()
        Path(name, "x").write_text("old" * 1000)
    files.note_read("inputs/x")
    turns = {"out": ("inputs/x", "outputs/x"), "place": ("inputs", "outputs")}[link]
    path = {"out": "out", "place": "place/x"}[link]
    Path(link).symlink_to(turns[0])
    over = threading.Event()
    turner = threading.Thread(target=_turn, args=(link, turns, over))
    turner.start()
    written = refused = 0
    try:
        for k in range(1000):
            try:
                files.write_text_atomic(path, f"{k:03}" * 1000)
                written += 1
            except relfit.InputError as error:
                refused += "it is an input too" in str(error)
            assert Path("inputs/x").read_text() == "old" * 1000
            text = Path("outputs/x").read_text()
            assert text == text[:3] * 1000
    finally:
        over.set()
        turner.join()
    assert written
    assert written + refused == 1000
    assert refused
    assert {file.name for name in ("inputs", "outputs") for file in Path(name).iterdir()} == {"x"}


def _turn(link, turns, over):
    for target in itertools.cycle(turns):
        if over.is_set():
            return
        Path("next").symlink_to(target)
        Path("next").replace(link)
