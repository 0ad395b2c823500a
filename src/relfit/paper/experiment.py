"""An experiment as a value: what is run, how it is shown and what it must show.

Rates over trials carry their Monte-Carlo standard error. A rate at one value of what varies
is a `Point`; a `Check` is a claim about points that a run bears out or does not. Below are
the tables and the figures: curves with error bands, points with error bars, grouped bars.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from relfit import Comparison, Complete, RelMulti, compare
from relfit.paper.runner import Trial
from relfit.util.arrays import Array
from relfit.util.errors import InputError

ALPHA = 0.05
# The folder of downloads and trained models, if it is not ~/.cache/relfit.
CACHE_VARIABLE = "RELFIT_CACHE"
# The paper's variance, in every test of the reproduction.
PLAIN = Complete(variance="projection")

T = TypeVar("T")
Setting = dict[str, Any]
Decision = dict[str, Any]
Log = Callable[[str], None]
Row = dict[str, object]
Rate = tuple[float, float]
# Of each test, the models that it compares, by their key, and its options.
Tests = Mapping[str, tuple[str, Mapping[str, Any]]]
# A number made of the decisions of one test in one trial.
Score = Callable[[Sequence[Decision]], float]


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


# ── trials ────────────────────────────────────────────────────────────────────────────────────


def relmulti(select_fraction: float, correction: str = "by") -> dict[str, Any]:
    """The options of `compare` for RelMulti that selects on this fraction of the rows, with
    the paper's variance.
    """
    return {"test": RelMulti(select_fraction), "correction": correction, "estimator": PLAIN}


def verdicts(test: str, result: Comparison) -> list[Decision]:
    """The decisions of one comparison about every model: its p-value, verdict and status,
    whether it was selected, and its discrepancy.
    """
    return [
        {
            "test": test,
            "model": model,
            "worse": bool(result.worse[k]),
            "pvalue": float(result.pvalue[k]),
            "status": list(result.status[k]),
            "selected": model == result.best,
            "value": float(result.discrepancy[k]),
        }
        for k, model in enumerate(result.names)
    ]


def decided(
    reference: Array,
    models: Mapping[str, Mapping[str, Any]],
    tests: Tests,
    seed: int,
    **options: Any,
) -> list[Decision]:
    """The decisions of every test about the models that it compares."""
    decisions: list[Decision] = []
    for test, (key, own) in tests.items():
        result = compare(
            reference, models[key], alpha=ALPHA, rng=seed, progress=False, **options, **own
        )
        decisions += verdicts(test, result)
    return decisions


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

    def mean(self, test: str, model: str, key: str = "worse") -> Rate:
        """The mean over trials of an entry of one model's decisions: by default how often the
        model is declared worse.
        """
        return rate(
            decision[key]
            for decisions in self.decisions(test)
            for decision in decisions
            if decision["model"] == model
        )


Results = Sequence[Cell]


class Point(NamedTuple):
    """A mean over trials with its standard error, at one value of what varies."""

    x: float
    value: float
    error: float

    def at(self, axis: str) -> str:
        return f"{self.value:.3f} ± {self.error:.3f} at {axis} = {self.x:g}"


def declared(decisions: Sequence[Decision]) -> float:
    """1 if a test that makes one decision a trial declared its model worse, otherwise 0."""
    return float(decisions[0]["worse"])


def curve(results: Results, test: str, score: Score = declared) -> list[Point]:
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


def levels_kept(claim: str, axis: str, curves: Mapping[str, Sequence[Point]]) -> list[Check]:
    """The same claim about every curve that has points; "{}" stands for its name."""
    return [
        level_kept(claim.format(name), axis, points)
        for name, points in curves.items()
        if points
    ]


def bounded(
    claim: str, axis: str, points: Sequence[Point], lowest: float = 0.0, highest: float = 1.0
) -> Check:
    """Every value lies between the bounds."""
    ok = all(lowest <= point.value <= highest for point in points)
    return Check(claim, ok, ", ".join(point.at(axis) for point in points))


# Trials behind the paper's rates, but where it says otherwise.
PAPERS_TRIALS = 100


class Printed(NamedTuple):
    """A rate that the paper prints, and ours."""

    what: str
    paper: float
    ours: Rate
    papers_trials: int = PAPERS_TRIALS

    @property
    def error(self) -> float:
        """The standard error of the difference; of the paper's rate p by (np + 1)/(n + 2)."""
        n = self.papers_trials
        p = (n * self.paper + 1.0) / (n + 2.0)
        return math.hypot(self.ours[1], math.sqrt(p * (1.0 - p) / n))

    @property
    def within(self) -> bool:
        """Whether the two differ by at most 3 standard errors of their difference."""
        return abs(self.ours[0] - self.paper) <= 3.0 * self.error

    def row(self) -> Row:
        return {
            "printed": self.what,
            "the paper": self.paper,
            "ours": self.ours,
            "within 3 s.e.": "yes" if self.within else "no",
        }


