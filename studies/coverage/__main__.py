"""Simulate the coverage of all confidence bounds, and the levels of margins and groups; write docs/coverage.md.

python -m studies.coverage [--trials 2000] [--workers 1] [--only data] [--store coverage.sqlite]
"""

import argparse
from pathlib import Path

from relfit.paper.experiment import markdown_table
from relfit.paper.runner import run_trials
from relfit.paper.store import Store
from relfit.util.files import write_text_atomic
from studies.coverage import trials as coverage

ROOT = Path(__file__).parents[2]
VERSION = "2"  # raise it when a change of the code changes results
PARTS = {
    "known": (coverage.known_cells, coverage.known_trial, coverage.coverage_rows, 1.0),
    "data": (coverage.data_cells, coverage.data_trial, coverage.coverage_rows, 1.0),
    "pairs": (coverage.pair_cells, coverage.pair_trial, coverage.pair_rows, 1.0),
    "margin": (coverage.data_cells, coverage.margin_trial, coverage.margin_rows, 0.5),
    "groups": (coverage.group_cells, coverage.group_trial, coverage.group_rows, 0.5),
}
TEXT = """# Coverage of the intervals, and the levels of margins and groups

Written by `make calibrate-coverage` (`studies/coverage`). Rates are over {trials} trials a row in the
first three tables and {half} in the others, ± one Monte-Carlo standard error; nothing was tuned to them.

What is covered (`Comparison.confidence_interval`, `lower_bound`, `upper_bound`, all at 95%):

- **relpsi, carve**: D_i − D_J given that J was selected, each model by itself. The table's coverage is averaged over
  the nine models that were not selected. RelPSI's interval can be infinite, and its expected length always is; the
  length shown is the median over models and every tenth trial.
- **best-set**: D_i − min_j D_j for all ten models *at once*: a trial counts only if every bound holds. Such a regret is
  never below 0, and where all models tie it is 0: every upper bound then holds, whatever the method, and an interval
  can miss at its lower end only. No bound for a regret can be exact everywhere: these are exact where all models tie
  (lower, with a tenth of the error spent on a first step: 95.5%) or where one model is clearly best (upper), and hold
  more often elsewhere. The statement about the same models that is exact wherever they are is the one about all
  differences, [below](#all-differences-at-once). 5000 draws a trial.

## V known

D ~ N(θ, V), ten correlated models with unequal variances. "Graded" is θ = 0, 0.5, …, 4.5; "one worse" is worse by 4; a
typical difference has standard error 1.

{known}
## Estimated from data

The paper's ten-model mean-shift problem, Gaussian kernel of bandwidth {bandwidth} (fixed, so that the truth has a
closed form), independent samples. best-set's bounds take V and the number of rows from the result: below 300 rows
Student's law, otherwise normal draws.

{data}
The lowest of these is {lowest}.
An MMD estimate that came out low has a low estimated variance too. Lower bounds hold too often for that reason;
carve's upper ends are solved for with the variance that the bound itself implies (`relfit.stats.tests.carve`
has the formula), relpsi's and best-set's are not.

## All differences at once

`Comparison.pair_intervals`: D_i − D_j for all 45 pairs of the same ten models; a trial counts only if every interval
holds. A difference of two models can lie on either side of 0, so that, unlike a regret, nothing is held for free: with
V known the coverage is exact wherever the models are. Below 300 rows the draws are Student's.

{pairs}
## Margins: the level at the boundary

The same data. δ is exactly the gap of the worse model to the nine best. At this boundary "worse by more than δ" may be
said with probability 0.05 at most, and so may "equivalent within δ". relpsi and carve: given that one of the nine
was selected.

{margin}
## Groups: the level with rows that belong together

Four tied models in two dimensions, {groups} groups of {size} rows; a row is its group's centre plus noise of 0.3 of its
standard deviation (correlation 0.92 within a group). Paired: the groups of the models are those of the reference, as
with several completions per prompt. FPR is the share of tied models that are declared worse (RelMulti without
correction).

{grouped}
"""


def _lowest(rows):
    """The smallest coverage of a table, in words."""
    kinds = ("lower bound", "upper bound", "interval")
    value, kind, row = min(((row[kind][0], kind, row) for row in rows for kind in kinds), key=lambda found: found[0])
    return f"{value:.4f}, {row['test']}'s {kind} with {row['measure'].upper()} at n = {row['n']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="trials per setting (default 2000)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    parser.add_argument("--store", default=str(ROOT / "coverage.sqlite"), help="where finished trials are kept")
    parser.add_argument("--only", choices=PARTS, action="append", help="run these parts and write no page")
    arguments = parser.parse_args()
    tables, lowest = {}, ""
    with Store(arguments.store, version=VERSION) as store:
        for part in arguments.only or PARTS:
            cells, trial, rows, share = PARTS[part]
            settings, trials = cells(), round(share * arguments.trials)
            results = run_trials(store, f"coverage-{part}", settings, trials, trial, workers=arguments.workers)
            made = [row for cell, done in zip(settings, results, strict=True) for row in rows(cell, done)]
            tables[part] = markdown_table(made)
            lowest = _lowest(made) if part == "data" else lowest
            print(tables[part], flush=True)
    if arguments.only:
        return
    text = TEXT.format(
        trials=arguments.trials, half=arguments.trials // 2, bandwidth=coverage.BANDWIDTH, groups=coverage.GROUPS,
        size=coverage.GROUP_SIZE, known=tables["known"], data=tables["data"], pairs=tables["pairs"],
        margin=tables["margin"], grouped=tables["groups"], lowest=lowest,
    )  # fmt: skip
    write_text_atomic(ROOT / "docs" / "coverage.md", text)


if __name__ == "__main__":
    main()
