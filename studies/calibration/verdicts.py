"""One draw of a case, decided by every procedure; those that need the same estimate share it."""

import numpy as np

from relfit import compare, estimate
from relfit.stats.decision import adjust
from relfit.stats.maxt import seeded
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.best_set import DRAWS, best_set
from relfit.stats.tests.carve import carve
from relfit.stats.tests.relpsi import RelPSI
from studies.calibration.cases import case
from studies.study import ALPHA, PLAIN, declared

# What each procedure holds at α, and for which its level is checked.
CLAIMS = {
    "relpsi": "FPR",
    "carve": "FPR",
    "best-set": "FPR",
    "relmulti": "FDR",
    "best-set BY": "FDR",
    "best-set Holm": "FWER",
}
# Declares every model worse that does not have the lowest estimate.
NAIVE = "naive argmin"
# Draws of the best set in cases marked light: (1 + count)/(1 + draws) is a valid p-value with any number of them.
LIGHT_DRAWS = 4000


def verdicts(setting, seed):
    """The models that each procedure declares worse, for one draw."""
    problem = case(setting["problem"])
    reference, models = problem.candidates(setting["measure"], setting["n"], seed)
    options = {**problem.options, "estimator": PLAIN if setting["estimator"] == "complete" else setting["estimator"]}
    split, options = by_splitting(reference, models, seed, options, {"relmulti": {"test": "relmulti"}})
    joint = estimate(reference, models, rng=seed, progress=False, **options)
    if joint.psi is None:
        return split | _one_by_one(reference, models, seed, options)
    return split | from_estimate(joint, seed, problem.light)


def by_splitting(reference, models, seed, options, splits):
    """RelMulti with each set of options, and `options` with the kernel's bandwidth filled in.

    The bandwidth is that of all rows whatever the test, so it need not be found again.
    """
    out = {}
    for name, more in splits.items():
        result = compare(reference, models, alpha=ALPHA, rng=seed, progress=False, **{**more, **options})
        out[name] = _declared(result.names, result.pvalue, result.worse)
        options = {**options, "kernel": result.kernel}
    return out, options


def from_estimate(joint, seed, light=False):
    """What `decide` finds with this seed: RelPSI, carving and the best set (alone, BY, Holm) from one estimate."""
    psi = RelPSI().decide(joint, Criteria(ALPHA))
    carved = carve(joint, ALPHA, rng=seeded(seed, "carve"))
    best = best_set(joint, ALPHA, rng=seeded(seed, "best-set"), draws=LIGHT_DRAWS if light else DRAWS)
    out = {
        test: _declared(joint.names, decision.log_pvalue, decision.worse)
        for test, decision in (("relpsi", psi), ("carve", carved), ("best-set", best))
    }
    out[NAIVE] = declared(joint.names, joint.values > joint.values.min())
    return out | _corrected(joint.names, np.exp(best.log_pvalue), best.best)


def _one_by_one(reference, models, seed, options):
    """The same through `compare`, which knows exact copies."""
    out = {}
    for test in ("relpsi", "carve", "best-set"):
        result = compare(reference, models, test=test, alpha=ALPHA, rng=seed, progress=False, **options)
        out[test] = _declared(result.names, result.pvalue, result.worse)
    out[NAIVE] = declared(result.names, result.discrepancy > result.discrepancy.min())
    # A copy is tested once, so the correction counts it once; it then shares its original's verdict.
    originals = {name: result.copies.get(name, name) for name in result.names}
    distinct = [k for k, name in enumerate(result.names) if originals[name] == name]
    names = tuple(result.names[k] for k in distinct)
    corrected = _corrected(names, result.pvalue[distinct], names.index(result.best))
    return out | {
        label: [name for name in result.names if originals[name] in worse] for label, worse in corrected.items()
    }


def _corrected(names, pvalues, best):
    out = {}
    for label, correction in (("best-set BY", "by"), ("best-set Holm", "holm")):
        worse = adjust(pvalues, correction) <= ALPHA
        worse[best] = False
        out[label] = _declared(names, pvalues, worse)
    return out


def _declared(names, pvalues, worse):
    if np.isnan(pvalues).any():
        raise ArithmeticError(f"a p-value is NaN: {pvalues.tolist()}")
    return declared(names, worse)
