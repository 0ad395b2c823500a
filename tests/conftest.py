"""Fixtures used by many tests."""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from relfit.util.libraries import has_cuda
from tools.browser import NoBrowser, executable, start

# Before anything imports triton: without a CUDA device its kernels run in its interpreter, on the CPU.
if not has_cuda():
    os.environ["TRITON_INTERPRET"] = "1"

TESTS = Path(__file__).parent
# Tests of what is compared with a page: `make pages` runs them, and `make test` does not.
PAGES = (
    "tests/studies/",
    "tests/examples/",
    "tests/docs/test_pages.py",
    "tests/docs/test_scale_md.py",
    "tests/docs/test_site.py",
)


def pytest_collection_modifyitems(items):
    """Mark the tests of pages, and those that tests/slow.txt names (`make slow` writes it)."""
    slow = set(TESTS.joinpath("slow.txt").read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid.startswith(PAGES):
            item.add_marker("pages")
        # A line names a test, a test with all its parameters, or a file.
        if slow & {item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]}:
            item.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def signals_of_a_terminal():
    """A run in the background ignores SIGINT, and under nohup SIGHUP; so would the commands that the tests start.

    A signal with a handler has its usual effect on them, and this run still outlives its terminal.
    """
    handlers = {"SIGINT": signal.default_int_handler, "SIGHUP": lambda *_: None}
    for name, handler in handlers.items():
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture
def golden():
    """Values printed by the authors' published code on a small data set."""
    return json.loads(Path(__file__).with_name("oracle").joinpath("published_values.json").read_text())


@pytest.fixture
def rng():
    return np.random.default_rng(20191208)


@pytest.fixture
def as_a_fresh_process(monkeypatch):
    """Budgets of memory as in a new process: this one may hold gigabytes of libraries that other tests loaded."""
    monkeypatch.setattr("relfit.compute.memory.held_bytes", lambda: 120_000_000)


@pytest.fixture
def small_patches(monkeypatch):
    """Patches of 200 rows, so that small samples have several."""
    monkeypatch.setattr("relfit.compute.reduce.PATCH_ROWS", 200)
    monkeypatch.setattr("relfit.compute.reduce.BLOCK_ROWS", 200)


@pytest.fixture
def cramped(monkeypatch):
    """A machine with one megabyte to spare."""
    monkeypatch.setattr("relfit.compute.memory.free_memory", lambda: 1e6)


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests of a process; they are skipped where it does not start."""
    path = executable()
    if path is None or sys.platform == "win32":
        pytest.skip("no Chromium on this machine")
    try:
        started = start(path)
    except NoBrowser as error:
        pytest.skip(str(error))
    yield started
    started.close()