# ── data ──────────────────────────────────────────────────────────────────────────────────────


class DataAbsent(InputError):
    """The experiment's data are not on this machine; the message says in one line how to get
    them.
    """


@dataclass(frozen=True)
class DataOptions:
    """The options of `relfit reproduce` that say where data are."""

    data: Path | None = None
    features: Path | None = None
    download: bool = False
    images: Path | None = None
    attributes: Path | None = None
    generated: Path | None = None
    model: str | None = None
    weights: Path | None = None


def cache_folder(name: str) -> Path:
    """The folder of this name in the cache, created if it does not exist."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relfit"
    folder = Path(os.environ.get(CACHE_VARIABLE) or caches) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{CACHE_VARIABLE}: cannot create the folder {str(folder)!r} ({error.strerror}); "
            f"set it to a folder that can be written"
        ) from error
    return folder


def digest(*parts: bytes) -> str:
    """A short SHA-256 of the parts, in this order."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:16]


# ── experiments ───────────────────────────────────────────────────────────────────────────────


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
            is added to every setting, a digest that names what was prepared, and under
            "most n" the largest n that they allow; raises DataAbsent where the data are not
            there.
        data_options: the options of `relfit reproduce` that `prepare` uses.
        extras: more tables, by the line above each.
        printed: the rates that the paper prints, beside ours.
        about: what the data are, in words, from what `prepare` returned.
    """

    name: str
    title: str
    settings: Callable[[bool], list[Setting]]
    trials: tuple[int, int]
    trial: Trial
    table: Callable[[Results], list[Row]]
    figure: Callable[[Results], Figure]
    checks: Callable[[Results], list[Check]]
    prepare: Callable[[DataOptions, bool, Log], Setting] = lambda *_: {}
    data_options: tuple[str, ...] = ()
    extras: Callable[[Results], Mapping[str, list[Row]]] = lambda _: {}
    printed: Callable[[Results], list[Printed]] = lambda _: []
    about: Callable[[Setting], str] = lambda _: ""

    def count(self, quick: bool) -> int:
        return self.trials[quick]


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


# ── tables ────────────────────────────────────────────────────────────────────────────────────


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


def rates_table(
    results: Results, tests: Iterable[str], scores: Mapping[str, Score]
) -> list[Row]:
    """A row per setting and test, with the mean of each score over the trials."""
    return [
        {**cell.setting, "test": test, "trials": len(cell.outcomes)}
        | {name: rate(map(score, cell.decisions(test))) for name, score in scores.items()}
        for cell in results
        for test in tests
    ]


def beside(ours: Rate, papers: float) -> str:
    """Our rate with its standard error, the paper's in brackets.

    >>> beside((0.4, 0.049), 0.42)
    '0.40 ± 0.05 (0.42)'
    """
    return f"{ours[0]:.2f} ± {ours[1]:.2f} ({papers:.2f})"


# ── figures, without pyplot, so that nothing leaks ────────────────────────────────────────────

REACH = 1.96
INK = "#333333"
FAINT = "#999999"
# Okabe and Ito's colours, which the colour-blind can tell apart; line and marker differ too.
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
BLUE = "#0072B2"
RED = "#D55E00"
PINK = "#CC79A7"
BAR_COLOURS = {
    "RelPSI": ORANGE,
    "RelMulti": BLUE,
    "best set": GREEN,
    "carving": SKY,
    "FID": "#BBBBBB",
}
BAR_WIDTH = 0.2


class Look(NamedTuple):
    """How a curve is drawn."""

    colour: str
    marker: str
    line: str = "-"


def new_figure(panels: int, height: float = 4.2) -> tuple[Figure, list[Axes]]:
    """A figure with its panels side by side, 7 inches wide for one and wider for more."""
    figure = Figure(figsize=(3.2 + 3.8 * panels, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def draw_curve(ax: Axes, label: str, look: Look, points: Sequence[Point]) -> None:
    """A curve through the points with a band of ±1.96 standard errors, inside [0, 1]."""
    x, y, error = np.array(points, dtype=float).T
    ax.plot(
        x,
        y,
        look.line,
        color=look.colour,
        marker=look.marker,
        markersize=5,
        linewidth=1.4,
        label=label,
    )
    low = np.clip(y - REACH * error, 0.0, 1.0)
    high = np.clip(y + REACH * error, 0.0, 1.0)
    ax.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)


def draw_level(ax: Axes) -> None:
    """A line at α."""
    ax.axhline(
        ALPHA, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0, label=f"α = {ALPHA:g}"
    )


def draw_bars(
    ax: Axes,
    title: str,
    models: Sequence[str],
    rates: Mapping[str, Sequence[Rate]],
    paper_rates: Mapping[str, Sequence[float]],
    label: str = "Declared worse (share of trials)",
    source: str = "the paper",
) -> None:
    """A group of bars per model, ±1.96 standard errors; a diamond where the paper prints a
    figure.
    """
    places: Array = np.arange(len(models), dtype=float)
    for k, (test, pairs) in enumerate(rates.items()):
        at = places + (k - (len(rates) - 1) / 2.0) * BAR_WIDTH
        height, error = np.array(pairs, dtype=float).T
        reach = np.where(np.isfinite(error), REACH * error, 0.0)
        bars = np.stack([np.minimum(reach, height), np.minimum(reach, 1.0 - height)])
        ax.bar(at, height, BAR_WIDTH * 0.9, color=BAR_COLOURS[test], label=test, zorder=2)
        ax.errorbar(
            at, height, yerr=bars, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2, zorder=3
        )
        if test in paper_rates:
            word = source if test == next(iter(paper_rates)) else None
            ax.scatter(
                at,
                paper_rates[test],
                marker="D",
                s=26,
                color="white",
                edgecolors=INK,
                zorder=4,
                label=word,
            )
    dress(ax, title, "", label, (0.0, 1.03))
    ax.set_xticks(places, models)


def dress(
    ax: Axes, title: str, xlabel: str, ylabel: str, ylim: tuple[float, float] | None = None
) -> None:
    """Titles, labels and a light grid."""
    ax.set_title(title, color=INK, fontsize="medium")
    ax.set_xlabel(xlabel, color=INK)
    ax.set_ylabel(ylabel, color=INK)
    if ylim is not None:
        ax.set_ylim(*ylim)
    ax.locator_params(axis="x", nbins=6)
    ax.grid(color=FAINT, alpha=0.25, linewidth=0.6)
    ax.tick_params(colors=INK)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)


def add_legend(figure: Figure, ax: Axes, columns: int) -> None:
    """The legend of one panel, below all of them."""
    entries = ax.get_legend_handles_labels()
    figure.legend(
        *entries,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        labelcolor=INK,
        fontsize="small",
    )
