"""Does shrinking V repair RelPSI's level where there are nearly as many models as rows?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.api import decide, estimate
from relfit.paper.experiment import rate
from relfit.paper.problems import all_tied, draw
from relfit.stats.joint import JointEstimate

Array = NDArray[np.float64]

ALPHA = 0.05


def cells() -> list[dict[str, Any]]:
    """All models tied, MMD: many models for the rows, and few of them."""
    return [{"l": 200, "n": 300}, {"l": 50, "n": 300}]


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """How many of the tied models RelPSI declares worse, with V as it is and with V shrunk."""
    reference, models = draw(all_tied(setting["l"]), setting["n"], seed)
    joint = estimate(reference, models, rng=seed, progress=False)
    out = {}
    for name, form in FORMS.items():
        changed = JointEstimate(joint.names, joint.values, form(joint), joint.sizes)
        out[name] = int(decide(changed, test="relpsi", alpha=ALPHA).worse.sum())
    return out


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, int]]) -> list[dict[str, Any]]:
    """FPR with each form of V; RelPSI's own is at most α(l−1)/l."""
    l = setting["l"]
    return [
        {
            "models": l,
            "rows": setting["n"],
            "V": name,
            "trials": len(results),
            "FPR": rate([r[name] / l for r in results]),
        }
        for name in FORMS
    ]


def as_it_is(joint: JointEstimate) -> Array:
    """V itself."""
    return joint.covariance


def ledoit_wolf(joint: JointEstimate) -> Array:
    """V with its reference part ψRᵀψR/(n(n−1)) shrunk towards a multiple of the identity (Ledoit and Wolf 2004)."""
    return _shrunk(joint, lambda s: np.eye(len(s)) * np.trace(s) / len(s))


def constant_correlation(joint: JointEstimate) -> Array:
    """V with its reference part shrunk towards its own variances with one common correlation, by the same weight."""

    def target(s: Array) -> Array:
        scale = np.sqrt(np.diag(s))
        correlation = s / np.outer(scale, scale)
        common = (correlation.sum() - len(s)) / (len(s) * (len(s) - 1))
        return np.asarray(np.outer(scale, scale) * np.where(np.eye(len(s)) > 0.0, 1.0, common))

    return _shrunk(joint, target)


def _shrunk(joint: JointEstimate, target: Callable[[Array], Array]) -> Array:
    assert joint.psi is not None
    psi = joint.psi.reference
    assert psi is not None
    n = len(psi)
    s = psi.T @ psi / n
    towards = target(s)
    noise = (np.square(np.square(psi).sum(axis=1)).sum() / n - np.square(s).sum()) / n
    weight = min(1.0, float(noise / np.square(s - towards).sum()))
    return np.asarray(joint.covariance + weight * (towards - s) / (n - 1))


FORMS: dict[str, Callable[[JointEstimate], Array]] = {
    "as it is": as_it_is,
    "Ledoit–Wolf": ledoit_wolf,
    "towards one correlation": constant_correlation,
}
