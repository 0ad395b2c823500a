"""Is the estimated variance right? Mean estimated over true variance of D₁ − D₂ for KSD, by simulation."""

import math

import numpy as np

from relfit import Gaussian, estimate
from relfit.paper.problems import draw, mean_shift_pair

# Several replicates a trial: a trial is then long enough to be worth storing.
REPLICATES = 50


def cells():
    """Sizes and dimensions of the simulation."""
    return [{"d": d, "n": n} for d in (2, 10) for n in (30, 60, 100, 200)]


def trial(setting, seed):
    """Differences D₁ − D₂ of the tied pair and their estimated variances."""
    d, n = setting["d"], setting["n"]
    problem, kernel, contrast = mean_shift_pair(d), Gaussian(math.sqrt(1.4 * d)), np.array([1.0, -1.0])
    differences, variances = [], []
    for k in range(REPLICATES):
        reference, _ = draw(problem, n, REPLICATES * seed + k)
        joint = estimate(reference, problem.densities(), kernel=kernel, rng=0, progress=False)
        differences.append(float(contrast @ joint.values))
        variances.append(float(contrast @ joint.covariance @ contrast))
    return {"difference": differences, "variance": variances}


def row(setting, results):
    """Ratios of mean estimated to true variance, for the jackknife and the plain projection form."""
    differences = np.concatenate([r["difference"] for r in results])
    variances = np.concatenate([r["variance"] for r in results])
    n, count = setting["n"], len(differences)
    truth = float(np.mean(differences**2))  # the mean is 0 by symmetry
    error = float(np.std(differences**2) / truth / math.sqrt(count))
    jackknife = float(variances.mean()) / truth
    projection = jackknife * ((n - 2) / (n - 1)) ** 2
    levels = [
        float(np.mean(np.abs(differences) > 1.96 * np.sqrt(variances * f))) for f in (1.0, projection / jackknife)
    ]
    pairs = [(level, math.sqrt(level * (1 - level) / count)) for level in levels]
    return {
        "d": setting["d"],
        "n": n,
        "trials": count,
        "jackknife / truth": (jackknife, error),
        "projection / truth": (projection, error),
        "RelPSI level, jackknife": pairs[0],
        "RelPSI level, projection": pairs[1],
    }
