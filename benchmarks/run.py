"""Time relfit on the CPU beside what people use today, in one run, and write the figures.

    python benchmarks/run.py [--quick]

Writes benchmarks/results.json and docs/evidence/benchmarks.md. Ratios are measured side by side in this run; absolute
times belong to this machine and its load. Peers that are not installed are left out, and named.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

import limits
import numpy as np
import page
import row_sums
import whole
from timing import Load, exponent, interleaved

import relfit
from relfit.cli.doctor import instruction_sets
from relfit.util.files import write_text_atomic

ROOT = Path(__file__).parents[1]
SIZES = {"dense": 4000, "models": 8000, "compare": 2000, "metrics": 4000, "memory": 50_000, "rows": row_sums.SIZES[-1]}
QUICK = {"dense": 1000, "models": 1000, "compare": 1000, "metrics": 1000, "memory": 2000, "rows": row_sums.QUICK[0][-1]}
PEERS = ("torch", "pykeops", "torchmetrics")
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


def memory(n):
    rows = []
    for kind in ("MMD", "KSD"):
        gigabytes, seconds = peak(kind, n)
        rows.append({"what": f"{kind}, n = {n:,}, d = 10, l = 5", "peak GB": gigabytes, "s": seconds})
    return rows


def linear(sizes):
    kernel = relfit.Gaussian(whole.BANDWIDTH)
    rows = []
    for kind in ("MMD", "KSD"):
        times = []
        for n in sizes:
            x, models = whole.draw(n, 10, 5)
            if kind == "KSD":
                models = [whole.gaussian(np.full(10, 0.1 * k)) for k in range(5)]
            call = {n: lambda x=x, m=models: relfit.estimate(x, m, kernel=kernel, estimator="linear", rng=0)}
            times.append(interleaved(call, least=2, most=4)[n])
        found = {f"n = {n:,} s": t for n, t in zip(sizes, times, strict=True)}
        rows.append({"what": kind, **found, "exponent": exponent(sizes, times)})
    return rows


def decisions():
    """The best set and carving beside relpsi, on one estimate each."""
    kernel = relfit.Gaussian(whole.BANDWIDTH)
    rows = []
    for n, count, estimator in ((2000, 50, "complete"), (200, 10, "complete"), (500, 10, "linear")):
        x, models = whole.draw(n, 10, count)
        joint = relfit.estimate(x, models, kernel=kernel, estimator=estimator, rng=0)
        calls = {t: lambda j=joint, t=t: relfit.decide(j, test=t, rng=0) for t in ("relpsi", "best-set", "carve")}
        calls["estimate"] = lambda x=x, m=models, e=estimator: relfit.estimate(x, m, kernel=kernel, estimator=e, rng=0)
        best = interleaved(calls)
        made = best.pop("estimate")
        what = f"MMD, {estimator}, n = {n}, l = {count}"
        rows += [
            {"what": what, "test": test, "estimate s": made, "decision s": taken, "ratio": taken / made}
            for test, taken in best.items()
        ]
    return rows


def machine():
    about = f"{os.cpu_count()} cores ({platform.machine()}: {', '.join(instruction_sets())}), "
    about += f"Python {platform.python_version()}, NumPy {np.__version__}"
    for name in PEERS:
        try:
            about += f", {name} {version(name).split('+')[0]}"
        except PackageNotFoundError:
            continue
    return about


def measured(quick):
    sizes, skipped, start = QUICK if quick else SIZES, [], Load.now()
    counts, dimensions = row_sums.QUICK if quick else (row_sums.SIZES, row_sums.DIMENSIONS)
    results = {"machine": machine(), "relfit": relfit.__version__, "sizes": sizes, "skipped": skipped}
    results["limits"] = limits.measured(dimensions)
    results["ksd limits"] = limits.ksd_measured(sizes["models"], 10, (1, 10), results["limits"][0])
    results["another model"] = limits.another_model(10, results["ksd limits"])
    parts = {
        "compare": lambda: whole.compare_beside_bare_loop(sizes["compare"]),
        "models": lambda: whole.growth_in_models(sizes["models"], sizes["compare"]),
        "dense": lambda: whole.against_dense(sizes["dense"]),
        "row sums": lambda: row_sums.measured(counts, dimensions, skipped),
        "tuned pykeops": lambda: tuned(sizes["rows"], dimensions, results["row sums"]),
        "metrics": lambda: whole.beside_metrics(sizes["metrics"], skipped),
        "linear": lambda: linear((1000, 10_000) if quick else (10_000, 100_000, 1_000_000)),
        "decisions": decisions,
        "memory": lambda: memory(sizes["memory"]),
    }
    for name, part in parts.items():
        results[name] = part()
        print(f"{name}: {time.perf_counter() - start.wall:.0f} s since the start", file=sys.stderr)
    results["growth"] = row_sums.growth(results["row sums"])
    results["idle GB"] = peak("nothing", 0)[0]
    results["others"] = start.others()
    return results


def tuned(n, dimensions, rows):
    """pykeops built anew for this processor, where it runs at all."""
    if not any(row["way"] == "pykeops" for row in rows):
        return []
    with TemporaryDirectory() as folder:
        return row_sums.tuned_keops(n, dimensions, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    quick = parser.parse_args().quick
    results = measured(quick)
    text = page.text(results)
    print(text[: text.find("<!-- gpu -->")])
    if not quick:
        write_text_atomic(ROOT / "benchmarks" / "results.json", json.dumps(results, indent=1) + "\n")
        write_text_atomic(ROOT / "docs" / "evidence" / "benchmarks.md", text)


if __name__ == "__main__":
    main()
