"""The scale of verdicts: one place that says which grade a model has, and how it is called,
counted and drawn.

Two levels of evidence against a model are told apart. *Worse* holds for the model taken
alone: its own p-value is at most α (with "bh" or "by", its adjusted one: these control the
false discovery rate of all verdicts "worse"). *Clearly worse* holds for all models at once:
its `simultaneous_pvalue` is at most α, so that with probability 1 − α no model as good as
the best is called clearly worse. docs/decisions.md says what that is for each test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relfit.stats.decision import DISCOVERY_RATE, Decision
from relfit.util.arrays import Array, Mask


@dataclass(frozen=True)
class Grade:
    """One grade. The texts are templates, filled in by `relfit.results.words.fill`.

    Attributes:
        name: in `Comparison.grade` and in files.
        kind: its name in styles of the page, of the terminal and of pictures.
        mark: a sign that says it without colour.
        verdict: in the table.
        count: after the number of models that have it.
        clause: of these models, in the sentence that sums up.
        legend: what it says.
    """

    name: str
    kind: str
    mark: str
    verdict: str
    count: str
    clause: str = ""
    legend: str = ""


BEST, SAME, EQUIVALENT, OPEN, WORSE, CLEARLY_WORSE = SCALE = (
    Grade("best", "best", "◆", verdict="{best_verdict}", count="{best_count}"),
    Grade(
        "same",
        "same",
        "=",
        verdict="the same as the best",
        count="the same as the best",
        clause="{they_are} the same as it",
        legend="The same as the best: a copy of it, or not to be told from it on these data.",
    ),
    Grade(
        "equivalent",
        "equal",
        "≈",
        verdict="equivalent within {delta}",
        count="equivalent",
        clause="{they_are} equivalent to {equivalent_to} within {delta}",
        legend="Equivalent: shown to be worse by no more than {delta}.",
    ),
    Grade(
        "no evidence",
        "open",
        "○",
        verdict="no evidence {of_what}",
        count="without evidence",
        clause="{they_are} undecided: there are too few data to tell",
        legend="No evidence: the data do not show that it is worse, nor that it is as good.",
    ),
    Grade(
        "worse",
        "alone",
        "▽",
        verdict="worse{margin}{taken_alone}",
        count="worse {alone}",
        clause="{they_are} worse{margin} {alone}",
        legend="Worse{margin}{taken_alone}: {alone_error}.",
    ),
    Grade(
        "clearly worse",
        "worse",
        "▼",
        verdict="clearly worse{margin}",
        count="clearly worse",
        clause="{they_are} clearly worse{margin}",
        legend="Clearly worse{margin}: this holds for all models at once. The probability that "
        "any model as good as {opponent} is called clearly worse is at most {alpha}{given}.",
    ),
)
GRADES = {grade.name: grade for grade in SCALE}
KINDS = {grade.kind: grade for grade in SCALE}


def decisive_pvalue(pvalue: Array, adjusted_pvalue: Array, correction: str) -> Array:
    """(l,) the p-values that "worse" is decided by: the models' own, or those of a false
    discovery rate.
    """
    return adjusted_pvalue if correction in DISCOVERY_RATE else pvalue


def graded(
    best: int,
    pvalue: Array,
    simultaneous_pvalue: Array,
    alpha: float,
    equivalent: Mask | None,
    same: Mask,
) -> tuple[str, ...]:
    """The grade of every model; `pvalue` is the decisive one, `same` marks models that are
    the best one again.

    >>> p, at_once = np.array([1.0, 0.4, 0.03, 0.001]), np.array([1.0, 0.8, 0.07, 0.003])
    >>> graded(0, p, at_once, 0.05, None, np.zeros(4, dtype=bool))
    ('best', 'no evidence', 'worse', 'clearly worse')
    """
    grades: Any = np.full(len(pvalue), OPEN.name, dtype=object)
    if equivalent is not None:
        grades[equivalent] = EQUIVALENT.name
    grades[pvalue <= alpha] = WORSE.name
    grades[(pvalue <= alpha) & (simultaneous_pvalue <= alpha)] = CLEARLY_WORSE.name
    grades[same] = SAME.name
    grades[best] = BEST.name
    return tuple(grades.tolist())


def of_decision(decision: Decision, alpha: float) -> tuple[str, ...]:
    """The grades of the distinct models in a decision."""
    same = np.array(["indistinguishable" in words for words in decision.status])
    pvalue = decisive_pvalue(
        np.exp(decision.log_pvalue), decision.adjusted_pvalue, decision.correction
    )
    return graded(
        decision.best, pvalue, decision.simultaneous_pvalue, alpha, decision.equivalent, same
    )
