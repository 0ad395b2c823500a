"""From a pilot to the rows that each test needs: the number of rows, or the gap, at which a
power is reached.

The power with n rows comes from simulating estimates (`relfit.stats.population`) and deciding
all of them with fast versions of the tests, and some with the tests themselves
(`relfit.stats.simulated`).
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
from scipy.optimize import brentq, isotonic_regression
from scipy.special import ndtr, ndtri

from relfit.stats.decision import (
    adjust,
    difference_errors,
    difference_variance,
    differences,
)
from relfit.stats.joint import (
    NEAR_DEGENERATE,
    JointEstimate,
    psi_rows,
    smallest_sample,
)
from relfit.stats.maxt import Maxima, covariance_root, seeded, streams
from relfit.stats.population import EstimateLaw, Plain, Squared, estimate_law
from relfit.stats.simulated import affordable, decided
from relfit.stats.tests.base import Criteria, Noise, Test, Trials
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.checks import check_number, check_whole
from relfit.util.errors import InputError
from relfit.util.progress import Progress

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
class Simulation:
    """`trials` estimates from each of R populations θ (R, l), decided at level `alpha`.

    All but the first four fields and `pilot` are standard normal numbers, the same for every
    n and test, in as many `parts` as the law needs: for every trial those of the `estimate`,
    of a second one that selects, and of the noise of carving, each (parts, R·trials, l);
    `fresh`, the further noise of carving (parts, packs, draws, l); and `maxima`, those of the
    max-t law (draws, l). `laws` keeps the law of the maximum of the last n.
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
    pilot: JointEstimate | None = None
    laws: dict[float, Maxima] = field(default_factory=dict)

    def decided(self, test: Test, correction: str, n: float, models: Sequence[int]) -> Array:
        """(2, models) the power with n rows in the first population, and its standard error.

        The test itself decides some of the trials; the fast version decides all of them, and
        their difference in the former is added (a control variate).
        """
        count = self.populations.shape[1]
        columns = list(models)
        centres = np.repeat(self.populations[:1], self.trials, axis=0)
        fast = self._worse(test, correction, centres, n, columns)
        number = min(affordable(count), self.trials)
        # A stored result does not hold all that the test is given for squared distances.
        incomplete = isinstance(self.law, Squared) and test.both_parts
        if self.pilot is None or (incomplete and self.pilot.close is None):
            power = fast.mean(axis=0)
            return np.stack([power, _error(power, self.trials)])
        tested = n if test.split is None else n * (1.0 - test.split)
        some = centres[:number]
        normal = self.estimate[:, :number]
        slow = decided(
            *(test, Criteria(self.alpha, correction), self.pilot),
            self.law.drawn(some, tested, normal)[0],
            self.law.matrices(some, tested, normal),
            self.law.rows / tested,
            lambda: self.law.drawn(some, n - tested, self.selection[:, :number])[0],
        )
        change = slow[:, columns].astype(float) - fast[:number]
        power = np.clip(fast.mean(axis=0) + change.mean(axis=0), 0.0, 1.0)
        error = np.hypot(
            _error(fast.mean(axis=0), self.trials), change.std(axis=0) / number**0.5
        )
        return np.stack([power, error])

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

        # What steps down needs the joint distribution of all statistics, which simulated trials
        # do not share.
        correction = "holm" if correction == "stepdown" else correction
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
    pilot: JointEstimate | None = None,
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
        *(populations, trials, law, alpha, estimate, selection, carving, fresh, maxima, pilot)
    )


def _error(power: Array, trials: int) -> Array:
    """The Monte-Carlo standard error of powers, not 0 for 0 and 1."""
    return np.asarray(np.sqrt(np.maximum(power * (1.0 - power), 1.0 / trials) / trials))


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


FEWEST_TRIALS = 100
# Fresh draws of carving in a simulated trial; `carve` itself takes 2000, but here errors
# average out over the trials.
CARVE_DRAWS = 200
RANGE_CARVE_DRAWS = 100
RANGE_TRIALS = 256
# Ranges are from the 16% to the 84% point.
HIGH = 0.84
# Curves start at this part of the rows that a fixed one-sided test needs for the largest gap.
START = 4.0
# A pilot says little about samples a thousand times its size.
FARTHEST = 1000
FEWEST_MOST = 1_000_000
# A curve that has come this far is not followed further: a power does not fall again as n
# grows.
ENOUGH = 0.999
# Powers this far from 0 and 1 tell by how much the fast version of a test differs from it.
UNSURE = 0.1
# Steps that tighten a bracket, and that widen one.
REFINEMENTS = 3
DOUBLINGS = 14
# Notes name at most this many models.
_SHOWN = 4


