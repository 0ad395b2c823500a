"""The command line as a user meets it: what it prints and writes, its exit status, every refusal in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import refused_line

import relfit
from relfit.cli import compare as compare_file
from relfit.cli import main

RELFIT = [sys.executable, "-m", "relfit"]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of good and bad files, as the working folder."""
    rng = np.random.default_rng(3)
    for name, shift in {"human": 0.0, "claude": 0.0, "llama": 0.3, "gpt": 1.0}.items():
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, (120, 3)))
    np.save(tmp_path / "wide.npy", rng.normal(size=(120, 4)))
    np.save(tmp_path / "few.npy", rng.normal(size=(5, 3)))
    broken = np.load(tmp_path / "gpt.npy")
    broken[5, 1] = np.nan
    np.save(tmp_path / "nan.npy", broken)
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "truncated.npy").write_bytes((tmp_path / "gpt.npy").read_bytes()[:500])
    (tmp_path / "notes.txt").write_text("not data")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _files(folder):
    return sorted((path.name, path.stat().st_mtime_ns) for path in folder.rglob("*"))


def _refused(data, capsys, *args):
    """The line with which the command is refused; nothing is written."""
    before = _files(data)
    line = refused_line(capsys, *args)
    assert _files(data) == before
    return line


def test_compare_prints_the_table(data, capsys):
    assert main(["compare", "human.npy", "gpt.npy", "claude.npy", "llama.npy"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    models = {name: f"{name}.npy" for name in ("gpt", "claude", "llama")}
    expected = str(relfit.compare("human.npy", models, rng=0))
    # The note advises in the options of the interface.
    assert out == f"{expected}\n".replace('kernel="select"', "--kernel select")
    assert re.search(r"^gpt .* worse$", out, re.MULTILINE)


def test_options_reach_the_comparison(data, capsys):
    options = "--test relmulti --alpha 0.1 --kernel imq --bandwidth 2 --estimator linear --dependence shared"
    options += " --select-fraction 0.4 --correction holm --seed 9 --no-progress"
    files = ["human.npy", "gpt.npy", "claude.npy", "llama.npy"]
    assert main(["compare", *files, "--json", "-", *options.split()]) == 0
    printed = relfit.Comparison.from_json(capsys.readouterr().out)
    assert (printed.test, printed.alpha, printed.kernel) == ("relmulti", 0.1, relfit.IMQ(2.0))
    assert (printed.estimator, printed.dependence, printed.select_fraction) == ("linear", "shared", 0.4)
    assert (printed.correction, printed.seed) == ("holm", 9)


def test_a_page_and_the_files_are_written_from_the_rows_that_compare_loaded(data, capsys, monkeypatch):
    assert main(["compare", "human.npy", "gpt.npy", "claude.npy", "--json", "out.json", "--html", "out.html"]) == 0
    out = capsys.readouterr().out
    assert "Significantly worse: gpt" in out
    assert out.endswith("\nResult: out.json\nReport: out.html\n")
    written = relfit.Comparison.from_json((data / "out.json").read_text(encoding="utf-8"))
    assert written.best == "claude"
    assert "Significantly worse: gpt" in (data / "out.html").read_text(encoding="utf-8")
    monkeypatch.delattr("relfit.report.recall.load")
    assert main(["compare", "human.npy", "gpt.npy", "claude.npy", "--html", "out.html"]) == 0
    assert "Where they differ" in (data / "out.html").read_text(encoding="utf-8")


def test_names_and_archives(data, capsys):
    np.savez(data / "both.npz", x=np.load("gpt.npy"), y=np.load("claude.npy"))
    assert main(["compare", "human.npy", "both.npz:x", "both.npz:y"]) == 0
    assert "both:x" in capsys.readouterr().out
    names = ["--name", "<b>", "--name", "two\nlines 🚀"]
    assert (
        main(["compare", "human.npy", "both.npz:x", "both.npz:y", *names, "--html", "o.html", "--json", "o.json"]) == 0
    )
    out = capsys.readouterr().out
    assert "two\\nlines 🚀" in out
    assert "<b>" in out
    assert "&lt;b&gt;" in (data / "o.html").read_text(encoding="utf-8")
    assert json.loads((data / "o.json").read_text(encoding="utf-8"))["names"] == ["<b>", "two\nlines 🚀"]


def test_gate(data, capsys):
    files = ["compare", "human.npy", "gpt.npy", "claude.npy", "llama.npy"]
    assert main([*files, "--gate", "gpt", "--json", "out.json"]) == 1
    out, err = capsys.readouterr()
    assert "gpt" in out
    assert err.startswith("relfit: gate: gpt is significantly worse than ")
    assert len(err.splitlines()) == 1
    assert (data / "out.json").exists()
    assert main([*files, "--gate", "claude"]) == 0
    assert "Gate inconclusive: claude compared with" in capsys.readouterr().out
    assert main([*files, "--gate", "claude", "--junit", "gate.xml"]) == 0
    last = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()[-2:]]
    assert last == ["JUnit", "Gate inconclusive"]


def test_pair(data, capsys):
    assert main(["pair", "human.npy", "gpt.npy", "claude.npy"]) == 0
    assert "gpt is significantly worse than claude." in capsys.readouterr().out
    assert main(["pair", "human.npy", "claude.npy", "gpt.npy", "--test", "relpsi", "--json", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["names"], printed["test"], printed["worse"]) == (["claude", "gpt"], "relpsi", False)
    assert main(["pair", "human.npy", "gpt.npy", "claude.npy", "--json", "pair.json"]) == 0
    assert json.loads((data / "pair.json").read_text(encoding="utf-8"))["worse"] is True


REFUSALS = {
    "missing file": (["human.npy", "gpt.npy", "none.npy"], "none.npy: no such file"),
    "missing reference": (["none.npy", "gpt.npy", "claude.npy"], "none.npy: no such file"),
    "truncated": (["human.npy", "gpt.npy", "truncated.npy"], "truncated.npy: cannot be read"),
    "pickled": (["human.npy", "gpt.npy", "pickled.npy"], "relfit never loads"),
    "not data": (["human.npy", "gpt.npy", "notes.txt"], "notes.txt: expected a file ending in"),
    "folder": (["human.npy", "gpt.npy", "folder"], "folder"),
    "dimensions": (["human.npy", "gpt.npy", "wide.npy"], "model 'wide': expected 3 columns like the reference, got 4"),
    "nan": (["human.npy", "gpt.npy", "nan.npy"], "model 'nan': expected finite numbers"),
    "few rows": (["human.npy", "gpt.npy", "few.npy"], "model 'few': expected at least 20 rows"),
    "one model": (["human.npy", "gpt.npy"], "expected at least two files, got 1"),
    "no model": (["human.npy"], "Missing argument 'MODEL...'"),
    "same name": (["human.npy", "gpt.npy", "./gpt.npy"], "two models are called 'gpt'; tell them apart with --name"),
    "names": (["human.npy", "gpt.npy", "claude.npy", "--name", "a"], "--name: expected one for each of the 2 models"),
    "names twice": (["human.npy", "gpt.npy", "claude.npy", "--name", "a", "--name", "a"], "two models are called 'a'"),
    "empty name": (["human.npy", "gpt.npy", "claude.npy", "--name", "a", "--name", ""], "non-empty text"),
    "reference as model": (["human.npy", "gpt.npy", "human.npy"], "given both as the reference and as a model"),
    "gate": (["human.npy", "gpt.npy", "claude.npy", "--gate", "gpt\n4"], r"--gate: expected the name of a model"),
    "alpha": (["human.npy", "gpt.npy", "claude.npy", "--alpha", "2"], "alpha: expected a number between 0 and 1"),
    "alpha nan": (["human.npy", "gpt.npy", "claude.npy", "--alpha", "nan"], "alpha: expected a number between 0 and 1"),
    "bandwidth": (
        ["human.npy", "gpt.npy", "claude.npy", "--bandwidth", "-1"],
        'expected "median" or a positive number',
    ),
    "bandwidth word": (["human.npy", "gpt.npy", "claude.npy", "--bandwidth", "mean"], "got 'mean'"),
    "seed": (["human.npy", "gpt.npy", "claude.npy", "--seed", "-1"], "'--seed'"),
    "fraction": (
        ["human.npy", "gpt.npy", "claude.npy", "--select-fraction", ".3"],
        "belongs to --test relmulti, got best-set",
    ),
    "test": (["human.npy", "gpt.npy", "claude.npy", "--test", "ttest"], "'ttest' is not one of"),
    "option": (["human.npy", "gpt.npy", "claude.npy", "--quick"], "--quick"),
    "html folder": (["human.npy", "gpt.npy", "claude.npy", "--html", "no/a.html"], "does not exist"),
    "json folder": (["human.npy", "gpt.npy", "claude.npy", "--json", "no/a.json"], "--json: cannot write 'no/a.json'"),
    "html is a folder": (["human.npy", "gpt.npy", "claude.npy", "--html", "folder"], "it is a folder"),
    "html to stdout": (["human.npy", "gpt.npy", "claude.npy", "--html", "-"], "only --json can go to standard output"),
    "html is an input": (["human.npy", "gpt.npy", "claude.npy", "--html", "gpt.npy"], "it is an input too"),
    "one file twice": (["human.npy", "gpt.npy", "claude.npy", "--html", "a", "--json", "./a"], "the file for --"),
}


@pytest.mark.parametrize(("args", "said"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refusals(data, capsys, args, said):
    assert said in _refused(data, capsys, "compare", *args)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (MemoryError("Unable to allocate 7 TiB"), 2, "relfit: error: not enough memory (Unable to allocate 7 TiB)"),
        (relfit.BackendUnavailable("backend: no GPU"), 2, "relfit: error: --backend: no GPU"),
        (PermissionError(13, "Permission denied", "human.npy"), 2, "relfit: error: human.npy: Permission denied"),
        (KeyboardInterrupt(), 130, "relfit: interrupted"),
    ],
)
def test_failures_without_traceback(data, capsys, monkeypatch, error, status, said):
    def fail(*_args, **_settings):
        raise error

    monkeypatch.setattr(compare_file, "compare_with_data", fail)
    assert main(["compare", "human.npy", "gpt.npy", "claude.npy", "--json", "a.json"]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.split("\n")) <= 3
    assert "Traceback" not in err
    assert not (data / "a.json").exists()


@pytest.mark.parametrize(
    ("options", "message", "said"),
    [
        (["--workers", "2"], "executor: a worker: gone", "--workers: a worker: gone"),
        (["--landmarks", "9", "--estimator", "landmarks"], "count: too many", "--landmarks: too many"),
        ([], "residual_pairs: too few", "--residual-pairs: too few"),
        ([], "models: too few", "models: too few"),
        ([], "memory is short", "memory is short"),
        (["--name", "memory", "--name", "gpt"], "memory: too few rows", "memory: too few rows"),
    ],
)
def test_errors_name_the_option_that_was_typed(data, capsys, monkeypatch, options, message, said):
    def fail(*_args, **_settings):
        raise relfit.InputError(message)

    monkeypatch.setattr(compare_file, "compare_with_data", fail)
    assert main(["compare", "human.npy", "gpt.npy", "claude.npy", *options]) == 2
    assert capsys.readouterr().err == f"relfit: error: {said}\n"


def test_real_process(data):
    done = subprocess.run(
        [*RELFIT, "compare", "human.npy", "gpt.npy", "claude.npy", "--gate", "gpt"], capture_output=True
    )
    assert done.returncode == 1
    assert b"\x1b" not in done.stdout
    assert done.stdout.decode("utf-8").count("\n") >= 5
    bad = subprocess.run([*RELFIT, "compare", "human.npy", "gpt.npy", "none.npy"], capture_output=True, text=True)
    assert (bad.returncode, bad.stdout, bad.stderr) == (2, "", "relfit: error: none.npy: no such file\n")


def test_json_is_utf8_whatever_the_terminal_is(data):
    args = [*RELFIT, "compare", "human.npy", "gpt.npy", "claude.npy", "--name", "é🚀", "--name", "b", "--json", "-"]
    done = subprocess.run(args, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert json.loads(done.stdout.decode("utf-8"))["names"] == ["é🚀", "b"]
    table = subprocess.run(args[:-2], capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert table.returncode == 0
    assert b"Traceback" not in table.stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX file names")
def test_file_names_that_are_not_text(data):
    (data / "gpt.npy").rename(os.fsdecode(b"gp\xff.npy"))
    args = [*RELFIT, "compare", "human.npy", b"gp\xff.npy", "claude.npy", "--html", "a.html", "--json", "a.json"]
    done = subprocess.run(args, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((data / "a.json").read_text(encoding="utf-8"))["names"] == ["gp\ufffd", "claude"]


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_a_reader_that_goes_away_is_no_error(data):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*RELFIT, "compare", "human.npy", "gpt.npy", "claude.npy", "--json", "a.json"],
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (data / "a.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_behind_stdout(data):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*RELFIT, "compare", "human.npy", "gpt.npy", "claude.npy"], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 2
    assert done.stderr == b"relfit: error: standard output: cannot be written: No space left on device\n"


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_interrupt(data):
    rng = np.random.default_rng(0)
    for name in ("r", "a", "b"):
        np.save(data / f"{name}.npy", rng.normal(size=(40_000, 20)))
    command = [*RELFIT, "compare", "r.npy", "a.npy", "b.npy", "--json", "out.json", "--verbose"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # The sizes of the three inputs are told when they are read: the work begins then.
    assert all(b"40000 rows" in process.stderr.readline() for _ in range(3))
    time.sleep(0.5)
    assert process.poll() is None, "the work must last longer than this test waits"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - started < 10
    assert (process.returncode, out) == (130, b"")
    # A forecast may come first.
    assert err.strip().splitlines()[-1] == b"relfit: interrupted"
    assert not (data / "out.json").exists()


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("plain", [False, True])
def test_colour_on_terminals_only(data, plain):
    import pty

    main_end, other_end = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm"} | ({"NO_COLOR": "1"} if plain else {})
    done = subprocess.run(
        [*RELFIT, "compare", "human.npy", "gpt.npy", "claude.npy"], stdout=other_end, stderr=subprocess.PIPE, env=env
    )
    os.close(other_end)
    shown = os.read(main_end, 10_000)
    os.close(main_end)
    assert done.returncode == 0
    assert (b"31msignificantly worse" in shown) == (not plain)
    assert b"worse" in shown


def test_what_fails_before_or_while_computing_has_its_status(data, capsys, monkeypatch):
    """A mistyped gate or an output that cannot be written costs no computation."""

    def never(*_args, **_settings):
        raise AssertionError("computed")

    monkeypatch.setattr(compare_file, "compare_with_data", never)
    files = ["compare", "human.npy", "gpt.npy", "claude.npy"]
    _refused(data, capsys, *files, "--gate", "nobody")
    _refused(data, capsys, *files, "--html", "no/a.html")
    monkeypatch.setattr(compare_file, "compare_with_data", lambda *_args, **_settings: 1 / 0)
    assert main(["compare", "human.npy", "gpt.npy", "claude.npy"]) == 70
    assert "ZeroDivisionError" in capsys.readouterr().err
