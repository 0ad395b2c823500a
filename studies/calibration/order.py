"""The order of the models changes nothing, and a copy neither hides a worse model nor makes another worse."""

import numpy as np

from relfit import compare
from relfit.paper.experiment import rate
from relfit.paper.problems import stream
from studies.calibration.cases import case
from studies.calibration.levels import KEYS
from studies.study import PLAIN

TESTS = ("relpsi", "relmulti", "best-set", "carve")


def cells():
    """Both measures and both estimators, below and above the size where the best set has Student's law."""
    return [
        {"problem": "meanshift-l10", "measure": measure, "estimator": estimator, "n": n}
        for measure in ("mmd", "ksd")
        for estimator, n in (("complete", 100), ("complete", 300), ("linear", 300))
    ]


def trial(setting, seed):
    """For each test the largest change of a p-value, and the changed verdicts, when the models are shuffled."""
    reference, models = case(setting["problem"]).candidates(setting["measure"], setting["n"], seed)
    shuffled = {name: models[name] for name in stream(seed, "order").permutation(list(models)).tolist()}
    out = {}
    for test in TESTS:
        one, two = (
            compare(
                reference,
                ordered,
                test=test,
                estimator=PLAIN if setting["estimator"] == "complete" else setting["estimator"],
                rng=seed,
                progress=False,
            )
            for ordered in (models, shuffled)
        )
        back = [two.names.index(name) for name in one.names]
        out[test] = [
            float(np.abs(one.pvalue - two.pvalue[back]).max()),
            int((one.worse != two.worse[back]).sum() + (one.best != two.best)),
        ]
    return out


def row(setting, results):
    """The largest change over all trials."""
    change = {test: max(result[test][0] for result in results) for test in TESTS}
    return {
        **{key: setting[key] for key in KEYS},
        "trials": len(results),
        "changed verdicts": sum(result[test][1] for result in results for test in TESTS),
        **{f"{test}, largest change of p": f"{value:.1e}" for test, value in change.items()},
    }


def copy_rows(setting, plain, copied, tests):
    """Paired differences, with a copy minus without: worse models found, and other models declared worse."""
    problem = case("meanshift-l10")
    best, worse = problem.best, problem.worse
    out = []
    for test in tests:
        pairs = [(set(a[test]), set(b[test])) for a, b in zip(plain, copied, strict=False)]
        tpr_change = rate([len(b & worse) - len(a & worse) for a, b in pairs])
        fpr_change = rate([(len(b & best) - len(a & best)) / len(best) for a, b in pairs])
        row = {**{key: setting[key] for key in ("problem", "measure", "n")}, "test": test, "trials": len(pairs)}
        row |= {"change of TPR": tpr_change, "change of FPR of the others": fpr_change}
        out.append({**row, "unchanged": "yes" if abs(tpr_change[0]) <= 2.0 * tpr_change[1] + 1e-12 else "NO"})
    return out
