"""Rates over trials as points of a curve, and claims about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from relfit.experiments.experiment import Check, Decision, Results
from relfit.experiments.summaries import rate

ALPHA = 0.05


class Point(NamedTuple):
    """A mean over trials with its standard error, at one value of what varies."""

    x: float
    value: float
    error: float

    @property
    def pair(self) -> tuple[float, float]:
        """(value, standard error), as `markdown_table` takes it."""
        return self.value, self.error

    def at(self, axis: str) -> str:
        """The point in words."""
        return f"{self.value:.3f} ± {self.error:.3f} at {axis} = {self.x:g}"


def declared(decisions: Sequence[Decision]) -> float:
    """Whether a test that makes one decision a trial rejected."""
    return float(decisions[0]["worse"])


def curve(
    results: Results, axis: str, test: str, score: Callable[[Sequence[Decision]], float] = declared
) -> list[Point]:
    """The mean over trials of `score` of one test's decisions, for each setting."""
    return [Point(cell.setting[axis], *rate(map(score, cell.decisions(test)))) for cell in results]


def level_kept(claim: str, axis: str, points: Sequence[Point]) -> Check:
    """Every rate is at most α + 3 of its standard errors; the figure is the highest of them."""
    ok = all(point.value <= ALPHA + 3.0 * point.error for point in points)
    return Check(claim, ok, f"highest {max(points, key=lambda point: point.value).at(axis)}")


def bounded(claim: str, axis: str, points: Iterable[Point], lowest: float = 0.0, highest: float = 1.0) -> Check:
    """Every value lies between the bounds."""
    found = list(points)
    ok = all(lowest <= point.value <= highest for point in found)
    return Check(claim, ok, ", ".join(point.at(axis) for point in found))
