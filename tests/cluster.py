"""A real Dask cluster of processes on this machine, for tests that kill parts of it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from distributed import Client

ENVIRONMENT = {
    **os.environ,
    "OPENBLAS_NUM_THREADS": "1",
    # Lost workers are noticed by their closed connections; no test should wait for a timeout.
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "3",
    "DASK_DISTRIBUTED__WORKER__DAEMON": "False",
}


@dataclass
class Cluster:
    """A scheduler and its workers, each a process of its own."""

    folder: str
    port: int = 0
    scheduler: subprocess.Popen | None = None
    workers: list = field(default_factory=list)

    @property
    def address(self):
        """The address that the scheduler listens at."""
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self):
        """Start it, on the same port if it ran before."""
        file = Path(self.folder, f"scheduler-{time.monotonic_ns()}.json")
        self.scheduler = self._process("scheduler", f"--port={self.port}", f"--scheduler-file={file}")
        deadline = time.monotonic() + 60
        while not (file.exists() and file.stat().st_size):
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        self.port = int(json.loads(file.read_text(encoding="utf-8"))["address"].rsplit(":", 1)[1])

    def start_worker(self, *options, **variables):
        """One more worker of one thread, without a nanny that would start it again; with these variables set."""
        given = ("--nthreads=1", "--no-nanny", "--no-dashboard", *options)
        self.workers.append(self._process("worker", self.address, *given, **variables))

    def kill_worker(self, which=0):
        """kill -9."""
        worker = self.workers.pop(which)
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    def _process(self, kind, *options, **variables):
        more = ["--no-dashboard", "--host=127.0.0.1"] if kind == "scheduler" else []
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + kind, *options, *more],
            cwd=self.folder,
            env={**ENVIRONMENT, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self):
        """End everything."""
        for process in [*self.workers, self.scheduler]:
            if process is not None:
                process.kill()
                process.wait()


@contextmanager
def running(folder, workers=2, *options):
    """A cluster and a client of it."""
    cluster = Cluster(str(folder))
    try:
        cluster.start_scheduler()
        for _ in range(workers):
            cluster.start_worker(*options)
        with Client(cluster.address, timeout=60) as client:
            if workers:
                client.wait_for_workers(workers, timeout=120)
            yield cluster, client
    finally:
        cluster.stop()
