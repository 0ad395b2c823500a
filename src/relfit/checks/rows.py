"""Rows that depend on the rows before them although they were taken for independent, or lie
too close for the kernel.

The notes on items of losses, which are made without a `Plan`, are those of
`relfit.estimators.losses`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from relfit.checks.base import Compared, Estimated, Findings
from relfit.data.load import Data
from relfit.estimators import joint_estimate
from relfit.estimators.base import Complete, PairDesign, samples_of
from relfit.estimators.groups import take
from relfit.estimators.kernel import fine_structure
from relfit.kernels.composite import Collection
from relfit.settings import Plan
from relfit.stats.decision import difference_variance
from relfit.stats.joint import JointEstimate
from relfit.stats.order import (
    DOUBT_INFLATION,
    NOTE_INFLATION,
    STEPS,
    OrderEffect,
    is_sorted,
    order_effect,
)
from relfit.util.arrays import host
from relfit.util.text import quoted

# Rows that tell whether a sample is sorted by a column.
_ROWS = 1000
# Rows of each sample that are looked at where the estimate is not of rows in the order given.
_FIRST = 500


def rows_in_order(compared: Compared) -> Findings:
    """A note if rows of the samples depend on the rows before them, and a doubt where they
    do so strongly.
    """
    return _order_findings(compared, compared.decision.best)


def pair_in_order(estimated: Estimated) -> Findings:
    """The same for a fixed pair, of which the second model is the one compared with."""
    return _order_findings(estimated, 1)


def _order_findings(estimated: Estimated, best: int) -> Findings:
    plan = estimated.plan
    joint = estimated.joint
    estimate = plan.estimate
    declared = estimate.groups is not None or estimate.dependence == "chain"
    if joint.psi is None or declared:
        return Findings()
    if estimated.given is not plan.data or isinstance(estimate.estimator, PairDesign):
        plan = _of_first_rows(plan, estimated.given)
        effect = _effect_in_order(joint_estimate(plan.data, plan.estimate), joint, best)
    else:
        effect = order_effect(joint.psi, best)
    if effect is None:
        return Findings()
    if _is_sorted(plan, joint, effect):
        effect = replace(effect, fades=False, doubtful=False)
    note = _note(plan, joint, effect, best)
    return Findings((note,), (note,) if effect.doubtful else ())


def _of_first_rows(plan: Plan, given: Data) -> Plan:
    """The plan for all pairs of the first rows of every sample, in the order given.

    The ψ of a pair design, or of a random part of the rows, are not in that order.
    """
    kernel = plan.estimate.kernel
    if isinstance(kernel, Collection):
        kernel = kernel.kernels[0]
    rows = {
        key: np.arange(min(len(sample), _FIRST)) for key, sample in samples_of(given).items()
    }
    runtime = replace(
        plan.estimate.runtime, executor=None, scheduler=None, checkpoint=None, progress=None
    )
    first = replace(plan, data=take(given, {None: np.arange(0), **rows}))
    return first.estimated_with(
        kernel=kernel, estimator=Complete(variance="projection"), runtime=runtime
    )


def _effect_in_order(
    first: JointEstimate, joint: JointEstimate, best: int
) -> OrderEffect | None:
    """What the order of the first rows shows, for the standard error of the estimate of all
    rows.

    Dependence adds to the variance what it adds to that of all pairs of rows. A design of
    fewer pairs has a larger variance, so that this is a smaller part of it.
    """
    effect = None if first.psi is None else order_effect(first.psi, best)
    if effect is None:
        return None
    own = difference_variance(joint.covariance, effect.model, best)
    of_all_pairs = (
        difference_variance(first.covariance, effect.model, best)
        * _fewest(first)
        / _fewest(joint)
    )
    part = min(of_all_pairs / own, 1.0) if own > 0.0 else 1.0
    inflation = math.sqrt(1.0 + part * (effect.inflation**2 - 1.0))
    if inflation < NOTE_INFLATION:
        return None
    return replace(
        effect, inflation=inflation, doubtful=effect.doubtful and inflation >= DOUBT_INFLATION
    )


def _fewest(joint: JointEstimate) -> int:
    """The rows of the smallest sample."""
    return min(size for size in joint.sizes or (1,) if size)


def _is_sorted(plan: Plan, joint: JointEstimate, effect: OrderEffect) -> bool:
    """Whether the rows are in the order of a column, which shows nothing about their
    dependence.
    """
    samples = plan.data.samples
    shared = [plan.data.reference] if len(plan.data.reference) else []
    together = [*shared, *samples.values()] if _joined(plan) else shared
    rows = together if effect.sample is None else [samples[joint.names[effect.sample]]]
    return any(is_sorted(host(each[:_ROWS])) for each in rows)


def _joined(plan: Plan) -> bool:
    """Whether the rows of several samples belong together."""
    return plan.estimate.dependence in ("shared", "paired")


def _note(plan: Plan, joint: JointEstimate, effect: OrderEffect, best: int) -> str:
    whose = "the reference"
    if effect.sample is not None:
        whose = quoted(joint.names[effect.sample])
    elif _joined(plan):
        whose = "the samples"
    pair = f"{quoted(joint.names[effect.model])} and {quoted(joint.names[best])}"
    size = f"lag-1 autocorrelation {effect.autocorrelation:.2f}"
    if effect.fades:
        chain = (
            'dependence="chain" for the draws of a Markov chain, or '
            if plan.data.kind == "target"
            else ""
        )
        return (
            f"successive rows of {whose} depend on each other ({size} of their contributions "
            f"to the difference between "
            f"{pair}), so the standard error is too small by a factor of about "
            f"{effect.inflation:.2g} and a model may "
            f"be called worse by chance: pass {chain}groups= with one label for the rows of "
            f"one prompt, document or "
            "stretch of time"
        )
    return (
        f"the rows of {whose} are sorted or come in blocks ({size} of their contributions to "
        f"the difference between "
        f"{pair}, and much the same {STEPS} rows apart), so the standard error may be too "
        f"small: pass groups= if the "
        "blocks are prompts, documents or stretches of time; rows sorted by class or value "
        "need no option"
    )


def check_fine_structure(estimated: Estimated) -> Findings:
    """A note if nearest neighbours are much closer than the kernel resolves."""
    plan = estimated.plan
    kernel = plan.estimate.kernel
    if kernel.variable != "r2" or not math.isfinite(kernel.length):
        return Findings()
    step = fine_structure(plan.data.rows, kernel.length)
    return Findings() if step is None else Findings((fine_structure_note(step, kernel.length),))


def fine_structure_note(step: float, length: float) -> str:
    """The sentence about neighbours this far apart, for a kernel of this length."""
    return (
        f"most rows have neighbours about {step:.2g} away, far below the bandwidth "
        f"{length:.3g}, and none between: the "
        "kernel does not resolve such tight clusters, so a model that is wrong within them "
        "passes; choose a smaller "
        'bandwidth or several (kernel="multiscale", kernel="select")'
    )
