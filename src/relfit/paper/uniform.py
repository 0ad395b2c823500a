"""Appendix: are the p-values uniform? Two models that are equally good, the p-value of the one not selected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import kstest

from relfit.api import compare
from relfit.data.models import Density
from relfit.paper.drawing import BLUE, INK, ORANGE, add_legend, dress, new_figure
from relfit.paper.experiment import ALPHA, Cell, Check, Decision, Experiment, Results, Row, Setting, rate
from relfit.paper.problems import calibration_1d, draw

PANELS = {"a": (0.5, -0.5), "b": (2.5, 2.5), "c": (2.5, -2.5)}
TESTS = {"RelPSI-MMD": "mmd", "RelPSI-KSD": "ksd"}
COLOURS = {"RelPSI-MMD": ORANGE, "RelPSI-KSD": BLUE}
SIZE = 500
# Five tests of uniformity at a level of 5% together.
KS_LEVEL = 0.01
SAME = ("duplicate of", "indistinguishable")


def trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw: RelPSI's p-value of the model that was not selected, for MMD and KSD."""
    problem = calibration_1d(setting["mu1"], setting["mu2"])
    # Fresh draws for each panel: with those of another one KSD would test the same numbers again.
    reference, samples = draw(problem, setting["n"], len(PANELS) * seed + list(PANELS).index(setting["panel"]))
    densities = {name: Density(score=problem.score(name), dim=problem.dim) for name in problem.models}
    models: dict[str, Any] = {"mmd": samples, "ksd": densities}
    decisions: list[Decision] = []
    for test, measure in TESTS.items():
        result = compare(reference, models[measure], test="relpsi", alpha=ALPHA, rng=seed, progress=False)
        k = 1 - result.best_index
        verdict = {"pvalue": float(result.pvalue[k]), "worse": bool(result.worse[k])}
        decisions.append({"test": test, "model": result.names[k], **verdict, "status": list(result.status[k])})
    return {"decisions": decisions}


def _pvalues(cell: Cell, test: str) -> NDArray[np.float64]:
    return np.array([decisions[0]["pvalue"] for decisions in cell.decisions(test)])


def _same(cell: Cell, test: str) -> bool:
    """Whether every trial said that the two models are the same one."""
    said = [" ".join(decisions[0]["status"]) for decisions in cell.decisions(test)]
    return all(any(word in status for word in SAME) for status in said)


def _expects_same(cell: Cell, test: str) -> bool:
    return TESTS[test] == "ksd" and cell.setting["mu1"] == cell.setting["mu2"]


def table(results: Results) -> list[Row]:
    """A row per panel and test: the Kolmogorov–Smirnov test of uniformity."""
    return [_row(cell, test) for cell in results for test in TESTS]


def _row(cell: Cell, test: str) -> Row:
    p = _pvalues(cell, test)
    known: Row = {**cell.setting, "test": test, "trials": len(p)}
    if _same(cell, test):
        return {
            **known,
            "p ≤ .05": rate(p <= ALPHA),
            "KS distance": "–",
            "KS p-value": "–",
            "says": "indistinguishable",
        }
    ks = kstest(p, "uniform")
    words: Row = {"KS distance": float(ks.statistic), "KS p-value": float(ks.pvalue), "says": ""}
    return {**known, "p ≤ .05": rate(p <= ALPHA), **words}


def figure(results: Results) -> Figure:
    """The empirical distribution functions on the diagonal, a panel per problem."""
    drawn, axes = new_figure(len(results))
    for ax, cell in zip(axes, results, strict=True):
        ax.plot([0, 1], [0, 1], "--", color=INK, linewidth=0.8, label="uniform")
        for test in TESTS:
            _draw_ecdf(ax, cell, test)
        dress(
            ax, f"μ₁ = {cell.setting['mu1']:g}, μ₂ = {cell.setting['mu2']:g}", "p-value", "Share of trials", (0.0, 1.0)
        )
    add_legend(drawn, axes[0], 3)
    return drawn


def _draw_ecdf(ax: Axes, cell: Cell, test: str) -> None:
    if _same(cell, test):
        words = f"{test}: one density,\nsays indistinguishable"
        ax.text(0.97, 0.05, words, ha="right", color=COLOURS[test], fontsize="small")
        return
    p = np.sort(_pvalues(cell, test))
    share = np.arange(1, len(p) + 1) / len(p)
    ax.step(p, share, where="post", color=COLOURS[test], label=test)
    reach = 1.358 / np.sqrt(len(p))  # the 95% band of Kolmogorov and Smirnov
    ax.fill_between(p, share - reach, share + reach, step="post", color=COLOURS[test], alpha=0.12, linewidth=0)


def checks(results: Results) -> list[Check]:
    """Uniform by a Kolmogorov–Smirnov test, or called the same where it is one density."""
    return [_check(cell, test) for cell in results for test in TESTS]


def _check(cell: Cell, test: str) -> Check:
    where = f"{test}, μ = ({cell.setting['mu1']:g}, {cell.setting['mu2']:g})"
    if _expects_same(cell, test):
        said = "indistinguishable in every trial" if _same(cell, test) else "not in every trial"
        return Check(f"{where}: one density, and it says so", _same(cell, test), said)
    ks = kstest(_pvalues(cell, test), "uniform")
    figures = f"distance {ks.statistic:.3f}, p-value {ks.pvalue:.3f}"
    return Check(f"{where}: Kolmogorov–Smirnov p-value ≥ {KS_LEVEL}", bool(ks.pvalue >= KS_LEVEL), figures)


def _settings(_quick: bool) -> list[Setting]:
    return [{"panel": panel, "mu1": a, "mu2": b, "n": SIZE} for panel, (a, b) in PANELS.items()]


CALIBRATION = Experiment(
    name="calibration",
    title="Appendix: the p-values of RelPSI are uniform",
    setting="R = N(0, 1), P1 = N(μ₁, 1), P2 = N(μ₂, 1), |μ₁| = |μ₂|, n = 500: the p-value of the model that was not "
    "selected. MMD from samples and KSD from scores, Gaussian kernel with the median bandwidth.",
    paper="The empirical distribution of the p-values lies on the diagonal in all three panels.",
    note="In the middle panel the two densities are the same; KSD of the same data is then the same number twice, "
    "there is nothing to test, and relfit says so instead of giving a p-value.",
    settings=_settings,
    trials=(300, 30),
    trial=trial,
    table=table,
    figure=figure,
    checks=checks,
)
EXPERIMENTS: Sequence[Experiment] = (CALIBRATION,)
