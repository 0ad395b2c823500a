"""Power by simulation from the law of the estimates, with the same random numbers for every n, θ and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from relfit.planning import carving
from relfit.planning.carving import carve_pvalues
from relfit.planning.decisions import Maxima, best_set_pvalues, rejected, relmulti_pvalues, relpsi_pvalues
from relfit.planning.geometry import difference_errors
from relfit.planning.laws import Law, Plain
from relfit.procedures import seeded
from relfit.procedures.streams import Streams, covariance_root, streams

Array = NDArray[np.float64]

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

    def _noise(self, scale: Array | None, n: float) -> carving.Noise:
        """N(0, V) with the V each trial is told."""
        moving, realised = self.law.noise(self.numbers.carving, n)
        if moving is not None and scale is not None:
            realised = realised + scale * moving
        return carving.Noise(realised, scale, *self.law.noise(self.numbers.fresh, n))

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
