"""Figure 1 and most of the appendix: a pair of models, two equally good models, and many
models at once.

Figure 1 tests the fixed hypothesis "P1 is no worse than P2" by six tests on three problems.
`calibration` asks whether p-values are uniform: of two models that are equally good, it
takes the p-value of the one not selected. The others compare seven or ten models: true
positives, false positives and false discoveries of RelPSI and RelMulti.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.distance import cdist
from scipy.stats import kstest

from relfit import Gaussian, MultiScale, compare_pair
from relfit.paper import problems
from relfit.paper.experiment import (
    ALPHA,
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PINK,
    PLAIN,
    RED,
    SKY,
    Cell,
    Check,
    Decision,
    Experiment,
    Look,
    Point,
    Printed,
    Results,
    Row,
    Setting,
    Tests,
    add_legend,
    bounded,
    curve,
    decided,
    declared,
    draw_curve,
    draw_level,
    dress,
    from_setting,
    grid,
    levels_kept,
    new_figure,
    rate,
    rates_table,
    relmulti,
)
from relfit.paper.problems import Problem, draw
from relfit.util.arrays import Array

LOOKS = {
    "RelPSI-MMD": Look(ORANGE, "o"),
    "RelPSI-MMD linear": Look(ORANGE, "v", "--"),
    "RelPSI-MMD multi-scale": Look(GREEN, "D"),
    "RelPSI-MMD published bandwidth": Look(PINK, "P", ":"),
    "RelMMD": Look(RED, "s", "-."),
    "RelMulti 50%-MMD": Look(RED, "s", "--"),
    "RelMulti 25%-MMD": Look(RED, "^", ":"),
    "RelPSI-KSD": Look(BLUE, "o"),
    "RelPSI-KSD linear": Look(BLUE, "v", "--"),
    "RelKSD": Look(SKY, "s", "-."),
    "RelMulti 50%-KSD": Look(SKY, "s", "--"),
    "RelMulti 25%-KSD": Look(SKY, "^", ":"),
}
PAIR_TESTS: dict[str, dict[str, Any]] = {
    "RelPSI-{}": {"test": "relpsi"},
    "RelPSI-{} linear": {"test": "relpsi", "estimator": "linear"},
    "Rel{}": {"test": "z"},
}
SIX = {
    name.format(kind.upper()): (kind, options)
    for kind in ("mmd", "ksd")
    for name, options in PAIR_TESTS.items()
}
MULTISCALE = "RelPSI-MMD multi-scale"
PUBLISHED = "RelPSI-MMD published bandwidth"
BLOBS_TESTS = SIX | {
    MULTISCALE: ("mmd", {"test": "relpsi", "kernel": MultiScale()}),
    PUBLISHED: SIX["RelPSI-MMD"],
}
PAIR_SIZES = (50, 500, 1000, 1500, 2000)
QUICK_PAIR_SIZES = (50, 500)
PAIR_EPSILONS = (
    0.0,
    0.1,
    0.2,
    0.25,
    0.28,
    0.3,
    0.31,
    0.32,
    0.33,
    0.35,
    0.4,
    0.5,
    0.6,
    0.8,
    1.0,
)
QUICK_PAIR_EPSILONS = (0.1, 0.3, 1.0)
RBM_SIZE = 1000
TURN = 0.3
# Figures of a run by the authors at n = 500, in the order of SIX; the paper itself prints only
# curves.
AUTHORS_AT_500 = dict(zip(SIX, (0.04, 0.05, 0.053, 0.04, 0.053, 0.027), strict=True))
BANDWIDTH_ROWS = 1000

PANELS = {"a": (0.5, -0.5), "b": (2.5, 2.5), "c": (2.5, -2.5)}
CALIBRATED: Tests = {
    "RelPSI-MMD": ("mmd", {"test": "relpsi"}),
    "RelPSI-KSD": ("ksd", {"test": "relpsi"}),
}
CALIBRATION_SIZE = 500
# Five tests of uniformity at a level of 5% together.
KS_LEVEL = 0.01
SAME = ("duplicate of", "indistinguishable")

# The paper's six, and RelMulti with relfit's default split.
OPTIONS: dict[str, dict[str, Any]] = {
    "RelPSI-{}": {"test": "relpsi"},
    "RelPSI-{} linear": {"test": "relpsi", "estimator": "linear"},
    **{f"RelMulti {k}%-{{}}": relmulti(k / 100) for k in (50, 25)},
}
MANY_TESTS: Tests = {
    name.format(kind.upper()): (kind, options)
    for kind in ("mmd", "ksd")
    for name, options in OPTIONS.items()
}
MANY_SIZES = (200, 500, 1000, 1500, 2000)
QUICK_MANY_SIZES = (200, 500)
MANY_EPSILONS = (0.18, 0.19, 0.2, 0.22)
QUICK_MANY_EPSILONS = (0.18, 0.2)


def rbm_pair(epsilon: float) -> Problem:
    """RBMs with B[0,0] moved by ε (P1) and .3 (P2)."""
    return problems.rbm([epsilon, TURN])


def _drawn(
    make: Callable[..., Problem], setting: Setting, seed: int
) -> tuple[Problem, Array, dict[str, dict[str, Any]]]:
    """The problem of a setting, a draw of its reference, and its models for each
    discrepancy.
    """
    problem = from_setting(make, setting)
    reference, samples = draw(problem, setting["n"], seed)
    return problem, reference, {"mmd": samples, "ksd": problem.densities()}


def pair_trial(
    make: Callable[..., Problem], tests: Tests, setting: Setting, seed: int
) -> dict[str, Any]:
    """One draw of the problem that `make` returns, decided by each test."""
    _, reference, models = _drawn(make, setting, seed)
    # The published code's rule for MMD: σ² = ½(mean_i median‖x^i − r‖)², on at most 1000 rows.
    medians = [
        np.median(cdist(sample[:BANDWIDTH_ROWS], reference[:BANDWIDTH_ROWS]))
        for sample in models["mmd"].values()
    ]
    decisions = []
    for name, (kind, options) in tests.items():
        settings: dict[str, Any] = {"estimator": PLAIN, **options}
        if name == PUBLISHED:
            settings["kernel"] = Gaussian(float(np.mean(medians) / np.sqrt(2.0)))
        result = compare_pair(
            reference,
            *models[kind].values(),
            alpha=ALPHA,
            rng=seed,
            progress=False,
            **settings,
        )
        verdict = {
            "pvalue": result.pvalue,
            "worse": result.worse,
            "status": list(result.status),
        }
        decisions.append({"test": name, "model": "P1", **verdict})
    return {"decisions": decisions}


def pair_table(tests: Tests, results: Results) -> list[Row]:
    """A row per setting: the rejection rate of every test."""
    return [
        {**cell.setting, "trials": len(cell.outcomes)}
        | {test: rate(map(declared, cell.decisions(test))) for test in tests}
        for cell in results
    ]


def mean_shift_table(results: Results) -> list[Row]:
    """The rates, with a row of the authors' figures below."""
    authors: Row = {
        "n": "500, authors",
        "trials": 300,
        **{name: f"{p:g}" for name, p in AUTHORS_AT_500.items()},
    }
    return [*pair_table(SIX, results), authors]


