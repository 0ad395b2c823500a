"""A day of mixed calls in one process, without the waiting: nothing may grow or stay. Writes robustness.md.

python -m tools.soak [--minutes 20] [--seed 0] [--docs docs/evidence/robustness.md]

Commands, calls from eight threads at a time, worker processes, refused input and signals at random moments follow each
other in random order. A twenty-fourth of the time is an hour of the day. After each hour is counted what the process
holds. The first four hours are for warming up: caches fill, and libraries are loaded.
"""

import argparse
import contextlib
import gc
import io
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

import relfit
from relfit import cli
from relfit.cli import commands, workers
from relfit.compute import reduce
from relfit.compute.memory import held_bytes
from relfit.util.files import write_text_atomic

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from marks import table, written  # noqa: E402

HOURS, WARM, MOST_GROWTH = 24, 4, 5e6
DATA = ["r.npy", "a.npy", "b.npy"]
LABELLED = ["--dependence", "paired", "--groups", "labels.csv"]
# Each command with its status and how often it comes.
COMMANDS = {
    "compare": (["compare", *DATA, "--json", "compare.json"], 0, 8),
    "compare, the page": (["compare", *DATA, "--html", "out.html"], 0, 2),
    "compare, groups and a gate": (["compare", *DATA, *LABELLED, "--gate", "b", "--json", "groups.json"], 1, 4),
    "compare, --memory": (["compare", "r.csv", "a.csv", "b.npy", "--memory", "2GB", "--json", "memory.json"], 0, 4),
    "compare, a checkpoint": (["compare", *DATA, "--checkpoint", "run.sqlite", "--json", "compare.json"], 0, 4),
    "compare, two processes": (["compare", *DATA, "--workers", "2", "--json", "compare.json"], 0, 1),
    "pair": (["pair", *DATA, "--json", "pair.json"], 0, 4),
    "losses": (["losses", "table.csv", "--lower-is-better", "--json", "losses.json"], 0, 4),
    "plan": (["plan", *DATA, "--trials", "100", "--json", "plan.json"], 0, 1),
    "report": (["report", "result.json", *DATA, "--html", "out.html"], 0, 1),
    "rerun": (["rerun", "result.json"], 0, 4),
    "monitor add": (["monitor", "add", "items.csv", "--item", "id", "--state", "gate.sqlite"], 0, 2),
    "refused: a missing file": (["compare", "r.npy", "nothing.npy", "b.npy"], 2, 2),
    "refused: NaN": (["compare", "r.npy", "nan.npy", "b.npy"], 2, 2),
    "refused: an output that is an input": (["compare", *DATA, "--json", "a.npy"], 2, 2),
}
THREADS, INTERRUPTED = "compare in eight threads", "ended by a signal"


def inputs():
    """What the commands read."""
    rng = np.random.default_rng(0)
    for k, name in enumerate(DATA):
        np.save(name, rng.normal(k, 1.0, (240, 2)))
    np.save("nan.npy", np.full((240, 2), np.nan))
    for name in "ra":
        np.savetxt(f"{name}.csv", np.load(f"{name}.npy"), delimiter=",")
    np.savetxt("labels.csv", np.repeat(np.arange(80), 3), fmt="g%d")
    np.savetxt("table.csv", rng.normal((0, 1), 1.0, (60, 2)), delimiter=",", header="x,y", comments="")
    items = np.column_stack([np.arange(40), rng.random((40, 2))])
    np.savetxt("items.csv", items, delimiter=",", header="id,x,y", comments="", fmt=["i%d", "%g", "%g"])


def count(folder):
    """The number of entries."""
    return len(list(Path(folder).iterdir()))


