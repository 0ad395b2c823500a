"""Time relfit's backends on a CUDA device beside plain torch, and write the figures.

    python benchmarks/gpu.py [--quick] [--agreement PATH]     measure; writes benchmarks/results-gpu.json and the page
    python benchmarks/gpu.py --page                           write the page from the figures there are

The page is docs/evidence/benchmarks.md, of which this writes one section. `--agreement` takes in what
tools/agreement.py wrote.
"""

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import gpu_page
import numpy as np
import torch

import relfit
from relfit.compute.backend import Job
from relfit.compute.reduce import Runtime, kernel_products
from relfit.compute.torch_backend import TorchBackend
from relfit.estimators import ksd
from relfit.util.files import write_text_atomic

HERE = Path(__file__).parent
RESULTS = HERE / "results-gpu.json"
DEVICE = "cuda:0"
# Rows against which the error is measured, in float64 from differences of rows.
CHECKED_ROWS = 256
# Numbers in a tile of the plain loops: half a gigabyte of float32.
PLAIN_NUMBERS = 2**27


def median_time(function, repeats):
    """Seconds on the host's clock, device work included, warm; the median."""
    function()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def repeats_for(seconds):
    """Short calls are repeated most, since the processor beside the device is shared."""
    return 1 if seconds > 5.0 else 3 if seconds > 1.0 else 25


def measured(function, repeats):
    """Median seconds, and the peak of device memory beyond what was there, in GB."""
    function()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    seconds = median_time(function, repeats)
    return seconds, (torch.cuda.max_memory_allocated() - before) / 1e9


def normal(n, d, seed, dtype=torch.float32, shift=0.0):
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    return torch.randn(n, d, generator=generator, device=DEVICE, dtype=dtype) + shift


def limits(quick):
    """Rates of this device: special functions by its clock, matrix products measured on random numbers."""
    found = torch.cuda.get_device_properties(0)
    clock = _busy_clock(2 if quick else 8)
    size = 1024 if quick else 8192
    rates = {}
    for name, dtype in (("float16", torch.float16), ("float32", torch.float32), ("float64", torch.float64)):
        a, b = (normal(size, size, seed).to(dtype) for seed in (0, 1))
        rates[f"{name} TFLOP/s"] = 2e-12 * size**3 / median_time(lambda a=a, b=b: a @ b, 5)
    return {
        "device": found.name,
        "multiprocessors": found.multi_processor_count,
        "clock MHz": clock,
        # Sixteen special functions a cycle and multiprocessor, at the clock read while the fused kernel ran.
        "exponentials G/s": found.multi_processor_count * 16 * clock * 1e-3,
        **rates,
    }


def _busy_clock(readings):
    """The clock in MHz while the fused kernel runs, the median of a few readings."""
    job = row_sum_job(relfit_backend("triton"), normal(131_072, 10, 0).double(), math.sqrt(20.0))
    job()
    done = threading.Event()
    busy = threading.Thread(target=lambda: [job() for _ in iter(done.is_set, True)])
    busy.start()
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-i", "0"]
    seen = [int(subprocess.run(query, capture_output=True, text=True, check=True).stdout) for _ in range(readings)]
    done.set()
    busy.join()
    return statistics.median(seen)


def relfit_backend(name):
    if name == "triton":
        from relfit.compute.triton_backend import TritonBackend

        return TritonBackend(DEVICE)
    return TorchBackend(DEVICE, "single" if name == "torch, float32" else "double")


def row_sum_job(backend, x, bandwidth):
    """The row sums of the symmetric Gaussian matrix, with Σφ², as MMD asks for them."""
    kernel = relfit.Gaussian(bandwidth)
    points, one = backend.points(kernel, x), backend.array(np.ones(len(x)))
    return lambda: kernel_products([Job(kernel, points, None, {"phi": one}, squares=True)], Runtime(backend))[0].rows[
        "phi"
    ]


