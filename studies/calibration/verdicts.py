"""One draw of a case, decided by every procedure; those that need the same estimate share it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.api import compare, estimate
from relfit.stats.decision import adjust
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import seeded
from relfit.stats.tests.best_set import DRAWS, best_set
from relfit.stats.tests.carve import carve
from relfit.stats.tests.relpsi import relpsi
from studies.calibration.cases import Case, case

Array = NDArray[np.float64]
Setting = dict[str, Any]
Verdicts = dict[str, list[str]]

ALPHA = 0.05
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
SPLITS: dict[str, dict[str, Any]] = {"relmulti": {}}
# Draws of the best set in cases marked light: (1 + count)/(1 + draws) is a valid p-value with any number of them.
LIGHT_DRAWS = 4000


def verdicts(setting: Setting, seed: int) -> Verdicts:
    """The models that each procedure declares worse, for one draw."""
    own = case(setting["problem"])
    reference, models = own.candidates(setting["measure"], setting["n"], seed)
    split, options = by_splitting(reference, models, seed, {**own.options, **_settings(setting)}, SPLITS)
    return split | from_one_estimate(reference, models, seed, options, own)


def by_splitting(
    reference: Any, models: dict[str, Any], seed: int, options: Setting, splits: dict[str, dict[str, Any]]
) -> tuple[Verdicts, Setting]:
    """RelMulti with each set of options, and `options` with the kernel's bandwidth filled in.

    The bandwidth is that of all rows whatever the test, so it need not be found again.
    """
    out: Verdicts = {}
    for name, more in splits.items():
        result = compare(reference, models, test="relmulti", alpha=ALPHA, rng=seed, progress=False, **options, **more)
        out[name] = _declared(result.names, result.pvalue, result.worse)
        options = {**options, "kernel": result.kernel}
    return out, options


def from_one_estimate(reference: Any, models: dict[str, Any], seed: int, options: Setting, own: Case) -> Verdicts:
    """RelPSI, carving and the best set (alone, BY, Holm) from one estimate; exact copies go through `compare`."""
    joint = estimate(reference, models, rng=seed, progress=False, **options)
    if joint.psi is None:
        return _one_by_one(reference, models, seed, options)
    return from_estimate(joint, seed, own.light)


def from_estimate(joint: JointEstimate, seed: int, light: bool = False) -> Verdicts:
    """What `decide` finds with this seed, for every procedure that works on one estimate."""
    psi = relpsi(joint, ALPHA)
    carved = carve(joint, ALPHA, rng=seeded(seed, "carve"))
    best = best_set(joint, ALPHA, rng=seeded(seed, "best-set"), draws=LIGHT_DRAWS if light else DRAWS)
    out = {
        "relpsi": _declared(joint.names, psi.log_pvalue, psi.worse),
        "carve": _declared(joint.names, carved.log_pvalue, carved.worse),
        "best-set": _declared(joint.names, best.log_pvalue, best.worse),
        NAIVE: _not_lowest(joint.names, joint.values),
    }
    return out | _corrected(joint.names, np.exp(best.log_pvalue), best.best)


def _one_by_one(reference: Any, models: dict[str, Any], seed: int, options: Setting) -> Verdicts:
    out: Verdicts = {}
    for test in ("relpsi", "carve", "best-set"):
        result = compare(reference, models, test=test, alpha=ALPHA, rng=seed, progress=False, **options)
        out[test] = _declared(result.names, result.pvalue, result.worse)
    out[NAIVE] = _not_lowest(result.names, result.discrepancy)
    # A copy is tested once, so the correction counts it once; it then shares its original's verdict.
    originals = {
        name: next((word.removeprefix("duplicate of ") for word in words if word.startswith("duplicate of ")), name)
        for name, words in zip(result.names, result.status, strict=True)
    }
    distinct = [k for k, name in enumerate(result.names) if originals[name] == name]
    names = tuple(result.names[k] for k in distinct)
    corrected = _corrected(names, result.pvalue[distinct], names.index(result.best))
    return out | {
        label: [name for name in result.names if originals[name] in found] for label, found in corrected.items()
    }


def _corrected(names: tuple[str, ...], pvalues: Array, best: int) -> Verdicts:
    out = {}
    for label, correction in (("best-set BY", "by"), ("best-set Holm", "holm")):
        worse = adjust(pvalues, correction) <= ALPHA
        worse[best] = False
        out[label] = _declared(names, pvalues, worse)
    return out


def _declared(names: tuple[str, ...], pvalues: Array, worse: NDArray[np.bool_]) -> list[str]:
    if np.isnan(pvalues).any():
        raise ArithmeticError(f"a p-value is NaN: {pvalues.tolist()}")
    return [name for name, is_worse in zip(names, worse, strict=True) if is_worse]


def _not_lowest(names: tuple[str, ...], values: Array) -> list[str]:
    return [name for name, value in zip(names, values, strict=True) if value > values.min()]


def _settings(setting: Setting) -> Setting:
    return {key: setting[key] for key in ("estimator", "blocks", "pairs", "variance") if key in setting}