@dataclass(frozen=True)
class Assumed:
    """Gaps that are assumed rather than measured.

    Args:
        gaps: model name → how much worse than the best it is (≥ 0), or one number for a
            single model. The best model is one with gap 0; where none has it, a model called
            "best" is added.
        standard_error: of one model's discrepancy, measured on `n` rows: the "s.e." of a
            comparison's table.
        correlation: between the estimates of any two models, in [0, 1); the standard error
            of a difference is √(2(1 − correlation)) times `standard_error`.
        n: the rows behind that standard error, which is taken to shrink like 1/√n.

    >>> Assumed(0.01, standard_error=0.02, n=500).joint().names
    ('best', 'm1')
    """

    gaps: Mapping[str, float] | float
    standard_error: float
    correlation: float = 0.0
    n: int = 1

    def joint(self) -> JointEstimate:
        """The gaps as an estimate, the best model first."""
        gaps = self.gaps if isinstance(self.gaps, Mapping) else {"m1": self.gaps}
        for name, gap in gaps.items():
            check_number(
                f"gap of {name!r}",
                gap,
                0.0,
                math.inf,
                "a number ≥ 0 (0 for the best model)",
                low_ok=True,
            )
        check_number("standard_error", self.standard_error, 0.0, math.inf, "a number above 0")
        check_number(
            "correlation", self.correlation, 0.0, 1.0, "a number from 0 to below 1", low_ok=True
        )
        check_whole("n", self.n, 1, "the rows behind the standard error")
        if not any(gap == 0.0 for gap in gaps.values()):
            if "best" in gaps:
                raise InputError(
                    f"gaps: expected 0 for the model called 'best', got "
                    f"{gaps['best']:g}; rename it"
                )
            gaps = {"best": 0.0, **gaps}
        matrix = (1.0 - self.correlation) * np.eye(len(gaps)) + self.correlation
        return JointEstimate(
            tuple(gaps),
            np.array(list(gaps.values()), float),
            self.standard_error**2 * matrix,
            (int(self.n),),
        )


@dataclass(frozen=True)
class Pilot:
    """A checked pilot.

    Attributes:
        joint: D and V, at n₀ = `rows` rows.
        law: how estimates of n rows are distributed.
        measured: True if D was measured, and so is uncertain; False if it was assumed.
        linear: True if the pilot was made by the linear estimator.
    """

    joint: JointEstimate
    law: EstimateLaw
    rows: int
    measured: bool
    linear: bool

    @property
    def best(self) -> int:
        """The index of the smallest D."""
        return int(np.argmin(self.joint.values))

    @property
    def gap(self) -> Array:
        """(l,) D_i − D_best."""
        return np.asarray(self.joint.values - self.joint.values[self.best])

    @property
    def error(self) -> Array:
        """(l,) standard errors of the gaps at n₀ rows."""
        return differences(self.joint).error[:, self.best]

    @property
    def most(self) -> int:
        """The largest number of rows that is considered."""
        return max(FARTHEST * self.rows, FEWEST_MOST)


def as_pilot(pilot: Any, *, linear: bool = False) -> Pilot:
    """A JointEstimate or `Assumed`, checked. `linear` is True if it is known to come from
    the linear estimator.
    """
    if not isinstance(pilot, JointEstimate | Assumed):
        raise InputError(
            f"pilot: expected a JointEstimate (relfit.estimate, relfit.from_losses), a "
            f"Comparison or relfit.Assumed "
            f"gaps, got {type(pilot).__name__}"
        )
    joint = pilot.joint() if isinstance(pilot, Assumed) else pilot
    if len(joint.names) < 2:
        raise InputError("pilot: expected at least 2 models, got 1")
    counted = smallest_sample(joint)
    if counted is None:
        raise InputError(
            "pilot: expected an estimate with its sizes, got none; give "
            "sizes=(rows,) to JointEstimate"
        )
    # Plans count rows, also where rows are in groups: V shrinks like 1/n with more groups of
    # the same size.
    rows = min((size for size in joint.sizes or () if size > 0), default=counted)
    # Fewer ψ rows than rows (or groups) are pairs: the linear estimator.
    linear = linear or (psi_rows(joint) or counted) < counted
    return Pilot(
        joint, estimate_law(joint, rows), rows, isinstance(pilot, JointEstimate), linear
    )


