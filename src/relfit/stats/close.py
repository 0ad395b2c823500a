"""The law of estimated squared distances: close to 0, where estimates are not normal, far
from it, and in between.

MMD² and KSD² are squared lengths D_i = ‖δ_i‖² in the kernel's feature space, and the
estimate of δ_i has an error e_i:

    D̂_i = D_i + 2 δ_i·e_i + (‖e_i‖² − its mean).

The second term is of first order: its variance is in proportion to D_i. The third is of
second order: a quadratic form that remains when D_i is 0. First-order theory takes V, the
covariance of the ψ rows, for that of D̂; but V holds the second-order covariance S2 twice,
and for models close to the data nothing else. The law here has both parts, each once:

- *First order.* V − 2·S2 is unbiased for its covariance, but that of a single model is mostly
  noise, and follows its D̂. So it is pooled: the variance along δ_i is ω t_i D_i with t_i the
  mean of ‖e_i‖², two models share c √(D_i D_j), and ω and c are ratios of sums over the
  models. A difference whose own V − 2·S2 stands out from its noise keeps it, and so do models
  that err together (their S2 are correlated, as those of KSD are, whose models share the
  rows).
- *Second order.* With errors of K equal and independent components, ‖e_i‖² − mean has a law
  that K and S2 determine: the sum of K squares of normal numbers with correlations
  √(S2_ij/√(S2_ii S2_jj)). K is chosen to give it the skewness that ‖e‖² has. Beyond 20
  components some of the variance is taken for normal instead, which has the same skewness.

*The level.* H_i says that model i is no worse than any other. Where it is tightest, i ties
with its contenders, all their D equal D_0, and their first-order variances are D_0 ω t_j,
whatever the estimates are. So the variance of a difference is taken there, with D_0 the mean
of the contenders' estimates, each with a weight in proportion to its size. A model whose D̂ is
low by chance has a low V, too; on the common value that dependence is gone, as it would be for
the lengths √D̂. Where D̂ is not well above its own error and the two models err together, V
does not follow D̂, and the rows stay as they are. With a margin δ, i is δ above the others.

*Skewness.* With few rows that decide, differences are skewed. γ is the third cumulant of
D̂_i − D̂_j over the cube of its standard error, and T becomes ``T + γT²/3 + γ²T³/27 + γ/6``
(Hall 1992) wherever that is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from relfit.util.arrays import Array, Mask, Rows
from relfit.util.libraries import usable_cores

DRAWS = 4000
# Draws are added while a p-value is within this many of its standard errors of α, which is wrong
# about the verdict once in a thousand times; and the most draws that are made for that.
_CERTAIN = 3.29
MOST_DRAWS = 200_000
# The pairs of models of all draws that are made near α, at most.
_MOST_PAIRS = 100_000_000
# Components of the quadratic part that are drawn; more are nearly normal.
_MOST_COMPONENTS = 8
# Random numbers from which on another thread is worth its start.
_FEWEST_NUMBERS = 2**18
# A difference counts as first order where it is this many times the noise of V − 2·S2.
_SIGNAL = 2.0
# The variance along a direction is at most 4 ‖δ‖² times that of all directions together.
_MOST_ALONG = 4.0
# A smaller skewness is none; and the largest exponent of a bound that it moves.
_NO_SKEWNESS = 1e-9
_MOST_EXPONENT = 50.0
# Correlation of second-order parts up to which two models err apart: that of independent
# samples of one size.
_APART = 0.25


@dataclass(frozen=True, eq=False)
class CloseLaw:
    """What the law of l estimated squared distances is made of.

    Attributes:
        first: (l, l) V − 2·S2, unbiased for the covariance of the first-order parts.
        second: (l, l) S2.
        trace: (l,) the mean of ‖e_i‖².
        components: K, of the quadratic part.
        third: (l, l) the third cumulants κ(D̂_i, D̂_i, D̂_j) of the first-order parts.
        spread: (l,) 1/n + 1/m_i for samples, to which the variance of e_i is in proportion; all
            1 for densities.
    """

    first: Array
    second: Array
    trace: Array
    components: float
    third: Array
    spread: Array

    def at(self, index: Sequence[int] | Rows) -> CloseLaw:
        """The law of the models at these places."""
        index = np.asarray(index)
        both = index[:, None], index
        return replace(
            self,
            first=self.first[both],
            second=self.second[both],
            trace=self.trace[index],
            third=self.third[both],
            spread=self.spread[index],
        )

    @property
    def drawn(self) -> int:
        """The components that are drawn."""
        return round(min(max(self.components, 1.0), float(_MOST_COMPONENTS)))

    @cached_property
    def noise(self) -> Array:
        """(l,) the standard deviations of the second-order parts."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.second), 0.0)))

    @property
    def unit(self) -> float:
        """A power of 2 near the largest standard deviation of the estimates."""
        variances = np.abs(np.diag(self.first)) + np.diag(self.second)
        largest = math.sqrt(float(np.abs(variances).max()))
        return math.ldexp(1.0, math.frexp(largest)[1]) if largest > 0.0 else 1.0

    @cached_property
    def together(self) -> Array:
        """(l, l) the correlations of the second-order parts."""
        return quotient(self.second, np.outer(self.noise, self.noise))

    @cached_property
    def alike(self) -> Array:
        """(l, l) how far two models err together: 0 for independent samples of one size, 1
        for copies.
        """
        return np.minimum(np.maximum((self.together - _APART) / (1.0 - _APART), 0.0), 1.0)

    def lengths(self, values: Array) -> Array:
        """(l,) the values, made positive where they are not well above the second-order
        part.
        """
        return np.asarray((values + np.sqrt(values**2 + self.noise**2)) / 2.0)

    def covariance(self, values: Array) -> Array:
        """(l, l) the covariance of the estimates, with the values for the truth.

        Where noise explains how much the values differ, the first-order parts are those of
        their mean.
        """
        if len(values) == 1:
            return np.maximum(self.first, 0.0) + self.second
        apart = ~np.eye(len(values), dtype=bool)
        variance = contrasts(self.first)
        second = contrasts(self.second)
        noise = float((np.maximum(variance, 0.0) + second)[apart].mean()) / 2.0
        spread = float(values.var(ddof=1))
        real = max(1.0 - noise / spread, 0.0) if spread > 0.0 else 0.0
        at = np.maximum(values.mean() + real * (values - values.mean()), 0.0)
        # Models far off must not lift the others by more than their noise.
        at = np.minimum(at, np.maximum(values, 0.0) + self.noise)
        pooled = self._pooled(values, at)
        kept = self._kept(variance, second)
        # A model's own variance goes with those of its differences, where it errs together with
        # others.
        own = np.where(apart, self.alike, 0.0).max(axis=1)
        stands_out = self._signal(np.diag(self.first), np.diag(self.second))
        np.fill_diagonal(kept, np.maximum(stands_out, own))
        # Eigenvalues are compared in units of plain standard errors, which may differ by far
        # and are never 0.
        units = np.sqrt(np.maximum(np.diag(self.first) + 2.0 * np.diag(self.second), 0.0))
        return _positive(pooled + kept * (self.first - pooled), units) + self.second

    def follows(self, values: Array, covariance: Array) -> Array:
        """(l, l) third cumulants κ(D̂_i, D̂_i, D̂_j) that stand for variances which follow their
        estimates: that of a squared length is in proportion to it.

        With A the first-order part of the `covariance` of these values and N = D̂_i − D̂_j, T ≈
        z − γz²/3 for ``γ Var(N)^{3/2} = ¾((A_ii − A_ij)²/D_i − (A_jj − A_ij)²/D_j)``, twice
        of which comes from the variance and minus once from the quadratic part along δ.
        """
        first = covariance - self.second
        variance = np.diag(first)[:, None]
        lengths = self.lengths(values)[:, None]
        # Divided first: squares of very large variances do not fit into float64.
        extra = (2.0 * variance - first) * quotient(first, lengths) / 4.0
        np.fill_diagonal(extra, 0.75 * (variance * quotient(variance, lengths))[:, 0])
        return np.asarray(extra)

    def _weights(self) -> Array:
        """(l,) the models' weights in means over the models: large samples have larger ones."""
        weights = 1.0 / self.spread
        return np.asarray(weights / weights.sum())

    def _slopes(self, values: Array) -> tuple[float, float]:
        """ω and c: the first-order variance of a model is ω t_i D_i, and two models share
        c √(D_i D_j).
        """
        weights = self._weights()
        length = float(weights @ np.maximum(values, 0.0))
        if length == 0.0:
            return _MOST_ALONG, 0.0
        apart = ~np.eye(len(values), dtype=bool)
        along = max(float(weights @ quotient(np.diag(self.first), self.trace)), 0.0)
        shared = max(float(self.first[apart].mean()), 0.0)
        return min(along / length, _MOST_ALONG), shared / length

    def _pooled(self, values: Array, at: Array) -> Array:
        """(l, l) the covariance of first-order parts, pooled over the models, if their
        squared distances are `at`.
        """
        along, shared = self._slopes(values)
        root = np.sqrt(along * self.trace * at)
        length = np.sqrt(at)
        covariance = np.minimum(shared * np.outer(length, length), np.outer(root, root))
        np.fill_diagonal(covariance, np.square(root))
        return np.asarray(covariance)

    def _pooled_contrasts(self, values: Array, tie: Array, margin: float) -> Array:
        """(l, l) the first-order variances of D̂_i − D̂_j, pooled over the models, if D_j is
        `tie` (l,) of i, and D_i is that and the margin.
        """
        along, shared = self._slopes(values)
        own = along * self.trace * (tie + margin)
        others = along * np.outer(tie, self.trace)
        common = shared * np.sqrt(tie * (tie + margin))
        most = np.sqrt(own[:, None] * others)
        sizes = own[:, None] + others
        return np.asarray(np.maximum(sizes - 2.0 * np.minimum(common[:, None], most), 0.0))

    def _signal(self, variance: Array, second: Array) -> Array:
        """How far V − 2·S2 with these variances stands out from its noise, which follows the
        second-order variances: 0 to 1.
        """
        noise = _SIGNAL * 2.0 * math.sqrt(2.0 / self.components) * second
        return np.where(
            variance > 0.0, np.maximum(1.0 - np.square(quotient(noise, variance)), 0.0), 0.0
        )

    def _kept(self, variance: Array, second: Array) -> Array:
        """How much of V − 2·S2 is kept for differences: more where two models err together."""
        return np.maximum(self._signal(variance, second), self.alike)

    def tie(self, values: Array, margin: float) -> Tie:
        """The law of the differences D̂_i − D̂_j where the hypothesis about i is tightest: all
        models tie, but for i, which is the margin above them.
        """
        weights = self._weights()
        mean = float(weights @ values)
        tie = np.maximum(mean - weights * margin, 0.0)
        lengths = self.lengths(values)
        lowered = weights * (lengths - self.lengths(values - margin))
        common = float(weights @ lengths) - lowered
        # Rows go to the common value as far as V follows D̂.
        whole = np.diag(self.first) + 2.0 * np.diag(self.second)
        doubt = self.alike / (4.0 * np.maximum(1.0 - self.together, 1e-9))
        size = np.square((lengths[:, None] + lengths) / 2.0)
        moved = quotient(size, size + doubt * (whole[:, None] + whole) / 2.0)
        own = quotient(common + margin, lengths)[:, None] ** (moved / 2.0)
        other = quotient(common[:, None], lengths[None]) ** (moved / 2.0)

        def contrasts(matrix: Array) -> Array:
            diagonal = np.diag(matrix)
            return np.asarray(
                own**2 * diagonal[:, None] + other**2 * diagonal - 2.0 * own * other * matrix
            )

        variance = np.maximum(contrasts(self.first), 0.0)
        kept = self._kept(variance, np.maximum(contrasts(self.second), 0.0))
        expected = self._pooled_contrasts(values, tie, margin)
        # Never less than the pooled one: what few rows decide has too small a variance where
        # those rows are missing.
        variances = expected + kept * np.maximum(variance - expected, 0.0)
        own_cubes = own**3 * np.diag(self.third)[:, None]
        other_cubes = other**3 * np.diag(self.third)
        mixed = own * other * (own * self.third - other * self.third.T)
        covariance = self._to_draw(values, max(mean, 0.0), moved, kept)
        return Tie(covariance, variances, own_cubes - other_cubes - 3.0 * mixed)

    def _to_draw(self, values: Array, tie: float, moved: Array, kept: Array) -> Array:
        """(l, l) the covariance of first-order parts where all models tie.

        Draws are divided by their own standard deviations, so that one covariance serves
        every margin.
        """
        apart = ~np.eye(len(values), dtype=bool)
        lengths = self.lengths(values)
        ratio = quotient(np.full(len(values), float(self._weights() @ lengths)), lengths)
        scale = ratio ** (float(moved[apart].mean()) / 2.0)
        rows = scale[:, None] * self.first * scale
        pooled = self._pooled(values, np.full(len(values), tie))
        return np.asarray(pooled + float(kept[apart].mean()) * (rows - pooled))

    def second_order(self, noise: Noise, unit: float) -> Array:
        """(l, draws) draws of the second-order parts, in these units."""
        size = np.where(self.noise > 0.0, self.noise, 1.0)
        correlation = self.second / np.outer(size, size)
        root = square_root(np.sqrt(np.clip(correlation, 0.0, 1.0)))
        root = root * quotient(np.ones(len(root)), np.linalg.norm(root, axis=1))[:, None]
        count = self.drawn
        part = min((count / self.components) ** (1.0 / 3.0), 1.0)
        number = noise.normal.dtype
        draws = np.full((len(root), noise.normal.shape[1]), -float(count), dtype=number)
        for z in noise.components[:count]:
            draws += np.square(root.astype(number) @ z)
        draws *= math.sqrt(part / (2.0 * count))
        remainder = square_root(correlation - part * np.square(root @ root.T))
        draws += remainder.astype(number) @ noise.rest
        draws *= (self.noise / unit)[:, None].astype(number)
        return draws


