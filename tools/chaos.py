"""Faults of a Dask cluster on this machine: its processes, its network, its clocks. Writes docs/evidence/robustness.md.

python -m tools.chaos [--faults 200] [--seed 0] [--only NAME] [--docs docs/evidence/robustness.md]

Each fault comes at a random moment of `relfit compare --cluster --checkpoint`. The command must end with the bytes of
an undisturbed one; or with status 2 and one line, and then the same command gives these bytes, without any finished
part being lost. Clients and workers reach the scheduler through ports of this script, which can be slow, silent or cut.
A clock that jumps is `time.time` of the Python process; the system's own clock stays as it is.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from distributed import Client

from relfit.compute.checkpoint import CHECKPOINT
from relfit.util.files import Database, write_text_atomic
from tools.cluster import ENVIRONMENT, Cluster, Wire

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from marks import table, written  # noqa: E402

ROWS, PATCH = 4800, 960
CONSTANTS = {
    "relfit.compute.reduce:PATCH_ROWS": PATCH,
    "relfit.compute.reduce:BLOCK_ROWS": PATCH,
    # Workers count as idle after ten looks: twenty seconds by default, too long where a whole run takes two.
    "relfit.compute.schedulers:POLL_INTERVAL": 0.3,
}
# The scheduler gives up a silent worker after ten heartbeats, five seconds. Nothing waits longer than this for an end.
SILENT, LONGEST = "3s", 120.0
# What all Python processes load first, and all workers at last.
CLOCK = """
import os, time
_time = time.time
def shifted():
    try:
        with open(os.path.join({folder!r}, f"clock-{{os.getpid()}}")) as file:
            return _time() + float(file.read() or 0.0)
    except OSError:
        return _time()
time.time = shifted
"""
TWICE = """
import os
def dask_setup(worker):
    send = worker.batched_send
    def twice(message):
        send(message)
        if message.get("op") == "task-finished" and os.path.exists({folder!r} + "/twice"):
            for seconds in (0.0, 0.3, 2.0):
                worker.loop.call_later(seconds, send, dict(message))
            with open({folder!r} + "/repeated", "a") as file:
                file.write("...")
    worker.batched_send = twice
