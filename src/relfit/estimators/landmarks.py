"""MMD² and KSD² by landmarks: near-linear in the rows, and unbiased for what the complete
estimate is unbiased for.

D is a mean over rows: of the witness ``f_i(x) = mean_c k(x,x_c) − mean_a k(x,r_a)`` over the
rows of model i, and of its negative over those of the reference. With landmarks z_1..z_J,
k_x = (k(x,z_j))_j and K = k(z,z'), the kernel ``k_xᵀ K⁺ k_y`` is close to k(x,y), and its
witness is ``k_x · w_i``, ``w_i = K⁺(k̄_i − k̄_r)`` with k̄ the means of k_x. Two passes over
the rows, each O((n + Σm) J), give the means and then k_x · w_i of every row; neither holds
more than a tile of kernel values. K is factorised once for all models, without a ridge.

*Residual correction.* At some rows drawn at random, the first pass also gives f_i itself.
The mean of the residuals ``f_i(x) − k_x · w_i`` over them is added to D. Over the draws its
mean is what the landmarks miss, so D is unbiased for the complete estimate, whatever the
landmarks are; and its variance, known from the same residuals, is added to V. R drawn rows
stand for R·n pairs of rows, which is why R can be small. J and R are chosen on a few rows,
so that the correction adds less than 5% to the variance at the least cost.

KSD is the same with the Stein kernel of every model in place of k, and one sample.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from relfit.compute.backend import Backend, Job, Points, Products
from relfit.compute.memory import parts
from relfit.compute.reduce import Patch, Runtime, Sums, kernel_key, matrix_sums
from relfit.data.load import Data
from relfit.estimators import ksd, mmd
from relfit.estimators.base import (
    Estimates,
    EstimateSettings,
    Estimator,
    Kind,
    pair_count,
    samples_of,
)
from relfit.estimators.kernel import centre_for, centre_of, shifted
from relfit.estimators.locations import pooled_rows
from relfit.estimators.pairkernel import PairKernel
from relfit.kernels.base import Kernel
from relfit.stats.joint import Psi, centred, mixed, positive_part
from relfit.util.arrays import Array, Rows, host, stream
from relfit.util.checks import Whole, described, option
from relfit.util.progress import Progress, in_turn

# Eigenvalues of the landmarks' kernel matrix below this fraction of the largest count as 0.
SMALLEST = 1e-10
SMALLEST_SINGLE = 1e-5
# Rows of each sample whose pairs measure the second-order part, and rows on which the numbers
# of landmarks are tried.
PILOT_ROWS = 1000
TRIAL_ROWS = 400
FEWEST_LANDMARKS = 50
FEWEST_DRAWN = 100
# At most so many residual rows, or one row in so many if that is more: beyond that they cost
# more than they gain.
MAX_RESIDUAL_ROWS = 3000
ROWS_PER_RESIDUAL_ROW = 1000
# The time to factorise a J × J matrix, in units of J³ kernel values.
FACTORISATION = 0.2
# What the residual correction adds to the variance, as a part of it: at most, and as aimed at.
MAX_VARIANCE_INFLATION = 0.05
TARGET_VARIANCE_INFLATION = 0.02
# Pairs of rows that take a moment, so that landmarks gain nothing.
FEW_PAIRS = 20_000_000
ALL_PAIRS = "landmarks estimator: all pairs of rows take no longer here, and were used instead"
# The random stream of the residual rows.
RESIDUAL_STREAM = "landmarks: guard"
# The largest number of landmarks that is chosen automatically: factorising their kernel matrix
# takes seconds.
MOST_LANDMARKS = 1500


@described
@dataclass(frozen=True)
class Landmarks(Estimator):
    """Near-linear in the rows, with the target of the complete estimate and nearly its
    variance.
    """

    count: int | None = option(
        None,
        Whole(1),
        "how many there are",
        flag="--landmarks NUMBER",
        recorded="landmark_count",
        shown="chosen on some rows",
    )
    residual_pairs: int | None = option(
        None,
        Whole(1),
        "the pairs of rows that measure what the landmarks miss, rounded up to a whole number "
        "for each row, at least 2",
        flag="--residual-pairs NUMBER",
        recorded="pair_count",
        shown="so many that they add less than 5% to the variance",
    )

    name: ClassVar[str] = "landmarks"
    words: ClassVar[str] = (
        "a Nyström approximation whose error was estimated on random rows and removed"
    )
    memory_parts: ClassVar[int] = 2
    with_columns: ClassVar[bool] = True

    def estimate(self, kind: Kind, data: Data, settings: EstimateSettings) -> Estimates:
        """The estimate by landmarks, with the residual correction; that of all pairs where
        it takes no longer.
        """
        found = None if few_pairs(data, settings) else _by_landmarks(data, settings)
        if found is not None:
            return found
        estimates = kind.complete(data, settings)
        return replace(estimates, notes=(ALL_PAIRS, *estimates.notes))

    def fewest_bytes(self, rows: int, models: int, width: int) -> int:
        """The kernel matrix of the landmarks, its eigenvectors and the work of computing
        them; the rows asked for.
        """
        asked = min(self.count or 0, rows) + min((self.residual_pairs or 0) // rows, rows)
        return 48 * min(most_landmarks(self), models * rows) ** 2 + 40 * width * asked

    def values(self, rows: int, lengths: Sequence[int], columns: int = 1) -> int:
        """The kernel values with as many landmarks as are usually chosen; at most those of
        all pairs.

        More columns need more landmarks, and more drawn rows for what they miss.
        """
        longest = max([rows, *lengths])
        landmarks = min(
            15.0 * longest**0.27 * math.sqrt(max(1.0, columns / 15.0)), MOST_LANDMARKS
        )
        # Beyond ten million rows there are no more landmarks, and more drawn rows instead.
        drawn = max(round(150.0 * max(1.0, columns / 30.0)), longest // 20_000)
        drawn = min(drawn, max(MAX_RESIDUAL_ROWS, longest // ROWS_PER_RESIDUAL_ROW))
        values = int(2.0 * landmarks * (rows + sum(lengths))) + drawn * (
            rows * (len(lengths) + 1) + 2 * sum(lengths)
        )
        return min(values, pair_count(rows, lengths))


def most_landmarks(estimator: Landmarks) -> int:
    """The number of landmarks that was asked for, or the largest that is chosen
    automatically.
    """
    return MOST_LANDMARKS if estimator.count is None else estimator.count


@dataclass(frozen=True)
class _Side:
    points: Points
    weights: Array | None


@dataclass(frozen=True, eq=False)
class PointSums:
    """Sums of kernel values between rows and a few points.

    Without `weights`, a sum over the rows y for every point x. With weights (J, c) for the
    rows of a source x, c sums over the points y for every row.
    """

    kernel: Kernel
    centre: Array | float
    weights: Mapping[int, Array] | None = None
    passes: int = 1

    def key(self) -> str:
        given = (
            b""
            if self.weights is None
            else b"".join(w.tobytes() for w in self.weights.values())
        )
        return (
            f"point sums {kernel_key(self.kernel, self.centre)} "
            f"{hashlib.sha256(given).hexdigest()}"
        )

    def needs(self, patch: Patch) -> tuple[int, ...]:
        return patch.x, patch.y

    def width(self, sources: Sequence[Any]) -> int:
        return int(sources[0].shape[1]) + 1

    def prepare(
        self, sources: Sequence[Any], which: int, rows: slice, backend: Backend
    ) -> _Side:
        x = shifted(sources[which][rows], self.centre)
        tilt = self.kernel.tilt
        weights = None if tilt is None else tilt.weights(host(x))
        return _Side(backend.points(self.kernel.untilted, x), weights)

    def combine(self, x: _Side, y: _Side, patch: Patch) -> list[Job]:
        right = np.ones(len(y.points)) if y.weights is None else y.weights
        if self.weights is not None:
            right = right[:, None] * self.weights[patch.x][slice(*patch.j)]
        return [Job(self.kernel.untilted, x.points, y.points, {"phi": right})]

    def finish(self, x: _Side, y: _Side, products: Sequence[Products]) -> Sums:
        rows = host(products[0].rows["phi"])
        return Sums(rows if x.weights is None else (rows.T * x.weights).T)


@dataclass(frozen=True, eq=False)
class NystroemFactor:
    """The pseudo-inverse of a kernel matrix (J, J), of which directions that are rounding
    are left out.
    """

    vectors: Array
    values: Array

    @classmethod
    def of(cls, matrix: Array, smallest: float = SMALLEST) -> NystroemFactor:
        values, vectors = eigh(matrix, overwrite_a=True, check_finite=False, driver="evd")
        kept = values > smallest * values[-1]
        return cls(vectors[:, kept], values[kept])

    def __matmul__(self, right: Array) -> Array:
        return np.asarray(self.vectors @ ((self.vectors.T @ right).T / self.values).T)

    def whitened(self, rows: Array) -> Array:
        """Features of kernel values (n, J), whose inner products are the Nyström kernel."""
        return np.asarray(rows @ (self.vectors / np.sqrt(self.values)))

    def mean_squared_residual(self, matrix: Array, rows: Array) -> float:
        """The mean square of k − k_Nys over different rows, from k of these rows and their
        values at the landmarks.
        """
        features = self.whitened(rows)
        rest = matrix - features @ features.T
        np.fill_diagonal(rest, 0.0)
        return float(np.square(rest).sum()) / (len(rest) * (len(rest) - 1))


@dataclass(frozen=True, eq=False)
class ResidualSample:
    """The rows of one sample (or of several that belong together) at which residuals are known.

    Attributes:
        size: the number of all rows. approximation, residuals: (R, c) contributions of the
        drawn rows by the landmarks, and what they miss of them.
        places: the c models that they belong to.
        jackknife: the factor of the ψ rows.
        weights: (R,) of the drawn rows in means, if they were drawn with unequal probabilities
            and replacement.
    """

    size: int
    approximation: Array
    residuals: Array
    places: Rows
    jackknife: float = 1.0
    weights: Array | None = None

    def mean(self) -> Array:
        """(c,) the mean error of all rows, as the drawn ones estimate it."""
        return (
            self.residuals.mean(axis=0)
            if self.weights is None
            else self.weights @ self.residuals
        )

    def variance_of_mean(self) -> Array:
        """(c, c) the covariance of that mean."""
        count = len(self.residuals)
        if self.weights is not None:
            return _covariance(self.weights[:, None] * self.residuals) * count
        return _covariance(self.residuals) * ((1.0 - count / self.size) / count)

    def variance_deficit(self) -> Array:
        """(c, c) by how much the variance of the mean of all rows' contributions exceeds
        that by the landmarks.
        """
        both = (
            _covariance(rows, self.weights)
            for rows in (self.approximation + self.residuals, self.approximation)
        )
        return np.subtract(*both) * (4.0 / self.size * self.jackknife**2)


def _covariance(rows: Array, weights: Array | None = None) -> Array:
    return np.atleast_2d(np.cov(rows.T, aweights=weights))


def correct_with_residuals(
    estimates: Estimates, strata: Sequence[ResidualSample], landmarks: int
) -> Estimates:
    """The estimates with the mean errors of the drawn rows added, and the variance of these
    means.
    """
    values = estimates.values.copy()
    count = len(estimates.values)
    noise = np.zeros((count, count))
    missing = np.zeros((count, count))
    for each in strata:
        values[each.places] += each.mean()
        both = np.ix_(each.places, each.places)
        noise[both] += each.variance_of_mean()
        missing[both] += each.variance_deficit()
    plain = estimates.psi.covariance()
    whole = positive_part(plain + missing, mixed(plain + noise, plain)) + noise
    # V holds the second-order part twice, and is noisy where it holds nothing else.
    second = estimates.second_order_variances
    variances = np.maximum(np.diag(whole - noise) - second, second)
    share = float(
        np.divide(np.diag(noise), variances, out=np.zeros(count), where=variances > 0.0).max()
    )
    rows = sorted({len(each.residuals) for each in strata})
    drawn = f"{rows[0]:,}" if len(rows) == 1 else f"{rows[0]:,} to {rows[-1]:,}"
    points = "1 landmark" if landmarks == 1 else f"{landmarks:,} landmarks"
    note = (
        f"landmarks estimator: {points}, and {drawn} rows of each sample that are compared "
        f"with all "
        f"rows, which adds {_percent(share)} to the variance"
    )
    if share > MAX_VARIANCE_INFLATION:
        most = f"{MAX_VARIANCE_INFLATION:.0%}"
        note += (
            f"; more than {most} is a loss of power, so give more landmarks (count) or "
            f"residual_pairs"
        )
    return replace(estimates, values=values, covariance=whole, notes=(note, *estimates.notes))


def _percent(share: float) -> str:
    return (
        "less than 0.1%"
        if share < 0.001
        else f"{100.0 * share:.2g}%"
        if share < 0.1
        else f"{share:.0%}"
    )


@dataclass(frozen=True, eq=False)
class Trade:
    """What numbers J of landmarks and R of drawn rows cost, and how much variance they add.

    Attributes:
        smallest: (l,) the rows of the smallest sample that a model meets.
        most: the largest J.
        residual_variance: from J to (l,) the variance of the residual correction with R = 1,
            times `smallest`, of models equal to the data.
        variances: (l,) those of the estimates of models equal to the data.
        values: from J and R to the kernel values that are evaluated.
        matrices: the J × J matrices that are factorised.
        longest: the kernel values of all pairs of rows.
        rows: those of the largest sample.
        most_drawn: the largest R that there is room for.
    """

    smallest: NDArray[np.integer]
    most: int
    residual_variance: Callable[[int], Array]
    variances: Array
    values: Callable[[int, int], float]
    matrices: int
    longest: float
    rows: int
    most_drawn: int = sys.maxsize

    def cost(self, count: int, drawn: int) -> float:
        """In units of kernel values."""
        return self.values(count, drawn) + FACTORISATION * self.matrices * count**3

    def part(self, count: int) -> float:
        """What the residual correction would add to the variance with R = 1, as a part of
        it.
        """
        variance = self.residual_variance(count)
        variances = self.variances
        parts = np.divide(
            variance, variances, out=np.zeros(len(variances)), where=variances > 0.0
        )
        return float((parts / self.smallest).max())

    def added(self, count: int, drawn: int) -> float:
        """What it adds with R = `drawn`; with all rows nothing is left to chance."""
        return 0.0 if drawn >= self.rows else self.part(count) / drawn


def chosen_sizes(estimator: Landmarks, trade: Trade) -> tuple[int, int]:
    """The numbers J of landmarks and R of drawn rows: given, or those that add what is aimed
    at for the least cost.

    Models that differ from the data have larger variances, and what landmarks miss of their
    witnesses, which are smooth, is a smaller part of them. J is less than the most where the
    landmarks alone would cost as much as all pairs; R is at most the rows of the largest
    sample.
    """
    most = trade.most
    cost = trade.cost
    longest = trade.longest
    rows = trade.rows
    smallest = trade.smallest
    limit = min(rows, trade.most_drawn, max(MAX_RESIDUAL_ROWS, rows // ROWS_PER_RESIDUAL_ROW))

    def needed(count: int) -> float:
        return max(float(FEWEST_DRAWN), trade.part(count) / TARGET_VARIANCE_INFLATION)

    if estimator.count is not None:
        counts = [min(estimator.count, most)]
    else:
        steps = math.log(max(most / FEWEST_LANDMARKS, 1.0), 1.5)
        counts = [
            min(round(FEWEST_LANDMARKS * 1.5**k), most) for k in range(math.ceil(steps) + 1)
        ]
    given = (
        None
        if estimator.residual_pairs is None
        else max(2, math.ceil(estimator.residual_pairs / int(smallest.min())))
    )
    if given is not None and len(counts) == 1:
        return counts[0], given
    # Candidates: whether the variance is inflated too much, the price (or the inflation, if it
    # is), J and R.
    best = (True, math.inf, counts[0], limit)
    for count in counts:
        if cost(count, 0) >= (longest if best[0] else best[1]) and best[1] < math.inf:
            break
        drawn = needed(count)
        if drawn <= limit or limit == rows:
            r = min(math.ceil(drawn), rows)
            best = min(best, (False, cost(count, r), count, r))
        else:
            best = min(best, (True, drawn, count, limit))
    return best[2], best[3] if given is None else given


def _rows_in_memory(settings: EstimateSettings, numbers: int) -> int:
    """Rows that a third of a budget of memory holds, each with so many numbers of float64;
    any without a budget.
    """
    return sys.maxsize if settings.folder is None else settings.runtime.memory // (24 * numbers)


def _landmark_limits(
    settings: EstimateSettings, held: int, passing: int, drawn: int
) -> tuple[int, int]:
    """The most landmarks, as many as were asked for or as there is room for, and the most
    drawn rows.

    A landmark is `held` as so many numbers, and as `passing` ones while landmarks are drawn;
    a drawn row as `drawn`.
    """
    estimator = cast(Landmarks, settings.estimator)
    room = (
        sys.maxsize
        if estimator.count is not None
        else min(_rows_in_memory(settings, held), _rows_in_memory(settings, passing) * 2)
    )
    most = min(most_landmarks(estimator), max(FEWEST_LANDMARKS, room - TRIAL_ROWS))
    return most, max(FEWEST_DRAWN, _rows_in_memory(settings, drawn))


def few_pairs(data: Data, settings: EstimateSettings) -> bool:
    """True if all pairs of rows take a moment, and the numbers of landmarks and pairs were
    not given.
    """
    sizes = [len(x) for x in data.samples.values()]
    pairs = (
        pair_count(len(data.reference), sizes)
        if data.kind == "samples"
        else max([len(data.reference), *sizes]) ** 2
    )
    return settings.estimator == Landmarks() and pairs <= FEW_PAIRS


def _by_landmarks(data: Data, settings: EstimateSettings) -> Estimates | None:
    """The estimate by landmarks; None if the best numbers of landmarks and drawn rows cost
    as much as all pairs.
    """
    if data.kind == "samples":
        return _mmd(data, settings)
    most = most_landmarks(cast(Landmarks, settings.estimator)) + max(TRIAL_ROWS, PILOT_ROWS)
    orders = _drawn_rows(data, settings, "landmarks", most)
    if data.kind == "densities":
        x = data.reference
        scores = [
            ksd.all_scores(name, density, x, settings)
            for name, density in data.densities.items()
        ]
        return _ksd(x, scores, orders[None], settings)
    reports = in_turn(settings.runtime.progress, *map(len, data.samples.values()))
    each = [
        _ksd(
            x,
            [ksd.target_scores(name, x, data, settings)],
            orders[name],
            _reporting(settings, report),
        )
        for (name, x), report in zip(data.samples.items(), reports, strict=True)
    ]
    known = [estimates for estimates in each if estimates is not None]
    if len(known) < len(each):
        return None
    shared = settings.dependence == "shared"
    estimates = ksd.side_by_side(known, shared=shared)
    if len({one.notes for one in known}) > 1:
        notes = (
            f"{name!r}: {note}"
            for name, one in zip(data.samples, known, strict=True)
            for note in one.notes
        )
        estimates = replace(estimates, notes=tuple(notes))
    return ksd.Target().with_second_order(data, settings, estimates) if shared else estimates


def _reporting(settings: EstimateSettings, progress: Progress | None) -> EstimateSettings:
    return replace(settings, runtime=replace(settings.runtime, progress=progress))


class _Samples:
    """Samples (the reference first) in two passes over their rows: means at some points, and
    sums over landmarks.
    """

    def __init__(self, data: Data, settings: EstimateSettings) -> None:
        self.rows = list(samples_of(data).values())
        self.sizes = [len(x) for x in samples_of(data).values()]
        self.dependence = settings.dependence
        self.runtime = settings.runtime
        self.given = settings.kernel
        self.centre = centre_for(data.reference, self.given)
        self.smallest = _smallest(settings)
        self.kernel = self.given.moved(self.centre)
        self.paired = settings.dependence == "paired"
        # U-statistics leave out pairs of a row with itself; across samples only where row a
        # goes with row a.
        self.own = [size / (size - 1) for size in self.sizes]
        # All samples at once, in about five copies.
        room = 2 * _rows_in_memory(settings, 5 * len(self.rows) * data.reference.shape[1])
        self.pilot_rows = min(PILOT_ROWS, max(PILOT_ROWS // 2, room))
        self.across = self.own[0] if self.paired else 1.0

    def pilot(self) -> Estimates:
        """The complete estimate of some rows, with the second-order part of all."""
        some = [host(x[:: -(-len(x) // self.pilot_rows)]) for x in self.rows]
        runtime = replace(self.runtime, progress=None, checkpoint=None, scheduler=None)
        return mmd.complete(some[0], some[1:], self.given, self.dependence, runtime, self.sizes)

    def values(self, x: Array, points: Array) -> Array:
        """k(x_a, z_j): (n, J)."""
        return PairKernel(self.kernel).values(
            shifted(x, self.centre), shifted(points, self.centre)
        )

    def at(self, x: Any, rows: slice | Rows) -> Array:
        """Some rows of a sample, shifted, on the host."""
        return np.asarray(shifted(host(x[rows]), self.centre))

    def inverse(self, points: Array) -> NystroemFactor:
        return NystroemFactor.of(self.values(points, points), self.smallest)

    def passes(self, points: Sequence[Array], landmarks: int) -> list[Runtime]:
        """The runtimes of both passes, which report their progress as one."""
        first = sum(size * len(some) for size, some in zip(self.sizes, points, strict=True))
        reports = in_turn(self.runtime.progress, first, sum(self.sizes) * landmarks)
        return [replace(self.runtime, progress=report) for report in reports]

    def means(self, points: Sequence[Array], runtime: Runtime) -> list[Array]:
        """The mean of k(x_a, z_j) over the rows of each sample, at points of its own (J,)."""
        count = len(self.rows)
        reduction = PointSums(self.kernel, self.centre)
        matrices = [(count + k, k) for k in range(count)]
        sums = matrix_sums(reduction, (*self.rows, *points), matrices, runtime)
        return [host(each.rows) / size for each, size in zip(sums, self.sizes, strict=True)]

    def of_reference(self, ours: Array, theirs: Sequence[Array]) -> Array:
        """(J, l) contributions of reference rows at some points, from the samples' means
        there.
        """
        return np.stack([self.own[0] * ours - self.across * x for x in theirs], axis=1)

    def of_model(self, i: int, ours: Array, theirs: Array) -> Array:
        """(J, 1) contributions of rows of sample i at some points."""
        return (self.own[i] * theirs - self.across * ours)[:, None]

    def contributions(
        self, points: Array, inverse: NystroemFactor, means: Sequence[Array], runtime: Runtime
    ) -> list[Array]:
        """k_a · w of every row and model, from the samples' means at the landmarks: (n, l),
        then (m, 1) each.
        """
        ours, *theirs = means
        directions = [
            self.of_reference(ours, theirs),
            *(self.of_model(i, ours, x) for i, x in enumerate(theirs, 1)),
        ]
        reduction = PointSums(
            self.kernel, self.centre, {k: inverse @ w for k, w in enumerate(directions)}
        )
        matrices = [(k, len(self.rows)) for k in range(len(self.rows))]
        return [
            host(each.rows)
            for each in matrix_sums(reduction, (*self.rows, points), matrices, runtime)
        ]

    def own_pairs(self) -> list[Array]:
        """What pairs of a row with itself, or with its partner, add to contributions."""
        plain = self.kernel.variable == "r2" and self.kernel.tilt is None

        def own(x: Any, y: Any) -> Array:
            if plain and x is y:
                return np.broadcast_to(
                    self.kernel.phi(np.zeros((1, 1))) / (len(x) - 1), (len(x), 1)
                )
            values = [
                self.kernel.pairs(self.at(x, part), self.at(y, part)) for part in parts(x.shape)
            ]
            return np.concatenate(values)[:, None] / (len(x) - 1)

        ours, *theirs = (own(x, x) for x in self.rows)
        if not self.paired:
            return [ours, *theirs]
        partners = [own(x, self.rows[0]) for x in self.rows[1:]]
        return [
            ours - np.hstack(partners),
            *(x - y for x, y in zip(theirs, partners, strict=True)),
        ]

    def estimates(self, contributions: Sequence[Array]) -> Estimates:
        """D and ψ from every row's contributions."""
        g, *f = contributions
        values = g.mean(axis=0) + np.array([float(x.mean()) for x in f])
        if self.paired:
            return Estimates(values, Psi(centred(g + np.hstack(f))))
        psi = Psi(
            centred(g), tuple(centred(x[:, 0]) for x in f), shared=self.dependence == "shared"
        )
        return Estimates(values, psi)


