"""Rows that depend on the rows before them although they were taken for independent, or lie too close for the kernel.

The notes on items of losses, which are made without a `Plan`, are those of `relfit.estimators.losses`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from relfit.checks.base import Compared, Estimated, Findings
from relfit.data.structure import fine_structure
from relfit.estimators.base import PairDesign
from relfit.settings import Plan
from relfit.stats.joint import JointEstimate
from relfit.stats.order import STEPS, OrderEffect, is_sorted, order_effect
from relfit.util.arrays import host
from relfit.util.text import quoted

# Rows that tell whether a sample is sorted by a column.
_ROWS = 1000


def rows_in_order(compared: Compared) -> Findings:
    """A note if rows of the samples depend on the rows before them, and a doubt where they do so strongly."""
    return _order_findings(compared.plan, compared.joint, compared.decision.best)


def pair_in_order(estimated: Estimated) -> Findings:
    """The same for a fixed pair, of which the second model is the one compared with."""
    return _order_findings(estimated.plan, estimated.joint, 1)


def _order_findings(plan: Plan, joint: JointEstimate, best: int) -> Findings:
    estimate = plan.estimate
    declared = estimate.groups is not None or estimate.dependence == "chain"
    # The ψ of a pair design are of shuffled rows, or of rows whose pairs overlap.
    if joint.psi is None or declared or isinstance(estimate.estimator, PairDesign):
        return Findings()
    effect = order_effect(joint.psi, best)
    if effect is None:
        return Findings()
    if _is_sorted(plan, joint, effect):
        effect = replace(effect, fades=False, doubtful=False)
    note = _note(plan, joint, effect, best)
    return Findings((note,), (note,) if effect.doubtful else ())


def _is_sorted(plan: Plan, joint: JointEstimate, effect: OrderEffect) -> bool:
    """Whether the rows are in the order of a column, which shows nothing about their dependence."""
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
        chain = 'dependence="chain" for the draws of a Markov chain, or ' if plan.data.kind == "target" else ""
        return (
            f"successive rows of {whose} depend on each other ({size} of their contributions to the difference between "
            f"{pair}), so the standard error is too small by a factor of about {effect.inflation:.2g} and a model may "
            f"be called worse by chance: pass {chain}groups= with one label for the rows of one prompt, document or "
            "stretch of time"
        )
    return (
        f"the rows of {whose} are sorted or come in blocks ({size} of their contributions to the difference between "
        f"{pair}, and much the same {STEPS} rows apart), so the standard error may be too small: pass groups= if the "
        "blocks are prompts, documents or stretches of time; rows sorted by class or value need no option"
    )


def check_fine_structure(compared: Compared) -> Findings:
    """A note if nearest neighbours are much closer than the kernel resolves."""
    plan = compared.plan
    kernel = plan.estimate.kernel
    if kernel.variable != "r2" or not math.isfinite(kernel.length):
        return Findings()
    step = fine_structure(plan.data.rows, kernel.length)
    return Findings() if step is None else Findings((fine_structure_note(step, kernel.length),))


def fine_structure_note(step: float, length: float) -> str:
    """The sentence about neighbours this far apart, for a kernel of this length."""
    return (
        f"most rows have neighbours about {step:.2g} away, far below the bandwidth {length:.3g}, and none between: the "
        "kernel does not resolve such tight clusters, so a model that is wrong within them passes; choose a smaller "
        'bandwidth or several (kernel="multiscale", kernel="select")'
    )
