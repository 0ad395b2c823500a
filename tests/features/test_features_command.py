"""`relfit features` as a user meets it."""

import numpy as np
import pytest
from commands import refused_line

from relfit.cli import main
from relfit.features import run
from relfit.features.base import EXTRACTORS


@pytest.fixture
def folder(tmp_path, monkeypatch, counting):
    """A working folder with a source; the fake stands in for every network."""
    (tmp_path / "texts.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "x.jsonl").write_text('{"answer": "yes"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "load", lambda *args, **options: counting)
    return tmp_path


def test_it_writes_and_says_so_and_lists_every_network(folder, capsys):
    assert main(["features", "texts.txt", "--model", "minilm", "-o", "f.npy", "--limit", "2", "--batch", "1"]) == 0
    out, err = capsys.readouterr()
    assert out == "f.npy: 2 rows of 3 features (minilm) from 2 lines of texts.txt; names in f.names.txt\n"
    assert err == ""
    assert np.load("f.npy").shape == (2, 3)
    assert main(["features", "--list"]) == 0
    out, _ = capsys.readouterr()
    for name, entry in EXTRACTORS.items():
        assert f"{name} " in out
        assert str(entry.dim) in out


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["none.txt", "--model", "minilm", "-o", "f.npy"], "no such file or folder"),
        (["texts.txt", "--model", "resnet", "-o", "f.npy"], "resnet"),
        (["texts.txt", "--model", "minilm"], "-o"),
        (["texts.txt", "-o", "f.npy"], "--model"),
        (["texts.txt", "--model", "minilm", "-o", "f.txt"], ".npy"),
        (["texts.txt", "--model", "minilm", "-o", "none/f.npy"], "does not exist"),
        (["texts.txt", "--model", "minilm", "-o", "f.npy", "--batch", "0"], "--batch"),
        (["texts.txt", "--model", "clip", "-o", "f.npy"], "expected a folder of images"),
        (["x.jsonl", "--model", "minilm", "-o", "f.npy"], "got answer; use --field"),
    ],
)
def test_refusals(folder, capsys, args, part):
    before = sorted(path.name for path in folder.iterdir())
    assert part in refused_line(capsys, "features", *args)
    assert sorted(path.name for path in folder.iterdir()) == before
