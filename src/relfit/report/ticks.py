"""Round numbers along an axis, and where they stand on it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


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
        share = (value - self.low) / (self.high - self.low)
        return 100.0 * min(max(share, 0.0), 1.0)

    def ticks(self, most: int = 5) -> list[float]:
        """At most so many round numbers on the axis, evenly spaced.

        >>> Scale(-0.3, 9.2).ticks()
        [0.0, 2.0, 4.0, 6.0, 8.0]
        """
        step = _step((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        # Adding 0 turns −0 into 0.
        return [k * step + 0.0 for k in range(first, last + 1)]

    def labels(self, most: int = 5) -> list[tuple[float, str]]:
        """The ticks' places in per cent, with what is written there."""
        ticks = self.ticks(most)
        return list(zip(map(self.at, ticks), tick_labels(ticks), strict=True))


def scale_of(values: list[float], margin: float = 0.04) -> Scale:
    """An axis that holds the values with a little room; a single value gets room of its own size."""
    low, high = min(values), max(values)
    if low == high:
        room = abs(low) or 1.0
        return Scale(low - room, high + room)
    return Scale(low - margin * (high - low), high + margin * (high - low))


def tick_labels(ticks: list[float]) -> list[str]:
    """The numbers with as many decimals as their spacing needs; very large and small ones with an exponent.

    >>> tick_labels([0.0, 0.25, 0.5]), tick_labels([0.0, 2e-7]), tick_labels([-1.0, 0.0])
    (['0', '0.25', '0.5'], ['0', '2e-7'], ['−1', '0'])
    """
    largest = max(map(abs, ticks), default=0.0)
    steps = [b - a for a, b in itertools.pairwise(ticks)]
    step = min(steps, default=largest) or 1.0
    decimals = max(0, 1 - math.floor(math.log10(step) + 1e-9))
    wide = largest >= 1e6 or (0.0 < largest < 1e-4)
    return [_plain(f"{t:.3g}" if wide else f"{t:.{decimals}f}") for t in ticks]


def _plain(text: str) -> str:
    head, mark, tail = text.partition("e")
    if "." in head:
        head = head.rstrip("0").rstrip(".")
    power = f"e{int(tail)}" if mark else ""
    return (head if head not in ("-0", "") else "0").replace("-", "−") + power


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in _ROUND if power * factor >= least * (1.0 - 1e-9))
