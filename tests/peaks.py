"""The most anonymous memory that a process holds while it runs some code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WATCH = """
import sys, threading, time
from relfit.compute.memory import held_bytes

peak = 0

def watch():
    global peak
    while True:
        peak = max(peak, held_bytes())
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
"""


def peak_of(code, *arguments, **environment):
    """The peak in bytes; mapped files do not count."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("held memory is read from /proc")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-c", f"{WATCH}\n{code}\nprint(peak)", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert not done.returncode, done.stderr
    return int(done.stdout)
