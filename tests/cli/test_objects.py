"""Python objects on the command line: module:object and file.py:object."""

import json

import numpy as np
import pytest
from commands import refused_line, run

from relfit.cli.inputs import load_object, names_object
from relfit.util.errors import InputError

MODELS = """
import numpy as np
import relfit

near = relfit.Density(score=lambda x: -x, dim=2)
far = relfit.Density(score=lambda x: 1.5 - x, dim=2)
draws = lambda n, rng: rng.normal(size=(n, 2))
shifted = relfit.Sampler(lambda n, rng: rng.normal(1.0, 1, size=(n, 2)))
rows = np.zeros((3, 2))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    np.save(tmp_path / "data.npy", np.random.default_rng(0).normal(size=(200, 2)))
    return tmp_path


def test_densities_are_compared_by_ksd(folder, capsys):
    status, out, _ = run(capsys, "compare", "data.npy", "models.py:near", "models.py:far", "--json", "-")
    result = json.loads(out)
    assert status == 0
    assert result["measure"] == "ksd"
    assert result["names"] == ["near", "far"]
    assert result["worse"] == [False, True]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("models.py:absent", "no object called 'absent'"),
        ("nothere.py:x", "no such file"),
        ("no_such_module_at_all:x", "cannot be imported"),
        ("broken.py:x", "failed while it ran (ZeroDivisionError"),
        ("models.py:rows", "at least 20 rows"),
    ],
)
def test_refusals_are_one_line_and_exit_2(folder, capsys, address, words):
    (folder / "broken.py").write_text("1 / 0")
    assert words in refused_line(capsys, "compare", "data.npy", address, "models.py:shifted", "--html", "r.html")
    assert not (folder / "r.html").exists()


def test_what_is_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert names_object("file.py:name")
    assert names_object("a.b.c:name")
    assert not names_object("file.npz:name")
    assert not names_object("data.npy")
    assert not names_object("a:b c")
    (tmp_path / "odd:name").write_text("")
    assert not names_object("odd:name")
    with pytest.raises(InputError, match="no object"):
        load_object("math:no_such")


LIKELIHOODS = """
import numpy as np
import relfit
from scipy import stats

normal = stats.multivariate_normal([0, 0])
off = stats.multivariate_normal([1, 0])
box = relfit.Density(log_prob=lambda x: np.where(np.abs(x).max(1) < 1, np.log(0.25), -np.inf), normalised=True)
given = relfit.Density(log_prob=lambda y, x: normal.logpdf(y - x), normalised=True)
energy = relfit.Density(log_prob=lambda x: -(x**2).sum(1))
"""


@pytest.fixture
def likelihoods(folder):
    (folder / "likelihoods.py").write_text(LIKELIHOODS)
    np.save(folder / "covariates.npy", np.random.default_rng(1).normal(size=(200, 2)))
    return folder


def models_of(*names):
    return [f"likelihoods.py:{name}" for name in names]


def test_loglik_on_the_command_line(likelihoods, capsys):
    arguments = ["compare", "data.npy", *models_of("normal", "off", "box"), "--discrepancy", "loglik"]
    status, out, _ = run(capsys, *arguments, "--json", "r.json", "--html", "r.html", "--gate", "box")
    assert status == 1
    assert "mean −log p in nats per row" in out
    stored = json.loads((likelihoods / "r.json").read_text())
    assert stored["discrepancy"][2] == "inf"
    assert stored["gate"]["verdict"] == "worse"
    assert stored["kernel"] is None
    status, out, _ = run(capsys, "rerun", "r.json", "--run-code")
    assert (status, out.strip()) == (0, "Agrees: every number is the same.")
    status, out, _ = run(capsys, "report", "r.json", "--format", "methods")
    assert "negative log-likelihood" in out
    assert "Vuong" in out


@pytest.fixture
def edges(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half.py").write_text(
        "from scipy import stats\ntrue, normal, near = stats.expon(), stats.norm(1.0, 1.0), stats.norm(1.02, 1.0)\n"
    )
    rng = np.random.default_rng(0)
    np.save(tmp_path / "half.npy", rng.exponential(size=(200, 1)))
    # Symmetric about the middle of the two normal distributions, which no test can decide between.
    x = rng.normal(size=(100, 1))
    np.save(tmp_path / "whole.npy", 1.01 + np.concatenate([x, -x]))


@pytest.mark.parametrize("command", ["compare", "pair", "plan"])
def test_edges_and_the_way_round_them_on_the_command_line(edges, capsys, command):
    """D1: KSD is replaced by default and refused if asked for, in the words of the command line."""
    files = ("half.npy", "half.py:true", "half.py:normal")
    status, out, _ = run(capsys, command, *files)
    assert status == 0
    assert "mean −log p" in out
    assert "--discrepancy loglik was used instead" in out
    line = refused_line(capsys, command, *files, "--discrepancy", "ksd")
    assert "'true' at 0" in line
    assert "use --discrepancy loglik" in line
