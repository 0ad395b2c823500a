"""No n × n matrix is ever held, and how much memory is free, as the system says it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refused

from relfit.compute import memory as room

ROWS = 8_000
MATRIX = ROWS**2 * 8 / 2**20
# Rows, sums and a few tiles, in MB. The matrix alone would be 488.
CEILING = 120.0

SCRIPT = """
import re, sys
from pathlib import Path
import numpy as np
import relfit

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

backend, kind = sys.argv[1:3]
rng = np.random.default_rng(0)

def run(n):
    x = rng.normal(size=(n, 4))
    models = {"a": rng.normal(size=(n, 4))}
    if kind == "ksd":
        models = {"a": relfit.Density(score=lambda x: np.tanh(x) - x)}
    relfit.estimate(x, models, kernel=relfit.Gaussian(2.0), rng=0, compute=relfit.Compute(backend=backend))

run(100)
before = peak()
run(int(sys.argv[3]))
print(peak() - before)
"""


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("kind", ["mmd", "ksd"])
def test_the_complete_path_never_holds_a_matrix(backend, kind):
    pytest.importorskip(backend)
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    command = [sys.executable, "-c", SCRIPT, backend, kind, str(ROWS)]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=one)
    assert CEILING < MATRIX / 4
    assert float(done.stdout) < CEILING


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system that says nothing; files written here are what it says."""
    monkeypatch.setattr(room, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(room, "_GROUP", tmp_path)
    return tmp_path


def test_what_is_available_counts_and_the_limit_of_a_container(system):
    (system / "meminfo").write_text("MemTotal:       100 kB\nMemFree:  1 kB\nMemAvailable:    50 kB\n")
    assert room.free_memory() == 51_200.0
    (system / "meminfo").write_text("MemAvailable:    50 kB\n")
    (system / "memory.max").write_text("30000\n")
    (system / "memory.current").write_text("10000\n")
    assert room.free_memory() == 20_000.0
    (system / "memory.current").write_text("40000\n")
    assert room.free_memory() == 0.0
    (system / "memory.max").write_text("max\n")
    assert room.free_memory() == 51_200.0
    (system / "memory.max").unlink()
    (system / "meminfo").write_text("MemAvailable:    1000000 kB\n")
    room.require_room("a.npz", 1_024_000_000)
    said = refused(lambda: room.require_room("a.npz", 1_024_000_001), "a.npz", "1.02 GB free")
    assert "save" in said


@pytest.mark.parametrize("said", [None, "", "nonsense", "MemAvailable: much\n"])
def test_a_system_that_does_not_say_has_what_is_built_in(system, said):
    if said is not None:
        (system / "meminfo").write_text(said)
    assert room.free_memory() > 10**8
