"""The gap D_2 − D_1 of two models in the population: all that the law of its complete estimate depends on.

The problems are Gaussian mixtures in one or two dimensions, so expectations are sums over Gauss–Hermite nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

from relfit.api import compare
from relfit.data.models import Density
from relfit.kernels.standard import Gaussian
from relfit.paper.drawing import BLUE, GREEN, INK, ORANGE, RED, Look, add_legend, draw_points, dress, new_figure
from relfit.paper.experiment import (
    ALPHA,
    Cell,
    Check,
    Decision,
    Experiment,
    Point,
    Results,
    Row,
    Setting,
    curve,
    declared,
    rate,
)
from relfit.paper.problems import GaussianMixture, Problem, draw, mixture_1d, rotation_2d
from relfit.util.arrays import Array

ORDER = 32  # nodes per dimension and component: means and variances are right to 2e-4 or better on these problems
# How D_2 − D_1 of MMD combines the kernel means of R, P1 and P2: the reference's own term cancels.
_SIGNS = np.array([[0.0, 1.0, -1.0], [1.0, -1.0, 0.0], [-1.0, 0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class Gap:
    """D_2 − D_1 of a problem: its mean μ, and the eigenvalues ν_k and projections b_k of its pair kernel.

    With h the pair kernel, g its mean over one of the two points and h̃ = h − g − g' + μ, the ν_k and e_k are the
    eigenvalues and eigenfunctions of h̃, and b_k = E (g − μ) e_k. They are those of the U-statistic's expansion
    μ + 2 Σ b_k ē_k + Σ ν_k (ē_k² − 1/n), ē_k the mean of e_k over the rows.
    """

    mean: float
    projections: Array
    eigenvalues: Array

    @property
    def first(self) -> float:
        """4 Σ b_k²: the variance of the estimate is first/n + second/n²."""
        return 4.0 * float(self.projections @ self.projections)

    @property
    def second(self) -> float:
        """2 Σ ν_k²."""
        return 2.0 * float(self.eigenvalues @ self.eigenvalues)


def mmd_gap(problem: Problem, bandwidth: float) -> Gap:
    """The gap between the two models' MMD² under exp(−r²/(2σ²)), with samples of equal size.

    D_2 − D_1 = E k(x₂,x₂') − E k(x₁,x₁') − 2 E k(x₂,r) + 2 E k(x₁,r).
    """
    groups = [nodes(one.as_mixture()) for one in (problem.reference, *problem.distributions)]
    kernels = [
        [sign * _gaussian(x, y, bandwidth) for sign, (y, _) in zip(signs, groups, strict=True)]
        for signs, (x, _) in zip(_SIGNS, groups, strict=True)
    ]
    return _gap(kernels, [w for _, w in groups])


def ksd_gap(problem: Problem, bandwidth: float) -> Gap:
    """The gap between the two models' KSD² under exp(−r²/(2σ²))."""
    r, w = nodes(problem.reference.as_mixture())
    lower, upper = (_stein(r, problem.score(name)(r), bandwidth) for name in problem.models)
    return _gap([[upper - lower]], [w])


def gaussian_ksd(problem: Problem, bandwidth: float) -> Array:
    """KSD² of every model under exp(−r²/(2σ²)), exact: (l,), for a Gaussian reference and Gaussian models.

    D = E δ(x)·δ(y) k(x,y) with δ(x) = M(x − m) + c the difference of the scores, m the reference's mean. Under the
    density proportional to k(x,y) r(x) r(y) the rows are Gaussian: D = E k · (tr M Q Mᵀ + ‖c‖²), Q = Cov(x, y) there.
    """
    reference = problem.reference.as_mixture()
    mean, d = reference.means[0], reference.means.shape[1]
    eye = np.eye(d)
    tie = np.kron(np.array([[1.0, -1.0], [-1.0, 1.0]]), eye) / bandwidth**2
    precision = np.kron(np.eye(2), np.linalg.inv(reference.covariance)) + tie
    mean_kernel = (np.linalg.det(precision) * np.linalg.det(reference.covariance) ** 2) ** -0.5
    across = np.linalg.inv(precision)[:d, d:]
    out = []
    for name in problem.models:
        at = np.vstack([mean, mean + eye])
        delta = problem.score(name)(at) - reference.score(at)
        slope = (delta[1:] - delta[0]).T
        out.append(mean_kernel * (np.trace(slope @ across @ slope.T) + delta[0] @ delta[0]))
    return np.array(out)


