"""The winner's own value: a confidence interval for the discrepancy of the model that was
selected because its estimate is the smallest.

Write J for the selected model, e_j = D̂_j − D_j for the errors, and s_j for the standard
errors. The smallest of several estimates is too small on average, so the ordinary interval
D̂_J ± t s_J misses D_J too often, and nearly always because D_J is above it.

*The lower end needs no allowance.* The truly best model b has D_b ≤ D_J and D̂_b ≥ D̂_J.
Hence e_J ≤ e_b: where the selected model's estimate is too large by some amount, the
estimate of b is too large by at least as much. With equal standard errors the ordinary lower
end is therefore missed with probability at most α/2.

*The upper end is found in two steps* (Romano, Shaikh and Wolf 2014), as a locally
simultaneous bound (Zrnic and Fithian 2024).

1. With probability 1 − ν all differences of two models satisfy D_j − D_k ≥ L_jk =
   D̂_j − D̂_k − c s_jk at the same time.
2. Model j has the smallest estimate only if −(e_j − e_J) ≥ D_j − D_J, and so only if
   −(e_j − e_J) ≥ L_jJ. The critical value q is the quantile, over draws of e ~ N(0, V), of
   max_j −e_j/s_j over the models j that satisfy this condition. The upper end is
   D̂_J + q s_J.

Each end uses the error (α − ν)/2. A model that is far behind satisfies the condition in no
draw; if that holds for all models but J, q is the ordinary quantile, and the interval is the
ordinary one at the level 1 − α + ν. If all models tie, q is the quantile of the largest of
all errors.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from relfit.stats.close import reach
from relfit.stats.decision import differences
from relfit.stats.joint import (
    JointEstimate,
    binary_step,
    freedom,
    smallest_sample,
    third_cumulants,
)
from relfit.stats.maxt import covariance_root, quantile
from relfit.util.arrays import Array
from relfit.util.random import stream

Selection = Literal["other rows", "smallest", "any"]
"""How the model was selected: on rows that are not in the estimate, by the smallest estimate,
or in some other way from the same rows."""

# The part of the error α that the bounds of the first step spend.
FIRST_STEP = 0.02
DRAWS = 20_000
# With many models fewer draws: about as many random numbers.
_DRAW_NUMBERS = 1_600_000
_FEWEST_DRAWS = 4_000
# Measures that are squared distances, and so at least 0.
_SQUARED = ("mmd", "ksd", "ume", "fssd")


def winner_interval(
    joint: JointEstimate, best: int, error: float, selection: Selection = "smallest"
) -> tuple[float, float]:
    """An interval that misses D_J with probability at most `error`, J = `best` being selected.

    A model that was selected on other rows has the ordinary t interval. One that was
    selected in some other way from the same rows has the bounds that hold for all models
    simultaneously. Ends allow for few rows (Student's t), for skewness (Hall), and for 0/1
    losses they are Wilson's. Squared distances are at least 0: a lower end below 0 is raised
    to 0, and an estimate below 0 counts as 0 for the upper end, so the interval is never
    empty. Where all losses of the model are the same number, which says nothing about other
    items, the interval has no limits.

    >>> joint = JointEstimate(("a", "b", "c"), [0.0, 0.1, 5.0], 0.01 * np.eye(3))
    >>> low, high = winner_interval(joint, 0, 0.05)
    >>> bool(-0.2 < low < -0.19 and 0.21 < high < 0.24)
    True
    """
    if selection == "other rows":
        points = -float(ndtri(error / 2.0))
        return ends(joint, best, points, points)
    if selection == "any":
        critical = simultaneous_point(joint, error)
        return ends(joint, best, critical, critical)
    tail = (1.0 - FIRST_STEP) * error / 2.0
    critical = local_point(joint, best, FIRST_STEP * error, tail)
    return ends(joint, best, -float(ndtri(tail)), critical)


def local_point(joint: JointEstimate, best: int, first_step: float, tail: float) -> float:
    """q of the module's opening, with the errors of the two steps."""
    apart = lowest_differences(joint, best, first_step)
    errors = error_draws(joint)
    possible = errors[best] - errors >= apart[:, None]
    models = int(np.count_nonzero(possible.any(axis=1)))
    studentised = np.where(possible, -_studentised(errors, joint), -math.inf)
    critical = quantile(studentised.max(axis=0), 1.0 - tail, models)
    return max(critical, -float(ndtri(tail)))


def simultaneous_point(joint: JointEstimate, error: float) -> float:
    """The quantile of the largest |e_j|/s_j."""
    largest = np.abs(_studentised(error_draws(joint), joint)).max(axis=0)
    count = len(joint.names)
    return quantile(largest, 1.0 - error, 2 * count) if count > 1 else -float(ndtri(error / 2))


def lowest_differences(joint: JointEstimate, best: int, error: float) -> Array:
    """(l,) lower bounds L_jJ, which hold for all ordered pairs together by Bonferroni's
    inequality.
    """
    count = len(joint.names)
    if count == 1:
        return np.zeros(1)
    pairs = differences(joint)
    critical = -float(ndtri(error / (count * (count - 1))))
    lowest = pairs.gap[:, best] - pairs.reach(critical)[:, best]
    lowest[best] = 0.0
    return np.asarray(lowest)


def error_draws(joint: JointEstimate) -> Array:
    """(l, draws) draws of the errors N(0, V).

    Random numbers belong to the ranks of the estimates: other names, or another order of the
    models, change nothing.
    """
    count = len(joint.names)
    draws = max(_FEWEST_DRAWS, min(DRAWS, _DRAW_NUMBERS // count))
    order = np.argsort(joint.values, kind="stable")
    normal = stream(0, "winner").standard_normal((count, draws))
    errors = np.empty_like(normal)
    errors[order] = covariance_root(joint.covariance[np.ix_(order, order)]) @ normal
    return errors


def ends(joint: JointEstimate, best: int, below: float, above: float) -> tuple[float, float]:
    """The ends at normal points `below` and `above` the estimate of one model."""
    if joint.binary:
        return _wilson(joint, best, below, above)
    value = float(joint.values[best])
    error = float(joint.standard_error[best])
    if error == 0.0 and joint.of_items:
        return -math.inf, math.inf
    points = np.array([below, above])
    degrees = own_freedom(joint)[best]
    if math.isfinite(degrees):
        points = -stdtrit(degrees, ndtr(-points))
    third = third_cumulants(joint)
    skewness = 0.0 if third is None or error == 0.0 else float(third[best, best]) / error**3
    low, high = (error * reach(points, skewness * np.array([1.0, -1.0]))).tolist()
    if joint.measure in _SQUARED:
        return max(value - low, 0.0), max(value, 0.0) + high
    return value - low, value + high


def own_freedom(joint: JointEstimate) -> Array:
    """(l,) degrees of freedom of the variances of the estimates themselves."""
    if joint.freedom is not None and (np.diag(joint.freedom) > 0.0).all():
        return np.diag(joint.freedom)
    rows = smallest_sample(joint)
    if joint.lags is not None and rows is not None:
        return np.full(len(joint.names), max(1.0, 1.5 * rows / (joint.lags + 1)))
    return freedom(joint)


def _wilson(joint: JointEstimate, best: int, below: float, above: float) -> tuple[float, float]:
    """Wilson's score limits of a mean of 0/1 losses, or of minus 0/1 scores."""
    value = float(joint.values[best])
    step = math.copysign(binary_step(joint), float(joint.values.sum()))
    n = float((joint.sizes or (0,))[0])
    rate = value / step
    points = (-below, above) if step > 0.0 else (-above, below)
    limits = [_wilson_limit(rate, z, n) for z in points]
    low, high = sorted(step * limit for limit in limits)
    return low, high


def _wilson_limit(rate: float, z: float, n: float) -> float:
    variance = max(rate * (1.0 - rate), 0.0) / n + z * z / (4.0 * n * n)
    return (rate + z * z / (2.0 * n) + z * math.sqrt(variance)) / (1.0 + z * z / n)


def _studentised(errors: Array, joint: JointEstimate) -> Array:
    """e_j/s_j; 0 where a model has no error."""
    scale = joint.standard_error[:, None]
    return np.divide(errors, scale, out=np.zeros_like(errors), where=scale > 0.0)
