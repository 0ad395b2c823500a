"""What a plan has to say in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relfit.diagnostics import NEAR_DEGENERATE
from relfit.planning.laws import Plain
from relfit.planning.pilot import Pilot
from relfit.planning.result import Forecast

_SHOWN = 4


def plan_notes(pilot: Pilot, forecasts: Sequence[Forecast]) -> tuple[str, ...]:
    """Sentences about gaps that the pilot cannot promise, and about sizes."""
    notes = []
    open_ = {cell.name: cell for cell in forecasts if cell.n_range is not None and math.isinf(cell.n_range[1])}
    for name, cell in list(open_.items())[:_SHOWN]:
        times = cell.gap / cell.gap_standard_error if cell.gap_standard_error > 0.0 else 0.0
        notes.append(
            f"{name}: the pilot shows no clear gap ({times:.1f} standard errors), so it cannot promise one: if there "
            "is none, no number of rows is enough"
        )
    if len(open_) > _SHOWN:
        more = len(open_) - _SHOWN
        notes.append(f"the same holds for {more} more model{'s' if more > 1 else ''}")
    tied = [cell.name for cell in {cell.name: cell for cell in forecasts}.values() if cell.gap == 0.0]
    if tied and not pilot.measured:
        notes.append(f"{', '.join(tied[:_SHOWN])}: as good as the best here, so never to be found worse")
    rows = [size for size in pilot.joint.sizes or () if size > 0]
    if len(set(rows)) > 1:
        notes.append(
            f"rows are those of the smallest sample (the pilot's: {min(rows)}, others up to {max(rows)}); all samples "
            "are taken to grow in proportion"
        )
    groups = pilot.joint.groups
    if groups is not None:
        notes.append(
            f"the pilot's {pilot.rows} rows are in {min(count for count in groups if count > 0)} groups: more rows "
            "means more groups of that size, not larger ones"
        )
    share = pilot.joint.near_degeneracy
    if share is not None and isinstance(pilot.law, Plain) and (share > NEAR_DEGENERATE).any():
        notes.append(
            "some models are so close to the data that the variance of their discrepancy shrinks faster than 1/n: with "
            "more rows than the pilot's the power is likely to be higher than forecast"
        )
    return tuple(notes)
