"""A real Dask cluster of processes on this machine, for tests that kill parts of it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
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


class Wire:
    """A port that leads to the scheduler; what goes through it can be delayed, held back or cut off."""

    def __init__(self):
        self.target, self.delay, self.held, self.links = 0, 0.0, False, set()
        self.loop, ready = asyncio.new_event_loop(), threading.Event()
        threading.Thread(target=self._run, args=[ready], daemon=True).start()
        ready.wait()

    def _run(self, ready):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._link, "127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        self.loop.run_forever()

    async def _link(self, reader, writer):
        try:
            theirs = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        link = (writer, theirs[1])
        self.links.add(link)
        await asyncio.gather(self._pass(reader, theirs[1]), self._pass(theirs[0], writer), return_exceptions=True)
        self.links.discard(link)

    async def _pass(self, reader, writer):
        try:
            while data := await reader.read(2**16):
                await asyncio.sleep(self.delay)
                while self.held:
                    await asyncio.sleep(0.05)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    def cut(self):
        """Reset every connection."""
        self.loop.call_soon_threadsafe(lambda: [writer.transport.abort() for link in self.links for writer in link])


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
