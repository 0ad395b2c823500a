"""The order of the models changes nothing, and a copy neither hides a worse model nor makes another worse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relfit.api import compare
from relfit.paper.experiment import rate
from relfit.paper.problems import stream
from studies.calibration.cases import case
from studies.calibration.levels import KEYS
from studies.calibration.verdicts import Setting, Verdicts

TESTS = ("relpsi", "relmulti", "best-set", "carve")


def cells() -> list[Setting]:
    """Both measures and both estimators, below and above the size where the best set bootstraps."""
    return [
        {"problem": "meanshift-l10", "measure": measure, "estimator": estimator, "n": n}
        for measure in ("mmd", "ksd")
        for estimator, n in (("complete", 100), ("complete", 300), ("linear", 300))
    ]


def trial(setting: Setting, seed: int) -> dict[str, Any]:
    """For each test the largest change of a p-value, and the changed verdicts, when the models are shuffled."""
    reference, models = case(setting["problem"]).candidates(setting["measure"], setting["n"], seed)
    shuffled = {name: models[name] for name in stream(seed, "order").permutation(list(models)).tolist()}
    out: dict[str, Any] = {}
    for test in TESTS:
        one, two = (
            compare(reference, given, test=test, estimator=setting["estimator"], rng=seed, progress=False)
            for given in (models, shuffled)
        )
        back = [two.names.index(name) for name in one.names]
        out[test] = [
            float(np.abs(one.pvalue - two.pvalue[back]).max()),
            int((one.worse != two.worse[back]).sum() + (one.best != two.best)),
        ]
    return out


def row(setting: Setting, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The largest change over all trials."""
    change = {test: max(result[test][0] for result in results) for test in TESTS}
    return {
        **{key: setting[key] for key in KEYS},
        "trials": len(results),
        "changed verdicts": sum(result[test][1] for result in results for test in TESTS),
        **{f"{test}, largest change of p": f"{value:.1e}" for test, value in change.items()},
    }


def copy_rows(
    setting: Setting, plain: Sequence[Verdicts], copied: Sequence[Verdicts], tests: Sequence[str]
) -> list[dict[str, Any]]:
    """Paired differences, with a copy minus without: worse models found, and other models declared worse."""
    own = case("meanshift-l10")
    out = []
    for test in tests:
        pairs = [(set(a[test]), set(b[test])) for a, b in zip(plain, copied, strict=False)]
        found = rate([len(b & own.worse) - len(a & own.worse) for a, b in pairs])
        others = rate([(len(b & own.best) - len(a & own.best)) / len(own.best) for a, b in pairs])
        out.append(
            {
                **{key: setting[key] for key in ("problem", "measure", "n")},
                "test": test,
                "trials": len(pairs),
                "change of TPR": found,
                "change of FPR of the others": others,
                "unchanged": "yes" if abs(found[0]) <= 2.0 * found[1] + 1e-12 else "NO",
            }
        )
    return out
