"""What UME, FSSD and Nyström find beside the complete MMD and KSD: drawn and optimised locations, few and many."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from relfit.api import decide, estimate
from relfit.data.models import Density
from relfit.estimators.locations import FSSD, UME, Nystroem
from relfit.kernels.standard import Gaussian
from relfit.paper.experiment import rate
from relfit.paper.problems import Problem, blobs, draw, mean_shift_l10, rbm_l7

ALPHA = 0.05
TESTS = ("relpsi", "best-set")
FORMS: dict[str, dict[str, Any] | None] = {
    "complete": None,
    "10 drawn": {"locations": 10},
    "50 drawn": {"locations": 50},
    "10 optimised": {"locations": 10, "choose": "optimise"},
}
NYSTROEM = "Nyström, 2√n"


def cells() -> list[dict[str, Any]]:
    """The paper's problems with the median bandwidth; blobs, which it cannot see, with a smaller one too."""
    problems: list[tuple[str, int, float | None]] = [
        ("meanshift-l10", 200, None),
        ("meanshift-l10", 500, None),
        ("rbm-l7", 1000, None),
        ("blobs", 500, None),
        ("blobs", 500, 1.5),
    ]
    return [
        {"problem": name, "measure": measure, "n": n, "bandwidth": bandwidth}
        for measure in ("mmd", "ksd")
        for name, n, bandwidth in problems
    ]


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """The models each test declares worse with each form of the discrepancy, on one draw, and the seconds taken."""
    problem = problem_of(setting)
    reference, samples = draw(problem, setting["n"], seed)
    models: dict[str, Any] = dict(samples)
    if setting["measure"] == "ksd":
        models = {name: Density(score=problem.score(name), dim=problem.dim) for name in problem.models}
    kernel = None if setting["bandwidth"] is None else Gaussian(setting["bandwidth"])
    at = UME if setting["measure"] == "mmd" else FSSD
    out: dict[str, Any] = {}
    for form in _forms(setting):
        options = FORMS.get(form)
        wanted = setting["measure"] if options is None else at(**options)
        wanted = Nystroem() if form == NYSTROEM else wanted
        start = time.process_time()
        joint = estimate(reference, models, discrepancy=wanted, kernel=kernel, rng=seed, progress=False)
        out[form] = {"seconds": time.process_time() - start}
        for test in TESTS:
            result = decide(joint, test=test, alpha=ALPHA, rng=seed)
            out[form][test] = [name for name, worse in zip(result.names, result.worse, strict=True) if worse]
    return out


def rows(setting: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row per form: the share of the worse models found, and of the best ones declared worse."""
    problem = problem_of(setting)
    best = problem.best(setting["measure"]) or frozenset()
    at = {"mmd": "UME", "ksd": "FSSD"}[setting["measure"]]
    out = []
    for form in _forms(setting):
        rates: dict[str, Any] = {}
        for test in TESTS:
            found = [set(result[form][test]) for result in results]
            rates[f"{test} TPR"] = rate([len(d - best) / (len(problem.models) - len(best)) for d in found])
            rates[f"{test}, tied ones declared"] = rate([len(d & best) / len(best) for d in found])
        name = setting["measure"].upper() if form not in FORMS or FORMS[form] is None else at
        out.append(
            {
                "problem": setting["problem"],
                "n": setting["n"],
                "bandwidth": "median" if setting["bandwidth"] is None else f"{setting['bandwidth']:g}",
                "discrepancy": f"{name}, {form}",
                "trials": len(results),
                **rates,
                "CPU ms": f"{1000 * min(result[form]['seconds'] for result in results):.0f}",
            }
        )
    return out


def _forms(setting: Mapping[str, Any]) -> list[str]:
    return [*FORMS, *([NYSTROEM] if setting["measure"] == "mmd" else [])]


def problem_of(setting: Mapping[str, Any]) -> Problem:
    """Two blobs, nine tied and a worse one, or seven RBMs of which one is best."""
    if setting["problem"] == "blobs":
        return blobs()
    return mean_shift_l10() if setting["problem"] == "meanshift-l10" else rbm_l7(0.18)
