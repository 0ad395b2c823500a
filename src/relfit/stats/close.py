"""The law of estimated squared distances: close to 0, where estimates are not normal, far
from it, and in between.

MMD² and KSD² are squared lengths D_i = ‖δ_i‖² in the kernel's feature space, and the
estimate of δ_i has an error e_i:

    D̂_i = D_i + 2 δ_i·e_i + (‖e_i‖² − its mean).

The second term is of first order: its variance is in proportion to D_i. The third is of
second order: a quadratic form that remains when D_i is 0. First-order theory takes V, the
covariance of the ψ rows, for that of D̂; but V holds the second-order covariance S2 twice,
and for models close to the data nothing else. The law here has both parts, each once:

- *First order.* V − 2·S2 is unbiased for its covariance, and for that of any difference of two
  models, which its noise follows in size. Where a difference stands out from that noise, or
  where two models err together (their S2 are correlated, as those of KSD are, whose models
  share the rows), it is used as it is. Otherwise it is pooled: the diagonal is D w_i, w_i being
  the variance along δ_i, and off the diagonal V − 2·S2 is shrunk towards its mean.
- *Second order.* With errors of K equal and independent components, ‖e_i‖² − mean has a law
  that K and S2 determine: the sum of K squares of normal numbers with correlations
  √(S2_ij/√(S2_ii S2_jj)). K is chosen to give it the skewness that ‖e‖² has. Beyond 20
  components some of the variance is taken for normal instead, which has the same skewness.

*The level.* H_i says that model i is no worse than any other. Where it is tightest, i ties
with its contenders, all their D equal D_0, and their first-order variances are D_0 w_j,
whatever the estimates are. So the variance of a difference is taken there, with D_0 the mean
of the contenders' estimates. A model whose D̂ is low by chance has a low V, too; on the
common value that dependence is gone, as it would be for the lengths √D̂. Where D̂ is not
well above its own error and the two models err together, V does not follow D̂, and the rows
stay as they are.

*Skewness.* With few rows that decide, differences are skewed. γ is the third cumulant of
D̂_i − D̂_j over the cube of its standard error, and T becomes ``T + γT²/3 + γ²T³/27 + γ/6``
(Hall 1992) wherever that is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri, stdtr

from relfit.util.arrays import Array, Mask, Rows
from relfit.util.libraries import usable_cores

DRAWS = 4000
# Rounds in which the contenders and the law at their common value are found in turn.
_ROUNDS = 4
# Components of the quadratic part that are drawn; more are nearly normal.
_MOST_COMPONENTS = 20
# Random numbers from which on another thread is worth its start.
_FEWEST_NUMBERS = 2**16
# A difference counts as first order where it is this many times the noise of V − 2·S2.
_SIGNAL = 2.0
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
        np.fill_diagonal(
            kept, np.maximum(self._signal(np.diag(self.first), np.diag(self.second)), own)
        )
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

    def _along(self, values: Array) -> Array:
        """(l,) w_i, the first-order variance in units of D: measured far from the data.

        At the data δ̂ is noise, along which the variance is 4 tr C²/tr C, C being the
        covariance of e: 2·S2_ii/tr C. Between the two the models' mean comes first, whose
        noise is less, unless the models err together: then it does not help, and unlike
        models would share their w.
        """
        variances = np.maximum(np.diag(self.first), 0.0)
        lengths = self.lengths(values)
        count = len(values)
        at_data = _ratio(2.0 * np.diag(self.second), self.trace)
        mean = max(float(values.mean()), 0.0)
        length = (mean + math.sqrt(mean**2 + float(self.second.mean()))) / 2.0
        common = max(float(np.diag(self.first).mean()), 0.0) * (mean > 0.0) + (
            length - mean
        ) * float(at_data.mean())
        alike = np.minimum(np.maximum(2.0 * self.together - 1.0, 0.0), 1.0)
        own = float(alike.sum() - np.trace(alike)) / max(count * (count - 1), 1)
        close = (1.0 - own) * common / (length or 1.0) + own * at_data
        measured = np.where(values > 0.0, variances, 0.0)
        along = _ratio(measured + (lengths - np.maximum(values, 0.0)) * close, lengths)
        return self._by_size(along)

    def _pooled(self, values: Array, at: Array) -> Array:
        """(l, l) the covariance of first-order parts, pooled over the models, if their
        squared distances are `at`.
        """
        scale = np.sqrt(_ratio(at, self.lengths(values)))
        covariance = scale[:, None] * self.first * scale
        if len(values) > 2:
            # The noise of an entry is about twice the covariance that the second-order parts
            # share.
            apart = ~np.eye(len(values), dtype=bool)
            entries = covariance[apart]
            noise = 2.0 * float((scale[:, None] * self.second * scale)[apart].mean())
            mean = float(entries.mean())
            size = float(np.abs(entries).max()) or 1.0
            spread = size * float(
                (entries / size).std()
            )  # squares of very large ones do not fit
            kept = 1.0 - min(1.0, noise / spread) ** 2 if spread > 0.0 else 0.0
            covariance = mean + kept * (covariance - mean)
        variance = at * self._along(values)
        root = np.sqrt(variance)
        limit = root[:, None] * root
        covariance = np.asarray(np.minimum(np.maximum(covariance, -limit), limit))
        np.fill_diagonal(covariance, variance)
        return covariance

    def _signal(self, variance: Array, second: Array) -> Array:
        """How much of V − 2·S2 is kept for differences with these variances and second-order
        variances: 0 to 1.
        """
        noise = _SIGNAL * 2.0 * math.sqrt(2.0 / self.components) * second
        return np.where(
            variance > 0.0, np.maximum(1.0 - np.square(_ratio(noise, variance)), 0.0), 0.0
        )

    def _kept(self, variance: Array, second: Array) -> Array:
        """The same, and more where two models err together."""
        return np.maximum(self._signal(variance, second), self.alike)

    def _at_tie(self, values: Array, above: Array) -> tuple[Array, Array, Array]:
        """The law of the differences of the models where they all tie, but for what some are
        `above` (l,) the others.

        (l, l) each: the covariance of first-order parts to draw from, the first-order
        variances of the differences, and the third cumulants of the differences.
        """
        lengths = self.lengths(values)
        first = self.first
        second = self.second
        weights = 1.0 / self.spread
        tie = max(float(np.average(values - above, weights=weights)), 0.0) + above
        common = float(np.average(self.lengths(values - above), weights=weights)) + above
        pooled = self._pooled(values, tie)
        # Rows go to the common value as far as V follows D̂.
        whole = np.diag(first) + 2.0 * np.diag(second)
        doubt = self.alike / (4.0 * np.maximum(1.0 - self.together, 1e-9))
        size = np.square((lengths[:, None] + lengths) / 2.0)
        moved = _ratio(size, size + doubt * (whole[:, None] + whole) / 2.0)
        ratio = _ratio(common, lengths)
        # `moved` is symmetric.
        own = ratio[:, None] ** (moved / 2.0)
        other = own.T

        def contrasts(matrix: Array) -> Array:
            diagonal = np.diag(matrix)
            return np.asarray(
                own**2 * diagonal[:, None] + other**2 * diagonal - 2.0 * own * other * matrix
            )

        variance = contrasts(first)
        shared = np.maximum(contrasts(second), 0.0)
        expected = _contrasts(pooled)
        kept = self._kept(variance, shared)
        noise = _SIGNAL * 2.0 * math.sqrt(2.0 / self.components) * shared
        variances = np.maximum(expected + kept * (variance - expected), 0.0)
        variances = np.maximum(
            variances, np.minimum(expected, np.maximum(variance, 0.0) + noise)
        )
        apart = ~np.eye(len(values), dtype=bool)
        scale = ratio ** (float(moved[apart].mean()) / 2.0)
        covariance = pooled + float(kept[apart].mean()) * (
            scale[:, None] * first * scale - pooled
        )
        cubes = own**3 * np.diag(self.third)[:, None]
        mixed = own * self.third
        return covariance, variances, cubes - cubes.T - 3.0 * own * other * (mixed - mixed.T)

    def _by_size(self, along: Array) -> Array:
        """(l,) w_i, pooled in proportion to `spread` over models of different sizes.

        A small sample whose D̂ is low by chance has a low w, too. Samples of one size keep
        their ratios.
        """
        each = along / self.spread
        same = self.spread[:, None] == self.spread
        of_size = same @ along / same.sum(axis=1)
        return np.asarray(self.spread * each.mean() * _ratio(along, of_size, 1.0))

    def test(
        self,
        values: Array,
        varies: Mask,
        margin: float,
        lowest: float,
        freedom: Array,
        noise: Noise,
    ) -> tuple[Array, Array]:
        """The max-t test of "D_i ≤ min_j D_j + δ" for every i: log p (l,), and the ratios
        (l, l).

        ``T_i = max_j (D̂_i − D̂_j − δ)/s_ij`` over the contenders j, whose ratio is above
        `lowest`; s_ij is the standard error of D̂_i − D̂_j where the hypothesis is tightest,
        and T_i is compared with the same maximum of the draws. `varies` (l, l) marks the
        differences that have a variance, and `freedom` (l,) are the degrees of freedom of
        the models' variances.
        """
        count = len(values)
        everyone = np.arange(len(values))
        log_p = np.zeros(count)
        ratios = np.full((count, count), -math.inf)
        second = self._second(noise)
        apart = np.maximum(_contrasts(self.second), 0.0)
        sizes, places = np.unique(freedom, return_inverse=True)
        chi = noise.chi(sizes)
        # Models often have the same contenders.
        laws: dict[bytes, tuple[Array, Array, Array]] = {}
        draws: dict[bytes, Array] = {}
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
                if margin or key not in laws:
                    laws[key] = self.at(models)._at_tie(values[models], margin * (models == i))
                covariance, variances, cumulants = laws[key]
                # A model that is left out has its second-order part only, and a pair without
                # variance drops out.
                error = np.sqrt(apart[i])
                skewness = np.zeros(count)
                error[models] = np.sqrt(variances[place] + apart[i, models])
                skewness[models] = _ratio(cumulants[place], error[models] ** 3)
                ratio = skewed(
                    np.where(others, _ratio(gap, error, -math.inf), -math.inf), skewness
                )
                before = contenders
                contenders = contenders & (ratio > lowest)
                if not contenders.any() or (contenders == before).all():
                    break
            ratios[i] = ratio
            if contenders.any():
                kept = np.flatnonzero(contenders[models])
                statistic = float(ratio[contenders].max())
                # Beyond the draws, tails are Student's: there the first-order part is the
                # larger one.
                tails = stdtr(np.minimum(freedom[i], freedom[models[kept]]), -statistic)
                log_p[i] = math.log(float(np.maximum(tails, 5e-324).sum()))
                if log_p[i] <= -math.log1p(DRAWS):
                    continue
                if margin or key not in draws:
                    draws = {key: second[models] + _root(covariance) @ noise.normal[models]}
                gaps = draws[key][place] - draws[key][kept]
                error = (
                    gaps.std(axis=1)[:, None] * chi[np.minimum(places[i], places[models[kept]])]
                )
                top = _ratio(gaps, error).max(axis=0)
                log_p[i] = math.log((1 + int((top >= statistic).sum())) / (1 + len(top)))
        return log_p, ratios

    def step_down(self, values: Array, varies: Mask, freedom: Array, noise: Noise) -> Array:
        """(l,) log adjusted p of "D_i ≤ min_j D_j", for all models together.

        With probability 1 − α no best model has an adjusted p ≤ α. At every step all models
        that are left tie. The largest ratio (D̂_i − D̂_j)/s_ij among them is compared with the
        draws of the largest one over all pairs, both signs of each; then its model i leaves.
        Adjusted p-values are the largest ones up to a model's own step.
        """
        adjusted = np.zeros(len(values))
        second = self._second(noise)
        apart = np.maximum(_contrasts(self.second), 0.0)
        sizes, places = np.unique(freedom, return_inverse=True)
        chi = noise.chi(sizes)
        left = np.flatnonzero(varies.any(axis=1))
        largest = -math.inf
        while len(left) > 1:
            both = np.ix_(left, left)
            none_above = np.zeros(len(left))
            covariance, variances, cumulants = self.at(left)._at_tie(values[left], none_above)
            error = np.sqrt(variances + apart[both])
            gap = values[left][:, None] - values[left]
            plain = np.where(varies[both], _ratio(gap, error, -math.inf), -math.inf)
            ratio = skewed(plain, _ratio(cumulants, error**3))
            first = int(ratio.max(axis=1).argmax())
            statistic = float(ratio[first].max())
            degrees = np.minimum(freedom[left][:, None], freedom[left])
            tails = stdtr(degrees[varies[both]], -statistic)
            log_p = math.log(max(float(tails.sum()), 5e-324))
            if log_p > -math.log1p(DRAWS):
                draws = second[left] + _root(covariance) @ noise.normal[left]
                top = _largest_contrast(draws, varies[both], chi, places[left])
                log_p = math.log((1 + int((top >= statistic).sum())) / (1 + len(top)))
            largest = max(largest, min(log_p, 0.0))
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


@dataclass(frozen=True, eq=False)
class Noise:
    """The random numbers of the law. Each model has its own, which follow it when the models
    are permuted.

    Attributes:
        normal, rest: (l, draws) standard normal numbers for the first-order parts, and for
        what the components leave.
        components: one such array for each component.
        quantiles: (draws,) uniform numbers for the standard errors, which are estimates, too.
    """

    normal: Array
    rest: Array
    components: Sequence[Array]
    quantiles: Array

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
        return cls(normal, rest, components, reference.uniform(size=DRAWS))

    def chi(self, freedom: Array) -> Array:
        """(k, draws) values of √(χ²/ν) for k degrees of freedom ν: all grow together."""
        # Wilson and Hilferty's cube, within 1% of χ²/ν for ν ≥ 3.
        spread = 2.0 / (9.0 * np.maximum(freedom, 1.0))[:, None]
        return np.asarray(
            np.maximum(1.0 - spread + ndtri(self.quantiles) * np.sqrt(spread), 0.05) ** 1.5
        )


def _largest_contrast(draws: Array, varies: Mask, chi: Array, places: Rows) -> Array:
    """(draws,) the largest |difference| of two rows of (l, draws) over its standard error.

    The standard errors are estimates, too: each is multiplied by the row of `chi` of the model
    with the fewer degrees of freedom.
    """
    top = np.full(draws.shape[1], -math.inf)
    spread = np.sqrt(np.maximum(_contrasts(np.atleast_2d(np.cov(draws, bias=True))), 0.0))
    for i in range(len(draws) - 1):
        for j in np.flatnonzero(varies[i, i + 1 :]) + i + 1:
            size = np.abs(draws[i] - draws[j])
            size /= spread[i, j] * chi[min(places[i], places[j])]
            np.maximum(top, size, out=top)
    return top


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
