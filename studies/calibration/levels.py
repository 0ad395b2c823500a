"""Do the procedures keep their level? Error rates in every case where they must."""

import numpy as np
from scipy.stats import norm

from relfit import compare
from studies.calibration.cases import case
from studies.calibration.verdicts import CLAIMS
from studies.study import ALPHA, PLAIN, error_rates

KEYS = ("problem", "measure", "estimator", "n")

# (problem, measures, sizes) for each estimator.
COMPLETE = (
    ("tied-l2", "mmd ksd", (50, 200, 500)),
    ("tied-l10", "mmd ksd", (50, 200, 500)),
    ("tied-l50", "mmd ksd", (200, 500)),
    ("tied-l200", "mmd", (300,)),
    ("meanshift-l10", "mmd ksd", (200, 500, 1000)),
    ("graded", "mmd ksd", (500,)),
    ("rbm-l7 ε=.18", "mmd ksd", (1000,)),
    ("rbm-l7 ε=.20", "mmd ksd", (1000,)),
    ("blobs", "mmd ksd", (500,)),
    ("mixture", "mmd ksd", (500,)),
    ("rotation", "mmd ksd", (500,)),
    ("pair (.5, −.5)", "mmd ksd", (500,)),
    ("pair (2.5, 2.5)", "mmd ksd", (500,)),
    ("pair (2.5, −2.5)", "mmd ksd", (500,)),
    ("copy", "mmd ksd", (200,)),
    ("near-copy", "mmd ksd", (200,)),
    ("identical", "mmd ksd", (200,)),
    ("reference", "mmd ksd", (200,)),
    ("near-reference", "mmd ksd", (200,)),
    ("d=500", "mmd ksd", (100,)),
    ("t₂", "mmd ksd", (200, 500)),
    ("Cauchy", "mmd", (200, 500)),
    ("narrow", "mmd ksd", (200,)),
    ("shared", "mmd", (200,)),
    ("paired", "mmd", (200,)),
    ("few model rows", "mmd", (1000,)),
    ("few reference rows", "mmd", (50,)),
    ("atoms", "mmd", (200,)),
    ("far-best", "mmd ksd", (200,)),
)
LINEAR = (
    ("tied-l10", "mmd ksd", (500,)),
    ("meanshift-l10", "mmd ksd", (500,)),
    ("reference", "mmd", (500,)),
    ("t₂", "mmd ksd", (500,)),
    ("tied-l2", "mmd ksd", (100,)),
)
PARTIAL = (
    ("tied-l10", "mmd ksd", (500,)),
    ("meanshift-l10", "mmd ksd", (500,)),
)


def cells():
    """Every setting, JSON-able."""
    tables = {"complete": COMPLETE, "linear": LINEAR, "block": PARTIAL, "incomplete": PARTIAL}
    return [
        {"problem": problem, "measure": measure, "estimator": estimator, "n": n}
        for estimator, table in tables.items()
        for problem, measures, sizes in table
        for measure in measures.split()
        for n in sizes
    ]


def rows(setting, results):
    """The rates of every procedure in one setting; `error` is the rate it claims to hold at α."""
    problem = case(setting["problem"])
    out = []
    for test, claim in CLAIMS.items():
        declared = [set(result[test]) for result in results]
        rates = error_rates(problem, declared)
        worst = max(sum(model in d for d in declared) for model in problem.best) / len(declared)
        models = len(problem.best) if claim == "FPR" else None
        row = {key: setting[key] for key in KEYS}
        row |= {"test": test, "trials": len(declared), "claim": claim, "error": rates[claim], **rates}
        out.append({**row, "worst model": worst, "kept": kept(rates[claim], worst, models, len(declared))})
    return out


def kept(error, worst, models, trials):
    """Error ≤ α + 3 s.e., and the rate of every tied model by itself (the 3 widened for looking at `models`)."""
    if error[0] > ALPHA + 3.0 * error[1]:
        return False
    if models is None:
        return True
    z = float(norm.isf(norm.sf(3.0) / models))
    return worst <= ALPHA + z * float(np.sqrt(ALPHA * (1.0 - ALPHA) / trials))


def warnings(setting, test):
    """What `compare` says at run time in this setting (of the first draw)."""
    problem = case(setting["problem"])
    reference, models = problem.candidates(setting["measure"], setting["n"], 0)
    options = {**problem.options, "estimator": PLAIN if setting["estimator"] == "complete" else setting["estimator"]}
    return compare(reference, models, test=test.split()[0], rng=0, progress=False, **options).warnings
