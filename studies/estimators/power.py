"""What the estimators find at equal cost, and what more pairs gain."""

import numpy as np

from relfit import decide, estimate
from relfit.paper.problems import candidates, mean_shift_l10, rbm_l7
from studies.estimators.truth import options_of
from studies.study import ALPHA, declared, error_rates, unadjusted

TESTS = ("relpsi", "best-set")
# Blocks of 2R + 1 rows and the cyclic design with R lags have equally many pairs; five blocks for each of ten models
# allow R = 9 among 1000 rows. "more rows" gives the linear estimator as many pairs as R = 5, of more rows.
LAGS = {1000: (2, 5, 9), 5000: (9, 30, 70)}
MORE_ROWS = 5
MANY_LAGS = (1, 2, 5, 10, 25, 50, 100)


def cells():
    """Both problems with both measures, and the RBMs by their samples once more with rows enough to find anything."""
    grid = [(problem, measure, 1000) for problem in ("meanshift-l10", "rbm-l7") for measure in ("mmd", "ksd")]
    return [_cell(*setting) for setting in (*grid, ("rbm-l7", "mmd", 5000))]


def lag_cells():
    """Both problems with both measures."""
    return cells()[:-1]


def _cell(problem, measure, n):
    return {"problem": problem, "measure": measure, "n": n}


def designs(n):
    """Linear, also with more rows, then block and incomplete side by side, then complete."""
    pairs = [design for r in LAGS[n] for design in (f"block {2 * r + 1}", f"incomplete {r}")]
    return ["linear", "more rows", *pairs, "complete"]


def trial(setting, seed):
    """The models that each test declares worse with each design, on one draw."""
    return {design: _declared(setting, seed, design) for design in designs(setting["n"])}


def lag_trial(setting, seed):
    """For each design the estimated standard errors of the differences between worse and best models, averaged."""
    names = ["linear", *(f"incomplete {r}" for r in MANY_LAGS), "complete"]
    return {design: _spread(setting, _joint(setting, setting["n"], seed, design)) for design in names}


def lag_rows(setting, results):
    """One row: each design's standard error over the complete one's."""
    out = {"problem": setting["problem"], "measure": setting["measure"].upper()}
    for design in ("linear", *(f"incomplete {r}" for r in MANY_LAGS)):
        label = design.replace("incomplete ", "R = ")
        out[label] = f"{np.mean([result[design] / result['complete'] for result in results]):.2f}"
    return [out]


def rows(setting, results):
    """A row per design: its pairs, and the rates of both tests."""
    out = []
    for design in designs(setting["n"]):
        row = {"problem": setting["problem"], "measure": setting["measure"].upper()}
        row |= {**words_of(design, setting["n"]), "trials": len(results)}
        for test in TESTS:
            rates = error_rates(problem_of(setting), [result[design][test] for result in results])
            row |= {f"{test} TPR": rates["TPR"], f"{test} FPR": rates["FPR"]}
        out.append(row)
    return out


def tpr(setting, results, design, test):
    """The fraction of the worse models found, in each trial."""
    worse = problem_of(setting).worse
    return [len(set(result[design][test]) & worse) / len(worse) for result in results]


def problem_of(setting):
    """Nine tied and a worse one, or seven RBMs of which one is best."""
    return mean_shift_l10() if setting["problem"] == "meanshift-l10" else rbm_l7(0.18)


def words_of(design, n):
    """The design, its rows and its pairs of rows."""
    estimator, _, number = design.partition(" ")
    if design == "more rows":
        return {"estimator": "linear", "rows": 2 * MORE_ROWS * n, "pairs": MORE_ROWS * n}
    size = int(number or 1)
    pairs = {
        "linear": n // 2,
        "complete": n * (n - 1) // 2,
        "incomplete": n * size,
        "block": n // size * (size * (size - 1) // 2),
    }
    label = {"incomplete": f"incomplete, R = {number}", "block": f"block of {number} rows"}.get(estimator, estimator)
    return {"estimator": label, "rows": n, "pairs": pairs[estimator]}


def _joint(setting, n, seed, design):
    reference, models = candidates(problem_of(setting), setting["measure"], n, seed)
    return estimate(reference, models, rng=seed, progress=False, **options_of(design, n))


def _declared(setting, seed, design):
    more = design == "more rows"
    n = 2 * MORE_ROWS * setting["n"] if more else setting["n"]
    joint = _joint(setting, n, seed, "linear" if more else design)
    results = {test: decide(joint, test=test, correction=unadjusted(test), alpha=ALPHA, rng=seed) for test in TESTS}
    return {test: declared(result.names, result.worse) for test, result in results.items()}


def _spread(setting, joint):
    problem, v = problem_of(setting), joint.covariance
    good, bad = ([i for i, name in enumerate(joint.names) if name in some] for some in (problem.best, problem.worse))
    return float(np.mean([np.sqrt(v[i, i] + v[j, j] - 2.0 * v[i, j]) for i in bad for j in good]))
