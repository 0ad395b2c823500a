"""Simulate level and power with different kernels and write the tables into docs/kernels.md. Resumable.

python -m studies.kernels [--trials 600] [--workers 2] [--store kernels.sqlite]
"""

import argparse
import re
import sys
from pathlib import Path

from relfit.paper.experiment import markdown_table
from relfit.paper.runner import run_trials
from relfit.paper.store import Store
from relfit.util.files import write_text_atomic
from studies.kernels import trials as kernel_choice

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "kernels.md"
VERSION = "1"  # raise it when a change of the code changes results: stored trials of another version are left alone


def put(text: str, name: str, table: str) -> str:
    """The page with what stands between the two marks of this name replaced."""
    found, count = re.subn(
        rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", lambda m: f"{m[1]}{table}{m[2]}", text, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"{PAGE.name}: expected the marks of {name!r} once, found {count}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=600, help="trials per setting (default 600)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    parser.add_argument("--store", default=str(ROOT / "kernels.sqlite"), help="where finished trials are kept")
    arguments = parser.parse_args()
    cells = kernel_choice.cells()
    with Store(arguments.store, version=VERSION) as store:
        results = run_trials(
            store, "kernel-choice", cells, arguments.trials, kernel_choice.trial, workers=arguments.workers
        )
    found = list(zip(cells, results, strict=True))
    rows = [row for cell, done in found for row in kernel_choice.rows(cell, done)]
    blobs = [row for row in rows if row["problem"] == "blobs"]
    others = [row for row in rows if row["problem"] not in ("blobs", "cauchy")]
    tails = [row for row in rows if row["problem"] == "cauchy"]
    chosen = [kernel_choice.factors(cell, done) for cell, done in found if cell["problem"] != "cauchy"]
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("blobs", blobs), ("mean shifts", others), ("tails", tails), ("chosen", chosen)):
        text = put(text, name, markdown_table(table))
    write_text_atomic(PAGE, text)
    failed = [row for row in rows if row["level"] != "kept"]
    print(f"{len(rows) - len(failed)} of {len(rows)} rows keep their level. Tables written to docs/kernels.md.")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