def pair_figure(title: str, label: str, tests: Tests, results: Results) -> Figure:
    """Rejection rate against what varies; blobs get a second panel with a sample."""
    drawn, axes = new_figure(2 if tests is BLOBS_TESTS else 1)
    draw_level(axes[0])
    for name in tests:
        draw_curve(axes[0], name, LOOKS[name], curve(results, name))
    moving = "epsilon" in results[0].setting
    dress(
        axes[0],
        title,
        label,
        'Rate of "P1 is worse than P2"',
        (0.0, 0.25 if tests is SIX and not moving else 1.03),
    )
    if moving:
        axes[0].axvline(TURN, color=FAINT, linewidth=0.8, zorder=0)
    if tests is BLOBS_TESTS:
        reference, samples = draw(problems.blobs(), 400, seed=0)
        panels = {
            "R": (reference, FAINT),
            "P1": (samples["P1"], RED),
            "P2": (samples["P2"], BLUE),
        }
        for k, (name, (rows, colour)) in enumerate(panels.items()):
            axes[1].scatter(rows[:, 0] + 18.0 * k, rows[:, 1], s=3, color=colour, linewidths=0)
            axes[1].text(18.0 * k, -14.0, name, ha="center", color=colour)
        dress(axes[1], "Blobs: 400 draws of each, side by side", "", "")
        axes[1].set(xticks=[], yticks=[], ylim=(-16.0, 12.0), aspect="equal")
    add_legend(drawn, axes[0], 3 if tests is SIX else 4)
    return drawn


def mean_shift_printed(results: Results) -> list[Printed]:
    """The rates of the authors' notebook at n = 500."""
    return [
        Printed(f"{test} at n = 500, authors' notebook", paper, cell.mean(test, "P1"), 300)
        for cell in results
        if cell.setting["n"] == 500
        for test, paper in AUTHORS_AT_500.items()
    ]