class Tie(NamedTuple):
    """The law of models that tie, with a margin.

    Attributes:
        covariance: (l, l) that of the first-order parts, to draw from.
        variances: (l, l) the first-order variances of D̂_i − D̂_j.
        cumulants: (l, l) their third cumulants.
    """

    covariance: Array
    variances: Array
    cumulants: Array


@dataclass(frozen=True, eq=False)
class Noise:
    """The random numbers of the law. Each rank of the estimates has its own, so that they
    follow the models when these are permuted.

    Attributes:
        normal, rest: (l, draws) standard normal numbers for the first-order parts, and for
        what the components leave.
        components: one such array for each component.
        quantiles: (draws,) uniform numbers for the standard errors, which are estimates, too.

    All are in single precision, which is far finer than the draws are.
    """

    normal: Any
    rest: Any
    components: Sequence[Any]
    quantiles: Array

    @classmethod
    def drawn(
        cls, models: Sequence[np.random.Generator], reference: np.random.Generator, count: int
    ) -> Noise:
        """The next numbers from the generators of the models and of the reference, for this
        many components.

        Threads fill the rows of generators that are not the same.
        """
        numbers = np.empty((len(models), 2 + count, DRAWS), dtype=np.float32)
        threads = min(
            usable_cores(), len(set(map(id, models))), numbers.size // _FEWEST_NUMBERS
        )
        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            list(
                (pool.map if pool else map)(
                    lambda rng, row: rng.standard_normal(out=row, dtype=np.float32),
                    models,
                    numbers,
                )
            )
        normal, rest, *components = numbers.transpose(1, 0, 2)
        return cls(normal, rest, components, reference.uniform(size=DRAWS))

    def times(self, weight: float) -> Noise:
        """The same numbers, those of the models multiplied by a weight."""
        return replace(
            self,
            normal=weight * self.normal,
            rest=weight * self.rest,
            components=[weight * z for z in self.components],
        )

    def plus(self, other: Noise) -> Noise:
        """The sums of the models' numbers."""
        return replace(
            self,
            normal=self.normal + other.normal,
            rest=self.rest + other.rest,
            components=[a + b for a, b in zip(self.components, other.components, strict=True)],
        )

    def chi(self, freedom: Array) -> Array:
        """(k, draws) values of √(χ²/ν) for k degrees of freedom ν: all grow together."""
        # Wilson and Hilferty's cube, within 1% of χ²/ν for ν ≥ 3.
        spread = 2.0 / (9.0 * np.maximum(freedom, 1.0))[:, None]
        chi = np.maximum(1.0 - spread + ndtri(self.quantiles) * np.sqrt(spread), 0.05) ** 1.5
        return np.asarray(chi.astype(np.float32))


