"""What a check is given, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relfit.data.load import Data
from relfit.data.scored import Scores
from relfit.settings.resolve import Plan
from relfit.stats.decision import Decision
from relfit.stats.joint import JointEstimate
from relfit.stats.tests.base import Criteria, Test


@dataclass(frozen=True)
class Estimated:
    """The data and how they were estimated: all that a fixed pair has.

    `given` are all rows in their order; those of the plan may be a random part of them.
    """

    plan: Plan
    joint: JointEstimate
    given: Data

    @property
    def kind(self) -> str:
        """The kind of data, which says what checks apply."""
        return self.plan.data.kind


@dataclass(frozen=True)
class Compared(Estimated):
    """What was decided, too.

    `selecting` is the plan of the `selection`. `kept` is the plan with what its estimate
    keeps for other bandwidths. `asked` is the discrepancy as the caller
    gave it, "auto" by default.
    """

    decision: Decision
    test: Test
    criteria: Criteria
    selection: JointEstimate | None = None
    selecting: Plan | None = None
    kept: Plan | None = None
    asked: str = "auto"


@dataclass(frozen=True)
class ScoredItems:
    """Scores of models on the same items."""

    scores: Scores
    kind: str = "scores"


@dataclass(frozen=True)
class Findings:
    """What a check found.

    Attributes:
        notes: sentences for the reader.
        doubts: those of the notes that make the verdicts unreliable, so that a gate does not
            answer.
        fields: fields of the `Comparison` that the check determines.
    """

    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