def mean_shift_checks(results: Results) -> list[Check]:
    """P1 and P2 are equally good: no test rejects too often."""
    claim = "{}: rejection ≤ .05 + 3 s.e. at every n"
    return levels_kept(claim, "n", {name: curve(results, name) for name in SIX})


def blobs_checks(results: Results) -> list[Check]:
    """At n = 500 KSD sees the difference, MMD with the median bandwidth does not, several
    bandwidths do.
    """
    cells = [cell for cell in results if cell.setting["n"] == 500]
    if not cells:
        return []
    bounds = {
        "RelPSI-KSD": ("KSD power ≥ .9 at n = 500", 0.9, 1.0),
        "RelPSI-MMD": ("MMD power ≤ .15 at n = 500 with the median bandwidth", 0.0, 0.15),
        MULTISCALE: ("MMD power ≥ .8 at n = 500 with a sum of bandwidths", 0.8, 1.0),
    }
    return [
        bounded(claim, "n", curve(cells, name), *ends)
        for name, (claim, *ends) in bounds.items()
    ]


def rbm_checks(results: Results) -> list[Check]:
    """Level below ε = .3, power of KSD at the right end, KSD above MMD."""
    curves = {name: curve(results, name) for name in SIX}
    below = {name: [p for p in points if p.x < TURN] for name, points in curves.items()}
    claim = "{}: rejection ≤ .05 + 3 s.e. for ε < .3"
    checks = levels_kept(claim, "ε", below)
    ends = [p for p in curves["RelPSI-KSD"] if p.x == max(PAIR_EPSILONS)]
    if ends:
        checks.append(bounded("RelPSI-KSD ≥ .9 at ε = 1", "ε", ends, 0.9))
    pairs = [
        (k, m)
        for k, m in zip(curves["RelPSI-KSD"], curves["RelPSI-MMD"], strict=True)
        if k.x > TURN
    ]
    words = ", ".join(f"{k.value:.3f} and {m.value:.3f} at ε = {k.x:g}" for k, m in pairs)
    return [
        *checks,
        Check(
            "RelPSI-KSD above RelPSI-MMD for ε > .3",
            all(k.value >= m.value for k, m in pairs),
            words,
        ),
    ]


def calibration_settings(_quick: bool) -> list[Setting]:
    """The three panels, in the quick version too."""
    return [
        {"panel": panel, "mu1": a, "mu2": b, "n": CALIBRATION_SIZE}
        for panel, (a, b) in PANELS.items()
    ]


def calibration_trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw: RelPSI's p-value of the model that was not selected, for MMD and KSD."""
    problem = problems.calibration_1d(setting["mu1"], setting["mu2"])
    # Fresh draws for each panel: with those of another one KSD would test the same numbers
    # again.
    reference, samples = draw(
        problem, setting["n"], len(PANELS) * seed + list(PANELS).index(setting["panel"])
    )
    models: dict[str, dict[str, Any]] = {"mmd": samples, "ksd": problem.densities()}
    decisions = decided(reference, models, CALIBRATED, seed)
    return {"decisions": [each for each in decisions if not each["selected"]]}


def _calibrated(cell: Cell, test: str) -> tuple[Array, bool]:
    """The p-values of a test, and True if every trial said that the two models are the same
    one.
    """
    verdicts = [decisions[0] for decisions in cell.decisions(test)]
    same = all(
        any(word in " ".join(verdict["status"]) for word in SAME) for verdict in verdicts
    )
    return np.array([verdict["pvalue"] for verdict in verdicts]), same


def calibration_table(results: Results) -> list[Row]:
    """A row per panel and test: the Kolmogorov–Smirnov test of uniformity."""
    rows: list[Row] = []
    for cell in results:
        for test in CALIBRATED:
            p, same = _calibrated(cell, test)
            row: Row = {
                **cell.setting,
                "test": test,
                "trials": len(p),
                "p ≤ .05": rate(p <= ALPHA),
            }
            ks = kstest(p, "uniform")
            distance, pvalue = ("–", "–") if same else (float(ks.statistic), float(ks.pvalue))
            says = "indistinguishable" if same else ""
            rows.append({**row, "KS distance": distance, "KS p-value": pvalue, "says": says})
    return rows


