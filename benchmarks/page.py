"""docs/evidence/benchmarks.md from the figures that run.py wrote."""

import gpu_page
import limits
import targets
from row_sums import TUNED

from relfit.paper.experiment import markdown_table

TEXT = """# Benchmarks

Written by `make bench` (`benchmarks/run.py`) on {machine}.
Everything ran in one process; where ways are compared they ran in turn, and each time is the best of several warm runs
(of one, for those of some seconds). Other processes took {others} of the processors meanwhile. Input checks and the
covariance are part of relfit's times.

## What was asked, and what was found

{targets}
Where a line is missed, [row sums](#row-sums-of-a-gaussian-kernel-matrix) and
[ten models](#ten-models-for-the-price-of-a-few) say how far the machine's own limits are.

## Row sums of a Gaussian kernel matrix

Σ_b k(x_a, x_b) for every row, without the diagonal, bandwidth √d. A pair is a kernel value that was really evaluated:
relfit and the loops called symmetric evaluate each pair once, the others twice. The error is the largest of 256 row
sums, relative, against float64 by differences. GB is what one call takes beyond what was held before it. The loops
with torch are `benchmarks/row_sums.py`'s own: tiles of 1024 × 1024, one product, everything else in place, all cores.

{skipped}{rows}
The time grows with this power of n (2 is quadratic):

{growth}
{keops}The machine's limits, all cores together, of NumPy's exponential and of products of the shapes used here:

{limits}
At these rates the exponentials and the products for r² alone take the following; the share is that of relfit's time.

{bounds}
## Against a plain dense implementation

`benchmarks/dense.py` is what a careful person would write first: whole n × n matrices, one model at a time. Both
compute all discrepancies and their joint covariance, Gaussian kernel, n = {dense_n:,}, d = 10, l = 5, float64.

{dense}
## Beside plain metrics

One model, n = {metrics_n:,}, float64. The others give a value; relfit's call also gives its standard error. The plain
MMD is written here in the manner of alibi-detect, which does not install beside NumPy 2; torch-fidelity asks for
another torch than the tests' and computes the KID that torchmetrics does.

{metrics}
## Ten models for the price of a few

Time against the number of models, d = 10; the exponent is that from l = 10 to l = 20 (1 is linear). KSD shares the
kernel matrix; unrelated scores (random fields) still need all their right-hand sides. Scores of related models (here
Gaussians with different means) span few columns, which are multiplied once.

{models}
{ksd_bound}
## A whole comparison beside its kernel values

`compare` of ten samples at a fixed bandwidth, n = {compare_n:,}, d = 10, with input checks, Σk², covariance and
verdicts, beside a loop that computes nothing but the row and column sums of the same 15.5 n² kernel values.

{compare}
## Memory

Peak resident size of a process that makes one complete estimate, Python and libraries included (a process that only
imports relfit has {idle:.2f} GB). The kernel matrix alone would take {matrix:.0f} GB.

{memory}
## Linear-time estimator

Time against n, d = 10, l = 5; the exponent is that of the largest two sizes (1 is linear).

{linear}
## What a decision adds

Time of `relfit.decide` on a finished estimate, and as a share of the estimate's own time. Below 300 rows (pairs, for
the linear estimator) the best set draws its p-values from a bootstrap of the ψ rows.

{decisions}
"""
SKIPPED = """Not installed, and left out:

{lines}

"""
KEOPS = """pykeops compiles for any processor of its kind unless told otherwise. Compiled with `{flags}` and
run in a process of its own, it takes {times} at n = {n:,} in float64.

"""
BOUND = """With unrelated scores the products set the limit. At the rates below, measured in this run, ten models need
{ratio:.2f} times as long as one at least; only what they share beyond the kernel matrix (checks, threads) can bring
whole calls nearer. Half the multiplications would do for the inner products v_a·v_b, but these then have to be
multiplied by the kernel tile and summed both ways: a tile costs one core {inner:.0f} µs for each model that way, and
{columns:.0f} µs by columns.

{table}"""


def text(results):
    sizes = results["sizes"]
    plain = ("limits", "dense", "metrics", "models", "compare", "memory", "linear", "decisions")
    tables = {key: markdown_table([_shown(row) for row in results[key]]) for key in plain}
    page = TEXT.format(
        machine=results["machine"],
        others=f"{results['others']:.0%}",
        targets=markdown_table(targets.judged(results)),
        skipped=_skipped(results["skipped"]),
        rows=markdown_table([_shown(row) for row in results["row sums"]]),
        growth=_growth(results["growth"]),
        keops=_keops(results["tuned pykeops"]),
        bounds=_bounds(results),
        ksd_bound=_ksd_bound(results),
        dense_n=sizes["dense"],
        metrics_n=sizes["metrics"],
        compare_n=sizes["compare"],
        idle=results["idle GB"],
        matrix=sizes["memory"] ** 2 * 8 / 2**30,
        **tables,
    )
    return page.rstrip() + "\n\n" + gpu_page.written()


def _shown(row):
    """The row with numbers as they are to be read; what does not apply is a dash."""
    return {key: _cell(key, value) for key, value in row.items()}


def _cell(key, value):
    if value is None:
        return "—"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if not isinstance(value, float):
        return value
    if "error" in key or "difference" in key:
        return f"{value:.0e}"
    if "GFLOP" in key:
        return f"{value:.0f}"
    if key in ("ratio", "exponent", "of the bare loop", "G pairs/s", "exponentials G/s") or "GB" in key:
        return f"{value:.2f}"
    return f"{value:.4f}"


def _skipped(lines):
    return SKIPPED.format(lines="\n".join(f"- {line}" for line in lines)) if lines else ""


def _growth(rows):
    dimensions = sorted({row["d"] for row in rows})
    names = list(dict.fromkeys(row["way"] for row in rows))
    found = {(row["way"], row["d"]): f"{row['exponent']:.2f}" for row in rows}
    return markdown_table(
        [{"way": name, **{f"d = {d}": found.get((name, d), "—") for d in dimensions}} for name in names]
    )


def _keops(rows):
    if not rows:
        return ""
    times = " and ".join(f"{row['s']:.2f} s at d = {row['d']}" for row in rows)
    return KEOPS.format(flags=TUNED["CXXFLAGS"], times=times, n=rows[0]["n"])


def _bounds(results):
    rates = {row["precision"]: row for row in results["limits"]}
    rows = []
    for row in results["row sums"]:
        if row["n"] == results["sizes"]["rows"] and row["way"].startswith("relfit numpy"):
            bound = limits.row_sums_bound(row["n"], row["d"], rates["float32" if "single" in row["way"] else "float64"])
            rows.append({"way": row["way"], "d": row["d"], "n": row["n"], "limit s": bound, "share": bound / row["s"]})
    return markdown_table([{**_shown(row), "share": f"{row['share']:.0%}"} for row in rows])


def _ksd_bound(results):
    rows, added = results["ksd limits"], results["another model"]
    return BOUND.format(
        ratio=rows[-1]["least s"] / rows[0]["least s"],
        inner=added["by inner products"],
        columns=added["by columns"],
        table=markdown_table([_shown(row) for row in rows]),
    )
