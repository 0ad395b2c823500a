"""Row sums of a symmetric Gaussian kernel matrix without its diagonal, by relfit and by others.

    python benchmarks/row_sums.py WAY N D     peak memory of one call, as JSON

Every way is a function of rows (n, d) and a bandwidth that prepares what may be prepared once, and returns a
function without arguments: float64 sums (n,).
"""

import json
import sys

import dense
import numpy as np
from scipy.spatial.distance import cdist
from timing import elsewhere, exponent, interleaved, peak_growth, timed

import relfit
from relfit.compute.backend import Job, NumbaBackend, NumpyBackend
from relfit.compute.reduce import Runtime, kernel_products

SIZES, DIMENSIONS = (1000, 2000, 4000, 8000, 16_384), (10, 128)
QUICK = ((500, 1000), (10,))
# Rows whose sums are checked against differences in float64.
CHECKED = 256
# Tiles of the hand-written loops: the quickest of 512 × 512, 1024 × 1024, 512 × 2048 and 1024 × 4096 here.
TORCH_TILE = 1024
# A way expected to take longer is left out at that size.
LONGEST = 40.0
# A second build of pykeops, as fast as the compiler makes it; pip's build has neither flag.
TUNED = {"CXXFLAGS": "-march=native -ffast-math"}


def bandwidth_for(d):
    """About the median distance of standard normal rows, over √2."""
    return float(np.sqrt(d))


def draw(n, d):
    return np.random.default_rng(0).normal(size=(n, d))


def whole_matrix(x, bandwidth):
    return lambda: dense.gaussian(x, x, bandwidth).sum(1) - 1.0


def relfit_numpy(precision):
    return lambda x, bandwidth: _relfit(NumpyBackend(precision), x, bandwidth)


def relfit_numba(precision):
    def way(x, bandwidth):
        import numba  # noqa: F401  (without it this is NumPy)

        return _relfit(NumbaBackend(precision), x, bandwidth)

    return way


def relfit_torch(precision):
    def way(x, bandwidth):
        from relfit.compute.torch_backend import TorchBackend

        return _relfit(TorchBackend(precision=precision), x, bandwidth)

    return way


def _relfit(backend, x, bandwidth):
    kernel, ones = relfit.Gaussian(bandwidth), np.ones(len(x))

    def sums():
        job = Job(kernel, backend.points(kernel, x), None, {"phi": ones})
        return kernel_products([job], Runtime(backend=backend))[0].rows["phi"]

    return sums


def tiled_torch(precision, symmetric):
    """A loop over tiles: one product, in place from there on, all threads of torch; sums in float64."""

    def way(x, bandwidth):
        import torch

        dtype = getattr(torch, precision)
        rows = torch.as_tensor(x / (bandwidth * np.sqrt(2.0)), dtype=dtype)
        norms = -(rows * rows).sum(1)
        cuts = [slice(a, min(a + TORCH_TILE, len(rows))) for a in range(0, len(rows), TORCH_TILE)]

        def sums():
            total = torch.zeros(len(rows), dtype=torch.float64)
            scratch = torch.empty(TORCH_TILE * TORCH_TILE, dtype=dtype)
            for a, i in enumerate(cuts):
                for j in cuts[a:] if symmetric else cuts:
                    shape = (i.stop - i.start, j.stop - j.start)
                    tile = scratch[: shape[0] * shape[1]].view(shape)
                    torch.addmm(norms[j], rows[i], rows[j].T, alpha=2.0, out=tile)
                    tile.add_(norms[i, None]).exp_()
                    total[i] += tile.sum(1)
                    if symmetric and i != j:
                        total[j] += tile.sum(0)
            return (total - 1.0).numpy()

        return sums

    return way


def keops(precision):
    def way(x, bandwidth):
        import pykeops
        from pykeops.numpy import LazyTensor

        pykeops.set_verbose(False)
        rows = (x / (bandwidth * np.sqrt(2.0))).astype(precision)
        gap = LazyTensor(rows[:, None, :]) - LazyTensor(rows[None, :, :])
        kernel = (-(gap**2).sum(-1)).exp()
        return lambda: kernel.sum(1)[:, 0].astype(float) - 1.0

    return way


