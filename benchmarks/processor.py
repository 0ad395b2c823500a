"""Row sums of a Gaussian kernel matrix on this processor, or as on one without AVX-512, beside a loop with torch.

python benchmarks/processor.py [--without-avx512] [--rows 8192] [--rounds 15]

All ways run in turn in one process, each time is the best of the rounds. Processor times are those of all cores
together; on a busy machine only these can be compared, and torch must not count its waiting (OMP_WAIT_POLICY=passive).
The limit is the processor time of the product for r² and of the exponential of every pair, each measured apart: NumPy's
BLAS and the best of the exponentials of NumPy, torch and Numba.
"""

import argparse
import os
import sys
import time

import numpy as np
from row_sums import bandwidth_for, draw, relfit_numba, relfit_numpy, relfit_torch, tiled_torch
from timing import PAUSE, Load

from relfit.cli.doctor import instruction_sets
from relfit.compute.backend import TILE
from relfit.compute.reduce import one_blas_thread
from relfit.paper.experiment import markdown_table

# What hides AVX-512 from NumPy (its names in versions up to 2.3, and since), OpenBLAS, MKL, oneDNN, torch and LLVM.
NUMPY = {"X86_V4", "AVX512_ICL", "AVX512_SPR", "AVX512F", "AVX512CD", "AVX512_SKX", "AVX512_CLX", "AVX512_CNL"}
WITHOUT = {
    "OPENBLAS_CORETYPE": "Haswell",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+sse4.2,+popcnt,+avx,+f16c,+avx2,+fma,+bmi,+bmi2,+lzcnt",
}
# Numbers that torch computes with in one thread: fewer than 2¹⁵.
TORCH_SERIAL = 28_672
WAYS = {
    "double": {
        "tiled torch, symmetric": tiled_torch("float64", True),
        "relfit torch": relfit_torch("double"),
        "relfit numpy": relfit_numpy("double"),
        "relfit numba": relfit_numba("double"),
    },
    "single": {
        "tiled torch, symmetric": tiled_torch("float32", True),
        "relfit torch": relfit_torch("single"),
        "relfit numpy": relfit_numpy("single"),
        "relfit numba": relfit_numba("single"),
    },
}


def without_avx512():
    """Start again with AVX-512 hidden from every library: they look at the environment when they are loaded."""
    found = " ".join(sorted(NUMPY & set(instruction_sets())))
    arguments = [argument for argument in sys.argv if argument != "--without-avx512"]
    os.execve(
        sys.executable, [sys.executable, *arguments], {**os.environ, **WITHOUT, "NPY_DISABLE_CPU_FEATURES": found}
    )


def best_times(calls, rounds):
    """The least time of each call, and the least processor time of all its threads together."""
    best = dict.fromkeys(calls, (np.inf, np.inf))
    for number in range(rounds + 1):
        for name, call in calls.items():
            time.sleep(PAUSE)
            wall, processor = time.perf_counter(), time.process_time()
            call()
            times = time.perf_counter() - wall, time.process_time() - processor
            if number:  # the first round compiles and loads
                best[name] = tuple(map(min, best[name], times))
    return best


def limits(n, d, dtype):
    """Processor times of the products and of the exponentials for all pairs of a symmetric matrix, tile by tile."""
    import torch

    from relfit.compute.numba_tiles import exponentials

    left, right = np.ones((TILE, d + 2), dtype), np.ones((d + 2, TILE), dtype)
    tile = np.zeros((TILE, TILE), dtype)
    parts = torch.from_numpy(tile).view(-1).split(TORCH_SERIAL)

    def seconds(work):
        best = np.inf
        for _ in range(200):
            tile.fill(-1.5)
            start = time.thread_time()
            work()
            best = min(best, time.thread_time() - start)
        return best * n * (n - 1) / 2 / TILE**2

    with one_blas_thread:
        return {
            "product s": seconds(lambda: np.matmul(left, right, out=tile)),
            "exp of NumPy s": seconds(lambda: np.exp(tile, out=tile)),
            "exp of torch s": seconds(lambda: [part.exp_() for part in parts]),
            "exp of Numba s": seconds(lambda: exponentials(tile)),
        }


def measured(n, rounds):
    rows, apart = [], []
    for d in (10, 128):
        for precision, ways in WAYS.items():
            x, bandwidth = draw(n, d), bandwidth_for(d)
            best = best_times({name: way(x, bandwidth) for name, way in ways.items()}, rounds)
            least = limits(n, d, np.float64 if precision == "double" else np.float32)
            product, *exps = least.values()
            loop = best["tiled torch, symmetric"]
            apart.append({"d": d, "precision": precision, **{key: f"{value:.4f}" for key, value in least.items()}})
            rows += [
                {
                    "d": d,
                    "precision": precision,
                    "way": name,
                    "s": f"{wall:.4f}",
                    "loop / this": f"{loop[0] / wall:.2f}",
                    "processor s": f"{processor:.4f}",
                    "loop / this, processor": f"{loop[1] / processor:.2f}",
                    "this / limit": f"{processor / (product + min(exps)):.2f}",
                }
                for name, (wall, processor) in best.items()
            ]
    return rows, apart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-avx512", action="store_true")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    if given.without_avx512:
        without_avx512()
    start = Load.now()
    rows, apart = measured(given.rows, given.rounds)
    about = f"{', '.join(instruction_sets())} · {os.cpu_count()} cores · n = {given.rows:,}"
    print(f"{about} · other processes took {start.others():.0%}\n")
    print(markdown_table(rows))
    print(markdown_table(apart))


if __name__ == "__main__":
    main()
