"""Carving once, and the median over several randomisations: level, power, dependence on the seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relfit.api import estimate
from relfit.paper.experiment import rate
from relfit.stats.maxt import seeded
from relfit.stats.tests.carve import carve, carve_repeated
from studies.calibration.cases import case
from studies.calibration.verdicts import ALPHA, Setting

REPEATS, FEWER_DRAWS = 21, 100


def cells() -> list[Setting]:
    """The paper's ten models, and ten that are all tied."""
    return [
        {"problem": problem, "measure": "mmd", "estimator": "complete", "n": n}
        for problem, n in (("meanshift-l10", 200), ("tied-l10", 200))
    ]


def trial(setting: Setting, seed: int) -> dict[str, Any]:
    """Models declared worse by one carving and by the median of 21, each with two seeds on the same estimate."""
    reference, models = case(setting["problem"]).candidates(setting["measure"], setting["n"], seed)
    joint = estimate(reference, models, rng=seed, progress=False)
    out: dict[str, list[list[str]]] = {"once": [], f"median of {REPEATS}": []}
    for again in (2 * seed, 2 * seed + 1):
        source = seeded(again, "averaging")
        once = carve(joint, ALPHA, rng=source, draws=FEWER_DRAWS)
        several = carve_repeated(joint, ALPHA, rng=source, repeats=REPEATS, draws=FEWER_DRAWS)
        for found, decision in zip(out.values(), (once, several), strict=True):
            found.append([name for name, worse in zip(joint.names, decision.worse, strict=True) if worse])
    return out


def rows(setting: Setting, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Error rate, power, and how often another seed changes at least one verdict."""
    own = case(setting["problem"])
    out = []
    for kind in results[0]:
        declared = [set(result[kind][0]) for result in results]
        fpr = rate([len(d & own.best) / len(own.best) for d in declared])
        tpr = rate([len(d & own.worse) / len(own.worse) for d in declared]) if own.worse else ""
        changed = rate([float(set(result[kind][0]) != set(result[kind][1])) for result in results])
        out.append(
            {
                **{key: setting[key] for key in ("problem", "measure", "n")},
                "carving": kind,
                "trials": len(declared),
                "FPR": fpr,
                "TPR": tpr,
                "another seed, another verdict": changed,
                "level": "kept" if fpr[0] <= ALPHA + 3.0 * fpr[1] else "EXCEEDED",
            }
        )
    return out
