"""Time relfit beside a plain dense NumPy implementation, in one run, and write the figures.

    python benchmarks/run.py [--quick]

Writes benchmarks/results.json and docs/benchmarks.md. Ratios are measured side by side in this run; absolute times
belong to this machine and its load.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import dense
import gpu_page
import numpy as np

import relfit
from relfit.experiments.summaries import markdown_table
from relfit.files import write_text_atomic

ROOT = Path(__file__).parents[1]
BANDWIDTH = 3.0
TEXT = """# Benchmarks

Written by `make bench` (`benchmarks/run.py`) on {machine}. Each time is the best of {repeats} warm runs, everything in
one process run; ratios compare neighbours in that run. Input checks and the covariance are part of relfit's times.

## Against a plain dense implementation

`benchmarks/dense.py` is what a careful person would write first: whole n × n matrices, one model at a time. Both
compute all discrepancies and their joint covariance, Gaussian kernel, n = {dense_n}, d = 10, l = 5, float64.

{dense}
## Ten models for the price of a few

KSD of ten models against KSD of one, n = {models_n}, d = 10. The kernel matrix is shared; unrelated scores (random
fields) still need ten times the right-hand sides. Scores of related models (here Gaussians with different means) span
few columns, which are multiplied once.

{models}
## Memory

Peak resident size of a process that makes one complete estimate, Python and libraries included (a process that only
imports relfit has {idle:.2f} GB). The kernel matrix alone would take {matrix:.0f} GB.

{memory}
## Linear-time estimator

Time against n, d = 10, l = 5; the exponent is that of the largest two sizes (1 is linear).

{linear}
## What a decision adds

Time of `relfit.decide` on a finished estimate, and as a share of the estimate's own time. Below 300 rows (pairs, for
the linear estimator) the best set draws its p-values from a bootstrap of the ψ rows.

