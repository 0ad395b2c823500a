"""Real faults, on real processes: a full disk, an interrupt. Old files stay whole, new ones are whole."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import relfit

resource = pytest.importorskip("resource", reason="POSIX limits and signals")

RELFIT = [sys.executable, "-m", "relfit"]
OLD = "what was there before\n"
FILES = ["human.npy", "gpt.npy", "claude.npy"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for k, name in enumerate(FILES):
        np.save(tmp_path / name, rng.normal(k / 4, 1.0, (60, 2)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _no_room(size):
    """What the kernel does to a process that would write a longer file: the write fails, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize(
    ("args", "output", "room"),
    [
        (["compare", *FILES, "--json"], "out.json", 500),
        (["compare", *FILES, "--html"], "out.html", 5000),
        (["compare", *FILES, "--junit"], "out.xml", 200),
        (["pair", *FILES, "--json"], "out.json", 200),
        (["report", "result.json", "--html"], "out.html", 5000),
        (["plan", *FILES, "--trials", "100", "--json"], "out.json", 200),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, list) else str(value),
)
def test_a_full_disk_leaves_the_old_file(folder, args, output, room):
    result = relfit.decide(relfit.JointEstimate(("a", "b"), [0.1, 0.9], 0.01 * np.eye(2)), rng=0)
    (folder / "result.json").write_text(result.to_json())
    (folder / output).write_text(OLD)
    before = {path.name for path in folder.iterdir()}
    done = subprocess.run(
        [*RELFIT, *args, output], capture_output=True, text=True, preexec_fn=lambda: _no_room(room), check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"relfit: error: path: cannot write '{output}': File too large"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (folder / output).read_text() == OLD
    assert {path.name for path in folder.iterdir()} == before


def test_an_interrupt_while_the_page_is_made(folder):
    """The first file is whole, the second is the old one, and nothing else is left."""
    rng = np.random.default_rng(0)
    for name in FILES:
        np.save(folder / name, rng.normal(size=(3000, 5)))
    (folder / "out.html").write_text(OLD)
    before = {path.name for path in folder.iterdir()}
    command = [*RELFIT, "compare", *FILES, "--json", "out.json", "--html", "out.html"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _wait_for(folder / "out.json", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip() == b"relfit: interrupted"
    assert json.loads((folder / "out.json").read_text())["names"] == ["gpt", "claude"]
    assert (folder / "out.html").read_text() == OLD
    assert {path.name for path in folder.iterdir()} == before | {"out.json"}


def _wait_for(path: Path, process: subprocess.Popen) -> None:
    until = time.monotonic() + 60.0
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.01)
