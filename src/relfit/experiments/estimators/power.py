"""What the estimators find at equal cost, and what more pairs gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relfit.compare import decide, estimate
from relfit.estimate import JointEstimate
from relfit.experiments.estimators.designs import options_of
from relfit.experiments.summaries import rate
from relfit.models import Density
from relfit.problems import Problem, draw, mean_shift_l10, rbm_l7

ALPHA = 0.05
ROWS = 1000
TESTS = ("relpsi", "best-set")
# Blocks of 2R + 1 rows and the cyclic design with R lags have equally many pairs; five blocks for each of ten models
# leave room for R = 9. "more rows" gives the linear estimator 2R times the rows, and so the same number of pairs.
LAGS = (2, 5, 9)
MANY_LAGS = (1, 2, 5, 10, 25, 50, 100)
MORE_ROWS = 5


def cells() -> list[dict[str, Any]]:
    """Both problems with both measures."""
    return [{"problem": problem, "measure": m} for problem in ("meanshift-l10", "rbm-l7") for m in ("mmd", "ksd")]


def designs() -> list[str]:
    """Linear, then block and incomplete side by side, then complete."""
    pairs = [design for r in LAGS for design in (f"block {2 * r + 1}", f"incomplete {r}")]
    return ["linear", *pairs, "complete"]


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """The models that each test declares worse with each design, on one draw."""
    problem = problem_of(setting)
    out = {design: _declared(problem, setting, ROWS, seed, design) for design in designs()}
    return {**out, "more rows": _declared(problem, setting, 2 * MORE_ROWS * ROWS, seed, "linear")}


def lag_cells() -> list[dict[str, Any]]:
    """The same problems, for the standard errors alone."""
    return cells()


def lag_trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """For each design the estimated standard errors of the differences between worse and best models, averaged."""
    problem = problem_of(setting)
    names = ["linear", *(f"incomplete {r}" for r in MANY_LAGS), "complete"]
    return {design: _spread(problem, setting, _joint(problem, setting, ROWS, seed, design)) for design in names}


def lag_rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """One row: each design's standard error over the complete one's."""
    out: dict[str, Any] = {"problem": setting["problem"], "measure": setting["measure"].upper()}
    for design in ("linear", *(f"incomplete {r}" for r in MANY_LAGS)):
        label = design.replace("incomplete ", "R = ")
        out[label] = f"{np.mean([result[design] / result['complete'] for result in results]):.2f}"
    return [out]


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row per design: its pairs, and the rates of both tests."""
    problem = problem_of(setting)
    best = problem.best(setting["measure"]) or frozenset()
    out = []
    for design in (designs()[0], "more rows", *designs()[1:]):
        rates: dict[str, Any] = {}
        for test in TESTS:
            found = [set(result[design][test]) for result in results]
            rates[f"{test} TPR"] = rate([len(d - best) / (len(problem.models) - len(best)) for d in found])
            rates[f"{test} FPR"] = rate([len(d & best) / len(best) for d in found])
        where = {"problem": setting["problem"], "measure": setting["measure"].upper()}
        out.append({**where, **_words(design), "trials": len(results), **rates})
    return out


def tpr(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]], design: str, test: str) -> list[float]:
    """The share of worse models found, in each trial."""
    problem = problem_of(setting)
    worse = frozenset(problem.models) - (problem.best(setting["measure"]) or frozenset())
    return [len(set(result[design][test]) & worse) / len(worse) for result in results]


def problem_of(setting: Mapping[str, Any]) -> Problem:
    """Nine tied and a worse one, or seven RBMs of which one is best."""
    return mean_shift_l10() if setting["problem"] == "meanshift-l10" else rbm_l7(0.18)


def _joint(problem: Problem, setting: Mapping[str, Any], n: int, seed: int, design: str) -> JointEstimate:
    reference, samples = draw(problem, n, seed)
    models: dict[str, Any] = dict(samples)
    if setting["measure"] == "ksd":
        models = {name: Density(score=problem.score(name), dim=problem.dim) for name in problem.models}
    return estimate(reference, models, rng=seed, progress=False, **options_of(design, n))


def _declared(problem: Problem, setting: Mapping[str, Any], n: int, seed: int, design: str) -> dict[str, list[str]]:
    joint = _joint(problem, setting, n, seed, design)
    out = {}
    for test in TESTS:
        result = decide(joint, test=test, alpha=ALPHA, rng=seed)
        out[test] = [name for name, worse in zip(result.names, result.worse, strict=True) if worse]
    return out


def _spread(problem: Problem, setting: Mapping[str, Any], joint: JointEstimate) -> float:
    best = problem.best(setting["measure"]) or frozenset()
    good = [i for i, name in enumerate(joint.names) if name in best]
    bad = [i for i, name in enumerate(joint.names) if name not in best]
    v = joint.covariance
    return float(np.mean([np.sqrt(v[i, i] + v[j, j] - 2.0 * v[i, j]) for i in bad for j in good]))


def _words(design: str) -> dict[str, Any]:
    estimator, _, number = design.partition(" ")
    if design == "more rows":
        rows_ = 2 * MORE_ROWS * ROWS
        return {"estimator": "linear", "rows": rows_, "pairs": rows_ // 2}
    pairs = {
        "linear": ROWS // 2,
        "complete": ROWS * (ROWS - 1) // 2,
        "incomplete": ROWS * int(number or 0),
        "block": ROWS // int(number or 1) * int(number or 1) * (int(number or 1) - 1) // 2,
    }
    label = {"incomplete": f"incomplete, R = {number}", "block": f"block of {number} rows"}.get(estimator, estimator)
    return {"estimator": label, "rows": ROWS, "pairs": pairs[estimator]}
