"""The gate of a monitor: is one model shown to be worse than the others, at any look?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from relfit.monitor.result import MonitorResult, counted_items, show_log_evalue
from relfit.report.gate import Gate, ask_gate, doubtful
from relfit.results.words import about
from relfit.util.text import quoted

# Larger numbers of items than this are no advice.
MOST_ITEMS = 1_000_000


def judge_monitor(
    result: MonitorResult,
    name: str,
    against: str | None = None,
    *,
    margin: float = 0.0,
    require: str | None = None,
    doubts: Sequence[str] = (),
) -> Gate:
    """The gate of one model, wrong at any look with probability at most alpha.

    Without a margin a model is worse once it is out, and it stays out; it is non-inferior
    once all others are out. Against a model that was named beforehand the e-values of this
    pair decide, after the last item. With a margin δ the limits for all pairs decide: worse
    where some lower limit is above δ, non-inferior where every upper limit is at most δ.
    `doubts` are reasons why the scores are not comparable: the verdict is then "error".
    """
    asked = ask_gate(result.names, name, against, margin=margin, require=require)
    if doubts:
        return asked.without_answer(doubtful(doubts))
    own = result.names.index(name)
    others = [j for j in range(len(result.names)) if j != own]
    others = others if against is None else [result.names.index(against)]
    since = ""
    if margin:
        beater = others[int(np.argmax(result.lower[own, others]))]
        low = float(result.lower[own, beater])
        high = float(result.upper[own, beater])
        growth = _growth_of_limits(low, high, margin)
        worse = low > margin
        shown = bool((result.upper[own, others] <= margin).all())
        evidence = f"{100.0 * (1.0 - result.alpha):g}% limits {low:.3g} to {high:.3g}"
    elif against is None:
        worse = bool(result.worse[own])
        shown = result.confidence_set == (name,)
        evidence = f"e-value {show_log_evalue(result.log_peak[own])}, level {result.alpha:g}"
        growth = _growth_of_evidence(float(result.log_peak[own]), result.alpha)
        since = f" since item {result.out_after[own]}"
    else:
        (other,) = others
        level = math.log(1.0 / result.alpha)
        worse = bool(result.log_pair_evalue[own, other] >= level)
        shown = bool(result.log_pair_evalue[other, own] >= level)
        either = max(result.log_pair_evalue[own, other], result.log_pair_evalue[other, own])
        growth = _growth_of_evidence(float(either), result.alpha)
        evidence = (
            f"e-value {show_log_evalue(result.log_pair_evalue[own, other])}, level "
            f"{result.alpha:g}"
        )
    whom = (
        quoted(against)
        if against is not None
        else "another model"
        if worse
        else "any other model"
    )
    after = f"{',' if margin else ''} after {counted_items(result.items)}"
    return asked.answered(
        worse,
        shown,
        whom,
        evidence=f"{since} ({evidence})",
        otherwise=after,
        more=lambda: _more_items(result.items, growth),
    )


def _growth_of_evidence(log_evalue: float, alpha: float) -> float:
    """How many times as many items an e-value of 1/α takes, if its logarithm grows as it has
    so far.
    """
    return math.log(1.0 / alpha) / log_evalue if log_evalue > 0.0 else math.inf


def _growth_of_limits(low: float, high: float, margin: float) -> float:
    """How many times as many items limits without the margin take, if their distance shrinks
    like 1/√n.
    """
    gap = abs((low + high) / 2.0 - margin)
    return ((high - low) / (2.0 * gap)) ** 2 if gap > 0.0 else math.inf


def _more_items(items: int, growth: float) -> str:
    """A clause about the number of items that would decide; none where nothing points to a
    decision.
    """
    more = items * (growth - 1.0)
    if not 1.0 <= more <= MOST_ITEMS:
        return ""
    return f"at this rate about {about(more)} more items would decide"