def nodes(mixture: GaussianMixture) -> tuple[Array, Array]:
    """Points (m, d) and weights (m,) with Σ w f(x) = E f(x) for smooth f."""
    abscissae, weights = np.polynomial.hermite_e.hermegauss(ORDER)
    d = mixture.means.shape[1]
    grid = np.stack(np.meshgrid(*[abscissae] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weight = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * d, indexing="ij"), axis=-1), axis=-1).ravel()
    spread = grid @ np.linalg.cholesky(mixture.covariance).T
    points = (mixture.means[:, None, :] + spread).reshape(-1, d)
    return points, np.asarray(np.outer(mixture.weights, weight).ravel())


def _gap(kernels: Sequence[Sequence[Array]], weights: Sequence[Array]) -> Gap:
    """The gap of a pair kernel given in blocks, a block for two of the independent samples.

    √w scales the blocks so that sums over nodes are expectations.
    """
    count = range(len(weights))
    rows = [[kernels[i][j] @ weights[j] for j in count] for i in count]
    columns = [[weights[i] @ kernels[i][j] for j in count] for i in count]
    means = [[float(weights[i] @ rows[i][j]) for j in count] for i in count]
    roots = [np.sqrt(w) for w in weights]
    centred = [
        [
            roots[i][:, None] * (kernels[i][j] - rows[i][j][:, None] - columns[i][j] + means[i][j]) * roots[j]
            for j in count
        ]
        for i in count
    ]
    projection = [roots[i] * (np.sum(rows[i], axis=0) - sum(means[i])) for i in count]
    eigenvalues, vectors = np.linalg.eigh(np.block(centred))
    return Gap(float(np.sum(means)), np.concatenate(projection) @ vectors, eigenvalues)


def _gaussian(x: Array, y: Array, bandwidth: float) -> Array:
    squares = ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1)
    return np.asarray(np.exp(-0.5 * squares / bandwidth**2))


