"""From powers to sizes: the number of rows, or the gap, at which a simulated power is reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from relfit.planning.geometry import Geometry
from relfit.planning.simulate import Simulation

Array = NDArray[np.float64]
Tick = Callable[[], None]

# A curve that has come this far is not followed further: a power does not fall again as n grows.
ENOUGH = 0.999
REFINEMENTS = 3
DOUBLINGS = 14


@dataclass(frozen=True)
class Crossing:
    """Where a rising curve reaches the wanted power, and its Monte-Carlo standard error; inf where it does not."""

    at: float
    standard_error: float


def sizes_between(fewest: int, most: int) -> list[int]:
    """Doubling numbers of rows, from the fewest to the most."""
    count = max(1, math.ceil(math.log2(most / fewest)))
    return [*(fewest * 2**k for k in range(count)), most]


def climb(simulation: Simulation, test: str, sizes: Sequence[int], targets: Sequence[int], tick: Tick) -> Array:
    """(sizes, targets) powers of the first population, made monotone.

    A target whose power has reached ENOUGH is not simulated again, and one tied with the best only while others are.
    """
    centre = simulation.populations[0]
    tied = {c for c, i in enumerate(targets) if centre[i] <= centre.min()}
    powers = np.zeros((len(sizes), len(targets)))
    live = list(range(len(targets)))
    for k, n in enumerate(sizes):
        powers[k] = powers[k - 1] if k else 0.0
        if set(live) - tied:
            powers[k, live] = simulation.power(test, n, [targets[c] for c in live])[0]
            live = [c for c in live if powers[k, c] < ENOUGH]
        tick()
    return np.stack([isotonic_regression(column).x for column in powers.T], axis=1)


def rows_needed(
    simulation: Simulation, test: str, sizes: Sequence[int], powers: Array, target: int, power: float
) -> Crossing:
    """The number of rows at which the curve of one target reaches the power.

    Starts from the two sizes that bracket it; probit(power) is close to linear in √n.
    """
    reached = np.flatnonzero(powers >= power)
    if not len(reached):
        return Crossing(math.inf, math.nan)
    k = int(reached[0])
    if k == 0:
        return Crossing(float(sizes[0]), 0.0)

    def at(root: float) -> float:
        return float(simulation.power(test, root * root, [target])[0, 0])

    low, high = math.sqrt(sizes[k - 1]), math.sqrt(sizes[k])
    root, error = _cross(at, (low, float(powers[k - 1])), (high, float(powers[k])), power, simulation.trials)
    return Crossing(root * root, 2.0 * root * error)


def detectable_gap(simulation: Simulation, test: str, n: float, target: int, best: int, power: float) -> Crossing:
    """The gap of one model to the best at which n rows give the power, the other models staying where they are."""
    told = simulation.law.told(simulation.populations[0], n)
    error = float(Geometry(told).against(best).error[0, target])
    if error == 0.0:
        return Crossing(0.0, 0.0)

    def at(gap: float) -> float:
        centres = simulation.populations[:1].copy()
        centres[0, target] = centres[0, best] + gap
        return float(simulation.power(test, n, [target], centres)[0, 0])

    low, high = (0.0, at(0.0)), (error, at(error))
    for _ in range(DOUBLINGS):
        if high[1] >= power:
            break
        low, high = high, (2.0 * high[0], at(2.0 * high[0]))
    if low[1] >= power:
        return Crossing(0.0, 0.0)
    if high[1] < power:
        return Crossing(math.inf, math.nan)
    return Crossing(*_cross(at, low, high, power, simulation.trials))


def spread(simulation: Simulation, test: str, sizes: Sequence[int], target: int, power: float) -> list[float]:
    """Rows needed to find the target in each population; inf where it is the best, or `sizes` do not suffice.

    By interpolation between the sizes, as `rows_needed`, without its refinement.
    """
    centres = simulation.populations
    needed = np.full(len(centres), math.inf)
    live = centres[:, target] > np.delete(centres, target, axis=1).min(axis=1)
    before = np.zeros(len(centres))
    for k, n in enumerate(sizes):
        if not live.any():
            break
        now = before.copy()
        now[live] = np.maximum(before[live], simulation.kept(live).power(test, n, [target])[:, 0])
        new = live & (now >= power)
        if new.any():
            needed[new] = _between(sizes[k - 1], n, before[new], now[new], power, simulation.trials) if k else n
        live, before = live & ~new, now
    return [float(rows) for rows in needed]


def _between(first: float, last: float, before: Array, now: Array, power: float, trials: int) -> Array:
    """The n between two sizes at which probit(power), linear in √n, reaches its goal."""
    a, b = _probit(before, trials), _probit(now, trials)
    share = np.clip((float(ndtri(power)) - a) / np.maximum(b - a, 1e-9), 0.0, 1.0)
    return np.asarray((math.sqrt(first) + share * (math.sqrt(last) - math.sqrt(first))) ** 2)


def _cross(
    at: Callable[[float], float], low: tuple[float, float], high: tuple[float, float], power: float, trials: int
) -> tuple[float, float]:
    """Where a power rises to its goal between two points, and the Monte-Carlo standard error of that place.

    The secant in probits, then the bracket is tightened; the error is that of a share over the slope of the first,
    wide bracket, where differences of shares are not mostly noise.
    """
    goal = float(ndtri(power))
    slope = (_probit(high[1], trials) - _probit(low[1], trials)) / (high[0] - low[0])
    density = math.exp(-0.5 * goal * goal) / math.sqrt(2.0 * math.pi)
    error = math.sqrt(power * (1.0 - power) / trials) / (density * float(slope)) if slope > 0.0 else math.inf
    x = high[0]
    for _ in range(REFINEMENTS):
        a, b = float(_probit(low[1], trials)), float(_probit(high[1], trials))
        share = (goal - a) / (b - a) if b > a else 0.5
        x = low[0] + min(max(share, 0.05), 0.95) * (high[0] - low[0])
        value = at(x)
        low, high = (low, (x, value)) if value >= power else ((x, value), high)
    a, b = float(_probit(low[1], trials)), float(_probit(high[1], trials))
    share = min(max((goal - a) / (b - a), 0.0), 1.0) if b > a else 1.0
    return low[0] + share * (high[0] - low[0]), error


def _probit(share: Array | float, trials: int) -> Array:
    return np.asarray(ndtri(np.clip(share, 0.5 / trials, 1.0 - 0.5 / trials)))
