"""Choosing the kernel on held-out rows: the one that tells the models apart best, whichever of them it favours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import Data
from relfit.kernels import Kernel
from relfit.measure.checks import check_rows
from relfit.measure.plan import Plan
from relfit.measure.shares import split
from relfit.procedures.differences import differences

# More rows than this choose no better, and would cost as much as the test.
MOST_HELD = 2000


@dataclass(frozen=True)
class Choice:
    """The kernel chosen, and the separation each candidate reached on the held-out rows."""

    kernel: Kernel
    kernels: tuple[Kernel, ...]
    separations: tuple[float, ...]

    def note(self, rows: str) -> str:
        """What the reader should be told; `rows` says on which rows it was chosen."""
        return (
            f"kernel chosen among {len(self.kernels)} candidates for the largest separation of the models (root mean "
            f"square of difference over standard error: {max(self.separations):.2f}, against "
            f"{min(self.separations):.2f} for the worst candidate) on {rows}; the kernel also decides which model "
            "counts as best"
        )


def hold_out(data: Data, share: float, plan: Plan) -> tuple[Data, Data]:
    """Disjoint random parts of every sample: one to choose the kernel with, one to test with."""
    if plan.dependence == "chain":
        raise InputError('kernel="select": holds out rows at random, which a chain forbids; name a kernel')
    held, rest = split(data, share, plan.dependence, plan.seed, "kernel", most=MOST_HELD)
    check_rows(held, replace(plan, estimator="complete"), share="share held out for the kernel, ")
    check_rows(rest, plan, share="share left for the test, ")
    return held, rest


def choose(
    data: Data, plan: Plan, kernels: Sequence[Kernel], estimate: Callable[[Data, Plan], JointEstimate]
) -> Choice:
    """The kernel with the largest separation on these data, estimated from all pairs of rows."""
    if len(data.models) < 2:
        raise InputError('kernel="select": expected at least 2 different models to tell apart, got 1; name a kernel')
    plans = [replace(plan, kernel=kernel, estimator="complete") for kernel in kernels]
    separations = tuple(separation(estimate(data, each)) for each in plans)
    return Choice(kernels[int(np.argmax(separations))], tuple(kernels), separations)


def separation(joint: JointEstimate) -> float:
    """``√(mean_{i<j} (D_i − D_j)²/s_ij²)`` over the pairs of models whose difference varies; 0 if none does.

    The square does not know which of two models is the better one: the choice is symmetric in the models.

    >>> separation(JointEstimate(("a", "b"), [0.1, 0.5], [[0.01, 0.0], [0.0, 0.03]]))
    2.0
    """
    pairs = differences(joint)
    ratios = pairs.ratio[np.triu(pairs.varies, 1)]
    return float(np.sqrt(np.mean(np.square(ratios)))) if len(ratios) else 0.0
