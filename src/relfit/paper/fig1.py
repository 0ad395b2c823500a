"""Figure 1: two models and the fixed hypothesis "P1 is no worse than P2", six tests on three problems."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.spatial.distance import cdist

from relfit import Gaussian, MultiScale, compare_pair
from relfit.paper.drawing import BLUE, FAINT, LOOKS, RED, add_legend, draw_curve, draw_level, dress, new_figure
from relfit.paper.experiment import ALPHA, Check, Experiment, Results, Row, Setting, bounded, curve, grid, level_kept
from relfit.paper.problems import Problem, blobs, draw, mean_shift_pair, rbm


class Test(NamedTuple):
    """A test of the pair: what it measures, how it decides, its estimator and its kernel."""

    measure: str
    test: str
    estimator: str = "complete"
    kernel: str = "median"


SIX = {
    "RelPSI-MMD": Test("mmd", "relpsi"),
    "RelPSI-MMD linear": Test("mmd", "relpsi", "linear"),
    "RelMMD": Test("mmd", "z"),
    "RelPSI-KSD": Test("ksd", "relpsi"),
    "RelPSI-KSD linear": Test("ksd", "relpsi", "linear"),
    "RelKSD": Test("ksd", "z"),
}
MULTISCALE, PUBLISHED = "RelPSI-MMD multi-scale", "RelPSI-MMD published bandwidth"
BLOBS_TESTS = SIX | {
    MULTISCALE: Test("mmd", "relpsi", kernel="multi-scale"),
    PUBLISHED: Test("mmd", "relpsi", kernel="published"),
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
    return _trial(blobs(), BLOBS_TESTS, setting["n"], seed)


def rbm_trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of the RBMs with B[0,0] moved by ε (P1) and .3 (P2), decided by the six tests."""
    return _trial(rbm([setting["epsilon"], TURN]), SIX, setting["n"], seed)


def _trial(problem: Problem, tests: Mapping[str, Test], n: int, seed: int) -> dict[str, Any]:
    reference, samples = draw(problem, n, seed)
    models: dict[str, Mapping[str, Any]] = {"mmd": samples, "ksd": problem.densities()}
    published = Gaussian(_published_bandwidth(reference, samples))
    kernels = {"median": Gaussian(), "multi-scale": MultiScale(), "published": published}
    decisions = []
    for name, test in tests.items():
        pair = models[test.measure]
        result = compare_pair(
            reference,
            pair["P1"],
            pair["P2"],
            test=test.test,
            estimator=test.estimator,
            kernel=kernels[test.kernel],
            alpha=ALPHA,
            rng=seed,
            progress=False,
        )
        verdict = {"pvalue": result.pvalue, "worse": result.worse, "status": list(result.status)}
        decisions.append({"test": name, "model": "P1", **verdict})
    return {"decisions": decisions}


def _published_bandwidth(reference: Any, samples: Mapping[str, Any]) -> float:
    """The published code's rule for MMD: σ² = ½(mean_i median‖x^i − r‖)², on at most 1000 rows."""
    rows = reference[:BANDWIDTH_ROWS]
    medians = [np.median(cdist(sample[:BANDWIDTH_ROWS], rows)) for sample in samples.values()]
    return float(np.mean(medians) / np.sqrt(2.0))


def table(tests: Mapping[str, Test], results: Results) -> list[Row]:
    """A row per setting: the rejection rate of every test."""
    curves = {name: curve(results, name) for name in tests}
    return [
        {**cell.setting, "trials": len(cell.outcomes)} | {name: points[k].pair for name, points in curves.items()}
        for k, cell in enumerate(results)
    ]


def mean_shift_table(results: Results) -> list[Row]:
    """The rates, with a row of the authors' figures below."""
    authors: Row = {"n": "500, authors", "trials": 300, **{name: f"{p:g}" for name, p in AUTHORS_AT_500.items()}}
    return [*table(SIX, results), authors]


def figure(title: str, label: str, tests: Mapping[str, Test], results: Results) -> Figure:
    """Rejection rate against what varies; blobs get a second panel with a sample."""
    drawn, axes = new_figure(2 if tests is BLOBS_TESTS else 1)
    draw_level(axes[0])
    for name in tests:
        draw_curve(axes[0], name, LOOKS[name], curve(results, name))
    moving = "epsilon" in results[0].setting
    top = 0.25 if tests is SIX and not moving else 1.03
    dress(axes[0], title, label, 'Rate of "P1 is worse than P2"', (0.0, top))
    if moving:
        axes[0].axvline(TURN, color=FAINT, linewidth=0.8, zorder=0)
    if tests is BLOBS_TESTS:
        _sample_panel(axes[1])
    add_legend(drawn, axes[0], 3 if tests is SIX else 4)
    return drawn


