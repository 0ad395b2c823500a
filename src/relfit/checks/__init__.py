"""What could make the verdicts of a comparison wrong: one file for each check, run by every `compare`.

A check is a function from `Compared` to `Findings`. Register it in `CHECKS`; the notes reach the terminal, the page,
files and the gate from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relfit.checks.bandwidth import check_bandwidth
from relfit.checks.base import Compared, Estimated, Findings
from relfit.checks.choice import check_choice
from relfit.checks.clusters import check_clusters
from relfit.checks.far_target import far_target
from relfit.checks.fine_structure import check_fine_structure
from relfit.checks.likelihood import likelihood_at_hand
from relfit.checks.lost_modes import lost_modes
from relfit.checks.order import pair_in_order, rows_in_order
from relfit.checks.score import check_symmetry

__all__ = ["CHECKS", "PAIR_CHECKS", "Compared", "Estimated", "Findings", "run_checks", "run_pair_checks", "together"]

# In the order in which their notes are shown.
CHECKS: tuple[Callable[[Compared], Findings], ...] = (
    rows_in_order,
    lost_modes,
    far_target,
    check_bandwidth,
    check_fine_structure,
    check_clusters,
    check_symmetry,
    check_choice,
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
    return together([check(compared) for check in CHECKS])


def run_pair_checks(estimated: Estimated) -> Findings:
    """The findings of the checks that apply to a fixed pair."""
    return together([check(estimated) for check in PAIR_CHECKS])


def together(found: list[Findings]) -> Findings:
    """One record of several findings."""
    fields: dict[str, Any] = {}
    for each in found:
        fields |= each.fields
    return Findings(
        tuple(note for each in found for note in each.notes),
        tuple(doubt for each in found for doubt in each.doubts),
        fields,
    )
