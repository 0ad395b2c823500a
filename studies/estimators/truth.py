"""Bias of the estimators, and estimated over true variance of D₁ − D₂, by simulation against closed forms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.load import Data, load
from relfit.data.models import Density
from relfit.kernels.standard import Gaussian
from relfit.paper.problems import mean_shift, population_mmd
from studies.estimators.designs import estimates_of

Array = NDArray[np.float64]

# Draws in one stored trial.
REPLICATES = 100
CHEAPER = ("linear", "block", "incomplete 1", "incomplete 2", "incomplete 5", "incomplete 25")
ALL = ("complete", *CHEAPER)
COMPLETE = ("complete, projection", "complete, corrected")
# What is looked at: D₁ − D₂, and D₁ by itself.
CONTRASTS = np.array([[1.0, -1.0], [1.0, 0.0]])
_NAMES = {"mmd": "MMD", "ksd": "KSD", "target": "KSD to a target"}


def tied_cells() -> list[dict[str, Any]]:
    """Two tied models: the measure, the sizes, and the designs tried on the same draws."""
    return [
        *(_cell("tied", m, 300, 2, ALL) for m in ("mmd", "ksd", "target")),
        *(_cell("tied", m, 100, 2, ["complete"]) for m in ("mmd", "ksd", "target")),
        *(_cell("tied", m, 100, 500, ["complete"]) for m in ("mmd", "ksd")),
        _cell("tied", "mmd", 300, 2, ["complete"], sizes=[100, 600]),
        _cell("tied", "mmd", 100, 2, ["complete"], sizes=[50, 400]),
        _cell("tied", "mmd", 100, 500, ["complete"], sizes=[50, 400]),
        _cell("tied", "target", 100, 2, ["complete"], sizes=[100, 400]),
    ]


def exact_cells() -> list[dict[str, Any]]:
    """A model that equals the data, beside one that does not."""
    return [_cell("exact", m, 300, 2, ALL) for m in ("mmd", "ksd")]


def _cell(
    problem: str, measure: str, n: int, d: int, designs: Sequence[str], sizes: Sequence[int] = ()
) -> dict[str, Any]:
    shape = {"sizes": list(sizes)} if sizes else {}
    return {"problem": problem, "measure": measure, "n": n, "d": d, "designs": list(designs), **shape}


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """For each design and covariance: means over the draws of the error, its square and the estimated variance."""
    means, kernel = means_of(setting), Gaussian(math.sqrt(2.0 * setting["d"]))
    truth = population(means, setting["measure"], kernel)
    found: dict[str, list[Array]] = {}
    for k in range(REPLICATES * seed, REPLICATES * (seed + 1)):
        data = draw(means, setting, k)
        for design in setting["designs"]:
            made = estimates_of(data, design, kernel, k)
            error = CONTRASTS @ (made.values - truth)
            for name in forms_of([design]):
                covariance = made.corrected if name == COMPLETE[1] else made.projection
                variance = np.einsum("ij,jk,ik->i", CONTRASTS, covariance, CONTRASTS)
                found.setdefault(name, []).append(np.array([error, error**2, variance]))
    return {name: np.mean(rows, axis=0).tolist() for name, rows in found.items()}


def means_of(setting: Mapping[str, Any]) -> Array:
    """Two means ±.5e₁, or a model that equals the data beside one at .5e₁."""
    first = np.eye(setting["d"])[0]
    return np.outer([0.5, -0.5] if setting["problem"] == "tied" else [0.0, 0.5], first)


def draw(means: Array, setting: Mapping[str, Any], seed: int) -> Data:
    """Data N(0, I) and models N(m_i, I): samples, densities, or samples against the density N(0, I)."""
    rng = np.random.default_rng([20190412, seed])
    n, d = setting["n"], setting["d"]
    if setting["measure"] == "ksd":
        return load(rng.standard_normal((n, d)), [Density(score=lambda x, m=m: m - x, dim=d) for m in means])
    samples = [m + rng.standard_normal((size, d)) for m, size in zip(means, setting.get("sizes", (n, n)), strict=True)]
    if setting["measure"] == "target":
        return load(Density(score=np.negative, dim=d), samples)
    return load(rng.standard_normal((n, d)), samples)


def population(means: Array, measure: str, kernel: Gaussian) -> Array:
    """(l,) the true discrepancies of N(m_i, I) from N(0, I).

    MMD² in closed form. The two scores differ by m_i everywhere, so that KSD² = ‖m_i‖² E k(x, x'), and the law of
    x − x' is that of the data whether the rows are the data's or the model's.
    """
    problem = mean_shift("mean shift", means)
    if measure == "mmd":
        return population_mmd(problem, kernel.length)
    rows = problem.reference.as_mixture()
    return np.asarray(np.square(means).sum(axis=1) * rows.mean_kernel(rows, kernel.length))


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row per design: bias over its standard error, and mean estimated over true variance."""
    sizes = setting.get("sizes")
    where = {
        "measure": _NAMES[setting["measure"]],
        "rows": f"{setting['n']}" + (f"; models {sizes[0]}, {sizes[1]}" if sizes else ""),
        "d": setting["d"],
    }
    return [
        {**where, "estimator": _words(name), **_figures(np.array([result[name] for result in results]))}
        for name in forms_of(setting["designs"])
    ]


def forms_of(designs: Sequence[str]) -> list[str]:
    """The designs, the complete one with each of its covariances."""
    return [form for design in designs for form in (COMPLETE if design == "complete" else (design,))]


def ratio(results: Sequence[Mapping[str, Any]], name: str, contrast: int = 0) -> tuple[float, float]:
    """Mean estimated over true variance with its standard error, from means over batches of draws.

    The true mean is known, so that the true variance is the mean square error (the estimates are unbiased).
    """
    batches = np.array([result[name] for result in results])[:, :, contrast]
    _, square, variance = batches.mean(axis=0)
    value = variance / square
    residual = (batches[:, 2] - value * batches[:, 1]) / square
    return float(value), float(np.std(residual, ddof=1) / math.sqrt(len(batches)))


def bias(results: Sequence[Mapping[str, Any]], name: str) -> Array:
    """(2,) the mean error of D₁ − D₂ and of D₁, over its standard error."""
    errors = np.array([result[name] for result in results])[:, 0, :]
    return np.asarray(errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / math.sqrt(len(errors))))


def _figures(batches: Array) -> dict[str, Any]:
    results = [{"": batch} for batch in batches]
    off = bias(results, "")
    return {
        "trials": REPLICATES * len(batches),
        "bias of D₁, in s.e.": f"{off[1]:+.1f}",
        "of D₁−D₂": f"{off[0]:+.1f}",
        "estimated / true variance of D₁−D₂": ratio(results, "", 0),
        "of D₁": ratio(results, "", 1),
    }


def _words(name: str) -> str:
    estimator, _, number = name.partition(" ")
    return f"incomplete, R = {number}" if estimator == "incomplete" else name
