"""What a plan starts from: a pilot's estimate, or gaps that are assumed."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from relfit.estimators.checks import FEWEST_ROWS, FEWEST_SELECTION_ROWS
from relfit.results.comparison import Comparison
from relfit.results.plan import Forecast, Plan
from relfit.stats.decision import CORRECTIONS, differences, psi_rows, smallest_sample
from relfit.stats.joint import NEAR_DEGENERATE, JointEstimate
from relfit.stats.power import (
    Geometry,
    Law,
    Plain,
    Settings,
    Simulation,
    law_of,
    power_of_two,
    signal_needed,
    simulation,
)
from relfit.util.arrays import Array
from relfit.util.checks import check_alpha, check_choice, check_fraction
from relfit.util.errors import InputError
from relfit.util.progress import Progress, reporting
from relfit.util.random import Seed, make_seed

# A pilot says little about samples a thousand times its size.
FARTHEST, FEWEST_MOST = 1000, 1_000_000


@dataclass(frozen=True)
class Assumed:
    """Gaps that are assumed rather than measured.

    Args:
        gaps: model name → how much worse than the best it is (≥ 0), or one number for a single model. The best model
            is one with gap 0; where none has it, a model called "best" is added.
        standard_error: of one model's discrepancy, measured on `n` rows, the "s.e." of a comparison's table.
        correlation: between the estimates of any two models, in [0, 1); the standard error of a difference is
            √(2(1 − correlation)) times `standard_error`.
        n: the rows behind that standard error; it is taken to shrink like 1/√n.

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
            _check_number(f"gap of {name!r}", gap, 0.0, math.inf, "a number ≥ 0 (0 for the best model)", low_ok=True)
        _check_number("standard_error", self.standard_error, 0.0, math.inf, "a number above 0")
        _check_number("correlation", self.correlation, 0.0, 1.0, "a number from 0 to below 1", low_ok=True)
        check_whole("n", self.n, 1, "the rows behind the standard error")
        if not any(gap == 0.0 for gap in gaps.values()):
            if "best" in gaps:
                raise InputError(f"gaps: expected 0 for the model called 'best', got {gaps['best']:g}; rename it")
            gaps = {"best": 0.0, **gaps}
        count = len(gaps)
        matrix = (1.0 - self.correlation) * np.eye(count) + self.correlation
        return JointEstimate(
            tuple(gaps), np.array(list(gaps.values()), float), self.standard_error**2 * matrix, (int(self.n),)
        )


@dataclass(frozen=True)
class Pilot:
    """A checked pilot: D and V at n₀ rows, whether D is measured (and so uncertain), and the sizes allowed."""

    joint: JointEstimate
    law: Law
    rows: int
    measured: bool
    fewest_tested: int
    fewest_selected: int

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
        """The largest number of rows that is looked at."""
        return max(FARTHEST * self.rows, FEWEST_MOST)

    def fewest(self, test: str, select_fraction: float) -> int:
        """The fewest rows with which the test runs at all; relmulti needs them in both of its shares."""
        if test != "relmulti":
            return self.fewest_tested
        testing = math.ceil(self.fewest_tested / (1.0 - select_fraction) - 1e-9)
        return max(testing, math.ceil(self.fewest_selected / select_fraction - 1e-9))


def as_pilot(pilot: Any) -> Pilot:
    """A JointEstimate, the one behind a Comparison, or `Assumed`; checked."""
    known = None
    if isinstance(pilot, Comparison):
        if pilot.margin:
            raise InputError(
                f"pilot: expected a comparison without a margin, which plans do not know, got {pilot.margin:g}"
            )
        known, pilot = pilot.estimator, pilot._distinct()
    measured = isinstance(pilot, JointEstimate)
    if not isinstance(pilot, JointEstimate | Assumed):
        raise InputError(
            f"pilot: expected a JointEstimate (relfit.estimate, relfit.from_losses), a Comparison or relfit.Assumed "
            f"gaps, got {type(pilot).__name__}"
        )
    joint = pilot.joint() if isinstance(pilot, Assumed) else pilot
    if len(joint.names) < 2:
        raise InputError("pilot: expected at least 2 models, got 1")
    counted = smallest_sample(joint)
    if counted is None:
        raise InputError("pilot: expected an estimate with its sizes, got none; give sizes=(rows,) to JointEstimate")
    # Fewer ψ rows than rows (or groups) are pairs: the linear estimator.
    estimator = "linear" if known == "linear" or (psi_rows(joint) or counted) < counted else "complete"
    fewest = FEWEST_ROWS[estimator], FEWEST_SELECTION_ROWS[estimator]
    # Plans count rows, also where rows are in groups: V shrinks like 1/n with more groups of the same size.
    rows = min((size for size in joint.sizes or () if size > 0), default=counted)
    return Pilot(joint, law_of(joint, rows), rows, measured, *fewest)


