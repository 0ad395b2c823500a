"""Figure 1: two models and the fixed hypothesis "P1 is no worse than P2", six tests on three problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.spatial.distance import cdist

from relfit.api import compare_pair
from relfit.data.models import Density
from relfit.kernels.base import Kernel
from relfit.kernels.composite import MultiScale
from relfit.kernels.standard import Gaussian
from relfit.paper.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SKY,
    Look,
    add_legend,
    draw_curve,
    draw_level,
    dress,
    new_figure,
)
from relfit.paper.experiment import (
    ALPHA,
    Check,
    Decision,
    Experiment,
    Results,
    Row,
    Setting,
    bounded,
    curve,
    level_kept,
)
from relfit.paper.problems import Problem, blobs, draw, mean_shift_pair, rbm


class Test(NamedTuple):
    """A test of the pair: what it measures, how it decides, and its kernel (a word, as it depends on the data)."""

    measure: str
    test: str
    look: Look
    estimator: str = "complete"
    kernel: str = "median"


SIX = {
    "RelPSI-MMD": Test("mmd", "relpsi", Look(ORANGE, "o")),
    "RelPSI-MMD linear": Test("mmd", "relpsi", Look(ORANGE, "v", "--"), "linear"),
    "RelMMD": Test("mmd", "z", Look(RED, "s", "-.")),
    "RelPSI-KSD": Test("ksd", "relpsi", Look(BLUE, "o")),
    "RelPSI-KSD linear": Test("ksd", "relpsi", Look(BLUE, "v", "--"), "linear"),
    "RelKSD": Test("ksd", "z", Look(SKY, "s", "-.")),
}
MULTISCALE, PUBLISHED = "RelPSI-MMD multi-scale", "RelPSI-MMD published bandwidth"
BLOBS = SIX | {
    MULTISCALE: Test("mmd", "relpsi", Look(GREEN, "D"), kernel="multi-scale"),
    PUBLISHED: Test("mmd", "relpsi", Look(PINK, "P", ":"), kernel="published"),
}
SIZES, QUICK_SIZES = (50, 500, 1000, 1500, 2000), (50, 500)
EPSILONS, QUICK_EPSILONS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0), (0.1, 0.3, 1.0)
RBM_SIZE, TURN = 1000, 0.3
# Figures of a run by the authors at n = 500, in the order of SIX; the paper itself prints only curves.
AUTHORS_AT_500 = dict(zip(SIX, (0.04, 0.05, 0.053, 0.04, 0.053, 0.027), strict=True))
BANDWIDTH_ROWS = 1000


def mean_shift_trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of the mean-shift pair, decided by the six tests."""
    return _trial(mean_shift_pair(), SIX, setting["n"], seed)


def blobs_trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of the blobs, decided by the six tests and by RelPSI-MMD with two other kernels."""
    return _trial(blobs(), BLOBS, setting["n"], seed)


def rbm_trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of the RBMs with B[0,0] moved by ε (P1) and .3 (P2), decided by the six tests."""
    return _trial(rbm([setting["epsilon"], TURN]), SIX, setting["n"], seed)


def _trial(problem: Problem, tests: Mapping[str, Test], n: int, seed: int) -> dict[str, Any]:
    reference, samples = draw(problem, n, seed)
    densities = {name: Density(score=problem.score(name), dim=problem.dim) for name in problem.models}
    models: dict[str, Any] = {"mmd": samples, "ksd": densities}
    published = _published_bandwidth(reference, samples)
    kernels: dict[str, Kernel] = {"median": Gaussian(), "multi-scale": MultiScale(), "published": Gaussian(published)}
    decisions = [
        _decision(name, test, reference, models[test.measure], kernels[test.kernel], seed)
        for name, test in tests.items()
    ]
    return {"decisions": decisions}


def _decision(name: str, test: Test, reference: Any, models: Mapping[str, Any], kernel: Kernel, seed: int) -> Decision:
    result = compare_pair(
        reference,
        models["P1"],
        models["P2"],
        test=test.test,
        estimator=test.estimator,
        kernel=kernel,
        alpha=ALPHA,
        rng=seed,
        progress=False,
    )
    return {"test": name, "model": "P1", "pvalue": result.pvalue, "worse": result.worse, "status": list(result.status)}