def trades(data: Data, settings: EstimateSettings) -> list[Trade]:
    """What landmarks cost and add for these data, from some rows: one trade, or one for each
    sample of a target.
    """
    if data.kind == "samples":
        samples = _Samples(data, settings)
        return [_mmd_trade(samples, samples.pilot(), data, settings)[0]]
    most = most_landmarks(Landmarks()) + max(TRIAL_ROWS, PILOT_ROWS)
    orders = _drawn_rows(data, settings, "landmarks", most)
    found = []
    for key, x in samples_of(data).items():
        some = x[orders[key]]
        if data.kind == "densities":
            scores = [
                ksd.all_scores(name, density, some, settings)
                for name, density in data.densities.items()
            ]
        else:
            scores = [ksd.target_scores(str(key), some, data, settings)]
        found.append(_ksd_trade(some, scores, np.arange(len(some)), settings, len(x)))
    return found


def _mmd_trade(
    samples: _Samples, pilot: Estimates, data: Data, settings: EstimateSettings
) -> tuple[Trade, Callable[[int], Array]]:
    """The trade, and so many landmarks."""
    sizes = samples.sizes
    models = len(samples.rows) - 1
    columns = data.reference.shape[1]
    # Landmarks are held once for every sample and once more, drawn rows also by themselves.
    most, most_drawn = _landmark_limits(
        settings, *(columns * times for times in (models + 2, 3 * models, 4 * models + 2))
    )
    orders = _drawn_rows(data, settings, "landmarks", most + TRIAL_ROWS)
    trial = pooled_rows(
        data,
        {key: order[::-1].copy() for key, order in orders.items()},
        TRIAL_ROWS,
        settings.seed,
    )
    values = samples.values(trial, trial)

    def landmarks(count: int) -> Array:
        return pooled_rows(data, orders, count, settings.seed)

    def residual_variance(count: int) -> Array:
        points = landmarks(count)
        return np.full(
            models,
            4.0
            * samples.inverse(points).mean_squared_residual(
                values, samples.values(trial, points)
            ),
        )

    def evaluated(count: int, drawn: int) -> float:
        at_drawn = sizes[0] * (models + 1) + 2 * sum(sizes[1:])
        return 2.0 * sum(sizes) * count + at_drawn * drawn

    most = len(landmarks(most))
    longest = float(pair_count(sizes[0], sizes[1:]))
    smallest = np.minimum(sizes[0], sizes[1:])
    limits = longest, max(sizes), most_drawn
    return Trade(
        smallest, most, residual_variance, pilot.second_order_variances, evaluated, 1, *limits
    ), landmarks


