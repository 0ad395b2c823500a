"""The numbers behind the pictures of a result, for the page and for matplotlib: axes, forest
plots, all pairs of models.

No drawing library is imported here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from relfit.results.comparison import Comparison
from relfit.results.scale import kind_of
from relfit.results.table import common_power, interval_words, scaled_format
from relfit.util.arrays import Array

# Round steps between ticks, and the margin of an axis as a part of it.
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_MARGIN = 0.04
# Bars are cut off so many standard errors from their value: selective intervals can be
# infinite.
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
        step = next(
            power * factor for factor in _ROUND if power * factor >= least * (1.0 - 1e-9)
        )
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        # Adding 0 turns −0 into 0.
        return [k * step + 0.0 for k in range(first, last + 1)]

    def labels(self, most: int = 5, power: int = 0) -> list[tuple[float, str]]:
        """The ticks' places in per cent, with what is written there: the ticks divided by
        10**`power`.
        """
        ticks = self.ticks(most)
        shown = tick_labels([tick / 10.0**power for tick in ticks])
        return list(zip(map(self.at, ticks), shown, strict=True))


@dataclass(frozen=True)
class Frame:
    """A picture `width` wide and `height` high, with the scales of its axes."""

    width: float
    height: float
    across: Scale
    up: Scale

    def x(self, values: Sequence[float] | Array) -> Array:
        """Where the values stand, from the left."""
        return self.width / 100.0 * np.array([self.across.at(value) for value in values])

    def y(self, values: Sequence[float] | Array) -> Array:
        """Where the values stand, from the top."""
        return self.height * (1.0 - np.array([self.up.at(value) for value in values]) / 100.0)

    def path(self, xs: Sequence[float] | Array, ys: Sequence[float] | Array) -> str:
        """The line through these points."""
        return svg_path(self.x(xs), self.y(ys))

    def axes(self, across: int = 4, up: int = 4) -> dict[str, Any]:
        """The size, and at most so many ticks along each axis: where they stand, with their
        labels.
        """
        below = self.across.labels(across)
        beside = self.up.labels(up)
        right = [(round(self.width * at / 100.0, 1), label) for at, label in below]
        down = [(round(self.height * (1.0 - at / 100.0), 1), label) for at, label in beside]
        size = {"width": self.width, "height": self.height}
        return {**size, "x_ticks": right, "y_ticks": down}


def svg_path(x: Array, y: Array) -> str:
    """A line through points of a picture; those that are drawn at one place are one.

    >>> svg_path(np.array([0.0, 0.01, 2.5]), np.array([1.0, 1.0, 3.0]))
    'M0 1L2.5 3'
    """
    corners = [
        f"{a:.1f} {b:.1f}".replace(".0 ", " ").removesuffix(".0")
        for a, b in zip(x, y, strict=True)
    ]
    return "M" + "L".join(corner for corner, _ in itertools.groupby(corners))


def scale_of(values: list[float]) -> Scale:
    """An axis that holds the values with a small margin; a single value gets a margin of its
    own size.
    """
    low = min(values)
    high = max(values)
    margin = _MARGIN * (high - low) if high > low else abs(low) or 1.0
    return Scale(low - margin, high + margin)


def tick_labels(ticks: list[float]) -> list[str]:
    """The numbers with as many decimals as their spacing needs; very large and small ones
    with an exponent.

    >>> tick_labels([0.0, 0.25, 0.5]), tick_labels([0.0, 2e-7]), tick_labels([-1.0, 0.0])
    (['0', '0.25', '0.5'], ['0', '2e-7'], ['−1', '0'])
    """
    largest = max(map(abs, ticks), default=0.0)
    step = min((b - a for a, b in itertools.pairwise(ticks)), default=largest) or 1.0
    decimals = max(0, 1 - math.floor(math.log10(step) + 1e-9))
    wide = largest >= 1e6 or (0.0 < largest < 1e-4)
    labels = []
    for tick in ticks:
        shown = f"{tick:.3g}" if wide else f"{tick:.{decimals}f}"
        number, _, exponent = shown.partition("e")
        if "." in number:
            number = number.rstrip("0").rstrip(".")
        label = signed("0" if number == "-0" else number)
        labels.append(f"{label}e{int(exponent)}" if exponent else label)
    return labels


def signed(number: str) -> str:
    """The number with a minus sign as wide as a digit."""
    return number.replace("-", "−", 1) if number.startswith("-") else number


@dataclass(frozen=True)
class Bar:
    """One model: the kind of its verdict, its value, and the interval (NaN where there is
    none).
    """

    name: str
    kind: str
    value: float
    low: float
    high: float
    error: float


@dataclass(frozen=True)
class Forest:
    """The bars, best model first, the scale they fit on, the level of the intervals and how
    numbers are written.

    Numbers are divided by 10**`power`, which `factor` says in a title.
    """

    bars: tuple[Bar, ...]
    scale: Scale
    level: float
    line: float
    number: Callable[[float], str]
    power: int = 0
    factor: str = ""

    def shown(self, bar: Bar) -> str:
        """The interval in words; a dash where there is none."""
        words = interval_words(bar.low, bar.high, self.line, self.number, self.power)
        return " to ".join(map(signed, words.split(" to ")))


def discrepancy_forest(comparison: Comparison) -> Forest:
    """Every model's discrepancy with D ± z s, z the normal point of the level 1 − α; the
    line is the best's value.

    >>> from relfit import JointEstimate, decide
    >>> drawn = discrepancy_forest(
    ...     decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))
    ... )
    >>> [drawn.shown(bar) for bar in drawn.bars]
    ['−0.10 to 0.30', '0.70 to 1.10']
    """
    z = float(ndtri(1.0 - comparison.alpha / 2.0))
    errors = comparison.standard_error
    values = comparison.discrepancy
    intervals = np.stack([values - z * errors, values + z * errors], axis=1)
    line = comparison.rows()[0]["discrepancy"]
    return _forest(comparison, "discrepancy", errors, intervals, line)


def difference_forest(comparison: Comparison) -> Forest:
    """Every other model's difference to the best, with the interval that agrees with its verdict.

    It lies above the line, 0 or the margin, exactly where the model is worse.

    >>> from relfit import JointEstimate, decide
    >>> drawn = difference_forest(
    ...     decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))
    ... )
    >>> [(bar.kind, drawn.shown(bar)) for bar in drawn.bars]
    [('best', '—'), ('worse', '0.52 to 1.03')]
    """
    errors = comparison.difference_standard_error
    intervals = comparison.verdict_intervals()
    return _forest(comparison, "difference", errors, intervals, comparison.margin)


def _forest(
    comparison: Comparison, key: str, errors: Array, intervals: Array, line: float
) -> Forest:
    """The forest of this column of the table; models that are infinitely worse are left out."""
    bars = []
    ends = [line]
    for row in comparison.rows():
        name = row["name"]
        if name in comparison.impossible:
            continue
        i = comparison.names.index(name)
        value = row[key]
        error = float(errors[i])
        low, high = (float(end) for end in intervals[i])
        bars.append(Bar(name, kind_of(row["verdict"]), value, low, high, error))
        # The value is drawn too: a selective interval need not hold it.
        ends.append(value)
        if low <= high:
            reach = _LONGEST * error
            ends += [max(low, value - reach), min(high, value + reach)]
    numbers = [bar.error for bar in bars], [bar.value for bar in bars]
    factor, number = scaled_format(*numbers)
    power = common_power(*numbers)
    level = 1.0 - comparison.alpha
    return Forest(tuple(bars), scale_of(ends), level, line, number, power, factor)


def signs(comparison: Comparison) -> dict[str, str]:
    """The signs of the grid of all pairs, seen from the row: filled where the familywise error
    is controlled.
    """
    worse = comparison.wording.worse.mark
    return {"better": "▲" if worse == "▼" else "△", "worse": worse, "inconclusive": "·"}


def who_beats_whom(comparison: Comparison) -> list[list[str]]:
    """`Comparison.verdict_pairs` in the order of the table.

    >>> from relfit import JointEstimate, decide
    >>> who_beats_whom(
    ...     decide(
    ...         JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"
    ...     )
    ... )
    [['itself', 'better'], ['worse', 'itself']]
    """
    order = [comparison.names.index(row["name"]) for row in comparison.rows()]
    return [list(map(str, row)) for row in comparison.verdict_pairs()[np.ix_(order, order)]]
