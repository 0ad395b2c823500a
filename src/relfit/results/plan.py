"""Plan: the rows that each model and test needs, the power curves, and the gaps that can be
detected.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass
from itertools import product
from typing import Any

from relfit.results import words
from relfit.results.serial import Record, by_report, held, plain
from relfit.results.table import LONGEST_NAME, NOTHING, Display, Table, short_names
from relfit.stats.planning import Forecast
from relfit.stats.tests import TESTS
from relfit.util.arrays import Array
from relfit.util.text import listed, quoted, visible

_RANGE = "16–84%"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Plan(Record):
    """How many rows the tests need to find each model worse.

    Attributes:
        names: all models of the pilot.
        best: the model with the smallest D, which the others' gaps are measured to.
        target_power, alpha, tests, select_fraction, corrections: what was asked for.
        n: the rows that `power` and `detectable_gap` of the forecasts are for.
        pilot_n: the rows of the pilot's smallest sample, which its covariance belongs to.
        fewest: per test, the fewest rows with which it runs.
        most: the largest number of rows looked at.
        forecasts: one per model (except the best) and test.
        sizes: (k,) rows of the power curves.
        curves: (tests, models except the best, k) powers, in the order of `tests` and
            `forecasts`.
        method: "closed forms" (two models) or "simulation".
        notes: sentences the reader should see. measure, higher_is_better, binary: what the
        gaps are differences of, as in `JointEstimate`.
        yardstick: how far two halves of the pilot's data are apart through sampling alone, in
            these units, or None.
    """

    names: tuple[str, ...]
    best: str
    target_power: float
    alpha: float
    tests: tuple[str, ...]
    select_fraction: float
    corrections: tuple[str, ...]
    n: int
    pilot_n: int
    measured: bool
    fewest: tuple[int, ...]
    most: int
    forecasts: tuple[Forecast, ...] = held(default=MISSING, written=False)
    sizes: Array = held(default=MISSING, written=False)
    curves: Array = held(default=MISSING, written=False)
    method: str
    trials: int
    seed: int | None
    notes: tuple[str, ...] = ()
    measure: str = "score"
    higher_is_better: bool = False
    binary: bool = False
    yardstick: float | None = None

    def rows(self) -> list[dict[str, Any]]:
        """The table every output is made from: one row per model and test."""
        return [asdict(cell) for cell in self.forecasts]

    def curve_rows(self) -> list[dict[str, Any]]:
        """The power curves as a table: name, test, n, power."""
        others = [name for name in self.names if name != self.best]
        points = product(self.tests, others, map(int, self.sizes))
        return [
            {"name": name, "test": test, "n": n, "power": power}
            for (test, name, n), power in zip(points, self.curves.ravel().tolist(), strict=True)
        ]

    def needed(self, name: str, test: str) -> float:
        """Rows needed for one model and test; inf where `most` are not enough."""
        return next(
            cell.n_needed for cell in self.forecasts if (cell.name, cell.test) == (name, test)
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; infinity is written as the text "inf", and NaN as null."""
        return {
            **super().to_dict(),
            "rows": plain(self.rows()),
            "curve": plain(self.curve_rows()),
        }

    @by_report
    def plot(self, ax: Any = None) -> Any:
        """The power curves: a colour per model, a line style per test. Returns the matplotlib
        Axes.
        """

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        return plan_display(self, longest_name)


def plan_display(plan: Plan, longest_name: int = LONGEST_NAME) -> Display:
    """The answer in one sentence, the settings, a table with a line per model and test, and
    the notes.

    >>> from relfit import Assumed, plan
    >>> print(plan(Assumed(0.01, standard_error=0.01, n=500), tests="relpsi"))
    About 7,800 rows tell m1 from best.
    rows for power 0.8 · α = 0.05 · assumed gaps, standard errors of 500 rows · closed forms
    model  test    gap   rows  power at 500  detectable gap at 500
    m1     RelPSI  0.01  7849  0.11          0.0396
    """
    source = (
        f"{'pilot' if plan.measured else 'assumed gaps, standard errors'} of "
        f"{plan.pilot_n} rows"
    )
    method = f"simulation, {plan.trials} trials" if plan.method == "simulation" else plan.method
    corrected = [
        f"{words.name_of_test(test)}: {words.CORRECTION_NAMES.get(correction, correction)}"
        for test, correction in zip(plan.tests, plan.corrections, strict=True)
        if correction != "none" and (len(plan.names) > 2 or TESTS[test].tests_best)
    ]
    header = [
        f"rows for power {plan.target_power:g}",
        f"α = {plan.alpha:g}",
        source,
        method,
        *corrected,
    ]
    unit = gap_unit(plan)[0]
    names = dict(zip(plan.names, short_names(plan.names, longest_name), strict=True))
    rows = [{"model": names[cell.name], **_cells(plan, cell)} for cell in plan.forecasts]
    if all(cell.n_range is None for cell in plan.forecasts):
        for row in rows:
            del row[_RANGE]
    cells = Table.plain(list(rows[0]), [list(row.values()) for row in rows], words=(0, 1))
    halves = []
    if plan.yardstick:
        apart = f"about {plan.yardstick:.2g}{unit} before bias correction"
        halves.append(("", f"Two random halves of the pilot's data differ by {apart}."))
    notes = (*halves, *(("note", visible(note)) for note in plan.notes))
    return Display(f"{plan_answer(plan)}\n{' · '.join(header)}", cells, notes)


