"""What could make the verdicts of a comparison wrong: one file for each check, run by every `compare`.

A check is a function from `Compared` to `Findings`. Register it in `CHECKS`; the notes reach the terminal, the page,
files and the gate from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relfit.checks.bandwidth import check_bandwidth
from relfit.checks.base import Compared, Findings
from relfit.checks.choice import check_choice
from relfit.checks.clusters import check_clusters
from relfit.checks.fine_structure import check_fine_structure
from relfit.checks.score import check_symmetry

__all__ = ["CHECKS", "Compared", "Findings", "run_checks"]

Check = Callable[[Compared], Findings]

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
