"""What safety costs: the share of its own functions in a plain call, and two commits of this repository side by side.

python benchmarks/safety.py [--commits OLD NEW] [--rounds 200] [--docs docs/robustness.md]

Processor time is measured, which other work on the machine disturbs less than the time on the clock. A share is the
median over calls of the time within the functions that keep inputs, outputs, threads and signals safe; those of a
command are measured in a process of its own each time. With two commits, each has a process that makes a call whenever
it is asked to, the two in random order; the ratio is that of the medians, with the middle 95% of 2000 bootstrap samples
of the rounds.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from marks import table, written

ROOT = Path(__file__).parents[1]
# n, l, and how often the call is made in a round.
CALLS = {(200, 3): 5, (2000, 10): 1}
COMMAND = "`relfit compare`, three files of 200 rows"
# It measures calls: all seconds, those of the safe functions, and those of BLAS's own limit, which is older than they.
SHARE = """
import sys, time
total = time.process_time
import numpy as np, relfit
from relfit import cli
from relfit.cli import commands, outputs
from relfit.compute import checkpoint, reduce
from relfit.util import files, libraries
spent, depth = {"safe": 0.0, "limit": 0.0}, [0]

def timed(function, name):
    def wrapper(*args, **options):
        if name == "safe" and depth[0]:
            return function(*args, **options)
        started, depth[0] = time.thread_time(), depth[0] + (name == "safe")
        try:
            return function(*args, **options)
        finally:
            depth[0] -= name == "safe"
            spent[name] += time.thread_time() - started
    return wrapper

functions = [files.note_read, files.forget_read, files.was_read, files._check_replaced, files.remove_abandoned,
             outputs.check_outputs, checkpoint._checksum]
for module in [m for n, m in sys.modules.items() if n.startswith("relfit")]:
    for key, value in list(vars(module).items()):
        if any(value is function for function in functions):
            setattr(module, key, timed(value, "safe"))
for cls, names in ((libraries.Shared, ("__enter__", "__exit__")), (cli._Signals, ("__init__", "restore"))):
    for name in names:
        setattr(cls, name, timed(getattr(cls, name), "safe"))
limits = type(reduce._blas().limit(limits=None))
reduce._blas().__class__.limit = timed(reduce._blas().__class__.limit, "limit")
limits.__exit__ = timed(limits.__exit__, "limit")
if sys.argv[1] == "command":
    assert cli.main(sys.argv[2:]) == 0
    print(total(), spent["safe"], spent["limit"], file=sys.stderr)
else:
    n, l, count = map(int, sys.argv[2:])
    rng = np.random.default_rng(0)
    data = rng.normal(size=(n, 5)), {f"m{k}": rng.normal(0.02 * k, 1.0, (n, 5)) for k in range(l)}
    relfit.compare(*data, rng=0)
    for _ in range(count):
        spent.update(safe=0.0, limit=0.0)
        started = total()
        relfit.compare(*data, rng=0)
        print(total() - started, spent["safe"], spent["limit"], file=sys.stderr)
"""
# It makes the calls, and answers with their processor time.
CALLER = """
import sys, time
import numpy as np, relfit
rng = np.random.default_rng(0)
data = {}
for line in sys.stdin:
    n, l, count = map(int, line.split())
    if (n, l) not in data:
        data[n, l] = rng.normal(size=(n, 5)), {f"m{k}": rng.normal(0.02 * k, 1.0, (n, 5)) for k in range(l)}
        relfit.compare(*data[n, l], rng=0)
    started = time.process_time()
    for _ in range(count):
        relfit.compare(*data[n, l], rng=0)
    print((time.process_time() - started) / count, flush=True)
"""


def checkout(commit, folder):
    """The package as it was."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    Path(folder).mkdir()
    subprocess.run(["tar", "x", "-C", folder], input=archive, check=True)
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    return {**os.environ, **one, "PYTHONPATH": f"{folder}/src", "PYTHONDONTWRITEBYTECODE": ""}


def command_seconds(environment, folder):
    """The processor time of the command line as a process of its own."""
    command = [sys.executable, "-m", "relfit", "compare", "r.npy", "a.npy", "b.npy", "--json", "out.json"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def shares(rounds, folder):
    """Rows of the first table: milliseconds of a call, and the shares of the safe functions and of BLAS's limit."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    for name in "rab":
        np.save(f"{folder}/{name}.npy", np.random.default_rng(ord(name)).normal(size=(200, 5)))

    def measured(*args):
        command = [sys.executable, "-c", SHARE, *args]
        done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
        return [tuple(map(float, line.split())) for line in done.stderr.splitlines()]

    calls = {f"`compare`, n = {n}, l = {k}": measured("call", str(n), str(k), str(rounds)) for n, k in CALLS}
    files = ["compare", "r.npy", "a.npy", "b.npy", "--json", "out.json"]
    calls[COMMAND] = [each for _ in range(rounds // 10) for each in measured("command", *files)]
    for name, seconds in calls.items():
        total, safe, limit = np.array(seconds).T
        own = (safe - limit) / total
        yield (
            name,
            len(total),
            f"{1e3 * np.median(total):.1f}",
            f"{1e6 * np.median(safe - limit):.0f}",
            f"{100 * np.median(own):.2f}%",
            f"{100 * np.median(limit / total):.2f}%",
        )


def ratio(seconds):
    """The ratio of the medians, with its interval: the rounds are drawn again as pairs."""
    old, new = np.array(seconds).T
    draws = np.random.default_rng(0).integers(len(old), size=(2000, len(old)))
    low, high = np.quantile(np.median(new[draws], axis=1) / np.median(old[draws], axis=1), [0.025, 0.975])
    return np.median(old), np.median(new) / np.median(old), low, high


def side_by_side(commits, rounds, folder):
    """Rows of the second table: the ratio of the medians of two commits."""
    rng, seen = random.Random(0), {}
    places = [checkout(commit, f"{folder}/{k}") for k, commit in enumerate(commits)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    callers = [subprocess.Popen([sys.executable, "-c", CALLER], env=place, **pipes) for place in places]

    def in_turn(measure):
        both = [0.0, 0.0]
        for k in rng.sample(range(2), 2):
            both[k] = measure(k)
        return both

    def call(k, *numbers):
        print(*numbers, file=callers[k].stdin, flush=True)
        return float(callers[k].stdout.readline())

    for (n, models), count in CALLS.items():
        each = [in_turn(lambda k, x=(n, models, count): call(k, *x)) for _ in range(rounds + 1)]
        seen[f"`compare`, n = {n}, l = {models}"] = each[1:]
    each = [in_turn(lambda k: command_seconds(places[k], folder)) for _ in range(rounds // 4 + 1)]
    seen[COMMAND] = each[1:]
    for caller in callers:
        caller.communicate()
    for name, seconds in seen.items():
        median, middle, low, high = ratio(seconds)
        yield name, len(seconds), f"{1e3 * median:.1f}", f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main():
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", nargs=2, metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        titles = ["", "calls", "ms", "µs for safety", "share", "share of BLAS's limit"]
        text = table(titles, shares(options.rounds, folder))
        if options.commits:
            rows = side_by_side(options.commits, options.rounds, folder)
            text += "\n\n" + table(["", "rounds", "ms before", "ratio"], rows)
    print(text)
    if options.docs is not None:
        page = written(options.docs.read_text(encoding="utf-8"), {"safety": text})
        options.docs.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
