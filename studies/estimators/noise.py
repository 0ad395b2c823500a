"""Does it matter that KSD's second-order correction is estimated from some pairs and not from all?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relfit.estimators import ksd
from relfit.estimators.base import second_order_of
from relfit.kernels.standard import Gaussian
from studies.estimators.designs import estimates_of
from studies.estimators.truth import CONTRASTS, draw, means_of

REPLICATES = 20


def cells() -> list[dict[str, Any]]:
    """Tied models and a model that equals the data, where the correction is largest."""
    return [
        {"problem": problem, "measure": "ksd", "n": n, "d": d}
        for problem in ("tied", "exact")
        for n, d in ((100, 2), (300, 2), (100, 50))
    ]


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """Corrected variances with C from drawn pairs and from all pairs, on the same data.

    Of D₁ − D₂ where the models are tied; of D₁ where model 1 equals the data.
    """
    means, kernel = means_of(setting), Gaussian(math.sqrt(2.0 * setting["d"]))
    contrast = CONTRASTS[0] if setting["problem"] == "tied" else CONTRASTS[1]
    a, b = np.triu_indices(setting["n"], 1)
    out: dict[str, list[float]] = {"drawn": [], "all": []}
    for k in range(REPLICATES * seed, REPLICATES * (seed + 1)):
        data = draw(means, setting, k)
        x = data.reference
        first, second = ((x[rows], [m - x[rows] for m in means]) for rows in (a, b))
        made = estimates_of(data, "complete", kernel, k)
        whole = replace(made, second_order=second_order_of(ksd.pair_values(kernel, first, second), len(x)))
        out["drawn"].append(float(contrast @ made.corrected @ contrast))
        out["all"].append(float(contrast @ whole.corrected @ contrast))
    return out


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Their means and spreads, relative to the mean with all pairs."""
    drawn, whole = (np.concatenate([result[name] for result in results]) for name in ("drawn", "all"))
    centre = whole.mean()
    return [
        {
            "models": setting["problem"],
            "n": setting["n"],
            "d": setting["d"],
            "trials": len(whole),
            "mean, drawn / all": f"{drawn.mean() / centre:.3f}",
            "s.d. of V, drawn": f"{drawn.std() / centre:.3f}",
            "s.d. of V, all": f"{whole.std() / centre:.3f}",
            "s.d. of the two's difference": f"{(drawn - whole).std() / centre:.3f}",
        }
    ]