def plain_tiles(x, bandwidth, dtype):
    """What a careful person writes first: distances by one product, tiles of rows against all columns."""
    x = x.to(dtype)
    tile = max(64, PLAIN_NUMBERS // len(x))
    norms = (x * x).sum(1)
    scale = -0.5 / bandwidth**2

    def row_sums():
        out = []
        for start in range(0, len(x), tile):
            r2 = norms[start : start + tile, None] + norms[None] - 2.0 * x[start : start + tile] @ x.T
            out.append(torch.exp(r2 * scale).sum(1, dtype=torch.float64))
        return (torch.cat(out) - 1.0).cpu().numpy()

    return row_sums


def exact_rows(x, bandwidth):
    """The first row sums in float64, from differences of rows."""
    x = x.double()
    r2 = torch.cdist(x[:CHECKED_ROWS], x, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    k = torch.exp(-0.5 * r2 / bandwidth**2)
    k[torch.arange(CHECKED_ROWS), torch.arange(CHECKED_ROWS)] = 0.0
    return k.sum(1).cpu().numpy()


def row_sums(sizes, repeats, rates):
    """Symmetric Gaussian row sums by every way: pairs per second counts the kernel values really evaluated."""
    rows = []
    for d, plain, large in sizes:
        bandwidth = math.sqrt(2.0 * d)
        x = normal(plain, d, d)
        ways = {
            "plain torch, float32": plain_tiles(x, bandwidth, torch.float32),
            "plain torch, float64": plain_tiles(x, bandwidth, torch.float64),
            "relfit torch, float64": row_sum_job(relfit_backend("torch"), x.double(), bandwidth),
            "relfit torch, float32": row_sum_job(relfit_backend("torch, float32"), x.double(), bandwidth),
        }
        rows += [_row_sums(way, function, x, bandwidth, 3) for way, function in ways.items()]
        for n in (plain, large):
            x = normal(n, d, d)
            fused = row_sum_job(relfit_backend("triton"), x.double(), bandwidth)
            row = _row_sums("relfit triton", fused, x, bandwidth, repeats)
            rows.append({**row, "share of the limit": _share(1e9 * row["G pairs/s"], d, rates)})
    return rows


def _row_sums(way, function, x, bandwidth, repeats):
    n, d = x.shape
    # Plain torch evaluates the whole matrix.
    pairs = float(n) ** 2 if way.startswith("plain") else n * (n - 1) / 2.0
    error = float(np.abs(function()[:CHECKED_ROWS] / exact_rows(x, bandwidth) - 1.0).max())
    seconds, memory = measured(function, repeats)
    row = {
        "d": d,
        "n": n,
        "way": way,
        "ms": 1e3 * seconds,
        "G pairs/s": 1e-9 * pairs / seconds,
        "share of the limit": None,
        "relative error": error,
        "GB": memory,
    }
    print(row, flush=True)
    return row


def _share(rate, d, rates):
    """Of what exponentials, or products of rows three times as long in float16, allow."""
    exponentials = rates["exponentials G/s"] * 1e9
    products = rates["float16 TFLOP/s"] * 1e12 / (2.0 * (3 * d + 6))
    return rate / min(exponentials, products)


def ksd_times(sizes, repeats):
    """KSD of l models whose scores lie on the device, and the error in standard errors against float64."""
    rows = []
    for n, d, l, kernel in sizes:
        x = normal(n, d, 1, torch.float64)
        scores = [torch.tanh(x * (0.5 + 0.1 * k)) * 0.3 - x + 0.02 * k for k in range(l)]
        found = {}
        for way in ("torch", "triton"):
            runtime = Runtime(relfit_backend(way))

            def estimate(runtime=runtime, x=x, scores=scores, kernel=kernel):
                return ksd.complete(x, scores, kernel, runtime, 0)

            found[way] = estimate()
            seconds, memory = measured(estimate, repeats if way == "triton" else 3)
            off = np.abs(found[way].values - found["torch"].values)
            error = np.sqrt(np.diag(found["torch"].psi.covariance()))
            rows.append(
                {
                    "kernel": type(kernel).__name__,
                    "n": n,
                    "d": d,
                    "l": l,
                    "way": f"relfit {way}",
                    "ms": 1e3 * seconds,
                    "|ΔD| in s.e.": float((off / error).max()) if way == "triton" else None,
                    "GB": memory,
                }
            )
            print(rows[-1], flush=True)
    return rows


def compare_times(sizes):
    """Whole calls of `compare` on tensors of the device, bandwidth, checks and verdicts included.

    Where the same problem was solved in double precision before, D of single precision is compared with it.
    """
    rows, exact = [], {}
    for n, d, l, precision in sizes:
        reference = normal(n, d, 0)
        models = {f"m{k}": normal(n, d, k + 1, shift=0.01 * k) for k in range(l)}
        torch.cuda.synchronize()

        def call(reference=reference, models=models, precision=precision):
            return relfit.compare(reference, models, compute=relfit.Compute(precision=precision), rng=0)

        relfit.compare(
            reference[:2000],
            {k: x[:2000] for k, x in models.items()},
            compute=relfit.Compute(precision=precision),
            rng=0,
        )
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() / 1e9
        if seconds < 20.0:
            seconds = min(seconds, median_time(call, repeats_for(seconds)))
        known = exact.setdefault((n, d, l), result) if precision == "double" else exact.get((n, d, l))
        off = None
        if precision == "single" and known is not None:
            off = float((np.abs(result.discrepancy - known.discrepancy) / known.standard_error).max())
        pairs = l * float(n) ** 2 + (l + 1) * n * (n - 1) / 2.0
        rows.append(
            {
                "n": n,
                "d": d,
                "l": l,
                "backend": result.backend,
                "s": seconds,
                "G pairs/s": 1e-9 * pairs / seconds,
                "|ΔD| in s.e.": off,
                "GB, data included": peak,
            }
        )
        print(rows[-1], flush=True)
    return rows


def landmark_times(sizes):
    """Whole calls with landmarks on tensors of the device in single precision, and the memory of the process."""
    rows = []
    for n, d, l in sizes:
        reference = normal(n, d, 0)
        models = {f"m{k}": normal(n, d, k + 1).add_(0.01 * k) for k in range(l)}

        def call(reference=reference, models=models):
            compute = relfit.Compute(precision="single")
            return relfit.compare(reference, models, estimator="landmarks", compute=compute, rng=0)

        relfit.compare(reference[:2000], {k: x[:2000] for k, x in models.items()}, estimator="landmarks", rng=0)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
        if seconds < 20.0:
            seconds = min(seconds, median_time(call, repeats_for(seconds)))
        rows.append(
            {
                "n": n,
                "d": d,
                "l": l,
                "s": seconds,
                "GB": torch.cuda.max_memory_allocated() / 1e9,
                "GB of the host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
                "backend": result.backend,
                "where": torch.cuda.get_device_name(),
                "note": result.warnings[0],
            }
        )
        print(rows[-1], flush=True)
        del reference, models, call, result
        torch.cuda.empty_cache()
    return rows


def growth(sizes, d, repeats):
    """Time against n, and the exponent of the last two sizes."""
    times = []
    for n in sizes:
        job = row_sum_job(relfit_backend("triton"), normal(n, d, n).double(), math.sqrt(2.0 * d))
        times.append(median_time(job, repeats))
    exponent = math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])
    rows = [{"n": n, "ms": 1e3 * seconds} for n, seconds in zip(sizes, times, strict=True)]
    return {"d": d, "rows": rows, "exponent": exponent}