def calibration_figure(results: Results) -> Figure:
    """The empirical distribution functions on the diagonal, a panel per problem."""
    drawn, axes = new_figure(len(results))
    for ax, cell in zip(axes, results, strict=True):
        ax.plot([0, 1], [0, 1], "--", color=INK, linewidth=0.8, label="uniform")
        for test in CALIBRATED:
            p, same = _calibrated(cell, test)
            colour = LOOKS[test].colour
            if same:
                words = f"{test}: one density,\nsays indistinguishable"
                ax.text(0.97, 0.05, words, ha="right", color=colour, fontsize="small")
                continue
            p.sort()
            fraction = np.arange(1, len(p) + 1) / len(p)
            ax.step(p, fraction, where="post", color=colour, label=test)
            reach = 1.358 / np.sqrt(len(p))  # the 95% band of Kolmogorov and Smirnov
            ax.fill_between(
                p,
                fraction - reach,
                fraction + reach,
                step="post",
                color=colour,
                alpha=0.12,
                linewidth=0,
            )
        title = f"μ₁ = {cell.setting['mu1']:g}, μ₂ = {cell.setting['mu2']:g}"
        dress(ax, title, "p-value", "Share of trials", (0.0, 1.0))
    add_legend(drawn, axes[0], 3)
    return drawn


def calibration_checks(results: Results) -> list[Check]:
    """Uniform by a Kolmogorov–Smirnov test, or called the same where it is one density."""
    checks = []
    for cell in results:
        mu1 = cell.setting["mu1"]
        mu2 = cell.setting["mu2"]
        for test, (kind, _) in CALIBRATED.items():
            where = f"{test}, μ = ({mu1:g}, {mu2:g})"
            p, same = _calibrated(cell, test)
            if kind == "ksd" and mu1 == mu2:
                words = "indistinguishable in every trial" if same else "not in every trial"
                checks.append(Check(f"{where}: one density, and it says so", same, words))
            else:
                ks = kstest(p, "uniform")
                words = f"distance {ks.statistic:.3f}, p-value {ks.pvalue:.3f}"
                claim = f"{where}: Kolmogorov–Smirnov p-value ≥ {KS_LEVEL}"
                checks.append(Check(claim, bool(ks.pvalue >= KS_LEVEL), words))
    return checks


