"""Appendix: are the p-values uniform? Two models that are equally good, the p-value of the one not selected."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import kstest

from relfit import compare
from relfit.paper.drawing import BLUE, INK, ORANGE, add_legend, dress, new_figure
from relfit.paper.experiment import ALPHA, Cell, Check, Experiment, Results, Row, Setting, rate, verdict
from relfit.paper.problems import calibration_1d, draw
from relfit.util.arrays import Array

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
    models: dict[str, Any] = {"mmd": samples, "ksd": problem.densities()}
    decisions = []
    for test, measure in TESTS.items():
        result = compare(reference, models[measure], test="relpsi", alpha=ALPHA, rng=seed, progress=False)
        k = 1 - result.best_index
        decisions.append({**verdict(test, result, k), "status": list(result.status[k])})
    return {"decisions": decisions}


def _pvalues(cell: Cell, test: str) -> Array:
    return np.array([decisions[0]["pvalue"] for decisions in cell.decisions(test)])


def _same(cell: Cell, test: str) -> bool:
    """True if every trial said that the two models are the same one."""
    statuses = [" ".join(decisions[0]["status"]) for decisions in cell.decisions(test)]
    return all(any(word in status for word in SAME) for status in statuses)


def table(results: Results) -> list[Row]:
    """A row per panel and test: the Kolmogorov–Smirnov test of uniformity."""
    return [_row(cell, test) for cell in results for test in TESTS]


def _row(cell: Cell, test: str) -> Row:
    p = _pvalues(cell, test)
    row: Row = {**cell.setting, "test": test, "trials": len(p), "p ≤ .05": rate(p <= ALPHA)}
    if _same(cell, test):
        return {**row, "KS distance": "–", "KS p-value": "–", "says": "indistinguishable"}
    ks = kstest(p, "uniform")
    return {**row, "KS distance": float(ks.statistic), "KS p-value": float(ks.pvalue), "says": ""}


def figure(results: Results) -> Figure:
    """The empirical distribution functions on the diagonal, a panel per problem."""
    drawn, axes = new_figure(len(results))
    for ax, cell in zip(axes, results, strict=True):
        ax.plot([0, 1], [0, 1], "--", color=INK, linewidth=0.8, label="uniform")
        for test in TESTS:
            _draw_ecdf(ax, cell, test)
        title = f"μ₁ = {cell.setting['mu1']:g}, μ₂ = {cell.setting['mu2']:g}"
        dress(ax, title, "p-value", "Share of trials", (0.0, 1.0))
    add_legend(drawn, axes[0], 3)
    return drawn


def _draw_ecdf(ax: Axes, cell: Cell, test: str) -> None:
    if _same(cell, test):
        words = f"{test}: one density,\nsays indistinguishable"
        ax.text(0.97, 0.05, words, ha="right", color=COLOURS[test], fontsize="small")
        return
    p = np.sort(_pvalues(cell, test))
    fraction = np.arange(1, len(p) + 1) / len(p)
    ax.step(p, fraction, where="post", color=COLOURS[test], label=test)
    reach = 1.358 / np.sqrt(len(p))  # the 95% band of Kolmogorov and Smirnov
    ax.fill_between(p, fraction - reach, fraction + reach, step="post", color=COLOURS[test], alpha=0.12, linewidth=0)


def checks(results: Results) -> list[Check]:
    """Uniform by a Kolmogorov–Smirnov test, or called the same where it is one density."""
    return [_check(cell, test) for cell in results for test in TESTS]


def _check(cell: Cell, test: str) -> Check:
    where = f"{test}, μ = ({cell.setting['mu1']:g}, {cell.setting['mu2']:g})"
    if TESTS[test] == "ksd" and cell.setting["mu1"] == cell.setting["mu2"]:
        same = _same(cell, test)
        words = "indistinguishable in every trial" if same else "not in every trial"
        return Check(f"{where}: one density, and it says so", same, words)
    ks = kstest(_pvalues(cell, test), "uniform")
    figures = f"distance {ks.statistic:.3f}, p-value {ks.pvalue:.3f}"
    return Check(f"{where}: Kolmogorov–Smirnov p-value ≥ {KS_LEVEL}", bool(ks.pvalue >= KS_LEVEL), figures)


def _settings(_quick: bool) -> list[Setting]:
    return [{"panel": panel, "mu1": a, "mu2": b, "n": SIZE} for panel, (a, b) in PANELS.items()]


CALIBRATION = Experiment(
    name="calibration",
    title="Appendix: the p-values of RelPSI are uniform",
    settings=_settings,
    trials=(300, 30),
    trial=trial,
    table=table,
    figure=figure,
    checks=checks,
)
EXPERIMENTS = (CALIBRATION,)
