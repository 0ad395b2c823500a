"""The section of docs/evidence/benchmarks.md about CUDA devices, from the figures that gpu.py wrote."""

import json
from pathlib import Path

from relfit.paper.experiment import markdown_table
from relfit.util.files import write_text_atomic

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results-gpu.json"
START, END = "<!-- gpu -->", "<!-- end of gpu -->"
TEXT = """## On a CUDA device

Written by `make bench-gpu` (`benchmarks/gpu.py`) on an {device}, torch {torch}. Times are medians of warm
runs on the host's clock; data lie on the device, and sums come back to the host. Plain torch is the only peer: nothing
could be installed on that machine, which had no pykeops, torchmetrics or torch-fidelity. nvidia-smi read a clock of
{clock:.0f} MHz while the fused kernel ran: {exponentials:,.0f} G exponentials/s on the special-function units is
then the limit for short rows. Matrix products were measured at {half:.0f} (float16), {single:.0f} (float32) and
{double:.0f} (float64) TFLOP/s. A pair is a kernel value that was really evaluated: relfit evaluates each pair of a
symmetric matrix once, plain torch twice.

### Gaussian row sums of a symmetric matrix, with Σk²

The error is the largest of {checked} row sums, relative, against float64 by differences. The fused kernel multiplies
rows split into two halves of float16, three products side by side, which keeps 22 bits; its limit is the smaller of
exponentials and products of rows 3d + 6 long in float16. Tile shapes, and the eighth of the exponentials that is
computed by products, were chosen by timing on this device. For d ≤ 16 the large n was raised to 1,048,576 after a run
at 524,288 had given 2,983, 2,668 and 2,482 G pairs/s for d = 3, 10 and 16: there, preparing rows and copying sums takes
a twentieth of the time. A profile of the kernel at d = 16 (ncu, before that eighth) found the multiprocessors 68% busy;
in 52% of the cycles none of a scheduler's three warps, as many as the registers allow, was ready to issue.

{rows}
### KSD

Scores of all models on the device, as tensors; `compare` evaluates densities where their functions run, before this.
The error is that of D in standard errors, against torch in float64.

{ksd}
### Whole calls of `compare`

MMD of l samples to a reference, all of n rows of float32 tensors on the device; median bandwidth, input checks,
covariance and verdicts included; the better of a first call and the median of the next. `Compute(precision="single")`
chooses the fused kernels, "double" is torch in float64. The error is that of D in standard errors, against double
precision on the same rows. Below 100,000 rows the processor beside the device sets the time: with 20,000 rows a second
machine of this kind took 0.030 s (median of 60 calls) and a third 0.039 s (of 3).

{compare}
### Whole calls with landmarks

The same with `estimator="landmarks"`, in single precision; GB of the host is the largest resident size of the process.

{landmarks}
### Growth

Row sums by the fused kernel, d = {growth_d}; the exponent of the last two sizes is {exponent:.2f} (2 is quadratic).
Below some 50,000 rows the launches take longer than the work.

{growth}
{agreement}"""
AGREEMENT = """### Agreement

Random problems of mixed sizes, kernels, dependence and places (offset, tiny, huge), each against NumPy in float64, by
`tools/agreement.py`: the worst of all. Verdicts count where |p − α| ≥ 0.001.

{table}"""


def section(results):
    limits = results["limits"]
    agreement = results.get("agreement")
    return TEXT.format(
        device=limits["device"],
        torch=results["torch"],
        clock=limits["clock MHz"],
        exponentials=limits["exponentials G/s"],
        half=limits["float16 TFLOP/s"],
        single=limits["float32 TFLOP/s"],
        double=limits["float64 TFLOP/s"],
        checked=256,
        rows=markdown_table([_row(row) for row in results["row sums"]]),
        ksd=markdown_table([_shown(row, ms=".1f", GB=".2f", **{"|ΔD| in s.e.": ".0e"}) for row in results["ksd"]]),
        compare=markdown_table(
            [
                _shown(row, s=".3f", **{"G pairs/s": ",.0f", "|ΔD| in s.e.": ".0e", "GB, data included": ".2f"})
                for row in results["compare"]
            ]
        ),
        landmarks=markdown_table([_landmarks(row) for row in results["landmarks"]]),
        growth_d=results["growth"]["d"],
        exponent=results["growth"]["exponent"],
        growth=markdown_table([_shown(row, ms=".2f") for row in results["growth"]["rows"]]),
        agreement="" if agreement is None else AGREEMENT.format(table=markdown_table([_agreed(r) for r in agreement])),
    )


def _row(row):
    formats = {"G pairs/s": ",.0f", "share of the limit": ".0%", "relative error": ".0e"}
    return _shown(row, ms=".2f", GB=".2f", **formats)


def _landmarks(row):
    """The sizes and the seconds, with what was chosen, from the note of the result."""
    chosen = row["note"].removeprefix("landmarks estimator: ").split(" rows of each sample")[0]
    share = row["note"].split("which adds ")[1].split(" to")[0]
    shown = _shown({key: row[key] for key in ("n", "d", "l", "s", "GB", "GB of the host")}, s=".2f", GB=".1f")
    shown |= {"chosen": f"{chosen} drawn rows, {share} more variance"}
    return {**shown, "GB of the host": f"{row['GB of the host']:.1f}"}


def _agreed(row):
    return {key.replace("|", ""): f"{value:.0e}" if isinstance(value, float) else value for key, value in row.items()}


def _shown(row, **formats):
    """The row with numbers as they are to be read; what does not apply is a dash."""
    cells = {}
    for key, value in row.items():
        shown = "—" if value is None else format(value, formats[key]) if key in formats else value
        # A bar would end the cell.
        cells[key.replace("|", "")] = f"{shown:,}" if isinstance(shown, int) else shown
    return cells


def written():
    """The section for the page, or nothing before the first run."""
    return f"{START}\n{section(json.loads(RESULTS.read_text()))}{END}\n" if RESULTS.exists() else ""


def write(results):
    """Replace the section in the page, or add it."""
    page = PAGE.read_text(encoding="utf-8")
    new = f"{START}\n{section(results)}{END}\n"
    if START in page:
        page = page[: page.index(START)] + new + page[page.index(END) + len(END) + 1 :]
    else:
        page = page.rstrip() + "\n\n" + new
    write_text_atomic(PAGE, page)
