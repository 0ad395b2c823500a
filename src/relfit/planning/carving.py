"""Carving on many draws of D at once: the verdicts of `relfit.procedures.carve`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from relfit.planning.geometry import Geometry
from relfit.truncnorm import log_mass

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Φ(−t) is an ordinary double up to here.
_UNDERFLOW = 35.0


@dataclass(frozen=True)
class Noise:
    """The noise of carving: the realised one (rows, l), and packs of fresh draws, which the rows are dealt in turn.

    A fresh draw of a row is `scale` · `moving` + `still`, with scale (rows, l), moving and still (packs, draws, l);
    without a scale it is `still`.
    """

    realised: Array
    scale: Array | None
    moving: Array | None
    still: Array

    def fresh(self, rows: Rows, pack: int, k: int | Rows) -> Array:
        """(rows, draws) of model k, which may be one of its own for every row; (1, draws) if all are alike."""
        still = np.atleast_2d(self.still[pack][:, k].T)
        if self.scale is None or self.moving is None:
            return still
        return np.asarray(self.scale[rows, k][:, None] * self.moving[pack][:, k].T + still)


def carve_pvalues(
    x: Array, noise: Noise, geometry: Geometry, targets: Sequence[int], alpha: float
) -> tuple[Rows, Array]:
    """The selected model of every row of x (rows, l), and carving's p-values (rows, targets).

    P-values that are above α in any case are given as 1: where no slope is negative, selection makes a large t more
    likely, so that p ≥ Φ(−t).
    """
    rows, packs = np.arange(len(x)), len(noise.still)
    best = np.argmin(x + noise.realised, axis=1)
    against, gap = geometry.against(best), x - x[rows, best, None]
    p = np.ones((len(x), len(targets)))
    for c, i in enumerate(targets):
        slope, s = against.slopes(i), against.error[:, i]
        p[:, c] = np.where(s > 0.0, 1.0, against.certain(gap[:, i], i))
        open_ = (s > 0.0) & ((gap[:, i] > -s * ndtri(alpha)) | (slope < 0.0).any(axis=1))
        for pack in range(packs):
            at = np.flatnonzero(open_ & (rows % packs == pack))
            if len(at):
                p[at, c] = _Law(gap[at], slope[at], s[at], best[at], at, pack, noise).pvalues(i)
    return best, p


@dataclass(frozen=True)
class _Law:
    """Rows with their gaps to J and slopes (rows, l; NaN leaves a model out), s and J (rows,), and a pack of noise."""

    gap: Array
    slope: Array
    s: Array
    best: Rows
    rows: Rows
    pack: int
    noise: Noise

    def pvalues(self, i: int) -> Array:
        """Σ_m [Φ(b_m) − Φ(max(t, a_m))]₊ / Σ_m [Φ(b_m) − Φ(a_m)], row by row; the realised noise is draw 0."""
        t = (self.gap[:, i] / self.s)[:, None]
        low, high = self._limits()
        a, b = t - low, t - high
        a[:, 0], b[:, 0] = np.minimum(a[:, 0], t[:, 0]), np.maximum(b[:, 0], t[:, 0])
        p = np.empty(len(t))
        above = t[:, 0] >= 0.0
        if above.any():
            p[above] = _upper_share(t[above], a[above], b[above])
        if not above.all():
            p[~above] = _exact_share(t[~above], a[~above], b[~above])
        return p

    def _limits(self) -> tuple[Array, Array]:
        """(rows, 1 + draws) smallest reach over rising models and largest over falling ones.

        A model with slope 0 decides whether a draw can select J at all.
        """
        shape = (len(self.rows), 1 + self.noise.still.shape[1])
        low, high, reach = np.full(shape, math.inf), np.full(shape, -math.inf), np.empty(shape)
        at_j, here_j = self.noise.fresh(self.rows, self.pack, self.best), self.noise.realised[self.rows, self.best]
        for k in np.flatnonzero(~np.isnan(self.slope).all(axis=0)).tolist():
            slope = self.slope[:, k, None]
            reach[:, 0] = self.gap[:, k] + self.noise.realised[self.rows, k] - here_j
            np.add(self.gap[:, k, None], self.noise.fresh(self.rows, self.pack, k) - at_j, out=reach[:, 1:])
            reach *= 1.0 / (np.where((slope == 0.0) | np.isnan(slope), 1.0, slope) * self.s[:, None])
            if (slope > 0.0).all():
                np.minimum(low, reach, out=low)
                continue
            np.minimum(low, reach, out=low, where=slope > 0.0)
            np.maximum(high, reach, out=high, where=slope < 0.0)
            np.copyto(low, -math.inf, where=(slope == 0.0) & (reach < 0.0))
        return low, high


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
