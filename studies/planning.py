"""Do plans come true? The power that plan() forecasts, beside the power on fresh data.

Writes docs/evidence/planning.md.

python -m studies.planning [--trials 1000] [--only pilots] [--workers 2]

The forecasts are from the population. A second part shows how far plans from small pilots are from those.
"""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from relfit import Gaussian, JointEstimate, compare, decide, estimate, from_losses, plan
from relfit.paper.experiment import markdown_table, rate
from relfit.paper.problems import candidates, mean_shift_l10, mixture_1d, rotation_2d, stream
from studies.problems import graded, true_ksd, true_mmd
from studies.study import ALPHA, PLAIN, Part, Study, declared, main, rows_of, table, unadjusted, write_page

TESTS = ("relpsi", "relmulti", "best-set", "carve")
TOLERANCE = 0.05
# The covariance of the population is taken from samples of this size, averaged over this many draws.
LARGE, DRAWS = 3000, 4
# Trials use seeds 0, 1, …; the population's draws must not be among them.
FIRST_SEED = 10**9
FORECAST_TRIALS, PILOT_TRIALS = 4000, 300
LOSS_GAPS = (0.0, 0.0, 0.05, 0.1, 0.2)
PILOT_TEST = "best-set"


def cells():
    """The six settings, JSON-able: l = 2 with both measures, l = 10 three times, and a loss matrix of five models."""
    return [
        {"problem": "mixture-1d", "measure": "mmd", "bandwidth": 1.0, "n": 1000},
        {"problem": "rotation-2d", "measure": "ksd", "bandwidth": 1.0, "n": 250},
        {"problem": "mean-shift-l10", "measure": "mmd", "bandwidth": 4.5, "n": 500},
        {"problem": "mean-shift-l10", "measure": "ksd", "bandwidth": 4.5, "n": 300},
        {"problem": "graded", "measure": "mmd", "bandwidth": 4.5, "n": 500},
        {"problem": "losses", "measure": "score", "bandwidth": 0.0, "n": 400},
    ]


def trial(setting, seed):
    """One fresh data set of n rows, decided by every test: the models each declares worse."""
    if setting["problem"] == "losses":
        joint = from_losses(_losses(setting["n"], seed))
        # A loss matrix cannot be split by decide().
        results = {
            test: decide(joint, test=test, correction=unadjusted(test), alpha=ALPHA, rng=seed)
            for test in TESTS
            if test != "relmulti"
        }
    else:
        reference, models = candidates(_problem(setting["problem"]), setting["measure"], setting["n"], seed)
        kernel = Gaussian(setting["bandwidth"])
        results = {
            test: compare(
                reference,
                models,
                test=test,
                correction=unadjusted(test),
                kernel=kernel,
                estimator=PLAIN,
                alpha=ALPHA,
                rng=seed,
                progress=False,
            )
            for test in TESTS
        }
    return {test: declared(result.names, result.worse) for test, result in results.items()}


def _forecasts(joint, n, tests):
    """A forecast for each model and test, each with the correction that the trials have."""
    options = {"alpha": ALPHA, "n": n, "rng": 0, "progress": False, "trials": FORECAST_TRIALS}
    planned = [plan(joint, tests=[test], correction=unadjusted(test), **options).forecasts for test in tests]
    return [cell for cells in zip(*planned, strict=True) for cell in cells]


def rows(setting, results):
    """Forecast and realised power of every model that is truly worse, with Monte-Carlo standard errors.

    Beside it the forecast that knows no second-order part: D ~ N(θ, V n₀/n).
    """
    pilot = population(setting["problem"], setting["measure"], setting["bandwidth"])
    forecasts, first_order = (
        _forecasts(joint, setting["n"], list(results[0])) for joint in (pilot, replace(pilot, second_order=None))
    )
    out = []
    for cell, first in zip(forecasts, first_order, strict=True):
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


def summary(all_rows):
    """The largest difference of every setting and test, in size, and that of first-order theory."""
    keys = ("problem", "measure", "n", "test")
    groups = {}
    for row in all_rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    out = []
    for values, group in groups.items():
        worst = max(group, key=lambda row: abs(row["difference"]))
        error = math.hypot(worst["forecast"][1], worst["realised"][1])
        largest = {"models": len(group), "largest difference": (abs(worst["difference"]), error)}
        first_order = max(abs(row["first order"] - row["realised"][0]) for row in group)
        out.append({**dict(zip(keys, values, strict=True)), **largest, "by first-order theory": first_order})
    return out


def pilot_cells():
    """Pilots of a model that is neither the best nor far from it."""
    return [
        {"problem": "mixture-1d", "measure": "mmd", "bandwidth": 1.0, "n": 1000, "model": "P2"},
        {"problem": "graded", "measure": "mmd", "bandwidth": 4.5, "n": 300, "model": "P6"},
        {"problem": "losses", "measure": "score", "bandwidth": 0.0, "n": 400, "model": "m4"},
    ]


