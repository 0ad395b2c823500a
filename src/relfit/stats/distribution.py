"""The joint distribution of the estimates, and the tests that ask it.

H_i says that model i is no worse than any other, by more than a margin δ. It is tightest where
i ties with its contenders. A `Distribution` says how the differences D̂_i − D̂_j are distributed
where some models tie: their ratios T_ij = (D̂_i − D̂_j − δ)/s_ij, which pairs count, and draws
of the largest ratio. There are two of them:

- `FirstOrder`: the estimates are means. s_ij and the draws are the same whatever ties; few rows
  and skewness are allowed for in the ratios, each on the scale of its own p-value.
- `SecondOrder`: complete estimates of squared distances (`stats.close`), whose standard errors
  and draws are those of the tie.

One implementation of the tests is on top: every model by itself (`alone`), and step-down
(`step_down`). Both give the p-value of every model, and the critical value of the very draws
that gave it: p ≤ α exactly where T is above it. Bounds for D_i − D_j (`Distribution.lower`)
have the standard errors and the critical value of the step at which i was decided.

With several kernels there is one distribution for each, whose draws belong together, and
maxima are over the kernels too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri, stdtr, stdtrit

from relfit.stats.close import (
    DRAWS,
    CloseLaw,
    Noise,
    contrasts,
    most_draws,
    quotient,
    reach,
    skewed,
    square_root,
    undecided,
)
from relfit.stats.decision import Differences
from relfit.stats.maxt import (
    CHUNK,
    ENOUGH_BEYOND,
    MANY_MODELS,
    NormalPairs,
    kept_pairs,
    row_maxima,
)
from relfit.util.arrays import Array, Mask, Rows

# Rounds in which the contenders and the distribution at their tie are found in turn.
_ROUNDS = 4
# Ratios that differ by less than this are the same.
_SAME_RATIO = 1e-9
# With more models than this, what a union bound decides is not drawn.
_FEW_MODELS = 50
_SMALLEST = 5e-324


class Tied(ABC):
    """Differences of models where these tie. Models have their places among all of them."""

    @abstractmethod
    def row(self, i: int) -> Array:
        """(l,) the ratios T_ij; −∞ where there is no variance, or j is not one of the models."""

    @abstractmethod
    def largest(self, models: Rows) -> Array:
        """For each of these models its largest ratio to another one of them."""


@dataclass(frozen=True, eq=False)
class Part:
    """Pairs of models whose largest ratio is drawn, where some models tie.

    Model i and the others j, all of them kept: the pairs (i, j). If `joint`, the pairs that
    are kept among all of them instead. Two models have both signs of their difference.
    """

    tied: Tied
    i: int
    others: Rows
    joint: bool = False

    @cached_property
    def models(self) -> Rows:
        """i and the others, in their order."""
        return np.sort(np.append(self.others, self.i))

    @property
    def both_signs(self) -> bool:
        """Whether these are two models, of which each may be the better one."""
        return self.joint and len(self.others) == 1


@dataclass(frozen=True, eq=False)
class Family:
    """What one p-value is about: a part under every kernel, and the largest ratio observed."""

    parts: tuple[Part, ...]
    statistic: float


@dataclass(frozen=True, eq=False)
class Tail:
    """The distribution of a largest ratio beyond its critical values.

    Attributes:
        statistic: the ratio that was observed.
        tally: how many pairs have ratios with so many degrees of freedom.
        trusted: the sum of the pairs' tails is used where it is at most this.
        top: the draws of the largest ratio; None where none were needed.
    """

    statistic: float
    tally: tuple[tuple[int, float], ...]
    trusted: float = 1.0
    top: Array | None = None

    @property
    def made(self) -> int:
        """The number of draws."""
        return 0 if self.top is None else len(self.top)

    @cached_property
    def log_p(self) -> float:
        """log P(largest ratio ≥ T): (1 + #{draws ≥ T})/(1 + draws), and the sum of the pairs'
        tails where that is smaller.
        """
        if not self.tally:
            return 0.0
        union = log_union(self.tally, self.statistic)
        drawn = 0.0
        if self.top is not None:
            reached = int((self.top >= self.statistic - _SAME_RATIO).sum())
            # Lowered by its last digits: of p = α the exponential is then at most α.
            drawn = (1.0 + 1e-15) * math.log((1 + reached) / (1 + self.made))
        return min(drawn, union if union <= math.log(self.trusted) else 0.0)

    def critical(self, level: float) -> float:
        """The critical value at this level: p is at most the level exactly where T is larger."""
        if not self.tally:
            return math.inf
        known = union_point(self.tally, min(level, self.trusted))
        if self.top is None:
            return known
        beyond = math.floor(level * (1 + self.made) * (1.0 + 1e-12)) - 1
        if beyond < 0:
            return known
        place = self.made - 1 - beyond
        return min(known, float(np.partition(self.top, place)[place]) + _SAME_RATIO)


class Distribution(ABC):
    """How the estimates of l models are distributed, where some of them tie.

    Attributes:
        size: l.
        varies: (l, l) the differences that have a variance.
        lowest: the ratio from which on a model is a contender (moment selection).
        draws, most: draws that are made, and that are made near α.
        trusted: as in `Tail`.
    """

    size: int
    varies: Mask
    lowest: float
    draws: int
    most: int
    trusted: float

    @abstractmethod
    def tied(self, models: Rows) -> Tied:
        """The differences where these models tie."""

    @abstractmethod
    def tally(self, part: Part) -> dict[float, int]:
        """How many of the pairs of a part have ratios with so many degrees of freedom."""

    @abstractmethod
    def tops(self, parts: Sequence[Part], batch: int) -> Array:
        """(parts, draws) the largest ratios of a batch of draws, the same for all parts."""

    @abstractmethod
    def lower(self, parts: Sequence[Part], critical: Array) -> Array:
        """(parts, l) lower bounds of D_i − D_j for the i of every part, at the critical value
        of the part; −∞ for a j that i is not compared with.
        """


# ── the tests ─────────────────────────────────────────────────────────────────────────────────


def contest(law: Distribution, i: int) -> Part:
    """Model i and its contenders: those that it is not far better than, where all tie."""
    others = np.flatnonzero(law.varies[i])
    for _ in range(_ROUNDS):
        tied = law.tied(np.sort(np.append(others, i)))
        before = others
        others = before[tied.row(i)[before] > law.lowest]
        if len(others) in (0, len(before)):
            break
    return Part(tied, i, others)


def alone(
    laws: Sequence[Distribution],
    models: Iterable[int],
    alpha: float | None = None,
    least: int = 0,
) -> tuple[list[Family], list[Tail]]:
    """The max-t test of "D_i ≤ min_j D_j + δ" for each of these models i by itself.

    ``T_i = max_j (D̂_i − D̂_j − δ)/s_ij`` over the contenders j is compared with the same
    maximum of the draws. A model without contenders has p = 1.
    """
    families = []
    for i in models:
        parts = tuple(contest(law, i) for law in laws)
        largest = [part.tied.row(i)[part.others].max(initial=-math.inf) for part in parts]
        families.append(Family(parts, float(max(largest))))
    return families, tails(laws, families, alpha, least)


@dataclass(frozen=True, eq=False)
class Steps:
    """What step-down found.

    Attributes:
        log_p: (l,) log adjusted p-values.
        parts: (l,) every model's pairs (of the first kernel) at the step at which it was
            decided: its own, or the one at which nothing more was rejected.
        tails: (l,) the distribution at that step; None for a model that is compared with none.
        alpha: the level.
    """

    log_p: Array
    parts: list[Part | None]
    tails: list[Tail | None]
    alpha: float


def step_down(
    laws: Sequence[Distribution],
    contenders: Mask,
    alpha: float,
    near: float | None = None,
    least: int = 0,
) -> Steps:
    """Adjusted p-values of "D_i ≤ min_j D_j + δ" for all models together.

    At every step all contenders that are left tie. Their largest ratio is compared with the
    largest one drawn of the pairs that are kept, and its model leaves. Adjusted p-values are
    the largest ones up to a model's own step. A model that is no contender is compared with
    the contenders in the same way, as if it were one.
    """
    left = np.flatnonzero(contenders)
    steps = [_outsider(laws, i, left) for i in np.flatnonzero(~contenders).tolist()]
    first = len(steps)
    while len(left) > 1:
        steps.append(_step(laws, left))
        left = steps[-1].parts[0].others
    found = tails(laws, steps, near, least)
    log_p = np.zeros(laws[0].size)
    parts: list[Part | None] = [None] * len(log_p)
    decided: list[Tail | None] = [None] * len(log_p)
    largest = -math.inf
    ended = False
    for place, (step, tail) in enumerate(zip(steps, found, strict=True)):
        i = step.parts[0].i
        log_p[i] = tail.log_p
        if place >= first:
            largest = max(largest, tail.log_p)
            log_p[i] = largest
        if ended:
            continue
        ended = place >= first and largest > math.log(alpha)
        own = step.parts[0]
        for k in own.models.tolist() if ended else [i]:
            others = own.models[own.models != k]
            parts[k] = own if k == i else Part(own.tied, k, others, True)
            decided[k] = tail
    return Steps(log_p, parts, decided, alpha)


def _step(laws: Sequence[Distribution], left: Rows) -> Family:
    """The pairs among the models that are left, and the model with their largest ratio."""
    ties = [law.tied(left) for law in laws]
    largest = np.max([tied.largest(left) for tied in ties], axis=0)
    place = int(largest.argmax())
    return _joint(ties, int(left[place]), np.delete(left, place), float(largest[place]))


def _outsider(laws: Sequence[Distribution], i: int, contenders: Rows) -> Family:
    """A model that is no contender with all that are."""
    everyone = np.sort(np.append(contenders, i))
    ties = [law.tied(everyone) for law in laws]
    largest = [tied.row(i)[contenders].max(initial=-math.inf) for tied in ties]
    return _joint(ties, i, contenders, float(max(largest)))


def _joint(ties: Sequence[Tied], i: int, others: Rows, statistic: float) -> Family:
    """The pairs among model i and the others."""
    parts = [Part(tied, i, others, joint=True) for tied in ties]
    return Family(tuple(parts), statistic)


def tails(
    laws: Sequence[Distribution],
    families: Sequence[Family],
    alpha: float | None = None,
    least: int = 0,
) -> list[Tail]:
    """The distributions of the families' largest ratios.

    A family leaves once ENOUGH_BEYOND draws have reached its statistic (Besag and Clifford
    1991): its p-value is known well enough. One whose p-value is too near to `alpha` for a
    verdict stays (`stats.close.undecided`), and all of two models do if one does, whose
    p-values then come from the same draws.
    """
    draws = laws[0].draws
    trusted = min(law.trusted for law in laws)
    # Backwards: the pairs of a step are counted from those of the next one.
    known = [_tally(laws, family) for family in reversed(families)][::-1]
    active = []
    for k, family in enumerate(families):
        pairs = sum(count for count, _ in known[k])
        single = all(len(part.others) <= 1 for part in family.parts) and len(laws) == 1
        exact = pairs == 0 or (single and trusted == 1.0)
        if exact or not math.isfinite(family.statistic):
            continue
        certain = log_union(known[k], family.statistic) <= -math.log1p(draws)
        if laws[0].size <= _FEW_MODELS or not certain:
            active.append(k)
    drawn: dict[int, list[Array]] = {k: [] for k in active}
    reached = np.zeros(len(families), dtype=np.intp)
    made = 0
    batch = 0
    while active:
        top = np.maximum.reduce(
            [
                law.tops([families[k].parts[place] for k in active], batch)
                for place, law in enumerate(laws)
            ]
        )
        batch += 1
        made += top.shape[1]
        statistic = np.array([families[k].statistic for k in active])
        reached[active] += (top >= statistic[:, None] - _SAME_RATIO).sum(axis=1)
        for k, row in zip(active, top, strict=True):
            drawn[k].append(row)
        counts = reached[active]
        near = undecided(counts, made, alpha) & (made < laws[0].most)
        if laws[0].size == 2:
            near[:] = near.any()
        stay = (counts < ENOUGH_BEYOND) & (made < draws) | near | (made < least)
        active = [k for k, stays in zip(active, stay.tolist(), strict=True) if stays]
    return [
        Tail(
            family.statistic,
            known[k],
            trusted,
            np.concatenate(drawn[k]) if k in drawn else None,
        )
        for k, family in enumerate(families)
    ]


def _tally(laws: Sequence[Distribution], family: Family) -> tuple[tuple[int, float], ...]:
    total: dict[float, int] = {}
    for law, part in zip(laws, family.parts, strict=True):
        for freedom, count in law.tally(part).items():
            total[freedom] = total.get(freedom, 0) + count
    return tuple((count, freedom) for freedom, count in total.items() if count)


def log_union(tally: Sequence[tuple[int, float]], statistic: float) -> float:
    """log of the sum of the tails of so many ratios beyond T, an upper bound."""
    logs = [math.log(count) + _log_tail(freedom, statistic) for count, freedom in tally]
    return float(np.logaddexp.reduce(logs))


def union_point(tally: Sequence[tuple[int, float]], level: float) -> float:
    """The T at which the sum of the tails is the level."""
    if level == 0.0:
        return math.inf
    total = sum(count for count, _ in tally)
    points = [_point(freedom, level / total) for _, freedom in tally]
    low = min(points)
    high = max(points)
    if high - low < 1e-12:
        return high

    def excess(statistic: float) -> float:
        return log_union(tally, statistic) - math.log(level)

    return float(brentq(excess, low - 1e-9, high + 1e-9))


def _log_tail(freedom: float, statistic: float) -> float:
    if math.isinf(freedom):
        return float(log_ndtr(-statistic))
    return math.log(max(float(stdtr(freedom, -statistic)), _SMALLEST))


def _point(freedom: float, level: float) -> float:
    if math.isinf(freedom):
        return -float(ndtri(level))
    return -float(stdtrit(freedom, level))


# ── first order ───────────────────────────────────────────────────────────────────────────────


class _Everywhere(Tied):
    """Ratios (l, l) that are the same whatever ties."""

    def __init__(self, ratio: Array) -> None:
        self.ratio = ratio
        self._top = np.empty(0)
        self._by = np.empty(0, dtype=np.intp)
        self._among = np.empty(0, dtype=np.intp)

    def row(self, i: int) -> Array:
        return np.asarray(self.ratio[i])

    def largest(self, models: Rows) -> Array:
        # From one step to the next, only models that were compared with the one that left have
        # another largest ratio.
        if not np.isin(models, self._among, assume_unique=True).all():
            self._top = np.full(len(self.ratio), -math.inf)
            self._by = np.full(len(self.ratio), -1)
            stale = models
        else:
            stale = models[~np.isin(self._by[models], models)]
        if len(stale):
            ratios = self.ratio[np.ix_(stale, models)]
            best = ratios.argmax(axis=1)
            self._by[stale] = models[best]
            self._top[stale] = ratios[np.arange(len(stale)), best]
        self._among = models
        return np.asarray(self._top[models])


class FirstOrder(Distribution):
    """Estimates that are means: Z_ij = (G_i − G_j)/s_ij with G ~ N(0, V).

    Args:
        pairs: the differences, less the margin.
        ratio: (l, l) their ratios as normal numbers, if the difference is the margin.
        margin: δ.
        lowest: the ratio from which on a model is a contender.
        normal: gives the next so many draws (l, ·) of G.
        draws: how many are made.
        cap: (l, l) the largest Z_ij possible, or None.
        scaled: bounds have s_ij = (D̂_i − D̂_j − δ)/T_ij, where the ratios are not those of
            the standard errors.
    """

    trusted = 1.0

    def __init__(
        self,
        pairs: Differences,
        ratio: Array,
        margin: float,
        lowest: float,
        normal: Callable[[int], Array],
        draws: int,
        *,
        cap: Array | None = None,
        scaled: bool = False,
    ) -> None:
        self.size = len(ratio)
        self.pairs = pairs
        self.ratio = ratio
        self.varies = pairs.varies
        self.margin = margin
        self.lowest = lowest
        self.draws = draws
        self.most = max(draws, most_draws(self.size))
        self.kept = self.varies & (ratio > lowest)
        self.scaled = scaled
        self._cap = cap
        self._normal = normal
        self._made: list[NormalPairs] = []
        self._everywhere = _Everywhere(ratio)
        self._counts: dict[bytes, int] = {}

    def tied(self, models: Rows) -> Tied:
        return self._everywhere

    def tally(self, part: Part) -> dict[float, int]:
        if not part.joint:
            return {math.inf: len(part.others)}
        if part.both_signs:
            return {math.inf: 2 * int(self.varies[part.i, part.others[0]])}
        return {math.inf: self._count(part.models, part)}

    def _count(self, models: Rows, part: Part | None = None) -> int:
        """The pairs that are kept among some models."""
        key = models.tobytes()
        if key not in self._counts:
            rest = models[1:] if part is None else part.others
            i = int(models[0]) if part is None else part.i
            inner = self._counts.get(rest.tobytes())
            if inner is None:
                inner = int(self.kept[np.ix_(rest, rest)].sum())
            across = self.kept[i, rest].sum() + self.kept[rest, i].sum()
            self._counts[key] = inner + int(across)
        return self._counts[key]

    def _batch(self, batch: int) -> NormalPairs:
        number = np.float32 if self.size >= MANY_MODELS else np.float64
        while len(self._made) <= batch:
            scale = np.divide(
                1.0, self.pairs.error, out=np.zeros_like(self.ratio), where=self.varies
            )
            g: Any = self._normal(CHUNK).astype(number)
            self._made.append(NormalPairs(g, scale.astype(number), self._cap))
        return self._made[batch]

    def tops(self, parts: Sequence[Part], batch: int) -> Array:
        chunk = self._batch(batch)
        out = np.full((len(parts), chunk.g.shape[1]), -math.inf)
        single = [k for k, part in enumerate(parts) if not part.joint]
        if single:
            models = np.array([parts[k].i for k in single])
            offsets = kept_pairs(self.kept)
            out[single] = row_maxima(chunk, offsets, None, models, out.shape[1])
        joint = [k for k, part in enumerate(parts) if part.joint]
        known: dict[bytes, Array] = {}
        for k in sorted(joint, key=lambda k: len(parts[k].others)):
            part = parts[k]
            inner = self._joint(chunk, part.others, known)
            top = np.maximum(inner, self._across(chunk, part.i, part.others))
            known[part.models.tobytes()] = top
            if part.both_signs:
                top = np.abs(chunk(part.i, part.others)[0])
            out[k] = top
        return out

    def _joint(self, chunk: NormalPairs, models: Rows, known: dict[bytes, Array]) -> Array:
        """(draws,) the largest Z of the pairs kept among some models."""
        key = models.tobytes()
        if key not in known:
            top = np.full(chunk.g.shape[1], -math.inf)
            for place, i in enumerate(models.tolist()):
                rest = models[place + 1 :]
                if len(rest):
                    np.maximum(top, self._across(chunk, i, rest), out=top)
            known[key] = top
        return known[key]

    def _across(self, chunk: NormalPairs, i: int, others: Rows) -> Array:
        """(draws,) the largest Z of the pairs (i, j) and (j, i) that are kept."""
        to = self.kept[i, others]
        back = self.kept[others, i]
        some = to | back
        top = np.full(chunk.g.shape[1], -math.inf)
        if not some.any():
            return top
        z = chunk(i, others[some])
        there = z[to[some]]
        other = z[back[some]]
        np.maximum(top, there.max(axis=0, initial=-math.inf), out=top)
        return np.asarray(np.maximum(top, -other.min(axis=0, initial=math.inf)))

    def lower(self, parts: Sequence[Part], critical: Array) -> Array:
        points = np.zeros(self.size)
        where = np.zeros_like(self.varies)
        for part, point in zip(parts, critical.tolist(), strict=True):
            points[part.i] = point if math.isfinite(point) else 0.0
            where[part.i, part.others] = math.isfinite(point)
        where &= self.kept
        if self.scaled:
            known = where & (np.abs(self.ratio) > 1e-6)
            error = np.where(
                known, self.pairs.gap / np.where(known, self.ratio, 1.0), self.pairs.error
            )
            lengths = points[:, None] * error
        else:
            lengths = self.pairs.reach(points)
        bounds = np.where(where, self.margin + self.pairs.gap - lengths, -math.inf)
        return np.asarray(bounds[[part.i for part in parts]])


# ── first and second order ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Among(Tied):
    """Differences of some models that tie. All arrays are (k, k)."""

    models: Rows
    size: int
    gap: Array
    error: Array
    skewness: Array
    ratio: Array
    kept: Mask
    root: Array = field(repr=False)

    def row(self, i: int) -> Array:
        out = np.full(self.size, -math.inf)
        out[self.models] = self.ratio[self.place(i)]
        return out

    def largest(self, models: Rows) -> Array:
        places = np.searchsorted(self.models, models)
        return np.asarray(self.ratio[np.ix_(places, places)].max(axis=1))

    def place(self, i: int) -> int:
        """The place of a model among those that tie."""
        return int(np.searchsorted(self.models, i))


@dataclass(frozen=True, eq=False)
class _Batch:
    """Draws of first-order parts with unit variances, of second-order parts, and of √(χ²/ν)
    for every number of degrees of freedom ν.
    """

    normal: Array
    second: Array
    chi: Array


class SecondOrder(Distribution):
    """Complete estimates of squared distances, whose distribution is that of the tie.

    Args:
        law: the moments of the estimates.
        values: (l,) the estimates.
        varies: (l, l) the differences that have a variance.
        margin: δ.
        lowest: the ratio from which on a model is a contender.
        freedom: (l,) the degrees of freedom of the models' variances.
        noise: gives the random numbers of a batch.
    """

    def __init__(
        self,
        law: CloseLaw,
        values: Array,
        varies: Mask,
        margin: float,
        lowest: float,
        freedom: Array,
        noise: Callable[[int], Noise],
    ) -> None:
        self.size = len(values)
        self.law = law
        self.values = values
        self.varies = varies
        self.margin = margin
        self.lowest = lowest
        self.freedom = freedom
        self.draws = DRAWS
        self.most = max(DRAWS, most_draws(self.size))
        # Beyond the draws, tails are Student's: there the first-order part is the larger one.
        self.trusted = 1.0 / (1.0 + DRAWS)
        self._sizes, self._places = np.unique(freedom, return_inverse=True)
        self._noise = noise
        self._made: list[_Batch] = []
        self._apart = np.maximum(contrasts(law.second), 0.0)
        # Draws are in these units: single precision holds no very large or small numbers.
        self._unit = law.unit
        # Models often have the same contenders.
        self._ties: dict[bytes, _Among] = {}
        self._last: tuple[_Among, int, tuple[Any, Any]] | None = None

    def at_values(self, values: Array) -> SecondOrder:
        """The same for other estimates, with the same draws."""
        other = SecondOrder(
            self.law,
            values,
            self.varies,
            self.margin,
            self.lowest,
            self.freedom,
            self._noise,
        )
        other._made = self._made
        return other

    def tied(self, models: Rows) -> _Among:
        key = models.tobytes()
        if key not in self._ties:
            self._ties[key] = self._tied(models)
        return self._ties[key]

    def _tied(self, models: Rows) -> _Among:
        if len(models) == 1:
            nothing = np.zeros((1, 1))
            none = np.full((1, 1), -math.inf)
            return _Among(
                models, self.size, nothing, nothing, nothing, none, nothing > 0.0, nothing
            )
        tie = self.law.at(models).tie(self.values[models], self.margin)
        both = np.ix_(models, models)
        gap = self.values[models][:, None] - self.values[models] - self.margin
        error = np.sqrt(tie.variances + self._apart[both])
        # One factor after the other: the cubes of very large errors do not fit into float64.
        skewness = tie.cumulants
        for _ in range(3):
            skewness = quotient(skewness, error)
        varies = self.varies[both]
        plain = np.where(varies, quotient(gap, error, -math.inf), -math.inf)
        ratio = skewed(plain, skewness)
        kept = varies & (ratio > self.lowest)
        root = square_root(tie.covariance)
        return _Among(models, self.size, gap, error, skewness, ratio, kept, root)

    def _compared(self, part: Part) -> Mask:
        """(k, k) the pairs of a joint part among the models that tie."""
        tied = self._among(part)
        if part.both_signs:
            return self.varies[np.ix_(part.models, part.models)]
        if len(part.models) == len(tied.models):
            return tied.kept
        some = np.searchsorted(tied.models, part.models)
        compared = np.zeros_like(tied.kept)
        both = np.ix_(some, some)
        compared[both] = tied.kept[both]
        return compared

    @staticmethod
    def _among(part: Part) -> _Among:
        assert isinstance(part.tied, _Among)  # noqa: S101  (a part of this distribution)
        return part.tied

    def tally(self, part: Part) -> dict[float, int]:
        if part.joint:
            freedom = self.freedom[self._among(part).models]
            degrees = np.minimum(freedom[:, None], freedom)[self._compared(part)]
        else:
            degrees = np.minimum(self.freedom[part.i], self.freedom[part.others])
        if len(self._sizes) == 1:
            return {float(self._sizes[0]): degrees.size}
        values, counts = np.unique(degrees, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    def _batch(self, batch: int) -> _Batch:
        while len(self._made) <= batch:
            noise = self._noise(len(self._made))
            self._made.append(
                _Batch(
                    noise.normal,
                    self.law.second_order(noise, self._unit),
                    noise.chi(self._sizes),
                )
            )
        return self._made[batch]

    def tops(self, parts: Sequence[Part], batch: int) -> Array:
        return np.stack([self._top(part, batch) for part in parts])

    def _drawn(self, tied: _Among, batch: int) -> tuple[Any, Any]:
        """(k, draws) draws of the estimates that tie, and (k, k) one over the standard
        deviations of their differences in these draws; 0 for a difference that never varies.
        """
        # Successive parts often have one tie.
        if self._last is None or self._last[0] is not tied or self._last[1] != batch:
            made = self._batch(batch)
            number = made.normal.dtype
            draws = (tied.root / self._unit).astype(number) @ made.normal[tied.models]
            draws += made.second[tied.models]
            draws -= draws.mean(axis=1, keepdims=True)
            covariance = np.asarray(draws @ draws.T, dtype=float) / draws.shape[1]
            spread = np.sqrt(np.maximum(contrasts(covariance), 0.0))
            scale = quotient(np.ones_like(spread), spread).astype(number)
            self._last = (tied, batch, (draws, scale))
        return self._last[2]

    def _top(self, part: Part, batch: int) -> Array:
        """(draws,) the largest (G_i − G_j)/s_ij of the pairs of a part.

        Draws are divided by their own standard deviations. The standard errors are estimates,
        too: each is multiplied by √(χ²/ν) of the model with the fewer degrees of freedom,
        whose row of `chi` comes first.
        """
        tied = self._among(part)
        draws, scale = self._drawn(tied, batch)
        chi: Any = self._batch(batch).chi
        places = self._places[tied.models]

        def sizes(i: int, others: Rows) -> Any:
            found = draws[i] - draws[others]
            found *= scale[i, others, None]
            if len(chi) > 1:
                found /= chi[np.minimum(places[i], places[others])]
            return found

        if part.joint:
            top = np.full(draws.shape[1], -math.inf, dtype=draws.dtype)
            compared = self._compared(part)
            for i in range(len(draws) - 1):
                to = compared[i, i + 1 :]
                back = compared[i + 1 :, i]
                some = np.flatnonzero(to | back)
                if not len(some):
                    continue
                found = sizes(i, i + 1 + some)
                if (to & back)[some].all():
                    np.maximum(top, np.abs(found, out=found).max(axis=0), out=top)
                    continue
                largest = found[to[some]].max(axis=0, initial=-math.inf)
                smallest = found[back[some]].min(axis=0, initial=math.inf)
                np.maximum(top, np.maximum(largest, -smallest), out=top)
        else:
            others = np.searchsorted(tied.models, part.others)
            top = sizes(tied.place(part.i), others).max(axis=0, initial=-math.inf)
        return np.asarray(top / chi[0] if len(chi) == 1 else top)

    def lower(self, parts: Sequence[Part], critical: Array) -> Array:
        out = np.full((len(parts), self.size), -math.inf)
        for row, part, point in zip(out, parts, critical.tolist(), strict=True):
            tied = self._among(part)
            i = tied.place(part.i)
            others = np.searchsorted(tied.models, part.others)
            if not math.isfinite(point) or not len(others):
                continue
            length = reach(np.full(len(others), point), tied.skewness[i, others])
            bounds = self.margin + tied.gap[i, others] - length * tied.error[i, others]
            row[part.others] = np.where(tied.kept[i, others], bounds, -math.inf)
        return out
