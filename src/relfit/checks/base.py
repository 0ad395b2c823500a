"""What a check is given, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relfit.data.load import Data
from relfit.settings import Plan
from relfit.stats.decision import Decision
from relfit.stats.joint import JointEstimate
from relfit.stats.tests.base import Criteria, Test


@dataclass(frozen=True)
class Compared:
    """The data, how they were estimated, and what was decided.

    `selecting` is the plan of the `selection`. `data` are those of the plan with densities that
    remember their scores at the same rows.
    """

    plan: Plan
    joint: JointEstimate
    decision: Decision
    test: Test
    criteria: Criteria
    selection: JointEstimate | None = None
    selecting: Plan | None = None
    data: Data | None = None


@dataclass(frozen=True)
class Findings:
    """What a check found.

    Attributes:
        notes: sentences for the reader.
        doubts: those of the notes that make the verdicts unreliable, so that a gate does not answer.
        fields: fields of the `Comparison` that the check determines.
    """

    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
