"""How often do the procedures find the worse models? The paper's problems with many models.

The trials of the levels hold every procedure but two ways of splitting; those are run here, on the same draws.
"""

from relfit.paper.experiment import relmulti
from studies.calibration.cases import case
from studies.calibration.verdicts import NAIVE, by_splitting
from studies.study import PLAIN, error_rates

SPLITS = {"relmulti 50%": relmulti(0.5), "split 10/90": relmulti(0.1, "none")}
TESTS = ("relpsi", "carve", "split 10/90", "best-set", "relmulti", "relmulti 50%", "best-set BY", NAIVE)
COLUMNS = (
    *(("meanshift-l10", n) for n in (200, 500, 1000)),
    ("graded", 500),
    *((f"rbm-l7 ε={epsilon}", 1000) for epsilon in (".18", ".20")),
)


def cells():
    """Every setting, JSON-able; all are settings of the levels too."""
    return [
        {"problem": problem, "measure": measure, "estimator": "complete", "n": n}
        for problem, n in COLUMNS
        for measure in ("mmd", "ksd")
    ]


def trial(setting, seed):
    """One draw decided by the ways of splitting that the levels leave out."""
    problem = case(setting["problem"])
    reference, models = problem.candidates(setting["measure"], setting["n"], seed)
    return by_splitting(reference, models, seed, {**problem.options, "estimator": PLAIN}, SPLITS)[0]


def rows(setting, *runs):
    """The error rates and the power of every procedure in one setting; each run holds some of the procedures."""
    out = []
    for test in TESTS:
        declared = [result[test] for results in runs if test in results[0] for result in results]
        out.append({"test": test, "trials": len(declared), **error_rates(case(setting["problem"]), declared)})
    return out
