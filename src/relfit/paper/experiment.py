"""An experiment as a value: what is run, how it is shown and what it must show; rates over
trials, and tables of them.

Rates carry their Monte-Carlo standard error. A rate at one value of what varies is a
`Point`; a `Check` is a claim about points that a run bears out or does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast

from matplotlib.figure import Figure

from relfit import Comparison, Complete, RelMulti
from relfit.paper.data import DataOptions, Log
from relfit.paper.runner import Trial
from relfit.util.errors import BackendUnavailable, InputError

ALPHA = 0.05
# The paper's variance, in every test of the reproduction.
PLAIN = Complete(variance="projection")

T = TypeVar("T")
Setting = dict[str, Any]
Decision = dict[str, Any]
Row = dict[str, object]
Rate = tuple[float, float]

FIRST = ("test", "model", "worse", "pvalue")  # the keys of every decision, first in trials.csv


def rate(values: Iterable[float]) -> Rate:
    """Mean over trials and its standard error √(Σ(v−v̄)²/(n(n−1))); for 0/1 values
    √(p(1−p)/(n−1)).

    The standard error is inf for a single value.

    >>> rate([0, 1] * 13)
    (0.5, 0.1)
    """
    numbers = [float(value) for value in values]
    if not numbers:
        raise InputError("values: expected one value per trial; got none")
    n = len(numbers)
    mean = math.fsum(numbers) / n
    if n == 1:
        return mean, math.inf
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in numbers) / (n * (n - 1)))


def markdown_table(rows: Sequence[Mapping[str, object]]) -> str:
    """A Markdown table of mappings with the same keys; floats have three decimals, pairs are
    mean ± s.e.

    >>> print(markdown_table([{"test": "relpsi", "FPR": (0.04, 0.011)}]), end="")
    | test   | FPR           |
    | ------ | ------------- |
    | relpsi | 0.040 ± 0.011 |
    """
    if not rows:
        raise InputError("rows: expected one row or more; got none")
    header = list(rows[0])
    if any(list(row) != header for row in rows):
        raise InputError(
            f"rows: expected the columns {', '.join(header)} in every row; give "
            f"all rows the same keys"
        )
    cells = [header, *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(3, *(len(line[column]) for line in cells)) for column in range(len(header))]
    lines = [
        [text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in cells
    ]
    lines.insert(1, ["-" * width for width in widths])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return " ± ".join(_cell(part) for part in value)
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value).replace("|", "\\|").replace("\n", " ")


class Cell(NamedTuple):
    """A setting and the outcomes of its trials, ordered by seed (0, 1, …).

    The first entry of a setting is what varies: the axis of curves. An outcome is a mapping
    with a list "decisions", one mapping per verdict: "test", "model", "pvalue", "worse" and
    what else the experiment needs.
    """

    setting: Setting
    outcomes: list[dict[str, Any]]

    @property
    def x(self) -> float:
        return cast(float, next(iter(self.setting.values())))

    def decisions(self, test: str) -> Iterator[list[Decision]]:
        """The decisions of one test, a list for each trial."""
        for outcome in self.outcomes:
            yield [decision for decision in outcome["decisions"] if decision["test"] == test]


Results = Sequence[Cell]


def relmulti(select_fraction: float, correction: str = "by") -> dict[str, Any]:
    """The options of `compare` for RelMulti that selects on this fraction of the rows, with
    the paper's variance.
    """
    return {"test": RelMulti(select_fraction), "correction": correction, "estimator": PLAIN}


def verdict(test: str, result: Comparison, k: int) -> Decision:
    """The decision of one test about model k."""
    return {
        "test": test,
        "model": result.names[k],
        "pvalue": float(result.pvalue[k]),
        "worse": bool(result.worse[k]),
    }


class Point(NamedTuple):
    """A mean over trials with its standard error, at one value of what varies."""

    x: float
    value: float
    error: float

    @property
    def pair(self) -> Rate:
        """(value, standard error), as `markdown_table` takes it."""
        return self.value, self.error

    def at(self, axis: str) -> str:
        return f"{self.value:.3f} ± {self.error:.3f} at {axis} = {self.x:g}"


def declared(decisions: Sequence[Decision]) -> float:
    """1 if a test that makes one decision a trial declared its model worse, otherwise 0."""
    return float(decisions[0]["worse"])


def curve(
    results: Results, test: str, score: Callable[[Sequence[Decision]], float] = declared
) -> list[Point]:
    """The mean over trials of `score` of one test's decisions, for each setting."""
    return [Point(cell.x, *rate(map(score, cell.decisions(test)))) for cell in results]


