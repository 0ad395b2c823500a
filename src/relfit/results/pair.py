"""Results about pairs of models: is one given model worse than another, who beats whom, and the ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.encode import Encoding
from relfit.kernels.base import Kernel
from relfit.results.serial import Record
from relfit.util.arrays import Array


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PairComparison(Record):
    """Is model a worse than model b? A one-sided test of the fixed hypothesis "a is no worse than b".

    `difference` is D_a − D_b, `statistic` that less the `margin` δ over its standard error, `worse` is
    ``pvalue ≤ alpha``. With a margin the hypothesis is D_a ≤ D_b + δ, and `equivalent` says whether that was
    shown instead; it is None without one. `yardstick` and `doubts` are those of `Comparison`.
    `robust_to_bandwidth` says whether `worse` is the same at half and at twice the kernel's bandwidth; None where that
    was not computed.
    """

    names: tuple[str, str]
    statistic: float
    pvalue: float
    log_pvalue: float
    worse: bool
    difference: float
    standard_error: float
    threshold: float
    discrepancy: tuple[float, float]
    alpha: float
    test: str
    measure: str
    status: tuple[str, ...] = ()
    truncation: tuple[float, float] | None = None
    warnings: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    robust_to_bandwidth: bool | None = None
    kernel: Kernel | None = None
    bandwidth_rule: str | None = None
    estimator: str | None = None
    dependence: str | None = None
    sizes: tuple[int, ...] | None = None
    seed: int | None = None
    backend: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    margin: float = 0.0
    equivalent: bool | None = None
    groups: tuple[int, ...] | None = None
    pair_count: int | None = None
    block_count: int | None = None
    landmark_count: int | None = None
    variance: str | None = None
    locations: NDArray[np.float64] | None = field(default=None, compare=False)
    inputs: dict[str, Any] | None = None
    plan: dict[str, int] | None = None
    preset: str | None = None
    yardstick: float | None = None
    encoding: Encoding | None = None
    unscaled: int | None = None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Ranks(Record):
    """Rank 1 is the best. Model i's rank is at least lower[i] and at most upper[i], (l,) each.

    `worse[i, j]`: i was shown to be worse than j, (l, l). `simultaneous`: all ranks are in their sets with
    probability `level`, or each is.
    """

    names: tuple[str, ...]
    lower: NDArray[np.intp]
    upper: NDArray[np.intp]
    worse: NDArray[np.bool_]
    level: float
    simultaneous: bool


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PairMatrix(Record):
    """Tests of "i is no worse than j" for all ordered pairs, (l, l) each; 1 and False on the diagonal.

    `worse` is ``adjusted_pvalue ≤ alpha``, adjusted over all l(l − 1) pairs by `correction`.
    """

    names: tuple[str, ...]
    pvalue: Array
    adjusted_pvalue: Array
    worse: NDArray[np.bool_]
    alpha: float
    correction: str
