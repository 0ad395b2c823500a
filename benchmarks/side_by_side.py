"""Two commits of this repository side by side: processor time of plain calls, in turn, and the ratio with an interval.

python benchmarks/side_by_side.py OLD NEW [--rounds 200] [--docs docs/robustness.md]

Each commit has a process of its own that makes a call whenever it is asked to, the two in random order. What counts is
the processor time of the process, which other work on the machine disturbs less than the time on the clock. The ratio is that of the
medians, with the middle 95% of 2000 bootstrap samples of the rounds.
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


def ratio(seconds):
    """The ratio of the medians, with its interval: the rounds are drawn again as pairs."""
    old, new = np.array(seconds).T
    draws = np.random.default_rng(0).integers(len(old), size=(2000, len(old)))
    low, high = np.quantile(np.median(new[draws], axis=1) / np.median(old[draws], axis=1), [0.025, 0.975])
    return np.median(old), np.median(new) / np.median(old), low, high


def main():
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commits", nargs=2, metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    rng, seen = random.Random(0), {}
    with tempfile.TemporaryDirectory() as folder:
        for name in "rab":
            np.save(f"{folder}/{name}.npy", np.random.default_rng(ord(name)).normal(size=(200, 5)))
        places = [checkout(commit, f"{folder}/{k}") for k, commit in enumerate(options.commits)]
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
            rounds = [in_turn(lambda k, x=(n, models, count): call(k, *x)) for _ in range(options.rounds + 1)]
            seen[f"`compare`, n = {n}, l = {models}"] = rounds[1:]
        rounds = [in_turn(lambda k: command_seconds(places[k], folder)) for _ in range(options.rounds // 4 + 1)]
        seen[COMMAND] = rounds[1:]
        for caller in callers:
            caller.communicate()
    rows = []
    for name, seconds in seen.items():
        median, middle, low, high = ratio(seconds)
        rows.append((name, len(seconds), f"{1e3 * median:.1f}", f"{middle:.3f} ({low:.3f} to {high:.3f})"))
    text = table(["", "rounds", "ms before", "ratio"], rows)
    print(text)
    if options.docs is not None:
        options.docs.write_text(written(options.docs.read_text(encoding="utf-8"), {"side by side": text}), "utf-8")


if __name__ == "__main__":
    main()
