"""Which kernel sees the difference, and does choosing one keep the level? Writes the tables of docs/kernels.md.

python -m studies.kernels [--trials 600] [--workers 2]
"""

import re

import numpy as np

from relfit import Density, Gaussian, MultiScale, Tilted, compare
from relfit.kernels.choice import FACTORS
from relfit.paper.experiment import markdown_table
from relfit.paper.problems import blobs, candidates, mean_shift_l10, mean_shift_pair, stream
from relfit.util.files import write_text_atomic
from studies.study import ALPHA, PLAIN, ROOT, Part, Study, declared, error_rates, level, main, rows_of

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
            reference, models, test=test, kernel=KERNELS[kernel], estimator=PLAIN, alpha=ALPHA, rng=seed, progress=False
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


def write(docs, results):
    """Put the tables between their marks in the page; True if every row keeps its level."""
    all_rows = rows_of(rows, results["kernels"])
    tables = {
        "blobs": [row for row in all_rows if row["problem"] == "blobs"],
        "mean shifts": [row for row in all_rows if row["problem"] not in ("blobs", "cauchy")],
        "tails": [row for row in all_rows if row["problem"] == "cauchy"],
        "chosen": [factors(cell, done) for cell, done in results["kernels"] if cell["problem"] != "cauchy"],
    }
    text = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    for name, lines in tables.items():
        text = put(text, name, markdown_table(lines))
    write_text_atomic(docs / "kernels.md", text)
    kept = sum(row["level"] == "kept" for row in all_rows)
    print(f"{kept} of {len(all_rows)} rows keep their level.")
    return kept == len(all_rows)


def put(text, name, table):
    """The page with what stands between the two marks of this name replaced."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
    text, count = re.subn(pattern, lambda mark: f"{mark[1]}{table}{mark[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"kernels.md: expected the marks of {name!r} once, found {count}")
    return text


STUDY = Study({"kernels": Part("kernel-choice", cells, trial, 600)}, "kernels.sqlite", "1", write)

if __name__ == "__main__":
    main(STUDY, __doc__)
