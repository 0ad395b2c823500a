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

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from scipy.linalg import eigh

from relfit.data.load import Data
from relfit.estimators import ksd, mmd
from relfit.estimators.base import (
    Dependence,
    Estimates,
    EstimateSettings,
    Estimator,
    Kind,
    as_jackknife,
    jackknife_factor,
    joint_psi,
    pair_count,
    ratio,
    samples_of,
    split_half_discrepancy,
)
from relfit.estimators.groups import take
from relfit.estimators.kernel import centre_for, in_parts, shifted
from relfit.estimators.locations import pooled_rows
from relfit.estimators.pairkernel import PairKernel
from relfit.estimators.sums import KernelSums, kernel_sums
from relfit.stats.joint import Psi, centred, mixed, positive_part
from relfit.util.arrays import Array, Rows, host
from relfit.util.checks import Whole, described, option
from relfit.util.progress import Progress, in_turn
from relfit.util.random import stream

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
        found = None if few_pairs(data, settings) else self._by_landmarks(kind, data, settings)
        if found is not None:
            return found
        estimates = kind.complete(data, settings)
        return replace(estimates, notes=(ALL_PAIRS, *estimates.notes))

    def _by_landmarks(
        self, kind: Kind, data: Data, settings: EstimateSettings
    ) -> Estimates | None:
        """None if the best numbers of landmarks and drawn rows cost as much as all pairs."""
        progress = settings.runtime.progress
        reports = [progress]
        if data.target is not None:
            reports = in_turn(progress, *map(len, data.samples.values()))
        each = []
        for one, report in zip(approximations(kind, data, settings), reports, strict=True):
            trade = one.trade()
            count, drawn = chosen_sizes(self, trade)
            if self == Landmarks() and trade.cost(count, drawn) >= trade.longest:
                return None
            each.append(one.estimates(count, drawn, report))
        estimates = kind.of_samples(data, settings, each)
        if len({one.notes for one in each}) == 1:
            return estimates
        named = zip(data.samples, each, strict=True)
        notes = tuple(f"{name!r}: {note}" for name, one in named for note in one.notes)
        return replace(estimates, notes=notes)

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
    share = float(ratio(np.diag(noise), variances).max())
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
        smallest: the rows of the smallest sample.
        most: the largest J.
        residual_variance: from J to (l,) the variance of the residual correction with R = 1,
            of models equal to the data.
        variances: (l,) those of the estimates of models equal to the data.
        per_landmark, per_drawn: the kernel values that each of them takes.
        matrices: the J × J matrices that are factorised.
        longest: the kernel values of all pairs of rows.
        rows: those of the largest sample.
        most_drawn: the largest R that there is room for.
    """

    smallest: int
    most: int
    residual_variance: Callable[[int], Array]
    variances: Array
    per_landmark: float
    per_drawn: float
    matrices: int
    longest: float
    rows: int
    most_drawn: int

    def values(self, count: int, drawn: int) -> float:
        """The kernel values that are evaluated."""
        return self.per_landmark * count + self.per_drawn * drawn

    def cost(self, count: int, drawn: int) -> float:
        """In units of kernel values."""
        return self.values(count, drawn) + FACTORISATION * self.matrices * count**3

    def part(self, count: int) -> float:
        """What the residual correction would add to the variance with R = 1, as a part of
        it.
        """
        return float(ratio(self.residual_variance(count), self.variances).max())

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
    rows = trade.rows
    limit = min(rows, trade.most_drawn, max(MAX_RESIDUAL_ROWS, rows // ROWS_PER_RESIDUAL_ROW))
    if estimator.count is not None:
        counts = [min(estimator.count, most)]
    else:
        steps = math.ceil(math.log(max(most / FEWEST_LANDMARKS, 1.0), 1.5))
        counts = [min(round(FEWEST_LANDMARKS * 1.5**k), most) for k in range(steps + 1)]
    given = None
    if estimator.residual_pairs is not None:
        given = max(2, math.ceil(estimator.residual_pairs / trade.smallest))
        if len(counts) == 1:
            return counts[0], given
    # Candidates: whether the variance is inflated too much, the price (or the inflation, if it
    # is), J and R.
    best = (True, math.inf, counts[0], limit)
    for count in counts:
        highest = trade.longest if best[0] else best[1]
        if trade.cost(count, 0) >= highest and best[1] < math.inf:
            break
        needed = max(float(FEWEST_DRAWN), trade.part(count) / TARGET_VARIANCE_INFLATION)
        if needed <= limit or limit == rows:
            drawn = min(math.ceil(needed), rows)
            best = min(best, (False, trade.cost(count, drawn), count, drawn))
        else:
            best = min(best, (True, needed, count, limit))
    return best[2], best[3] if given is None else given


def rows_in_memory(settings: EstimateSettings, numbers: int) -> int:
    """Rows that a third of a budget of memory holds, each with so many numbers of float64;
    any without a budget.
    """
    return sys.maxsize if settings.folder is None else settings.runtime.memory // (24 * numbers)


def pilot_rows(settings: EstimateSettings, numbers: int) -> int:
    """Rows whose pairs measure the second-order part, of so many numbers in about five
    copies.
    """
    room = 2 * rows_in_memory(settings, 5 * numbers)
    return min(PILOT_ROWS, max(PILOT_ROWS // 2, room))


def landmark_limits(
    settings: EstimateSettings, held: int, passing: int, drawn: int
) -> tuple[int, int]:
    """The most landmarks, as many as were asked for or as there is room for, and the most
    drawn rows.

    A landmark is `held` as so many numbers, and as `passing` ones while landmarks are drawn;
    a drawn row as `drawn`.
    """
    estimator = cast(Landmarks, settings.estimator)
    most = most_landmarks(estimator)
    if estimator.count is None:
        room = min(rows_in_memory(settings, held), 2 * rows_in_memory(settings, passing))
        most = min(most, max(FEWEST_LANDMARKS, room - TRIAL_ROWS))
    return most, max(FEWEST_DRAWN, rows_in_memory(settings, drawn))


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


class Approximation(ABC):
    """Landmarks for one sample, or for all of them: what they cost, and the estimates.

    Attributes:
        smallest: eigenvalues below this fraction of the largest are rounding of the sums.
        plain: the runtime of short work: without progress, in this process.
        reduction: how kernel values are summed.
    """

    reduction: KernelSums

    def __init__(self, settings: EstimateSettings) -> None:
        self.settings = settings
        runtime = settings.runtime
        single = getattr(runtime.backend, "precision", "single") == "single"
        self.smallest = SMALLEST_SINGLE if single else SMALLEST
        self.plain = replace(runtime, progress=None, checkpoint=None, scheduler=None)

    @abstractmethod
    def trade(self) -> Trade:
        """What landmarks cost and add, from some rows."""

    @abstractmethod
    def estimates(self, count: int, drawn: int, progress: Progress | None) -> Estimates:
        """The estimates with so many landmarks and drawn rows."""

    def sums(
        self,
        samples: Sequence[Sequence[Any]],
        points: Sequence[Sequence[Any]],
        weights: Sequence[Array] | None,
        progress: Progress | None,
    ) -> list[Array]:
        """The sums over each sample's rows at its own points, (J, …); with weights of these,
        the sums over the points at its rows, (n, …).

        Samples and points are rows, with scores at them where the kernels have these.
        """
        count = len(samples)
        width = len(samples[0])
        sources = [part for each in (*samples, *points) for part in each]
        matrices = [(width * (count + k), width * k) for k in range(count)]
        over: dict[int, Array | None] = {rows: None for _, rows in matrices}
        if weights is not None:
            matrices = [(rows, at) for at, rows in matrices]
            over = {at: each for (_, at), each in zip(matrices, weights, strict=True)}
        runtime = replace(self.settings.runtime, progress=progress)
        reduction = replace(self.reduction, over=over)
        return [each.rows for each in kernel_sums(reduction, sources, matrices, runtime)]


def approximations(
    kind: Kind, data: Data, settings: EstimateSettings
) -> Iterator[Approximation]:
    """That of all samples, or that of each sample with scores."""
    if not isinstance(kind, ksd.SteinKind):
        yield SampleLandmarks(data, settings)
        return
    orders = _stein_orders(data, settings)
    for key, x, scores in kind.samples(data, settings):
        yield SteinLandmarks(x, scores, orders[key], settings)


def trades(kind: Kind, data: Data, settings: EstimateSettings) -> list[Trade]:
    """What landmarks cost and add for these data, from some rows: one trade, or one for each
    sample with scores.
    """
    if not isinstance(kind, ksd.SteinKind):
        return [SampleLandmarks(data, settings).trade()]
    sizes = {key: len(x) for key, x in samples_of(data).items()}
    some = take(data, {None: np.arange(0), **_stein_orders(data, settings)})
    return [
        SteinLandmarks(x, scores, np.arange(len(x)), settings, sizes[key]).trade()
        for key, x, scores in kind.samples(some, settings)
    ]


def _stein_orders(data: Data, settings: EstimateSettings) -> dict[str | None, Rows]:
    """The rows that landmarks are taken from, and at the other end those they are tried on."""
    most = most_landmarks(cast(Landmarks, settings.estimator)) + max(TRIAL_ROWS, PILOT_ROWS)
    return _drawn_rows(data, settings, "landmarks", most)


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


class SampleLandmarks(Approximation):
    """Samples (the reference first) in two passes over their rows: means at some points, and
    sums over landmarks.
    """

    def __init__(self, data: Data, settings: EstimateSettings) -> None:
        super().__init__(settings)
        self.data = data
        self.rows = list(samples_of(data).values())
        self.sizes = [len(x) for x in self.rows]
        self.models = len(self.rows) - 1
        self.centre = centre_for(data.reference, settings.kernel)
        self.kernel = settings.kernel.moved(self.centre)
        self.reduction = KernelSums(self.kernel, self.centre)
        self.paired = settings.dependence == "paired"
        # U-statistics leave out pairs of a row with itself; across samples only where row a
        # goes with row a.
        self.own = [size / (size - 1) for size in self.sizes]
        self.across = self.own[0] if self.paired else 1.0
        # Landmarks are held once for every sample and once more, drawn rows also by
        # themselves.
        self.columns = int(data.reference.shape[1])
        held = (self.models + 2, 3 * self.models, 4 * self.models + 2)
        self.limits = landmark_limits(settings, *(self.columns * times for times in held))
        self.orders = _drawn_rows(data, settings, "landmarks", self.limits[0] + TRIAL_ROWS)

    @cached_property
    def pilot(self) -> Estimates:
        """The complete estimate of some rows, with the second-order part of all."""
        count = pilot_rows(self.settings, len(self.rows) * self.columns)
        some = [host(x[:: -(-len(x) // count)]) for x in self.rows]
        kernel = self.settings.kernel
        dependence = self.settings.dependence
        return mmd.complete(some[0], some[1:], kernel, dependence, self.plain, sizes=self.sizes)

    def landmarks(self, count: int) -> Array:
        """The first landmarks (J, d); fewer where the samples have fewer rows."""
        return pooled_rows(self.data, self.orders, count, self.settings.seed)

    def values(self, x: Array, points: Array) -> Array:
        """k(x_a, z_j): (n, J)."""
        return PairKernel(self.kernel).values(
            shifted(x, self.centre), shifted(points, self.centre)
        )

    def factor(self, points: Array) -> NystroemFactor:
        return NystroemFactor.of(self.values(points, points), self.smallest)

    def trade(self) -> Trade:
        sizes = self.sizes
        turned = {key: order[::-1].copy() for key, order in self.orders.items()}
        trial = pooled_rows(self.data, turned, TRIAL_ROWS, self.settings.seed)
        values = self.values(trial, trial)

        def residual_variance(count: int) -> Array:
            points = self.landmarks(count)
            near = self.values(trial, points)
            missed = self.factor(points).mean_squared_residual(values, near)
            return 4.0 * missed / np.minimum(sizes[0], sizes[1:])

        return Trade(
            smallest=min(sizes),
            most=len(self.landmarks(self.limits[0])),
            residual_variance=residual_variance,
            variances=self.pilot.second_order_variances,
            per_landmark=2.0 * sum(sizes),
            per_drawn=sizes[0] * len(sizes) + 2.0 * sum(sizes[1:]),
            matrices=1,
            longest=float(pair_count(sizes[0], sizes[1:])),
            rows=max(sizes),
            most_drawn=self.limits[1],
        )

    def estimates(self, count: int, drawn: int, progress: Progress | None) -> Estimates:
        points = self.landmarks(count)
        count = len(points)
        drawn_rows = list(
            _drawn_rows(self.data, self.settings, RESIDUAL_STREAM, drawn).values()
        )
        at_reference, *at_models = (
            host(x[rows]) for x, rows in zip(self.rows, drawn_rows, strict=True)
        )
        # Each sample is summed at the landmarks, at the drawn rows of the reference, and at
        # those of the models it meets.
        where = [np.concatenate([points, at_reference, *at_models])]
        where += [np.concatenate([points, at_reference, x]) for x in at_models]
        pairs = sum(size * len(some) for size, some in zip(self.sizes, where, strict=True))
        first, second = in_turn(progress, pairs, sum(self.sizes) * count)
        samples = [(x,) for x in self.rows]
        sums = self.sums(samples, [(some,) for some in where], None, first)
        means = [each / size for each, size in zip(sums, self.sizes, strict=True)]
        ours, *theirs = (mean[:count] for mean in means)
        factor = self.factor(points)
        weights = [factor @ self._of_reference(ours, theirs)]
        weights += [factor @ self._of_model(i, ours, x) for i, x in enumerate(theirs, 1)]
        passed = self.sums(samples, [(points,)] * len(samples), weights, second)
        own = self._own_pairs()
        contributions = [np.subtract(x, y, out=x) for x, y in zip(passed, own, strict=True)]
        ends = np.cumsum([count, len(at_reference), *map(len, at_models)])
        here = slice(ends[0], ends[1])
        exact = [self._of_reference(means[0][here], [mean[here] for mean in means[1:]])]
        exact += [
            self._of_model(i, means[0][ends[i] : ends[i + 1]], means[i][ends[1] :])
            for i in range(1, self.models + 1)
        ]
        exact = [x - y[rows] for x, y, rows in zip(exact, own, drawn_rows, strict=True)]
        found = [x[rows] for x, rows in zip(contributions, drawn_rows, strict=True)]
        dependence = self.settings.dependence
        both = zip(
            self.sizes, _strata(found, dependence), _strata(exact, dependence), strict=False
        )
        scale = jackknife_factor(self.sizes[0]) if dependence == "paired" else 1.0
        strata = [
            ResidualSample(size, near, true - near, places, scale)
            for size, (places, near), (_, true) in both
        ]
        g, *f = contributions
        values = g.mean(axis=0) + np.array([float(x.mean()) for x in f])
        psi = joint_psi(g, [x[:, 0] for x in f], dependence)
        estimates = replace(self.pilot, values=values, psi=psi)
        whole = correct_with_residuals(estimates, strata, count)
        # Of a kernel with one value rounding is left, which would be a certain difference.
        rounding = 1e-14 * max(float(np.abs(mean).max()) for mean in means)
        if max(np.abs(whole.values).max(), math.sqrt(whole.projection.max())) > rounding:
            return whole
        nothing = np.zeros(self.models)
        return replace(whole, values=nothing, covariance=np.diag(nothing))

    def _of_reference(self, ours: Array, theirs: Sequence[Array]) -> Array:
        """(J, l) contributions of reference rows at some points, from the samples' means
        there.
        """
        return np.stack([self.own[0] * ours - self.across * x for x in theirs], axis=1)

    def _of_model(self, i: int, ours: Array, theirs: Array) -> Array:
        """(J, 1) contributions of rows of sample i at some points."""
        return (self.own[i] * theirs - self.across * ours)[:, None]

    def _own_pairs(self) -> list[Array]:
        """What pairs of a row with itself, or with its partner, add to contributions."""

        def own(x: Any, y: Any) -> Array:
            both = zip(in_parts(x, self.centre), in_parts(y, self.centre), strict=True)
            values = np.concatenate([host(self.kernel.pairs(*part)) for part in both])
            return values[:, None] / (len(x) - 1)

        ours, *theirs = (own(x, x) for x in self.rows)
        if not self.paired:
            return [ours, *theirs]
        partners = [own(x, self.rows[0]) for x in self.rows[1:]]
        apart = [x - y for x, y in zip(theirs, partners, strict=True)]
        return [ours - np.hstack(partners), *apart]


def _strata(contributions: Sequence[Array], dependence: Dependence) -> list[tuple[Rows, Array]]:
    """The contributions of rows that are drawn together, and the models they belong to."""
    first, *models = contributions
    everyone = np.arange(len(models))
    if dependence == "paired":
        return [(everyone, first + np.hstack(models))]
    if dependence == "shared":
        return [(everyone, first), (everyone, np.hstack(models))]
    return [(everyone, first), *((everyone[i : i + 1], x) for i, x in enumerate(models))]


class SteinLandmarks(Approximation):
    """One sample of n rows with scores of l models, each of which has landmarks of its own
    kernel; `order` numbers the rows they are taken from.
    """

    def __init__(
        self,
        x: Any,
        scores: Sequence[Any],
        order: Rows,
        settings: EstimateSettings,
        n: int | None = None,
    ) -> None:
        super().__init__(settings)
        self.rows = ksd.SteinRows(x, scores, settings.kernel)
        self.order = order
        self.size = len(x) if n is None else n
        self.models = len(scores)
        self.numbers = int(x.shape[1]) * (1 + self.models)
        self.reduction = KernelSums(self.rows.kernel, self.rows.centre, self.models)

    def factors(self, points: Sequence[Array]) -> Iterator[NystroemFactor]:
        """That of the landmarks' Stein matrix for each model, one matrix at a time."""
        for score in points[1:]:
            own = (points[0], score)
            yield NystroemFactor.of(self.rows.stein.stein(own, own)[0], self.smallest)

    def trade(self) -> Trade:
        n = self.size
        settings = self.settings
        stein = self.rows.stein
        trial = self.rows.at(self.order[::-1][:TRIAL_ROWS])
        values = stein.stein(trial, trial)

        def residual_variance(count: int) -> Array:
            points = self.rows.at(self.order[:count])
            each = zip(self.factors(points), values, stein.stein(trial, points), strict=True)
            return np.array([factor.mean_squared_residual(*own) for factor, *own in each]) / n

        some = self.order[: pilot_rows(settings, self.numbers)]
        x = host(self.rows.x[some])
        scores = [host(s[some]) for s in self.rows.scores]
        pilot = ksd.complete(x, scores, settings.kernel, self.plain, settings.seed)
        most, most_drawn = landmark_limits(settings, *[3 * self.numbers] * 3)
        return Trade(
            smallest=n,
            most=min(n, most),
            residual_variance=residual_variance,
            variances=pilot.second_order_variances * (len(some) / n) ** 2,
            per_landmark=2.0 * n,
            per_drawn=float(n),
            matrices=self.models,
            longest=n**2 / 2.0,
            rows=n,
            most_drawn=most_drawn,
        )

    def estimates(self, count: int, drawn: int, progress: Progress | None) -> Estimates:
        n = self.size
        seed = self.settings.seed
        # Pairs of a row with itself.
        diagonal = np.concatenate(list(self.rows.diagonal()))
        drawn_rows, weights = _sample_proportional_to_size(
            diagonal, drawn, stream(seed, RESIDUAL_STREAM, "reference")
        )
        landmarks = self.order[:count]
        both = np.concatenate([landmarks, drawn_rows])
        first, second = in_turn(progress, len(both), count)
        every = [self.rows.x, *self.rows.scores]

        def sums(rows: Rows, weights: Array | None, report: Progress | None) -> Array:
            points = [host(part[rows]) for part in every]
            own = None if weights is None else [weights]
            return self.sums([every], [points], own, report)[0]

        # With the factor n/(n−1) of U-statistics.
        means = sums(both, None, first) / (n - 1)
        factors = self.factors(self.rows.at(landmarks))
        directions = [
            factor @ mean for factor, mean in zip(factors, means[:count].T, strict=True)
        ]
        g = sums(landmarks, np.stack(directions, axis=1), second) - diagonal / (n - 1)
        found = g[drawn_rows]
        exact = means[count:] - diagonal[drawn_rows] / (n - 1)
        factor = jackknife_factor(n)
        everyone = np.arange(self.models)
        stratum = ResidualSample(n, found, exact - found, everyone, factor, weights)
        values = g.mean(axis=0)
        best = int(np.argmin(values))
        yardstick = split_half_discrepancy(
            float(diagonal[:, best].sum()), n, float(values[best]), n
        )
        estimates = Estimates(values, as_jackknife(Psi(centred(g))), yardstick=yardstick)
        estimates = self.rows.with_second_order(estimates, seed)
        return correct_with_residuals(estimates, [stratum], count)


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
