"""Landmarks beside other cheap ways to compare MMDs, at equal time; evidence/calibration/rivals.md.

python -m studies.rivals [--trials 200]

Needs `goodpoints` (0.6.3) from PyPI. Everything runs in one thread: set OPENBLAS_NUM_THREADS=1.
"""

import math
import os
import platform
import time
from statistics import median

import numpy as np
from scipy.stats import norm, t

from relfit import Compute, Gaussian, Incomplete, estimate
from relfit.paper.experiment import markdown_table, rate
from relfit.paper.problems import draw, mean_shift
from studies.study import ALPHA, Part, Study, level, main, write_page

BANDWIDTH, NEAR = 4.4, 0.1
# What all pairs find in about half of the samples of MANY rows; with fewer or more rows the gap is larger or smaller.
MANY, GAP = 100_000, 0.111**2 - NEAR**2
ONE_THREAD = Compute(backend="numpy", threads=1)
# Sizes for which the others take at least the time of landmarks at MANY rows: pairs of a row, frequencies, and the
# oversampling of goodpoints.
LAGS, WAVES, OVERSAMPLING = 120, 100, 1
# Rows of a sample on which the variance of the Fourier features is measured, and rows that are evaluated at once.
VARIANCE_ROWS, TILE = 20_000, 1024
FEWEST_BINS = 60
METHODS = (
    "landmarks",
    "incomplete",
    "Fourier, noise counted",
    "Fourier",
    "compressed, over bins",
    "compressed, as samples",
)


def problem_of(setting):
    """Two models, of which the second is the worse one, or both are as far off."""
    far = NEAR if setting["tied"] else math.sqrt(NEAR**2 + GAP * math.sqrt(MANY / setting["n"]))
    return mean_shift(np.array([NEAR * np.eye(10)[0], far * np.eye(10)[1]]))


def cells():
    """Sizes that take seconds, with a gap and without."""
    return [{"n": n, "tied": tied} for n in (MANY, 10_000, 1_000) for tied in (False, True)]