def _mmd(data: Data, settings: EstimateSettings) -> Estimates | None:
    samples = _Samples(data, settings)
    estimator = cast(Landmarks, settings.estimator)
    sizes = samples.sizes
    models = len(samples.rows) - 1
    pilot = samples.pilot()
    trade, landmarks = _mmd_trade(samples, pilot, data, settings)
    count, drawn = chosen_sizes(estimator, trade)
    if estimator == Landmarks() and trade.cost(count, drawn) >= trade.longest:
        return None
    points = landmarks(count)
    # There are fewer where the reference or the models have fewer rows than half of the count.
    count = len(points)
    inverse = samples.inverse(points)
    rows = list(_drawn_rows(data, settings, RESIDUAL_STREAM, drawn).values())
    at_reference, *at_models = (
        host(x[each]) for x, each in zip(samples.rows, rows, strict=True)
    )
    # Each sample is summed at the landmarks, at the drawn rows of the reference, and at those
    # of the models it meets.
    where = [np.concatenate([points, at_reference, *at_models])]
    where += [np.concatenate([points, at_reference, x]) for x in at_models]
    first, second = samples.passes(where, count)
    means = samples.means(where, first)
    passed = samples.contributions(points, inverse, [mean[:count] for mean in means], second)
    itself = samples.own_pairs()
    contributions = [np.subtract(x, y, out=x) for x, y in zip(passed, itself, strict=True)]
    estimates = samples.estimates(contributions)
    ends = np.cumsum([len(points), len(at_reference), *map(len, at_models)])
    own = slice(ends[0], ends[1])
    exact = [samples.of_reference(means[0][own], [mean[own] for mean in means[1:]])]
    exact += [
        samples.of_model(i, means[0][ends[i] : ends[i + 1]], means[i][ends[1] :])
        for i in range(1, models + 1)
    ]
    found = [x[each] for x, each in zip(contributions, rows, strict=True)]
    exact = [x - y[each] for x, y, each in zip(exact, itself, rows, strict=True)]
    strata = _strata(sizes, found, exact, settings.dependence)
    whole = correct_with_residuals(
        replace(pilot, values=estimates.values, psi=estimates.psi), strata, count
    )
    # Of a kernel with one value rounding is left, which would be a certain difference.
    rounding = 1e-14 * max(float(np.abs(mean).max()) for mean in means)
    if max(np.abs(whole.values).max(), math.sqrt(whole.projection.max())) <= rounding:
        whole = replace(whole, values=np.zeros(models), covariance=np.zeros((models, models)))
    return mmd.Samples().with_second_order(data, settings, whole)


