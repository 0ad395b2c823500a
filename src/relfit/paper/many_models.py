"""Appendix: many models at once. True positives, false positives and false discoveries of RelPSI and RelMulti."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from relfit import compare
from relfit.paper.drawing import LOOKS, add_legend, draw_curve, draw_level, dress, new_figure
from relfit.paper.experiment import (
    ALPHA,
    Check,
    Decision,
    Experiment,
    Point,
    Results,
    Row,
    Setting,
    curve,
    grid,
    level_kept,
    relmulti,
    verdict,
)
from relfit.paper.problems import Problem, draw, mean_shift_l10, rbm_l7

OPTIONS: dict[str, dict[str, Any]] = {
    "RelPSI": {"test": "relpsi"},
    "RelMulti 50%": relmulti(0.5),
    "RelMulti 25%": relmulti(0.25),
}
TESTS = {f"{name}-{measure.upper()}": (measure, name) for measure in ("mmd", "ksd") for name in OPTIONS}
SIZES, QUICK_SIZES = (200, 500, 1000, 1500, 2000), (200, 500)
EPSILONS, QUICK_EPSILONS = (0.18, 0.19, 0.2, 0.22), (0.18, 0.2)
RBM_SIZE = 1000


def mean_shift_trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of nine tied models and a worse one."""
    return _trial(mean_shift_l10(), setting["n"], seed)


def rbm_trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of seven RBMs, the first perturbed by ε."""
    return _trial(rbm_l7(setting["epsilon"]), setting["n"], seed)


def _trial(problem: Problem, n: int, seed: int) -> dict[str, Any]:
    reference, samples = draw(problem, n, seed)
    models: dict[str, Any] = {"mmd": samples, "ksd": problem.densities()}
    decisions = []
    for test, (measure, name) in TESTS.items():
        result = compare(reference, models[measure], alpha=ALPHA, rng=seed, progress=False, **OPTIONS[name])
        for k, model in enumerate(result.names):
            more = {"truly_best": model in problem.best, "selected": model == result.best}
            decisions.append({**verdict(test, result, k), **more, "status": list(result.status[k])})
    return {"decisions": decisions}


def false_positives(decisions: Sequence[Decision]) -> float:
    """The fraction of the truly best models that are declared worse."""
    best = [decision["worse"] for decision in decisions if decision["truly_best"]]
    return float(sum(best) / len(best))


def true_positives(decisions: Sequence[Decision]) -> float:
    """The fraction of the truly worse models that are declared worse."""
    worse = [decision["worse"] for decision in decisions if not decision["truly_best"]]
    return float(sum(worse) / len(worse))


def false_discoveries(decisions: Sequence[Decision]) -> float:
    """The fraction of truly best models among those declared worse; 0 where none is."""
    rejected = [decision["truly_best"] for decision in decisions if decision["worse"]]
    return float(sum(rejected) / max(1, len(rejected)))


RATES = {"FPR": false_positives, "FDR": false_discoveries, "TPR": true_positives}


def _curves(results: Results) -> dict[str, dict[str, list[Point]]]:
    return {rate: {test: curve(results, test, score) for test in TESTS} for rate, score in RATES.items()}


def table(results: Results) -> list[Row]:
    """A row per setting and test."""
    curves = _curves(results)
    return [
        {**cell.setting, "test": test, "trials": len(cell.outcomes)}
        | {rate: curves[rate][test][k].pair for rate in RATES}
        for k, cell in enumerate(results)
        for test in TESTS
    ]


def figure(title: str, label: str, results: Results) -> Figure:
    """FDR, TPR and FPR side by side, as in the paper."""
    curves = _curves(results)
    drawn, axes = new_figure(3)
    for ax, rate in zip(axes, ("FDR", "TPR", "FPR"), strict=True):
        if rate != "TPR":
            draw_level(ax)
        for test in TESTS:
            draw_curve(ax, test, LOOKS[test], curves[rate][test])
        dress(ax, f"{title}: {rate}", label, f"Empirical {rate}", (0.0, 1.03 if rate == "TPR" else 0.25))
    add_legend(drawn, axes[0], 4)
    return drawn


def checks(axis: str, results: Results) -> list[Check]:
    """The error rates are controlled in every setting: FPR by all tests, FDR by RelMulti."""
    curves = _curves(results)
    controlled = [("FPR", test) for test in TESTS] + [("FDR", test) for test in TESTS if test.startswith("RelMulti")]
    return [
        level_kept(f"{test}: {rate} ≤ .05 + 3 s.e. at every {axis}", axis, curves[rate][test])
        for rate, test in controlled
    ]


def rbm_checks(results: Results) -> list[Check]:
    """The error rates, and KSD finds more than MMD with every test."""
    curves = _curves(results)["TPR"]
    ordered = [(curves[f"{name}-KSD"], curves[f"{name}-MMD"]) for name in OPTIONS]
    means = [(sum(p.value for p in ksd) / len(ksd), sum(p.value for p in mmd) / len(mmd)) for ksd, mmd in ordered]
    words = ", ".join(f"{name} {k:.3f} and {m:.3f}" for name, (k, m) in zip(OPTIONS, means, strict=True))
    above = Check("TPR of KSD above that of MMD (means over ε)", all(k > m for k, m in means), words)
    return [*checks("ε", results), above]


def mean_shift_checks(results: Results) -> list[Check]:
    """The error rates, and RelPSI's TPR below RelMulti's at the largest n."""
    last = results[-1:]
    psi, multi = (curve(last, test, true_positives)[0] for test in ("RelPSI-MMD", "RelMulti 50%-MMD"))
    claim = f"TPR of RelPSI-MMD below that of RelMulti 50%-MMD at n = {psi.x:g}"
    below = Check(claim, psi.value < multi.value, f"{psi.value:.3f} and {multi.value:.3f}")
    return [*checks("n", results), below]


MEAN_SHIFT = Experiment(
    name="meanshift-l10",
    title="Appendix: mean shift, ten models, nine of them tied",
    settings=grid("n", SIZES, QUICK_SIZES),
    trials=(300, 10),
    trial=mean_shift_trial,
    table=table,
    figure=partial(figure, "Mean shift, l = 10", "Sample size n"),
    checks=mean_shift_checks,
)
RBM = Experiment(
    name="rbm-l7",
    title="Appendix: RBM, seven models, one moves past the best",
    settings=grid("epsilon", EPSILONS, QUICK_EPSILONS, n=RBM_SIZE),
    trials=(300, 8),
    trial=rbm_trial,
    table=table,
    figure=partial(figure, "RBM, l = 7", "Perturbation ε of P1"),
    checks=rbm_checks,
)
EXPERIMENTS = (MEAN_SHIFT, RBM)
