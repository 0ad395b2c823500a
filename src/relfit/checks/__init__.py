"""What could make the verdicts of a comparison wrong: one file for each check, run by every `compare`.

A check is a function from `Compared` to `Findings`. Register it in `CHECKS`; the notes reach the terminal, the page,
files and the gate from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relfit.checks.base import Compared, Estimated, Findings
from relfit.checks.far_target import far_target
from relfit.checks.likelihood import likelihood_at_hand
from relfit.checks.lost_modes import lost_modes
from relfit.checks.order import pair_in_order, rows_in_order

__all__ = ["CHECKS", "PAIR_CHECKS", "Check", "Compared", "Estimated", "Findings", "run_checks", "run_pair_checks"]

Check = Callable[[Compared], Findings]

# In the order in which their notes are shown.
CHECKS: tuple[Check, ...] = (
    rows_in_order,
    lost_modes,
    far_target,
    likelihood_at_hand,
)
# Those of a fixed pair of models.
PAIR_CHECKS: tuple[Callable[[Estimated], Findings], ...] = (
    pair_in_order,
    lost_modes,
    far_target,
)


def run_checks(compared: Compared) -> Findings:
    """The findings of all checks together."""
    return _together([check(compared) for check in CHECKS])


def run_pair_checks(estimated: Estimated) -> Findings:
    """The findings of the checks that apply to a fixed pair."""
    return _together([check(estimated) for check in PAIR_CHECKS])


def _together(found: list[Findings]) -> Findings:
    fields: dict[str, Any] = {}
    for each in found:
        fields |= each.fields
    return Findings(
        tuple(note for each in found for note in each.notes),
        tuple(doubt for each in found for doubt in each.doubts),
        fields,
    )
