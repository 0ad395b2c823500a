"""KID and CMMD in the form in which they are published, with standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compare import estimate
from relfit.estimate import JointEstimate
from relfit.kernels import Kernel
from relfit.presets import apply_preset
from relfit.tiles import Job, Runtime, run

Array = NDArray[np.float64]

CMMD_FACTOR = 1000.0


def published(preset: str, reference: Any, models: Any) -> JointEstimate:
    """The numbers that papers print, so that they can be held against them: "kid" or "cmmd" of features (n, d).

    "kid" is the unbiased estimate itself, over all rows at once (one subset of all rows, for those who average over
    subsets). "cmmd" is 1000 times the V-statistic, the biased estimate that keeps the pairs of a row with itself:
    ``1000 (mean_{c,c'} k(x_c,x_c') + mean_{a,b} k(r_a,r_b) − 2 mean_{c,a} k(x_c,r_a))``.
    The covariance is that of the unbiased estimate, times 1000² for CMMD: the bias is nearly constant, so it is right
    for both. Test with `compare(preset=...)`, on the unbiased values, which alone compare samples of unequal sizes.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 50, 8))
    >>> joint = published("cmmd", x, {"model": y})
    >>> joint.names, joint.values.round(2), joint.standard_error.round(2)
    (('model',), array([0.13]), array([0.15]))
    """
    rows, prepared, kernel = apply_preset(preset, reference, models)
    joint = estimate(rows, prepared, kernel=kernel, rng=0)
    if preset == "kid":
        return joint
    samples = list(prepared.values()) if isinstance(prepared, dict) else prepared
    own, *others = _excess(kernel, [rows, *samples])
    values = CMMD_FACTOR * (joint.values + own + np.array(others))
    covariance = CMMD_FACTOR**2 * joint.covariance
    return replace(joint, values=values, covariance=covariance, psi=None, second_order=None)


def _excess(kernel: Kernel, samples: Sequence[Array]) -> list[float]:
    """By how much the mean over all pairs exceeds that over pairs of different rows: (mean k(x,x) − mean_{a≠b} k)/n."""
    runtime = Runtime()
    jobs = [Job(kernel, runtime.backend.points(kernel, x), None, {"phi": np.ones(len(x))}) for x in samples]
    sums = [float(product.rows["phi"].sum()) for product in run(jobs, runtime)]
    return [
        (float(kernel.diagonal(x).mean()) - total / (len(x) * (len(x) - 1))) / len(x)
        for x, total in zip(samples, sums, strict=True)
    ]
