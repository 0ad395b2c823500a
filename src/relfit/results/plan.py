"""Plan: the rows that each model and test needs, the power curves, and the gaps that can be detected."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from relfit.results.serial import Record, plain
from relfit.stats.planning import Forecast
from relfit.util.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Fields whose numbers are in the tables of a file.
_IN_TABLES = ("forecasts", "sizes", "curves")


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
        curves: (tests, models except the best, k) powers, in the order of `tests` and `forecasts`.
        method: "closed forms" (two models) or "simulation".
        notes: sentences the reader should see.
        measure, higher_is_better, binary: what the gaps are differences of, as in `JointEstimate`.
        yardstick: how far two halves of the pilot's data are apart through sampling alone, in these units, or None.
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
    forecasts: tuple[Forecast, ...]
    sizes: Array
    curves: Array
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
        return [{item.name: getattr(cell, item.name) for item in fields(Forecast)} for cell in self.forecasts]

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
        return next(cell.n_needed for cell in self.forecasts if (cell.name, cell.test) == (name, test))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; infinity is written as the text "inf", and NaN as null."""
        settings = {key: value for key, value in super().to_dict().items() if key not in _IN_TABLES}
        return {**settings, "rows": plain(self.rows()), "curve": plain(self.curve_rows())}

    def plot(self, ax: Axes | None = None) -> Axes:
        """The power curves: a colour per model, a line style per test."""
        from relfit.report.plots import power_curves

        return power_curves(self, ax)
