"""The tests on many draws of D at once, all with one V: the same verdicts as `relfit.procedures`, a thousand at a time.

Every test is scale free, so n enters through the means alone: D ~ N(θ, V n₀/n) decides as √(n/n₀) θ + N(0, V) does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from relfit.procedures.corrections import resolve_correction
from relfit.procedures.decision import SAME_VALUE
from relfit.truncnorm import log_mass, log_sf

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

# Φ(−t) is an ordinary double up to here.
_UNDERFLOW = 35.0


@dataclass(frozen=True)
class Geometry:
    """V and the standard errors s_ij of all differences, exactly 0 where a difference does not vary."""

    covariance: Array
    error: Array

    def certain(self, gap: Array, i: int, j: int) -> Array:
        """p-values of "i is no worse than j" where their difference does not vary: 0 or 1."""
        total = float(self.covariance[i, i] + self.covariance[j, j])
        return np.where(gap > SAME_VALUE * math.sqrt(total), 0.0, 1.0)

    def slopes(self, j: int) -> Array:
        """(l, l) d_ik = Cov(D_i − D_j, D_k − D_j)/s_ij², 0 where that is rounding, 1 at k = i."""
        v = self.covariance
        joint = v - v[:, [j]] - v[[j], :] + v[j, j]
        size = np.abs(v) + np.abs(v[:, [j]]) + np.abs(v[[j], :]) + abs(v[j, j])
        own = np.diag(joint).copy()
        slope = np.where(np.abs(joint) <= 1e-12 * size, 0.0, joint) / np.where(own > 0.0, own, 1.0)[:, None]
        np.fill_diagonal(slope, 1.0)
        return np.asarray(slope)


@dataclass(frozen=True)
class Maxima:
    """Draws of max_{j∈K} (G_i − G_j)/s_ij, G ~ N(0, V): (l, draws) `draws`; sorted, one array per (i, K) met so far."""

    draws: Array
    error: Array
    known: dict[tuple[int, bytes], Array] = field(default_factory=dict)

    def tail(self, i: int, members: Mask, statistic: Array) -> Array:
        """(1 + #{max ≥ T})/(1 + draws) for every T."""
        key = (i, members.tobytes())
        if key not in self.known:
            z = (self.draws[i] - self.draws[members]) / self.error[i, members, None]
            self.known[key] = np.sort(z.max(axis=0))
        top = self.known[key]
        return np.asarray((1.0 + len(top) - np.searchsorted(top, statistic)) / (1.0 + len(top)))


def relpsi_pvalues(x: Array, geometry: Geometry, targets: Sequence[int]) -> tuple[Rows, Array]:
    """The selected model of every row of x (rows, l), and RelPSI's p-values (rows, targets); 1 for the selected."""
    best = np.argmin(x, axis=1)
    t, a, b = (np.full((len(x), len(targets)), value) for value in (0.0, 0.0, math.inf))
    fixed = np.full(t.shape, np.nan)
    for j, rows in _groups(best):
        gap, slopes, moves = x[rows] - x[rows, j, None], geometry.slopes(j), geometry.error[j] > 0.0
        for c, i in enumerate(targets):
            s = geometry.error[i, j]
            if s == 0.0:
                fixed[rows, c] = 1.0 if i == j else geometry.certain(gap[:, i], i, j)
                continue
            rising, falling = moves & (slopes[i] > 0.0), moves & (slopes[i] < 0.0)
            t[rows, c] = gap[:, i] / s
            a[rows, c] = (gap[:, i] - (gap[:, rising] / slopes[i, rising]).min(axis=1)) / s
            if falling.any():
                b[rows, c] = (gap[:, i] - (gap[:, falling] / slopes[i, falling]).max(axis=1)) / s
    return best, np.where(np.isnan(fixed), np.exp(log_sf(t, a, b)), fixed)


def relmulti_pvalues(
    selection: Array, testing: Array, geometry: Geometry, targets: Sequence[int]
) -> tuple[Rows, Array]:
    """J from the rows of `selection`, one-sided z tests on those of `testing`, each in units where its V is V."""
    best = np.argmin(selection, axis=1)
    p = np.ones((len(best), len(targets)))
    for j, rows in _groups(best):
        for c, i in enumerate(targets):
            gap, s = testing[rows, i] - testing[rows, j], geometry.error[i, j]
            if i != j:
                p[rows, c] = ndtr(-gap / s) if s > 0.0 else geometry.certain(gap, i, j)
    return best, p


def best_set_pvalues(
    x: Array, n: float, geometry: Geometry, maxima: Maxima, targets: Sequence[int], alpha: float, *, verdicts: bool
) -> tuple[Rows, Array]:
    """The max-t test with moment selection for n rows; p-values that are above α in any case are given as 1.

    With `verdicts` it is enough to know on which side of α a p-value lies, and most draws need no maximum:
    Φ(−T) ≤ p ≤ |K| Φ(−T).
    """
    p = np.ones((len(x), len(targets)))
    for c, i in enumerate(targets):
        s = geometry.error[i]
        moves = s > 0.0
        ratio = np.where(moves, (x[:, [i]] - x) / np.where(moves, s, 1.0), -math.inf)
        statistic = ratio.max(axis=1)
        members = ratio > -math.sqrt(math.log(n))
        union = members.sum(axis=1) * ndtr(-statistic)
        open_ = statistic > -ndtri(alpha)
        p[open_, c] = union[open_]
        unsure = np.flatnonzero(open_ & (members.sum(axis=1) > 1) & ((union > alpha) | (not verdicts)))
        p[unsure, c] = np.minimum(union[unsure], _tails(maxima, i, members[unsure], statistic[unsure]))
        for j in np.flatnonzero(~moves).tolist():
            if j != i:
                p[:, c] = np.minimum(p[:, c], geometry.certain(x[:, i] - x[:, j], i, j))
    return np.argmin(x, axis=1), p


def carve_pvalues(
    x: Array, realised: Array, fresh: Array, geometry: Geometry, targets: Sequence[int], alpha: float
) -> tuple[Rows, Array]:
    """Carving with the realised noise (rows, l) and fresh noise (blocks, draws, l), each row with one block's.

    P-values that are above α in any case are given as 1: where no slope is negative, selection makes a large t more
    likely, so that p ≥ Φ(−t).
    """
    best = np.argmin(x + realised, axis=1)
    p = np.ones((len(x), len(targets)))
    for j, own in _groups(best):
        slopes, moves = geometry.slopes(j), geometry.error[j] > 0.0
        gap, here = x[own] - x[own, j, None], realised[own] - realised[own, j, None]
        for c, i in enumerate(targets):
            s = geometry.error[i, j]
            if s == 0.0:
                p[own, c] = 1.0 if i == j else geometry.certain(gap[:, i], i, j)
                continue
            slope = np.where(moves, slopes[i], np.nan)
            open_ = (gap[:, i] > -s * ndtri(alpha)) | bool((slope < 0.0).any())
            for block, pack in enumerate(fresh):
                rows = np.flatnonzero(open_ & (own % len(fresh) == block))
                if len(rows):
                    p[own[rows], c] = _carved(gap[rows], here[rows], pack - pack[:, j, None], slope, i, float(s))
    return best, p


def rejected(best: Rows, p: Array, correction: str, alpha: float, covariance: Array, *, all_models: bool) -> Mask:
    """(rows, l) verdicts from p-values of all l models: adjusted p ≤ α.

    The selected model is no hypothesis of its own, unless `all_models` are tested (best set).
    """
    if all_models:
        return _adjusted(p, "by" if correction == "auto" else correction) <= alpha
    count = p.shape[1]
    out = np.zeros(p.shape, dtype=bool)
    for j, rows in _groups(best):
        others = np.flatnonzero(np.arange(count) != j)
        used = resolve_correction(correction, covariance, j)
        out[np.ix_(rows, others)] = _adjusted(p[np.ix_(rows, others)], used) <= alpha
    return out


def _carved(gap: Array, here: Array, noise: Array, slope: Array, i: int, s: float) -> Array:
    """Σ_m [Φ(b_m) − Φ(max(t, a_m))]₊ / Σ_m [Φ(b_m) − Φ(a_m)], row by row; the realised noise is draw 0.

    A slope of NaN leaves a model out; with a slope of 0 it decides whether a draw can select J at all.
    """
    t = gap[:, i, None] / s
    low, high = np.full((len(gap), 1 + len(noise)), math.inf), np.full((len(gap), 1 + len(noise)), -math.inf)
    reach = np.empty_like(low)
    for k in np.flatnonzero(~np.isnan(slope)).tolist():
        unit = slope[k] * s or 1.0
        reach[:, 0] = (gap[:, k] + here[:, k]) / unit
        np.add(gap[:, k, None] / unit, noise[:, k] / unit, out=reach[:, 1:])
        if slope[k] > 0.0:
            np.minimum(low, reach, out=low)
        elif slope[k] < 0.0:
            np.maximum(high, reach, out=high)
        else:
            low[reach < 0.0] = -math.inf
    a, b = t - low, t - high
    a[:, 0], b[:, 0] = np.minimum(a[:, 0], t[:, 0]), np.maximum(b[:, 0], t[:, 0])
    p = np.empty(len(gap))
    above = t[:, 0] >= 0.0
    if above.any():
        p[above] = _upper_share(t[above], a[above], b[above])
    if not above.all():
        p[~above] = _exact_share(t[~above], a[~above], b[~above])
    return p


def _upper_share(t: Array, a: Array, b: Array) -> Array:
    """The sum for t ≥ 0 by survival functions, scaled by the largest so that none underflows."""
    if t.max(initial=0.0) < _UNDERFLOW:
        from_a, from_t, from_b = ndtr(-a), ndtr(-t), ndtr(-b)
    else:
        logs = log_ndtr(-a)
        scale = logs.max(axis=1, keepdims=True)
        from_a, from_t = np.exp(logs - scale), np.exp(np.minimum(log_ndtr(-t) - scale, 0.0))
        from_b = np.exp(np.minimum(log_ndtr(-b) - scale, 0.0))
    whole = np.where(a < b, np.maximum(from_a - from_b, 0.0), 0.0)
    part = np.where(a < b, np.maximum(np.minimum(from_a, from_t) - from_b, 0.0), 0.0)
    total = whole.sum(axis=1)
    return np.asarray(np.where(total > 0.0, part.sum(axis=1) / np.where(total > 0.0, total, 1.0), 1.0))


def _exact_share(t: Array, a: Array, b: Array) -> Array:
    above = np.logaddexp.reduce(log_mass(np.maximum(a, t), b), axis=1)
    whole = np.logaddexp.reduce(log_mass(a, b), axis=1)
    return np.asarray(
        np.exp(np.minimum(np.where(whole > -math.inf, above - np.where(whole > -math.inf, whole, 0.0), 0.0), 0.0))
    )


def _tails(maxima: Maxima, i: int, members: Mask, statistic: Array) -> Array:
    out = np.ones(len(statistic))
    if not len(out):
        return out
    sets, inverse = np.unique(members, axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    bounds = np.searchsorted(inverse.ravel()[order], np.arange(len(sets) + 1))
    for k, own in enumerate(sets):
        rows = order[bounds[k] : bounds[k + 1]]
        out[rows] = maxima.tail(i, own, statistic[rows])
    return out


def _adjusted(p: Array, correction: str) -> Array:
    """`relfit.procedures.adjust`, row by row."""
    count = p.shape[1]
    if count <= 1 or correction == "none":
        return p
    if correction in ("by", "bh"):
        from scipy.stats import false_discovery_control

        return np.asarray(false_discovery_control(p, axis=1, method=correction))
    if correction == "bonferroni":
        return np.asarray(np.minimum(count * p, 1.0))
    order = np.argsort(p, axis=1, kind="stable")
    stepped = np.maximum.accumulate(np.take_along_axis(p, order, axis=1) * np.arange(count, 0, -1), axis=1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.minimum(stepped, 1.0), axis=1)
    return adjusted


def _groups(best: Rows) -> Iterator[tuple[int, Rows]]:
    for j in np.unique(best).tolist():
        yield j, np.flatnonzero(best == j)