def measure(quick):
    rates = limits(quick)
    print(rates, flush=True)
    # Dimension, rows for plain torch, rows for the fused kernel.
    sizes = [(d, 65_536, 1_048_576) for d in (3, 10, 16)]
    sizes += [(64, 65_536, 262_144), (256, 65_536, 131_072), (2048, 32_768, 65_536)]
    gaussian, imq = relfit.Gaussian(math.sqrt(20.0)), relfit.IMQ(2.0)
    stein = [(131_072, 10, 5, gaussian), (131_072, 10, 5, imq), (131_072, 10, 1, gaussian), (131_072, 10, 10, gaussian)]
    whole = [(n, d, l, each) for n, d, l in ((100_000, 64, 5), (200_000, 16, 3)) for each in ("double", "single")]
    whole += [(20_000, 16, 5, "single"), (100_000, 16, 5, "single"), (50_000, 2048, 3, "single")]
    whole.append((1_000_000, 16, 10, "single"))
    near = [(10**k, 16, 5) for k in range(4, 9)]
    if quick:
        sizes = [(3, 4096, 8192), (100, 4096, 8192)]
        stein, whole = [(4096, 4, 2, gaussian)], [(5000, 4, 2, "double"), (5000, 4, 2, "single")]
        near = [(10_000, 4, 2)]
    return {
        "relfit": relfit.__version__,
        "torch": torch.__version__,
        "limits": rates,
        "row sums": row_sums(sizes, 3 if quick else 15, rates),
        "ksd": ksd_times(stein, 3 if quick else 9),
        "compare": compare_times(whole),
        "landmarks": landmark_times(near),
        "growth": growth((2048, 4096) if quick else [2**k for k in range(13, 21)], 10, 9),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--agreement", type=Path, help="what tools/agreement.py wrote")
    given = parser.parse_args()
    if not given.page:
        if not torch.cuda.is_available():
            sys.exit("benchmarks/gpu.py: needs a CUDA device")
        results = measure(given.quick)
        if given.agreement is not None:
            results["agreement"] = json.loads(given.agreement.read_text())["summary"]
        if given.quick:
            return
        write_text_atomic(RESULTS, json.dumps(results, indent=1) + "\n")
    gpu_page.write(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
