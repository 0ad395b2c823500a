"""Do plans come true? The power that plan() forecasts from the population, beside the power on fresh data.

And how far plans from small pilots are from that of the population.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from relfit.results.planning import plan

from relfit.api import compare, decide, estimate
from relfit.data.models import Density
from relfit.estimators.losses import from_losses
from relfit.kernels.standard import Gaussian
from relfit.paper.experiment import rate
from relfit.paper.problems import Problem, draw, graded, mean_shift_l10, mixture_1d, population_mmd, rotation_2d, stream
from relfit.paper.tpr import gaussian_ksd
from relfit.stats.joint import JointEstimate

ALPHA = 0.05
TESTS = ("relpsi", "relmulti", "best-set", "carve")
TOLERANCE = 0.05
# The covariance of the population is taken from samples of this size, averaged over this many draws.
LARGE, DRAWS = 3000, 4
# Trials use seeds 0, 1, …; the population's draws must not be among them.
FIRST_SEED = 10**9
FORECAST_TRIALS, PILOT_TRIALS = 4000, 300
LOSS_GAPS = (0.0, 0.0, 0.05, 0.1, 0.2)
PILOT_TEST = "best-set"


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
    """Forecast and realised power of every model that is truly worse, with Monte-Carlo standard errors.

    Beside it the forecast that knows no second-order part: D ~ N(θ, V n₀/n).
    """
    pilot = population(setting["problem"], setting["measure"], setting["bandwidth"])
    asked: dict[str, Any] = {"alpha": ALPHA, "tests": list(results[0]), "n": setting["n"], "rng": 0, "progress": False}
    made, plain = (
        plan(joint, trials=FORECAST_TRIALS, **asked).forecasts for joint in (pilot, replace(pilot, second_order=None))
    )
    out = []
    for cell, first in zip(made, plain, strict=True):
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
                "difference": cell.power - realised[0],
                "within .05": "yes" if abs(cell.power - realised[0]) <= TOLERANCE else "NO",
                "first order": first.power,
            }
        )
    return out


def summary(made: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The largest difference of every setting and test, in size, and that of first-order theory."""
    keys = ("problem", "measure", "n", "test")
    for key in dict.fromkeys(tuple(row[name] for name in keys) for row in made):
        own = [row for row in made if tuple(row[name] for name in keys) == key]
        worst = max(own, key=lambda row: abs(row["difference"]))
        plain = max(abs(row["first order"] - row["realised"][0]) for row in own)
        error = math.hypot(worst["forecast"][1], worst["realised"][1])
        counted = {"models": len(own), "largest difference": (abs(worst["difference"]), error)}
        yield {**dict(zip(keys, key, strict=True)), **counted, "by first-order theory": plain}


def pilot_cells() -> list[dict[str, Any]]:
    """Pilots of a model that is neither the best nor far from it."""
    return [
        {"problem": "mixture-1d", "measure": "mmd", "bandwidth": 1.0, "n": 1000, "model": "P2"},
        {"problem": "graded", "measure": "mmd", "bandwidth": 4.5, "n": 300, "model": "P6"},
        {"problem": "losses", "measure": "score", "bandwidth": 0.0, "n": 400, "model": "m4"},
    ]


def pilot_trial(setting: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The rows that one pilot of n rows says are needed, and its range; None stands for more than can be promised."""
    if setting["problem"] == "losses":
        joint = from_losses(_losses(setting["n"], seed))
    else:
        reference, models = _candidates(setting, setting["n"], seed)
        joint = estimate(reference, models, kernel=Gaussian(setting["bandwidth"]), rng=0, progress=False)
    made = plan(joint, alpha=ALPHA, tests=PILOT_TEST, trials=PILOT_TRIALS, rng=seed, progress=False)
    cell = next((cell for cell in made.forecasts if cell.name == setting["model"]), None)
    # Where the pilot takes the model for the best, no number of rows finds it worse.
    found = (math.inf, math.inf, math.inf) if cell is None else (cell.n_needed, *(cell.n_range or (0.0, math.inf)))
    return {
        key: value if math.isfinite(value) else None for key, value in zip(("rows", "low", "high"), found, strict=True)
    }


def pilot_row(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Quartiles of the pilots' answers beside the population's, and how often a pilot's range holds it."""
    joint = population(setting["problem"], setting["measure"], setting["bandwidth"])
    made = plan(joint, alpha=ALPHA, tests=PILOT_TEST, trials=FORECAST_TRIALS, rng=0, progress=False)
    truth = made.needed(setting["model"], PILOT_TEST)
    found = sorted(_rows(result["rows"]) for result in results)
    held = [float(_rows(result["low"]) <= truth <= _rows(result["high"])) for result in results]
    quartiles = [found[round(share * (len(found) - 1))] for share in (0.25, 0.5, 0.75)]
    return {
        **{key: setting[key] for key in ("problem", "measure", "model")},
        "pilot rows": setting["n"],
        "pilots": len(results),
        "rows needed": f"{truth:.0f}",
        "quartiles of the pilots' answers": ", ".join(
            f"{q:.0f}" if math.isfinite(q) else "no limit" for q in quartiles
        ),
        "range holds it": rate(held),
    }


def _rows(value: float | None) -> float:
    return math.inf if value is None else value


@lru_cache
def population(name: str, measure: str, bandwidth: float) -> JointEstimate:
    """The population's D, exact, and V of an estimate with LARGE rows with its second-order part."""
    if name == "losses":
        covariance = (0.5 * np.eye(len(LOSS_GAPS)) + 0.5) / LARGE
        return JointEstimate(_loss_names(), np.array(LOSS_GAPS), covariance, (LARGE,))
    problem = _problem(name)
    setting = {"problem": name, "measure": measure}
    large = []
    for k in range(DRAWS):
        reference, models = _candidates(setting, LARGE, FIRST_SEED + k)
        large.append(estimate(reference, models, kernel=Gaussian(bandwidth), rng=0, progress=False))
    values = (population_mmd if measure == "mmd" else gaussian_ksd)(problem, bandwidth)
    best = [problem.models.index(model) for model in problem.best(measure) or ()]
    # Tied exactly, and not only to rounding.
    values[best] = values[best].mean()
    covariance = np.mean([joint.covariance for joint in large], axis=0)
    second = np.mean([joint.second_order for joint in large if joint.second_order is not None], axis=0)
    return JointEstimate(problem.models, values, covariance, (LARGE,), second_order=second)


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
