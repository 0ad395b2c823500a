"""How often do the procedures find the worse models? The paper's problems with many models.

The trials of the levels hold every procedure but two ways of splitting; those are run here, on the same draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relfit.paper.experiment import rate
from studies.calibration.cases import case
from studies.calibration.verdicts import NAIVE, Setting, Verdicts, by_splitting

SPLITS: dict[str, dict[str, Any]] = {
    "relmulti 50%": {"select_fraction": 0.5},
    "split 10/90": {"select_fraction": 0.1, "correction": "none"},
}
TESTS = ("relpsi", "carve", "split 10/90", "best-set", "relmulti", "relmulti 50%", "best-set BY", NAIVE)
COLUMNS = (
    *(("meanshift-l10", n) for n in (200, 500, 1000)),
    ("graded", 500),
    *((f"rbm-l7 ε={epsilon}", 1000) for epsilon in (".18", ".20")),
)


def cells() -> list[Setting]:
    """Every setting, JSON-able; all are settings of the levels too."""
    return [
        {"problem": problem, "measure": measure, "estimator": "complete", "n": n}
        for problem, n in COLUMNS
        for measure in ("mmd", "ksd")
    ]


def trial(setting: Setting, seed: int) -> Verdicts:
    """One draw decided by the ways of splitting that the levels leave out."""
    own = case(setting["problem"])
    reference, models = own.candidates(setting["measure"], setting["n"], seed)
    return by_splitting(reference, models, seed, {**own.options, "estimator": setting["estimator"]}, SPLITS)[0]


def rows(setting: Setting, *runs: Sequence[Mapping[str, Sequence[str]]]) -> list[dict[str, Any]]:
    """TPR, FPR and FDR of every procedure in one setting; each run of trials holds some of the procedures."""
    own = case(setting["problem"])
    out = []
    for test in TESTS:
        declared = [set(result[test]) for results in runs if test in results[0] for result in results]
        out.append(
            {
                "test": test,
                "trials": len(declared),
                "TPR": rate([len(d & own.worse) / len(own.worse) for d in declared]),
                "FPR": rate([len(d & own.best) / len(own.best) for d in declared]),
                "FDR": rate([len(d & own.best) / max(1, len(d)) for d in declared]),
            }
        )
    return out
