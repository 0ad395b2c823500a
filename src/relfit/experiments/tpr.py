"""Appendix: the true positive rate of RelPSI and of data splitting, two models, against theory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from relfit.compare import compare
from relfit.experiments.claims import ALPHA, Point, curve, declared
from relfit.experiments.drawing import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    RED,
    Look,
    add_legend,
    draw_points,
    dress,
    new_figure,
)
from relfit.experiments.experiment import Cell, Check, Decision, Experiment, Results, Row, Setting
from relfit.experiments.forms import relmulti_at, relmulti_limit, relmulti_steps, relpsi_at, relpsi_limit
from relfit.experiments.population import Gap, ksd_gap, mmd_gap
from relfit.experiments.summaries import rate
from relfit.kernels import Gaussian
from relfit.models import Density
from relfit.problems import draw, mixture_1d, rotation_2d

RELPSI = "RelPSI"
SPLITS = {"RelMulti 25%": 0.25, "RelMulti 50%": 0.5, "RelMulti 75%": 0.75}
TESTS = (RELPSI, *SPLITS)
LOOKS = dict(zip(TESTS, (Look(BLUE, "o"), Look(GREEN, "^"), Look(ORANGE, "s"), Look(RED, "v")), strict=True))
BANDWIDTH = 1.0
SIZES, QUICK_SIZES = (100, 250, 500, 1000, 2000, 3000, 4000), (100, 500)
# Degrees from the reference's axis, from P2 towards R: the rate runs from α/2 to 1.
ANGLES, QUICK_ANGLES = (90.0, 88.0, 87.0, 86.0, 85.0, 84.0, 82.0, 80.0, 76.0, 70.0), (90.0, 86.0, 82.0)
ROTATION_SIZE = 500
FROM_N = 250  # below it what the population says is drawn but not checked
AT_N, LIMIT = "expected at n", "closed form"
SAME = 90.0


def mixture_trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of the mixtures: MMD."""
    reference, samples = draw(mixture_1d(), setting["n"], seed)
    return _trial(reference, samples, seed)


