"""Structure of the data that is finer than the kernel resolves."""

from __future__ import annotations

import math

from relfit.checks.base import Compared, Findings
from relfit.data.structure import fine_structure


def check_fine_structure(compared: Compared) -> Findings:
    """A note if nearest neighbours are much closer than the kernel resolves."""
    plan = compared.plan
    kernel = plan.estimate.kernel
    data = plan.data
    if data.likelihood or kernel.variable != "r2" or not math.isfinite(kernel.length):
        return Findings()
    rows = data.reference if data.target is None else next(iter(data.samples.values()))
    step = fine_structure(rows, kernel.length)
    return Findings() if step is None else Findings((note(step, kernel.length),))


def note(step: float, length: float) -> str:
    """The sentence about neighbours this far apart, for a kernel of this length."""
    return (
        f"most rows have neighbours about {step:.2g} away, far below the bandwidth {length:.3g}, and none between: the "
        "kernel does not resolve such tight clusters, so a model that is wrong within them passes; choose a smaller "
        'bandwidth or several (kernel="multiscale", kernel="select")'
    )