class Check(NamedTuple):
    """A claim, whether the run bears it out, and the numbers."""

    claim: str
    ok: bool
    figure: str

    def __str__(self) -> str:
        return f"{'PASS' if self.ok else 'FAIL'}  {self.claim}: {self.figure}"


def level_kept(claim: str, axis: str, points: Sequence[Point]) -> Check:
    """Every rate is at most α + 3 of its standard errors; the figure is the highest of them."""
    ok = all(point.value <= ALPHA + 3.0 * point.error for point in points)
    return Check(claim, ok, f"highest {max(points, key=lambda point: point.value).at(axis)}")


def bounded(
    claim: str, axis: str, points: Sequence[Point], lowest: float = 0.0, highest: float = 1.0
) -> Check:
    """Every value lies between the bounds."""
    ok = all(lowest <= point.value <= highest for point in points)
    return Check(claim, ok, ", ".join(point.at(axis) for point in points))


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper. Its text is a section of reproduction.md beside this file.

    Attributes:
        name: as in ``relfit reproduce NAME``, the key in the store and the title of its
            section.
        title: a line for the list and the figure.
        settings: the settings of the quick version (True) or the full one; JSON-able.
        trials: trials per setting, (full, quick).
        trial: module-level, a pure function of (setting, seed); returns {"decisions": […]}.
        checks: what must hold; claims whose settings were not run are left out.
        prepare: for real data: finds or fetches them (and trains models), and returns what
            is added to every setting, a digest that names what was prepared; raises
            DataAbsent where the data are not there.
        data_options: the options of `relfit reproduce` that `prepare` uses.
        extras: more tables, by the line above each.
    """

    name: str
    title: str
    settings: Callable[[bool], list[Setting]]
    trials: tuple[int, int]
    trial: Trial
    table: Callable[[Results], list[Row]]
    figure: Callable[[Results], Figure]
    checks: Callable[[Results], list[Check]]
    prepare: Callable[[DataOptions, bool, Log], Setting] | None = None
    data_options: tuple[str, ...] = ()
    extras: Callable[[Results], Mapping[str, list[Row]]] | None = None

    def count(self, quick: bool) -> int:
        return self.trials[1] if quick else self.trials[0]


def grid(
    axis: str, full: Sequence[float], quick: Sequence[float], **fixed: Any
) -> Callable[[bool], list[Setting]]:
    """The settings of an experiment in which one number varies.

    >>> grid("n", (50, 500, 1000), (50, 500))(True)
    [{'n': 50}, {'n': 500}]
    """
    return lambda short: [{axis: value, **fixed} for value in (quick if short else full)]


def from_setting(make: Callable[..., T], setting: Setting) -> T:
    """The problem or the images of a setting: `make` called with everything but the sample
    size n.
    """
    return make(**{name: value for name, value in setting.items() if name != "n"})


def tidy(name: str, results: Results) -> list[Row]:
    """One row per trial and decision: the experiment, its setting, the seed, then the
    decision.
    """
    return [
        {
            "experiment": name,
            **_plain(cell.setting),
            "seed": seed,
            **dict.fromkeys(FIRST),
            **_plain(decision),
        }
        for cell in results
        for seed, outcome in enumerate(cell.outcomes)
        for decision in outcome["decisions"]
    ]


def _plain(values: Mapping[str, Any]) -> Row:
    return {
        key: " ".join(map(str, value)) if isinstance(value, list) else value
        for key, value in values.items()
    }


def library(experiment: str, name: str, install: str) -> ModuleType:
    """An optional library, imported here and nowhere at the top of a module."""
    try:
        return import_module(name)
    except ImportError as error:
        message = (
            f"{experiment}: needs {name.partition('.')[0]}, which is not installed; pip "
            f"install {install}"
        )
        raise BackendUnavailable(message) from error
