"""Which kernel sees the difference, and does choosing one, or whitening, keep the level?

Writes the tables of docs/evidence/kernels.md.

python -m studies.kernels [--trials 600] [--workers 2]
"""

import re

import numpy as np

from relfit import Density, Gaussian, MultiScale, Tilted, compare
from relfit.kernels.composite import FACTORS
from relfit.paper.experiment import markdown_table
from relfit.paper.problems import blobs, candidates, mean_shift_l10, mean_shift_pair, stream
from relfit.util.files import write_text_atomic
from studies.study import (
    ALPHA,
    PAGES,
    PLAIN,
    ROOT,
    Part,
    Study,
    declared,
    error_rates,
    level,
    main,
    rows_of,
    unadjusted,
)

KERNELS = {
    "median": None,
    "MultiScale": MultiScale(),
    "select": "select",
    "collection": tuple(MultiScale((factor,)) for factor in FACTORS),
    "tilted": Tilted(Gaussian()),
}
PROBLEMS = {"blobs": blobs, "fig1-meanshift": mean_shift_pair, "meanshift-l10": mean_shift_l10}
SELECTIVE = (
    *(("relpsi", kernel) for kernel in ("median", "MultiScale", "select")),
    *(("relmulti", kernel) for kernel in ("median", "select")),
    *(("carve", kernel) for kernel in ("median", "select")),
)
BEST_SET = tuple(("best-set", kernel) for kernel in ("median", "MultiScale", "select", "collection"))
TAILS = tuple((test, kernel) for test in ("relpsi", "best-set") for kernel in ("median", "tilted"))
KEYS = ("problem", "measure", "n")


class Tails:
    """Normal models for Cauchy data: two tied by symmetry, one further off."""

    means = {"P1": 0.5, "P2": -0.5, "P3": 1.0}  # noqa: RUF012
    best, worse = frozenset({"P1", "P2"}), frozenset({"P3"})


def cells():
    """Every setting of the simulation, JSON-able.

    Best sets of ten models run at n = 400.
    """
    nulls = [
        {"problem": problem, "measure": measure, "n": n}
        for problem, n in (("fig1-meanshift", 200), ("meanshift-l10", 200), ("meanshift-l10", 400))
        for measure in ("mmd", "ksd")
    ]
    return [{"problem": "blobs", "measure": "mmd", "n": 500}, *nulls, {"problem": "cauchy", "measure": "ksd", "n": 200}]


def trial(setting, seed):
    """One draw of a problem, decided with every kernel: the models each declares worse, and the bandwidths chosen."""
    reference, models = _candidates(setting, seed)
    out = {}
    median = 1.0
    for test, kernel in _runs(setting):
        result = compare(
            reference,
            models,
            test=test,
            correction=unadjusted(test),
            kernel=KERNELS[kernel],
            estimator=PLAIN,
            alpha=ALPHA,
            rng=seed,
            progress=False,
        )
        out[f"{test}/{kernel}"] = declared(result.names, result.worse)
        if kernel == "median":
            median = getattr(result.kernel, "bandwidth", 1.0)
        if kernel == "select" and test in ("relpsi", "best-set"):
            out["factor"] = round(getattr(result.kernel, "bandwidth", 0.0) / median, 3)
    return out


def _candidates(setting, seed):
    if setting["problem"] == "cauchy":
        reference = stream(seed, None).standard_cauchy((setting["n"], 2))
        return reference, {name: Density(score=_normal_score(mean), dim=2) for name, mean in Tails.means.items()}
    return candidates(PROBLEMS[setting["problem"]](), setting["measure"], setting["n"], seed)


def _normal_score(mean):
    return lambda x: np.array([mean, 0.0]) - x


def _runs(setting):
    if setting["problem"] == "cauchy":
        return TAILS
    if setting["problem"] == "meanshift-l10":
        return SELECTIVE if setting["n"] == 200 else BEST_SET
    return (*SELECTIVE, *BEST_SET)


def rows(setting, results):
    """FPR and TPR of every test and kernel in one setting, with Monte-Carlo standard errors."""
    problem = Tails if setting["problem"] == "cauchy" else PROBLEMS[setting["problem"]]()
    out = []
    for test, kernel in _runs(setting):
        rates = error_rates(problem, [result[f"{test}/{kernel}"] for result in results])
        row = {**{key: setting[key] for key in KEYS}, "test": test, "kernel": kernel, "trials": len(results)}
        out.append({**row, "FPR": rates["FPR"], "TPR": rates["TPR"], "level": level(rates["FPR"])})
    return out


