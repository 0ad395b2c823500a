"""Do a few rows carry the features of a kernel that is not bounded, as polynomials are not?

The kernel's features φ(x) have the variance mean ‖φ(x) − μ‖², and a row far from the others may
hold much of it. Models that differ in such rows only differ by a large discrepancy that most
samples do not show: without the rows neither the estimate nor its variance has a trace of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from relfit.checks.base import Estimated, Findings
from relfit.data.load import Data
from relfit.estimators.base import samples_of
from relfit.estimators.kernel import in_parts
from relfit.estimators.pairkernel import PairKernel
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Collection
from relfit.util.arrays import Array, Rows, host
from relfit.util.errors import way

# Rows carry the features if at most this fraction of them, and this many, holds half of the
# variance.
_FRACTION = 0.01
_MOST_ROWS = 10
# Rows, evenly spaced, that the mean of the features is computed from.
_MEAN_ROWS = 500


def check_unbounded(estimated: Estimated) -> Findings:
    """A note if a handful of rows carries the features of the kernel."""
    plan = estimated.plan
    kernel = plan.estimate.kernel
    kernels = kernel.kernels if isinstance(kernel, Collection) else (kernel,)
    at_locations = plan.at_locations is not None or plan.estimate.locations is not None
    for each in () if at_locations else kernels:
        found = carrying_rows(plan.data, each)
        if found is not None:
            return Findings((_note(*found),))
    return Findings()


def _note(few: int, rows: int) -> str:
    cmmd = way("--preset cmmd", 'preset="cmmd"')
    gaussian = way("--kernel gaussian", "kernel=relfit.Gaussian()")
    carry = "carries" if few == 1 else "carry"
    return (
        f"{few} of {rows:,} rows {carry} half of the variance of the features of this kernel, "
        "which is not bounded: rare rows decide, and p-values can be too small (simulated: an "
        "error rate of 0.25 instead of 0.05 with one or two such rows of 400); use a bounded "
        f"kernel, {cmmd} for features of images or texts, {gaussian} for other rows"
    )


def carrying_rows(data: Data, kernel: Kernel) -> tuple[int, int] | None:
    """How few rows hold half of the variance of the kernel's features, and of how many; None
    where these are not few, or the kernel has one value k(x, x) for all rows.
    """
    values = np.concatenate(list(_diagonals(data, kernel)))
    lowest = float(values.min())
    if not float(values.max()) > lowest:
        return None
    few = min(_MOST_ROWS, int(_FRACTION * len(values)))
    if few < 1:
        return None
    every = _every(data)
    mean_rows = every(np.unique(np.linspace(0, len(values) - 1, _MEAN_ROWS).astype(int)))
    pairs = PairKernel(kernel)
    between = np.asarray(pairs.values(mean_rows, mean_rows))
    count = len(mean_rows)
    mean = float((between.sum() - np.trace(between)) / (count * (count - 1)))
    largest = np.argpartition(values, -few)[-few:]
    near = np.asarray(pairs.values(every(largest), mean_rows)).mean(axis=1)
    held = np.sort(np.maximum(values[largest] - 2.0 * near + mean, 0.0))[::-1].cumsum()
    half = (float(values.sum()) - len(values) * mean) / 2.0
    enough = np.flatnonzero(held >= half)
    return (int(enough[0]) + 1, len(values)) if half > 0.0 and len(enough) else None


def _diagonals(data: Data, kernel: Kernel) -> Iterator[Array]:
    """k(x, x) of all rows, a part at a time."""
    for rows in samples_of(data).values():
        for part in in_parts(rows, 0.0):
            yield np.asarray(host(kernel.diagonal(part)), dtype=np.float64)


def _every(data: Data) -> Callable[[Rows], Array]:
    """A function from row numbers, counted through all samples, to the rows."""
    samples = list(samples_of(data).values())
    starts = np.cumsum([0, *(len(rows) for rows in samples)])

    def taken(numbers: Rows) -> Array:
        parts = [
            np.asarray(host(rows[numbers[(numbers >= start) & (numbers < end)] - start]))
            for rows, start, end in zip(samples, starts, starts[1:], strict=False)
        ]
        return np.concatenate(parts).astype(np.float64)

    return taken
