"""Dask on this machine: efficiency of two workers against one, traffic, and the same bits.

Writes into docs/evidence/scale.md.

python benchmarks/cluster.py [--rows 60000]

Workers of one thread each, processes of their own, on the loopback interface. Busy is the share of the workers' time
that was spent on patches; traffic is what went over the interface meanwhile, everything included.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from distributed import get_task_stream
from marks import table, written

import relfit
from relfit.util.files import write_text_atomic

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.cluster import running  # noqa: E402

DIM, MODELS = 10, 5


def problem(rows):
    """A reference and five models."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, DIM)), {f"m{k}": rng.normal(0.01 * k, 1, (rows, DIM)) for k in range(MODELS)}


def loopback():
    """Bytes sent over the loopback interface so far."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


def busy_seconds(stream):
    """The time that workers spent on patches."""
    return sum(
        part["stop"] - part["start"]
        for task in stream.data
        for part in task["startstops"]
        if part["action"] == "compute" and task["key"].startswith("relfit-")
    )


def measured(samples, workers):
    """One run on so many workers: estimate, seconds, share of busy time, bytes, number of patches."""
    with tempfile.TemporaryDirectory() as folder, running(folder, workers) as (_, client):
        # A first small run loads the libraries.
        relfit.estimate(
            samples[0][:500],
            {k: x[:500] for k, x in samples[1].items()},
            rng=0,
            compute=relfit.Compute(executor=client),
        )
        before = loopback()
        with get_task_stream(client) as stream:
            start = time.perf_counter()
            found = relfit.estimate(
                *samples, kernel=relfit.Gaussian(3.0), rng=0, compute=relfit.Compute(executor=client)
            )
            seconds = time.perf_counter() - start
        time.sleep(1)
        tasks = sum(task["key"].startswith("relfit-") for task in stream.data)
        return found, seconds, busy_seconds(stream) / (workers * seconds), loopback() - before, tasks


def main():
    """One worker, two workers, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    rows = parser.parse_args().rows
    samples = problem(rows)
    pairs = (1 + MODELS) * rows * (rows - 1) // 2 + MODELS * rows * rows
    runs = {workers: measured(samples, workers) for workers in (1, 2)}
    one, two = runs[1], runs[2]
    same = np.array_equal(one[0].covariance, two[0].covariance) and np.array_equal(one[0].values, two[0].values)
    lines = [
        f"MMD, complete, n = {rows:,}, d = {DIM}, l = {MODELS}: {pairs / 1e9:.1f} billion (10⁹) pairs in {one[4]} "
        f"parts; rows of {sum(x.nbytes for x in (samples[0], *samples[1].values())) / 1e6:.0f} MB.",
        "",
        table(
            ["workers", "seconds", "G pairs/s", "workers busy", "traffic, MB"],
            [
                (workers, f"{seconds:.1f}", f"{pairs / seconds / 1e9:.2f}", f"{busy:.1%}", f"{sent / 1e6:.0f}")
                for workers, (_, seconds, busy, sent, _) in runs.items()
            ],
        ),
        "",
        f"Efficiency of two workers against one: {one[1] / (2 * two[1]):.2f}. "
        f"The same bits: {'yes' if same else 'NO'}.",
    ]
    text = "\n".join(lines)
    print(text)
    page = ROOT / "docs" / "evidence" / "scale.md"
    write_text_atomic(page, written(page.read_text(encoding="utf-8"), {"cluster": text}))


if __name__ == "__main__":
    main()
