"""How estimates of n rows, and the covariances that tests are given for them, are distributed in
the population that a pilot of n₀ rows stands for.

`Plain`: D ~ N(θ, V n₀/n), and the tests are given V n₀/n. For means of losses, linear
estimators and assumed gaps. Where the rows are skewed D is, and its given variance follows it.

`Squared`: MMD² and KSD² are squared lengths ‖w_i‖² of vectors whose estimates are normal.
Taking each w_i for an eigenvector of its noise, with e ~ N(0, Λ n₀/n) and u_i = √θ_i + e_i,

    D_i = u_i² − Λ_ii n₀/n + rest_i,    rest ~ N(0, R (n₀/n)²),    given V_ij = 4 u_i u_j
    Λ_ij n₀/n + 2 R_ij (n₀/n)²,

so the variance has a part that shrinks like 1/n and one like 1/n², the tests are given the
latter twice over, the estimates are skewed, and the given variance of a model is large where
its D is. The best set is given both parts once, with the mean of the models that are not
worse for every D (`relfit.stats.close`). Where the number of its components is known, `rest` has
the distribution of a sum of squares, and the second part of V follows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from relfit.stats.decision import Covariances
from relfit.stats.joint import JointEstimate, third_cumulants
from relfit.stats.maxt import covariance_root
from relfit.util.arrays import Array

# The estimated variance of skewed means is no less than this part of the true one.
_SMALLEST_VARIANCE = 0.1


@dataclass(frozen=True)
class Plain:
    """Estimates whose covariance, V with n₀ `rows`, shrinks like 1/n. They are normal, or have
    this skewness with n₀ rows (l,), which shrinks like 1/√n.
    """

    covariance: Array
    rows: int
    parts: int = 1
    skewness: Array | None = None

    def drawn(self, centres: Array, n: float, z: Array) -> tuple[Array, Covariances]:
        """Estimates with n rows of the populations `centres` (trials, l), and the
        covariances that the tests are given.

        They are made from standard normal z (`parts`, trials, l).
        """
        covariance = self.mean_covariance(centres[0], n)
        errors = z[0] @ covariance_root(covariance).T
        if self.skewness is None:
            return centres + errors, Covariances(covariance)
        # To first order in the skewness γ of a mean: its value is that of e + γ(e² − 1)/6, and
        # its estimated variance is 1 + γe times the true one, e being the standardised error.
        size = np.sqrt(np.diag(covariance))
        standard = np.divide(errors, size, out=np.zeros_like(errors), where=size > 0.0)
        skewness = self.skewness * math.sqrt(self.rows / n)
        values = centres + errors + size * skewness * (standard**2 - 1.0) / 6.0
        growth = np.sqrt(np.maximum(1.0 + skewness * standard, _SMALLEST_VARIANCE))
        return values, Covariances(np.zeros_like(covariance), covariance, growth)

    def matrices(self, centres: Array, n: float, z: Array) -> Array:
        """(trials, l, l) the covariances that the tests are given, one for every trial."""
        return self.drawn(centres, n, z)[1].rows(list(range(centres.shape[1])))

    def mean_covariance(self, _centre: Array, n: float) -> Array:
        """The covariance that the tests are given with n rows."""
        return self.covariance * (self.rows / n)

    def noise(self, z: Array, n: float) -> tuple[Array | None, Array]:
        """N(0, V) with the V that the tests are given, from standard normal z (1, …, l): no
        scaled part, and itself.
        """
        return None, z[0] @ covariance_root(self.mean_covariance(z[0], n)).T


@dataclass(frozen=True)
class Squared:
    """Estimates of squared lengths: Λ and R with n₀ `rows`. `rest` is distributed as the sum of
    K squares of normal numbers, or normal where K, the `components`, is not known.
    """

    along: Array
    rest: Array
    rows: int
    parts: int = 2
    components: float | None = None

    def drawn(self, centres: Array, n: float, z: Array) -> tuple[Array, Covariances]:
        """As in `Plain`."""
        ratio = self.rows / n
        u = np.sqrt(np.maximum(centres, 0.0)) + math.sqrt(ratio) * (
            z[0] @ covariance_root(self.along).T
        )
        values = np.minimum(centres, 0.0) + u**2 - np.diag(self.along) * ratio
        values += ratio * np.sqrt(np.diag(self.rest)) * self._standard_rest(z)
        return values, Covariances(2.0 * ratio**2 * self.rest, 4.0 * ratio * self.along, u)

    def _standard_rest(self, z: Array) -> Array:
        """(trials, l) `rest` over its standard deviations."""
        size = np.sqrt(np.diag(self.rest))
        part = z[1] @ covariance_root(self.rest).T
        normal = np.divide(part, size, out=np.zeros_like(part), where=size > 0.0)
        if self.components is None:
            return np.asarray(normal)
        # Wilson and Hilferty's cube for χ² with K degrees of freedom.
        spread = 2.0 / (9.0 * self.components)
        cube = np.maximum(1.0 - spread + normal * math.sqrt(spread), 0.0) ** 3
        return np.asarray((cube - 1.0) * math.sqrt(self.components / 2.0))

    def matrices(self, centres: Array, n: float, z: Array) -> Array:
        """As in `Plain`. The part of V that comes from `rest` follows `rest`, too."""
        covariances = self.drawn(centres, n, z)[1]
        count = centres.shape[1]
        if self.components is None:
            return covariances.rows(list(range(count)))
        follows = 1.0 + self._standard_rest(z) * math.sqrt(2.0 / self.components)
        growth = np.sqrt(np.maximum(follows, 0.0))
        first = Covariances(np.zeros((count, count)), covariances.scaled, covariances.scale)
        second = Covariances(first.constant, covariances.constant, growth)
        every = list(range(count))
        return first.rows(every) + second.rows(every)

    def both_parts(self, values: Array, n: float, tied: int | None = None) -> Covariances:
        """What the law with both parts gives for estimates (trials, l): each part once.

        Where the test is one of the tie with model `tied`, every D is the mean of the models
        that are not worse.
        """
        ratio = self.rows / n
        mean = values
        if tied is not None:
            others = values <= values[:, [tied]]
            mean = (values * others).sum(axis=1, keepdims=True) / others.sum(
                axis=1, keepdims=True
            )
        second = ratio**2 * (2.0 * self.along**2 + self.rest)
        # As the test does, with more than D where that is not well above its noise.
        length = np.sqrt((mean + np.sqrt(mean**2 + np.diag(second).mean())) / 2.0)
        return Covariances(
            second, 4.0 * ratio * self.along, np.broadcast_to(length, values.shape)
        )

    def mean_covariance(self, centre: Array, n: float) -> Array:
        """The mean covariance that the tests are given with n rows of one population (l,)."""
        ratio = self.rows / n
        root = np.sqrt(np.maximum(centre, 0.0))
        first = 4.0 * ratio * self.along * np.outer(root, root)
        return np.asarray(first + ratio**2 * (4.0 * self.along**2 + 2.0 * self.rest))

    def noise(self, z: Array, n: float) -> tuple[Array | None, Array]:
        """N(0, V), V as the tests get it, from standard normal z (2, …, l): one part to
        scale by u, and one not.
        """
        ratio = self.rows / n
        scaled = 2.0 * math.sqrt(ratio) * (z[0] @ covariance_root(self.along).T)
        return scaled, math.sqrt(2.0) * ratio * (z[1] @ covariance_root(self.rest).T)


EstimateLaw = Plain | Squared


def estimate_law(joint: JointEstimate, rows: int) -> EstimateLaw:
    """The law of a pilot's estimates: `Squared` where the second-order part B of its
    covariance is known.

    With A = V − 2B the first-order part, 4 θ_i Λ_ii = A_ii, and 2Λ_ii² is the part of B_ii
    that lies along w_i; it cannot be more than all of it, which bounds Λ where θ is small. Λ
    has the correlations of A, and R = B − 2Λ².

    >>> pair = JointEstimate(
    ...     ("a", "b"),
    ...     [1.0, 4.0],
    ...     np.diag([4.5, 16.5]),
    ...     (100,),
    ...     second_order=np.diag([2.25, 2.25]),
    ... )
    >>> estimate_law(pair, 100).along.round(9).tolist()
    [[0.0, 0.0], [0.0, 0.75]]
    """
    second = joint.second_order
    if second is None or not second.any():
        third = third_cumulants(joint)
        if third is None:
            return Plain(joint.covariance, rows)
        cubes = joint.standard_error**3
        skewness = np.divide(np.diag(third), cubes, out=np.zeros_like(cubes), where=cubes > 0.0)
        return Plain(joint.covariance, rows, skewness=skewness)
    first = with_variances(joint.covariance - 2.0 * second)
    variance = np.diag(first)
    most = np.sqrt(np.maximum(np.diag(second), 0.0) / 2.0)
    along = np.divide(variance, 4.0 * joint.values, out=most.copy(), where=joint.values > 0.0)
    length = np.sqrt(np.minimum(along, most))
    error = np.sqrt(variance)
    unit = np.divide(length, error, out=np.zeros_like(error), where=error > 0.0)
    along = first * np.outer(unit, unit)
    components = None if joint.close is None else joint.close.components
    rest = with_variances(second - 2.0 * along**2)
    return Squared(along, rest, rows, components=components)


def with_variances(matrix: Array) -> Array:
    """A covariance with the variances of a symmetric matrix, or 0 where these are negative,
    and with its correlations as far as that is possible.

    A model whose variance is mostly noise changes nothing about the others.

    >>> with_variances(np.array([[4.0, 0.0, 1.0], [0.0, -1.0, 9.0], [1.0, 9.0, 1.0]])).tolist()
    [[4.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    """
    size = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.outer(size, size)
    correlation = np.divide(matrix, scale, out=np.zeros_like(scale), where=scale > 0.0)
    np.fill_diagonal(correlation, 1.0)
    values, vectors = np.linalg.eigh(np.clip(correlation, -1.0, 1.0))
    if values[0] < 0.0:
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        root /= np.linalg.norm(root, axis=1, keepdims=True)
        correlation = root @ root.T
    return np.asarray(scale * correlation)
