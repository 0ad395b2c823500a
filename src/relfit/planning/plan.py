"""plan(): from a pilot to the rows each test needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import Seed, check_alpha, check_choice, check_fraction, make_seed
from relfit.planning.closed import power_of_two, signal_needed
from relfit.planning.laws import Plain
from relfit.planning.notes import plan_notes
from relfit.planning.pilot import Assumed, Pilot, as_pilot, check_whole
from relfit.planning.result import Forecast, Plan
from relfit.planning.search import climb, detectable_gap, rows_needed, sizes_between, spread
from relfit.planning.simulate import Settings, Simulation, simulation
from relfit.procedures import CORRECTIONS
from relfit.procedures.differences import differences
from relfit.progress import Progress, reporting
from relfit.result import Comparison

Array = NDArray[np.float64]

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
    any number of models is then simulated as squared lengths (`relfit.planning.laws`).

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