def _published_bandwidth(reference: Any, samples: Mapping[str, Any]) -> float:
    """The published code's rule for MMD: σ² = ½(mean_i median‖x^i − r‖)², on at most 1000 rows."""
    rows = reference[:BANDWIDTH_ROWS]
    medians = [np.median(cdist(sample[:BANDWIDTH_ROWS], rows)) for sample in samples.values()]
    return float(np.mean(medians) / np.sqrt(2.0))


def table(axis: str, tests: Mapping[str, Test], results: Results) -> list[Row]:
    """A row per setting: the rejection rate of every test; the authors' figure beside it where they give one."""
    rows: list[Row] = []
    curves = {name: curve(results, axis, name) for name in tests}
    for k, cell in enumerate(results):
        row: Row = {axis: cell.setting[axis]} | {"n": cell.setting["n"], "trials": len(cell.outcomes)}
        for name in tests:
            row[name] = curves[name][k].pair
        rows.append(row)
    return rows


def mean_shift_table(results: Results) -> list[Row]:
    """The rates, with a row of the authors' figures below."""
    authors: Row = {"n": "500, authors", "trials": 300, **{name: f"{p:g}" for name, p in AUTHORS_AT_500.items()}}
    return [*table("n", SIX, results), authors]


def figure(title: str, axis: str, label: str, tests: Mapping[str, Test], results: Results) -> Figure:
    """Rejection rate against what varies; blobs get a second panel with a sample."""
    drawn, axes = new_figure(2 if tests is BLOBS else 1)
    draw_level(axes[0])
    for name, test in tests.items():
        draw_curve(axes[0], name, test.look, curve(results, axis, name))
    top = 0.25 if axis == "n" and tests is SIX else 1.03
    dress(axes[0], title, label, 'Rate of "P1 is worse than P2"', (0.0, top))
    if axis == "epsilon":
        axes[0].axvline(TURN, color="#999999", linewidth=0.8, zorder=0)
    if tests is BLOBS:
        _sample_panel(axes[1])
    add_legend(drawn, axes[0], 3 if tests is SIX else 4)
    return drawn


def _sample_panel(ax: Axes) -> None:
    reference, samples = draw(blobs(), 400, seed=0)
    shown = {"R": (reference, "#999999"), "P1": (samples["P1"], RED), "P2": (samples["P2"], BLUE)}
    for k, (name, (rows, colour)) in enumerate(shown.items()):
        ax.scatter(rows[:, 0] + 18.0 * k, rows[:, 1], s=3, color=colour, linewidths=0)
        ax.text(18.0 * k, -14.0, name, ha="center", color=colour)
    dress(ax, "Blobs: 400 draws of each, side by side", "", "")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_ylim(-16.0, 12.0)
    ax.set_aspect("equal")


def mean_shift_checks(results: Results) -> list[Check]:
    """P1 and P2 are equally good: no test rejects too often."""
    claim = "{}: rejection ≤ .05 + 3 s.e. at every n"
    return [level_kept(claim.format(name), "n", curve(results, "n", name)) for name in SIX]


def blobs_checks(results: Results) -> list[Check]:
    """At n = 500 KSD sees the difference, MMD with the median bandwidth does not, several bandwidths do."""
    at = [cell for cell in results if cell.setting["n"] == 500]
    if not at:
        return []
    bounds = {
        "RelPSI-KSD": ("KSD power ≥ .9 at n = 500", 0.9, 1.0),
        "RelPSI-MMD": ("MMD power ≤ .15 at n = 500 with the median bandwidth", 0.0, 0.15),
        MULTISCALE: ("MMD power ≥ .8 at n = 500 with a sum of bandwidths", 0.8, 1.0),
    }
    return [bounded(claim, "n", curve(at, "n", name), low, high) for name, (claim, low, high) in bounds.items()]


def rbm_checks(results: Results) -> list[Check]:
    """Level below ε = .3, power of KSD at the right end, KSD above MMD."""
    curves = {name: curve(results, "epsilon", name) for name in SIX}
    below = {name: [p for p in points if p.x < TURN] for name, points in curves.items()}
    claim = "{}: rejection ≤ .05 + 3 s.e. for ε < .3"
    out = [level_kept(claim.format(name), "ε", points) for name, points in below.items() if points]
    ends = [p for p in curves["RelPSI-KSD"] if p.x == max(EPSILONS)]
    if ends:
        out.append(bounded("RelPSI-KSD ≥ .9 at ε = 1", "ε", ends, 0.9))
    pairs = [(k, m) for k, m in zip(curves["RelPSI-KSD"], curves["RelPSI-MMD"], strict=True) if k.x > TURN]
    words = ", ".join(f"{k.value:.3f} and {m.value:.3f} at ε = {k.x:g}" for k, m in pairs)
    return [*out, Check("RelPSI-KSD above RelPSI-MMD for ε > .3", all(k.value >= m.value for k, m in pairs), words)]


