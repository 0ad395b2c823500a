"""What could make the verdicts of a comparison wrong: one file for each check, run by every `compare`.

A check is a function from `Compared` to `Findings`. Register it in `CHECKS`; the notes reach the terminal, the page,
files and the gate from there.
"""

from __future__ import annotations

from collections.abc import Callable
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


Check = Callable[[Compared], Findings]

# The checks import the two records above.
from relfit.checks.bandwidth import check_bandwidth  # noqa: E402
from relfit.checks.choice import check_choice  # noqa: E402
from relfit.checks.clusters import check_clusters  # noqa: E402
from relfit.checks.fine_structure import check_fine_structure  # noqa: E402
from relfit.checks.score import check_symmetry  # noqa: E402

# In the order in which their notes are shown.
CHECKS: tuple[Check, ...] = (
    check_bandwidth,
    check_fine_structure,
    check_clusters,
    check_symmetry,
    check_choice,
)


def run_checks(compared: Compared) -> Findings:
    """The findings of all checks together."""
    found = [check(compared) for check in CHECKS]
    fields: dict[str, Any] = {}
    for each in found:
        fields |= each.fields
    return Findings(
        tuple(note for each in found for note in each.notes),
        tuple(doubt for each in found for doubt in each.doubts),
        fields,
    )