def many_trial(make: Callable[..., Problem], setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of the problem that `make` returns, its models compared by every test."""
    problem, reference, models = _drawn(make, setting, seed)
    decisions = decided(reference, models, MANY_TESTS, seed)
    return {
        "decisions": [
            {**each, "truly_best": each["model"] in problem.best} for each in decisions
        ]
    }


def false_positives(decisions: Sequence[Decision]) -> float:
    """The fraction of the truly best models that are declared worse."""
    return _declared_among(decisions, truly_best=True)


def true_positives(decisions: Sequence[Decision]) -> float:
    """The fraction of the truly worse models that are declared worse."""
    return _declared_among(decisions, truly_best=False)


def _declared_among(decisions: Sequence[Decision], *, truly_best: bool) -> float:
    return float(np.mean([d["worse"] for d in decisions if d["truly_best"] == truly_best]))


def false_discoveries(decisions: Sequence[Decision]) -> float:
    """The fraction of truly best models among those declared worse; 0 where none is."""
    rejected = [decision["truly_best"] for decision in decisions if decision["worse"]]
    return float(sum(rejected) / max(1, len(rejected)))


RATES = {"FPR": false_positives, "FDR": false_discoveries, "TPR": true_positives}


def _many_curves(results: Results) -> dict[str, dict[str, list[Point]]]:
    return {
        name: {test: curve(results, test, score) for test in MANY_TESTS}
        for name, score in RATES.items()
    }


def many_table(results: Results) -> list[Row]:
    """A row per setting and test."""
    return rates_table(results, MANY_TESTS, RATES)


def many_figure(title: str, label: str, results: Results) -> Figure:
    """FDR, TPR and FPR side by side, as in the paper."""
    curves = _many_curves(results)
    drawn, axes = new_figure(3)
    for ax, name in zip(axes, ("FDR", "TPR", "FPR"), strict=True):
        highest = 1.03
        if name != "TPR":
            highest = 0.25
            draw_level(ax)
        for test in MANY_TESTS:
            draw_curve(ax, test, LOOKS[test], curves[name][test])
        dress(ax, f"{title}: {name}", label, f"Empirical {name}", (0.0, highest))
    add_legend(drawn, axes[0], 4)
    return drawn


def _rates_kept(axis: str, results: Results) -> list[Check]:
    """The error rates are controlled in every setting: FPR by all tests, FDR by RelMulti."""
    curves = _many_curves(results)
    checks = levels_kept(f"{{}}: FPR ≤ .05 + 3 s.e. at every {axis}", axis, curves["FPR"])
    multi = {test: fdr for test, fdr in curves["FDR"].items() if test.startswith("RelMulti")}
    return checks + levels_kept(f"{{}}: FDR ≤ .05 + 3 s.e. at every {axis}", axis, multi)


def many_rbm_checks(results: Results) -> list[Check]:
    """The error rates, and KSD finds more than MMD with every test."""
    curves = _many_curves(results)["TPR"]
    means = {
        test: sum(point.value for point in points) / len(points)
        for test, points in curves.items()
    }
    pairs = {
        name.format("KSD"): (means[name.format("KSD")], means[name.format("MMD")])
        for name in OPTIONS
    }
    words = ", ".join(f"{name} {ksd:.3f} and {mmd:.3f}" for name, (ksd, mmd) in pairs.items())
    above = all(ksd > mmd for ksd, mmd in pairs.values())
    return [
        *_rates_kept("ε", results),
        Check("TPR of KSD above that of MMD (means over ε)", above, words),
    ]


def many_mean_shift_checks(results: Results) -> list[Check]:
    """The error rates, and RelPSI's TPR below RelMulti's at the largest n."""
    psi, multi = (
        curve(results, test, true_positives) for test in ("RelPSI-MMD", "RelMulti 50%-MMD")
    )
    claim = f"TPR of RelPSI-MMD below that of RelMulti 50%-MMD at n = {psi[-1].x:g}"
    words = ", ".join(
        f"{ours.value:.3f} and {other.value:.3f} at n = {ours.x:g}"
        for ours, other in zip(psi, multi, strict=True)
    )
    return [
        *_rates_kept("n", results),
        Check(claim, psi[-1].value < multi[-1].value, words),
    ]


FIGURE_1 = (
    Experiment(
        name="fig1-meanshift",
        title="Figure 1a: mean shift, d = 10, two equally good models",
        settings=grid("n", PAIR_SIZES, QUICK_PAIR_SIZES),
        trials=(300, 20),
        trial=partial(pair_trial, problems.mean_shift_pair, SIX),
        table=mean_shift_table,
        figure=partial(
            pair_figure, "Mean shift, d = 10: both models equally good", "Sample size n", SIX
        ),
        checks=mean_shift_checks,
        printed=mean_shift_printed,
    ),
    Experiment(
        name="fig1-blobs",
        title="Figure 1b: blobs, d = 2, P1 worse than P2 at a small scale",
        settings=grid("n", PAIR_SIZES, QUICK_PAIR_SIZES),
        trials=(300, 10),
        trial=partial(pair_trial, problems.blobs, BLOBS_TESTS),
        table=partial(pair_table, BLOBS_TESTS),
        figure=partial(pair_figure, "Blobs, d = 2: P1 is worse", "Sample size n", BLOBS_TESTS),
        checks=blobs_checks,
    ),
    Experiment(
        name="fig1-rbm",
        title="Figure 1c: Gaussian–Bernoulli RBM, d = 20, P1 moves away from R",
        settings=grid("epsilon", PAIR_EPSILONS, QUICK_PAIR_EPSILONS, n=RBM_SIZE),
        trials=(300, 8),
        trial=partial(pair_trial, rbm_pair, SIX),
        table=partial(pair_table, SIX),
        figure=partial(
            pair_figure, "RBM, d = 20, n = 1000", "Perturbation ε of P1 (of P2: .3)", SIX
        ),
        checks=rbm_checks,
    ),
)
APPENDIX = (
    Experiment(
        name="calibration",
        title="Appendix: the p-values of RelPSI are uniform",
        settings=calibration_settings,
        trials=(3000, 30),
        trial=calibration_trial,
        table=calibration_table,
        figure=calibration_figure,
        checks=calibration_checks,
    ),
    Experiment(
        name="meanshift-l10",
        title="Appendix: mean shift, ten models, nine of them tied",
        settings=grid("n", MANY_SIZES, QUICK_MANY_SIZES),
        trials=(300, 10),
        trial=partial(many_trial, problems.mean_shift_l10),
        table=many_table,
        figure=partial(many_figure, "Mean shift, l = 10", "Sample size n"),
        checks=many_mean_shift_checks,
    ),
    Experiment(
        name="rbm-l7",
        title="Appendix: RBM, seven models, one moves past the best",
        settings=grid("epsilon", MANY_EPSILONS, QUICK_MANY_EPSILONS, n=RBM_SIZE),
        trials=(300, 8),
        trial=partial(many_trial, problems.rbm_l7),
        table=many_table,
        figure=partial(many_figure, "RBM, l = 7", "Perturbation ε of P1"),
        checks=many_rbm_checks,
    ),
)
