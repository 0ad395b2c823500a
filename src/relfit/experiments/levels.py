"""Do the tests keep their level? Error rates and power on problems whose true best models are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from relfit.compare import compare
from relfit.experiments.summaries import rate
from relfit.models import Density
from relfit.problems import Problem, all_tied, draw, mean_shift_l10, stream

ALPHA = 0.05
TESTS: dict[str, dict[str, Any]] = {"relpsi": {"test": "relpsi"}, "relmulti": {"test": "relmulti"}}
PROBLEMS = ("meanshift-l10", "copy", "near-copy", "tied-l2", "tied-l10", "tied-l50")


def cells() -> list[dict[str, Any]]:
    """Every setting of the calibration, JSON-able."""
    sizes = {"tied-l50": (200, 500)}
    grid = [
        {"problem": problem, "measure": measure, "estimator": "complete", "n": n}
        for problem in PROBLEMS
        for measure in ("mmd", "ksd")
        for n in sizes.get(problem, (50, 200, 500) if problem.startswith("tied") else (200, 500))
    ]
    linear = [
        {"problem": problem, "measure": measure, "estimator": "linear", "n": 500}
        for problem in ("meanshift-l10", "tied-l10")
        for measure in ("mmd", "ksd")
    ]
    return grid + linear


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """One draw of a problem, decided by every test: the models each declares worse."""
    problem = _problem(setting["problem"])
    reference, models = _candidates(problem, setting, seed)
    out: dict[str, Any] = {}
    for name, options in TESTS.items():
        result = compare(
            reference, models, alpha=ALPHA, rng=seed, estimator=setting["estimator"], progress=False, **options
        )
        out[name] = [model for model, worse in zip(result.names, result.worse, strict=True) if worse]
    return out


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rates of every test that was run in one setting, with Monte-Carlo standard errors."""
    problem = _problem(setting["problem"])
    best, worse = _truth(problem, setting)
    out = []
    for test in results[0]:
        declared = [set(result[test]) for result in results]
        fpr = rate([len(d & best) / len(best) for d in declared])
        fdr = rate([len(d & best) / max(1, len(d)) for d in declared])
        worst = max(sum(model in d for d in declared) for model in best) / len(declared)
        tpr = rate([len(d & worse) / len(worse) for d in declared]) if worse else None
        out.append(
            {
                **{key: setting[key] for key in ("problem", "measure", "estimator", "n")},
                "test": test,
                "trials": len(declared),
                "FPR": fpr,
                "worst model": worst,
                "FDR": fdr,
                "TPR": "" if tpr is None else tpr,
                "level": "kept" if _kept(fpr, worst, len(best), len(declared)) else "EXCEEDED",
            }
        )
    return out


def _kept(fpr: tuple[float, float], worst: float, models: int, trials: int) -> bool:
    """FPR ≤ α + 3 s.e., and so for every tied model (the 3 widened for looking at several)."""
    z = float(norm.isf(norm.sf(3.0) / models))
    bound = ALPHA + z * float(np.sqrt(ALPHA * (1.0 - ALPHA) / trials))
    return fpr[0] <= ALPHA + 3.0 * fpr[1] and worst <= bound


def _problem(name: str) -> Problem:
    if name.startswith("tied-l"):
        return all_tied(int(name.removeprefix("tied-l")))
    return mean_shift_l10()


def _candidates(problem: Problem, setting: Mapping[str, Any], seed: int) -> tuple[Any, dict[str, Any]]:
    reference, samples = draw(problem, setting["n"], seed)
    copied = {"copy": 0.0, "near-copy": 1e-6}.get(setting["problem"])
    if setting["measure"] == "mmd":
        models: dict[str, Any] = dict(samples)
        if copied is not None:
            noise = stream(seed, "copy").normal(size=samples["P1"].shape)
            models["copy"] = samples["P1"] + copied * noise
        return reference, models
    models = {name: Density(score=problem.score(name), dim=problem.dim) for name in problem.models}
    if copied is not None:
        score = problem.score("P1")
        # A mean moved sideways: as far from the data as before, to first order.
        sideways = copied * np.eye(problem.dim)[-1]
        models["copy"] = Density(score=lambda x: score(x) + sideways, dim=problem.dim)
    return reference, models


def _truth(problem: Problem, setting: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    best = set(problem.best(setting["measure"]) or ())
    extra = {"copy"} if setting["problem"] in ("copy", "near-copy") else set()
    return best | extra, set(problem.models) - best
