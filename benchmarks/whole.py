"""Whole calls of relfit, beside others that compute the same, and how their time grows."""

import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import dense
import numpy as np
from timing import exponent, interleaved

import relfit
from relfit.compute.reduce import one_blas_thread

BANDWIDTH, BARE_TILE = 3.0, 448
MODELS = (1, 2, 5, 10, 20)


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


def estimated(x, models):
    return lambda: relfit.estimate(x, models, kernel=relfit.Gaussian(BANDWIDTH), rng=0)


def against_dense(n):
    """relfit.estimate beside dense.py: all discrepancies and their joint covariance."""
    x, samples = draw(n, 10, 5)
    means = [np.full(10, 0.1 * k) for k in range(5)]
    fields = draw(n, 10, 5, seed=1)[1]
    cases = {
        "MMD": (samples, lambda: dense.mmd_joint(x, samples, BANDWIDTH)),
        "KSD, unrelated scores": ([field(s) for s in fields], lambda: dense.ksd_joint(x, fields, BANDWIDTH)),
        "KSD, Gaussian models": (
            [gaussian(m) for m in means],
            lambda: dense.ksd_joint(x, [m - x for m in means], BANDWIDTH),
        ),
    }
    rows = []
    for name, (models, plain) in cases.items():
        ours, (values, covariance) = estimated(x, models)(), plain()
        factor = 1.0 if name == "MMD" else ((n - 1) / (n - 2)) ** 2
        error = max(np.abs(ours.values - values).max(), np.abs(ours.covariance - factor * covariance).max())
        best = interleaved({"dense": plain, "relfit": estimated(x, models)}, least=3, seconds=5.5)
        rows.append(
            {
                "what": name,
                "dense s": best["dense"],
                "relfit s": best["relfit"],
                "ratio": best["dense"] / best["relfit"],
                "largest difference": float(error),
            }
        )
    return rows


def growth_in_models(n, small_n):
    """Time of l models against l: KSD of unrelated and of related scores, and MMD."""
    most = MODELS[-1]
    x, fields = draw(n, 10, most)
    means = np.random.default_rng(1).normal(size=(most, 10)) * 0.3
    small, samples = draw(small_n, 10, most)
    cases = (
        (f"KSD, unrelated scores, n = {n:,}", x, [field(s) for s in fields]),
        (f"KSD, Gaussian models, n = {n:,}", x, [gaussian(m) for m in means]),
        (f"MMD, n = {small_n:,}", small, samples),
    )
    rows = []
    for name, reference, models in cases:
        best = interleaved({l: estimated(reference, models[:l]) for l in MODELS}, seconds=2.5)
        rows.append({"what": name, **{f"l = {l} s": best[l] for l in MODELS}, "exponent": _slope(best)})
    return rows


def _slope(best):
    return exponent(MODELS, [best[l] for l in MODELS])


def bare_loop(x, samples, bandwidth):
    """Σ_b k for every row of 1 + l symmetric and l cross matrices: nothing but products, exponentials and sums."""
    rows = [part / (bandwidth * np.sqrt(2.0)) for part in (x, *samples)]
    norms = [np.einsum("ij,ij->i", part, part)[:, None] for part in rows]
    left = [np.hstack([2.0 * p, -q, -np.ones_like(q)]) for p, q in zip(rows, norms, strict=True)]
    right = [np.hstack([p, np.ones_like(q), q]).T.copy() for p, q in zip(rows, norms, strict=True)]
    matrices = [(k, k) for k in range(len(rows))] + [(k, 0) for k in range(1, len(rows))]
    ones = np.ones(BARE_TILE)

    def one(pair):
        a, b = pair
        scratch, n, m = np.empty(BARE_TILE**2), len(rows[a]), len(rows[b])
        found = np.zeros(n), np.zeros(m)
        for i in range(0, n, BARE_TILE):
            for j in range(i if a == b else 0, m, BARE_TILE):
                height, width = min(BARE_TILE, n - i), min(BARE_TILE, m - j)
                tile = scratch[: height * width].reshape(height, width)
                np.matmul(left[a][i : i + height], right[b][:, j : j + width], out=tile)
                np.exp(tile, out=tile)
                found[0][i : i + height] += tile @ ones[:width]
                found[1][j : j + width] += ones[:height] @ tile
        return found

    with ThreadPoolExecutor(os.cpu_count()) as pool, one_blas_thread:
        return list(pool.map(one, matrices))


def compare_beside_bare_loop(n):
    """relfit.compare of ten samples, fixed bandwidth, beside the bare loop over the same kernel values."""
    x, samples = draw(n, 10, 10)
    kernel = relfit.Gaussian(BANDWIDTH)
    best = interleaved(
        {
            "bare": lambda: bare_loop(x, samples, BANDWIDTH),
            "compare": lambda: relfit.compare(x, samples, kernel=kernel, rng=0),
            "estimate": estimated(x, samples),
        },
        least=9,
        most=25,
    )
    evaluated = 10 * n * n + 11 * n * (n - 1) / 2
    names = {"bare": "bare tile loop", "estimate": "`relfit.estimate`", "compare": "`relfit.compare`"}
    return [
        {
            "what": name,
            "s": best[key],
            "G pairs/s": evaluated / best[key] / 1e9,
            "of the bare loop": best[key] / best["bare"],
        }
        for key, name in names.items()
    ]


def plain_mmd(x, y, bandwidth):
    """MMD² as it is usually written with torch: the whole kernel matrix of both samples together, no error bars."""
    import torch

    rows = torch.as_tensor(np.vstack([x, y]))
    kernel = torch.exp(torch.cdist(rows, rows).square_().mul_(-0.5 / bandwidth**2)).fill_diagonal_(0.0)
    n, m = len(x), len(y)
    within = kernel[:n, :n].sum() / (n * (n - 1)) + kernel[n:, n:].sum() / (m * (m - 1))
    return float(within - 2.0 * kernel[:n, n:].mean())


def kid_metric(x, y):
    """KID by torchmetrics with its defaults: the mean over 100 subsets of 1000 rows."""
    import torch
    from torchmetrics.image.kid import KernelInceptionDistance

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric = KernelInceptionDistance(feature=torch.nn.Identity(), subsets=100, subset_size=min(1000, len(x) // 2))
    metric.set_dtype(torch.float64)
    metric.update(torch.from_numpy(x), real=True)
    metric.update(torch.from_numpy(y), real=False)
    return float(metric.compute()[0])


def beside_metrics(n, skipped):
    """One model: D and its standard error by relfit, the value alone (or a mean over subsets) by others."""
    x, (_, y) = draw(n, 10, 2)
    wide, (_, other) = draw(n, 128, 2)
    pairs = (
        ("MMD, d = 10", "plain torch, whole matrix", lambda: plain_mmd(x, y, BANDWIDTH), estimated(x, [y])),
        (
            "KID, d = 128",
            "torchmetrics, 100 subsets of 1000",
            lambda: kid_metric(wide, other),
            lambda: relfit.estimate(wide, [other], preset="kid", rng=0),
        ),
    )
    rows = []
    for what, name, call, ours in pairs:
        try:
            value = call()
        except ImportError as problem:
            skipped.append(f"{name}: {problem}")
            continue
        best = interleaved({"other": call, "relfit": ours})
        rows.append(
            {
                "what": what,
                "beside": name,
                "its s": best["other"],
                "relfit s": best["relfit"],
                "ratio": best["other"] / best["relfit"],
                "its value": value,
                "relfit's value": float(ours().values[0]),
            }
        )
    return rows
