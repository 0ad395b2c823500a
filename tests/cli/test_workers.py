"""--workers, --cluster and --checkpoint."""

import multiprocessing
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import relfit
from relfit import cli
from relfit.cli import workers as cli_workers
from relfit.compute import reduce


@pytest.fixture
def files(tmp_path, rng, monkeypatch):
    """A reference and two models in files; patches of a few hundred rows."""
    monkeypatch.setattr(reduce, "PATCH_ROWS", 300)
    monkeypatch.setattr(reduce, "BLOCK_ROWS", 300)
    monkeypatch.chdir(tmp_path)
    for name, shift in {"r": 0.0, "a": 0.1, "b": 0.5}.items():
        np.save(f"{name}.npy", rng.normal(shift, 1, (800, 3)))
    return ["r.npy", "a.npy", "b.npy"]


def test_workers_give_the_same_bits(files, monkeypatch):
    monkeypatch.setattr(cli_workers, "FEW_PAIRS", 0.0)
    assert cli.main(["compare", *files, "--json", "here.json"]) == 0
    assert cli.main(["compare", *files, "--json", "there.json", "--workers", "2"]) == 0
    here, there = (relfit.Comparison.from_json(Path(name).read_text()) for name in ("here.json", "there.json"))
    np.testing.assert_array_equal(here.covariance, there.covariance)
    np.testing.assert_array_equal(here.pvalue, there.pvalue)
    assert cli.main(["pair", *files, "--workers", "1"]) == 0


def test_processes_once_there_is_enough_to_do(files, monkeypatch):
    """Patches of 300 rows: the first has 300 · 299/2 pairs, the second 300²; the third and all after it are sent."""
    monkeypatch.setattr(cli_workers, "FEW_PAIRS", 44_850 + 90_000)
    sent = []

    def here(pool, fn, *args):
        sent.append(args)
        done = Future()
        done.set_result(fn(*args))
        return done

    monkeypatch.setattr(ProcessPoolExecutor, "submit", here)
    assert cli.main(["compare", *files, "--workers", "2"]) == 0
    # 800 rows in 3 parts: 6 patches of a sample with itself, 9 of two samples; 3 and 2 times.
    assert len(sent) == 3 * 6 + 2 * 9 - 2


class _Never:
    def __init__(self, *_, **__):
        raise AssertionError("a client was made")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x", "127.0.0.1", "localhost:x", ""])
def test_nobody_there(files, address, capsys, monkeypatch):
    """Said at once, before there is a client that would have to be cleared away."""
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed")
    monkeypatch.setattr(distributed, "Client", _Never)
    assert cli.main(["compare", *files, "--cluster", address]) == 2
    said = capsys.readouterr().err
    assert said.startswith("relfit: error: --cluster: no Dask scheduler answers at")
    assert said.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM to be caught")
def test_a_cancelled_job_leaves_no_processes(files, tmp_path):
    """SIGTERM in the middle of the work: exit status 143, and the processes it started end as well."""
    script = tmp_path / "job.py"
    script.write_text(
        "import os, signal, sys, multiprocessing as m\n"
        "from relfit import cli\nfrom relfit.cli import workers as cli_workers\nfrom relfit.compute import reduce\n"
        "if __name__ == '__main__':\n"
        "    reduce.PATCH_ROWS = reduce.BLOCK_ROWS = 100\n"
        "    cli_workers.FEW_PAIRS = 0.0\n"
        "    submit = cli_workers._Processes.submit\n"
        "    def tell(pool, *args, **kwargs):\n"
        "        out = submit(pool, *args, **kwargs)\n"
        "        print(*(child.pid for child in m.active_children()), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        return out\n"
        "    cli_workers._Processes.submit = tell\n"
        "    sys.exit(cli.main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), "compare", *files, "--workers", "2"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 143, done.stderr
    children = [int(word) for word in done.stdout.split()]
    assert children
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in children):
            return
        time.sleep(0.1)
    pytest.fail("a process is still there")


def _interrupted_with_work_waiting():
    with cli_workers._processes(2) as pool:
        futures = [pool.submit(time.sleep, 0.2 if k < 4 else 60.0) for k in range(12)]
        futures[0].result()
        for future in futures:
            future.cancel()
        raise KeyboardInterrupt


def test_an_interrupt_leaves_no_thread(recwarn):
    """The thread that manages the processes ends with them, though futures that wait were cancelled before."""
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        _interrupted_with_work_waiting()
    assert set(threading.enumerate()) == before
    assert not multiprocessing.active_children()
    assert [str(w.message) for w in recwarn] == []
