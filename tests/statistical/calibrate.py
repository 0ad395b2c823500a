"""Simulate the error rates of every test and write docs/calibration.md. Long; killed runs go on where they stopped.

python tests/statistical/calibrate.py [--trials 1000] [--store calibration.sqlite]
"""

import argparse
import sys
from pathlib import Path

from relfit.experiments import levels, variance
from relfit.experiments.runner import run_trials
from relfit.experiments.summaries import markdown_table
from relfit.files import write_text_atomic
from relfit.store import Store

ROOT = Path(__file__).parents[2]
VERSION = "1"  # raise it when a change of the code changes results: stored trials of another version are left alone

TEXT = """# Calibration

Written by `make calibrate` (`tests/statistical/calibrate.py`): rates over {trials} trials a row, ± one Monte-Carlo
standard error, α = 0.05, Gaussian kernel with the median bandwidth, RelMulti selecting on a quarter of the rows and
correcting by Benjamini–Yekutieli. Every trial draws fresh, independent samples; every test sees the same ones.

FPR is the share of the models tied for best that are declared worse; "worst model" is the largest such rate of a
single model; FDR the share of false ones among those declared worse; TPR the share of worse models found. The level
counts as kept when FPR ≤ 0.05 + 3 standard errors, and the same for every tied model by itself (with the 3 widened
for the number of models).

- `meanshift-l10`: the paper's problem, nine models tied, one worse. `copy` and `near-copy` add an exact copy of one of
  the tied models, or one changed by 1e-6. An exact copy is tested once and changes nothing. Near copies of samples are
  warned about: RelPSI keeps its level but loses power whenever the copied model is selected.
- `tied-l2`, `tied-l10`, `tied-l50`: all models tied. An exact RelPSI then has FPR α(l−1)/l, as the selected one is
  never declared worse.

{levels}
{verdict} With fifty tied models RelPSI on MMD lies above α: MMD estimates are skewed, and each moves with its own
estimated variance, so that a model which looks good by chance also looks precise.

## The variance of KSD at small n

KSD's covariance is the jackknife's, ((n−1)/(n−2))² times the projection form ψᵀψ/(n(n−1)). Mean estimated variance of
D₁ − D₂ over its true variance, mean-shift pair, and the level of the l = 2 RelPSI (two-sided z):

{variance}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="trials per setting (default 1000)")
    parser.add_argument("--store", default=str(ROOT / "calibration.sqlite"), help="where finished trials are kept")
    arguments = parser.parse_args()
    with Store(arguments.store, version=VERSION) as store:
        cells = levels.cells()
        results = run_trials(store, "levels", cells, arguments.trials, levels.trial)
        rows = [row for cell, done in zip(cells, results, strict=True) for row in levels.rows(cell, done)]
        sizes = variance.cells()
        ratios = run_trials(store, "ksd-variance", sizes, max(1, arguments.trials // 5), variance.trial)
    failed = [row for row in rows if row["level"] != "kept"]
    verdict = f"{len(rows) - len(failed)} of {len(rows)} rows keep their level."
    text = TEXT.format(
        trials=arguments.trials,
        levels=markdown_table(rows),
        verdict=verdict,
        variance=markdown_table([variance.row(cell, done) for cell, done in zip(sizes, ratios, strict=True)]),
    )
    write_text_atomic(ROOT / "docs" / "calibration.md", text)
    print(verdict, "Table written to docs/calibration.md.")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
