"""The result of a monitor after some items, as a finished result and in words: a line, a table,
a sentence and notes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from relfit.results.scale import (
    BEST_OBSERVED,
    INCONCLUSIVE,
    SIGNIFICANTLY_WORSE,
    kind_of,
)
from relfit.results.serial import VERSIONS, Record
from relfit.results.table import (
    LONGEST_NAME,
    NOTHING,
    Display,
    Table,
    number_format,
    short_names,
)
from relfit.util.arrays import Array, Mask
from relfit.util.text import listed, quoted


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MonitorResult(Record):
    """The result of a monitor after some items; every statement holds at all looks
    simultaneously with probability 1 − alpha.

    Attributes:
        names, bounds, alpha, outside, higher_is_better, bets: the settings.
        items: how many items have been counted.
        scored: (l,) the items that each model has.
        mean: (l,) the mean score of each model over its items, after clipping or as ranks.
        log_evalue: (l,) logarithms of the evidence against "this model is among the best",
            after the last item.
        log_peak: (l,) the largest of them at any look; a model is out once its e-value has
            reached 1/alpha.
        out_after: per model the number of items after which it was significantly worse; None
            for the models of the confidence set.
        out_time: per model when that was, in seconds since 1970; None likewise.
        out_limits: (l, 3) per model that is out by how much it is worse than the best of the
            others, on average over the items so far, and the limits for that, which hold for
            this model at all looks. If its e-value is below 1/alpha again, those after the
            item at which it was out. NaN for the models of the confidence set.
        common: (l, l) items that both models of a pair have.
        difference: (l, l) by how much the row's model is worse than the column's on average,
        in units of the scores. lower, upper: (l, l) limits for the average difference, for
        all pairs at once.
        log_pair_evalue: (l, l) logarithms of the evidence against "the row's model is no worse
            than the column's".
        clipped: how many losses were outside the bounds and were clipped.
        versions: of relfit and the libraries that decide the last digits.
    """

    names: tuple[str, ...]
    bounds: tuple[float, float]
    alpha: float
    outside: str
    higher_is_better: bool
    bets: tuple[float, ...]
    items: int
    scored: Array
    mean: Array
    log_evalue: Array
    log_peak: Array
    out_after: tuple[int | None, ...]
    out_time: tuple[float | None, ...]
    out_limits: Array
    common: Array
    difference: Array
    lower: Array
    upper: Array
    log_pair_evalue: Array
    clipped: int
    versions: Mapping[str, str] = field(default_factory=lambda: dict(VERSIONS))

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        sentences = (("", summary(self)), ("", set_words(self)))
        lines = (*sentences, *(("note", note) for note in notes(self)))
        return Display(header(self), table(self, longest_name), lines)

    @property
    def worse(self) -> Mask:
        """(l,) True for the models that are out."""
        return np.array([after is not None for after in self.out_after])

    @property
    def confidence_set(self) -> tuple[str, ...]:
        """The confidence set for the best model: those that are not significantly worse."""
        return tuple(name for name, out in zip(self.names, self.worse, strict=True) if not out)

    @property
    def _losses(self) -> Array:
        """(l,) the means so that smaller is better."""
        return -self.mean if self.higher_is_better else self.mean

    @property
    def best(self) -> str:
        """The best observed model: that of the best mean in the confidence set."""
        left = np.where(self.worse | np.isnan(self.mean), np.inf, self._losses)
        return self.names[int(np.argmin(left))]

    @property
    def saved(self) -> int:
        """How many scores were not needed, because their model was out already."""
        return int(sum(self.items - held for held in self.scored[self.worse]))

    def rows(self) -> list[dict[str, Any]]:
        """The table every output is made from: one row per model, the best first, those that
        are out last.
        """
        best = self.names.index(self.best)
        pairs = np.stack(
            [self.difference[:, best], self.lower[:, best], self.upper[:, best]], axis=1
        )
        limits = np.where(self.worse[:, None], self.out_limits, pairs)
        rows = []
        for i in np.lexsort([self._losses, np.isnan(self.mean), self.worse]).tolist():
            difference, lower, upper = limits[i].tolist()
            rows.append(
                {
                    "name": self.names[i],
                    "items": int(self.scored[i]),
                    "mean": float(self.mean[i]),
                    "difference": difference,
                    "lower": lower,
                    "upper": upper,
                    "evalue": math.exp(self.log_evalue[i]),
                    "pvalue": math.exp(-max(0.0, self.log_peak[i])),
                    "best": i == best,
                    "worse": bool(self.worse[i]),
                    "out_after": self.out_after[i],
                    "out_time": self.out_time[i],
                }
            )
        return rows


def header(result: MonitorResult) -> str:
    """What is compared, in one line."""
    what, better = ("scores", "larger") if result.higher_is_better else ("losses", "smaller")
    shown = f"{what} from {result.bounds[0]:g} to {result.bounds[1]:g} ({better} is better)"
    if result.outside == "ranks":
        shown = f"ranks of {what} ({better} is better)"
    return (
        f"monitor · {counted_items(result.items)} · {shown} · α = {result.alpha:g} for all "
        f"looks"
    )


def table(result: MonitorResult, longest_name: int = LONGEST_NAME) -> Table:
    """The cells of the table, made from `rows()`."""
    rows = result.rows()
    level = f"{100.0 * (1.0 - result.alpha):g}% limits"
    others = [row for row in rows if not row["best"] and math.isfinite(row["upper"])]
    errors = [(row["upper"] - row["lower"]) / 4.0 for row in others]
    number = number_format(errors, [row["mean"] for row in rows])
    names = short_names([row["name"] for row in rows], longest_name)
    cells = []
    for row, name in zip(rows, names, strict=True):
        mean, gap = (
            number(row[key]) if math.isfinite(row[key]) else NOTHING
            for key in ("mean", "difference")
        )
        limits = f"{number(row['lower'])} to {number(row['upper'])}"
        beside = (NOTHING, NOTHING) if row["best"] else (gap, limits)
        evalue = show_evalue(row["evalue"])
        cells.append((name, str(row["items"]), mean, *beside, evalue, verdict(row)))
    kinds = tuple(kind_of(verdict(row)) for row in rows)
    mean = "mean rank" if result.outside == "ranks" else "mean"
    titles = ("model", "items", mean, "Δ to best", level, "e-value", "verdict")
    return Table(titles, tuple(cells), kinds)


def show_evalue(e: float) -> str:
    """An e-value with two digits."""
    if e > 1e12:
        return ">1e12"
    return "<0.001" if e < 0.001 else f"{e:.2g}".replace("e+0", "e").replace("e+", "e")


def show_log_evalue(log_e: float) -> str:
    """The e-value with this logarithm."""
    return show_evalue(math.exp(min(float(log_e), 600.0)))


def verdict(row: dict[str, Any]) -> str:
    """The verdict, with the item and the day since which a model is significantly worse."""
    if row["worse"]:
        since = f"since item {row['out_after']} ({_day(row['out_time'])})"
        return f"{SIGNIFICANTLY_WORSE.name} {since}"
    return BEST_OBSERVED.shown if row["best"] else INCONCLUSIVE.shown


def summary(result: MonitorResult) -> str:
    """The answer: the best observed model, then the models of every other verdict."""
    after = f"After {counted_items(result.items)}"
    if not result.confidence_set:
        return (
            f"{after} every model is significantly worse than another one, each on average over "
            f"the items up to some look."
        )
    sentences = [f"{after} {quoted(result.best)} is the best observed model"]
    rows = result.rows()
    worse = [row["name"] for row in rows if row["worse"]]
    undecided = [row["name"] for row in rows if not row["worse"] and not row["best"]]
    for name, models in ((SIGNIFICANTLY_WORSE.name, worse), (INCONCLUSIVE.name, undecided)):
        if models:
            sentences.append(f"{name.capitalize()}: {listed(models)}")
    return f"{'. '.join(sentences)}."


def set_words(result: MonitorResult) -> str:
    """The confidence set for the best model."""
    kept = listed(result.confidence_set) if result.confidence_set else "no model"
    level = f"{100.0 * (1.0 - result.alpha):g}%"
    return f"{level} confidence set for the best model, valid at all looks: {kept}."


def notes(result: MonitorResult) -> list[str]:
    """What was done to the losses, and what was saved."""
    (low, high) = result.bounds
    scored = int(result.scored.sum())
    total = len(result.names) * result.items
    said = {
        "clip": f"losses outside {low:g} to {high:g} were moved to the nearer bound "
        f"({result.clipped} of {scored}): means and differences are of the clipped losses",
        "ranks": "losses were replaced by their ranks within each item, from 0 for the best "
        "model to 1 for the worst",
    }
    found = [said[result.outside]] if result.outside in said else []
    if result.saved:
        found.append(
            f"{result.saved} of {total} scores ({result.saved / max(total, 1):.0%}) were not "
            f"needed: their model was out"
        )
    return found


def counted_items(items: int) -> str:
    """The number of items, in words."""
    return f"{items} item{'' if items == 1 else 's'}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
