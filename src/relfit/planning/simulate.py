"""Power by simulation on D ~ N(θ, V n₀/n), with the same random numbers for every n, θ and test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.estimate import JointEstimate
from relfit.planning.decisions import (
    Geometry,
    Maxima,
    best_set_pvalues,
    carve_pvalues,
    rejected,
    relmulti_pvalues,
    relpsi_pvalues,
)
from relfit.procedures import seeded
from relfit.procedures.differences import differences
from relfit.procedures.streams import covariance_root, normal_draws, streams

Array = NDArray[np.float64]

# Draws of the max-t law; `best_set` itself uses 20,000, which no average over trials needs.
MAXIMA_DRAWS = 4000
# Trials deal their fresh noise of carving from this many packs, so that one pack's error is averaged out.
BLOCKS = 8


@dataclass(frozen=True)
class Settings:
    """How every test of the plan is run."""

    alpha: float
    select_fraction: float
    correction: str | None

    def corrected(self, test: str) -> str:
        """The correction of one test: as in `relfit.compare`, BY for relmulti and none otherwise, unless given."""
        if self.correction is not None:
            return self.correction
        return "by" if test == "relmulti" else "none"


@dataclass(frozen=True)
class Simulation:
    """`trials` draws from each of R populations θ (R, l), all with covariance V n₀/n.

    `noise` holds, for every trial, N(0, V) three times over: the estimate's error, that of relmulti's selection, and
    the noise carving selects with (R·trials, l each); `fresh` is carving's further noise (blocks, draws, l).
    """

    populations: Array
    trials: int
    rows: int
    geometry: Geometry
    settings: Settings
    noise: tuple[Array, Array, Array]
    fresh: Array
    maxima: Maxima

    def power(self, test: str, n: float, targets: Sequence[int], populations: Array | None = None) -> Array:
        """(R, targets) shares of the trials with n rows in which the targets are declared worse."""
        centres = self.populations if populations is None else populations
        means = np.repeat(centres, self.trials, axis=0) * math.sqrt(n / self.rows)
        declared = self._declared(test, means, n, list(targets))
        return np.asarray(declared.reshape(len(centres), self.trials, len(targets)).mean(axis=1))

    def kept(self, populations: NDArray[np.bool_]) -> Simulation:
        """The simulation of some of the populations."""
        rows = np.repeat(populations, self.trials)
        error, selection, carving = (part[rows] for part in self.noise)
        return Simulation(
            self.populations[populations],
            self.trials,
            self.rows,
            self.geometry,
            self.settings,
            (error, selection, carving),
            self.fresh,
            self.maxima,
        )

    def _declared(self, test: str, means: Array, n: float, targets: list[int]) -> NDArray[np.bool_]:
        correction, alpha = self.settings.corrected(test), self.settings.alpha
        # Without a correction a model's verdict needs no other model's p-value.
        wanted = targets if correction == "none" else list(range(means.shape[1]))
        best, p = self._pvalues(test, means, n, wanted)
        if correction == "none":
            return np.asarray(p <= alpha)
        covariance = self.geometry.covariance
        return rejected(best, p, correction, alpha, covariance, all_models=test == "best-set")[:, targets]

    def _pvalues(self, test: str, means: Array, n: float, wanted: list[int]) -> tuple[NDArray[np.intp], Array]:
        error, other, carving = self.noise
        if test == "relpsi":
            return relpsi_pvalues(means + error, self.geometry, wanted)
        if test == "relmulti":
            share = self.settings.select_fraction
            selection, testing = math.sqrt(share) * means + other, math.sqrt(1.0 - share) * means + error
            return relmulti_pvalues(selection, testing, self.geometry, wanted)
        if test == "carve":
            return carve_pvalues(means + error, carving, self.fresh, self.geometry, wanted, self.settings.alpha)
        verdicts = self.settings.corrected(test) == "none"
        alpha = self.settings.alpha
        return best_set_pvalues(means + error, n, self.geometry, self.maxima, wanted, alpha, verdicts=verdicts)


def simulation(
    joint: JointEstimate, rows: int, settings: Settings, trials: int, draws: int, seed: int, populations: Array
) -> Simulation:
    """A simulation from a pilot's V, measured on `rows` rows; random numbers belong to models by name."""
    root = covariance_root(joint.covariance)
    own = streams(seeded(seed, "plan"), joint.names)

    def normal(count: int) -> Array:
        return np.ascontiguousarray(normal_draws(root, own.models, count).T)

    count = len(populations) * trials
    error, selection, carving = (normal(count) for _ in range(3))
    geometry = Geometry(joint.covariance, differences(joint).error)
    maxima = Maxima(normal_draws(root, own.models, MAXIMA_DRAWS), geometry.error)
    fresh = normal(BLOCKS * draws).reshape(BLOCKS, draws, -1)
    noise = (error, selection, carving)
    return Simulation(populations, trials, rows, geometry, settings, noise, fresh, maxima)
