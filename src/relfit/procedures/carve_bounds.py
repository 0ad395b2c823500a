"""Confidence bounds after carving: the conditional law of each difference, inverted in its mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from relfit.estimate import JointEstimate
from relfit.procedures.carve import DRAWS, GAMMA, conditional_law, select
from relfit.procedures.decision import decide_without_variance
from relfit.procedures.streams import Source, streams

Array = NDArray[np.float64]

# A confidence bound more standard errors away than this is as good as none.
FARTHEST = 1e6


@dataclass(frozen=True)
class CarveBounds:
    """Given J = `best`, for D_i − D_J: one-sided lower and upper bounds (l,), equal-tailed intervals (l, 2)."""

    best: int
    lower: Array
    upper: Array
    interval: Array
    level: float


def carve_bounds(
    joint: JointEstimate, level: float = 0.95, *, rng: Source, draws: int = DRAWS, gamma: float = GAMMA
) -> CarveBounds:
    """Confidence bounds for D_i − D_J given the selection of J, each with coverage `level`.

    P_μ(t' > t | J, N) of the opening of `carve` increases with μ. The lower bound solves it = 1 − level: it is
    above 0 exactly where the p-value of `carve` is below 1 − level. The upper bound solves it = level, the
    interval's ends solve it = (1 ∓ level)/2. Infinite where the draws say nothing; a difference without
    variance is known, or 0 if it is rounding.
    """
    selection = select(joint, streams(rng, joint.names), draws, gamma)
    one, two = math.log(level / (1.0 - level)), math.log((1.0 + level) / (1.0 - level))
    # Lower, upper, and the two ends of the interval: log odds of falling below t, and what to say without them.
    targets = ((one, -math.inf), (-one, math.inf), (two, -math.inf), (-two, math.inf))
    found = np.zeros((len(joint.names), len(targets)))
    for i in np.flatnonzero(np.arange(len(found)) != selection.best).tolist():
        if selection.still[i]:
            found[i] = _constant(joint, i, selection.best)
        else:
            own = conditional_law(joint, selection, i).trimmed()
            odds = cache(own.log_odds)
            found[i] = [own.s * _mean_at(odds, own.t, *target) for target in targets]
    return CarveBounds(selection.best, found[:, 0], found[:, 1], found[:, 2:], level)


def _mean_at(odds: Callable[[float], float], t: float, wanted: float, default: float) -> float:
    """The mean (over s) at which the log odds of falling below t are as `wanted`; `default` where they never are.

    Bracketed by doubling around t, then Brent.
    """
    start = odds(t) - wanted
    if not math.isfinite(start):
        return default
    near, far = t, math.copysign(1.0, start)
    while (odds(t + far) - wanted) * far > 0.0:
        near, far = t + far, 2.0 * far
        if abs(far) > FARTHEST:
            return default
    return float(brentq(lambda mean: odds(mean) - wanted, near, t + far, xtol=1e-7, rtol=1e-10))


def _constant(joint: JointEstimate, i: int, best: int) -> float:
    known = decide_without_variance(joint, i, best)[1] == "deterministic"
    return float(joint.values[i] - joint.values[best]) if known else 0.0