def factors(setting, results):
    """How often "select" on a fifth of the rows took each multiple of the median distance."""
    chosen = np.array([result["factor"] for result in results])
    fractions = {f"{factor:g}": float(np.mean(np.abs(chosen - factor) < 1e-3)) for factor in FACTORS}
    return {**{key: setting[key] for key in KEYS}, **fractions}


class Units:
    """Four tied samplers of a normal target, and one without its correlations: 6% of the spread in two columns."""

    best, worse = frozenset({"P1", "P2", "P3", "P4"}), frozenset({"mean field"})
    covariance = np.array([[1.0, 0.998, 0.0], [0.998, 1.0, 0.0], [0.0, 0.0, 1.0]])
    units = np.array([1e4, 1e2, 1e-2])
    # How the tied ones differ from the target, in its own coordinates: a shift, and a factor.
    ties = {"exact": (0.0, 1.0), "shifted": (0.3, 1.0), "narrow": (0.0, 0.8)}  # noqa: RUF012
    runs = ("whiten", "known", "none")


def unit_cells():
    """Every setting of the simulation of units."""
    return [{"ties": ties, "n": n} for ties in Units.ties for n in (100, 300)]


def unit_trial(setting, seed):
    """The models declared worse with whitened draws, in the coordinates that whiten the target itself, and as they are.

    The shifts are up and down the first axis, so that the models are tied whatever the scale is fitted to.
    """
    rng, (shift, factor) = np.random.default_rng([20191208, seed]), Units.ties[setting["ties"]]
    root = Units.units[:, None] * np.linalg.cholesky(Units.covariance)
    draws = {
        name: factor * rng.standard_normal((setting["n"], 3)) + [sign * shift, 0.0, 0.0]
        for name, sign in zip(("P1", "P2", "P3", "P4"), (1, -1, 1, -1), strict=True)
    }
    deviations = Units.units / np.sqrt(np.diag(np.linalg.inv(Units.covariance)))
    draws["mean field"] = rng.standard_normal((setting["n"], 3)) * deviations @ np.linalg.inv(root).T
    precision = np.linalg.inv(root @ root.T)
    known = Density(score=np.negative, dim=3), draws
    given = Density(score=lambda x: -x @ precision, dim=3), {name: x @ root.T for name, x in draws.items()}
    out = {}
    for run in Units.runs:
        data = known if run == "known" else given
        result = compare(*data, scale="whiten" if run == "whiten" else "none", alpha=ALPHA, rng=seed, progress=False)
        out[run] = declared(result.names, result.worse)
    return out


def unit_rows(setting, results):
    """FPR and TPR of every scale in one setting."""
    out = []
    for run in Units.runs:
        rates = error_rates(Units, [result[run] for result in results])
        row = {**setting, "scale": run, "trials": len(results), "FPR": rates["FPR"], "TPR": rates["TPR"]}
        out.append({**row, "level": level(rates["FPR"])})
    return out


def write(docs, results):
    """Put the tables between their marks in the page; True if every row keeps its level."""
    all_rows, of_units = rows_of(rows, results["kernels"]), rows_of(unit_rows, results["units"])
    tables = {
        "blobs": [row for row in all_rows if row["problem"] == "blobs"],
        "mean shifts": [row for row in all_rows if row["problem"] not in ("blobs", "cauchy")],
        "tails": [row for row in all_rows if row["problem"] == "cauchy"],
        "units": of_units,
        "chosen": [factors(cell, done) for cell, done in results["kernels"] if cell["problem"] != "cauchy"],
    }
    text = (ROOT / PAGES / "kernels.md").read_text(encoding="utf-8")
    for name, lines in tables.items():
        text = put(text, name, markdown_table(lines))
    write_text_atomic(docs / "kernels.md", text)
    kept = [row["level"] == "kept" for row in (*all_rows, *of_units)]
    print(f"{sum(kept)} of {len(kept)} rows keep their level.")
    return all(kept)


def put(text, name, table):
    """The page with what stands between the two marks of this name replaced."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
    text, count = re.subn(pattern, lambda mark: f"{mark[1]}{table}{mark[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"kernels.md: expected the marks of {name!r} once, found {count}")
    return text


PARTS = {
    "kernels": Part("kernel-choice", cells, trial, 600),
    "units": Part("units", unit_cells, unit_trial, 600),
}
STUDY = Study(PARTS, "kernels.sqlite", "1", write)

if __name__ == "__main__":
    main(STUDY, __doc__)
