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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtr

from relfit.util.arrays import Array, Mask, Rows
from relfit.util.libraries import usable_cores

DRAWS = 4000
# Draws are added while a p-value is within this many of its standard errors of α, which is wrong
# about the verdict once in a thousand times; and the most draws that are made for that.
_CERTAIN = 3.29
MOST_DRAWS = 200_000
# The numbers that all added draws of the first- and second-order parts have, at most.
_MOST_NUMBERS = 10_000_000
# Rounds in which the contenders and the law at their common value are found in turn.
_ROUNDS = 4
# Components of the quadratic part that are drawn; more are nearly normal.
_MOST_COMPONENTS = 20
# Random numbers from which on another thread is worth its start.
_FEWEST_NUMBERS = 2**16
# A difference counts as first order where it is this many times the noise of V − 2·S2.
_SIGNAL = 2.0
# The variance along a direction is at most 4 ‖δ‖² times that of all directions together.
_MOST_ALONG = 4.0
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

    @cached_property
    def together(self) -> Array:
        """(l, l) the correlations of the second-order parts."""
        return _ratio(self.second, np.outer(self.noise, self.noise))

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
        variance = _contrasts(self.first)
        second = _contrasts(self.second)
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

    def cumulants(self, values: Array, covariance: Array) -> Array:
        """(l, l) third cumulants κ(D̂_i, D̂_i, D̂_j) that give intervals for differences the
        right length on either side.

        To those of the rows come those of a squared length, whose variance follows its
        estimate: with A the first-order part of the `covariance` of these values and N =
        D̂_i − D̂_j, T ≈ z − γz²/3 for ``γ Var(N)^{3/2} = ¾((A_ii − A_ij)²/D_i − (A_jj −
        A_ij)²/D_j)``, twice of which comes from the variance and minus once from the
        quadratic part along δ.
        """
        first = covariance - self.second
        variance = np.diag(first)[:, None]
        lengths = self.lengths(values)[:, None]
        # Divided first: squares of very large variances do not fit into float64.
        extra = (2.0 * variance - first) * _ratio(first, lengths) / 4.0
        np.fill_diagonal(extra, 0.75 * (variance * _ratio(variance, lengths))[:, 0])
        return self.third + extra

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
        along = max(float(weights @ _ratio(np.diag(self.first), self.trace)), 0.0)
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
            variance > 0.0, np.maximum(1.0 - np.square(_ratio(noise, variance)), 0.0), 0.0
        )

    def _kept(self, variance: Array, second: Array) -> Array:
        """How much of V − 2·S2 is kept for differences: more where two models err together."""
        return np.maximum(self._signal(variance, second), self.alike)

    def _at_tie(self, values: Array, margin: float) -> _Tie:
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
        moved = _ratio(size, size + doubt * (whole[:, None] + whole) / 2.0)
        own = _ratio(common + margin, lengths)[:, None] ** (moved / 2.0)
        other = _ratio(common[:, None], lengths[None]) ** (moved / 2.0)

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
        return _Tie(covariance, variances, own_cubes - other_cubes - 3.0 * mixed)

    def _to_draw(self, values: Array, tie: float, moved: Array, kept: Array) -> Array:
        """(l, l) the covariance of first-order parts where all models tie.

        Draws are divided by their own standard deviations, so that one covariance serves
        every margin.
        """
        apart = ~np.eye(len(values), dtype=bool)
        lengths = self.lengths(values)
        ratio = _ratio(np.full(len(values), float(self._weights() @ lengths)), lengths)
        scale = ratio ** (float(moved[apart].mean()) / 2.0)
        rows = scale[:, None] * self.first * scale
        pooled = self._pooled(values, np.full(len(values), tie))
        return np.asarray(pooled + float(kept[apart].mean()) * (rows - pooled))

    def test(
        self,
        values: Array,
        varies: Mask,
        margin: float,
        lowest: float,
        drawing: Drawing,
    ) -> tuple[Array, Array]:
        """The max-t test of "D_i ≤ min_j D_j + δ" for every i: log p (l,), and the ratios
        (l, l).

        ``T_i = max_j (D̂_i − D̂_j − δ)/s_ij`` over the contenders j, whose ratio is above
        `lowest`; s_ij is the standard error of D̂_i − D̂_j where the hypothesis is tightest,
        and T_i is compared with the same maximum of the draws. `varies` (l, l) marks the
        differences that have a variance.
        """
        count = len(values)
        everyone = np.arange(count)
        log_p = np.zeros(count)
        ratios = np.full((count, count), -math.inf)
        apart = np.maximum(_contrasts(self.second), 0.0)
        # Models often have the same contenders.
        laws: dict[bytes, _Tie] = {}
        for i in range(count):
            others = varies[i]
            contenders: Mask = others
            if not others.any():
                continue
            gap = values[i] - values - margin
            for _ in range(_ROUNDS):
                models = np.flatnonzero(contenders | (everyone == i))
                place = int(np.flatnonzero(models == i)[0])
                key = models.tobytes()
                if key not in laws:
                    laws[key] = self.at(models)._at_tie(values[models], margin)
                tie = laws[key]
                # A model that is left out has its second-order part only, and a pair without
                # variance drops out.
                error = np.sqrt(apart[i])
                error[models] = np.sqrt(tie.variances[place] + apart[i, models])
                skewness = np.zeros(count)
                skewness[models] = _ratio(tie.cumulants[place], error[models] ** 3)
                plain = np.where(others, _ratio(gap, error, -math.inf), -math.inf)
                ratio = skewed(plain, skewness)
                before = contenders
                contenders = contenders & (ratio > lowest)
                if not contenders.any() or (contenders == before).all():
                    break
            ratios[i] = ratio
            if contenders.any():
                compared = np.zeros((len(models), len(models)), dtype=bool)
                compared[place] = contenders[models]
                statistic = float(ratio[contenders].max())
                log_p[i] = drawing.log_pvalue(models, tie.covariance, compared, statistic)
        return log_p, ratios

    def step_down(
        self,
        values: Array,
        varies: Mask,
        margin: float,
        lowest: float,
        drawing: Drawing,
    ) -> Array:
        """(l,) log adjusted p of "D_i ≤ min_j D_j + δ", for all models together.

        With probability 1 − α no model for which this holds has an adjusted p ≤ α. At every
        step all models that are left tie. The largest ratio (D̂_i − D̂_j − δ)/s_ij among them
        is compared with the draws of the largest one over the pairs whose own ratio is above
        `lowest`; then its model i leaves. Adjusted p-values are the largest ones up to a
        model's own step.
        """
        adjusted = np.zeros(len(values))
        apart = np.maximum(_contrasts(self.second), 0.0)
        left = np.flatnonzero(varies.any(axis=1))
        largest = -math.inf
        while len(left) > 1:
            both = np.ix_(left, left)
            tie = self.at(left)._at_tie(values[left], margin)
            error = np.sqrt(tie.variances + apart[both])
            gap = values[left][:, None] - values[left] - margin
            plain = np.where(varies[both], _ratio(gap, error, -math.inf), -math.inf)
            ratio = skewed(plain, _ratio(tie.cumulants, error**3))
            first = int(ratio.max(axis=1).argmax())
            statistic = float(ratio[first].max())
            compared = varies[both] & (ratio > lowest)
            log_p = drawing.log_pvalue(left, tie.covariance, compared, statistic)
            largest = max(largest, log_p)
            adjusted[left[first]] = largest
            left = np.delete(left, first)
        return adjusted

    def _second(self, noise: Noise) -> Array:
        """(l, draws) draws of the second-order parts."""
        size = np.where(self.noise > 0.0, self.noise, 1.0)
        correlation = self.second / np.outer(size, size)
        root = _root(np.sqrt(np.clip(correlation, 0.0, 1.0)))
        root = root * _ratio(np.ones(len(root)), np.linalg.norm(root, axis=1))[:, None]
        count = self.drawn
        part = min((count / self.components) ** (1.0 / 3.0), 1.0)
        draws = np.full((len(root), DRAWS), -float(count))
        for z in noise.components[:count]:
            draws += np.square(root @ z)
        draws *= math.sqrt(part / (2.0 * count))
        rest = _root(correlation - part * np.square(root @ root.T)) @ noise.rest
        return np.asarray((draws + rest) * self.noise[:, None])


