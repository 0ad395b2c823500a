"""Dask on real processes: the same bits, and every kind of loss is recovered from or reported in one line."""

import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import relfit
from relfit.compute import reduce, schedulers
from relfit.compute.checkpoint import finished_patches
from relfit.util.errors import WorkersLost

distributed = pytest.importorskip("distributed", reason="needs dask.distributed")

from tools.cluster import Wire, running  # noqa: E402

N = 2500


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(reduce, "PATCH_ROWS", 500)
    monkeypatch.setattr(reduce, "BLOCK_ROWS", 500)
    monkeypatch.setattr(schedulers, "POLL_INTERVAL", 0.2)


@pytest.fixture(scope="module")
def samples():
    """A reference and two models."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 5)), {k: rng.normal(s, 1, (N, 5)) for k, s in {"a": 0.0, "b": 0.1}.items()}


@pytest.fixture(scope="module")
def expected(samples):
    """The answer of this process, with the same patches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce, "PATCH_ROWS", 500)
        patch.setattr(reduce, "BLOCK_ROWS", 500)
        return relfit.estimate(*samples, rng=0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of two workers, for the tests that do not damage it."""
    with running(tmp_path_factory.mktemp("cluster"), 2) as both:
        yield both


def estimated(samples, *, executor=None, checkpoint=None, **options):
    """The estimate where the executor is."""
    compute = relfit.Compute(executor=executor, checkpoint=checkpoint)
    return relfit.estimate(*samples, rng=0, compute=compute, **options)


def same(joint, expected):
    """The same bits."""
    np.testing.assert_array_equal(joint.values, expected.values)
    np.testing.assert_array_equal(joint.covariance, expected.covariance)


def at(fraction, action):
    """A progress function that does something once, when this fraction is done."""
    done = threading.Event()

    def progress(now, total):
        if now >= fraction * total and not done.is_set():
            done.set()
            action()

    return progress


def test_same_bits_from_a_client_and_its_executor_and_no_rows_stay(samples, expected, cluster):
    _, client = cluster
    seen = []
    report = lambda *now: seen.append(now)  # noqa: E731
    same(estimated(samples, executor=client, progress=report), expected)
    assert seen[-1][0] == seen[-1][1]
    same(estimated(samples, executor=client.get_executor()), expected)
    estimated(samples, executor=client)
    held = client.run(lambda dask_worker: len(dask_worker.data))
    deadline = time.monotonic() + 20
    while any(held.values()) and time.monotonic() < deadline:
        time.sleep(0.2)
        held = client.run(lambda dask_worker: len(dask_worker.data))
    assert not any(held.values())


@pytest.mark.parametrize("seen", [True, False], ids=["files that workers see", "files that they do not see"])
def test_files_go_by_their_path(samples, expected, cluster, tmp_path, monkeypatch, seen):
    _, client = cluster
    reference, models = samples
    for name, rows in {"r": reference, **models}.items():
        np.save(tmp_path / f"{name}.npy", rows)
    sent, scatter = [], client.scatter
    monkeypatch.setattr(client, "scatter", lambda rows, **options: sent.extend(rows) or scatter(rows, **options))
    if not seen:
        monkeypatch.setattr(schedulers, "seen_here", lambda rows: False)
    files = {name: str(tmp_path / f"{name}.npy") for name in models}
    same(estimated((str(tmp_path / "r.npy"), files), executor=client), expected)
    assert len(sent) == (0 if seen else 3)


def test_work_of_a_killed_worker_is_resubmitted(samples, expected, tmp_path):
    with running(tmp_path, 2) as (cluster, client):
        same(estimated(samples, executor=client, progress=at(0.2, cluster.kill_worker)), expected)


def test_all_workers_lost_for_good(samples, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(schedulers, "WORKER_TIMEOUT", 2.0)
    path = tmp_path / "run.sqlite"
    with (
        running(tmp_path, 1) as (cluster, client),
        pytest.raises(WorkersLost, match="no workers for 2 s; with a checkpoint"),
    ):
        estimated(samples, executor=client, checkpoint=path, progress=at(0.4, cluster.kill_worker))
    done, known = finished_patches(path)
    assert 0 < done < known
    same(estimated(samples, checkpoint=path), expected)


def test_a_network_that_is_gone_for_a_while(samples, expected, cluster):
    """The client is cut off, and what stands before the scheduler (a tunnel, a balancer) ends each new connection."""
    wire, port = Wire(), cluster[0].port
    wire.target = port

    def cut():
        wire.target = 1
        wire.cut()
        threading.Timer(3.0, setattr, (wire, "target", port)).start()

    with distributed.Client(wire.address, set_as_default=False) as client:
        same(estimated(samples, executor=client, progress=at(0.3, cut)), expected)


def test_too_little_memory_is_refused_before_anything_is_killed(tmp_path):
    """A worker of 64 MB, of which 60% may be filled, and two samples of 24 MB each for one patch."""
    wide = np.random.default_rng(0).normal(size=(3, 1500, 2000))
    with running(tmp_path, 1, "--memory-limit=64MB") as (_, client):
        said = r"worker tcp://.* has 0.064 GB and needs about .* give memory= for"
        with pytest.raises(relfit.InputError, match=said):
            estimated((wide[0], dict(zip("ab", wide[1:], strict=True))), executor=client)
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 1


def test_errors_of_the_work_come_through(samples, cluster):
    _, client = cluster
    # Fails on tiles only, so that it passes the checks; a lambda, which is sent as it is.
    kernel = relfit.Radial(lambda t: np.exp(-t) if t.size < 10_000 else 1 // 0)
    with pytest.raises(ZeroDivisionError):
        estimated(samples, executor=client, kernel=kernel)


def test_a_task_that_the_scheduler_forgot_is_resubmitted(samples, expected, cluster, monkeypatch):
    """A scheduler that loses a worker at the wrong moment leaves tasks queued for ever (seen with dask 2026.8)."""
    _, client = cluster
    real, forgotten = client.submit, []

    def submit(*args, **options):
        if len(forgotten) == 0:
            # Never finishes, and is on no worker: a future of a key that nobody computes.
            forgotten.append(options["key"])
            return distributed.Future(options["key"], client)
        return real(*args, **options)

    monkeypatch.setattr(client, "submit", submit)
    same(estimated(samples, executor=client), expected)
    assert forgotten


def test_an_interrupt_of_the_client(cluster, tmp_path, rng):
    """Ctrl-C in the middle of a run: two lines, a checkpoint, and workers without work or rows."""
    _, client = cluster
    for name in "rab":
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(6000, 5)))
    script = "import sys; from relfit import cli; from relfit.compute import reduce\n"
    script += "reduce.PATCH_ROWS = reduce.BLOCK_ROWS = 448\nsys.exit(cli.main(sys.argv[1:]))"
    where = ["--cluster", client.scheduler.address, "--checkpoint", "run.sqlite"]
    command = [sys.executable, "-c", script, "compare", "r.npy", "a.npy", "b.npy", *where]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "run.sqlite-wal"
    while not log.exists() or log.stat().st_size < 50_000:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    said = (
        r"relfit: run.sqlite holds \d+ finished parts of \d+; the same command resumes from there\s+relfit: interrupted"
    )
    assert re.fullmatch(said, errors.strip())
    deadline = time.monotonic() + 30
    while any(client.processing().values()) or any(client.run(lambda dask_worker: len(dask_worker.data)).values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """Folders for PYTHONPATH, each with another relfit: none, a broken one, and one of another version."""
    folder, package = tmp_path_factory.mktemp("strangers"), Path(relfit.__file__).parent
    for kind in ("none", "broken", "other"):
        shutil.copytree(package, folder / kind / "relfit", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "none/relfit/__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'relfit'\")")
    (folder / "broken/relfit/compute/reduce.py").unlink()
    version = folder / "other/relfit/util/__init__.py"
    version.write_text(version.read_text().replace(relfit.__version__, "0.0.7"))
    return folder


STRANGERS = {
    "none": r"cannot load relfit \(ModuleNotFoundError: No module named 'relfit'\); install relfit",
    "broken": r"cannot load relfit \(.*No module named 'relfit.compute.reduce'\); install relfit",
    "other": r"has relfit 0.0.7, and answers may differ; install relfit",
}


def test_workers_with_another_relfit_are_refused_before_any_work(samples, strangers, tmp_path):
    with running(tmp_path, 0) as (cluster, client):
        for kind, words in STRANGERS.items():
            cluster.start_worker(PYTHONPATH=str(strangers / kind))
            client.wait_for_workers(1, timeout=120)
            with pytest.raises(relfit.InputError, match=rf"^executor: worker tcp://.* {words}"):
                estimated(samples, executor=client)
            assert not any(client.run(lambda dask_worker: dask_worker.state.executed_count).values())
            cluster.kill_worker()
            while client.nthreads():
                time.sleep(0.05)
