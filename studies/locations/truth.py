"""Are UME² and FSSD² unbiased, and is their covariance right? Simulated where the truth has a closed form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.estimators.base import Dependence, Estimates
from relfit.estimators.locations import Chunked, fssd, ume
from relfit.kernels.standard import Gaussian
from relfit.paper.experiment import rate
from relfit.paper.problems import Problem, mean_shift
from studies.locations.population import mirrored_points, population_fssd, population_ume

Array = NDArray[np.float64]

REPLICATES = 100  # a trial is then long enough to be worth storing
DIFFERENCE, FIRST = [1.0, -1.0], [1.0, 0.0]


def cells() -> list[dict[str, Any]]:
    """A tied pair N(±.5e₁, I) against N(0, I) at ten locations that mirror each other; a pair equal to the data."""
    pair = {"shift": 0.5, "d": 2, "n": 300, "sizes": [300, 300], "dependence": "independent"}
    of_ume: list[dict[str, Any]] = [
        {},
        {"n": 100, "sizes": [100, 100]},
        {"d": 10},
        {"sizes": [150, 600]},
        {"dependence": "shared"},
        {"dependence": "paired"},
        {"shift": 0.0, "contrast": FIRST},
    ]
    of_fssd: list[dict[str, Any]] = [{}, {"n": 100}, {"d": 10}, {"shift": 0.0, "contrast": FIRST}]
    return [
        *({"measure": "ume", **pair, **changes} for changes in of_ume),
        *({"measure": "fssd", **pair, "sizes": [], **changes} for changes in of_fssd),
    ]


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """Values of the first model, differences of the two (or D₁ itself), and their estimated variances."""
    problem, points, kernel = _problem(setting), mirrored_points(setting["d"]), _kernel(setting)
    rng, contrast = np.random.default_rng([20190517, seed]), np.array(setting.get("contrast", DIFFERENCE))
    values, differences, plain, corrected = [], [], [], []
    for _ in range(REPLICATES):
        found = _estimates(setting, problem, points, kernel, rng)
        values.append(float(found.values[0]))
        differences.append(float(contrast @ found.values))
        plain.append(float(contrast @ found.projection @ contrast))
        corrected.append(float(contrast @ found.corrected @ contrast))
    return {"value": values, "difference": differences, "projection": plain, "corrected": corrected}


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row: the bias of D₁, estimated over true variance of D₁ − D₂ (or D₁), and the level of a two-sided z test."""
    found = {key: np.concatenate([result[key] for result in results]) for key in results[0]}
    problem, points, bandwidth = _problem(setting), mirrored_points(setting["d"]), _kernel(setting).length
    population = population_ume if setting["measure"] == "ume" else population_fssd
    truth = float(population(problem, points, bandwidth)[0])
    mean, error = rate(found["value"])
    squares = np.square(found["difference"])  # the mean is 0, by symmetry or because D₁ is
    variance, spread = rate(squares)
    rejected = np.abs(found["difference"]) > 1.959964 * np.sqrt(found["projection"])
    known = setting["dependence"] == "independent"
    return [
        {
            "discrepancy": setting["measure"].upper(),
            "d": setting["d"],
            "rows": ", ".join(str(n) for n in (setting["n"], *setting["sizes"])),
            "samples": setting["dependence"] if setting["sizes"] else "",
            "models": "N(±.5e₁, I)" if setting["shift"] else "equal to the data",
            "of": "D₁ − D₂" if setting["shift"] else "D₁",
            "trials": len(squares),
            "D₁, truth = 1": (mean / truth, error / truth) if truth else f"{mean / error:.1f} s.e. from 0",
            "projection / truth": (float(found["projection"].mean()) / variance, spread / variance),
            "corrected / truth": (float(found["corrected"].mean()) / variance, spread / variance) if known else "",
            "level of z": rate(rejected) if setting["shift"] else "",
        }
    ]


def _problem(setting: Mapping[str, Any]) -> Problem:
    axis = np.eye(setting["d"])[0]
    return mean_shift("pair", setting["shift"] * np.stack([axis, -axis]))


def _kernel(setting: Mapping[str, Any]) -> Gaussian:
    return Gaussian(math.sqrt(1.4 * setting["d"]))


def _estimates(
    setting: Mapping[str, Any], problem: Problem, points: Array, kernel: Gaussian, rng: np.random.Generator
) -> Estimates:
    d, dependence = setting["d"], setting["dependence"]
    reference = rng.standard_normal((setting["n"], d))
    if setting["measure"] == "fssd":
        scores = [problem.score(name)(reference) for name in problem.models]
        return fssd(Chunked(reference), lambda part: [s[part] for s in scores], points, kernel)
    noise = [rng.standard_normal((m, d)) for m in setting["sizes"]]
    if dependence != "independent":
        noise = noise[:1] * 2
    if dependence == "paired":
        reference = (reference + noise[0]) / math.sqrt(2.0)
    shift = setting["shift"] * np.eye(d)[0]
    samples = [Chunked(noise[0] + shift), Chunked(noise[1] - shift)]
    return ume(Chunked(reference), samples, points, kernel, _as_dependence(dependence))


def _as_dependence(word: str) -> Dependence:
    known: dict[str, Dependence] = {"independent": "independent", "shared": "shared", "paired": "paired"}
    return known[word]
