"""Many estimates at once, as planning gives them to the tests of models."""

from __future__ import annotations

from functools import partial

import numpy as np

from relfit.stats.decision import Covariances, adjust
from relfit.stats.tests.base import Test, Trials


def _missing():
    raise AssertionError("this test of models was not meant to ask for it")


def trials(values, covariance, *, rows=100, **given) -> Trials:
    """Estimates (trials, l), all with one covariance, or with `Covariances`; `given` holds what some tests ask for."""
    if not isinstance(covariance, Covariances):
        covariance = Covariances(np.asarray(covariance, dtype=float))
    asked = {name: partial(given.get, name) if name in given else _missing for name in _ASKED}
    return Trials(np.asarray(values, dtype=float), covariance, rows, **asked)


_ASKED = ("selection", "noise", "maxima")


def pvalues(test: Test, simulated: Trials, alpha=0.05):
    """The best model (trials,) and exact p-values (trials, l)."""
    best, log_pvalue = test.log_pvalues(simulated, list(range(simulated.values.shape[1])), alpha, exact=True)
    return best, np.exp(log_pvalue)


def worse(best, p, correction, alpha=0.05):
    """(trials, l) verdicts of a test that does not test the best model itself."""
    adjusted = np.ones_like(p)
    for k, row in enumerate(p):
        others = np.arange(len(row)) != best[k]
        adjusted[k, others] = adjust(row[others], correction)
    return adjusted <= alpha
