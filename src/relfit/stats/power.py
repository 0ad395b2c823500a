"""Covariances of many draws of l estimates, and the differences between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from relfit.stats.decision import NO_VARIANCE, SAME_VALUE, resolve_correction
from relfit.stats.joint import JointEstimate, positive_part
from relfit.stats.maxt import Streams, covariance_root, seeded, streams
from relfit.stats.truncnorm import log_mass, log_sf
from relfit.util.arrays import Array, Mask, Rows

# A slope this small beside the terms it is the difference of is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Geometry:
    """V of every draw, diag(u) M diag(u) + N: `still` N and `moving` M are (l, l), `scale` u is (rows, l).

    Without a scale V is N in all draws. What depends on the draw has a first axis of rows, otherwise of 1.
    """

    still: Array
    moving: Array | None = None
    scale: Array | None = None

    def column(self, i: int | Rows) -> Array:
        """(rows, l) Cov(D_i, D_k) for all k; i is one model, or one for every draw."""
        still = np.atleast_2d(self.still[i])
        if self.scale is None or self.moving is None:
            return still
        own = self.scale[np.arange(len(self.scale)), i]
        return np.asarray(own[:, None] * self.moving[i] * self.scale + still)

    @property
    def variance(self) -> Array:
        """(rows, l) V_kk."""
        if self.scale is None or self.moving is None:
            return np.diag(self.still)[None]
        return np.asarray(self.scale**2 * np.diag(self.moving) + np.diag(self.still))

    def against(self, i: int | Rows) -> Against:
        """All differences to model i, or to one for every draw."""
        column, variance = self.column(i), self.variance
        own = np.take_along_axis(column, np.full((len(column), 1), i) if isinstance(i, int) else i[:, None], axis=1)
        total = variance + own
        spread = np.maximum(total - 2.0 * column, 0.0)
        return Against(self, column, own, np.where(spread <= NO_VARIANCE * total, 0.0, np.sqrt(spread)))


@dataclass(frozen=True)
class Against:
    """Differences to a model J: Cov(D_J, D_k) and the standard errors s_kJ (rows, l), exactly 0 where nothing varies.

    `variance` is V_JJ (rows, 1).
    """

    geometry: Geometry
    column: Array
    variance: Array
    error: Array

    def certain(self, gap: Array, k: int) -> Array:
        """p-values of "no worse" for a gap to or from model k that does not vary: 0 or 1."""
        total = self.geometry.variance[:, k] + self.variance[:, 0]
        return np.where(gap > SAME_VALUE * np.sqrt(total), 0.0, 1.0)

    def slopes(self, i: int) -> Array:
        """(rows, l) d_ik = Cov(D_i − D_J, D_k − D_J)/s_iJ², 1 at k = i; 0 where that is rounding.

        NaN where D_k − D_J does not vary: such a model has no part in the test.
        """
        parts = self.geometry.column(i), -self.column, -self.column[:, [i]], self.variance
        joint = parts[0] + parts[1] + parts[2] + parts[3]
        size = np.abs(parts[0]) + np.abs(parts[1]) + np.abs(parts[2]) + np.abs(parts[3])
        own = joint[:, [i]]
        slope = np.where(np.abs(joint) <= _ROUNDING * size, 0.0, joint) / np.where(own > 0.0, own, 1.0)
        slope[:, i] = 1.0
        return np.where(self.error > 0.0, slope, np.nan)


def difference_errors(covariance: Array) -> Array:
    """(l, l) standard errors of all differences, by the rules of `relfit.stats.decision`."""
    return np.vstack([Geometry(covariance).against(i).error for i in range(len(covariance))])


# --------------------
# How the estimates of n rows, and the covariance that the tests are told, are distributed.
#
# `Plain`: D ~ N(θ, V n₀/n), and the tests are told V n₀/n. For means of losses, linear estimators and assumed gaps.
#
# `Squared`: MMD² and KSD² are squared lengths ‖w_i‖² of vectors whose estimates are normal. Taking each w_i for an
# eigenvector of its noise, with e ~ N(0, Λ n₀/n) and u_i = √θ_i + e_i,
#
#     D_i = u_i² − Λ_ii n₀/n + rest_i,    rest ~ N(0, R (n₀/n)²),    told V_ij = 4 u_i u_j Λ_ij n₀/n + 2 R_ij (n₀/n)²,
#
# so the variance has a part that shrinks like 1/n and one like 1/n², the tests are told the latter twice over, the
# estimates are skewed, and the told variance of a model is large where its D is.


class Drawn(NamedTuple):
    """Estimates x (trials, l), and the covariance that the tests are told."""

    x: Array
    geometry: Geometry


@dataclass(frozen=True)
class Plain:
    """Normal estimates whose covariance, V with n₀ `rows`, shrinks like 1/n."""

    covariance: Array
    rows: int
    parts: int = 1

    def drawn(self, centres: Array, n: float, z: Array) -> Drawn:
        """Estimates with n rows of the populations `centres` (trials, l) from standard normal z (1, trials, l)."""
        told = self.told(centres[0], n)
        return Drawn(centres + z[0] @ covariance_root(told).T, Geometry(told))

    def told(self, _centre: Array, n: float) -> Array:
        """The covariance that the tests are given with n rows."""
        return self.covariance * (self.rows / n)

    def noise(self, z: Array, n: float) -> tuple[Array | None, Array]:
        """What N(0, told) is made of, from standard normal z (1, …, l): nothing that goes with a scale, and itself."""
        return None, z[0] @ covariance_root(self.told(z[0], n)).T


@dataclass(frozen=True)
class Squared:
    """Estimates of squared lengths: Λ and R with n₀ `rows`."""

    along: Array
    rest: Array
    rows: int
    parts: int = 2

    def drawn(self, centres: Array, n: float, z: Array) -> Drawn:
        """Estimates with n rows of the populations `centres` (trials, l) from standard normal z (2, trials, l)."""
        share = self.rows / n
        u = np.sqrt(np.maximum(centres, 0.0)) + math.sqrt(share) * (z[0] @ covariance_root(self.along).T)
        x = np.minimum(centres, 0.0) + u**2 - np.diag(self.along) * share
        x += share * (z[1] @ covariance_root(self.rest).T)
        return Drawn(x, Geometry(2.0 * share**2 * self.rest, 4.0 * share * self.along, u))

    def told(self, centre: Array, n: float) -> Array:
        """The mean covariance that the tests are given with n rows of one population (l,)."""
        share, root = self.rows / n, np.sqrt(np.maximum(centre, 0.0))
        first = 4.0 * share * self.along * np.outer(root, root)
        return np.asarray(first + share**2 * (4.0 * self.along**2 + 2.0 * self.rest))

    def noise(self, z: Array, n: float) -> tuple[Array | None, Array]:
        """What N(0, told) is made of, from standard normal z (2, …, l): a part to be scaled by u, and the rest."""
        share = self.rows / n
        moving = 2.0 * math.sqrt(share) * (z[0] @ covariance_root(self.along).T)
        return moving, math.sqrt(2.0) * share * (z[1] @ covariance_root(self.rest).T)


Law = Plain | Squared


def law_of(joint: JointEstimate, rows: int) -> Law:
    """The law of a pilot's estimates: `Squared` where the second-order part B of its covariance is known.

    With A = V − 2B the first-order part, 4 θ_i Λ_ii = A_ii, and 2Λ_ii² is the share of B_ii that lies along w_i; it
    cannot be more than all of it, which bounds Λ where θ is small. Λ has the correlations of A, and R = B − 2Λ².

    >>> pair = JointEstimate(("a", "b"), [1.0, 4.0], np.diag([4.5, 16.5]), (100,), second_order=np.diag([2.25, 2.25]))
    >>> law_of(pair, 100).along.round(9).tolist()
    [[0.0, 0.0], [0.0, 0.75]]
    """
    second = joint.second_order
    if second is None or not second.any():
        return Plain(joint.covariance, rows)
    first = positive_part(joint.covariance - 2.0 * second, joint.covariance)
    variance, most = np.diag(first), np.sqrt(np.maximum(np.diag(second), 0.0) / 2.0)
    along = np.divide(variance, 4.0 * joint.values, out=most.copy(), where=joint.values > 0.0)
    length = np.sqrt(np.minimum(along, most))
    error = np.sqrt(variance)
    unit = np.divide(length, error, out=np.zeros_like(error), where=error > 0.0)
    along = first * np.outer(unit, unit)
    return Squared(along, positive_part(second - 2.0 * along**2, second), rows)


# --------------------
# The tests on many draws of D at once: the verdicts of `relfit.procedures`, a thousand at a time.


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
    """`relfit.stats.decision.adjust`, row by row."""
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


# --------------------
# Carving on many draws of D at once: the verdicts of `relfit.stats.tests.carve`.

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


# --------------------
# Power by simulation from the law of the estimates, with the same random numbers for every n, θ and test.

# Draws of the max-t law. All trials share them, so their error does not average out; `best_set` has 20,000 too. With
# many models each trial needs its own maximum of many differences: the most numbers looked at, and the fewest draws.
MAXIMA_DRAWS, MAXIMA_NUMBERS, FEWEST_MAXIMA = 20_000, 200_000, 4_000
# Trials deal their fresh noise of carving from this many packs, so that one pack's error is averaged out.
PACKS = 8


@dataclass(frozen=True)
class Settings:
    """How every test of the plan is run."""

    alpha: float
    select_fraction: float
    correction: str | None

    def corrected(self, test: str) -> str:
        """The correction of one test: as in `relfit.compare`, BY for relmulti and none otherwise, unless given.

        "auto" is BH for relmulti where its condition holds, and BY in the other tests.
        """
        if self.correction is not None:
            return "by" if self.correction == "auto" and test != "relmulti" else self.correction
        return "by" if test == "relmulti" else "none"


@dataclass(frozen=True)
class Numbers:
    """Standard normal numbers, as many `parts` as the law needs.

    For every trial those of the estimate, of relmulti's selection and of carving's (parts, R·trials, l each); `fresh`
    is carving's further noise (parts, packs, draws, l), `maxima` that of the max-t law (draws, l).
    """

    estimate: Array
    selection: Array
    carving: Array
    fresh: Array
    maxima: Array


@dataclass(frozen=True)
class Simulation:
    """`trials` draws from each of R populations θ (R, l); `known` keeps the law of the maximum of the last size."""

    populations: Array
    trials: int
    law: Law
    settings: Settings
    numbers: Numbers
    known: dict[float, Maxima] = field(default_factory=dict)

    def power(self, test: str, n: float, targets: Sequence[int], populations: Array | None = None) -> Array:
        """(R, targets) shares of the trials with n rows in which the targets are declared worse."""
        centres = self.populations if populations is None else populations
        declared = self._declared(test, np.repeat(centres, self.trials, axis=0), n, list(targets))
        return np.asarray(declared.reshape(len(centres), self.trials, len(targets)).mean(axis=1))

    def kept(self, populations: NDArray[np.bool_]) -> Simulation:
        """The simulation of some of the populations."""
        rows, numbers = np.repeat(populations, self.trials), self.numbers
        some = replace(
            numbers,
            estimate=numbers.estimate[:, rows],
            selection=numbers.selection[:, rows],
            carving=numbers.carving[:, rows],
        )
        return replace(self, populations=self.populations[populations], numbers=some)

    def _declared(self, test: str, centres: Array, n: float, targets: list[int]) -> NDArray[np.bool_]:
        correction, alpha = self.settings.corrected(test), self.settings.alpha
        # Without a correction a model's verdict needs no other model's p-value.
        wanted = targets if correction == "none" else list(range(centres.shape[1]))
        tested = n * (1.0 - self.settings.select_fraction) if test == "relmulti" else n
        drawn = self.law.drawn(centres, tested, self.numbers.estimate)
        if test == "relmulti":
            selection = self.law.drawn(centres, n - tested, self.numbers.selection).x
            best, p = relmulti_pvalues(selection, drawn.x, drawn.geometry, wanted)
        elif test == "relpsi":
            best, p = relpsi_pvalues(drawn.x, drawn.geometry, wanted)
        elif test == "carve":
            best, p = carve_pvalues(drawn.x, self._noise(drawn.geometry.scale, n), drawn.geometry, wanted, alpha)
        else:
            maxima, verdicts = self._maxima(n), correction == "none"
            best, p = best_set_pvalues(drawn.x, n, drawn.geometry, maxima, wanted, alpha, verdicts=verdicts)
        if correction == "none":
            return np.asarray(p <= alpha)
        told = self.law.told(centres[0], tested)
        return rejected(best, p, correction, alpha, told, all_models=test == "best-set")[:, targets]

    def _noise(self, scale: Array | None, n: float) -> Noise:
        """N(0, V) with the V each trial is told."""
        moving, realised = self.law.noise(self.numbers.carving, n)
        if moving is not None and scale is not None:
            realised = realised + scale * moving
        return Noise(realised, scale, *self.law.noise(self.numbers.fresh, n))

    def _maxima(self, n: float) -> Maxima:
        """The law of the maximum with the mean V; where V only changes its scale it is the same at every n."""
        at = float(self.law.rows) if isinstance(self.law, Plain) else n
        if at not in self.known:
            self.known.clear()
            told = self.law.told(self.populations[0], at)
            draws = np.ascontiguousarray((self.numbers.maxima @ covariance_root(told).T).T)
            self.known[at] = Maxima(draws, difference_errors(told))
        return self.known[at]


def simulation(
    names: Sequence[str], law: Law, settings: Settings, trials: int, draws: int, seed: int, populations: Array
) -> Simulation:
    """A simulation of the populations (R, l); random numbers belong to models by name."""
    own = streams(seeded(seed, "plan"), names)
    count = len(populations) * trials
    estimate, selection, carving_ = (_normal(own, law.parts, count) for _ in range(3))
    many = max(FEWEST_MAXIMA, min(MAXIMA_DRAWS, MAXIMA_NUMBERS // len(names)))
    maxima = _normal(own, 1, many)[0]
    fresh = _normal(own, law.parts, PACKS * draws).reshape(law.parts, PACKS, draws, len(names))
    numbers = Numbers(estimate, selection, carving_, fresh, maxima)
    return Simulation(populations, trials, law, settings, numbers)


def _normal(own: Streams, parts: int, count: int) -> Array:
    """(parts, count, l)."""
    return np.stack([rng.standard_normal((parts, count)) for rng in own.models], axis=2)


# --------------------
# Two models: the power of every test in closed form, as a function of the signal r = μ/s(n).
#
# μ = D_2 − D_1 > 0 is the gap, s(n) = s(n₀)√(n₀/n) its standard error with n rows.

# Beyond this signal every power is 1 to rounding.
_LARGEST_SIGNAL = 1e3
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(80)
# Half the width, in standard errors, of what is integrated.
_REACH = 9.0
# Best-set is the one test that corrects for both of two hypotheses: what its smaller p-value is multiplied by.
_PENALTY = {"none": 1.0, "holm": 2.0, "bonferroni": 2.0, "bh": 2.0, "by": 3.0, "auto": 3.0}


def power_of_two(test: str, signal: float, alpha: float, select_fraction: float, correction: str) -> float:
    """The probability that the worse one of two models is declared worse.

    RelPSI: Φ(r − z_{1−α/2}). RelMulti: Φ(√ρ r − z_{1−α}) Φ(√(1−ρ) r), ρ the test share. Best set: Φ(r − z_{1−α}).
    Carving (γ = 1): see `_carve`. A correction changes the best set alone: the others have one hypothesis left.

    >>> round(power_of_two("best-set", 2.4865, 0.05, 0.25, "none"), 3)
    0.8
    """
    if test == "relpsi":
        return float(ndtr(signal + ndtri(alpha / 2.0)))
    if test == "relmulti":
        chosen = ndtr(math.sqrt(select_fraction) * signal)
        return float(chosen * ndtr(math.sqrt(1.0 - select_fraction) * signal + ndtri(alpha)))
    if test == "best-set":
        return float(ndtr(signal + ndtri(alpha / _PENALTY[correction])))
    return _carve(signal, alpha)


def signal_needed(test: str, power: float, alpha: float, select_fraction: float, correction: str) -> float:
    """The signal r at which the test has this power; 0 if it has it without any."""

    def excess(signal: float) -> float:
        return power_of_two(test, signal, alpha, select_fraction, correction) - power

    if excess(0.0) >= 0.0:
        return 0.0
    return float(brentq(excess, 0.0, _LARGEST_SIGNAL, xtol=1e-12))


def _carve(signal: float, alpha: float) -> float:
    """∫_c^∞ φ(t − r) Φ(t) dt with Φ(c) = √(1−α).

    J = argmin(D + w) selects the better model with probability Φ(t), t = (D_2 − D_1)/s, as w_2 − w_1 has the same
    spread. The p-value is 2∫_t^∞ φΦ = 1 − Φ(t)², at most α from c on.
    """
    cut = float(ndtri(math.sqrt(1.0 - alpha)))
    low, high = max(cut, signal - _REACH), max(cut, signal) + _REACH
    t = low + (high - low) * (_NODES + 1.0) / 2.0
    density = np.exp(-0.5 * (t - signal) ** 2) / math.sqrt(2.0 * math.pi)
    return float(min(1.0, (high - low) / 2.0 * (_WEIGHTS @ (density * ndtr(t)))))