def rotation_trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of the reference; the turned Gaussians by their scores: KSD."""
    problem = rotation_2d(np.deg2rad(setting["angle"]))
    reference, _ = draw(problem, setting["n"], seed)
    densities = {name: Density(score=problem.score(name), dim=problem.dim) for name in problem.models}
    return _trial(reference, densities, seed)


def _trial(reference: Any, models: Mapping[str, Any], seed: int) -> dict[str, Any]:
    shared: dict[str, Any] = {"kernel": Gaussian(BANDWIDTH), "alpha": ALPHA, "rng": seed, "progress": False}
    options: dict[str, dict[str, Any]] = {RELPSI: {"test": "relpsi"}}
    options |= {name: {"test": "relmulti", "select_fraction": share} for name, share in SPLITS.items()}
    decisions: list[Decision] = []
    for test, own in options.items():
        result = compare(reference, models, **own, **shared)
        second = result.names.index("P2")
        verdict = {"pvalue": float(result.pvalue[second]), "worse": bool(result.worse[second])}
        status = list(result.status[second])
        decisions.append({"test": test, "model": "P2", "selected": result.best, **verdict, "status": status})
    return {"decisions": decisions}


class Rates(NamedTuple):
    """The TPR of a test from the population: its closed form, which is for large n, and the rate at this n."""

    limit: float
    at_n: float


@cache
def _mixture_gap() -> Gap:
    return mmd_gap(mixture_1d(), BANDWIDTH)


@cache
def _rotation_gap(angle: float) -> Gap:
    return ksd_gap(rotation_2d(np.deg2rad(angle)), BANDWIDTH)


def mixture_theory(setting: Mapping[str, Any], test: str) -> Rates:
    """What a test should show on the mixtures."""
    return _theory(_mixture_gap(), setting["n"], test)


def rotation_theory(setting: Mapping[str, Any], test: str) -> Rates | None:
    """What a test should show on the turned Gaussians; None where the two models are one density."""
    return None if setting["angle"] == SAME else _theory(_rotation_gap(setting["angle"]), setting["n"], test)


def _theory(gap: Gap, n: int, test: str) -> Rates:
    if test == RELPSI:
        return Rates(relpsi_limit(gap, n, ALPHA), relpsi_at(gap, n, ALPHA))
    share = SPLITS[test]
    return Rates(relmulti_limit(gap, n, share, ALPHA), relmulti_at(gap, n, share, ALPHA))


Theory = Callable[[Mapping[str, Any], str], Rates | None]


def table(axis: str, theory: Theory, results: Results) -> list[Row]:
    """A row per setting and test: its rate, and beside it both figures from the population."""
    curves = {test: curve(results, axis, test) for test in TESTS}
    rows: list[Row] = []
    for k, cell in enumerate(results):
        for test in TESTS:
            expected = theory(cell.setting, test) or ("–", "–")
            row: Row = {axis: cell.setting[axis]} | {"n": cell.setting["n"], "test": test, "trials": len(cell.outcomes)}
            rows.append(row | {"TPR": curves[test][k].pair, AT_N: expected[1], LIMIT: expected[0]})
    return rows


def limit_table(axis: str, theory: Theory, results: Results) -> dict[str, list[Row]]:
    """How far the rates are from the closed forms, which are for large n."""
    cells = _checked(theory, results)
    if not cells:
        return {}
    gaps = {test: _gaps(axis, [rates.limit for rates in _known(theory, test, cells)], test, cells) for test in TESTS}
    sizes = [gap.value / gap.error for found in gaps.values() for gap in found]
    rows: list[Row] = []
    for test, found in gaps.items():
        far = _farthest(found)
        rows.append({"test": test, axis: far.x, "distance": far.value, "s.e.": f"{far.value / far.error:.1f}"})
    beyond = f"{sum(size > 3.0 for size in sizes)} of {len(sizes)} rates are more than 3 standard errors from it"
    return {f"The closed form, which is for large n, at n ≥ {FROM_N}: {beyond}. The farthest of each test:": rows}


def mixture_extras(results: Results) -> dict[str, list[Row]]:
    """Why the closed form is too high where the testing rows are fewest, and how far it is off elsewhere."""
    cells = _checked(mixture_theory, results)
    if not cells:
        return {}
    n, test = cells[0].setting["n"], list(SPLITS)[-1]
    steps = relmulti_steps(_mixture_gap(), n, SPLITS[test], ALPHA)
    (found,) = curve(cells[:1], "n", test)
    rows: list[Row] = [{"counted in": words, "TPR": value} for words, value in steps.items()]
    line = f"{test} at n = {n} from the population, one cause after the other:"
    return {line: [*rows, {"counted in": "found", "TPR": found.pair}], **limit_table("n", mixture_theory, results)}


def figure(
    title: str, axis: str, label: str, theory: Theory, picture: Callable[[Axes], None], results: Results
) -> Figure:
    """Rates with their error bars, what the population says as lines; beside it the densities."""
    drawn, axes = new_figure(2)
    for test, look in LOOKS.items():
        draw_points(axes[0], _label(test), look, curve(results, axis, test))
        expected = [(cell.setting[axis], theory(cell.setting, test)) for cell in results]
        x, y = zip(*[(at, rates) for at, rates in expected if rates is not None], strict=True)
        axes[0].plot(x, [rates.at_n for rates in y], "-", color=look.colour, linewidth=1.2)
        axes[0].plot(x, [rates.limit for rates in y], "--", color=look.colour, linewidth=1.0, alpha=0.7)
    axes[0].plot([], [], "-", color=INK, linewidth=1.2, label=AT_N)
    axes[0].plot([], [], "--", color=INK, linewidth=1.0, label=LIMIT)
    dress(axes[0], title, label, "Empirical TPR", (0.0, 1.03))
    if axis == "angle":
        axes[0].invert_xaxis()
    picture(axes[1])
    add_legend(drawn, axes[0], 6)
    return drawn


def _label(test: str) -> str:
    return test if test == RELPSI else f"RelMulti S:{100 * SPLITS[test]:.0f}% T:{100 - 100 * SPLITS[test]:.0f}%"


def mixture_picture(ax: Axes) -> None:
    """The three densities."""
    x = np.linspace(-5.0, 5.0, 300)[:, None]
    problem = mixture_1d()
    for name, density, colour in (
        ("R", problem.reference.log_density, INK),
        ("P1", problem.log_density("P1"), BLUE),
        ("P2", problem.log_density("P2"), RED),
    ):
        ax.plot(x[:, 0], np.exp(density(x)), color=colour, label=name)
    dress(ax, "Mixture problem", "x", "Density")
    ax.legend(frameon=False)


def rotation_picture(ax: Axes) -> None:
    """The contours that hold half of each distribution, P1 half-way to R."""
    turn = np.linspace(0.0, 2.0 * np.pi, 200)
    circle = np.sqrt(2.0 * np.log(2.0)) * np.stack([np.cos(turn), np.sin(turn)])
    problem = rotation_2d(np.pi / 4)
    shown = (("R", problem.reference, INK), *zip(("P1", "P2"), problem.distributions, (BLUE, RED), strict=True))
    for name, distribution, colour in shown:
        x, y = np.linalg.cholesky(distribution.as_mixture().covariance) @ circle
        ax.plot(x, y, color=colour, label=name)
    dress(ax, "Rotation problem (P1 at 45°)", "x₁", "x₂")
    ax.set_aspect("equal")
    ax.legend(frameon=False)


def checks(axis: str, word: str, theory: Theory, results: Results) -> list[Check]:
    """RelPSI is at least as good as every split, and all agree with the population."""
    cells = _checked(theory, results)
    out = [_order_check(axis, word, split, cells) for split in SPLITS if cells]
    return out + [_theory_check(axis, word, theory, test, cells) for test in TESTS if cells]


def _checked(theory: Theory, results: Results) -> list[Cell]:
    return [cell for cell in results if cell.setting["n"] >= FROM_N and theory(cell.setting, RELPSI) is not None]


def _order_check(axis: str, word: str, split: str, cells: Sequence[Cell]) -> Check:
    """RelPSI − split ≥ −2 standard errors of that difference (both tests see the same draws)."""
    gains = []
    for cell in cells:
        pairs = zip(cell.decisions(RELPSI), cell.decisions(split), strict=True)
        gains.append(Point(cell.setting[axis], *rate(declared(a) - declared(b) for a, b in pairs)))
    ok = all(gain.value >= -2.0 * gain.error for gain in gains)
    smallest = min(gains, key=lambda gain: gain.value)
    return Check(f"RelPSI ≥ {split} − 2 s.e. for n ≥ {FROM_N}", ok, f"smallest gain {smallest.at(word)}")


def _theory_check(axis: str, word: str, theory: Theory, test: str, cells: Sequence[Cell]) -> Check:
    """|rate − expected| ≤ 3√(p(1−p)/trials), p the expected one."""
    far = _farthest(_gaps(axis, [rates.at_n for rates in _known(theory, test, cells)], test, cells))
    told = f"largest distance {far.value:.3f}, {far.value / far.error:.1f} s.e., at {word} = {far.x:g}"
    return Check(f"{test} within 3 s.e. of what n rows should show, n ≥ {FROM_N}", far.value <= 3 * far.error, told)


def _known(theory: Theory, test: str, cells: Sequence[Cell]) -> list[Rates]:
    return [rates for cell in cells if (rates := theory(cell.setting, test)) is not None]


def _gaps(axis: str, expected: Sequence[float], test: str, cells: Sequence[Cell]) -> list[Point]:
    """The distances of the rates from what is expected, with the standard errors these have."""
    gaps = []
    for p, cell, point in zip(expected, cells, curve(cells, axis, test), strict=True):
        trials = len(cell.outcomes)
        # Near 0 and 1 one trial more or less must not count: the rate moves in steps of 1/trials.
        error = max(float(np.sqrt(p * (1.0 - p) / trials)), 1.0 / (3 * trials))
        gaps.append(Point(point.x, abs(point.value - p), error))
    return gaps


def _farthest(gaps: Sequence[Point]) -> Point:
    return max(gaps, key=lambda gap: gap.value / gap.error)


_TESTS = (
    "RelPSI on all rows, and RelMulti that selects on 25, 50 and 75% of them (S) and tests on the rest (T); Gaussian "
    "kernel of bandwidth 1, α = 0.05. TPR: how often P2 is declared worse."
)
_FORMS = (
    f'"{LIMIT}" is for large n: Φ(√n μ/σ − z(1−α/2)) for RelPSI, Φ(√(n(1−ρ)) μ/σ) Φ(√(nρ) μ/σ − z(1−α)) for a test '
    f'share ρ, with μ = D₂ − D₁ and σ² by quadrature. "{AT_N}" is the rate that the law of the estimate and of its '
    "estimated variance at n rows gives, from the same population and nothing else: both are quadratic in means over "
    "rows, which are taken to be normal (`relfit.experiments.forms`, 50,000 draws)."
)

MIXTURE = Experiment(
    name="tpr-mixture",
    title="Appendix: TPR on a mixture of Gaussians (MMD)",
    setting=f"M(ρ) = ρN(1, 1) + (1−ρ)N(−1, 1): R = M(.5), P1 = M(.7), P2 = M(.75); MMD. {_TESTS}",
    paper="RelPSI has the highest TPR, then the split that selects on 25%, then 50%, then 75%.",
    note=f"The paper does not print its grid of n. {_FORMS} The checks were first against the closed form with the "
    "variance at n in it, which RelMulti 75% failed at n = 250 by 4.3 s.e.: its 62 testing rows are few. The law at n "
    "was derived to find out why, and has no constant that could be fitted to the rates.",
    settings=lambda quick: [{"n": n} for n in (QUICK_SIZES if quick else SIZES)],
    trials=(300, 20),
    trial=mixture_trial,
    table=partial(table, "n", mixture_theory),
    figure=partial(figure, "Mixture, MMD", "n", "Sample size n", mixture_theory, mixture_picture),
    checks=partial(checks, "n", "n", mixture_theory),
    extras=mixture_extras,
)
ROTATION = Experiment(
    name="tpr-rotation",
    title="Appendix: TPR on turned Gaussians (KSD)",
    setting="N(0, C) with C = diag(5, .5) turned: R by 0, P2 by 90°, P1 from 90° towards R; KSD, n = 500. " + _TESTS,
    paper="The same order: RelPSI, then the splits that select on 25, 50 and 75%.",
    note="The paper gives neither the covariance nor the angles; ours are chosen so that the rate runs from 0 to 1. At "
    f"90° P1 and P2 are one density: KSD says so and never rejects. {_FORMS}",
    settings=lambda quick: [{"angle": a, "n": ROTATION_SIZE} for a in (QUICK_ANGLES if quick else ANGLES)],
    trials=(300, 20),
    trial=rotation_trial,
    table=partial(table, "angle", rotation_theory),
    figure=partial(
        figure, "Rotation, KSD, n = 500", "angle", "Angle of P1 (degrees)", rotation_theory, rotation_picture
    ),
    checks=partial(checks, "angle", "angle", rotation_theory),
    extras=partial(limit_table, "angle", rotation_theory),
)
EXPERIMENTS: Sequence[Experiment] = (MIXTURE, ROTATION)
