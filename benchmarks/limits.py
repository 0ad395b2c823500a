"""What this machine can do at most with NumPy: exponentials and matrix products of tiles, on all cores at once."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from relfit.compute.backend import TILE
from relfit.compute.reduce import one_blas_thread

REPEATS, ROUNDS = 10, 40
CORES = os.cpu_count() or 1


def rate(work):
    """Calls a second of work(k) on all cores, k the number of the core; the best of several rounds."""

    def many(k):
        for _ in range(REPEATS):
            work(k)

    best = np.inf
    with ThreadPoolExecutor(CORES) as pool, one_blas_thread:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            list(pool.map(many, range(CORES)))
            best = min(best, time.perf_counter() - start)
    return CORES * REPEATS / best


def exponentials(dtype):
    """Exponentials a second, in thousand millions."""
    tiles = [-np.random.default_rng(0).random((TILE, TILE)).astype(dtype) for _ in range(CORES)]
    outs = [np.empty_like(tile) for tile in tiles]
    return TILE**2 * rate(lambda k: np.exp(tiles[k], out=outs[k])) / 1e9


def products(dtype, inner, height=TILE, width=TILE):
    """Additions and multiplications a second in (height, inner) @ (inner, width), in thousand millions."""
    a, b = np.ones((height, inner), dtype), np.ones((inner, width), dtype)
    outs = [np.empty((height, width), dtype) for _ in range(CORES)]
    return 2 * height * inner * width * rate(lambda k: np.matmul(a, b, out=outs[k])) / 1e9


def measured(dimensions):
    """The rates that bound row sums of rows of these lengths."""
    rows = []
    for name, dtype in (("float64", np.float64), ("float32", np.float32)):
        row = {"precision": name, "exponentials G/s": exponentials(dtype)}
        for d in dimensions:
            row[f"products of rows of {d}, GFLOP/s"] = products(dtype, d + 2)
        row["products of tiles, GFLOP/s"] = products(dtype, TILE)
        rows.append(row)
    return rows


def row_sums_bound(n, d, limits):
    """Seconds that the exponentials and the products for r² of a symmetric matrix take at these rates."""
    pairs = n * (n - 1) / 2
    flops = 2 * (d + 2) * pairs
    return pairs / limits["exponentials G/s"] / 1e9 + flops / limits[f"products of rows of {d}, GFLOP/s"] / 1e9


def columns_of(d, models):
    """Right-hand sides of the KSD of so many unrelated models with a Gaussian kernel: 1, x, and c, v of each."""
    return 1 + d + models * (1 + d)


def ksd_measured(n, d, counts, limits):
    """For each number of models: the rate of products with all its columns, and the least time at these rates."""
    rows = []
    for models in counts:
        columns = columns_of(d, models)
        speed = products(np.float64, TILE, height=columns)
        seconds = row_sums_bound(n, d, limits) + 2 * n**2 * columns / speed / 1e9
        rows.append({"l": models, "columns": columns, "their products, GFLOP/s": speed, "least s": seconds})
    return rows


def another_model(d, rows):
    """Microseconds of one core that one more unrelated model costs for each tile off the diagonal.

    By columns: what both products of the tile take longer for it, from the rates of `ksd_measured`. By inner products,
    which need half the multiplications: the tile of v_a·v_b + c_a + c_b, times the kernel's, and its sums both ways.
    """
    first, last = ({**row, "µs": 4e-3 * TILE**2 * row["columns"] * CORES / row["their products, GFLOP/s"]}
                   for row in (rows[0], rows[-1]))  # fmt: skip
    rng = np.random.default_rng(0)
    kernel, inner, ones = rng.random((TILE, TILE)), rng.random((TILE, d + 2)), np.ones(TILE)
    other, tiles = np.ascontiguousarray(inner.T), [np.empty((TILE, TILE)) for _ in range(CORES)]

    def by_inner_products(k):
        np.matmul(inner, other, out=tiles[k])
        np.multiply(tiles[k], kernel, out=tiles[k])
        return tiles[k] @ ones, ones @ tiles[k]

    return {
        "by columns": (last["µs"] - first["µs"]) / (last["l"] - first["l"]),
        "by inner products": 1e6 * CORES / rate(by_inner_products),
    }