def check_whole(argument: str, value: Any, fewest: int, what: str) -> int:
    """A whole number of at least `fewest`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < fewest:
        raise InputError(
            f"{argument}: expected a whole number of at least {fewest} ({what}), got {reprlib.repr(value)}"
        )
    return int(value)


def _check_number(argument: str, value: Any, low: float, high: float, expected: str, *, low_ok: bool = False) -> None:
    number = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    if not number or not (low < value < high or (low_ok and value == low)):
        raise InputError(f"{argument}: expected {expected}, got {reprlib.repr(value)}")


# --------------------
# From powers to sizes: the number of rows, or the gap, at which a simulated power is reached.

Tick = Callable[[], None]

# A curve that has come this far is not followed further: a power does not fall again as n grows.
ENOUGH = 0.999
REFINEMENTS = 3
DOUBLINGS = 14


@dataclass(frozen=True)
class Crossing:
    """Where a rising curve reaches the wanted power, and its Monte-Carlo standard error; inf where it does not."""

    at: float
    standard_error: float


def sizes_between(fewest: int, most: int) -> list[int]:
    """Doubling numbers of rows, from the fewest to the most."""
    count = max(1, math.ceil(math.log2(most / fewest)))
    return [*(fewest * 2**k for k in range(count)), most]


def climb(simulation: Simulation, test: str, sizes: Sequence[int], targets: Sequence[int], tick: Tick) -> Array:
    """(sizes, targets) powers of the first population, made monotone.

    A target whose power has reached ENOUGH is not simulated again, and one tied with the best only while others are.
    """
    centre = simulation.populations[0]
    tied = {c for c, i in enumerate(targets) if centre[i] <= centre.min()}
    powers = np.zeros((len(sizes), len(targets)))
    live = list(range(len(targets)))
    for k, n in enumerate(sizes):
        powers[k] = powers[k - 1] if k else 0.0
        if set(live) - tied:
            powers[k, live] = simulation.power(test, n, [targets[c] for c in live])[0]
            live = [c for c in live if powers[k, c] < ENOUGH]
        tick()
    return np.stack([isotonic_regression(column).x for column in powers.T], axis=1)


def rows_needed(
    simulation: Simulation, test: str, sizes: Sequence[int], powers: Array, target: int, power: float
) -> Crossing:
    """The number of rows at which the curve of one target reaches the power.

    Starts from the two sizes that bracket it; probit(power) is close to linear in √n.
    """
    reached = np.flatnonzero(powers >= power)
    if not len(reached):
        return Crossing(math.inf, math.nan)
    k = int(reached[0])
    if k == 0:
        return Crossing(float(sizes[0]), 0.0)

    def at(root: float) -> float:
        return float(simulation.power(test, root * root, [target])[0, 0])

    low, high = math.sqrt(sizes[k - 1]), math.sqrt(sizes[k])
    root, error = _cross(at, (low, float(powers[k - 1])), (high, float(powers[k])), power, simulation.trials)
    return Crossing(root * root, 2.0 * root * error)


def detectable_gap(simulation: Simulation, test: str, n: float, target: int, best: int, power: float) -> Crossing:
    """The gap of one model to the best at which n rows give the power, the other models staying where they are."""
    told = simulation.law.told(simulation.populations[0], n)
    error = float(Geometry(told).against(best).error[0, target])
    if error == 0.0:
        return Crossing(0.0, 0.0)

    def at(gap: float) -> float:
        centres = simulation.populations[:1].copy()
        centres[0, target] = centres[0, best] + gap
        return float(simulation.power(test, n, [target], centres)[0, 0])

    low, high = (0.0, at(0.0)), (error, at(error))
    for _ in range(DOUBLINGS):
        if high[1] >= power:
            break
        low, high = high, (2.0 * high[0], at(2.0 * high[0]))
    if low[1] >= power:
        return Crossing(0.0, 0.0)
    if high[1] < power:
        return Crossing(math.inf, math.nan)
    return Crossing(*_cross(at, low, high, power, simulation.trials))


def spread(simulation: Simulation, test: str, sizes: Sequence[int], target: int, power: float) -> list[float]:
    """Rows needed to find the target in each population; inf where it is the best, or `sizes` do not suffice.

    By interpolation between the sizes, as `rows_needed`, without its refinement.
    """
    centres = simulation.populations
    needed = np.full(len(centres), math.inf)
    live = centres[:, target] > np.delete(centres, target, axis=1).min(axis=1)
    before = np.zeros(len(centres))
    for k, n in enumerate(sizes):
        if not live.any():
            break
        now = before.copy()
        now[live] = np.maximum(before[live], simulation.kept(live).power(test, n, [target])[:, 0])
        new = live & (now >= power)
        if new.any():
            needed[new] = _between(sizes[k - 1], n, before[new], now[new], power, simulation.trials) if k else n
        live, before = live & ~new, now
    return [float(rows) for rows in needed]


def _between(first: float, last: float, before: Array, now: Array, power: float, trials: int) -> Array:
    """The n between two sizes at which probit(power), linear in √n, reaches its goal."""
    a, b = _probit(before, trials), _probit(now, trials)
    share = np.clip((float(ndtri(power)) - a) / np.maximum(b - a, 1e-9), 0.0, 1.0)
    return np.asarray((math.sqrt(first) + share * (math.sqrt(last) - math.sqrt(first))) ** 2)


def _cross(
    at: Callable[[float], float], low: tuple[float, float], high: tuple[float, float], power: float, trials: int
) -> tuple[float, float]:
    """Where a power rises to its goal between two points, and the Monte-Carlo standard error of that place.

    The secant in probits, then the bracket is tightened; the error is that of a share over the slope of the first,
    wide bracket, where differences of shares are not mostly noise.
    """
    goal = float(ndtri(power))
    slope = (_probit(high[1], trials) - _probit(low[1], trials)) / (high[0] - low[0])
    density = math.exp(-0.5 * goal * goal) / math.sqrt(2.0 * math.pi)
    error = math.sqrt(power * (1.0 - power) / trials) / (density * float(slope)) if slope > 0.0 else math.inf
    x = high[0]
    for _ in range(REFINEMENTS):
        a, b = float(_probit(low[1], trials)), float(_probit(high[1], trials))
        share = (goal - a) / (b - a) if b > a else 0.5
        x = low[0] + min(max(share, 0.05), 0.95) * (high[0] - low[0])
        value = at(x)
        low, high = (low, (x, value)) if value >= power else ((x, value), high)
    a, b = float(_probit(low[1], trials)), float(_probit(high[1], trials))
    share = min(max((goal - a) / (b - a), 0.0), 1.0) if b > a else 1.0
    return low[0] + share * (high[0] - low[0]), error


def _probit(share: Array | float, trials: int) -> Array:
    return np.asarray(ndtri(np.clip(share, 0.5 / trials, 1.0 - 0.5 / trials)))


# --------------------
# What a plan has to say in words.

_SHOWN = 4


def plan_notes(pilot: Pilot, forecasts: Sequence[Forecast]) -> tuple[str, ...]:
    """Sentences about gaps that the pilot cannot promise, and about sizes."""
    notes = []
    open_ = {cell.name: cell for cell in forecasts if cell.n_range is not None and math.isinf(cell.n_range[1])}
    for name, cell in list(open_.items())[:_SHOWN]:
        times = cell.gap / cell.gap_standard_error if cell.gap_standard_error > 0.0 else 0.0
        notes.append(
            f"{name}: the pilot shows no clear gap ({times:.1f} standard errors), so it cannot promise one: if there "
            "is none, no number of rows is enough"
        )
    if len(open_) > _SHOWN:
        more = len(open_) - _SHOWN
        notes.append(f"the same holds for {more} more model{'s' if more > 1 else ''}")
    tied = [cell.name for cell in {cell.name: cell for cell in forecasts}.values() if cell.gap == 0.0]
    if tied and not pilot.measured:
        notes.append(f"{', '.join(tied[:_SHOWN])}: as good as the best here, so never to be found worse")
    rows = [size for size in pilot.joint.sizes or () if size > 0]
    if len(set(rows)) > 1:
        notes.append(
            f"rows are those of the smallest sample (the pilot's: {min(rows)}, others up to {max(rows)}); all samples "
            "are taken to grow in proportion"
        )
    groups = pilot.joint.groups
    if groups is not None:
        notes.append(
            f"the pilot's {pilot.rows} rows are in {min(count for count in groups if count > 0)} groups: more rows "
            "means more groups of that size, not larger ones"
        )
    share = pilot.joint.near_degeneracy
    if share is not None and isinstance(pilot.law, Plain) and (share > NEAR_DEGENERATE).any():
        notes.append(
            "some models are so close to the data that the variance of their discrepancy shrinks faster than 1/n: with "
            "more rows than the pilot's the power is likely to be higher than forecast"
        )
    return tuple(notes)


# --------------------
# plan(): from a pilot to the rows each test needs.

TESTS = ("relpsi", "relmulti", "best-set", "carve")
FEWEST_TRIALS = 100
# Fresh draws of carving in a simulated trial; `carve` itself takes 2000, but its errors average out over trials.
CARVE_DRAWS, RANGE_CARVE_DRAWS = 200, 100
RANGE_TRIALS = 256
HIGH = 0.84
# Where curves start: this part of the rows that a fixed one-sided test needs for the largest gap.
START = 4.0


@dataclass(frozen=True)
class _Asked:
    pilot: Pilot
    power: float
    tests: tuple[str, ...]
    settings: Settings
    n: int
    trials: int

    @property
    def targets(self) -> list[int]:
        return [i for i in range(len(self.pilot.joint.names)) if i != self.pilot.best]

    def fewest(self, test: str) -> int:
        return self.pilot.fewest(test, self.settings.select_fraction)


_Outcome = tuple[list[Forecast], Array]


def plan(
    pilot: JointEstimate | Comparison | Assumed,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    tests: Sequence[str] = TESTS,
    n: int | None = None,
    select_fraction: float = 0.25,
    correction: str | None = None,
    trials: int = 1000,
    rng: Seed = None,
    progress: Any = None,
) -> Plan:
    """How many rows each test needs to find each model worse than the best, with the wanted power.

    The pilot's D is taken for the truth and estimates are N(D, V n₀/n) with n rows, n₀ being the rows of the pilot's
    smallest sample (all samples grow in proportion). Two models have closed forms then; more are simulated with common
    random numbers. Of complete estimates of MMD and KSD the pilot knows the part of V that shrinks like 1/n² too:
    any number of models is then simulated as squared lengths (`relfit.stats.power`).

    A pilot's gaps are uncertain: every number of rows comes with its range, from the gap moved by one standard error
    up and down (16% and 84% points), the other models staying where they are. A gap of less than one standard error
    promises nothing, and the range says "more than". The smallest of several noisy D is too small on average, so
    gaps to it are too large where several models are nearly tied: lean towards the upper end.

    Args:
        pilot: a JointEstimate with its sizes, from `relfit.estimate` or `relfit.from_losses`; a `Comparison`, whose
            distinct models' estimates it is; or `relfit.Assumed` gaps.
        power: the wanted probability that a model is declared worse.
        alpha: the level of the tests.
        tests: of "relpsi", "relmulti", "best-set", "carve".
        n: the rows for the reverse question, the power and the detectable gap with n rows; the pilot's where not given.
        select_fraction: relmulti's share of rows for the selection.
        correction: of the p-values, as in `relfit.compare`.
        trials: simulated trials per number of rows.
        rng: seed or Generator.
        progress: as in `relfit.compare`.

    >>> made = plan(Assumed(0.01, standard_error=0.01, n=500), tests=["best-set"])
    >>> made.needed("m1", "best-set")  # 500 · 2 · (1.6449 + 0.8416)²
    6183
    """
    asked = _asked(pilot, power, alpha, tests, n, Settings(alpha, select_fraction, correction), trials)
    seed = make_seed(rng)
    two = len(asked.pilot.joint.names) == 2 and isinstance(asked.pilot.law, Plain)
    sizes = _sizes(asked, two)
    with reporting(progress, "planning") as update:
        outcomes = (
            [_closed(asked, test, sizes) for test in asked.tests] if two else _simulated(asked, sizes, seed, update)
        )
    curves = np.stack([curve for _, curve in outcomes])
    shown = _shown(curves)
    by_test = [cells for cells, _ in outcomes]
    forecasts = tuple(cells[c] for c in range(len(asked.targets)) for cells in by_test)
    names = asked.pilot.joint.names
    return Plan(
        names=names,
        best=names[asked.pilot.best],
        target_power=asked.power,
        alpha=asked.settings.alpha,
        tests=asked.tests,
        select_fraction=select_fraction,
        corrections=tuple(asked.settings.corrected(test) for test in asked.tests),
        n=asked.n,
        pilot_n=asked.pilot.rows,
        measured=asked.pilot.measured,
        fewest=tuple(asked.fewest(test) for test in asked.tests),
        most=asked.pilot.most,
        forecasts=forecasts,
        sizes=np.array(sizes[:shown]),
        curves=curves[:, :, :shown],
        method="closed forms" if two else "simulation",
        trials=0 if two else asked.trials,
        seed=None if two else seed,
        notes=plan_notes(asked.pilot, forecasts),
    )


def _asked(pilot: Any, power: Any, alpha: Any, tests: Any, n: Any, settings: Settings, trials: Any) -> _Asked:
    start = as_pilot(pilot)
    alpha, fraction = check_alpha(alpha), check_fraction(settings.select_fraction)
    number = isinstance(power, int | float | np.floating) and not isinstance(power, bool)
    if not number or not alpha < power < 1.0:
        raise InputError(f"power: expected a number between alpha ({alpha:g}) and 1, got {power!r}")
    wanted = (tests,) if isinstance(tests, str) else tuple(tests) if np.iterable(tests) else (tests,)
    if not wanted:
        raise InputError(f"tests: expected some of {', '.join(TESTS)}, got none")
    wanted = tuple(dict.fromkeys(check_choice("tests", test, TESTS) for test in wanted))
    if settings.correction is not None:
        check_choice("correction", settings.correction, CORRECTIONS)
    fewest = max(start.fewest(test, fraction) for test in wanted)
    rows = max(start.rows, fewest) if n is None else check_whole("n", n, fewest, "what these tests need")
    check_whole("trials", trials, FEWEST_TRIALS, "fewer give no usable power")
    used = Settings(alpha, fraction, settings.correction)
    return _Asked(start, float(power), wanted, used, rows, int(trials))


def _sizes(asked: _Asked, two: bool) -> list[int]:
    """The sizes of the curves, doubling (closed forms: finer) from where the easiest model is still hard to find."""
    pilot = asked.pilot
    rising = (pilot.gap > 0.0) & (pilot.error > 0.0)
    signal = np.divide(pilot.gap, pilot.error, out=np.zeros_like(pilot.gap), where=rising).max()
    reach = float(ndtri(asked.power) - ndtri(asked.settings.alpha))
    easiest = pilot.rows * (reach / signal) ** 2 / START if signal > 0.0 else math.inf
    fewest = min(asked.fewest(test) for test in asked.tests)
    if differences(pilot.joint).certain.any():
        easiest = 0.0  # a constant difference is found with any number of rows
    start = min(max(fewest, math.floor(min(easiest, pilot.most))), pilot.most // 2)
    doubling = sizes_between(start, pilot.most)
    if not two:
        return doubling
    count = 4 * (len(doubling) - 1) + 1
    return sorted({round(x) for x in np.geomspace(start, pilot.most, count)})


def _shown(curves: Array) -> int:
    """How many sizes to show: up to the one where every curve is nearly 1."""
    settled = (curves > 0.995).all(axis=(0, 1))
    return int(np.argmax(settled)) + 1 if settled.any() else curves.shape[2]


def _closed(asked: _Asked, test: str, sizes: Sequence[int]) -> _Outcome:
    pilot, settings = asked.pilot, asked.settings
    (i,) = asked.targets
    gap, error = float(pilot.gap[i]), float(pilot.error[i])
    options = (settings.alpha, settings.select_fraction, settings.corrected(test))
    signal = signal_needed(test, asked.power, *options)

    def power_at(n: float) -> float:
        s = error * math.sqrt(pilot.rows / n)
        return power_of_two(test, gap / s, *options) if s > 0.0 else float(gap > 0.0)

    def rows_for(true_gap: float) -> float:
        if true_gap <= 0.0:
            return math.inf
        return _whole(asked, test, pilot.rows * (signal * error / true_gap) ** 2)

    reach = float(ndtri(HIGH)) * error
    range_ = (rows_for(gap + reach), rows_for(gap - reach)) if pilot.measured else None
    detectable = signal * error * math.sqrt(pilot.rows / asked.n)
    found = rows_for(gap), 0.0, range_, power_at(asked.n), 0.0, detectable
    return [_forecast(asked, test, i, *found)], np.array([[power_at(n) for n in sizes]])


def _simulated(asked: _Asked, sizes: list[int], seed: int, update: Progress | None) -> list[_Outcome]:
    pilot = asked.pilot
    centre = pilot.joint.values[None, :]
    names, law = pilot.joint.names, pilot.law
    main = simulation(names, law, asked.settings, asked.trials, CARVE_DRAWS, seed, centre)
    around = None
    if pilot.measured:
        around = simulation(
            names, law, asked.settings, RANGE_TRIALS, RANGE_CARVE_DRAWS, seed, np.repeat(centre, 2, axis=0)
        )
    tick = _ticker(update, (len(sizes) + 3 * len(asked.targets)) * len(asked.tests))
    return [_one_test(asked, test, sizes, main, around, tick) for test in asked.tests]


def _one_test(
    asked: _Asked, test: str, sizes: list[int], main: Simulation, around: Simulation | None, tick: Callable[[], None]
) -> _Outcome:
    targets, best = asked.targets, asked.pilot.best
    allowed = [n for n in sizes if n >= asked.fewest(test)]
    # The fewest rows allowed come first, so that no answer lies below them.
    allowed = (
        allowed if allowed[0] == sizes[0] else [asked.fewest(test), *(n for n in allowed if n > asked.fewest(test))]
    )
    powers = climb(main, test, allowed, targets, tick)
    now = main.power(test, asked.n, targets)[0]
    cells = []
    for c, i in enumerate(targets):
        if asked.pilot.gap[i] > 0.0:
            found = rows_needed(main, test, allowed, powers[:, c], i, asked.power)
            rows, error = _whole(asked, test, found.at), found.standard_error
        else:
            rows, error = math.inf, math.nan
        tick()
        detectable = detectable_gap(main, test, asked.n, i, best, asked.power).at
        tick()
        range_ = None if around is None else _range(asked, test, allowed, around, i)
        tick()
        share = float(now[c])
        own = math.sqrt(max(share * (1.0 - share), 1.0 / asked.trials) / asked.trials)
        cells.append(_forecast(asked, test, i, rows, error, range_, share, own, detectable))
    curve = np.array([np.interp(np.sqrt(sizes), np.sqrt(allowed), powers[:, c]) for c in range(len(targets))])
    curve[:, [n < allowed[0] for n in sizes]] = 0.0
    return cells, curve


def _range(asked: _Asked, test: str, sizes: list[int], around: Simulation, target: int) -> tuple[float, float]:
    """The rows needed if the target's gap is one standard error larger, and if it is one smaller."""
    reach = float(ndtri(HIGH) * asked.pilot.error[target])
    centres = around.populations + np.outer([reach, -reach], np.eye(around.populations.shape[1])[target])
    # A larger gap needs fewer rows than the pilot's curve starts with.
    fewest = asked.fewest(test)
    wider = [*sorted({max(fewest, sizes[0] // part) for part in (8, 4, 2)} - {sizes[0]}), *sizes]
    low, high = (
        _whole(asked, test, rows)
        for rows in spread(replace(around, populations=centres), test, wider, target, asked.power)
    )
    return low, high


def _whole(asked: _Asked, test: str, rows: float) -> float:
    """Rows rounded up to a whole number, not below the fewest; inf beyond the most."""
    if not rows <= asked.pilot.most:
        return math.inf
    return max(math.ceil(rows - 1e-9), asked.fewest(test))


def _forecast(
    asked: _Asked,
    test: str,
    i: int,
    rows: float,
    error: float,
    range_: tuple[float, float] | None,
    power: float,
    power_error: float,
    detectable: float,
) -> Forecast:
    pilot = asked.pilot
    own = float(pilot.error[i]) if pilot.measured else 0.0
    gap = float(pilot.gap[i])
    return Forecast(pilot.joint.names[i], test, gap, own, rows, error, range_, power, power_error, detectable)


def _ticker(update: Progress | None, total: int) -> Callable[[], None]:
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if update is not None:
            update(min(done, total), total)

    return tick
