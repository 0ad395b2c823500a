"""Trials are run once, stored as they come, and resumed after failures, Ctrl-C and kill -9."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest
from refusals import refused

import relfit
from relfit.paper.runner import Store, canonical_json, run_trials
from relfit.util.errors import RelfitError

SETTINGS = [{"n": 10, "test": "relpsi"}, {"n": 20, "test": "relpsi"}]

# A module that worker processes can import; `busy` marks its start and end so that a repeat would be seen.
TRIALS = """
import time
from pathlib import Path

def busy(setting, seed):
    time.sleep(0.02)
    with open(Path(setting["folder"], f"{setting['n']}-{seed}"), "a") as log:
        log.write("run\\n")
    return {"value": setting["n"] * 1000 + seed}

"""

SCRIPT = """
import sys
import trials_for_tests as trials
from relfit.paper.runner import Store, run_trials

if __name__ == "__main__":
    folder = sys.argv[2]
    with Store(sys.argv[1]) as store:
        run_trials(store, "busy", [{"n": n, "folder": folder} for n in (1, 2, 3)], 40, trials.busy)
"""


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def trials(tmp_path, monkeypatch):
    """The trial module; a folder on sys.path, because pytest's own modules cannot be imported by workers."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "trials_for_tests.py").write_text(TRIALS)
    (code / "script.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(str(code))
    sys.modules.pop("trials_for_tests", None)
    return importlib.import_module("trials_for_tests")


class Inline(Executor):
    """Runs at once, in this thread."""

    def submit(self, function, /, *arguments):
        future = Future()
        try:
            future.set_result(function(*arguments))
        except RelfitError as error:
            future.set_exception(error)
        return future


def value(setting, seed):
    return {"value": setting["n"] + seed}


def rows(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT * FROM trials ORDER BY 1, 2, 3, 4").fetchall()
    finally:
        connection.close()


# --- the store


def test_what_is_stored_is_there_and_a_batch_is_all_or_nothing(store):
    assert set(store.by_seed("e", SETTINGS[0])) == set()
    for seed in (7, 0, 12):
        store.put_many("e", SETTINGS[0], [(seed, {"p": seed / 8})])
    store.put_many("other", SETTINGS[0], [(1, {"p": 1})])
    store.put_many("e", SETTINGS[1], [(2, {"p": 2})])
    with Store(store.path) as again:
        assert list(again.by_seed("e", SETTINGS[0])) == [0, 7, 12]
        assert again.results("e", SETTINGS[0]) == [{"p": 0.0}, {"p": 0.875}, {"p": 1.5}]

    def interrupted():
        yield 0, {"p": 1}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put_many("whole", SETTINGS[0], interrupted())
    refused(lambda: store.put_many("whole", SETTINGS[0], [(0, {"p": 1}), (1, {"p": float("nan")})]))
    assert store.by_seed("whole", SETTINGS[0]) == {}


@pytest.mark.parametrize("value", [{"x": float("inf")}, {"x": object()}, {"x": {1, 2}}, {1: 2, "a": 3}, [1], None])
def test_what_json_cannot_hold_is_refused(value):
    refused(lambda: canonical_json(value), "JSON")


# --- what is run, and what comes back


def test_results_come_in_order_and_only_what_is_missing_is_run(store):
    calls = []

    def logged(setting, seed):
        calls.append((setting["n"], seed))
        return value(setting, seed)

    store.put_many("e", SETTINGS[0], [(seed, value(SETTINGS[0], seed)) for seed in (1, 4)])
    run_trials(store, "e", SETTINGS, 5, logged, executor=Inline(), progress=False)
    assert sorted(calls) == [(n, seed) for n in (10, 20) for seed in range(5) if (n, seed) not in ((10, 1), (10, 4))]
    again = run_trials(store, "e", SETTINGS, 2, logged, executor=Inline(), progress=False)
    assert len(calls) == 8
    assert again == [[{"value": 10}, {"value": 11}], [{"value": 20}, {"value": 21}]]
    results = run_trials(store, "e", SETTINGS, 3, value, executor=Inline(), progress=False)
    assert results == [[{"value": v} for v in (10, 11, 12)], [{"value": v} for v in (20, 21, 22)]]


# --- failures


def test_a_failed_trial_is_named_and_the_others_are_kept(store):
    def fails(setting, seed):
        if (setting["n"], seed) == (10, 6):
            raise ZeroDivisionError("one\nover nought")
        return value(setting, seed)

    with pytest.raises(RelfitError) as caught:
        run_trials(store, "e", SETTINGS, 8, fails, executor=Inline(), progress=False)
    message = str(caught.value)
    assert '{"n":10,"test":"relpsi"}' in message
    assert "seed 6" in message
    assert "ZeroDivisionError: one over nought" in message
    assert "\n" not in message
    assert "in fails" in caught.value.__notes__[0]
    assert set(store.by_seed("e", SETTINGS[0])) == {0, 1, 2, 3, 4, 5, 7}
    results = run_trials(store, "e", SETTINGS, 8, value, executor=Inline(), progress=False)
    assert [len(each) for each in results] == [8, 8]


# --- interruption


def start(tmp_path, name):
    """The script in a process group of its own, working on NAME.sqlite, its trials logged in NAME/."""
    log = tmp_path / name
    log.mkdir(exist_ok=True)
    command = [sys.executable, str(tmp_path / "code" / "script.py"), str(tmp_path / f"{name}.sqlite"), str(log)]
    source = str(Path(relfit.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(tmp_path / "code")])}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def values(path):
    """Rows without the setting, which names the folder of the run."""
    return [(experiment, version, seed, result) for experiment, version, _, seed, result in rows(path)]


def group_is_gone(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.skipif(os.name == "nt", reason="process groups and kill -9 are POSIX")
@pytest.mark.parametrize("number", ["SIGKILL", "SIGINT"])
def test_a_killed_run_resumes_to_the_store_of_a_calm_one(tmp_path, trials, number):
    """Workers end with the killed parent, stored trials are not run again, and the end is the same."""
    run = start(tmp_path, "broken")
    wait_for(lambda: len(list((tmp_path / "broken").iterdir())) >= 30)
    if number == "SIGKILL":
        os.kill(run.pid, signal.SIGKILL)  # the parent alone: its workers must notice
    else:
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to the whole group
    errors = run.communicate(timeout=60)[1]
    wait_for(lambda: group_is_gone(run.pid))
    kept = rows(tmp_path / "broken.sqlite")
    assert 0 < len(kept) < 120
    if number == "SIGINT":
        assert "same command resumes" in errors
        assert errors.count("Traceback") <= 1  # the script's own KeyboardInterrupt, none from the workers
    for name in ("broken", "calm"):
        again = start(tmp_path, name)
        again.communicate(timeout=60)
        assert again.returncode == 0
    assert values(tmp_path / "broken.sqlite") == values(tmp_path / "calm.sqlite")
    assert len(rows(tmp_path / "calm.sqlite")) == 120
    runs = {p.name: p.read_text().count("run") for p in (tmp_path / "broken").iterdir()}
    stored = {f"{value_of(result) // 1000}-{seed}" for *_, seed, result in kept}
    assert all(runs[name] == 1 for name in stored)


def value_of(result):
    return json.loads(result)["value"]