"""


class Process:
    """A fork of a process that has imported everything."""

    def __init__(self, ask, request):
        self.ask, self.pid, self.status = ask, ask(request), None

    def poll(self):
        """The exit status; None while it runs."""
        if self.status is None:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
            if stat.rpartition(")")[2].split()[0] in "ZX":
                self.status = self.ask({"wait": self.pid})
        return self.status

    def wait(self):
        while self.poll() is None:
            time.sleep(0.01)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


@dataclass
class Forks(Cluster):
    """A cluster of such forks; its workers reach the scheduler by the wire."""

    start: Callable | None = None
    wire: Wire | None = None

    def start_worker(self):
        options = "--nthreads=1", "--no-nanny", "--no-dashboard", "--preload=twice.py"
        self.workers.append(self._process("worker", self.wire.address, *options))

    def _process(self, kind, *options):
        more = ["--no-dashboard", "--host=127.0.0.1"] if kind == "scheduler" else []
        return self.start([*options, *more], kind, main=f"distributed.cli.dask_{kind}:main")


class Chaos:
    """A cluster behind wires, a process from which all others are forked, and one run after another."""

    def __init__(self, folder, rng, rows=ROWS):
        self.folder, self.rng, self.client = Path(folder), rng, None
        self.clients, self.workers = Wire(), Wire()
        (self.folder / "sitecustomize.py").write_text(CLOCK.format(folder=str(folder)))
        (self.folder / "twice.py").write_text(TWICE.format(folder=str(folder)))
        (self.folder / "tmp").mkdir()
        path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        self.variables = {
            "PYTHONPATH": path,
            "TMPDIR": str(self.folder / "tmp"),
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": SILENT,
        }
        draws = np.random.default_rng(0)
        for k, name in enumerate("rab"):
            np.save(self.folder / f"{name}.npy", draws.normal(0.03 * k, 1.0, (rows, 8)))
        self.zygote = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("zygote.py")),
                "distributed.cli.dask_worker",
                "distributed.cli.dask_scheduler",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **self.variables},
        )
        self.cluster = None
        self.heal()

    # The cluster.

    def heal(self):
        """Undo every fault, so that a scheduler and two workers are there and idle, with nothing of earlier runs."""
        for path in [*self.folder.glob("clock-*"), self.folder / "twice"]:
            path.unlink(missing_ok=True)
        for wire in (self.clients, self.workers):
            wire.delay, wire.held = 0.0, False
        if self.cluster is not None:
            for process in [self.cluster.scheduler, *self.cluster.workers]:
                process.send_signal(signal.SIGCONT)
            try:
                return self._idle()
            except (OSError, TimeoutError) as error:
                print("another cluster:", error, flush=True)
                self.cluster.stop()
        self.cluster = Forks(str(self.folder), start=self.fork, wire=self.workers)
        self.cluster.start_scheduler()
        self.clients.target = self.workers.target = self.cluster.port
        return self._idle()

    def _idle(self):
        deadline = time.monotonic() + 60
        with Client(self.cluster.address, timeout=10, set_as_default=False) as client:
            while True:
                self.tend()
                with_rows = client.run(lambda dask_worker: len(dask_worker.data), on_error="ignore")
                busy = any(client.processing().values()) or any(with_rows.values())
                if len(with_rows) == len(self.cluster.workers) == 2 and not busy:
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError("work or rows stayed on the workers, or a worker does not come")
                time.sleep(0.1)

    def tend(self):
        """Start a worker for each that has ended, as the managers of clusters do."""
        self.cluster.workers = [worker for worker in self.cluster.workers if worker.poll() is None]
        for _ in range(2 - len(self.cluster.workers)):
            self.cluster.start_worker()

    def known(self):
        """The workers that the scheduler knows."""
        with Client(self.cluster.address, timeout=10, set_as_default=False) as client:
            return set(client.scheduler_info(n_workers=-1)["workers"])

    # The client.

    def ask(self, request):
        self.zygote.stdin.write(json.dumps(request) + "\n")
        self.zygote.stdin.flush()
        return int(self.zygote.stdout.readline())

    def fork(self, args, log, **more):
        where = {"folder": str(self.folder), "out": str(self.folder / log), "room": None}
        return Process(self.ask, {"args": args, **where, **more})

    def start(self, *more):
        for name in ("out.json", "client.err"):
            (self.folder / name).unlink(missing_ok=True)
        args = ["compare", "r.npy", "a.npy", "b.npy", "--seed", "0", "--json", "out.json", *more]
        self.client = self.fork(args, "client", constants=CONSTANTS)

    def runs(self):
        """True until the client has ended."""
        return self.client.poll() is None

    def sleep(self, least, most):
        """A random time, while lost workers are replaced; shorter if the client ends."""
        end = time.monotonic() + self.rng.uniform(least, most)
        while time.monotonic() < end and self.runs():
            self.tend()
            time.sleep(0.02)

    def end(self):
        """The status of the client, once it has ended, and what it wrote to standard error."""
        deadline = time.monotonic() + LONGEST
        while self.runs():
            if time.monotonic() > deadline:
                self.client.send_signal(signal.SIGABRT)
            self.tend()
            time.sleep(0.02)
        return self.client.status, (self.folder / "client.err").read_text(encoding="utf-8")

    @property
    def on_cluster(self):
        return "--cluster", self.clients.address, "--checkpoint", "run.sqlite"

    def finished(self):
        """The finished parts in the checkpoint."""
        if not (self.folder / "run.sqlite").exists():
            return set()
        with Database(self.folder / "run.sqlite", CHECKPOINT) as file:
            return set(file.connection.execute("SELECT work, patch, checksum FROM patches").fetchall())

    def answer(self):
        path = self.folder / "out.json"
        return path.read_bytes() if path.exists() else b""

    def undisturbed(self):
        """The answer here and on the cluster, which must be the same; and the seconds that it takes there."""
        self.start()
        assert self.end() == (0, "")
        here = self.answer()
        for _ in range(2):
            self._forget()
            started = time.monotonic()
            self.start(*self.on_cluster)
            assert self.end() == (0, "")
            assert self.answer() == here
        return here, time.monotonic() - started

    def _forget(self):
        for path in self.folder.glob("run.sqlite*"):
            path.unlink()

    def trial(self, fault, expected, usual):
        """One run with this fault, and what became of it. None if the run ended before the fault came."""
        self._forget()
        self.start(*self.on_cluster)
        self.sleep(0.0, 0.9 * usual)
        if not self.runs():
            self.end()
            return None
        fault(self)
        status, errors = self.end()
        killed, lines = status == -signal.SIGKILL, errors.splitlines()
        wrong = []
        if status == 0 and (self.answer() != expected or lines):
            wrong.append(f"the answer differs: {self.answer() != expected}")
        if status != 0 and not killed and (status != 2 or not is_clear(lines)):
            wrong.append(f"status {status}")
        if killed and fault is not kill_client:
            wrong.append("killed")
        before, again = self.finished(), False
        self.heal()
        if status != 0:
            self.start(*self.on_cluster)
            again, more = self.end()
            if (again, more, self.answer()) != (0, "", expected) or not before <= self.finished():
                wrong.append(f"not resumed: status {again}, {more!r}")
        if list((self.folder / "tmp").glob("relfit-*")):
            wrong.append("a temporary folder is left")
        if fault is kill_client and status == 0 and not wrong:
            return None  # It ended before the signal came.
        if wrong:
            print("WRONG", fault.__name__, wrong, errors, sep="\n", flush=True)
        elif lines:
            print(lines[-1], flush=True)
        return "wrong" if wrong else "killed" if killed else "said" if status else "same"

    def stop(self):
        """End everything."""
        self.cluster.stop()
        self.zygote.stdin.close()
        self.zygote.stdout.close()
        self.zygote.wait()


def is_clear(lines):
    """One line that says what is wrong, after one that says what the checkpoint holds."""
    holds = r"relfit: run\.sqlite holds \d+ finished parts of \d+; the same command resumes from there"
    return bool(lines) and lines[-1].startswith("relfit: error: ") and all(re.fullmatch(holds, x) for x in lines[:-1])


@contextmanager
def paused(process):
    """A process that is stopped for a while."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


