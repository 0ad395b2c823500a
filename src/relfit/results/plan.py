"""Plan: the rows that each model and test needs, the power curves, and the gaps that can be
detected.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from relfit.results import words
from relfit.results.serial import Record, plain
from relfit.results.stored import held
from relfit.results.table import LONGEST_NAME, NOTHING, Display, Table, short_names
from relfit.stats.planning import Forecast
from relfit.stats.tests import TESTS
from relfit.util import attached
from relfit.util.arrays import Array
from relfit.util.text import listed, quoted, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        return [
            {item.name: getattr(cell, item.name) for item in fields(Forecast)}
            for cell in self.forecasts
        ]

    def curve_rows(self) -> list[dict[str, Any]]:
        """The power curves as a table: name, test, n, power."""
        others = [name for name in self.names if name != self.best]
        return [
            {"name": name, "test": test, "n": int(n), "power": float(self.curves[a, b, k])}
            for a, test in enumerate(self.tests)
            for b, name in enumerate(others)
            for k, n in enumerate(self.sizes)
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

    def plot(self, ax: Axes | None = None) -> Axes:
        """The power curves: a colour per model, a line style per test."""
        axes: Axes = attached("Plan.plot")(self, ax)
        return axes

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        return plan_display(self, longest_name)


def plan_display(plan: Plan, longest_name: int = LONGEST_NAME) -> Display:
    """The answer in one sentence, the settings, a table with a line per model and test, and
    the notes.

    >>> from relfit import Assumed, plan
    >>> print(plan(Assumed(0.01, standard_error=0.01, n=500)))
    About 6,200 rows tell m1 from best.
    rows for power 0.8 · α = 0.05 · assumed gaps, standard errors of 500 rows · closed forms
    model  test      gap   rows  power at 500  detectable gap at 500
    m1     best set  0.01  6183  0.17          0.0352
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
    names = dict(zip(plan.names, short_names(plan.names, longest_name), strict=True))
    ranged = any(row["n_range"] is not None for row in plan.rows())
    unit = gap_unit(plan)[0]
    titles = [
        "model",
        "test",
        f"gap{unit}",
        "rows",
        *(["16–84%"] if ranged else []),
        f"power at {plan.n}",
    ]
    rows = tuple(
        tuple(_plan_cells(plan, row, names[row["name"]], ranged)) for row in plan.rows()
    )
    kinds = ("open",) * len(rows)
    cells = Table(
        (*titles, f"detectable gap at {plan.n}"), rows, kinds, verdicts=0, words=(0, 1)
    )
    halves = []
    if plan.yardstick:
        apart = f"about {plan.yardstick:.2g} apart{unit}"
        halves.append(("", f"Sampling noise puts two halves of the pilot's data {apart}."))
    notes = (*halves, *(("note", visible(note)) for note in plan.notes))
    return Display(f"{plan_answer(plan)}\n{' · '.join(header)}", cells, notes)


def _plan_cells(plan: Plan, row: dict[str, Any], name: str, ranged: bool) -> list[str]:
    def shown(rows: float) -> str:
        return f"{rows:.0f}" if math.isfinite(rows) else f"more than {plan.most}"

    rows = shown(row["n_needed"])
    if math.isfinite(row["n_error"]) and row["n_error"] >= 0.5:
        rows += f" ± {math.ceil(row['n_error'])}"
    elif row["n_needed"] == plan.fewest[plan.tests.index(row["test"])]:
        rows += " (minimum)"
    # Both ends are often the same number.
    ends = (
        " to ".join(dict.fromkeys(map(shown, row["n_range"])))
        if row["n_range"] is not None
        else NOTHING
    )
    times = gap_unit(plan)[1]
    error = times * row["gap_standard_error"]
    gap = f"{times * row['gap']:.3g}" + (f" ± {error:.2g}" if error > 0.0 else "")
    detectable = (
        f"{times * row['detectable_gap']:.3g}"
        if math.isfinite(row["detectable_gap"])
        else "none"
    )
    if row["detectable_gap"] == 0.0:
        # The difference to the best does not vary: the pilot says nothing about what other data
        # would show.
        detectable = NOTHING
    power = f"{row['power']:.2f}"
    return [
        name,
        words.name_of_test(row["test"]),
        gap,
        rows,
        *([ends] if ranged else []),
        power,
        detectable,
    ]


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
    'About 460 rows tell base from tuned; large may never be separable from it.'
    """
    unit = words.row_word(plan.measure)
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
    best = quoted(plan.best)
    parts = []
    if found:
        first = found[0]
        last = found[-1]
        parts.append(
            f"about {words.about(first.n_needed)} {unit} tell {quoted(first.name)} from {best}"
        )
    if len(found) in (2, 3):
        parts += [
            f"about {words.about(cell.n_needed)} tell {quoted(cell.name)} from it"
            for cell in found[1:]
        ]
    elif len(found) > 3:
        parts.append(
            f"about {words.about(last.n_needed)} tell all of the {len(found)} models from it "
            f"that can be planned for"
        )
    answer = ", ".join(parts)
    if never:
        whom = "it" if found else best
        separable = f"{listed(never)} may never be separable from {whom}"
        answer = f"{answer}; {separable}" if found else separable
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
