"""docs/estimators.md: what was measured, and which of the goals hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from relfit.paper.experiment import markdown_table, rate
from studies.estimators import costs, memory, noise, power, shrinkage, truth
from studies.estimators.words import TEXT

WELL_ABOVE, BIAS = 0.1, 4.0

Found = Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]


class Goal(NamedTuple):
    """What should hold, whether it does (None: it cannot), and the figures."""

    text: str
    holds: bool | None
    figure: str

    def __str__(self) -> str:
        word = {True: "Holds", False: "**Missed**", None: "Nothing to gain"}[self.holds]
        return f"- {word}: {self.text}: {self.figure}."


def text(found: Mapping[str, Found], machine: str) -> str:
    """The page, from the results of every part."""
    cost = [cell for part, cells in found.items() if part.startswith("costs") for cell in cells]
    cost.sort(key=lambda cell: (cell[0]["kind"], list(costs.LOOKS).index(cell[0]["design"]), cell[0]["n"]))
    tied, exact = found["truth"], found["exact"]
    return TEXT.format(
        machine=machine,
        truth_goals=_lines([unbiased([*tied, *exact]), *truth_goals(tied)]),
        tied=_table(truth.rows, tied),
        exact=_table(truth.rows, exact),
        noise=_table(noise.rows, found["noise"]),
        power_goals=_lines(power_goals(found["power"])),
        power=_table(power.rows, found["power"]),
        lags=_table(power.lag_rows, found["lags"]),
        costs=markdown_table(costs.rows(cost)),
        memory_goals=_lines(memory_goals(found["memory"])),
        memory=_table(memory.rows, found["memory"]),
        shrinkage=_table(shrinkage.rows, found["shrinkage"]),
        more=2 * power.MORE_ROWS,
        memory_rows=f"{memory.ROWS:,}",
        memory_columns=memory.COLUMNS,
        memory_models=memory.MODELS,
    )


def unbiased(cells: Found) -> Goal:
    """Four standard errors: beyond that lies one of 100 such errors with a chance of .006."""
    found = [truth.bias(results, form) for setting, results in cells for form in truth.forms_of(setting["designs"])]
    largest = float(np.abs(found).max())
    text = f"unbiased, no mean error of D₁ or D₁ − D₂ beyond {BIAS:g} standard errors"
    return Goal(text, largest <= BIAS, f"at most {largest:.1f} in {2 * len(found)} means")


def truth_goals(tied: Found) -> list[Goal]:
    """Within 5% for the cheaper designs, .95 − 3/n for the projection, .9 to 1.1 for the corrected form."""
    wide = [cell for cell in tied if cell[0]["d"] > 100 and "sizes" in cell[0]]
    plain = [cell for cell in tied if cell not in wide]
    projection, corrected = truth.COMPLETE
    words = "complete, corrected: ratio from .9 to 1.1"
    return [
        _within("linear, block and incomplete at n = 300: ratio from .95 to 1.05", plain, truth.CHEAPER, 0.95, 1.05),
        _within("complete, projection: ratio at least .95 − 3/n", tied, [projection], 0.95, math.inf, lost=3.0),
        _within(f"{words} (n = 100 and 300, d = 2 and 500, unequal sizes)", plain, [corrected], 0.9, 1.1),
        _within(f"{words}, with 50 rows, unequal sizes and d = 500 at once", wide, [corrected], 0.9, 1.1),
    ]


def _within(text: str, cells: Found, forms: Sequence[str], low: float, high: float, lost: float = 0.0) -> Goal:
    """Whether every ratio lies between `low` − lost/n and `high`."""
    seen = [
        (truth.ratio(results, form), low - lost / setting["n"])
        for setting, results in cells
        for form in truth.forms_of(setting["designs"])
        if form in forms
    ]
    if not seen:
        return Goal(text, False, "not run")
    (least, least_error), (most, most_error) = min(seen)[0], max(seen)[0]
    figure = f"{least:.3f} ± {least_error:.3f} to {most:.3f} ± {most_error:.3f} in {len(seen)} rows"
    return Goal(text, all(bound <= ratio[0] <= high for ratio, bound in seen), figure)


def power_goals(cells: Found) -> list[Goal]:
    """Incomplete against block with as many pairs, and against linear, by the mean of paired differences."""
    out = []
    for setting, results in cells:
        where = f"{setting['problem']}, {setting['measure'].upper()}, n = {setting['n']}"
        lags = power.LAGS[setting["n"]]
        for test in power.TESTS:
            found = {d: np.array(power.tpr(setting, results, d, test)) for d in power.designs(setting["n"])}
            gaps = [rate(found[f"incomplete {r}"] - found[f"block {2 * r + 1}"]) for r in lags]
            words = ", ".join(f"{gap:+.3f} ± {error:.3f}" for gap, error in gaps)
            fine = all(gap >= -3.0 * error for gap, error in gaps)
            claim = f"{where}, {test}: TPR of incomplete not below block's (R = {', '.join(map(str, lags))})"
            out.append(Goal(claim, fine, words))
            (gap, error), (most, _) = (
                rate(found[design] - found["linear"]) for design in (f"incomplete {lags[-1]}", "complete")
            )
            claim = f"{where}, {test}: TPR of incomplete (R = {lags[-1]}) well above linear's, by .1 or more"
            holds = bool(gap >= WELL_ABOVE) if most >= WELL_ABOVE else None
            out.append(Goal(claim, holds, f"{gap:+.3f} ± {error:.3f}, of the complete one {most:+.3f}"))
    return out


def memory_goals(cells: Found) -> list[Goal]:
    """Below 500 MB."""
    most = max(result["megabytes"] for _, results in cells for result in results)
    return [Goal(f"peak above the inputs below {memory.ALLOWED:g} MB", most < memory.ALLOWED, f"at most {most:.0f} MB")]


def _table(rows: Any, cells: Found) -> str:
    return markdown_table([row for setting, results in cells for row in rows(setting, results)])


def _lines(goals: Sequence[Goal]) -> str:
    return "\n".join(map(str, goals))
