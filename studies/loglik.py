"""The best set by the log-likelihood: level, coverage, and the weights of separated modes.

Writes docs/evidence/calibration/loglik.md.

python -m studies.loglik [--trials 1000] [--workers 2]
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import lognorm, norm

from relfit import Density, compare
from relfit.data.adapters.scipy_sklearn import gaussian_mixture
from relfit.paper.experiment import rate
from studies.study import ALPHA, Part, Study, level, main, rows_of, table, write_page

WEIGHTS = (0.55, 0.65)
MODES = np.array([[-4.0], [4.0]])
# The spread of the logarithm of lognormal rows.
SIGMA = 0.5


class Case(NamedTuple):
    """Rows, and for every model its log density and by how much its mean −log p exceeds the smallest one."""

    draw: Callable[[int, np.random.Generator], np.ndarray]
    models: Mapping[str, Callable[[np.ndarray], np.ndarray]]
    gaps: tuple[float, ...]


def _normal(mean, x):
    return norm.logpdf(x - mean).sum(axis=1)


def _shifts():
    """N(0, I) rows and unit normals at ±½e_k, and two further off: KL = ‖μ‖²/2."""
    means = [(0.5, 0.0), (-0.5, 0.0), (0.0, 0.5), (0.0, -0.5), (0.7, 0.0), (0.0, 1.0)]
    gaps = tuple(0.5 * float(np.square(mean).sum()) - 0.125 for mean in means)
    models = {f"m{k}": partial(_normal, np.array(mean)) for k, mean in enumerate(means)}
    return Case(lambda n, rng: rng.normal(size=(n, 2)), models, gaps)


def _wrong_columns(wrong, x):
    """Lognormal columns, the wrong ones taken for normal with the right mean and variance."""
    right = lognorm(SIGMA)
    columns = [norm(right.mean(), right.std()) if k in wrong else right for k in range(3)]
    return sum(column.logpdf(x[:, k]) for k, column in enumerate(columns))


def _skewed():
    """Each of three tied models is wrong in one column, the last in two.

    A normal density with the mean and variance v of the data has the mean −log p ½ log(2πe v), and a lognormal one that
    of the data, ½ log(2πe σ²) with their logarithms' mean 0: a wrong column costs ½ log(v/σ²).
    """
    cost = 0.5 * math.log(lognorm(SIGMA).var() / SIGMA**2)
    wrong = ((0,), (1,), (2,), (0, 1))
    models = {f"m{k}": partial(_wrong_columns, columns) for k, columns in enumerate(wrong)}
    return Case(lambda n, rng: rng.lognormal(0.0, SIGMA, size=(n, 3)), models, (0.0, 0.0, 0.0, cost))


CASES = {"shifted normals": _shifts(), "skewed rows": _skewed()}


def ties() -> list[dict[str, Any]]:
    """Every case with few and with many rows."""
    return [{"case": case, "n": n} for case in CASES for n in (100, 1000)]


def modes() -> list[dict[str, Any]]:
    """A model with the right weights of two modes, and one with others."""
    return [{"weight": weight, "n": 400} for weight in WEIGHTS]


def tie_trial(setting, seed):
    """The models declared worse, and whether the intervals hold the truth."""
    case = CASES[setting["case"]]
    x = case.draw(setting["n"], np.random.default_rng(seed))
    models = {name: Density(log_prob=log_prob, normalised=True) for name, log_prob in case.models.items()}
    result = compare(x, models, discrepancy="loglik", alpha=ALPHA, rng=seed, progress=False)
    low, high = result.confidence_interval(1.0 - ALPHA).T
    gaps = np.array(case.gaps)
    covered = bool(((low <= gaps + 1e-12) & (gaps <= high + 1e-12)).all())
    return {"worse": result.worse.tolist(), "covered": covered}


def mode_trial(setting, seed):
    """Whether the wrong weights are found, by KSD and by the log-likelihood, and whether KSD warns."""
    rng, weight = np.random.default_rng(seed), setting["weight"]
    x = rng.normal(size=(setting["n"], 1)) + MODES[rng.integers(2, size=setting["n"])]
    models = {
        name: gaussian_mixture(np.array([w, 1.0 - w]), MODES, np.ones((2, 1, 1)))
        for name, w in (("right", 0.5), ("wrong", weight))
    }
    result = compare(x, models, discrepancy=["ksd", "loglik"], alpha=ALPHA, rng=seed, progress=False)
    warned = any("KSD does not see" in note for note in result.warnings)
    return {"ksd": bool(result.worse[1]), "loglik": bool(result.also[0].worse[1]), "warned": warned}


def forecast(weight, n):
    """The power by the normal law: f = log p₁ − log p₂ takes two values, each on half of the rows."""
    gap, spread = -0.5 * math.log(4.0 * weight * (1.0 - weight)), 0.5 * abs(math.log(weight / (1.0 - weight)))
    return float(ndtr(math.sqrt(n) * gap / spread + ndtri(ALPHA)))


def tie_rows(setting, results):
    """The fraction of the best models declared worse, the worse ones found, and the coverage."""
    best = np.array(CASES[setting["case"]].gaps) == 0.0
    worse = np.array([result["worse"] for result in results])
    wrong = rate(worse[:, best].mean(axis=1))
    row = {"models": setting["case"], "n": setting["n"], "trials": len(results), "best declared worse": wrong}
    row |= {"level": level(wrong), "worse found": rate(worse[:, ~best].mean(axis=1))}
    return [{**row, "all intervals hold": rate([result["covered"] for result in results])}]


def mode_rows(setting, results):
    """How often the wrong weights are found."""
    weight, n = setting["weight"], setting["n"]
    row = {"weights": f"{weight:.2f}, {1.0 - weight:.2f}", "n": n, "trials": len(results)}
    row |= {"KSD": rate([r["ksd"] for r in results]), "log-likelihood": rate([r["loglik"] for r in results])}
    warned = rate([r["warned"] for r in results])
    return [{**row, "by the normal law": f"{forecast(weight, n):.3f}", "KSD warns": warned}]


def write(docs, results):
    """The page; the levels are to be kept, the intervals to hold, and the power to be that of the normal law."""
    write_page(
        docs,
        "calibration/loglik.md",
        ties=table(tie_rows, results["ties"]),
        modes=table(mode_rows, results["modes"]).rstrip(),
    )
    rows = rows_of(tie_rows, results["ties"])
    found = [(row["log-likelihood"], float(row["by the normal law"])) for row in rows_of(mode_rows, results["modes"])]
    return (
        all(row["level"] == "kept" for row in rows)
        and all(mean + 3.0 * error >= 1.0 - ALPHA for mean, error in (row["all intervals hold"] for row in rows))
        and all(abs(mean - power) <= 3.0 * error for (mean, error), power in found)
    )


STUDY = Study(
    {"modes": Part("loglik-modes", modes, mode_trial, 1000), "ties": Part("loglik-ties", ties, tie_trial, 1000)},
    "loglik.sqlite",
    "1",
    write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