{decisions}
"""


def best_of(repeats, function):
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def field(scores):
    """A density whose scores at the benchmark's rows are a given array."""
    return relfit.Density(
        score=lambda x: scores if len(x) == len(scores) else scores[:: len(scores) // len(x)][: len(x)]
    )


def gaussian(mean):
    return relfit.Density(score=lambda x: mean - x)


def draw(n, d, models, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), [rng.normal(0.1 * k, 1, size=(n, d)) for k in range(models)]


def against_dense(n, repeats):
    kernel = relfit.Gaussian(BANDWIDTH)
    x, samples = draw(n, 10, 5)
    means = [np.full(10, 0.1 * k) for k in range(5)]
    fields = draw(n, 10, 5, seed=1)[1]
    cases = {
        "MMD": (samples, lambda: dense.mmd_joint(x, samples, BANDWIDTH)),
        "KSD, unrelated scores": (
            [field(s) for s in fields],
            lambda: dense.ksd_joint(x, fields, BANDWIDTH),
        ),
        "KSD, Gaussian models": (
            [gaussian(m) for m in means],
            lambda: dense.ksd_joint(x, [m - x for m in means], BANDWIDTH),
        ),
    }
    rows = []
    for name, (models, plain) in cases.items():
        ours = relfit.estimate(x, models, kernel=kernel, rng=0)
        values, covariance = plain()
        factor = 1.0 if name == "MMD" else ((n - 1) / (n - 2)) ** 2
        error = max(np.abs(ours.values - values).max(), np.abs(ours.covariance - factor * covariance).max())
        fast = best_of(repeats, lambda m=models: relfit.estimate(x, m, kernel=kernel, rng=0))
        slow = best_of(3, plain)
        rows.append(
            {
                "what": name,
                "dense s": slow,
                "relfit s": fast,
                "ratio": f"{slow / fast:.1f}",
                "largest difference": f"{error:.0e}",
            }
        )
    return rows


def ten_models(n, repeats):
    kernel = relfit.Gaussian(BANDWIDTH)
    x, fields = draw(n, 10, 10)
    means = np.random.default_rng(1).normal(size=(10, 10)) * 0.3
    rows = []
    for name, models in (
        ("unrelated scores", [field(s) for s in fields]),
        ("Gaussian models", [gaussian(m) for m in means]),
    ):
        one, ten = (
            best_of(repeats, lambda k=k, m=models: relfit.estimate(x, m[:k], kernel=kernel, rng=0)) for k in (1, 10)
        )
        rows.append({"scores": name, "l = 1 s": one, "l = 10 s": ten, "ratio": f"{ten / one:.2f}"})
    return rows


MEMORY = """
import pathlib, re, sys, time
import numpy as np, relfit
kind, n = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
start = time.perf_counter()
if kind != "nothing":
    x = rng.normal(size=(n, 10))
    models = [rng.normal(0.1 * k, 1, (n, 10)) for k in range(5)]
    if kind == "KSD":
        models = [relfit.Density(score=lambda z, c=c: np.tanh(z * (1 + c)) - z) for c in range(5)]
    start = time.perf_counter()
    relfit.estimate(x, models, kernel=relfit.Gaussian(3.0), rng=0)
# Not ru_maxrss: that starts at the size of the parent process.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())
print(int(peak[1]) / 2**20, time.perf_counter() - start)
"""


def peak(kind, n):
    done = subprocess.run([sys.executable, "-c", MEMORY, kind, str(n)], capture_output=True, text=True, check=True)
    gigabytes, seconds = map(float, done.stdout.split())
    return gigabytes, seconds


def linear(sizes):
    kernel = relfit.Gaussian(BANDWIDTH)
    rows = []
    for kind in ("MMD", "KSD"):
        times = []
        for n in sizes:
            x, models = draw(n, 10, 5)
            if kind == "KSD":
                models = [gaussian(np.full(10, 0.1 * k)) for k in range(5)]
            times.append(
                best_of(2, lambda x=x, m=models: relfit.estimate(x, m, kernel=kernel, estimator="linear", rng=0))
            )
        exponent = np.log(times[-1] / times[-2]) / np.log(sizes[-1] / sizes[-2])
        rows.append(
            {
                "what": kind,
                **{f"n = {n:,} s": t for n, t in zip(sizes, times, strict=True)},
                "exponent": f"{exponent:.2f}",
            }
        )
    return rows


def decisions(repeats):
    """The best set and carving beside relpsi, on one estimate each."""
    kernel = relfit.Gaussian(BANDWIDTH)
    rows = []
    for n, count, estimator in ((2000, 50, "complete"), (200, 10, "complete"), (500, 10, "linear")):
        x, models = draw(n, 10, count)
        joint = relfit.estimate(x, models, kernel=kernel, estimator=estimator, rng=0)
        made = best_of(2, lambda x=x, m=models, e=estimator: relfit.estimate(x, m, kernel=kernel, estimator=e, rng=0))
        for test in ("relpsi", "best-set", "carve"):
            taken = best_of(repeats, lambda j=joint, t=test: relfit.decide(j, test=t, rng=0))
            rows.append(
                {
                    "what": f"MMD, {estimator}, n = {n}, l = {count}",
                    "test": test,
                    "estimate s": made,
                    "decision s": f"{taken:.4f}",
                    "ratio": f"{taken / made:.3f}",
                }
            )
    return rows


def machine():
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, NumPy {np.__version__}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    quick = parser.parse_args().quick
    dense_n, models_n, memory_n = (1000, 1000, 2000) if quick else (4000, 8000, 50_000)
    sizes = (1000, 10_000) if quick else (10_000, 100_000, 1_000_000)
    repeats = 2 if quick else 5
    results = {
        "machine": machine(),
        "relfit": relfit.__version__,
        "dense": against_dense(dense_n, repeats),
        "models": ten_models(models_n, repeats),
        "linear": linear(sizes),
        "decisions": decisions(repeats),
        "memory": [],
    }
    for kind in ("MMD", "KSD"):
        gigabytes, seconds = peak(kind, memory_n)
        results["memory"].append(
            {"what": f"{kind}, n = {memory_n:,}, d = 10, l = 5", "peak GB": f"{gigabytes:.2f}", "s": seconds}
        )
    tables = {key: markdown_table(results[key]) for key in ("dense", "models", "linear", "decisions", "memory")}
    text = TEXT.format(
        machine=results["machine"], repeats=repeats, dense_n=dense_n, models_n=models_n,
        idle=peak("nothing", 0)[0], matrix=memory_n**2 * 8 / 2**30, **tables,
    )  # fmt: skip
    print("\n".join(tables.values()))
    if not quick:
        write_text_atomic(ROOT / "benchmarks" / "results.json", json.dumps(results, indent=1) + "\n")
        write_text_atomic(ROOT / "docs" / "benchmarks.md", text.rstrip() + "\n\n" + gpu_page.written())


if __name__ == "__main__":
    main()
