"""Do plans come true? The power that plan() forecasts from the population, beside the power on fresh data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from relfit.compare import compare, decide, estimate
from relfit.estimate import JointEstimate
from relfit.experiments.summaries import rate
from relfit.kernels import Gaussian
from relfit.losses import from_losses
from relfit.models import Density
from relfit.planning import plan
from relfit.problems import Problem, draw, graded, mean_shift_l10, mixture_1d, population_mmd, rotation_2d, stream

ALPHA = 0.05
TESTS = ("relpsi", "relmulti", "best-set", "carve")
TOLERANCE = 0.05
# The covariance of the population is taken from samples of this size, averaged over this many draws.
LARGE, DRAWS = 3000, 4
# Trials use seeds 0, 1, …; the population's draws must not be among them.
FIRST_SEED = 10**9
FORECAST_TRIALS = 2000
LOSS_GAPS = (0.0, 0.0, 0.05, 0.1, 0.2)


def cells() -> list[dict[str, Any]]:
    """The six settings, JSON-able: l = 2 with both measures, l = 10 three times, and a loss matrix of five models."""
    return [
        {"problem": "mixture-1d", "measure": "mmd", "bandwidth": 1.0, "n": 1000},
        {"problem": "rotation-2d", "measure": "ksd", "bandwidth": 1.0, "n": 250},
        {"problem": "mean-shift-l10", "measure": "mmd", "bandwidth": 4.5, "n": 500},
        {"problem": "mean-shift-l10", "measure": "ksd", "bandwidth": 4.5, "n": 300},
        {"problem": "graded", "measure": "mmd", "bandwidth": 4.5, "n": 500},
        {"problem": "losses", "measure": "score", "bandwidth": 0.0, "n": 400},
    ]


def trial(setting: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One fresh data set of n rows, decided by every test: the models each declares worse."""
    if setting["problem"] == "losses":
        joint = from_losses(_losses(setting["n"], seed))
        # A loss matrix cannot be split by decide().
        results = {test: decide(joint, test=test, alpha=ALPHA, rng=seed) for test in TESTS if test != "relmulti"}
    else:
        reference, models = _candidates(setting, setting["n"], seed)
        kernel = Gaussian(setting["bandwidth"])
        results = {
            test: compare(reference, models, test=test, kernel=kernel, alpha=ALPHA, rng=seed, progress=False)
            for test in TESTS
        }
    return {test: [name for name, worse in zip(r.names, r.worse, strict=True) if worse] for test, r in results.items()}


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Forecast and realised power of every model that is truly worse, with Monte-Carlo standard errors."""
    pilot = population(setting["problem"], setting["measure"], setting["bandwidth"])
    made = plan(pilot, alpha=ALPHA, tests=list(results[0]), n=setting["n"], trials=FORECAST_TRIALS, rng=0)
    out = []
    for cell in made.forecasts:
        if cell.gap <= 1e-9:
            continue
        realised = rate([float(cell.name in result[cell.test]) for result in results])
        out.append(
            {
                **{key: setting[key] for key in ("problem", "measure", "n")},
                "test": cell.test,
                "model": cell.name,
                "trials": len(results),
                "forecast": (cell.power, cell.power_error),
                "realised": realised,
                "within .05": "yes" if abs(cell.power - realised[0]) <= TOLERANCE else "NO",
            }
        )
    return out


@lru_cache
def population(name: str, measure: str, bandwidth: float) -> JointEstimate:
    """The population's D, and V of an estimate with LARGE rows.

    For MMD D is exact and tied models are exactly tied; for KSD D is the mean of the large estimates, with the models
    that are truly best set to their common mean.
    """
    if name == "losses":
        covariance = (0.5 * np.eye(len(LOSS_GAPS)) + 0.5) / LARGE
        return JointEstimate(_loss_names(), np.array(LOSS_GAPS), covariance, (LARGE,))
    problem = _problem(name)
    setting = {"problem": name, "measure": measure}
    large = []
    for k in range(DRAWS):
        reference, models = _candidates(setting, LARGE, FIRST_SEED + k)
        large.append(estimate(reference, models, kernel=Gaussian(bandwidth), rng=0, progress=False))
    values = np.mean([joint.values for joint in large], axis=0)
    if measure == "mmd":
        values = population_mmd(problem, bandwidth)
    best = [problem.models.index(model) for model in problem.best(measure) or ()]
    values[best] = values[best].mean()
    covariance = np.mean([joint.covariance for joint in large], axis=0)
    return JointEstimate(problem.models, values, covariance, (LARGE,))


def _problem(name: str) -> Problem:
    makers = {"mixture-1d": mixture_1d, "mean-shift-l10": mean_shift_l10, "graded": graded}
    return rotation_2d(1.4) if name == "rotation-2d" else makers[name]()


def _candidates(setting: Mapping[str, Any], n: int, seed: int) -> tuple[Any, dict[str, Any]]:
    problem = _problem(setting["problem"])
    reference, samples = draw(problem, n, seed)
    if setting["measure"] == "mmd":
        return reference, dict(samples)
    return reference, {name: Density(score=problem.score(name), dim=problem.dim) for name in problem.models}


def _loss_names() -> tuple[str, ...]:
    return tuple(f"m{k}" for k in range(1, len(LOSS_GAPS) + 1))


def _losses(n: int, seed: int) -> dict[str, Any]:
    """Losses of mean LOSS_GAPS, variance 1 and correlation ½: half of each comes from the item."""
    rng = stream(seed, "losses")
    both = np.sqrt(0.5) * (rng.standard_normal((n, 1)) + rng.standard_normal((n, len(LOSS_GAPS))))
    return dict(zip(_loss_names(), (both + LOSS_GAPS).T, strict=True))
