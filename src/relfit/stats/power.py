"""The power of the tests with n rows, by simulating estimates and deciding them with the
tests themselves.

Two laws say how estimates of n rows, and the covariances that the tests are given for them,
are distributed:

`Plain`: D ~ N(θ, V n₀/n), and the tests are given V n₀/n. For means of losses, linear
estimators and assumed gaps.

`Squared`: MMD² and KSD² are squared lengths ‖w_i‖² of vectors whose estimates are normal.
Taking each w_i for an eigenvector of its noise, with e ~ N(0, Λ n₀/n) and u_i = √θ_i + e_i,

    D_i = u_i² − Λ_ii n₀/n + rest_i,    rest ~ N(0, R (n₀/n)²),    given V_ij = 4 u_i u_j
    Λ_ij n₀/n + 2 R_ij (n₀/n)²,

so the variance has a part that shrinks like 1/n and one like 1/n², the tests are given the
latter twice over, the estimates are skewed, and the given variance of a model is large where
its D is. The best set is given both parts once, with the mean of the models that are not
worse for every D (`relfit.stats.close`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import brentq

from relfit.stats.decision import Covariances, adjust, difference_errors
from relfit.stats.joint import JointEstimate, positive_part
from relfit.stats.maxt import Maxima, covariance_root, seeded, streams
from relfit.stats.tests.base import Noise, Test, Trials
from relfit.util.arrays import Array, Mask, Rows

# Draws of the max-t law. All trials share them, so their error does not average out; `best_set`
# takes 20,000 too. With many models each trial needs its own maximum of many differences, so
# there are fewer draws then.
MAXIMA_DRAWS = 20_000
MAXIMA_NUMBERS = 200_000
FEWEST_MAXIMA = 4_000
# Trials share their fresh noise of carving in this many packs, so that the error of one pack
# averages out.
PACKS = 8
# Beyond this signal every power is 1 to rounding.
_LARGEST_SIGNAL = 1e3


@dataclass(frozen=True)
class Plain:
    """Normal estimates whose covariance, V with n₀ `rows`, shrinks like 1/n."""

    covariance: Array
    rows: int
    parts: int = 1

    def drawn(self, centres: Array, n: float, z: Array) -> tuple[Array, Covariances]:
        """Estimates with n rows of the populations `centres` (trials, l), and the
        covariances that the tests are given.

        They are made from standard normal z (`parts`, trials, l).
        """
        covariance = self.mean_covariance(centres[0], n)
        return centres + z[0] @ covariance_root(covariance).T, Covariances(covariance)

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
    """Estimates of squared lengths: Λ and R with n₀ `rows`."""

    along: Array
    rest: Array
    rows: int
    parts: int = 2

    def drawn(self, centres: Array, n: float, z: Array) -> tuple[Array, Covariances]:
        """As in `Plain`."""
        ratio = self.rows / n
        u = np.sqrt(np.maximum(centres, 0.0)) + math.sqrt(ratio) * (
            z[0] @ covariance_root(self.along).T
        )
        values = np.minimum(centres, 0.0) + u**2 - np.diag(self.along) * ratio
        values += ratio * (z[1] @ covariance_root(self.rest).T)
        return values, Covariances(2.0 * ratio**2 * self.rest, 4.0 * ratio * self.along, u)

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
        return Plain(joint.covariance, rows)
    first = positive_part(joint.covariance - 2.0 * second, joint.covariance)
    variance = np.diag(first)
    most = np.sqrt(np.maximum(np.diag(second), 0.0) / 2.0)
    along = np.divide(variance, 4.0 * joint.values, out=most.copy(), where=joint.values > 0.0)
    length = np.sqrt(np.minimum(along, most))
    error = np.sqrt(variance)
    unit = np.divide(length, error, out=np.zeros_like(error), where=error > 0.0)
    along = first * np.outer(unit, unit)
    return Squared(along, positive_part(second - 2.0 * along**2, second), rows)


@dataclass(frozen=True)
class Simulation:
    """`trials` estimates from each of R populations θ (R, l), decided at level `alpha`.

    All but the first four fields are standard normal numbers, the same for every n and test,
    in as many `parts` as the law needs: for every trial those of the `estimate`, of a second
    one that selects, and of the noise of carving, each (parts, R·trials, l); `fresh`, the
    further noise of carving (parts, packs, draws, l); and `maxima`, those of the max-t law
    (draws, l). `laws` keeps the law of the maximum of the last n.
    """

    populations: Array
    trials: int
    law: EstimateLaw
    alpha: float
    estimate: Array
    selection: Array
    carving: Array
    fresh: Array
    maxima: Array
    laws: dict[float, Maxima] = field(default_factory=dict)

    def power(
        self,
        test: Test,
        correction: str,
        n: float,
        models: Sequence[int],
        populations: Array | None = None,
    ) -> Array:
        """(R, models) fractions of the trials with n rows in which the models are declared
        worse.
        """
        centres = self.populations if populations is None else populations
        worse = self._worse(
            test, correction, np.repeat(centres, self.trials, axis=0), n, list(models)
        )
        return np.asarray(worse.reshape(len(centres), self.trials, len(models)).mean(axis=1))

    def restricted(self, populations: Mask) -> Simulation:
        """The simulation of some of the populations."""
        kept = np.repeat(populations, self.trials)
        numbers = {
            name: getattr(self, name)[:, kept] for name in ("estimate", "selection", "carving")
        }
        return replace(self, populations=self.populations[populations], **numbers)

    def _worse(
        self, test: Test, correction: str, centres: Array, n: float, models: list[int]
    ) -> Mask:
        tested = n if test.split is None else n * (1.0 - test.split)
        values, covariances = self.law.drawn(centres, tested, self.estimate)
        trials = Trials(
            *(values, covariances, n),
            selection=lambda: self.law.drawn(centres, n - tested, self.selection)[0],
            noise=lambda: self._noise(covariances.scale, n),
            maxima=lambda: self._maxima(n),
        )

        def log_pvalues(models: list[int], *, exact: bool) -> tuple[Rows, Array]:
            law = self.law
            columns = []
            if not (test.both_parts and isinstance(law, Squared)):
                return test.log_pvalues(trials, models, self.alpha, exact=exact)
            if not test.tests_best:
                once = replace(trials, covariances=law.both_parts(values, tested))
                return test.log_pvalues(once, models, self.alpha, exact=exact)
            for i in models:
                tied = replace(trials, covariances=law.both_parts(values, tested, i))
                columns.append(test.log_pvalues(tied, [i], self.alpha, exact=exact)[1])
            return np.argmin(values, axis=1), np.hstack(columns)

        if correction == "none":
            # A model's verdict needs no other model's p-value.
            return log_pvalues(models, exact=False)[1] <= math.log(self.alpha)
        count = centres.shape[1]
        best, log_p = log_pvalues(list(range(count)), exact=True)
        if test.tests_best:
            used = test.resolved_correction(correction, covariances.constant, 0)
            return adjust(np.exp(log_p), used)[:, models] <= self.alpha
        worse = np.zeros(log_p.shape, dtype=bool)
        covariance = self.law.mean_covariance(centres[0], tested)
        for j in np.unique(best).tolist():
            at = np.ix_(np.flatnonzero(best == j), np.flatnonzero(np.arange(count) != j))
            worse[at] = (
                adjust(np.exp(log_p[at]), test.resolved_correction(correction, covariance, j))
                <= self.alpha
            )
        return worse[:, models]

    def _noise(self, scale: Array | None, n: float) -> Noise:
        """N(0, V) with the V that each trial is given."""
        scaled, realised = self.law.noise(self.carving, n)
        if scaled is not None and scale is not None:
            realised = realised + scale * scaled
        fresh_scaled, constant = self.law.noise(self.fresh, n)
        return Noise(realised, constant, fresh_scaled, scale)

    def _maxima(self, n: float) -> Maxima:
        """The law of the maximum with the mean V; where V only changes its scale it is the
        same at every n.
        """
        at = float(self.law.rows) if isinstance(self.law, Plain) else n
        if at not in self.laws:
            self.laws.clear()
            covariance = self.law.mean_covariance(self.populations[0], at)
            draws = np.ascontiguousarray((self.maxima @ covariance_root(covariance).T).T)
            self.laws[at] = Maxima(draws, difference_errors(covariance))
        return self.laws[at]


def simulation(
    names: Sequence[str],
    law: EstimateLaw,
    alpha: float,
    trials: int,
    draws: int,
    seed: int,
    populations: Array,
) -> Simulation:
    """A simulation of the populations (R, l); random numbers belong to the models' ranks
    in the first of them.
    """
    generators = streams(seeded(seed, "plan"), populations[0]).models

    def normal(parts: int, count: int) -> Array:
        return np.stack([rng.standard_normal((parts, count)) for rng in generators], axis=2)

    estimate, selection, carving = (
        normal(law.parts, len(populations) * trials) for _ in range(3)
    )
    maxima = normal(1, max(FEWEST_MAXIMA, min(MAXIMA_DRAWS, MAXIMA_NUMBERS // len(names))))[0]
    fresh = normal(law.parts, PACKS * draws).reshape(law.parts, PACKS, draws, len(names))
    return Simulation(
        populations, trials, law, alpha, estimate, selection, carving, fresh, maxima
    )


def signal_needed(test: Test, power: float, alpha: float, correction: str) -> float:
    """The signal r = gap/s.e. at which the test tells two models apart with this power; 0 if
    it does so without a gap.

    >>> from relfit.stats.tests.best_set import BestSet
    >>> round(signal_needed(BestSet(), 0.8, 0.05, "none"), 4)  # 1.6449 + 0.8416
    2.4865
    """

    def excess(signal: float) -> float:
        return test.two_model_power(signal, alpha, correction) - power

    return (
        0.0 if excess(0.0) >= 0.0 else float(brentq(excess, 0.0, _LARGEST_SIGNAL, xtol=1e-12))
    )
