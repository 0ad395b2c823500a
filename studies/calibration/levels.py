"""Do the procedures keep their level? Error rates in every case where they must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from relfit.api import compare
from relfit.paper.experiment import rate
from studies.calibration.cases import case
from studies.calibration.verdicts import ALPHA, CLAIMS, Setting, Verdicts, verdicts

trial = verdicts
KEYS = ("problem", "measure", "estimator", "n")

# (problem, measures, sizes) for each estimator.
COMPLETE: tuple[tuple[str, str, tuple[int, ...]], ...] = (
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
LINEAR: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("tied-l10", "mmd ksd", (500,)),
    ("meanshift-l10", "mmd ksd", (500,)),
    ("reference", "mmd", (500,)),
    ("t₂", "mmd ksd", (500,)),
    ("tied-l2", "mmd ksd", (100,)),
)
PARTIAL: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("tied-l10", "mmd ksd", (500,)),
    ("meanshift-l10", "mmd ksd", (500,)),
)


def cells() -> list[Setting]:
    """Every setting, JSON-able."""
    tables = {"complete": COMPLETE, "linear": LINEAR, "block": PARTIAL, "incomplete": PARTIAL}
    return [
        {"problem": problem, "measure": measure, "estimator": estimator, "n": n}
        for estimator, table in tables.items()
        for problem, measures, sizes in table
        for measure in measures.split()
        for n in sizes
    ]


def rows(setting: Setting, results: Sequence[Verdicts]) -> list[dict[str, Any]]:
    """The rates of every procedure in one setting; `error` is the rate it claims to hold at α."""
    own = case(setting["problem"])
    out = []
    for test, claim in CLAIMS.items():
        declared = [set(result[test]) for result in results]
        rates = {
            "FPR": rate([len(d & own.best) / len(own.best) for d in declared]),
            "FDR": rate([len(d & own.best) / max(1, len(d)) for d in declared]),
            "FWER": rate([float(bool(d & own.best)) for d in declared]),
        }
        worst = max(sum(model in d for d in declared) for model in own.best) / len(declared)
        tpr = rate([len(d & own.worse) / len(own.worse) for d in declared]) if own.worse else None
        per_model = len(own.best) if claim == "FPR" else None
        out.append(
            {
                **{key: setting[key] for key in KEYS},
                "test": test,
                "trials": len(declared),
                "claim": claim,
                "error": rates[claim],
                **rates,
                "worst model": worst,
                "TPR": tpr,
                "kept": kept(rates[claim], worst, per_model, len(declared)),
            }
        )
    return out


def kept(error: tuple[float, float], worst: float, models: int | None, trials: int) -> bool:
    """Error ≤ α + 3 s.e., and the rate of every tied model by itself (the 3 widened for looking at `models`)."""
    if error[0] > ALPHA + 3.0 * error[1]:
        return False
    if models is None:
        return True
    z = float(norm.isf(norm.sf(3.0) / models))
    return worst <= ALPHA + z * float(np.sqrt(ALPHA * (1.0 - ALPHA) / trials))


def warnings(setting: Mapping[str, Any], test: str) -> tuple[str, ...]:
    """What `compare` says at run time in this setting (of the first draw)."""
    own = case(setting["problem"])
    reference, models = own.candidates(setting["measure"], setting["n"], 0)
    name = test.split()[0]
    result = compare(reference, models, test=name, estimator=setting["estimator"], rng=0, progress=False, **own.options)
    return result.warnings