def _sizes(quick: bool) -> list[Setting]:
    return [{"n": n} for n in (QUICK_SIZES if quick else SIZES)]


def _epsilons(quick: bool) -> list[Setting]:
    return [{"epsilon": e, "n": RBM_SIZE} for e in (QUICK_EPSILONS if quick else EPSILONS)]


_TESTS = (
    'Hypothesis "P1 is no worse than P2", fixed beforehand; RelPSI (complete and linear estimator, conditioned on '
    "which of the two looks better) and the plain z tests RelMMD and RelKSD, α = 0.05, Gaussian kernel."
)
_BANDWIDTH = (
    "The bandwidth is relfit's median distance of the pooled rows; the published code takes the median distance of "
    "a model's rows to the reference's over √2 for MMD, and the same as ours for KSD."
)
_SEEDS = (
    "The published code draws every model with the seed of the reference (of the RBM 91% of the rows are the "
    "reference's own), so its curves are not those of independent samples; ours are drawn from independent streams."
)

MEAN_SHIFT = Experiment(
    name="fig1-meanshift",
    title="Figure 1a: mean shift, d = 10, two equally good models",
    setting=f"R = N(0, I), P1 and P2 = N(±.5e₁, I), d = 10. {_TESTS}",
    paper="The false rejection rate is around α for all six tests.",
    note=_BANDWIDTH,
    settings=_sizes,
    trials=(300, 20),
    trial=mean_shift_trial,
    table=mean_shift_table,
    figure=partial(figure, "Mean shift, d = 10: both models equally good", "n", "Sample size n", SIX),
    checks=mean_shift_checks,
)
BLOBS_EXPERIMENT = Experiment(
    name="fig1-blobs",
    title="Figure 1b: blobs, d = 2, P1 worse than P2 at a small scale",
    setting="Four Gaussians at (±3.5, ±3.5) with covariance diag(5, .5), each turned about its own centre: R by 0, "
    f"P2 by π/5, P1 by π/2. {_TESTS} Two more kernels for MMD: `MultiScale()`, and the published code's bandwidth.",
    paper="KSD has high power; MMD has little, because the median bandwidth cannot see differences of a small scale. "
    "RelPSI has a little less power than RelMMD and RelKSD, linear estimators less than complete ones.",
    note=f"{_BANDWIDTH} {_SEEDS}",
    settings=_sizes,
    trials=(300, 10),
    trial=blobs_trial,
    table=partial(table, "n", BLOBS),
    figure=partial(figure, "Blobs, d = 2: P1 is worse", "n", "Sample size n", BLOBS),
    checks=blobs_checks,
)
RBM = Experiment(
    name="fig1-rbm",
    title="Figure 1c: Gaussian–Bernoulli RBM, d = 20, P1 moves away from R",
    setting="RBMs with 20 visible and 5 latent units that differ from R in B[0, 0] only: P2 by .3, P1 by ε; n = 1000. "
    f"P1 is worse exactly for ε > .3; at ε = .3 the densities coincide. {_TESTS}",
    paper="Low rejection rates for ε < .3; KSD turns sharply at ε = .3, MMD later; RelPSI-MMD visibly below RelMMD, "
    "RelPSI-KSD and RelKSD alike.",
    note=f"{_SEEDS} {_BANDWIDTH} At ε = .3 KSD compares two equal densities, says so, and never rejects. The paper "
    "does not print its grid of ε; ours is.",
    settings=_epsilons,
    trials=(300, 8),
    trial=rbm_trial,
    table=partial(table, "epsilon", SIX),
    figure=partial(figure, "RBM, d = 20, n = 1000", "epsilon", "Perturbation ε of P1 (of P2: .3)", SIX),
    checks=rbm_checks,
)
EXPERIMENTS: Sequence[Experiment] = (MEAN_SHIFT, BLOBS_EXPERIMENT, RBM)
