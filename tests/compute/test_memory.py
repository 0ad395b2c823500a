"""No n × n matrix is ever held: a process that makes a complete estimate stays far below its size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