# The faults.


def pause_worker(chaos):
    """a worker pauses for up to 3 s"""
    with paused(chaos.rng.choice(chaos.cluster.workers)):
        chaos.sleep(0.1, 3.0)


def late_worker(chaos):
    """a worker pauses until another has done its work, then it answers"""
    before = chaos.known()
    with paused(chaos.rng.choice(chaos.cluster.workers)):
        deadline = time.monotonic() + 20
        while before <= chaos.known() and chaos.runs() and time.monotonic() < deadline:
            time.sleep(0.1)
        chaos.sleep(0.5, 2.0)


def kill_worker(chaos):
    """a worker is killed"""
    chaos.rng.choice(chaos.cluster.workers).kill()


def kill_workers(chaos):
    """all workers are killed"""
    for worker in chaos.cluster.workers:
        worker.kill()


def repeat_answers(chaos):
    """workers send each answer four times, at once and up to 2 s later"""
    (chaos.folder / "twice").touch()
    chaos.sleep(3.0, 4.0)


def pause_scheduler(chaos):
    """the scheduler pauses for up to 3 s"""
    with paused(chaos.cluster.scheduler):
        chaos.sleep(0.1, 3.0)


def kill_scheduler(chaos):
    """the scheduler is killed, and another takes its port"""
    chaos.cluster.scheduler.kill()
    chaos.cluster.scheduler.wait()
    chaos.cluster.start_scheduler()


def pause_client(chaos):
    """the client pauses for up to 3 s"""
    with paused(chaos.client):
        chaos.sleep(0.1, 3.0)


def kill_client(chaos):
    """the client is killed"""
    chaos.client.kill()


