"""What could make the verdicts of a comparison wrong, looked for by every `compare`.

A check is a function from `Compared` to `Findings`. Register it in `CHECKS` with the kinds
of data that it applies to; the notes reach the terminal, the page, files and the gate from
there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relfit.checks.base import Compared, Estimated, Findings
from relfit.checks.densities import (
    check_clusters,
    check_symmetry,
    far_target,
    likelihood_at_hand,
    lost_modes,
)
from relfit.checks.robustness import check_bandwidth, check_choice
from relfit.checks.rows import check_fine_structure, pair_in_order, rows_in_order

__all__ = [
    "CHECKS",
    "PAIR_CHECKS",
    "Compared",
    "Estimated",
    "Findings",
    "run_checks",
    "run_pair_checks",
    "together",
]

ANY = ("samples", "densities", "target", "likelihoods")
KERNELS = ("samples", "densities", "target")
STEIN = ("densities", "target")
TARGET = ("target",)
# In the order in which their notes are shown.
CHECKS: tuple[tuple[Callable[[Compared], Findings], Sequence[str]], ...] = (
    (rows_in_order, ANY),
    (lost_modes, TARGET),
    (far_target, TARGET),
    (check_bandwidth, KERNELS),
    (check_fine_structure, KERNELS),
    (check_clusters, STEIN),
    (check_symmetry, STEIN),
    (check_choice, ANY),
    (likelihood_at_hand, ("densities",)),
)
# Those of a fixed pair of models.
PAIR_CHECKS: tuple[tuple[Callable[[Estimated], Findings], Sequence[str]], ...] = (
    (pair_in_order, ANY),
    (lost_modes, TARGET),
    (far_target, TARGET),
    (check_fine_structure, KERNELS),
    (check_clusters, STEIN),
    (check_symmetry, STEIN),
)


def run_checks(compared: Compared) -> Findings:
    """The findings of all checks together."""
    return together(
        [check(compared) for check, kinds in CHECKS if compared.plan.data.kind in kinds]
    )


def run_pair_checks(estimated: Estimated) -> Findings:
    """The findings of the checks that apply to a fixed pair."""
    return together(
        [check(estimated) for check, kinds in PAIR_CHECKS if estimated.plan.data.kind in kinds]
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