def _strata(
    sizes: Sequence[int], found: Sequence[Array], exact: Sequence[Array], dependence: str
) -> list[ResidualSample]:
    """The residuals at the drawn rows, from their contributions by the landmarks and as they
    are.
    """
    errors = [x - y for x, y in zip(exact, found, strict=True)]
    everyone = np.arange(len(sizes) - 1)
    if dependence == "paired":
        return [
            ResidualSample(
                sizes[0],
                found[0] + np.hstack(found[1:]),
                errors[0] + np.hstack(errors[1:]),
                everyone,
            )
        ]
    first = ResidualSample(sizes[0], found[0], errors[0], everyone)
    if dependence == "shared":
        return [
            first,
            ResidualSample(sizes[1], np.hstack(found[1:]), np.hstack(errors[1:]), everyone),
        ]
    return [
        first,
        *(
            ResidualSample(*each, everyone[i : i + 1])
            for i, each in enumerate(zip(sizes[1:], found[1:], errors[1:], strict=True))
        ),
    ]


def _drawn_rows(
    data: Data, settings: EstimateSettings, purpose: str, count: int
) -> dict[str | None, Rows]:
    """So many rows of the reference (key None) and of every sample, in random order; the
    same of all of one size.
    """
    common = settings.dependence == "paired"
    return {
        key: stream(
            settings.seed, purpose, "reference" if key is None and not common else "models"
        ).choice(len(x), min(count, len(x)), replace=False)
        for key, x in samples_of(data).items()
    }