def _cells(plan: Plan, cell: Forecast) -> dict[str, str]:
    """The cells of a row by their titles, after the model's name."""

    def count(rows: float) -> str:
        return f"{rows:.0f}" if math.isfinite(rows) else f"more than {plan.most}"

    rows = count(cell.n_needed)
    if math.isfinite(cell.n_error) and cell.n_error >= 0.5:
        rows += f" ± {math.ceil(cell.n_error)}"
    elif cell.n_needed == plan.fewest[plan.tests.index(cell.test)]:
        rows += " (minimum)"
    unit, times = gap_unit(plan)
    error = times * cell.gap_standard_error
    detectable = f"{times * cell.detectable_gap:.3g}".replace("inf", "none")
    # A difference to the best that does not vary says nothing about what other data would show.
    varies = cell.detectable_gap != 0.0
    return {
        "test": words.name_of_test(cell.test),
        f"gap{unit}": f"{times * cell.gap:.3g}" + (f" ± {error:.2g}" if error > 0.0 else ""),
        "rows": rows,
        # Both ends are often the same number.
        _RANGE: " to ".join(dict.fromkeys(map(count, cell.n_range or ()))) or NOTHING,
        f"power at {plan.n}": f"{cell.power:.2f}",
        f"detectable gap at {plan.n}": detectable if varies else NOTHING,
    }


def plan_answer(plan: Plan) -> str:
    """The plan in one sentence, for the first of its tests: how many rows tell which models
    from the best.

    >>> from relfit import Assumed, plan
    >>> plan_answer(
    ...     plan(
    ...         Assumed(
    ...             {"base": 0.01, "tuned": 0.0, "large": 0.0}, standard_error=0.003, n=500
    ...         ),
    ...         rng=0,
    ...     )
    ... )
    'About 650 rows tell base from tuned; large may never be separable from it.'
    """
    cells = sorted(
        (cell for cell in plan.forecasts if cell.test == plan.tests[0]),
        key=lambda cell: cell.n_needed,
    )
    never = [
        cell.name
        for cell in cells
        if math.isinf(cell.n_needed) or math.isinf((cell.n_range or (0.0, 0.0))[1])
    ]
    found = [cell for cell in cells if cell.name not in never]
    unit = f" {words.row_word(plan.measure)}"
    whom = quoted(plan.best)
    parts = []
    # Of more than three models the first and the last are named.
    for cell in found if len(found) <= 3 else found[:1]:
        parts.append(
            f"about {words.about(cell.n_needed)}{unit} tell {quoted(cell.name)} from {whom}"
        )
        unit = ""
        whom = "it"
    if len(found) > 3:
        parts.append(
            f"about {words.about(found[-1].n_needed)} tell all of the {len(found)} models from it "
            f"that can be planned for"
        )
    sentences = [", ".join(parts)] if parts else []
    if never:
        sentences.append(f"{listed(never)} may never be separable from {whom}")
    answer = "; ".join(sentences)
    return f"{answer[0].upper()}{answer[1:]}."


def gap_unit(plan: Plan) -> tuple[str, float]:
    """What gaps are measured in, and how many of it are 1: points for the fraction of right
    answers.
    """
    if plan.binary:
        return " in points", 100.0
    name = words.MEASURES[plan.measure].name
    name = "mean score" if plan.measure == "loss" and plan.higher_is_better else name
    return ("" if plan.measure == "score" else f" in {name}"), 1.0
