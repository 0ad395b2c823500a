"""Which kernel sees the difference, and does choosing one keep the level? Rates on problems whose truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relfit.api import compare
from relfit.data.models import Density
from relfit.kernels.choice import FACTORS
from relfit.kernels.composite import MultiScale, Tilted
from relfit.kernels.standard import Gaussian
from relfit.paper.experiment import rate
from relfit.paper.problems import Problem, blobs, draw, mean_shift_l10, mean_shift_pair, stream

ALPHA = 0.05
KERNELS: dict[str, Any] = {
    "median": None,
    "MultiScale": MultiScale(),
    "select": "select",
    "collection": tuple(MultiScale((factor,)) for factor in FACTORS),
    "tilted": Tilted(Gaussian()),
}
PROBLEMS = {"blobs": blobs, "fig1-meanshift": mean_shift_pair, "meanshift-l10": mean_shift_l10}
SELECTIVE = (
    *(("relpsi", kernel) for kernel in ("median", "MultiScale", "select")),
    *(("relmulti", kernel) for kernel in ("median", "select")),
    *(("carve", kernel) for kernel in ("median", "select")),
)
BEST_SET = tuple(("best-set", kernel) for kernel in ("median", "MultiScale", "select", "collection"))
TAILS = tuple((test, kernel) for test in ("relpsi", "best-set") for kernel in ("median", "tilted"))
# Normal models for Cauchy data: two tied by symmetry, one further off.
_TAIL_MEANS = {"P1": 0.5, "P2": -0.5, "P3": 1.0}


def cells() -> list[dict[str, Any]]:
    """Every setting of the simulation, JSON-able.

    Best sets of ten models run at n = 400: below 300 rows they bootstrap, which takes seconds for every kernel.
    """
    nulls = [
        {"problem": problem, "measure": measure, "n": n}
        for problem, n in (("fig1-meanshift", 200), ("meanshift-l10", 200), ("meanshift-l10", 400))
        for measure in ("mmd", "ksd")
    ]
    return [{"problem": "blobs", "measure": "mmd", "n": 500}, *nulls, {"problem": "cauchy", "measure": "ksd", "n": 200}]


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """One draw of a problem, decided with every kernel: the models each declares worse, and the bandwidths chosen."""
    reference, models = _candidates(setting, seed)
    out: dict[str, Any] = {}
    median = 1.0
    for test, kernel in _runs(setting):
        result = compare(reference, models, test=test, kernel=KERNELS[kernel], alpha=ALPHA, rng=seed, progress=False)
        out[f"{test}/{kernel}"] = [model for model, worse in zip(result.names, result.worse, strict=True) if worse]
        if kernel == "median":
            median = getattr(result.kernel, "bandwidth", 1.0)
        if kernel == "select" and test in ("relpsi", "best-set"):
            out["factor"] = round(getattr(result.kernel, "bandwidth", 0.0) / median, 3)
    return out


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """FPR and TPR of every test and kernel in one setting, with Monte-Carlo standard errors."""
    best, worse = _truth(setting)
    out = []
    for test, kernel in _runs(setting):
        declared = [set(result[f"{test}/{kernel}"]) for result in results]
        fpr = rate([len(d & best) / len(best) for d in declared])
        tpr = rate([len(d & worse) / len(worse) for d in declared]) if worse else ""
        line = {key: setting[key] for key in ("problem", "measure", "n")}
        kept = "kept" if fpr[0] <= ALPHA + 3.0 * fpr[1] else "EXCEEDED"
        line |= {"test": test, "kernel": kernel, "trials": len(declared), "FPR": fpr, "TPR": tpr, "level": kept}
        out.append(line)
    return out


def factors(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How often "select" on a fifth of the rows took each multiple of the median distance."""
    found = np.array([result["factor"] for result in results])
    shares = {f"{factor:g}": float(np.mean(np.abs(found - factor) < 1e-3)) for factor in FACTORS}
    return {**{key: setting[key] for key in ("problem", "measure", "n")}, **shares}


def _runs(setting: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    if setting["problem"] == "cauchy":
        return TAILS
    if setting["problem"] == "meanshift-l10":
        return SELECTIVE if setting["n"] == 200 else BEST_SET
    return (*SELECTIVE, *BEST_SET)


def _candidates(setting: Mapping[str, Any], seed: int) -> tuple[Any, dict[str, Any]]:
    if setting["problem"] == "cauchy":
        reference = stream(seed, None).standard_cauchy((setting["n"], 2))
        return reference, {name: Density(score=_normal_score(mean), dim=2) for name, mean in _TAIL_MEANS.items()}
    problem = _problem(setting)
    reference, samples = draw(problem, setting["n"], seed)
    if setting["measure"] == "mmd":
        return reference, dict(samples)
    return reference, {name: Density(score=problem.score(name), dim=problem.dim) for name in problem.models}


def _normal_score(mean: float) -> Any:
    return lambda x: np.array([mean, 0.0]) - x


def _truth(setting: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    if setting["problem"] == "cauchy":
        return {"P1", "P2"}, {"P3"}
    problem = _problem(setting)
    best = set(problem.best(setting["measure"]) or ())
    return best, set(problem.models) - best


def _problem(setting: Mapping[str, Any]) -> Problem:
    return PROBLEMS[setting["problem"]]()