def trial(setting, seed):
    """For each method D₂ − D₁, its standard error, the models declared worse and the seconds of the processor."""
    reference, models = draw(problem_of(setting), setting["n"], seed)
    samples = (reference, *models.values())
    out, start = {}, time.process_time()

    def add(name, gap, error, freedom=math.inf, before=0.0):
        seconds = time.process_time() - start + before
        bound = error * (norm.isf(ALPHA) if freedom == math.inf else t.isf(ALPHA, freedom))
        out[name] = {"gap": gap, "error": error, "seconds": seconds, "worse": [gap < -bound, gap > bound]}

    for name in ("landmarks", "incomplete", *(["complete"] if setting["n"] < MANY else [])):
        start = time.process_time()
        pairs = Incomplete(min(LAGS, (setting["n"] - 1) // 2) * setting["n"])
        add(name, *gap_of(*samples, pairs if name == "incomplete" else name, seed))
    start = time.process_time()
    by_wave, parts = fourier(*samples, np.random.default_rng([5, seed]))
    gaps, variance = by_wave[1] - by_wave[0], gap_variances(parts, len(reference)).sum()
    add("Fourier", float(gaps.mean()), math.sqrt(variance))
    noise = float(np.var(gaps, ddof=1)) / WAVES
    add("Fourier, noise counted", float(gaps.mean()), math.sqrt(variance + noise))
    start = time.process_time()
    cores = [compressed(x, [7, seed, k]) for k, x in enumerate(samples)]
    taken = time.process_time() - start
    start = time.process_time()
    values, parts = over_bins(*cores)
    shares = gap_variances(parts, len(cores[0]))
    freedom = shares.sum() ** 2 / np.square(shares).sum() * (len(cores[0]) - 1)
    add("compressed, over bins", values[1] - values[0], math.sqrt(shares.sum()), freedom, before=taken)
    start = time.process_time()
    rows = (core.reshape(-1, core.shape[2]) for core in cores)
    add("compressed, as samples", *gap_of(*rows, "complete", seed), before=taken)
    return out


def gap_of(reference, first, second, estimator, seed):
    """D₂ − D₁ and its standard error by relfit."""
    models = {"P1": first, "P2": second}
    options = {"kernel": Gaussian(BANDWIDTH), "compute": ONE_THREAD, "rng": seed, "progress": False}
    joint = estimate(reference, models, estimator=estimator, **options)
    v = joint.covariance
    return float(joint.values[1] - joint.values[0]), math.sqrt(v[0, 0] + v[1, 1] - 2.0 * v[0, 1])


def gap_variances(parts, n):
    """The variances of D₂ − D₁ that come from the reference (rows (·, l)), the first and the second model."""
    reference, first, second, *_ = parts
    return np.array([np.var(x, ddof=1) / n for x in (reference[:, 1] - reference[:, 0], first, second)])


def fourier(reference, *models_and_rng):
    """The MMD² of each model at every frequency ω ~ N(0, I/b²) of k ≈ mean_ω cos(ω·(x − y)), and its ψ rows.

    cos² + sin² is 1, so that the pairs of a row with itself are known. The ψ rows are 2τ(x)·(r − m) for the reference
    and 2τ(x)·(m − r) for a model, with the means r and m of the features τ; here those of the first rows only.
    """
    *models, rng = models_and_rng
    waves = rng.standard_normal((reference.shape[1], WAVES)) / BANDWIDTH
    r, *means = (sum(tau.sum(axis=0) for tau in features(x, waves)) / len(x) for x in (reference, *models))
    within = [(len(x) * m**2 - 0.5) / (len(x) - 1) for x, m in zip((reference, *models), (r, *means), strict=True)]
    each = np.array([within[0] + own - 2.0 * r * m for own, m in zip(within[1:], means, strict=True)])
    weights = np.array(means) - r
    parts = [projected(reference, waves, -weights.T)]
    parts += [projected(x, waves, w) for x, w in zip(models, weights, strict=True)]
    return each[:, :WAVES] + each[:, WAVES:], parts


def projected(x, waves, weights):
    """The ψ rows of the first rows of x."""
    return np.concatenate([tau @ weights for tau in features(x[:VARIANCE_ROWS], waves)]) * (2.0 / WAVES)


def features(x, waves):
    """cos and sin of the angles, some rows at a time."""
    for start in range(0, len(x), TILE):
        angles = x[start : start + TILE] @ waves
        yield np.hstack([np.cos(angles), np.sin(angles)])


def bins_of(n):
    """As many bins as lose the fewest rows: Compress takes a power of 4 from each.

    >>> bins_of(100_000), bins_of(1000)
    (97, 62)
    """
    power = 4 ** int(math.log(n / FEWEST_BINS, 4) + 1e-9)
    return n // power


def compressed(x, seed):
    """The rows that KT-Compress of goodpoints keeps of each bin: (bins, rows, d)."""
    from goodpoints.compress import compress_kt  # as the study can be read, and tested, without it

    bins = bins_of(len(x))
    squared = np.array([2.0 * BANDWIDTH**2])
    whole = int(np.random.default_rng(seed).integers(2**31))
    kept = compress_kt(x, b"gaussian", squared, g=OVERSAMPLING, num_bins=bins, seed=whole)
    return x[kept].reshape(bins, -1, x.shape[1])


def over_bins(reference, *models):
    """The MMD² of each model but for a constant, with bins in the place of rows, and its ψ rows.

    Bins are independent, and a coin decides which half of a bin's rows is kept. So a mean of kernel values over
    different bins is unbiased for that over the rows themselves.
    """
    values, to_reference, parts = [], [], []
    for model in models:
        own = np.zeros((len(model), len(model)))
        for i in range(len(model) - 1):
            own[i, i + 1 :] = bin_means(model[i : i + 1], model[i + 1 :])[0]
        others, cross = (own + own.T).sum(axis=1) / (len(model) - 1), bin_means(model, reference)
        values.append(float(others.mean() - 2.0 * cross.mean()))
        to_reference.append(-2.0 * cross.mean(axis=0))
        parts.append(2.0 * (others - cross.mean(axis=1)))
    return values, [np.array(to_reference).T, *parts]


def bin_means(x, y):
    """The means of the kernel between the bins of x and those of y: (bins of x, bins of y)."""
    flat = y.reshape(-1, y.shape[2])
    half = np.einsum("ij,ij->i", flat, flat) / (2.0 * BANDWIDTH**2)
    means = []
    for rows in x:
        scaled = rows / BANDWIDTH**2
        exponent = scaled @ flat.T
        exponent -= half
        exponent -= 0.5 * np.einsum("ij,ij->i", scaled, rows)[:, None]
        means.append(np.exp(exponent, out=exponent).sum(axis=0).reshape(len(y), -1).sum(axis=1))
    return np.array(means) / (x.shape[1] * y.shape[1])


def sized(name, n):
    """What a method was given, in words."""
    if name == "incomplete":
        return f"{min(LAGS, (n - 1) // 2)} pairs a row"
    if name.startswith("Fourier"):
        return f"{WAVES} frequencies"
    if name.startswith("compressed"):
        bins = bins_of(n)
        each = n // bins
        kept = bins * 2**OVERSAMPLING * 2 ** int(math.log(each, 4) + 1e-9)
        return f"{bins} bins, {kept:,} rows kept"
    return "all pairs" if name == "complete" else "its own choice"


def rows(pair):
    """A row per method, from the trials with a gap and those without."""
    (setting, found), (_, tied) = pair
    n, out = setting["n"], []
    for name in ("complete", *METHODS):
        if name not in found[0]:
            continue
        errors = rate([np.mean(r[name]["worse"]) for r in tied])
        times = [r[name]["seconds"] / r["landmarks"]["seconds"] for r in (*found, *tied)]
        gaps = np.array([r[name]["gap"] for r in found])
        base = np.array([r["landmarks"]["gap"] for r in found])
        out.append(
            {
                "rows": f"{n:,}",
                "method": name,
                "size": sized(name, n),
                "seconds": f"{median(r[name]['seconds'] for r in (*found, *tied)):.2g}",
                "time / landmarks": f"{median(times):.2f}",
                "spread / landmarks": f"{gaps.std() / base.std():.2f}",
                "trials": f"{len(found)} + {len(tied)}",
                "worse one found": rate([r[name]["worse"][1] for r in found]),
                "tied one declared worse": errors,
                "level": level(errors),
            }
        )
    return out


def pairs_of(results):
    """The settings with a gap, each with the one of the same size without."""
    return [(a, b) for a in results for b in results if a[0]["n"] == b[0]["n"] and not a[0]["tied"] and b[0]["tied"]]


def write(docs, results):
    """The page; True if landmarks keep their level, and find more than all that do and take as long."""
    every = [row for pair in pairs_of(results["rivals"]) for row in rows(pair)]
    many = [row for row in every if row["rows"] == f"{MANY:,}"]
    own, *others = many
    write_page(
        docs,
        "calibration/rivals.md",
        machine=f"{os.cpu_count()} cores ({platform.machine()})",
        goodpoints="0.6.3",
        many=markdown_table(many),
        fewer=markdown_table([row for row in every if row not in many]),
        differences=markdown_table(differences(results)),
    )
    valid = [row for row in others if row["level"] == "kept"]
    return own["level"] == "kept" and all(row["worse one found"] < own["worse one found"] for row in valid)


def differences(results):
    """How much more often landmarks find the worse model than each other way, in the same trials."""
    (_, found), _ = next(pair for pair in pairs_of(results["rivals"]) if pair[0][0]["n"] == MANY)
    return [
        {
            "landmarks against": name,
            "more often found": rate([float(r["landmarks"]["worse"][1]) - float(r[name]["worse"][1]) for r in found]),
        }
        for name in METHODS[1:]
    ]


STUDY = Study({"rivals": Part("rivals", cells, trial, 200)}, "rivals.sqlite", "1", write, timed=True)

if __name__ == "__main__":
    main(STUDY, __doc__)
