"""The gate of a monitor: is one model shown to be worse than the others, at any look?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from relfit.monitor.result import MonitorResult
from relfit.monitor.words import counted_items, show_log_evalue
from relfit.report.gate import (
    INCONCLUSIVE,
    NO_ANSWER,
    NON_INFERIOR,
    WORSE,
    Gate,
    answer_words,
    doubtful,
    is_required,
)
from relfit.util.errors import InputError
from relfit.util.text import quoted


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

    Without a margin a model is worse once it is out, and it stays out; it is non-inferior once all
    others are out. Against a model that was named beforehand the e-values of this pair decide,
    after the last item. With a margin δ the limits for all pairs decide: worse where some lower
    limit is above δ, non-inferior where every upper limit is at most δ. `doubts` are reasons why
    the scores are not comparable: the verdict is then "error".
    """
    for argument, value in (("gate", name), ("against", against)):
        if value is not None and value not in result.names:
            raise InputError(f"{argument}: expected the name of a model, got {value!r}")
    own = result.names.index(name)
    required = is_required(require)
    fixed = against is not None
    if doubts:
        return Gate(name, against, NO_ANSWER, doubtful(doubts), None, fixed, margin, required)
    others = [j for j in range(len(result.names)) if j != own]
    others = others if against is None else [result.names.index(against)]
    whom = "any other model" if against is None else quoted(against)
    since = ""
    if margin:
        beater = others[int(np.argmax(result.lower[own, others]))]
        low = float(result.lower[own, beater])
        high = float(result.upper[own, beater])
        worse = low > margin
        shown = bool((result.upper[own, others] <= margin).all())
        evidence = f"{100.0 * (1.0 - result.alpha):g}% limits {low:.3g} to {high:.3g}"
    elif against is None:
        worse = bool(result.worse[own])
        shown = result.confidence_set == (name,)
        evidence = f"e-value {show_log_evalue(result.log_peak[own])}, level {result.alpha:g}"
        since = f" since item {result.out_after[own]}"
    else:
        (other,) = others
        level = math.log(1.0 / result.alpha)
        worse = bool(result.log_pair_evalue[own, other] >= level)
        shown = bool(result.log_pair_evalue[other, own] >= level)
        evidence = f"e-value {show_log_evalue(result.log_pair_evalue[own, other])}, level {result.alpha:g}"
    verdict = WORSE if worse else NON_INFERIOR if shown else INCONCLUSIVE
    whom = "another model" if worse and against is None else whom
    after = f"{',' if margin else ''} after {counted_items(result.items)}"
    tail = f"{since} ({evidence})" if worse else after
    words = answer_words(verdict, name, whom, margin, tail, required=required)
    return Gate(name, against, verdict, words, None, fixed, margin, required)
