"""Simulated estimates that a test decides itself, one after the other.

Planning forecasts powers with fast versions of the tests, which decide all trials together. They
do not know everything that a test does with an estimate: variances that are pooled over the
models, Student's t distribution, skewness, step-down. So some trials are decided by the test
itself, from estimates with all that a test is given for n rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from relfit.stats.close import CloseLaw
from relfit.stats.joint import JointEstimate, third_cumulants
from relfit.stats.tests.base import Criteria, Test
from relfit.util.arrays import Array, Mask

# Trials that are decided, and the numbers of models times trials up to which they are that many.
_TRIALS = 300
_NUMBERS = 3000


def affordable(models: int) -> int:
    """How many trials of so many models are decided one by one."""
    return max(20, min(_TRIALS, _NUMBERS // models))


def decided(
    test: Test,
    criteria: Criteria,
    pilot: JointEstimate,
    values: Array,
    matrices: Array,
    ratio: float,
    selection: Callable[[], Array],
) -> Mask:
    """(trials, l) the models that the test declares worse, from simulated values (trials, l) and
    the covariances that it is given for them, (trials, l, l) or (1, l, l).

    `ratio` is the number of the pilot's rows over that of the estimates, which have all else
    from the pilot; `selection` gives the values from the rows that select.
    """
    base = _of_rows(pilot, ratio)
    count = values.shape[1]
    matrices = np.broadcast_to(matrices, (len(values), count, count))
    if test.split is not None:
        selecting = selection()
    worse = np.zeros(values.shape, dtype=bool)
    for trial, each in enumerate(values):
        joint = replace(base, values=each, covariance=matrices[trial], close=None)
        if base.close is not None:
            first = matrices[trial] - 2.0 * base.close.second
            joint = replace(joint, close=replace(base.close, first=first))
        selected = None
        if test.split is not None:
            selected = replace(base, values=selecting[trial], close=None)
        seeded = replace(criteria, seed=criteria.seed + trial, draws_on=False)
        worse[trial] = test.decide(test.prepared(joint), seeded, selected).worse
    return worse


def _of_rows(pilot: JointEstimate, ratio: float) -> JointEstimate:
    """The pilot with another number of rows, without what belongs to its own rows only."""
    third = third_cumulants(pilot)
    return replace(
        pilot,
        covariance=pilot.covariance * ratio,
        sizes=_counts(pilot.sizes, ratio),
        groups=_counts(pilot.groups, ratio),
        psi=None,
        near_degeneracy=None,
        second_order=None,
        third=None if third is None else third * ratio**2,
        close=None if pilot.close is None else _law(pilot.close, ratio),
        freedom=None if pilot.freedom is None else pilot.freedom / ratio,
    )


def _counts(counts: tuple[int, ...] | None, ratio: float) -> tuple[int, ...] | None:
    if counts is None:
        return None
    return tuple(max(round(count / ratio), 1) if count else 0 for count in counts)


def _law(law: CloseLaw, ratio: float) -> CloseLaw:
    """The distribution of estimates from another number of rows."""
    return replace(
        law,
        first=law.first * ratio,
        second=law.second * ratio**2,
        trace=law.trace * ratio,
        third=law.third * ratio**2,
        spread=law.spread * ratio,
    )
