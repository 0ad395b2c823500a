"""RelMulti: what share of the rows should select, and what its automatic correction gains; writes docs/relmulti.md.

python -m studies.select_fraction [--trials 500] [--workers 1] [--store coverage.sqlite]
"""

import argparse
from pathlib import Path

import relfit
from relfit.paper.experiment import markdown_table, rate
from relfit.paper.problems import draw, graded, mean_shift_l10, rbm_l7
from relfit.paper.runner import run_trials
from relfit.paper.store import Store
from relfit.util.files import write_text_atomic

ROOT = Path(__file__).parents[1]
VERSION = "1"  # raise it when a change of the code changes results
FRACTIONS, CORRECTIONS = (0.1, 0.25, 0.5), ("by", "auto")
PROBLEMS = {"meanshift-l10": mean_shift_l10, "graded": graded, "rbm-l7": lambda: rbm_l7(0.18)}
CELLS = [
    {"problem": "meanshift-l10", "measure": "mmd", "n": 200},
    {"problem": "meanshift-l10", "measure": "mmd", "n": 500},
    {"problem": "meanshift-l10", "measure": "ksd", "n": 200},
    {"problem": "graded", "measure": "mmd", "n": 500},
    {"problem": "rbm-l7", "measure": "ksd", "n": 500},
]
TEXT = """# RelMulti's two settings

Written by `studies/select_fraction.py` (part of `make calibrate-coverage`): {trials} trials a row, ± one
Monte-Carlo standard error, α = 0.05, Gaussian kernel with the median bandwidth, complete estimator.

## `select_fraction`: how many rows select

The default of 0.25 was set before this table was made, by the paper's own figure, and the table did not change it. A
smaller share leaves more rows for the test but selects a worse model more often, which hides the models between. So
half is worst in every row; a tenth finds most where a best model is easy to select, and less than a quarter where
the models are graded. Give `select_fraction=0.1` if you expect one or few clearly worse models.

TPR is the share of worse models found (of all but the best, in *graded*), FDR the share of false ones among those
declared worse, "selected" how often a best model was. Correction: Benjamini–Yekutieli.

{fractions}
## `correction="auto"`: Benjamini–Hochberg where it is allowed

Benjamini–Hochberg controls the FDR where the tests are positively dependent: for z tests of D_i − D_J, where no
Cov(D_i − D_J, D_k − D_J) is negative. "auto" looks at the estimated covariance of the testing share and takes BH if the
condition holds, else BY; the result's `correction` and a note say which. Share 0.25:

{corrections}
"""


def trial(setting, seed):
    problem = PROBLEMS[setting["problem"]]()
    reference, models = draw(problem, setting["n"], seed)
    if setting["measure"] == "ksd":
        models = {name: relfit.Density(score=problem.score(name), dim=problem.dim) for name in problem.models}
    out = {}
    for fraction in FRACTIONS:
        for correction in CORRECTIONS if fraction == 0.25 else CORRECTIONS[:1]:
            result = relfit.compare(
                reference, models, test="relmulti", select_fraction=fraction, correction=correction, rng=seed,
                progress=False,
            )  # fmt: skip
            worse = [name for name, flag in zip(result.names, result.worse, strict=True) if flag]
            out[f"{fraction} {correction}"] = {"best": result.best, "worse": worse, "used": result.correction}
    return out


def row(setting, results, fraction, correction):
    problem = PROBLEMS[setting["problem"]]()
    best = set(problem.best(setting["measure"]))
    found = [result[f"{fraction} {correction}"] for result in results]
    declared = [set(one["worse"]) for one in found]
    worse = set(problem.models) - best
    return {
        **setting,
        "TPR": rate([len(d & worse) / len(worse) for d in declared]),
        "FDR": rate([len(d & best) / max(1, len(d)) for d in declared]),
        "selected": rate([one["best"] in best for one in found]),
        "BH used": sum(one["used"] == "bh" for one in found) / len(found),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500, help="trials per setting (default 500)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    parser.add_argument("--store", default=str(ROOT / "coverage.sqlite"), help="where finished trials are kept")
    arguments = parser.parse_args()
    with Store(arguments.store, version=VERSION) as store:
        results = run_trials(store, "select-fraction", CELLS, arguments.trials, trial, workers=arguments.workers)
    pairs = list(zip(CELLS, results, strict=True))
    fractions, corrections = [], []
    for cell, done in pairs:
        for fraction in FRACTIONS:
            made = row(cell, done, fraction, "by")
            made.pop("BH used")
            fractions.append({**cell, "select_fraction": f"{fraction:g}", **{k: made[k] for k in list(made)[3:]}})
        for correction in CORRECTIONS:
            made = row(cell, done, 0.25, correction)
            made.pop("selected")
            corrections.append({**cell, "correction": correction, **{k: made[k] for k in list(made)[3:]}})
    text = TEXT.format(
        trials=arguments.trials, fractions=markdown_table(fractions), corrections=markdown_table(corrections)
    )
    write_text_atomic(ROOT / "docs" / "relmulti.md", text)
    print(text)


if __name__ == "__main__":
    main()
