"""Common first mistakes on the command line: what is accepted, and errors with one clear way on."""

from __future__ import annotations

import numpy as np
import pytest

from relfit.cli import main

NAMES = ("real", "good", "meh")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(3, 60, 2))
    for name, sample in zip(NAMES, rows, strict=True):
        np.save(tmp_path / f"{name}.npy", sample)
    return tmp_path


def run(capsys, *args):
    status = main([str(arg) for arg in args])
    return (status, *capsys.readouterr())


def refused(capsys, *args):
    """The one line that the command is refused with."""
    status, out, err = run(capsys, *args)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    return line


COMPARE = ("compare", "real.npy", "good.npy", "meh.npy")


@pytest.mark.parametrize(
    ("option", "typed", "usual"),
    [("--test", "RelPSI", "relpsi"), ("--test", "Best-Set", "best-set"), ("--preset", "KID", "kid")],
)
def test_names_have_any_case(folder, capsys, option, typed, usual):
    """D22: papers write RelPSI."""
    status, out, _ = run(capsys, *COMPARE, option, typed)
    assert status == 0
    assert out == run(capsys, *COMPARE, option, usual)[1]


def test_pairs_have_the_test_in_any_case(folder, capsys):
    """D22."""
    status, out, _ = run(capsys, "pair", "real.npy", "good.npy", "meh.npy", "--test", "RelPSI")
    assert status == 0
    assert out.startswith("RelPSI")


def test_fid_is_not_offered(folder, capsys):
    """D36: the reason, and what to use instead."""
    line = refused(capsys, *COMPARE, "--preset", "fid")
    assert line == (
        "relfit: error: --preset: FID is not offered, because its estimate is biased by an amount that depends on the "
        "model and on the number of images; use --preset kid, on the same features"
    )
    assert "did you mean kid?" in refused(capsys, *COMPARE, "--preset", "kdi")


@pytest.mark.parametrize(
    ("typed", "meant"), [("comapre", "compare"), ("eval", "evals"), ("loss", "losses"), ("Compare", "compare")]
)
def test_a_command_that_does_not_exist(capsys, typed, meant):
    """D48: the most similar command is suggested."""
    line = refused(capsys, typed, "real.npy")
    assert line == f"relfit: error: No such command '{typed}'. Did you mean 'relfit {meant}'? (see relfit --help)"


def test_a_command_that_is_like_no_other(capsys):
    assert "Did you mean" not in refused(capsys, "xyz")


@pytest.mark.parametrize("command", ["compare", "losses", "evals", "pair"])
@pytest.mark.parametrize("option", ["--confidence", "--level"])
def test_a_confidence_level_is_an_error_rate(capsys, command, option):
    """D48: --dependence was suggested."""
    line = refused(capsys, command, "a", "b", "c", option, "0.95")
    assert f"No such option '{option}'. Did you mean '--alpha'?" in line


@pytest.mark.parametrize(("name", "warned"), [("out.pdf", True), ("out.html", False), ("out.HTM", False)])
def test_a_report_whose_ending_is_not_that_of_html(folder, capsys, name, warned):
    """D48: --html out.pdf wrote HTML without a word."""
    status, out, err = run(capsys, *COMPARE, "--html", name)
    assert status == 0
    assert out.endswith(f"Report: {name}\n")
    warning = "relfit: warning: --html: out.pdf will hold HTML, which its ending does not show; use out.html\n"
    assert err == (warning if warned else "")
