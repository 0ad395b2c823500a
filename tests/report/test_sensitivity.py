"""Other bandwidths: the very comparisons one would make oneself, and densities asked once."""

from __future__ import annotations

import numpy as np
import pytest

import relfit
from relfit.checks.robustness import SHARED_COLUMNS, scaled
from relfit.kernels.composite import Decay, Tilted
from relfit.report.checks import bandwidth_sensitivity
from relfit.report.recall import recall


@pytest.mark.parametrize("test", ["best-set", "relmulti"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dependence": "paired"},
        {"dependence": "shared", "estimator": relfit.Complete(variance="projection")},
        {"kernel": "tilted"},
    ],
    ids=["independent", "paired", "shared", "tilted"],
)
def test_many_columns_share_their_distances(test, options):
    """From 128 columns on distances are computed once: the numbers are those of separate comparisons, to rounding."""
    rng = np.random.default_rng(1)
    d = SHARED_COLUMNS + 2
    data = rng.normal(3.0, 1.0, (90, d))
    models = {k: rng.normal(3.0 + m, 1.0, (90, d)) for k, m in (("a", 0.0), ("b", 0.03), ("c", 0.1))}
    if options.get("kernel") == "tilted":
        options = {"kernel": Tilted(relfit.Gaussian(12.0), Decay(exponent=1.0, scale=30.0, centre=3.0))}
    result = relfit.compare(data, models, test=test, rng=3, **options)
    recalled = recall(result, (data, models))
    found = bandwidth_sensitivity(result, recalled, (0.5, 1.0, 3.0))
    for factor, (joint, decision) in zip(found.factors, found.results, strict=True):
        settings = {**options, "kernel": scaled(result.kernel, factor)}
        separate = relfit.compare(data, models, test=test, rng=3, **settings)
        np.testing.assert_allclose(joint.values, separate.discrepancy, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(joint.standard_error, separate.standard_error, rtol=1e-9)
        np.testing.assert_allclose(np.exp(decision.log_pvalue), separate.pvalue, rtol=1e-6)
        assert joint.names[decision.best] == separate.best
