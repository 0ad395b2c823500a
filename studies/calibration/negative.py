"""False discoveries where the estimates correlate negatively: D ~ N(θ, V) with V known."""

import numpy as np

from relfit import JointEstimate
from relfit.paper.experiment import rate
from relfit.paper.problems import stream
from relfit.stats.decision import adjust
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.best_set import best_set
from relfit.stats.tests.relmulti import RelMulti
from studies.study import ALPHA, level

REPLICATES = 25
CORRECTIONS = ("bh", "by", "holm", "auto")


def cells():
    """l models; the first has no noise of its own, the others correlate by −1/(l − 2), as low as that many can.

    `worse` of them lie 3 standard errors above, the rest is tied with the first.
    """
    return [{"l": l, "worse": worse} for l in (3, 5, 10) for worse in (0, l // 2)]


def trial(setting, seed):
    """Fractions of false discoveries and whether there was any, for RelMulti and the best set with each correction."""
    mean, covariance = _negative(setting["l"], setting["worse"])
    out = {}
    for k in range(REPLICATES):
        rng = stream(REPLICATES * seed + k, "negative")
        halves = [_estimate(mean, covariance, rng) for _ in range(2)]
        first = best_set(halves[1], ALPHA, rng=rng, draws=4000)
        for correction in CORRECTIONS:
            split = RelMulti().decide(halves[1], Criteria(ALPHA, correction), halves[0])
            out.setdefault(f"relmulti {correction}", []).append(_false(split.worse, mean, split.best))
            if correction != "auto":
                worse = adjust(np.exp(first.log_pvalue), correction) <= ALPHA
                worse[first.best] = False
                out.setdefault(f"best-set {correction}", []).append(_false(worse, mean, None))
    return out


def _negative(count, worse):
    others = count - 1
    covariance = np.zeros((count, count))
    low = -1.0 / (others - 1)
    covariance[1:, 1:] = (1.0 - low) * np.eye(others) + low
    mean = np.zeros(count)
    mean[count - worse :] = 3.0
    return mean, covariance + 1e-3 * np.eye(count)


def _estimate(mean, covariance, rng):
    names = tuple(f"m{k}" for k in range(len(mean)))
    return JointEstimate(names, rng.multivariate_normal(mean, covariance), covariance)


def _false(worse, mean, best):
    """Fraction of false discoveries (no worse than what they were tested against), and whether there is any."""
    against = mean.min() if best is None else mean[best]
    false = int((worse & (mean <= against)).sum())
    return [false / max(1, int(worse.sum())), float(false > 0)]


def rows(setting, results):
    """FDR and FWER of each procedure and correction."""
    out = []
    for test in results[0]:
        pairs = [pair for result in results for pair in result[test]]
        fdr, fwer = rate([pair[0] for pair in pairs]), rate([pair[1] for pair in pairs])
        held = level(fwer if test.endswith("holm") else fdr)
        out.append({**setting, "test": test, "trials": len(pairs), "FDR": fdr, "FWER": fwer, "level": held})
    return out