def _stein(x: Array, s: Array, bandwidth: float) -> Array:
    """u(x,y) = k·[s(x)·s(y) + (s(x) − s(y))·(x−y)/σ² + d/σ² − ‖x−y‖²/σ⁴], the Gaussian kernel's Stein kernel."""
    b2 = bandwidth**2
    along = s @ x.T
    own = np.diag(along)
    squares = ((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=-1)
    push = own[:, None] - along + own[None, :] - along.T
    return np.asarray(np.exp(-0.5 * squares / b2) * (s @ s.T + push / b2 + x.shape[1] / b2 - squares / b2**2))


# --------------------
# The true positive rate of two-model tests from the population alone: for large n in closed form, and at a given n.
#
# Rejecting needs D_2 − D_1 > z ŝ, which for large n is normal with a known s. At a finite n three things differ: the
# variance has a part of order 1/n², the estimated one counts that part twice, and it moves with the estimate. All
# three follow from the U-statistic's expansion with means ē_k of n rows taken to be normal, η_k = √n ē_k:
#
#     D_2 − D_1 = μ + (2/√n) Σ b_k η_k + (1/n) Σ ν_k (η_k² − 1),    ŝ² = (4/n) Σ (b_k + ν_k η_k/√n)².

DRAWS = 50_000
# Terms with smaller |ν| than this part of the largest are drawn as one normal number: their sum is normal enough.
SMALL = 0.005


def relpsi_limit(gap: Gap, n: float, alpha: float = 0.05) -> float:
    """P(P2 is declared worse) = Φ(√n μ/σ − z_{1−α/2}), σ² = `gap.first`."""
    return float(norm.cdf(_signal(gap, n) - norm.isf(alpha / 2.0)))


def relmulti_limit(gap: Gap, n: float, select_fraction: float, alpha: float = 0.05) -> float:
    """P(P1 is selected) P(P2 is then declared worse) = Φ(√(n(1−ρ)) μ/σ) Φ(√(nρ) μ/σ − z_{1−α}), ρ the test share."""
    chosen = norm.cdf(_signal(gap, n * select_fraction))
    return float(chosen * norm.cdf(_signal(gap, n * (1.0 - select_fraction)) - norm.isf(alpha)))


def relpsi_at(gap: Gap, n: int, alpha: float = 0.05) -> float:
    """P(D_2 − D_1 > z_{1−α/2} ŝ) at n rows: given that P1 is selected, t/ŝ is compared with a normal cut at 0."""
    return _exceeds(gap, n, float(norm.isf(alpha / 2.0)))


def relmulti_at(gap: Gap, n: int, select_fraction: float, alpha: float = 0.05) -> float:
    """P(D_2 − D_1 > 0) on the selection share times P(D_2 − D_1 > z_{1−α} ŝ) on the testing share."""
    selecting = round(select_fraction * n)
    return _exceeds(gap, selecting, 0.0) * _exceeds(gap, n - selecting, float(norm.isf(alpha)))


def relmulti_steps(gap: Gap, n: int, select_fraction: float, alpha: float = 0.05) -> dict[str, float]:
    """From the closed form to the rate at n rows, one cause after the other."""
    selecting = round(select_fraction * n)
    testing, z = n - selecting, float(norm.isf(alpha))
    spread, told = (math.sqrt(gap.first / testing + times * gap.second / testing**2) for times in (1.0, 2.0))
    chosen = norm.cdf(gap.mean / math.sqrt(gap.first / selecting + gap.second / selecting**2))
    return {
        "closed form, σ²/n": relmulti_limit(gap, n, select_fraction, alpha),
        "the variance of the estimate at n": float(chosen * norm.cdf(gap.mean / spread - z)),
        "the mean estimated variance in the threshold": float(chosen * norm.cdf((gap.mean - z * told) / spread)),
        "the estimated variance moves with the estimate": relmulti_at(gap, n, select_fraction, alpha),
    }


def estimates(gap: Gap, n: int) -> tuple[Array, Array]:
    """DRAWS pairs of the gap's estimate and its estimated variance at n rows, the same normal numbers for every n."""
    rng = np.random.default_rng(0)
    kept = np.abs(gap.eigenvalues) > SMALL * np.abs(gap.eigenvalues).max()
    b, nu = gap.projections[kept], gap.eigenvalues[kept]
    eta = rng.standard_normal((DRAWS, len(b)))
    linear = float((gap.projections[~kept] ** 2).sum())
    square = float((gap.eigenvalues[~kept] ** 2).sum())
    value = gap.mean + (2.0 / math.sqrt(n)) * (eta @ b) + ((eta**2 - 1.0) @ nu) / n
    value += math.sqrt(4.0 * linear / n + 2.0 * square / n**2) * rng.standard_normal(DRAWS)
    variance = (4.0 / n) * (((b + nu * eta / math.sqrt(n)) ** 2).sum(axis=1) + linear + square / n)
    return value, variance


@lru_cache
def _exceeds(gap: Gap, n: int, z: float) -> float:
    """P(D_2 − D_1 > z ŝ)."""
    value, variance = estimates(gap, n)
    return float(np.mean(value > z * np.sqrt(variance)))


def _signal(gap: Gap, n: float) -> float:
    return gap.mean / math.sqrt(gap.first / n)


# --------------------
# Appendix: the true positive rate of RelPSI and of data splitting, two models, against theory.

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
    "rows, which are taken to be normal (`relfit.paper.tpr`, 50,000 draws)."
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
