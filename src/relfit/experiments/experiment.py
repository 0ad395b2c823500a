"""An experiment as a value: what is run, how it is shown, and what it must show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from relfit.experiments.given import Given, Tell
from relfit.experiments.runner import Trial

Setting = dict[str, Any]
Decision = dict[str, Any]
Row = dict[str, object]

FIRST = ("test", "model", "worse", "pvalue")  # what every decision has; a store sorts the keys


class Cell(NamedTuple):
    """A setting and the outcomes of its trials, ordered by seed (0, 1, …).

    An outcome is a mapping with a list "decisions", one mapping a verdict: "test", "model", "pvalue", "worse"
    and what else the experiment needs.
    """

    setting: Setting
    outcomes: list[dict[str, Any]]

    def decisions(self, test: str) -> Iterator[list[Decision]]:
        """The decisions of one test, a list for each trial."""
        for outcome in self.outcomes:
            yield [decision for decision in outcome["decisions"] if decision["test"] == test]


Results = Sequence[Cell]


class Check(NamedTuple):
    """A claim, whether the run bears it out, and the numbers."""

    claim: str
    ok: bool
    figure: str

    def __str__(self) -> str:
        return f"{'PASS' if self.ok else 'FAIL'}  {self.claim}: {self.figure}"


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper.

    Attributes:
        name: as in ``relfit reproduce NAME``, and the key in the store.
        title: a line for the list and the figure.
        setting: what is drawn and which tests decide, in words (Markdown).
        paper: what the paper reports or claims.
        note: how our run differs from the published one, and what that does to the numbers.
        settings: the settings of the quick version (True) or the full one; JSON-able.
        trials: trials per setting, (full, quick).
        trial: module-level, a pure function of (setting, seed); returns {"decisions": […]}.
        table: the rows of the table.
        figure: the picture.
        checks: what must hold; claims whose settings were not run are left out.
        prepare: for real data: finds or fetches them (and trains models), and returns what is added to every
            setting, a digest that names what was prepared; raises DataAbsent where the data are not there.
        takes: the options of `relfit reproduce` that `prepare` uses.
        extras: more tables, by the line above each.
    """

    name: str
    title: str
    setting: str
    paper: str
    note: str
    settings: Callable[[bool], list[Setting]]
    trials: tuple[int, int]
    trial: Trial
    table: Callable[[Results], list[Row]]
    figure: Callable[[Results], Figure]
    checks: Callable[[Results], list[Check]]
    prepare: Callable[[Given, bool, Tell], Setting] | None = None
    takes: tuple[str, ...] = ()
    extras: Callable[[Results], Mapping[str, list[Row]]] | None = None

    def count(self, quick: bool) -> int:
        """Trials per setting."""
        return self.trials[1] if quick else self.trials[0]


def tidy(name: str, results: Results) -> list[Row]:
    """One row per trial and decision: the experiment, its setting, the seed, then the decision."""
    return [
        {"experiment": name, **_plain(cell.setting), "seed": seed, **dict.fromkeys(FIRST), **_plain(decision)}
        for cell in results
        for seed, outcome in enumerate(cell.outcomes)
        for decision in outcome["decisions"]
    ]


def _plain(values: Mapping[str, Any]) -> Row:
    return {key: " ".join(map(str, value)) if isinstance(value, list) else value for key, value in values.items()}
