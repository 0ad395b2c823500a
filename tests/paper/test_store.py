"""The store keeps what it acknowledged, through kill -9, two writers and files that are not stores."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import relfit
from relfit.paper.runner import STORE, Store, canonical_json
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


def test_order_of_keys_and_numpy_scalars_make_no_difference(path):
    with Store(path) as store:
        store.put_many("e", SETTING, [(0, {"worse": np.array([True, False]), "p": np.float64(0.25)})])
        same = {"test": "relpsi", "n": np.int64(50)}
        assert store.results("e", same) == [{"worse": [True, False], "p": 0.25}]


def test_a_second_put_changes_nothing(path):
    with Store(path) as store:
        store.put_many("e", SETTING, [(0, {"p": 1})])
        store.put_many("e", SETTING, [(0, {"p": 2})])
        store.put_many("e", SETTING, [(0, {"p": 3}), (1, {"p": 4})])
        assert store.results("e", SETTING) == [{"p": 1}, {"p": 4}]


def test_versions_are_kept_apart(path):
    with Store(path, version="1") as store:
        store.put_many("e", SETTING, [(0, {"p": 1})])
    with Store(path, version="2") as store:
        assert set(store.by_seed("e", SETTING)) == set()
        store.put_many("e", SETTING, [(0, {"p": 2})])
        assert store.results("e", SETTING) == [{"p": 2}]
    with Store(path, version="1") as store:
        assert store.results("e", SETTING) == [{"p": 1}]


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


def test_file_is_durable_by_its_settings(path):
    with Store(path) as store:
        connection = store.connection
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert connection.execute("PRAGMA busy_timeout").fetchone()[0] >= 10_000


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kill -9 is POSIX")
def test_kill_9_loses_nothing_and_resumption_repeats_nothing(path, tmp_path):
    """Killed four times while writing; every acknowledged row is there, and the end is that of a calm run."""
    acknowledged = []
    for patience in (1, 40, 7, 100):
        writer = start_writer(path, 0, 1_000_000)
        lines = [writer.stdout.readline() for _ in range(patience)]
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.readlines()
        assert writer.wait() == -signal.SIGKILL
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


def test_two_processes_write_to_one_new_file(path):
    """Both create the file at once; their seeds overlap in 50..99."""
    writers = [start_writer(path, 0, 100), start_writer(path, 50, 150)]
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert [(row[3], row[4]) for row in rows(path)] == [
        (seed, f'{{"run":"same","square":{seed * seed}}}') for seed in range(150)
    ]


def test_many_open_a_new_file_at_once(tmp_path):
    """SQLite does not wait for a lock when the journal mode changes; the store must."""
    faults = []

    def open_and_put(path, gate, seed):
        gate.wait()
        try:
            with Store(path) as store:
                store.put_many("e", SETTING, [(seed, {})])
        except InputError as error:
            faults.append(error)

    for attempt in range(40):
        path, gate = tmp_path / str(attempt), threading.Barrier(6)
        threads = [threading.Thread(target=open_and_put, args=(path, gate, seed)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(rows(path)) == 6
    assert not faults


# --- refusals


def refusal(path):
    with pytest.raises(InputError) as caught:
        Store(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


def test_text_file_is_refused_and_left_alone(path):
    path.write_text("a,b\n1,2\n" * 500)
    before = path.read_bytes()
    assert "not a database" in refusal(path)
    assert path.read_bytes() == before


def test_foreign_database_is_refused_and_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE trials (a)")
    connection.close()
    before = path.read_bytes()
    assert "another program" in refusal(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_other_schema_is_refused(path):
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {STORE.application}")
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert "schema 99" in refusal(path)


def test_damaged_store_is_refused(path):
    with Store(path) as store:
        store.put_many("e", SETTING, [(seed, {"x": "y" * 200}) for seed in range(300)])
    data = bytearray(path.read_bytes())
    assert len(data) > 16_384
    data[4096:16_384] = b"\xa5" * (16_384 - 4096)
    path.write_bytes(data)
    assert refusal(path).endswith("is damaged; restore a copy or give a new file name")


def test_cut_off_store_is_refused(path):
    with Store(path) as store:
        store.put_many("e", SETTING, [(seed, {"x": "y" * 200}) for seed in range(300)])
    path.write_bytes(path.read_bytes()[:10_000])
    refusal(path)


def test_missing_folder_and_folder_are_refused(tmp_path):
    assert "folder" in refusal(tmp_path / "nowhere" / "store.sqlite")
    (tmp_path / "folder").mkdir()
    refusal(tmp_path / "folder")


@pytest.mark.parametrize("value", [{"x": float("inf")}, {"x": object()}, {"x": {1, 2}}, {1: 2, "a": 3}, [1], None])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(InputError, match="JSON"):
        canonical_json(value)


def test_canonical_json_by_hand():
    assert canonical_json({"b": (1, 2.5), "a": None, "é": True}) == '{"a":null,"b":[1,2.5],"\\u00e9":true}'
