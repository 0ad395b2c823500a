"""docs/evidence/estimators.md: what was measured, and which of the goals hold."""

import io
import math
import os
import platform
from typing import NamedTuple

import numpy as np

from relfit.paper.experiment import markdown_table, rate
from relfit.util.files import write_bytes_atomic
from studies.estimators import costs, memory, power, shrinkage, truth
from studies.study import table, write_page

WELL_ABOVE, BIAS = 0.1, 4.0


class Goal(NamedTuple):
    """What should hold, whether it does (None if it cannot), and the figures."""

    text: str
    holds: bool | None
    figure: str

    def __str__(self):
        word = {True: "Holds", False: "**Missed**", None: "Nothing to gain"}[self.holds]
        return f"- {word}: {self.text}: {self.figure}."


def write(docs, results):
    """The page and its picture."""
    cost = [cell for part, cells in results.items() if part.startswith("costs") for cell in cells]
    picture = io.BytesIO()
    costs.figure(cost).savefig(picture, format="png", dpi=130)
    (docs / "images").mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(docs / "images" / "estimators.png", picture.getvalue())
    cost.sort(key=lambda cell: (cell[0]["kind"], list(costs.LOOKS).index(cell[0]["design"]), cell[0]["n"]))
    tied, exact = results["truth"], results["exact"]
    write_page(
        docs,
        "estimators.md",
        machine=f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, NumPy "
        f"{np.__version__}",
        truth_goals=_lines([unbiased([*tied, *exact]), *truth_goals(tied)]),
        tied=table(truth.rows, tied),
        exact=table(truth.rows, exact),
        noise=table(truth.noise_rows, results["noise"]),
        power_goals=_lines(power_goals(results["power"])),
        power=table(power.rows, results["power"]),
        lags=table(power.lag_rows, results["lags"]),
        costs=markdown_table(costs.rows(cost)),
        memory_goals=_lines(memory_goals(results["memory"])),
        memory=table(memory.rows, results["memory"]),
        shrinkage=table(shrinkage.rows, results["shrinkage"]),
        more=2 * power.MORE_ROWS,
        memory_rows=f"{memory.ROWS:,}",
        memory_columns=memory.COLUMNS,
        memory_models=memory.MODELS,
    )
    return True


def unbiased(cells):
    """Four standard errors: beyond that lies one of 100 such errors with a chance of .006."""
    biases = [truth.bias(trials, form) for setting, trials in cells for form in truth.forms_of(setting["designs"])]
    largest = float(np.abs(biases).max())
    text = f"unbiased, no mean error of D₁ or D₁ − D₂ beyond {BIAS:g} standard errors"
    return Goal(text, largest <= BIAS, f"at most {largest:.1f} in {2 * len(biases)} means")


def truth_goals(tied):
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


def _within(text, cells, forms, low, high, lost=0.0):
    """The goal that every ratio lies between `low` − lost/n and `high`."""
    seen = [
        (truth.ratio(trials, form), low - lost / setting["n"])
        for setting, trials in cells
        for form in truth.forms_of(setting["designs"])
        if form in forms
    ]
    if not seen:
        return Goal(text, False, "not run")
    (least, least_error), (most, most_error) = min(seen)[0], max(seen)[0]
    figure = f"{least:.3f} ± {least_error:.3f} to {most:.3f} ± {most_error:.3f} in {len(seen)} rows"
    return Goal(text, all(bound <= ratio[0] <= high for ratio, bound in seen), figure)


def power_goals(cells):
    """Incomplete against block with as many pairs, and against linear, by the mean of paired differences."""
    out = []
    for setting, trials in cells:
        where = f"{setting['problem']}, {setting['measure'].upper()}, n = {setting['n']}"
        lags = power.LAGS[setting["n"]]
        for test in power.TESTS:
            tpr = {d: np.array(power.tpr(setting, trials, d, test)) for d in power.designs(setting["n"])}
            gaps = [rate(tpr[f"incomplete {r}"] - tpr[f"block {2 * r + 1}"]) for r in lags]
            words = ", ".join(f"{gap:+.3f} ± {error:.3f}" for gap, error in gaps)
            fine = all(gap >= -3.0 * error for gap, error in gaps)
            claim = f"{where}, {test}: TPR of incomplete not below block's (R = {', '.join(map(str, lags))})"
            out.append(Goal(claim, fine, words))
            (gap, error), (most, _) = (
                rate(tpr[design] - tpr["linear"]) for design in (f"incomplete {lags[-1]}", "complete")
            )
            claim = f"{where}, {test}: TPR of incomplete (R = {lags[-1]}) well above linear's, by .1 or more"
            holds = bool(gap >= WELL_ABOVE) if most >= WELL_ABOVE else None
            out.append(Goal(claim, holds, f"{gap:+.3f} ± {error:.3f}, of the complete one {most:+.3f}"))
    return out


def memory_goals(cells):
    """Below 500 MB."""
    most = max(trial["megabytes"] for _, trials in cells for trial in trials)
    return [Goal(f"peak above the inputs below {memory.ALLOWED:g} MB", most < memory.ALLOWED, f"at most {most:.0f} MB")]


def _lines(goals):
    return "\n".join(map(str, goals))
