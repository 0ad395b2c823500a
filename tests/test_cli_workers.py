"""--workers, --cluster and --checkpoint."""

import sys
from pathlib import Path

import numpy as np
import pytest

import relfit
from relfit import cli, patches


@pytest.fixture
def files(tmp_path, rng, monkeypatch):
    """A reference and two models in files; patches of a few hundred rows."""
    monkeypatch.setattr(patches, "PATCH_ROWS", 300)
    monkeypatch.setattr(patches, "BLOCK_ROWS", 300)
    monkeypatch.chdir(tmp_path)
    for name, shift in {"r": 0.0, "a": 0.1, "b": 0.5}.items():
        np.save(f"{name}.npy", rng.normal(shift, 1, (800, 3)))
    return ["r.npy", "a.npy", "b.npy"]


def test_workers_give_the_same_bits(files):
    assert cli.main(["compare", *files, "--json", "here.json"]) == 0
    assert cli.main(["compare", *files, "--json", "there.json", "--workers", "2"]) == 0
    here, there = (relfit.Comparison.from_json(Path(name).read_text()) for name in ("here.json", "there.json"))
    np.testing.assert_array_equal(here.covariance, there.covariance)
    np.testing.assert_array_equal(here.pvalue, there.pvalue)
    assert cli.main(["pair", *files, "--workers", "1"]) == 0


def test_both_is_refused(files, capsys):
    assert cli.main(["compare", *files, "--workers", "2", "--cluster", "tcp://127.0.0.1:1"]) == 2
    assert "--workers: expected without --cluster" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x", "127.0.0.1"])
def test_nobody_there(files, address, capsys, monkeypatch):
    pytest.importorskip("distributed", reason="needs dask.distributed")
    monkeypatch.setattr("relfit.cli_workers.PATIENCE", 1)
    assert cli.main(["compare", *files, "--cluster", address]) == 2
    said = capsys.readouterr().err
    assert said.startswith("relfit: error: --cluster: no Dask scheduler answers at")
    assert said.count("\n") == 1


def test_without_dask(files, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert cli.main(["compare", *files, "--cluster", "tcp://127.0.0.1:1"]) == 2
    assert "pip install distributed" in capsys.readouterr().err


def test_checkpoint_of_another_run(files, capsys):
    assert cli.main(["compare", *files, "--checkpoint", "run.sqlite"]) == 0
    assert cli.main(["compare", *files, "--checkpoint", "run.sqlite", "--seed", "5"]) == 2
    assert "seed was 0, is 5); give a new file, or delete it" in capsys.readouterr().err