def slow_network(chaos):
    """everything from and to the scheduler takes 0.05 to 0.3 s longer"""
    chaos.clients.delay = chaos.workers.delay = chaos.rng.uniform(0.05, 0.3)
    chaos.sleep(3.0, 6.0)
    chaos.clients.delay = chaos.workers.delay = 0.0


def silent_network(chaos):
    """nothing reaches the scheduler, from clients or from workers, for 1 to 8 s"""
    wire = chaos.rng.choice([chaos.clients, chaos.workers])
    wire.held = True
    chaos.sleep(1.0, 8.0)
    wire.held = False


def cut_client(chaos):
    """the client's connections are cut"""
    chaos.clients.cut()


def cut_workers(chaos):
    """all connections of workers to the scheduler are cut"""
    chaos.workers.cut()


def cut_after_silence(chaos):
    """nothing reaches the scheduler for 1 to 4 s, then all connections are cut"""
    chaos.clients.held = chaos.workers.held = True
    chaos.sleep(1.0, 4.0)
    chaos.clients.cut()
    chaos.workers.cut()
    chaos.clients.held = chaos.workers.held = False


def jump(chaos):
    """a clock jumps by up to a day, forth or back, and after 2 s it is right again"""
    pids = [chaos.client.pid, chaos.cluster.scheduler.pid, chaos.rng.choice(chaos.cluster.workers).pid]
    path = chaos.folder / f"clock-{chaos.rng.choice(pids)}"
    path.write_text(str(chaos.rng.choice([-1, 1]) * 86_400 ** chaos.rng.random()))
    chaos.sleep(2.0, 2.0)
    path.unlink()


def three(chaos):
    """three of these, one after the other"""
    for fault in chaos.rng.sample([fault for fault in FAULTS if fault not in (three, kill_client)], 3):
        if chaos.runs():
            fault(chaos)


# Their shares in 200.
FAULTS = {
    pause_worker: 15,
    late_worker: 15,
    kill_worker: 15,
    kill_workers: 10,
    repeat_answers: 15,
    pause_scheduler: 15,
    kill_scheduler: 15,
    pause_client: 10,
    kill_client: 15,
    slow_network: 10,
    silent_network: 10,
    cut_client: 10,
    cut_workers: 10,
    cut_after_silence: 5,
    jump: 20,
    three: 10,
}


def main():
    """All faults, in a random order, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="the name of one fault")
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    share = options.faults / 200
    chosen = {fault: max(1, round(share * count)) for fault, count in FAULTS.items()}
    if options.only:
        chosen = {fault: options.faults for fault in FAULTS if fault.__name__ == options.only}
    order = [fault for fault, count in chosen.items() for _ in range(count)]
    rng.shuffle(order)
    seen = {fault: Counter() for fault in chosen}
    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(folder, rng)
        try:
            expected, usual = chaos.undisturbed()
            print(f"undisturbed: {usual:.1f} s", flush=True)
            for number, fault in enumerate(order, 1):
                outcome, started = None, time.monotonic()
                while outcome is None:
                    outcome = chaos.trial(fault, expected, usual)
                seen[fault][outcome] += 1
                print(number, fault.__name__, outcome, f"{time.monotonic() - started:.1f} s", flush=True)
        except KeyboardInterrupt:
            print("stopped: the table counts what was done", flush=True)
        finally:
            repeated = len((chaos.folder / "repeated").read_text()) if (chaos.folder / "repeated").exists() else 0
            chaos.stop()
    kinds = ("same", "said", "killed", "wrong")
    rows = [(f.__doc__, sum(c.values()), *(c[kind] or "" for kind in kinds)) for f, c in seen.items()]
    total = sum(seen.values(), Counter())
    rows.append(("**all**", total.total(), *(total[kind] for kind in kinds)))
    text = table(
        ["fault", "times", "the same bits", "one line, then resumed: the same bits", "resumed: the same bits", "wrong"],
        rows,
    )
    text += f"\n\n{repeated} answers were sent more than once."
    print(text)
    if options.docs is not None:
        write_text_atomic(options.docs, written(options.docs.read_text(encoding="utf-8"), {"chaos": text}))
    sys.exit(total["wrong"] > 0)


if __name__ == "__main__":
    main()