@dataclass(frozen=True)
class Forecast:
    """One model under one test.

    Attributes:
        name, test: the model and the name of the test. gap, gap_standard_error: D_i − D_best
        in the pilot, and its standard error there (0 for assumed gaps).
        n_needed: rows at which the power is reached; inf where it is not reached up to
            `Plan.most`.
        n_error: Monte-Carlo standard error of `n_needed`; 0 from closed forms.
        n_range: the rows needed if the gap is one standard error larger than the pilot's,
            and if it is one smaller (inf where no gap is left): 16% and 84% points, given
            what the pilot says about the gap; None if assumed.
        power, power_error: the power with `Plan.n` rows, and its Monte-Carlo standard error.
        detectable_gap: the gap of this model that `Plan.n` rows find with the requested power.
    """

    name: str
    test: str
    gap: float
    gap_standard_error: float
    n_needed: float
    n_error: float
    n_range: tuple[float, float] | None
    power: float
    power_error: float
    detectable_gap: float


@dataclass(frozen=True)
class Planning:
    """What is to be planned.

    Attributes:
        pilot: what is known about the models.
        power, alpha: the power to be reached, and the level of the tests.
        tests, corrections: the tests, each with its correction.
        fewest: the fewest rows with which each test runs.
        n: the rows for the reverse question, what n rows can show.
        trials: simulated trials for each number of rows.
    """

    pilot: Pilot
    power: float
    alpha: float
    tests: tuple[Test, ...]
    corrections: tuple[str, ...]
    fewest: tuple[int, ...]
    n: int
    trials: int

    @property
    def models(self) -> list[int]:
        """All models but the best."""
        return [i for i in range(len(self.pilot.joint.names)) if i != self.pilot.best]

    @property
    def in_closed_form(self) -> bool:
        """True for two models with plain normal estimates, if all tests have a closed form:
        nothing is simulated.
        """
        plain_pair = len(self.pilot.joint.names) == 2 and isinstance(self.pilot.law, Plain)
        return plain_pair and all(test.implements("two_model_power") for test in self.tests)

    def sizes(self) -> list[int]:
        """The sizes of the curves: doubling, finer in closed form, from where the easiest
        model is hard to find.
        """
        pilot = self.pilot
        rising = (pilot.gap > 0.0) & (pilot.error > 0.0)
        signal = np.divide(
            pilot.gap, pilot.error, out=np.zeros_like(pilot.gap), where=rising
        ).max()
        reach = float(ndtri(self.power) - ndtri(self.alpha))
        easiest = pilot.rows * (reach / signal) ** 2 / START if signal > 0.0 else math.inf
        if differences(pilot.joint).certain.any():
            easiest = 0.0  # a constant difference is found with any number of rows
        start = min(
            max(min(self.fewest), math.floor(min(easiest, pilot.most))), pilot.most // 2
        )
        doublings = max(1, math.ceil(math.log2(pilot.most / start)))
        if not self.in_closed_form:
            return [*(start * 2**k for k in range(doublings)), pilot.most]
        return sorted({round(x) for x in np.geomspace(start, pilot.most, 4 * doublings + 1)})

    def forecasts(
        self, sizes: list[int], seed: int, update: Progress | None
    ) -> list[tuple[list[Forecast], Array]]:
        """For each test a forecast of every model but the best, and their power curves
        (models, sizes).
        """
        if self.in_closed_form:
            return [self._closed(k, sizes) for k in range(len(self.tests))]
        joint = self.pilot.joint
        law = self.pilot.law
        centre = joint.values[None, :]
        # 0/1 losses are counts, which normal values are not.
        pilot = joint if self.pilot.measured and not joint.binary else None
        main = simulation(
            *(joint.names, law, self.alpha, self.trials, CARVE_DRAWS, seed, centre, pilot)
        )
        around = None
        if self.pilot.measured:
            both = np.repeat(centre, 2, axis=0)
            around = simulation(
                joint.names, law, self.alpha, RANGE_TRIALS, RANGE_CARVE_DRAWS, seed, both
            )
        steps = count(1)
        total = (len(sizes) + 3 * len(self.models)) * len(self.tests)

        def done() -> None:
            if update is not None:
                update(min(next(steps), total), total)

        return [self._simulated(k, sizes, main, around, done) for k in range(len(self.tests))]

    def _closed(self, k: int, sizes: Sequence[int]) -> tuple[list[Forecast], Array]:
        pilot = self.pilot
        test = self.tests[k]
        (i,) = self.models
        gap = float(pilot.gap[i])
        error = float(pilot.error[i])
        signal = signal_needed(test, self.power, self.alpha, self.corrections[k])

        def power_at(n: float) -> float:
            s = error * math.sqrt(pilot.rows / n)
            return (
                test.two_model_power(gap / s, self.alpha, self.corrections[k])
                if s > 0.0
                else float(gap > 0.0)
            )

        def rows_for(true_gap: float) -> float:
            return (
                self._whole(k, pilot.rows * (signal * error / true_gap) ** 2)
                if true_gap > 0.0
                else math.inf
            )

        reach = float(ndtri(HIGH)) * error
        range_ = (rows_for(gap + reach), rows_for(gap - reach)) if pilot.measured else None
        detectable = signal * error * math.sqrt(pilot.rows / self.n)
        forecast = self._forecast(
            k, i, rows_for(gap), 0.0, range_, power_at(self.n), 0.0, detectable
        )
        return [forecast], np.array([[power_at(n) for n in sizes]])

    def _simulated(
        self,
        k: int,
        sizes: list[int],
        main: Simulation,
        around: Simulation | None,
        done: Callable[[], None],
    ) -> tuple[list[Forecast], Array]:
        pilot = self.pilot
        fewest = self.fewest[k]
        allowed = [n for n in sizes if n >= fewest]
        # The fewest rows allowed come first, so that no answer lies below them.
        allowed = (
            allowed if allowed[0] == sizes[0] else [fewest, *(n for n in allowed if n > fewest)]
        )
        test = _Simulated(self.tests[k], self.corrections[k], main)
        powers = test.curve(allowed, self.models, done)
        now = test.simulation.decided(test.test, test.correction, self.n, self.models)
        fast = test.power(self.n, self.models)[0]
        # By how much, in probits, the fast version is more powerful than the test; powers near
        # 0 and 1 do not tell.
        known = (np.minimum(fast, now[0]) > UNSURE) & (np.maximum(fast, now[0]) < 1.0 - UNSURE)
        offsets = np.where(
            known, _probit(fast, self.trials) - _probit(now[0], self.trials), 0.0
        )
        goals = ndtr(float(ndtri(self.power)) + offsets)
        forecasts = []
        for c, i in enumerate(self.models):
            rows = math.inf
            error = math.nan
            if pilot.gap[i] > 0.0:
                rows, error = test.rows_needed(allowed, powers[:, c], i, float(goals[c]))
                rows = self._whole(k, rows)
            done()
            detectable = test.detectable_gap(self.n, i, pilot.best, float(goals[c]))
            done()
            range_ = (
                None
                if around is None
                else self._range(
                    k, allowed, replace(test, simulation=around), i, float(goals[c])
                )
            )
            done()
            power = [float(number) for number in now[:, c]]
            forecasts.append(self._forecast(k, i, rows, error, range_, *power, detectable))
        powers = ndtr(_probit(powers, self.trials) - offsets)
        curves = np.array(
            [np.interp(np.sqrt(sizes), np.sqrt(allowed), column) for column in powers.T]
        )
        curves[:, [n < allowed[0] for n in sizes]] = 0.0
        return forecasts, curves

    def _range(
        self, k: int, sizes: list[int], test: _Simulated, model: int, goal: float
    ) -> tuple[float, float]:
        """The rows needed if the model's gap is one standard error larger, and if it is one
        smaller.
        """
        reach = float(ndtri(HIGH) * self.pilot.error[model])
        populations = test.simulation.populations
        centres = populations + np.outer([reach, -reach], np.eye(populations.shape[1])[model])
        # A larger gap needs fewer rows than the pilot's curve starts with.
        wider = [
            *sorted({max(self.fewest[k], sizes[0] // part) for part in (8, 4, 2)} - {sizes[0]}),
            *sizes,
        ]
        moved = replace(test, simulation=replace(test.simulation, populations=centres))
        low, high = (
            self._whole(k, rows) for rows in moved.rows_by_population(wider, model, self.power)
        )
        return low, high

    def _whole(self, k: int, rows: float) -> float:
        """Rows rounded up to a whole number, not below the fewest; inf beyond the most."""
        return (
            max(math.ceil(rows - 1e-9), self.fewest[k]) if rows <= self.pilot.most else math.inf
        )

    def _forecast(self, k: int, i: int, *numbers: Any) -> Forecast:
        pilot = self.pilot
        error = float(pilot.error[i]) if pilot.measured else 0.0
        return Forecast(
            pilot.joint.names[i], self.tests[k].name, float(pilot.gap[i]), error, *numbers
        )

    def notes(self, forecasts: Sequence[Forecast]) -> tuple[str, ...]:
        """Sentences about gaps that the pilot cannot promise, and about sizes."""
        pilot = self.pilot
        notes = []
        unclear = {
            each.name: each
            for each in forecasts
            if each.n_range is not None and math.isinf(each.n_range[1])
        }
        for name, each in list(unclear.items())[:_SHOWN]:
            times = each.gap / each.gap_standard_error if each.gap_standard_error > 0.0 else 0.0
            notes.append(
                f"{name}: the pilot shows no clear gap ({times:.1f} standard errors); if "
                f"there is none, no number of "
                "rows is enough"
            )
        more = len(unclear) - _SHOWN
        if more > 0:
            notes.append(f"the same holds for {more} more model{'s' if more > 1 else ''}")
        tied = list(dict.fromkeys(each.name for each in forecasts if each.gap == 0.0))
        if tied and not pilot.measured:
            notes.append(
                f"{', '.join(tied[:_SHOWN])}: as good as the best, so no test should "
                f"find a difference"
            )
        rows = [size for size in pilot.joint.sizes or () if size > 0]
        if len(set(rows)) > 1:
            notes.append(
                f"the rows are those of the smallest sample (the pilot's has {min(rows)}, "
                f"others up to {max(rows)}); "
                "all samples are assumed to grow in proportion"
            )
        if pilot.joint.groups is not None:
            groups = min(count for count in pilot.joint.groups if count > 0)
            notes.append(
                f"the pilot's {pilot.rows} rows are in {groups} groups: more rows means more "
                f"groups of that size, not "
                "larger ones"
            )
        second_order = pilot.joint.near_degeneracy
        if (
            second_order is not None
            and isinstance(pilot.law, Plain)
            and (second_order > NEAR_DEGENERATE).any()
        ):
            notes.append(
                "some models are so close to the data that the variance of their discrepancy "
                "shrinks faster than 1/n: "
                "with more rows than the pilot's, the power is likely to be higher "
                "than forecast"
            )
        return tuple(notes)


@dataclass(frozen=True)
class _Simulated:
    """One test with its correction, by simulation."""

    test: Test
    correction: str
    simulation: Simulation

    def power(self, n: float, models: Sequence[int], populations: Array | None = None) -> Array:
        """(R, models) powers with n rows."""
        return self.simulation.power(self.test, self.correction, n, models, populations)

    def curve(
        self, sizes: Sequence[int], models: Sequence[int], done: Callable[[], None]
    ) -> Array:
        """(sizes, models) powers of the first population, made monotone.

        A model whose power has reached ENOUGH is not simulated again, and one tied with the
        best only while others are.
        """
        centre = self.simulation.populations[0]
        tied = {c for c, i in enumerate(models) if centre[i] <= centre.min()}
        powers = np.zeros((len(sizes), len(models)))
        live = list(range(len(models)))
        for k, n in enumerate(sizes):
            powers[k] = powers[k - 1] if k else 0.0
            if set(live) - tied:
                powers[k, live] = self.power(n, [models[c] for c in live])[0]
                live = [c for c in live if powers[k, c] < ENOUGH]
            done()
        return np.stack([isotonic_regression(column).x for column in powers.T], axis=1)

    def rows_needed(
        self, sizes: Sequence[int], powers: Array, model: int, power: float
    ) -> tuple[float, float]:
        """The number of rows at which the curve of one model reaches the power, and its
        Monte-Carlo standard error.

        Starts from the two sizes that bracket it; probit(power) is close to linear in √n.
        inf where it is not reached.
        """
        reached = np.flatnonzero(powers >= power)
        if not len(reached):
            return math.inf, math.nan
        k = int(reached[0])
        if k == 0:
            return float(sizes[0]), 0.0
        low = (math.sqrt(sizes[k - 1]), float(powers[k - 1]))
        high = (math.sqrt(sizes[k]), float(powers[k]))
        root, error = self._crossing(
            lambda x: float(self.power(x * x, [model])[0, 0]), low, high, power
        )
        return root * root, 2.0 * root * error

    def detectable_gap(self, n: float, model: int, best: int, power: float) -> float:
        """The gap of one model to the best at which n rows give the power, the other models
        staying where they are.
        """
        simulated = self.simulation
        covariance = simulated.law.mean_covariance(simulated.populations[0], n)
        error = math.sqrt(difference_variance(covariance, model, best))
        if error == 0.0:
            return 0.0

        def at(gap: float) -> float:
            centres = simulated.populations[:1].copy()
            centres[0, model] = centres[0, best] + gap
            return float(self.power(n, [model], centres)[0, 0])

        low = (0.0, at(0.0))
        high = (error, at(error))
        for _ in range(DOUBLINGS):
            if high[1] >= power:
                break
            low = high
            high = (2.0 * high[0], at(2.0 * high[0]))
        if low[1] >= power:
            return 0.0
        return self._crossing(at, low, high, power)[0] if high[1] >= power else math.inf

    def rows_by_population(self, sizes: Sequence[int], model: int, power: float) -> list[float]:
        """Rows needed to find the model in each population; inf where it is the best, or
        `sizes` do not suffice.

        By interpolation between the sizes, as in `rows_needed`, without its refinement.
        """
        centres = self.simulation.populations
        trials = self.simulation.trials
        needed = np.full(len(centres), math.inf)
        live = centres[:, model] > np.delete(centres, model, axis=1).min(axis=1)
        before = np.zeros(len(centres))
        for k, n in enumerate(sizes):
            if not live.any():
                break
            now = before.copy()
            undecided = replace(self, simulation=self.simulation.restricted(live))
            now[live] = np.maximum(before[live], undecided.power(n, [model])[:, 0])
            new = live & (now >= power)
            if new.any() and k:
                a = _probit(before[new], trials)
                b = _probit(now[new], trials)
                fraction = np.clip(
                    (float(ndtri(power)) - a) / np.maximum(b - a, 1e-9), 0.0, 1.0
                )
                first = math.sqrt(sizes[k - 1])
                last = math.sqrt(n)
                needed[new] = (first + fraction * (last - first)) ** 2
            elif new.any():
                needed[new] = n
            live = live & ~new
            before = now
        return [float(rows) for rows in needed]

    def _crossing(
        self,
        at: Callable[[float], float],
        low: tuple[float, float],
        high: tuple[float, float],
        power: float,
    ) -> tuple[float, float]:
        """Where a power rises to its goal between two points, and the Monte-Carlo standard
        error of that place.

        `low` and `high` are points with their powers. The secant in probits, then the
        bracket is tightened; the error is that of a fraction over the slope of the first,
        wide bracket, where differences of fractions are not mostly noise.
        """
        goal = float(ndtri(power))
        trials = self.simulation.trials
        slope = (_probit(high[1], trials) - _probit(low[1], trials)) / (high[0] - low[0])
        density = math.exp(-0.5 * goal * goal) / math.sqrt(2.0 * math.pi)
        error = (
            math.sqrt(power * (1.0 - power) / trials) / (density * float(slope))
            if slope > 0.0
            else math.inf
        )
        for _ in range(REFINEMENTS):
            a = float(_probit(low[1], trials))
            b = float(_probit(high[1], trials))
            fraction = (goal - a) / (b - a) if b > a else 0.5
            x = low[0] + min(max(fraction, 0.05), 0.95) * (high[0] - low[0])
            value = at(x)
            low, high = (low, (x, value)) if value >= power else ((x, value), high)
        a = float(_probit(low[1], trials))
        b = float(_probit(high[1], trials))
        fraction = min(max((goal - a) / (b - a), 0.0), 1.0) if b > a else 1.0
        return low[0] + fraction * (high[0] - low[0]), error


def _probit(fraction: Array | float, trials: int) -> Array:
    return np.asarray(ndtri(np.clip(fraction, 0.5 / trials, 1.0 - 0.5 / trials)))


def check_power(power: Any, alpha: float) -> float:
    """A power between alpha and 1."""
    number = isinstance(power, int | float | np.floating) and not isinstance(power, bool)
    if not number or not alpha < power < 1.0:
        raise InputError(
            f"power: expected a number between alpha ({alpha:g}) and 1, got "
            f"{reprlib.repr(power)}"
        )
    return float(power)