class Soak:
    """One process that never ends."""

    def __init__(self, rng):
        self.rng, self.counts, self.answers = rng, Counter(), {}
        self.samples = {name.removesuffix(".npy"): np.load(name) for name in DATA}
        self.reference = self.samples.pop("r")
        self.nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (open until the end)

    def command(self, name):
        """Run a command: its status and its answer are as always."""
        args, expected, _ = COMMANDS[name]
        for path in [*Path().glob("run.sqlite*"), *Path().glob("gate.sqlite*")]:
            path.unlink()
        with contextlib.redirect_stdout(self.nowhere), contextlib.redirect_stderr(io.StringIO()) as errors:
            status = cli.main(args)
        assert status in (expected, 128 + signal.SIGINT, 128 + signal.SIGTERM), (name, status, errors.getvalue())
        if status == expected and args[-1].endswith(".json") and status != 2 and "--json" in args:
            answer = Path(args[-1]).read_bytes()
            assert self.answers.setdefault(args[-1], answer) == answer, name
        return status

    def interrupted(self):
        """A command that gets a signal at a random moment after its imports; it may have ended before."""
        name, number = self.rng.choice(list(COMMANDS)), self.rng.choice([signal.SIGINT, signal.SIGTERM])
        timer, run = threading.Timer(self.rng.uniform(0.0, 0.2), os.kill, (os.getpid(), number)), commands.run

        def run_with_signal(args):
            try:
                timer.start()
                return run(args)
            finally:
                timer.cancel()
                timer.join()
                time.sleep(0.001)  # A signal that has just come is noticed here.

        commands.run = run_with_signal
        try:
            status = self.command(name)
        finally:
            commands.run = run
        self.counts[INTERRUPTED if status > 128 else name] += 1

    def threads(self):
        """The same comparison in eight threads at a time."""
        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(relfit.compare, self.reference, self.samples, rng=0) for _ in range(8)]
            answers = {call.result().to_json() for call in calls}
        assert len(answers | {self.answers.setdefault("threads", next(iter(answers)))}) == 1
        self.counts[THREADS] += 8

    def one(self):
        """One of the calls, or a signal during one of them."""
        names = [*COMMANDS, THREADS, INTERRUPTED]
        [name] = self.rng.choices(names, [*(often for *_, often in COMMANDS.values()), 2, 6])
        if name == THREADS:
            self.threads()
        elif name == INTERRUPTED:
            self.interrupted()
        else:
            self.counts[name] += 1
            self.command(name)

    def held(self):
        """What the process holds now."""
        gc.collect()
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
        return {
            "memory, MB": held_bytes() / 1e6,
            "descriptors": count("/proc/self/fd"),
            "threads of Python": threading.active_count(),
            "threads of the system": count("/proc/self/task"),
            "temporary files": count(tempfile.gettempdir()),
            "files beside the outputs": len(list(Path().glob(".*.tmp"))),
            "child processes": len(children),
            "worker processes": len(multiprocessing.active_children()),
            "BLAS threads": "+".join(str(x["num_threads"]) for x in threadpool_info() if x["user_api"] == "blas"),
        }


def main():
    """The day, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    page = options.docs and options.docs.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("tmp").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(Path("tmp").absolute())
        start, hours, counts = day(options)
        os.chdir("/")
    first, last = hours[WARM - 1], hours[-1]
    # These are settled once the first worker process, and the first library, has been started.
    start.update({name: first[name] for name in ("descriptors", "threads of the system", "child processes")})
    memory = [hour["memory, MB"] for hour in hours[WARM - 1 :]]
    rows = [("calls", "", counts.total())]
    rows += [
        (f"memory, MB (from {min(memory):.1f} to {max(memory):.1f})", *(f"{x:.1f}" for x in (memory[0], memory[-1])))
    ]
    rows += [(name, first[name], last[name]) for name in first if name != "memory, MB"]
    text = table(["", f"after {WARM} hours", f"after {HOURS} hours"], rows)
    text += f"\n\n{HOURS} hours in {options.minutes:g} minutes."
    text += " " + "; ".join(f"{name}: {count}" for name, count in sorted(counts.items())) + "."
    print(text)
    if page is not None:
        write_text_atomic(page, written(page.read_text(encoding="utf-8"), {"soak": text}))
    assert max(memory) - memory[0] < MOST_GROWTH / 1e6, memory
    assert all(start[name] == last[name] for name in first if name != "memory, MB"), (start, last)


def day(options):
    """What the process held after each hour, and the numbers of calls."""
    # Worker processes although there are few rows.
    reduce.PATCH_ROWS, workers.FEW_PAIRS = reduce.BLOCK_ROWS, 0.0
    inputs()
    soak = Soak(random.Random(options.seed))
    start = soak.held()
    soak.command("compare")
    Path("result.json").write_bytes(Path("compare.json").read_bytes())
    for name in COMMANDS:
        soak.command(name)
    hours, started = [], time.monotonic()
    for hour in range(1, HOURS + 1):
        while time.monotonic() - started < 60.0 * options.minutes * hour / HOURS:
            soak.one()
        hours.append(soak.held())
        print(hour, soak.counts.total(), hours[-1], flush=True)
    return start, hours, soak.counts


if __name__ == "__main__":
    main()
