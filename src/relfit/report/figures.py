"""The numbers behind the pictures of a result, for the page and for matplotlib: axes, forest plots, who beats whom.

No drawing library is imported here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from relfit.report.text import number_format
from relfit.report.words import kind_of
from relfit.results.comparison import Comparison
from relfit.stats.tests import TESTS

# Round steps between ticks, and the margin of an axis as a part of it.
_ROUND, _MARGIN = (1.0, 2.0, 2.5, 5.0, 10.0), 0.04
# Bars are cut off so many standard errors from their value: selective intervals can be infinite.
_LONGEST = 5.0


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Where the value stands, in per cent of the axis; beyond its ends at the nearer end.

        >>> Scale(0.0, 4.0).at(1.0), Scale(0.0, 4.0).at(9.0)
        (25.0, 100.0)
        """
        part = (value - self.low) / (self.high - self.low)
        return 100.0 * min(max(part, 0.0), 1.0)

    def ticks(self, most: int = 5) -> list[float]:
        """At most so many round numbers on the axis, evenly spaced.

        >>> Scale(-0.3, 9.2).ticks()
        [0.0, 2.0, 4.0, 6.0, 8.0]
        """
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        step = next(power * factor for factor in _ROUND if power * factor >= least * (1.0 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        # Adding 0 turns −0 into 0.
        return [k * step + 0.0 for k in range(first, last + 1)]

    def labels(self, most: int = 5) -> list[tuple[float, str]]:
        """The ticks' places in per cent, with what is written there."""
        ticks = self.ticks(most)
        return list(zip(map(self.at, ticks), tick_labels(ticks), strict=True))


def scale_of(values: list[float]) -> Scale:
    """An axis that holds the values with a small margin; a single value gets a margin of its own size."""
    low, high = min(values), max(values)
    margin = _MARGIN * (high - low) if high > low else abs(low) or 1.0
    return Scale(low - margin, high + margin)


def tick_labels(ticks: list[float]) -> list[str]:
    """The numbers with as many decimals as their spacing needs; very large and small ones with an exponent.

    >>> tick_labels([0.0, 0.25, 0.5]), tick_labels([0.0, 2e-7]), tick_labels([-1.0, 0.0])
    (['0', '0.25', '0.5'], ['0', '2e-7'], ['−1', '0'])
    """
    largest = max(map(abs, ticks), default=0.0)
    step = min((b - a for a, b in itertools.pairwise(ticks)), default=largest) or 1.0
    decimals = max(0, 1 - math.floor(math.log10(step) + 1e-9))
    wide = largest >= 1e6 or (0.0 < largest < 1e-4)
    labels = []
    for tick in ticks:
        number, mark, exponent = (f"{tick:.3g}" if wide else f"{tick:.{decimals}f}").partition("e")
        if "." in number:
            number = number.rstrip("0").rstrip(".")
        labels.append(signed("0" if number == "-0" else number) + (f"e{int(exponent)}" if mark else ""))
    return labels


def signed(number: str) -> str:
    """The number with a minus sign as wide as a digit."""
    return number.replace("-", "−", 1) if number.startswith("-") else number


@dataclass(frozen=True)
class Bar:
    """One model: its value, the interval, and the one-sided lower bound (None where there is none)."""

    name: str
    kind: str
    value: float
    low: float
    high: float
    error: float
    bound: float | None = None


@dataclass(frozen=True)
class Forest:
    """The bars, best model first, the scale they fit on, the level of the intervals and how numbers are written."""

    bars: tuple[Bar, ...]
    scale: Scale
    level: float
    line: float
    number: Callable[[float], str]

    def shown(self, bar: Bar) -> str:
        """The interval in words; a dash where there is none."""
        if bar.low == bar.high:
            return "—"
        ends = (self.number(end) if math.isfinite(end) else ("∞" if end > 0 else "-∞") for end in (bar.low, bar.high))
        return " to ".join(map(signed, ends))


def discrepancy_forest(comparison: Comparison) -> Forest:
    """Every model's discrepancy with D ± z s, z the normal point of the level 1 − α; the line is the best's value.

    >>> from relfit import JointEstimate, decide
    >>> drawn = discrepancy_forest(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]])))
    >>> [drawn.shown(bar) for bar in drawn.bars]
    ['−0.10 to 0.30', '0.70 to 1.10']
    """
    rows, z = comparison.rows(), float(ndtri(1.0 - comparison.alpha / 2.0))
    bars = []
    for row in (row for row in rows if row["name"] not in comparison.impossible):
        value, error = row["discrepancy"], row["standard_error"]
        bars.append(Bar(row["name"], kind_of(row), value, value - z * error, value + z * error, error))
    return _forest(comparison, bars, line=rows[0]["discrepancy"])


def difference_forest(comparison: Comparison) -> Forest:
    """Every other model's difference to the best, with the interval and the one-sided bound of the test used.

    A bound above the line, 0 or the margin, is what makes a model worse, before any correction for many models; in
    best-set, where the bounds hold jointly, a model can be worse without that.
    """
    level = 1.0 - comparison.alpha
    intervals, bounds = comparison.confidence_interval(level), comparison.lower_bound(level)
    bars = []
    for row in (row for row in comparison.rows() if row["name"] not in comparison.impossible):
        i = comparison.names.index(row["name"])
        low, high = (float(end) for end in intervals[i])
        bound = float(bounds[i]) if not row["best"] or TESTS[comparison.test].tests_best else None
        error = float(comparison.difference_standard_error[i])
        bars.append(Bar(row["name"], kind_of(row), row["difference"], low, high, error, bound))
    return _forest(comparison, bars, line=comparison.margin)


def _forest(comparison: Comparison, bars: Sequence[Bar], line: float) -> Forest:
    number = number_format([bar.error for bar in bars], [bar.value for bar in bars])
    # The value is drawn too: a selective interval need not hold it.
    ends = [line, *(bar.value for bar in bars)]
    ends += [max(bar.low, bar.value - _LONGEST * bar.error) for bar in bars]
    ends += [min(bar.high, bar.value + _LONGEST * bar.error) for bar in bars]
    return Forest(tuple(bars), scale_of(ends), 1.0 - comparison.alpha, line, number)


def who_beats_whom(comparison: Comparison) -> list[list[str]]:
    """What every model is to every other, in the order of the table: "better", "worse", "open" or "same".

    All pairs are adjusted together by Holm: no error with probability 1 − α.

    >>> from relfit import JointEstimate, decide
    >>> who_beats_whom(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"))
    [['same', 'better'], ['worse', 'same']]
    """
    order = [comparison.names.index(row["name"]) for row in comparison.rows()]
    worse = comparison.pairs("holm").worse[np.ix_(order, order)]
    cells = np.where(worse, "worse", np.where(worse.T, "better", "open"))
    np.fill_diagonal(cells, "same")
    return [list(map(str, row)) for row in cells]
