"""The tests on many draws of D at once: the verdicts of `relfit.procedures`, a thousand at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from relfit.planning.geometry import Geometry
from relfit.procedures.corrections import resolve_correction
from relfit.truncnorm import log_sf

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

# Sets of members whose law of the maximum is remembered: 160 kB each.
_MOST_KNOWN = 500


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
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            # A copy that is imagined elsewhere varies, but has no law here; the others bound its maximum from below.
            own = members & (self.error[i] > 0.0)
            z = (self.draws[i] - self.draws[own]) / self.error[i, own, None]
            self.known[key] = np.sort(z.max(axis=0, initial=-math.inf))
        top = self.known[key]
        return np.asarray((1.0 + len(top) - np.searchsorted(top, statistic)) / (1.0 + len(top)))


def relpsi_pvalues(x: Array, geometry: Geometry, targets: Sequence[int]) -> tuple[Rows, Array]:
    """The selected model of every row of x (rows, l), and RelPSI's p-values (rows, targets); 1 for the selected."""
    best = np.argmin(x, axis=1)
    against, gap = geometry.against(best), x - x.min(axis=1, keepdims=True)
    p = np.ones((len(x), len(targets)))
    for c, i in enumerate(targets):
        slope, s = against.slopes(i), against.error[:, i]
        low = np.divide(gap, slope, out=np.full(gap.shape, math.inf), where=slope > 0.0).min(axis=1)
        high = np.divide(gap, slope, out=np.full(gap.shape, -math.inf), where=slope < 0.0).max(axis=1)
        moves = s > 0.0
        p[:, c] = against.certain(gap[:, i], i)
        limits = (np.stack([gap[:, i], gap[:, i] - low, gap[:, i] - high])[:, moves]) / s[moves]
        p[moves, c] = np.exp(log_sf(*limits))
    return best, p


def relmulti_pvalues(
    selection: Array, testing: Array, geometry: Geometry, targets: Sequence[int]
) -> tuple[Rows, Array]:
    """J from the rows of `selection`, one-sided z tests on those of `testing`, whose V is the geometry's."""
    best = np.argmin(selection, axis=1)
    against, gap = geometry.against(best), testing - testing[np.arange(len(best)), best, None]
    s = against.error
    p = ndtr(-gap / np.where(s > 0.0, s, 1.0))[:, list(targets)]
    for c, i in enumerate(targets):
        p[:, c] = np.where(s[:, i] > 0.0, p[:, c], against.certain(gap[:, i], i))
    return best, p


def best_set_pvalues(
    x: Array, n: float, geometry: Geometry, maxima: Maxima, targets: Sequence[int], alpha: float, *, verdicts: bool
) -> tuple[Rows, Array]:
    """The max-t test with moment selection for n rows; p-values that are above α in any case are given as 1.

    With `verdicts` it is enough to know on which side of α a p-value lies, and most draws need no maximum:
    Φ(−T) ≤ p ≤ |K| Φ(−T). All draws share one law of the maximum: it depends on the correlations in V alone.
    """
    p = np.ones((len(x), len(targets)))
    for c, i in enumerate(targets):
        against = geometry.against(i)
        s = against.error
        moves = s > 0.0
        ratio = np.where(moves, (x[:, [i]] - x) / np.where(moves, s, 1.0), -math.inf)
        statistic = ratio.max(axis=1)
        members = ratio > -math.sqrt(math.log(n))
        union = members.sum(axis=1) * ndtr(-statistic)
        open_ = statistic > -ndtri(alpha)
        p[open_, c] = union[open_]
        unsure = np.flatnonzero(open_ & (members.sum(axis=1) > 1) & ((union > alpha) | (not verdicts)))
        if verdicts:
            # More members, larger maximum: what all of them leave below α needs no set of its own.
            bound = maxima.tail(i, np.ones(x.shape[1], dtype=bool), statistic[unsure])
            p[unsure, c] = np.minimum(union[unsure], bound)
            unsure = unsure[bound > alpha]
        p[unsure, c] = np.minimum(union[unsure], _tails(maxima, i, members[unsure], statistic[unsure]))
        for j in np.flatnonzero(~moves.all(axis=0)).tolist():
            if j != i:
                known = np.where(moves[:, j], 1.0, against.certain(x[:, i] - x[:, j], j))
                p[:, c] = np.minimum(p[:, c], known)
    return np.argmin(x, axis=1), p


def rejected(best: Rows, p: Array, correction: str, alpha: float, covariance: Array, *, all_models: bool) -> Mask:
    """(rows, l) verdicts from p-values of all l models: adjusted p ≤ α.

    The selected model is no hypothesis of its own, unless `all_models` are tested (best set).
    """
    if all_models:
        return _adjusted(p, "by" if correction == "auto" else correction) <= alpha
    count = p.shape[1]
    out = np.zeros(p.shape, dtype=bool)
    for j in np.unique(best).tolist():
        rows = np.flatnonzero(best == j)
        others = np.flatnonzero(np.arange(count) != j)
        used = resolve_correction(correction, covariance, j)
        out[np.ix_(rows, others)] = _adjusted(p[np.ix_(rows, others)], used) <= alpha
    return out


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
