"""Confidence bounds after carving: the conditional law of each difference, inverted in its mean.

*Upper ends.* V is estimated at D̂, and an estimate that came out low has a low variance as well: with D the square of a
distance, the first-order part of Var D̂_k is proportional to D_k (the witness function scales with the distance), and
only the share ν_k of second order (`near_degeneracy`) is not. Under the hypothesis D_i − D_J = u the most likely D is
D̂ + c(u − t), so that there

    Var D̂_k = V_kk f_k,   f_k = 1 + (1 − ν_k) c_k (u − t)/D̂_k,   c = Vη/s²,

and V_kl is multiplied by √(f_k f_l). An upper end u is solved for once more with this V, and the larger of both is
taken: without it upper bounds miss too often in small samples. Lower ends, which go with the p-values, keep V.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from relfit.estimate import JointEstimate
from relfit.procedures.carve import DRAWS, GAMMA, Selection, conditional_law, select
from relfit.procedures.decision import decide_without_variance
from relfit.procedures.streams import Source, streams

Array = NDArray[np.float64]
Target = tuple[float, float]
"""The log odds of falling below t that an end solves for, and the end where they are never that."""

# A confidence bound more standard errors away than this is as good as none.
FARTHEST = 1e6
# Under no hypothesis is a variance taken to be less than this share of the estimated one.
SMALLEST_SHARE = 0.05


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
    interval's ends solve it = (1 ∓ level)/2; upper ends allow for the variance growing with D (above). Infinite
    where the draws say nothing; a difference without variance is known, or 0 if it is rounding.
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
            found[i] = _ends(joint, selection, i, targets)
            found[i, [1, 3]] = [_further(joint, selection, i, found[i, k], targets[k]) for k in (1, 3)]
    return CarveBounds(selection.best, found[:, 0], found[:, 1], found[:, 2:], level)


def _ends(joint: JointEstimate, selection: Selection, i: int, targets: Sequence[Target]) -> list[float]:
    own = conditional_law(joint, selection, i).trimmed()
    odds = cache(own.log_odds)
    return [own.s * _mean_at(odds, own.t, *target) for target in targets]


def _further(joint: JointEstimate, selection: Selection, i: int, upper: float, target: Target) -> float:
    """This upper end, or the one with the covariance of the hypothesis that it is the difference, if that is larger."""
    if joint.near_degeneracy is None or not math.isfinite(upper):
        return upper
    share = _variance_shares(joint, joint.near_degeneracy, i, selection.best, upper)
    supposed = replace(joint, covariance=joint.covariance * np.sqrt(np.outer(share, share)))
    return max(upper, *_ends(supposed, selection, i, [target]))


def _variance_shares(joint: JointEstimate, second_order: Array, i: int, best: int, difference: float) -> Array:
    """(l,) f of the module's opening: the variances if D_i − D_J is this `difference`, over the estimated ones."""
    toward = joint.covariance[:, i] - joint.covariance[:, best]
    step = toward * (difference - joint.values[i] + joint.values[best]) / (toward[i] - toward[best])
    # An estimate within its standard error of 0 says little about its own size.
    size = np.maximum(joint.values, joint.standard_error)
    grown = np.divide(step, size, out=np.zeros_like(step), where=size > 0.0)
    return np.asarray(np.maximum(1.0 + (1.0 - np.clip(second_order, 0.0, 1.0)) * grown, SMALLEST_SHARE))


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
