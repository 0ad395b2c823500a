"""Does shrinking V repair RelPSI's level where there are nearly as many models as rows?"""

import numpy as np

from relfit import JointEstimate, decide, estimate
from relfit.paper.experiment import rate
from relfit.paper.problems import draw
from studies.problems import all_tied
from studies.study import ALPHA


def cells():
    """All models tied, MMD: many models for the rows, and few of them."""
    return [{"l": 200, "n": 300}, {"l": 50, "n": 300}]


def trial(setting, seed):
    """How many of the tied models RelPSI declares worse, with V as it is and with V shrunk."""
    reference, models = draw(all_tied(setting["l"]), setting["n"], seed)
    joint = estimate(reference, models, rng=seed, progress=False)
    out = {}
    for name, form in FORMS.items():
        changed = JointEstimate(joint.names, joint.values, form(joint), joint.sizes)
        out[name] = int(decide(changed, test="relpsi", alpha=ALPHA).worse.sum())
    return out


def rows(setting, results):
    """FPR with each form of V; RelPSI's own is at most α(l−1)/l."""
    l, n, trials = setting["l"], setting["n"], len(results)
    return [
        {"models": l, "rows": n, "V": name, "trials": trials, "FPR": rate([r[name] / l for r in results])}
        for name in FORMS
    ]


def as_it_is(joint):
    """V itself."""
    return joint.covariance


def ledoit_wolf(joint):
    """V with its reference part ψRᵀψR/(n(n−1)) shrunk towards a multiple of the identity (Ledoit and Wolf 2004)."""
    return _shrunk(joint, lambda s: np.eye(len(s)) * np.trace(s) / len(s))


def constant_correlation(joint):
    """V with its reference part shrunk towards its own variances with one common correlation, by the same weight."""

    def target(s):
        scale = np.sqrt(np.diag(s))
        correlation = s / np.outer(scale, scale)
        common = (correlation.sum() - len(s)) / (len(s) * (len(s) - 1))
        return np.asarray(np.outer(scale, scale) * np.where(np.eye(len(s)) > 0.0, 1.0, common))

    return _shrunk(joint, target)


def _shrunk(joint, target):
    psi = joint.psi.reference
    n = len(psi)
    s = psi.T @ psi / n
    towards = target(s)
    noise = (np.square(np.square(psi).sum(axis=1)).sum() / n - np.square(s).sum()) / n
    weight = min(1.0, float(noise / np.square(s - towards).sum()))
    return np.asarray(joint.covariance + weight * (towards - s) / (n - 1))


FORMS = {
    "as it is": as_it_is,
    "Ledoit–Wolf": ledoit_wolf,
    "towards one correlation": constant_correlation,
}