def noise_batches(
    models: Sequence[np.random.Generator],
    reference: np.random.Generator,
    count: int,
    mixing: Array,
) -> list[Callable[[int], Noise]]:
    """For every kernel a function from the number of a batch to its random numbers.

    `mixing` (k, k) is a root of the kernels' correlations: the numbers of different kernels
    have those correlations. Only the last batch is kept: the kernels take theirs in turn.
    """
    last: list[Noise] = []
    drawn = 0

    def numbers(batch: int, kernel: int) -> Noise:
        nonlocal drawn
        while drawn <= batch:
            each = [Noise.drawn(models, reference, count) for _ in mixing]
            last[:] = [_mixed(each, weights.tolist()) for weights in mixing]
            drawn += 1
        return last[kernel]

    return [partial(numbers, kernel=kernel) for kernel in range(len(mixing))]


def _mixed(each: Sequence[Noise], weights: Sequence[float]) -> Noise:
    if len(each) == 1:
        return each[0]
    parts = [noise.times(weight) for noise, weight in zip(each, weights, strict=True)]
    return reduce(Noise.plus, parts)


def most_draws(models: int) -> int:
    """How many draws are made near α at most, for this many models."""
    return min(MOST_DRAWS, _MOST_PAIRS // models**2)


def undecided(
    reached: Array | Rows | int, made: Array | Rows | int, alpha: float | None
) -> Mask:
    """Whether (1 + reached)/(1 + made) is too near to α for a verdict that is certain at
    10⁻³; never without α.
    """
    if alpha is None:
        return np.zeros(np.shape(reached), dtype=bool)
    p = (1.0 + np.asarray(reached)) / (1.0 + np.asarray(made))
    return np.asarray(np.abs(p - alpha) < _CERTAIN * np.sqrt(p * (1.0 - p) / made))


def skewed(ratio: Array, skewness: Array) -> Array:
    """Ratios T of differences to standard errors, with Hall's correction for their skewness
    γ where it lowers them.

    ``g(T) = ((1 + γT/3)³ − 1)/γ + γ/6 = T + γT²/3 + γ²T³/27 + γ/6`` grows with T and is
    nearly normal.

    >>> skewed(np.array([2.0, 2.0]), np.array([-0.3, 0.3])).round(3).tolist()
    [1.577, 2.0]
    """
    finite = np.where(np.isfinite(ratio), ratio, 0.0)
    hall = finite + skewness * finite**2 / 3.0 + skewness**2 * finite**3 / 27.0 + skewness / 6.0
    return np.where(np.isfinite(ratio), np.minimum(finite, hall), ratio)


def followed(ratio: Array, skewness: Array) -> Array:
    """Ratios T whose standard errors follow the estimates, T ≈ z − γz²/3, as z: T =
    (1 − e^{−bz})/b, b = 2γ/3, which grows with z.
    """
    finite = np.where(np.isfinite(ratio), ratio, 0.0)
    slope = np.where(np.abs(skewness) > _NO_SKEWNESS, 2.0 / 3.0 * skewness, 1.0)
    moved = -np.log1p(-np.minimum(slope * finite, 1.0 - 1e-9)) / slope
    known = np.isfinite(ratio) & (np.abs(skewness) > _NO_SKEWNESS)
    return np.where(known, moved, ratio)


def unfollowed(points: Array, skewness: Array) -> Array:
    """The T at which `followed` reaches these points.

    >>> T = np.array([-1.5, 0.3, 4.0])
    >>> bool(np.allclose(unfollowed(followed(T, -0.4 + 0 * T), -0.4 + 0 * T), T))
    True
    """
    finite = np.where(np.isfinite(points), points, 0.0)
    slope = np.where(np.abs(skewness) > _NO_SKEWNESS, 2.0 / 3.0 * skewness, 1.0)
    moved = -np.expm1(np.minimum(-slope * finite, _MOST_EXPONENT)) / slope
    known = np.isfinite(points) & (np.abs(skewness) > _NO_SKEWNESS)
    return np.where(known, moved, points)


def reach(critical: Array, skewness: Array) -> Array:
    """The T at which `skewed` reaches a critical value: how many standard errors a bound is
    away.

    >>> reach(np.array([1.577, 2.0]), np.array([-0.3, 0.3])).round(2).tolist()
    [2.0, 2.0]
    >>> reach(np.array([2.0, 2.0]), np.array([-3e-16, -1e-9])).round(6).tolist()
    [2.0, 2.0]
    """
    finite = np.isfinite(critical)
    centred = np.where(finite, critical, 0.0) - skewness / 6.0
    root = np.cbrt(1.0 + skewness * centred)
    # (root − 1)·3/γ, written so that nothing cancels where the skewness is a rounding error.
    hall = 3.0 * centred / (root**2 + root + 1.0)
    return np.where((skewness < 0.0) & finite, np.maximum(critical, hall), critical)


def contrasts(covariance: Array) -> Array:
    """(l, l) the variances of the differences."""
    diagonal = np.diag(covariance)
    return np.asarray(diagonal[:, None] + diagonal - 2.0 * covariance)


def quotient(a: Array, b: Array, otherwise: float = 0.0) -> Array:
    """a/b, and `otherwise` where b is not positive."""
    positive = b > 0.0
    return np.where(positive, a / np.where(positive, b, 1.0), otherwise)


def _positive(covariance: Array, units: Array) -> Array:
    """A symmetric matrix without its negative eigenvalues, which are those of the matrix in
    these units.
    """
    safe = np.where(units > 0.0, units, 1.0)
    root = units[:, None] * square_root(covariance / safe / safe[:, None])
    return np.asarray(root @ root.T)


def square_root(covariance: Array) -> Array:
    """The symmetric root of a covariance, without its negative eigenvalues."""
    sizes, axes = np.linalg.eigh((covariance + covariance.T) / 2.0)
    return np.asarray((axes * np.sqrt(np.maximum(sizes, 0.0))) @ axes.T)