def pilot_trial(setting, seed):
    """The rows that one pilot of n rows says are needed, and its range; None stands for more than can be promised."""
    if setting["problem"] == "losses":
        joint = from_losses(_losses(setting["n"], seed))
    else:
        reference, models = candidates(_problem(setting["problem"]), setting["measure"], setting["n"], seed)
        joint = estimate(reference, models, kernel=Gaussian(setting["bandwidth"]), rng=0, progress=False)
    made = plan(joint, alpha=ALPHA, tests=PILOT_TEST, correction="none", trials=PILOT_TRIALS, rng=seed, progress=False)
    cell = next((cell for cell in made.forecasts if cell.name == setting["model"]), None)
    # Where the pilot takes the model for the best, no number of rows finds it worse.
    counts = (math.inf, math.inf, math.inf) if cell is None else (cell.n_needed, *(cell.n_range or (0.0, math.inf)))
    return {
        key: value if math.isfinite(value) else None for key, value in zip(("rows", "low", "high"), counts, strict=True)
    }


def pilot_rows(setting, results):
    """One row: quartiles of the pilots' answers beside the population's, and how often a pilot's range holds it."""
    joint = population(setting["problem"], setting["measure"], setting["bandwidth"])
    made = plan(joint, alpha=ALPHA, tests=PILOT_TEST, correction="none", trials=FORECAST_TRIALS, rng=0, progress=False)
    truth = made.needed(setting["model"], PILOT_TEST)
    answers = sorted(_count(result["rows"]) for result in results)
    held = [float(_count(result["low"]) <= truth <= _count(result["high"])) for result in results]
    quartiles = [answers[round(fraction * (len(answers) - 1))] for fraction in (0.25, 0.5, 0.75)]
    words = ", ".join(f"{q:.0f}" if math.isfinite(q) else "no limit" for q in quartiles)
    row = {**{key: setting[key] for key in ("problem", "measure", "model")}, "pilot rows": setting["n"]}
    row |= {"pilots": len(results), "rows needed": f"{truth:.0f}", "quartiles of the pilots' answers": words}
    return [{**row, "range holds it": rate(held)}]


def _count(value):
    """A stored number of rows: None stands for infinity, which JSON does not have."""
    return math.inf if value is None else value


@lru_cache
def population(name, measure, bandwidth):
    """The population's D, exact, and V of an estimate with LARGE rows with its second-order part."""
    if name == "losses":
        covariance = (0.5 * np.eye(len(LOSS_GAPS)) + 0.5) / LARGE
        return JointEstimate(_loss_names(), np.array(LOSS_GAPS), covariance, (LARGE,))
    problem = _problem(name)
    large = []
    for k in range(DRAWS):
        reference, models = candidates(problem, measure, LARGE, FIRST_SEED + k)
        large.append(estimate(reference, models, kernel=Gaussian(bandwidth), rng=0, progress=False))
    values = (true_mmd if measure == "mmd" else true_ksd)(problem, bandwidth)
    best = [k for k, model in enumerate(problem.models) if model in problem.best]
    # Tied exactly, and not only to rounding.
    values[best] = values[best].mean()
    covariance = np.mean([joint.covariance for joint in large], axis=0)
    second = np.mean([joint.second_order for joint in large if joint.second_order is not None], axis=0)
    return JointEstimate(tuple(problem.models), values, covariance, (LARGE,), second_order=second)


def _problem(name):
    makers = {"mixture-1d": mixture_1d, "mean-shift-l10": mean_shift_l10, "graded": graded}
    return rotation_2d(1.4) if name == "rotation-2d" else makers[name]()


def _loss_names():
    return tuple(f"m{k}" for k in range(1, len(LOSS_GAPS) + 1))


def _losses(n, seed):
    """Losses of mean LOSS_GAPS, variance 1 and correlation ½: half of each comes from the item."""
    rng = stream(seed, "losses")
    both = np.sqrt(0.5) * (rng.standard_normal((n, 1)) + rng.standard_normal((n, len(LOSS_GAPS))))
    return dict(zip(_loss_names(), (both + LOSS_GAPS).T, strict=True))


def write(docs, results):
    """The page; True if every forecast comes true."""
    all_rows = rows_of(rows, results["planning"])
    kept = sum(row["within .05"] == "yes" for row in all_rows)
    verdict = f"{kept} of {len(all_rows)} forecasts are within .05."
    write_page(
        docs,
        "planning.md",
        trials=min(len(trials) for _, trials in results["planning"]),
        verdict=verdict,
        summary=markdown_table(summary(all_rows)),
        table=markdown_table(all_rows),
        pilots=min(len(trials) for _, trials in results["pilots"]),
        pilot_table=table(pilot_rows, results["pilots"]),
    )
    print(verdict)
    return kept == len(all_rows)


STUDY = Study(
    parts={
        "planning": Part("planning", cells, trial, 1000),
        "pilots": Part("pilots", pilot_cells, pilot_trial, 100),
    },
    store="planning.sqlite",
    version="1",
    write=write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
