"""How far the rows reach: shifted to the centre, where they live, and their largest norm."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies.rows import in_parts
from relfit.inputs import Data
from relfit.kernels import Kernel
from relfit.measure.bandwidth import centre_of

Array = NDArray[np.float64]


def centre_for(rows: Any, kernel: Kernel) -> Array | float:
    """The point to subtract: only distances are unmoved by a shift, a function of x·y takes the rows as they are."""
    return centre_of(rows) if kernel.variable == "r2" else 0.0


def largest_norm(data: Data, kernel: Kernel) -> float:
    """The largest ‖x − c‖² of all rows, with c as the estimators choose it."""
    samples = [rows for rows in (data.reference, *data.samples.values()) if len(rows)]
    centre = centre_for(samples[0], kernel)
    return max(float((part**2).sum(axis=1).max()) for rows in samples for part in in_parts(rows, centre))


def pair_count(data: Data) -> int:
    """The kernel values a complete estimate evaluates."""
    n = len(data.reference)
    own = [n, *(len(x) for x in data.samples.values())]
    across = n * sum(own[1:])
    return sum(m * (m - 1) // 2 for m in own) + across
