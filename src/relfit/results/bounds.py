"""Confidence bounds and thresholds for the differences of a comparison, by the test that made it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from relfit.results.distinct import distinct, places
from relfit.stats.maxt import seeded
from relfit.stats.tests.best_set import RegretBounds, regret_bounds
from relfit.stats.tests.carve import CarveBounds, carve_bounds
from relfit.stats.truncnorm import selective_interval, selective_lower_bound, selective_threshold
from relfit.util.arrays import Array

if TYPE_CHECKING:
    from relfit.results.comparison import Comparison


def threshold(result: Comparison) -> Array:
    """(l,) the difference above which a model would be declared worse, before correction."""
    varies = result.difference_standard_error > 0.0
    s, delta = np.where(varies, result.difference_standard_error, 1.0), result.margin
    if result.truncation is None:
        cut = delta - s * ndtri(result.alpha)
    else:
        limits = result.truncation - delta
        cut = delta + selective_threshold(result.alpha, s, limits[:, 0], limits[:, 1])
    return np.where(varies, cut, np.where(result.log_pvalue < 0.0, -math.inf, math.inf))


def confidence_interval(result: Comparison, level: float) -> Array:
    """(l, 2) two-sided intervals."""
    if result.test == "carve":
        return np.asarray(_carved(result, level).interval[places(result)])
    if result.test == "best-set":
        found = _regret(result, (1.0 + level) / 2.0)
        return np.stack([found.lower, found.upper], axis=1)[places(result)]
    return np.array([_interval(result, i, level) for i in range(len(result.names))], dtype=float)


def lower_bound(result: Comparison, level: float) -> Array:
    """(l,) one-sided lower bounds."""
    if result.test == "carve":
        return np.asarray(_carved(result, level).lower[places(result)])
    if result.test == "best-set":
        return np.asarray(_regret(result, level).lower[places(result)])
    return np.array([_lower(result, i, level) for i in range(len(result.names))], dtype=float)


def upper_bound(result: Comparison, level: float) -> Array:
    """(l,) one-sided upper bounds."""
    if result.test == "carve":
        return np.asarray(_carved(result, level).upper[places(result)])
    if result.test == "best-set":
        return np.asarray(_regret(result, level).upper[places(result)])
    return np.array([_upper(result, i, level) for i in range(len(result.names))], dtype=float)


def _carved(result: Comparison, level: float) -> CarveBounds:
    return carve_bounds(distinct(result), level, rng=seeded(result.seed or 0, "carve"))


def _regret(result: Comparison, level: float) -> RegretBounds:
    return regret_bounds(distinct(result), level, rng=seeded(result.seed or 0, "best-set"))


def _difference(result: Comparison, i: int) -> tuple[float, float, tuple[float, float]]:
    """t, s and what is known of t: its truncation, or where s = 0 the values it can have."""
    t, s = float(result.difference[i]), float(result.difference_standard_error[i])
    if s == 0.0:
        # Without variance the difference is known, unless it is rounding: then 0 is as good.
        return t, s, (t, t) if "deterministic" in result.status[i] else (min(t, 0.0), max(t, 0.0))
    limits = (-math.inf, math.inf) if result.truncation is None else tuple(result.truncation[i].tolist())
    return t, s, limits


def _interval(result: Comparison, i: int, level: float) -> tuple[float, float]:
    t, s, limits = _difference(result, i)
    return selective_interval(t, s, *limits, level) if s > 0.0 else limits


def _lower(result: Comparison, i: int, level: float) -> float:
    t, s, limits = _difference(result, i)
    return selective_lower_bound(t, s, *limits, level) if s > 0.0 else limits[0]


def _upper(result: Comparison, i: int, level: float) -> float:
    """The lower bound of the mirrored difference."""
    t, s, (low, high) = _difference(result, i)
    return -selective_lower_bound(-t, s, -high, -low, level) if s > 0.0 else high
