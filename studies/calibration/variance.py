"""Is the estimated variance right? Mean estimated over true variance of D₁ − D₂ for KSD, by simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relfit.api import estimate
from relfit.data.models import Density
from relfit.kernels.standard import Gaussian
from relfit.paper.problems import draw, mean_shift_pair

# Several replicates a trial: a trial is then long enough to be worth storing.
REPLICATES = 50


def cells() -> list[dict[str, Any]]:
    """Sizes and dimensions of the simulation."""
    return [{"d": d, "n": n} for d in (2, 10) for n in (30, 60, 100, 200)]


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """Differences D₁ − D₂ of the tied pair and their estimated variances."""
    d, n = setting["d"], setting["n"]
    problem = mean_shift_pair(d)
    kernel = Gaussian(math.sqrt(1.4 * d))
    models = {name: Density(score=problem.score(name), dim=d) for name in problem.models}
    differences, variances = [], []
    for k in range(REPLICATES):
        reference, _ = draw(problem, n, REPLICATES * seed + k)
        joint = estimate(reference, models, kernel=kernel, rng=0, progress=False)
        contrast = np.array([1.0, -1.0])
        differences.append(float(contrast @ joint.values))
        variances.append(float(contrast @ joint.covariance @ contrast))
    return {"difference": differences, "variance": variances}


def row(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Ratios of mean estimated to true variance, for the jackknife and the plain projection form."""
    differences = np.concatenate([r["difference"] for r in results])
    variances = np.concatenate([r["variance"] for r in results])
    n, count = setting["n"], len(differences)
    truth = float(np.mean(differences**2))  # the mean is 0 by symmetry
    error = float(np.std(differences**2) / truth / math.sqrt(count))
    jackknife = float(variances.mean()) / truth
    projection = jackknife * ((n - 2) / (n - 1)) ** 2
    reject = [
        float(np.mean(np.abs(differences) > 1.96 * np.sqrt(variances * f))) for f in (1.0, projection / jackknife)
    ]
    return {
        "d": setting["d"],
        "n": n,
        "trials": count,
        "jackknife / truth": (jackknife, error),
        "projection / truth": (projection, error),
        "RelPSI level, jackknife": (reject[0], math.sqrt(reject[0] * (1 - reject[0]) / count)),
        "RelPSI level, projection": (reject[1], math.sqrt(reject[1] * (1 - reject[1]) / count)),
    }