def _smallest(settings: EstimateSettings) -> float:
    """Below this fraction of the largest, eigenvalues are rounding of the sums."""
    name = settings.runtime.backend.name
    return SMALLEST_SINGLE if "float32" in name or name.startswith("triton") else SMALLEST


def _ksd_trade(
    x: Any, scores: Sequence[Any], order: Rows, settings: EstimateSettings, n: int
) -> Trade:
    """For KSD² at n rows, from rows x and scores at the places `order`."""
    centre = centre_of(x)
    models = len(scores)
    runtime = settings.runtime
    kernel = settings.kernel.moved(centre)
    smallest = _smallest(settings)
    stein = PairKernel(kernel)

    def at(rows: Rows) -> list[Array]:
        return _stein_rows(x, scores, centre, rows)

    trial = at(order[::-1][:TRIAL_ROWS])
    values = stein.stein(trial, trial)

    def residual_variance(count: int) -> Array:
        points = at(order[:count])
        near = stein.stein(trial, points)
        own = _stein_inverses(kernel, points, smallest)
        return np.array(
            [a.mean_squared_residual(u, k) for a, u, k in zip(own, values, near, strict=True)]
        )

    def evaluated(count: int, drawn: int) -> float:
        return float(n) * (2 * count + drawn)

    held = x.shape[1] * (1 + models)
    some = order[
        : min(PILOT_ROWS, max(PILOT_ROWS // 2, 2 * _rows_in_memory(settings, 5 * held)))
    ]
    rows = [host(x[some]), *(host(s[some]) for s in scores)]
    plain = replace(runtime, progress=None, checkpoint=None, scheduler=None)
    pilot = ksd.complete(rows[0], rows[1:], settings.kernel, plain, settings.seed)
    variances = pilot.second_order_variances * (len(some) / n) ** 2
    most, most_drawn = _landmark_limits(settings, 3 * held, 3 * held, 3 * held)
    limits = n**2 / 2.0, n, most_drawn
    return Trade(
        np.array([n]), min(n, most), residual_variance, variances, evaluated, models, *limits
    )


def _stein_rows(x: Any, scores: Sequence[Any], centre: Array, rows: Rows) -> list[Array]:
    """The rows at these places, less the centre, and their scores."""
    return [shifted(host(x[rows]), centre), *(host(s[rows]) for s in scores)]


def _stein_inverses(
    kernel: Kernel, points: Sequence[Array], smallest: float
) -> Iterator[NystroemFactor]:
    """The inverse of the landmarks' Stein matrix for each model, one matrix at a time."""
    for score in points[1:]:
        own = (points[0], score)
        yield NystroemFactor.of(PairKernel(kernel).stein(own, own)[0], smallest)


def _ksd(
    x: Any, scores: Sequence[Any], order: Rows, settings: EstimateSettings
) -> Estimates | None:
    """KSD² of each model, scores (n, d) at the rows x (n, d), with the residual correction."""
    n = len(x)
    centre = centre_of(x)
    models = len(scores)
    runtime = settings.runtime
    kernel = settings.kernel.moved(centre)
    smallest = _smallest(settings)
    estimator = cast(Landmarks, settings.estimator)
    trade = _ksd_trade(x, scores, order, settings, n)
    count, drawn = chosen_sizes(estimator, trade)
    if estimator == Landmarks() and trade.cost(count, drawn) >= trade.longest:
        return None
    # Pairs of a row with itself.
    diagonal = np.empty((n, models))
    for part in parts(x.shape):
        same = [shifted(host(x[part]), centre), *(host(s[part]) for s in scores)]
        diagonal[part] = PairKernel(kernel).stein_pairs(same, same)
    drawn_rows, weights = _sample_proportional_to_size(
        diagonal, drawn, stream(settings.seed, RESIDUAL_STREAM, "reference")
    )
    landmarks = order[:count]
    both = np.concatenate([order[:count], drawn_rows])

    def sums(rows: Rows, weights: Array | None, report: Progress | None) -> Array:
        """Σ_a u_i(z_j, x_a) of points and all rows, or of every row with weighted points."""
        sources = (x, *scores, host(x[rows]), *(host(s[rows]) for s in scores))
        matrix, columns = (
            ((1 + models, 0), 0) if weights is None else ((0, 1 + models), 1 + models)
        )
        reduction = ksd.SteinSums(kernel, centre, models, columns=columns, weights=weights)
        return host(
            matrix_sums(reduction, sources, [matrix], replace(runtime, progress=report))[0].rows
        )

    first, second = in_turn(runtime.progress, len(both), count)
    means = sums(both, None, first) / (n - 1)  # with the factor n/(n−1) of U-statistics
    points = _stein_rows(x, scores, centre, landmarks)
    directions = zip(_stein_inverses(kernel, points, smallest), means[:count].T, strict=True)
    g = sums(
        landmarks, np.stack([inverse @ mean for inverse, mean in directions], axis=1), second
    )
    g = g - diagonal / (n - 1)
    found = g[drawn_rows]
    exact = means[count:] - diagonal[drawn_rows] / (n - 1)
    jackknife = (n - 1) / (n - 2)
    stratum = ResidualSample(n, found, exact - found, np.arange(models), jackknife, weights)
    arguments = settings.seed, g.mean(axis=0), Psi(centred(g) * jackknife), diagonal.sum(axis=0)
    return correct_with_residuals(
        ksd.with_second_order(x, scores, kernel, centre, *arguments), [stratum], count
    )


def _sample_proportional_to_size(
    diagonal: Array, count: int, rng: np.random.Generator
) -> tuple[Rows, Array | None]:
    """Residual rows and their weights: half of the probability goes with u_i(x,x).

    Landmarks miss most of rows far away, of which some hundred rows drawn alike would hold
    none or too many.
    """
    n = len(diagonal)
    if count >= n:
        return rng.permutation(n), None
    means = diagonal.mean(axis=0)
    size = (np.maximum(diagonal, 0.0) / np.where(means > 0.0, means, 1.0)).mean(axis=1)
    probabilities = (1.0 + size) / (2.0 * n)
    rows = rng.choice(n, count, p=probabilities / probabilities.sum())
    return rows, 1.0 / (count * n * probabilities[rows])