def _sample_panel(ax: Axes) -> None:
    reference, samples = draw(blobs(), 400, seed=0)
    panels = {"R": (reference, FAINT), "P1": (samples["P1"], RED), "P2": (samples["P2"], BLUE)}
    for k, (name, (rows, colour)) in enumerate(panels.items()):
        ax.scatter(rows[:, 0] + 18.0 * k, rows[:, 1], s=3, color=colour, linewidths=0)
        ax.text(18.0 * k, -14.0, name, ha="center", color=colour)
    dress(ax, "Blobs: 400 draws of each, side by side", "", "")
    ax.set(xticks=[], yticks=[], ylim=(-16.0, 12.0), aspect="equal")


def mean_shift_checks(results: Results) -> list[Check]:
    """P1 and P2 are equally good: no test rejects too often."""
    claim = "{}: rejection ≤ .05 + 3 s.e. at every n"
    return [level_kept(claim.format(name), "n", curve(results, name)) for name in SIX]


def blobs_checks(results: Results) -> list[Check]:
    """At n = 500 KSD sees the difference, MMD with the median bandwidth does not, several bandwidths do."""
    at = [cell for cell in results if cell.setting["n"] == 500]
    bounds = {
        "RelPSI-KSD": ("KSD power ≥ .9 at n = 500", 0.9, 1.0),
        "RelPSI-MMD": ("MMD power ≤ .15 at n = 500 with the median bandwidth", 0.0, 0.15),
        MULTISCALE: ("MMD power ≥ .8 at n = 500 with a sum of bandwidths", 0.8, 1.0),
    }
    return [bounded(claim, "n", curve(at, name), low, high) for name, (claim, low, high) in bounds.items() if at]


def rbm_checks(results: Results) -> list[Check]:
    """Level below ε = .3, power of KSD at the right end, KSD above MMD."""
    curves = {name: curve(results, name) for name in SIX}
    below = {name: [p for p in points if p.x < TURN] for name, points in curves.items()}
    claim = "{}: rejection ≤ .05 + 3 s.e. for ε < .3"
    checks = [level_kept(claim.format(name), "ε", points) for name, points in below.items() if points]
    ends = [p for p in curves["RelPSI-KSD"] if p.x == max(EPSILONS)]
    if ends:
        checks.append(bounded("RelPSI-KSD ≥ .9 at ε = 1", "ε", ends, 0.9))
    pairs = [(k, m) for k, m in zip(curves["RelPSI-KSD"], curves["RelPSI-MMD"], strict=True) if k.x > TURN]
    words = ", ".join(f"{k.value:.3f} and {m.value:.3f} at ε = {k.x:g}" for k, m in pairs)
    return [*checks, Check("RelPSI-KSD above RelPSI-MMD for ε > .3", all(k.value >= m.value for k, m in pairs), words)]


MEAN_SHIFT = Experiment(
    name="fig1-meanshift",
    title="Figure 1a: mean shift, d = 10, two equally good models",
    settings=grid("n", SIZES, QUICK_SIZES),
    trials=(300, 20),
    trial=mean_shift_trial,
    table=mean_shift_table,
    figure=partial(figure, "Mean shift, d = 10: both models equally good", "Sample size n", SIX),
    checks=mean_shift_checks,
)
BLOBS = Experiment(
    name="fig1-blobs",
    title="Figure 1b: blobs, d = 2, P1 worse than P2 at a small scale",
    settings=grid("n", SIZES, QUICK_SIZES),
    trials=(300, 10),
    trial=blobs_trial,
    table=partial(table, BLOBS_TESTS),
    figure=partial(figure, "Blobs, d = 2: P1 is worse", "Sample size n", BLOBS_TESTS),
    checks=blobs_checks,
)
RBM = Experiment(
    name="fig1-rbm",
    title="Figure 1c: Gaussian–Bernoulli RBM, d = 20, P1 moves away from R",
    settings=grid("epsilon", EPSILONS, QUICK_EPSILONS, n=RBM_SIZE),
    trials=(300, 8),
    trial=rbm_trial,
    table=partial(table, SIX),
    figure=partial(figure, "RBM, d = 20, n = 1000", "Perturbation ε of P1 (of P2: .3)", SIX),
    checks=rbm_checks,
)
EXPERIMENTS = (MEAN_SHIFT, BLOBS, RBM)
