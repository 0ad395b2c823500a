"""What could make the verdicts of a comparison wrong, looked for by every `compare`.

A check is a function from `Compared`, from `Estimated` or from `ScoredItems` to `Findings`.
Register it in `CHECKS` with the kinds of data that it applies to; the notes reach the
terminal, the page, files and the gate from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relfit.checks.base import Compared, Estimated, Findings, ScoredItems
from relfit.checks.data import (
    check_clusters,
    check_fine_structure,
    check_symmetry,
    far_target,
    likelihood_at_hand,
    lost_modes,
    rows_in_order,
)
from relfit.checks.robustness import check_bandwidth, check_choice
from relfit.checks.scores import (
    board_numbers,
    constant_scores,
    equal_scores,
    repeated_items,
    repeated_outputs,
    saturated,
)
from relfit.checks.unbounded import check_unbounded

__all__ = [
    "CHECKS",
    "Compared",
    "Estimated",
    "Findings",
    "ScoredItems",
    "run_checks",
    "together",
]

ANY = ("samples", "densities", "target", "likelihoods", "functions")
KERNELS = ("samples", "densities", "target")
STEIN = ("densities", "target")
TARGET = ("target",)
SCORES = ("scores",)
# In the order in which their notes are shown.
CHECKS: tuple[tuple[Callable[[Any], Findings], Sequence[str]], ...] = (
    (rows_in_order, ANY),
    (lost_modes, TARGET),
    (far_target, TARGET),
    (check_bandwidth, KERNELS),
    (check_fine_structure, KERNELS),
    (check_unbounded, ("samples",)),
    (check_clusters, STEIN),
    (check_symmetry, STEIN),
    (check_choice, ANY),
    (likelihood_at_hand, ("densities",)),
    (board_numbers, SCORES),
    (repeated_outputs, SCORES),
    (constant_scores, SCORES),
    (equal_scores, SCORES),
    (repeated_items, SCORES),
    (saturated, SCORES),
)
# Those that need a decision about all models; a fixed pair has none.
DECIDED = (check_bandwidth, check_choice, likelihood_at_hand)


def run_checks(estimated: Estimated | ScoredItems) -> Findings:
    """The findings of all checks together, of `Estimated` those that apply to a fixed pair."""
    kind = estimated.kind
    decided = isinstance(estimated, Compared)
    return together(
        [
            check(estimated)
            for check, kinds in CHECKS
            if kind in kinds and (decided or check not in DECIDED)
        ]
    )


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
