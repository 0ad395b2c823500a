"""The store keeps what it acknowledged, through kill -9, two writers and files that are not stores."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import relfit
from relfit.paper.runner import Store, canonical_json
from relfit.util.errors import InputError

SETTING = {"n": 50, "test": "relpsi"}

# Writes the missing trials of 0..count−1 and names each seed on stdout once `put` has returned.
WRITER = """
import sys
import threading
from relfit.paper.runner import Store
path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Store(path) as store:
    for seed in sorted(set(range(first, count)) - set(store.by_seed("walk", {"n": 1}))):
        store.put_many("walk", {"n": 1}, [(seed, {"square": seed * seed, "run": "same"})])
        print(seed, flush=True)
"""


def start_writer(path, first, count):
    source = str(Path(relfit.__file__).parents[1])
    command = [sys.executable, "-c", WRITER, str(path), str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": source})


def rows(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT * FROM trials ORDER BY 1, 2, 3, 4").fetchall()
    finally:
        connection.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def test_put_done_results(path):
    with Store(path) as store:
        assert set(store.by_seed("e", SETTING)) == set()
        for seed in (7, 0, 12):
            store.put_many("e", SETTING, [(seed, {"p": seed / 8})])
        store.put_many("other", SETTING, [(1, {"p": 1})])
        store.put_many("e", {"n": 51, "test": "relpsi"}, [(2, {"p": 2})])
    with Store(path) as store:
        assert set(store.by_seed("e", SETTING)) == {0, 7, 12}
        assert store.results("e", SETTING) == [{"p": 0.0}, {"p": 0.875}, {"p": 1.5}]
        assert list(store.by_seed("e", SETTING)) == [0, 7, 12]


def test_a_batch_is_all_or_nothing(path):
    def interrupted():
        yield 0, {"p": 1}
        raise KeyboardInterrupt

    with Store(path) as store:
        with pytest.raises(KeyboardInterrupt):
            store.put_many("e", SETTING, interrupted())
        with pytest.raises(InputError):
            store.put_many("e", SETTING, [(0, {"p": 1}), (1, {"p": float("nan")})])
        assert set(store.by_seed("e", SETTING)) == set()
        store.put_many("e", SETTING, [(0, {"p": 1})])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kill -9 is POSIX")
def test_kill_9_loses_nothing_and_resumption_repeats_nothing(path, tmp_path):
    """Killed four times while writing; every acknowledged row is there, and the end is that of a calm run."""
    acknowledged = []
    for patience in (1, 40, 7, 100):
        with start_writer(path, 0, 1_000_000) as writer:
            lines = [writer.stdout.readline() for _ in range(patience)]
            os.kill(writer.pid, signal.SIGKILL)
            lines += writer.stdout.readlines()
        assert writer.returncode == -signal.SIGKILL
        acknowledged += [int(line) for line in lines if line.endswith("\n")]
        with Store(path) as store:
            assert set(acknowledged) <= set(store.by_seed("walk", {"n": 1}))
    assert len(set(acknowledged)) == len(acknowledged)
    count = max(acknowledged) + 50
    calm = tmp_path / "calm.sqlite"
    for file in (path, calm):
        writer = start_writer(file, 0, count)
        writer.communicate()
        assert writer.returncode == 0
    assert rows(path) == rows(calm)
    assert len(rows(calm)) == count


# --- refusals


@pytest.mark.parametrize("value", [{"x": float("inf")}, {"x": object()}, {"x": {1, 2}}, {1: 2, "a": 3}, [1], None])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(InputError, match="JSON"):
        canonical_json(value)
