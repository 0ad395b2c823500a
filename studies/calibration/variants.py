"""A variant of the tests: carving over several randomisations."""

import math
from functools import cache

import numpy as np

from relfit import estimate
from relfit.paper.experiment import rate
from relfit.stats.maxt import seeded
from relfit.stats.tests.carve import carve
from studies.calibration.cases import case
from studies.study import ALPHA, PLAIN, declared, error_rates, level

REPEATS, FEWER_DRAWS = 21, 100


def _cell(problem, measure, n):
    return {"problem": problem, "measure": measure, "estimator": "complete", "n": n}


def _row(setting, kind, declared_worse, **more):
    """The row of one variant: error rate, power, `more`, and whether the level is kept."""
    rates = error_rates(case(setting["problem"]), declared_worse)
    row = {**{key: setting[key] for key in ("problem", "measure", "n")}, **kind, "trials": len(declared_worse)}
    return {**row, "FPR": rates["FPR"], "TPR": rates["TPR"], **more, "level": level(rates["FPR"])}


def averaging_cells():
    """The paper's ten models, and ten that are all tied."""
    return [_cell("meanshift-l10", "mmd", 200), _cell("tied-l10", "mmd", 200)]


def averaging_trial(setting, seed):
    """Models declared worse by one carving and by the median of 21, each with two seeds on the same estimate."""
    reference, models = case(setting["problem"]).candidates(setting["measure"], setting["n"], seed)
    joint = estimate(reference, models, estimator=PLAIN, rng=seed, progress=False)
    once, several = [], []
    for again in (2 * seed, 2 * seed + 1):
        source = seeded(again, "averaging")
        once.append(declared(joint.names, carve(joint, ALPHA, rng=source, draws=FEWER_DRAWS).worse))
        several.append(declared(joint.names, median_pvalues(joint, source, REPEATS, FEWER_DRAWS) <= ALPHA))
    return {"once": once, f"median of {REPEATS}": several}


def median_pvalues(joint, rng, repeats, draws):
    """Twice the median p-value of each model over several carvings, 1 for the model selected most often.

    Under "i is among the best" every randomisation gives a valid p-value, whatever model it selects, and
    (K/k) p_(k) of K valid p-values is valid under any dependence between them (Rüger 1978; with the median,
    Meinshausen, Meier and Bühlmann 2009). The verdict depends far less on the seed, but the error rate is no longer
    given the selected model. Of models selected equally often, the one with the lowest D counts.
    """
    # One generator per model for all repeats, so that they differ.
    source = rng if isinstance(rng, np.random.Generator) else cache(rng)
    runs = [carve(joint, ALPHA, rng=source, draws=draws) for _ in range(repeats)]
    place = (repeats + 1) // 2
    middle = np.sort([run.log_pvalue for run in runs], axis=0)[place - 1]
    times = np.bincount([run.best for run in runs], minlength=len(joint.names))
    log_p = np.minimum(middle + math.log(repeats / place), 0.0)
    log_p[np.lexsort((joint.values, -times))[0]] = 0.0
    return np.exp(log_p)


def averaging_rows(setting, results):
    """Error rate, power, and how often another seed changes at least one verdict."""
    out = []
    for kind in results[0]:
        changed = rate([float(set(result[kind][0]) != set(result[kind][1])) for result in results])
        more = {"another seed, another verdict": changed}
        out.append(_row(setting, {"carving": kind}, [result[kind][0] for result in results], **more))
    return out
