"""The kernel with its bandwidth computed from the pooled data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs import Data, stream
from relfit.kernels import Gaussian, Kernel, median_distance

Array = NDArray[np.float64]

BANDWIDTH_ROWS = 1000
# Beyond these the kernel's length, squared (for KSD to the fourth power), leaves float64.
LARGEST = {"mmd": 1e152, "ksd": 1e50}


def resolve_kernel(data: Data, kernel: Kernel | None, seed: int) -> tuple[Kernel, str]:
    """The kernel with its bandwidth filled in, and the rule it came by ("median" or "given")."""
    wanted = Gaussian() if kernel is None else kernel
    if not isinstance(wanted, Kernel):
        raise InputError(f"kernel: expected a relfit kernel such as Gaussian() or IMQ(), got {type(kernel).__name__}")
    rule = "median" if wanted.needs_median else "given"
    resolved = wanted.with_median(_pooled_median(data, seed)) if wanted.needs_median else wanted
    resolved = resolved.with_dimension(data.reference.shape[1])
    if data.measure == "ksd" and not resolved.smooth:
        raise InputError(f"kernel: KSD needs a smooth radial kernel, got {resolved.describe()}")
    largest = LARGEST[data.measure]
    if resolved.variable == "r2" and not 1.0 / largest < resolved.length < largest:
        raise InputError(
            f"kernel: expected a bandwidth between {1.0 / largest:g} and {largest:g}, got {resolved.length:g} "
            f"({rule}); rescale the data"
        )
    return resolved, rule


def centre_of(rows: Array) -> Array:
    """The median of some rows: far-off data lose their offset by it, and an outlier cannot move it."""
    step = max(1, len(rows) // BANDWIDTH_ROWS)
    return np.asarray(np.median(rows[::step], axis=0))


def _pooled_median(data: Data, seed: int) -> float:
    pool = [data.reference, *data.samples.values()]
    keys = ["reference", *("models" for _ in data.samples)]
    share = BANDWIDTH_ROWS / sum(len(rows) for rows in pool)
    drawn = [
        _subsample(rows, share * len(rows), stream(seed, "bandwidth", key))
        for rows, key in zip(pool, keys, strict=True)
    ]
    rows = np.concatenate(drawn)
    if (rows == rows[0]).all():
        # Nearly all rows are one atom: look at the distinct rows instead.
        rows = np.unique(np.concatenate(pool), axis=0)
        rows = _subsample(rows, BANDWIDTH_ROWS, stream(seed, "bandwidth", "distinct"))
    return median_distance(rows - centre_of(rows))


def _subsample(rows: Array, count: float, rng: np.random.Generator) -> Array:
    wanted = max(1, round(count))
    if wanted >= len(rows):
        return rows
    return rows[rng.choice(len(rows), wanted, replace=False)]