WAYS = {
    "dense NumPy": whole_matrix,
    "pykeops": keops("float64"),
    "pykeops, float32": keops("float32"),
    "tiled torch": tiled_torch("float64", False),
    "tiled torch, symmetric": tiled_torch("float64", True),
    "tiled torch, float32": tiled_torch("float32", False),
    "tiled torch, symmetric, float32": tiled_torch("float32", True),
    "relfit torch": relfit_torch("double"),
    "relfit torch, single": relfit_torch("single"),
    "relfit numpy": relfit_numpy("double"),
    "relfit numpy, single": relfit_numpy("single"),
    "relfit numba": relfit_numba("double"),
    "relfit numba, single": relfit_numba("single"),
}
# Compiled for every d and precision, and slow: float64 alone says enough for long rows.
SHORT_ROWS_ONLY = ("pykeops, float32",)


def usable(skipped):
    """The ways whose library is here; for each other one a line is added to `skipped`."""
    found = {}
    for name, way in WAYS.items():
        try:
            way(draw(8, 2), 1.0)()
            found[name] = way
        except (ImportError, OSError, RuntimeError) as problem:
            skipped.append(f"{name}: {str(problem).splitlines()[0]}")
    return found


def relative_error(sums, x, bandwidth):
    some = np.linspace(0, len(x) - 1, CHECKED, dtype=int)
    exact = np.exp(cdist(x[some], x, "sqeuclidean") / (-2.0 * bandwidth**2)).sum(1) - 1.0
    return float(np.abs(sums[some] / exact - 1.0).max())


def measured(sizes, dimensions, skipped):
    """One row for every way, n and d."""
    ways, rows, times = usable(skipped), [], {}
    for d in dimensions:
        for n in sizes:
            x, width, sums = draw(n, d), bandwidth_for(d), {}
            chosen = {name: way(x, width) for name, way in ways.items() if _worthwhile(name, n, d, times)}
            calls = {name: _kept(sums, name, call) for name, call in chosen.items()}
            for name, seconds in interleaved(calls, seconds=1.5 if n == sizes[-1] else 0.4).items():
                times.setdefault((name, d), {})[n] = seconds
                rows.append(
                    {
                        "d": d,
                        "n": n,
                        "way": name,
                        "s": seconds,
                        "G pairs/s": _evaluated(name, n) / seconds / 1e9,
                        "relative error": relative_error(sums[name], x, width),
                        "GB": elsewhere("row_sums.py", name, n, d)["GB"] if n == sizes[-1] else None,
                    }
                )
    return rows


def _kept(results, name, call):
    """The call, leaving what it returns among the results."""
    return lambda: results.update({name: call()})


def _evaluated(name, n):
    """The kernel values that are really evaluated."""
    return n * (n - 1) / 2 if "relfit" in name or "symmetric" in name else n * n


def _worthwhile(name, n, d, times):
    if d > 16 and name in SHORT_ROWS_ONLY:
        return False
    before = times.get((name, d), {})
    return not before or before[max(before)] * (n / max(before)) ** 2 < LONGEST


def growth(rows):
    """The power of n by which the time of every way grew between its last two sizes."""
    times = {}
    for row in rows:
        times.setdefault((row["way"], row["d"]), {})[row["n"]] = row["s"]
    return [
        {"way": way, "d": d, "exponent": exponent(list(found), list(found.values()))}
        for (way, d), found in times.items()
        if len(found) > 1
    ]


def tuned_keops(n, dimensions, folder):
    """Time of pykeops built with TUNED, in a process of its own."""
    rows = []
    for d in dimensions:
        found = elsewhere("row_sums.py", "pykeops", n, d, KEOPS_CACHE_FOLDER=str(folder), **TUNED)
        rows.append({"d": d, "n": n, "s": found["s"]})
    return rows


def main():
    name, n, d = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    call = WAYS[name](draw(n, d), bandwidth_for(d))
    WAYS[name](draw(64, d), 1.0)()
    gigabytes, seconds = peak_growth(call)
    if name == "pykeops" and seconds < 5.0:
        seconds = min(seconds, timed(call), timed(call))
    print(json.dumps({"GB": gigabytes, "s": seconds}))


if __name__ == "__main__":
    main()