class _Tie(NamedTuple):
    """The law of models that tie, with a margin.

    Attributes:
        covariance: (l, l) that of the first-order parts, to draw from.
        variances: (l, l) the first-order variances of D̂_i − D̂_j.
        cumulants: (l, l) their third cumulants.
    """

    covariance: Array
    variances: Array
    cumulants: Array


class _Batch(NamedTuple):
    """Draws of first-order parts with unit variances, of second-order parts, and of √(χ²/ν)
    for every number of degrees of freedom ν.
    """

    normal: Array
    second: Array
    chi: Array


class Drawing:
    """Maxima of drawn ratios, for tests of the same models.

    `freedom` (l,) are the degrees of freedom of the models' variances. Near `alpha` p-values
    get more draws.
    """

    def __init__(
        self, law: CloseLaw, noise: Noise, freedom: Array, alpha: float | None = None
    ) -> None:
        self.sizes, self.places = np.unique(freedom, return_inverse=True)
        self.freedom = freedom
        self.law = law
        self.noise = noise
        self.alpha = alpha
        self.made: list[_Batch] = []
        most = min(MOST_DRAWS, _MOST_NUMBERS // (2 * len(freedom)))
        self.most = max(1, most // DRAWS) if alpha is not None else 1

    def batches(self) -> Iterator[_Batch]:
        """The batches of draws that have been made, and then new ones."""
        for place in range(self.most):
            if place == len(self.made):
                noise = self.noise if place == 0 else self.noise.more()
                second = self.law._second(noise)
                self.made.append(_Batch(noise.normal, second, noise.chi(self.sizes)))
            yield self.made[place]

    def log_pvalue(
        self, models: Rows, covariance: Array, compared: Mask, statistic: float
    ) -> float:
        """log P(max (D̂_i − D̂_j)/s_ij ≥ T) over the pairs of these models that are compared,
        with this covariance of their first-order parts.
        """
        freedom = self.freedom[models]
        degrees = np.minimum(freedom[:, None], freedom)
        if not compared.any():
            return 0.0
        # Beyond the draws, tails are Student's: there the first-order part is the larger one.
        union = float(stdtr(degrees[compared], -statistic).sum())
        if union <= 1.0 / (1.0 + DRAWS):
            return math.log(max(union, 5e-324))
        root = _root(covariance)
        reached = 0
        made = 0
        for batch in self.batches():
            draws = batch.second[models] + root @ batch.normal[models]
            top = self._largest(draws, compared, batch.chi, self.places[models])
            reached += int((top >= statistic).sum())
            made += len(top)
            if not undecided(reached, made, self.alpha):
                break
        return math.log((1 + reached) / (1 + made))

    @staticmethod
    def _largest(draws: Array, compared: Mask, chi: Array, places: Rows) -> Array:
        """(draws,) the largest (G_i − G_j)/s_ij of the pairs that are compared.

        The standard errors are estimates, too: each is multiplied by √(χ²/ν) of the model
        with the fewer degrees of freedom, whose row of `chi` comes first.
        """
        top = np.full(draws.shape[1], -math.inf)
        covariance = np.atleast_2d(np.cov(draws, bias=True))
        spread = np.sqrt(np.maximum(_contrasts(covariance), 0.0))
        pairs = np.argwhere(np.triu((compared | compared.T) & (spread > 0.0), 1))
        for i, j in pairs.tolist():
            size = draws[i] - draws[j]
            size /= spread[i, j] * chi[min(places[i], places[j])]
            if compared[i, j] and compared[j, i]:
                np.abs(size, out=size)
            elif compared[j, i]:
                np.negative(size, out=size)
            np.maximum(top, size, out=top)
        return top


@dataclass(frozen=True, eq=False)
class Noise:
    """The random numbers of the law. Each rank of the estimates has its own, so that they
    follow the models when these are permuted.

    Attributes:
        normal, rest: (l, draws) standard normal numbers for the first-order parts, and for
        what the components leave.
        components: one such array for each component.
        quantiles: (draws,) uniform numbers for the standard errors, which are estimates, too.
        more: gives other numbers from the same generators.
    """

    normal: Array
    rest: Array
    components: Sequence[Array]
    quantiles: Array
    more: Callable[[], Noise]

    @classmethod
    def drawn(
        cls, models: Sequence[np.random.Generator], reference: np.random.Generator, count: int
    ) -> Noise:
        """Numbers from the generators of the models and of the reference, for this many
        components.

        Threads fill the rows of generators that are not the same.
        """
        numbers = np.empty((len(models), 2 + count, DRAWS))
        threads = min(
            usable_cores(), len(set(map(id, models))), numbers.size // _FEWEST_NUMBERS
        )
        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            list(
                (pool.map if pool else map)(
                    lambda rng, row: rng.standard_normal(out=row), models, numbers
                )
            )
        normal, rest, *components = numbers.transpose(1, 0, 2)
        quantiles = reference.uniform(size=DRAWS)
        return cls(
            normal, rest, components, quantiles, lambda: cls.drawn(models, reference, count)
        )

    def chi(self, freedom: Array) -> Array:
        """(k, draws) values of √(χ²/ν) for k degrees of freedom ν: all grow together."""
        # Wilson and Hilferty's cube, within 1% of χ²/ν for ν ≥ 3.
        spread = 2.0 / (9.0 * np.maximum(freedom, 1.0))[:, None]
        return np.asarray(
            np.maximum(1.0 - spread + ndtri(self.quantiles) * np.sqrt(spread), 0.05) ** 1.5
        )


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


def _contrasts(covariance: Array) -> Array:
    """(l, l) the variances of the differences."""
    diagonal = np.diag(covariance)
    return np.asarray(diagonal[:, None] + diagonal - 2.0 * covariance)


def _ratio(a: Array, b: Array, otherwise: float = 0.0) -> Array:
    """a/b, and `otherwise` where b is not positive."""
    positive = b > 0.0
    return np.where(positive, a / np.where(positive, b, 1.0), otherwise)


def _positive(covariance: Array, units: Array) -> Array:
    """A symmetric matrix without its negative eigenvalues, which are those of the matrix in
    these units.
    """
    safe = np.where(units > 0.0, units, 1.0)
    root = units[:, None] * _root(covariance / safe / safe[:, None])
    return np.asarray(root @ root.T)


def _root(covariance: Array) -> Array:
    sizes, axes = np.linalg.eigh((covariance + covariance.T) / 2.0)
    return np.asarray((axes * np.sqrt(np.maximum(sizes, 0.0))) @ axes.T)
