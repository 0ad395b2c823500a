"""The best set with variance="corrected" beside variance="projection": does it keep the level, does it gain power?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relfit.api import estimate
from relfit.paper.experiment import rate
from relfit.stats.maxt import seeded
from relfit.stats.tests.best_set import best_set
from studies.calibration.cases import case
from studies.calibration.verdicts import ALPHA, Setting, Verdicts

VARIANCES = ("projection", "corrected")


def cells() -> list[Setting]:
    """Small samples, where the second-order part of the variance counts, and models that equal the data."""
    return [
        {"problem": problem, "measure": measure, "estimator": "complete", "n": n}
        for problem, measure, n in (
            ("meanshift-l10", "mmd", 100),
            ("meanshift-l10", "mmd", 200),
            ("meanshift-l10", "ksd", 100),
            ("tied-l10", "mmd", 50),
            ("tied-l10", "mmd", 200),
            ("reference", "mmd", 200),
        )
    ]


def trial(setting: Setting, seed: int) -> Verdicts:
    """One draw, decided by the best set with each variance."""
    reference, models = case(setting["problem"]).candidates(setting["measure"], setting["n"], seed)
    out: Verdicts = {}
    for variance in VARIANCES:
        joint = estimate(reference, models, rng=seed, variance=variance, progress=False)
        decision = best_set(joint, ALPHA, rng=seeded(seed, "best-set"))
        out[variance] = [name for name, worse in zip(joint.names, decision.worse, strict=True) if worse]
    return out


def rows(setting: Setting, results: Sequence[Verdicts]) -> list[dict[str, Any]]:
    """Error rate and power of the best set with each variance."""
    own = case(setting["problem"])
    out = []
    for variance in VARIANCES:
        declared = [set(result[variance]) for result in results]
        fpr = rate([len(d & own.best) / len(own.best) for d in declared])
        tpr = rate([len(d & own.worse) / len(own.worse) for d in declared]) if own.worse else ""
        out.append(
            {
                **{key: setting[key] for key in ("problem", "measure", "n")},
                "variance": variance,
                "trials": len(declared),
                "FPR": fpr,
                "TPR": tpr,
                "level": "kept" if fpr[0] <= ALPHA + 3.0 * fpr[1] else "EXCEEDED",
            }
        )
    return out
