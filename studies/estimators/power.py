"""What the estimators find at equal cost, and what more pairs gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relfit.api import decide, estimate
from relfit.data.models import Density
from relfit.paper.experiment import rate
from relfit.paper.problems import Problem, draw, mean_shift_l10, rbm_l7
from relfit.stats.joint import JointEstimate
from studies.estimators.designs import options_of

ALPHA = 0.05
TESTS = ("relpsi", "best-set")
# Blocks of 2R + 1 rows and the cyclic design with R lags have equally many pairs; five blocks for each of ten models
# leave room for R = 9 among 1000 rows. "more rows" gives the linear estimator as many pairs as R = 5, of more rows.
LAGS = {1000: (2, 5, 9), 5000: (9, 30, 70)}
MORE_ROWS = 5
MANY_LAGS = (1, 2, 5, 10, 25, 50, 100)


def cells() -> list[dict[str, Any]]:
    """Both problems with both measures, and the RBMs by their samples once more with rows enough to find anything."""
    grid = [(problem, measure, 1000) for problem in ("meanshift-l10", "rbm-l7") for measure in ("mmd", "ksd")]
    return [_cell(*setting) for setting in (*grid, ("rbm-l7", "mmd", 5000))]


def lag_cells() -> list[dict[str, Any]]:
    """Both problems with both measures."""
    return cells()[:-1]


def _cell(problem: str, measure: str, n: int) -> dict[str, Any]:
    return {"problem": problem, "measure": measure, "n": n}


def designs(n: int) -> list[str]:
    """Linear, also with more rows, then block and incomplete side by side, then complete."""
    pairs = [design for r in LAGS[n] for design in (f"block {2 * r + 1}", f"incomplete {r}")]
    return ["linear", "more rows", *pairs, "complete"]


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """The models that each test declares worse with each design, on one draw."""
    return {design: _declared(setting, seed, design) for design in designs(setting["n"])}


def lag_trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """For each design the estimated standard errors of the differences between worse and best models, averaged."""
    names = ["linear", *(f"incomplete {r}" for r in MANY_LAGS), "complete"]
    return {design: _spread(setting, _joint(setting, setting["n"], seed, design)) for design in names}


def lag_rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """One row: each design's standard error over the complete one's."""
    out: dict[str, Any] = {"problem": setting["problem"], "measure": setting["measure"].upper()}
    for design in ("linear", *(f"incomplete {r}" for r in MANY_LAGS)):
        label = design.replace("incomplete ", "R = ")
        out[label] = f"{np.mean([result[design] / result['complete'] for result in results]):.2f}"
    return [out]


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row per design: its pairs, and the rates of both tests."""
    best = _truth(setting)[0]
    out = []
    for design in designs(setting["n"]):
        rates: dict[str, Any] = {}
        for test in TESTS:
            rates[f"{test} TPR"] = rate(tpr(setting, results, design, test))
            found = [set(result[design][test]) for result in results]
            rates[f"{test} FPR"] = rate([len(declared & best) / len(best) for declared in found])
        where = {"problem": setting["problem"], "measure": setting["measure"].upper()}
        out.append({**where, **words_of(design, setting["n"]), "trials": len(results), **rates})
    return out


def tpr(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]], design: str, test: str) -> list[float]:
    """The share of worse models found, in each trial."""
    worse = _truth(setting)[1]
    return [len(set(result[design][test]) & worse) / len(worse) for result in results]


def problem_of(setting: Mapping[str, Any]) -> Problem:
    """Nine tied and a worse one, or seven RBMs of which one is best."""
    return mean_shift_l10() if setting["problem"] == "meanshift-l10" else rbm_l7(0.18)


def words_of(design: str, n: int) -> dict[str, Any]:
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


def _truth(setting: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    problem = problem_of(setting)
    best = problem.best(setting["measure"]) or frozenset()
    return best, frozenset(problem.models) - best


def _joint(setting: Mapping[str, Any], n: int, seed: int, design: str) -> JointEstimate:
    problem = problem_of(setting)
    reference, samples = draw(problem, n, seed)
    models: dict[str, Any] = dict(samples)
    if setting["measure"] == "ksd":
        models = {name: Density(score=problem.score(name), dim=problem.dim) for name in problem.models}
    return estimate(reference, models, rng=seed, progress=False, **options_of(design, n))


def _declared(setting: Mapping[str, Any], seed: int, design: str) -> dict[str, list[str]]:
    more = design == "more rows"
    n = 2 * MORE_ROWS * setting["n"] if more else setting["n"]
    joint = _joint(setting, n, seed, "linear" if more else design)
    out = {}
    for test in TESTS:
        result = decide(joint, test=test, alpha=ALPHA, rng=seed)
        out[test] = [name for name, worse in zip(result.names, result.worse, strict=True) if worse]
    return out


def _spread(setting: Mapping[str, Any], joint: JointEstimate) -> float:
    best, worse = _truth(setting)
    good, bad = ([i for i, name in enumerate(joint.names) if name in wanted] for wanted in (best, worse))
    v = joint.covariance
    return float(np.mean([np.sqrt(v[i, i] + v[j, j] - 2.0 * v[i, j]) for i in bad for j in good]))
