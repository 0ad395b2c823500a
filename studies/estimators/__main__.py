"""Simulate bias, variance, power and cost of the estimators and write docs/estimators.md. Long, and resumable.

python -m studies.estimators [--only truth] [--share 1.0] [--store estimators.sqlite]
"""

import argparse
import io
import os
import platform
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from relfit.paper.runner import run_trials
from relfit.paper.store import Store
from relfit.util.files import write_bytes_atomic, write_text_atomic
from studies.estimators import costs, memory, noise, page, power, shrinkage, truth

ROOT = Path(__file__).parents[2]
VERSION = "1"  # raise it when a change of the code changes results: stored trials of another version are left alone
# Settings, trial, and the number of trials of each setting.
PARTS = {
    "truth": (truth.tied_cells, truth.trial, 100),
    "exact": (truth.exact_cells, truth.trial, 200),
    "noise": (noise.cells, noise.trial, 50),
    "power": (power.cells, power.trial, 300),
    "lags": (power.lag_cells, power.lag_trial, 100),
    "shrinkage": (shrinkage.cells, shrinkage.trial, 600),
    "costs to 10,000": (partial(costs.cells, 0, 20_000), costs.trial, 200),
    "costs to 100,000": (partial(costs.cells, 20_000, 200_000), costs.trial, 60),
    "costs to 1,000,000": (partial(costs.cells, 200_000, 2_000_000), costs.trial, 24),
    "memory": (memory.cells, memory.trial, 2),
}


def run(store, part, share):
    """(setting, results) of one part, after running what is missing of it."""
    cells, trial, trials = PARTS[part]
    settings = cells()
    with ThreadPoolExecutor(1) as thread:
        run_trials(store, part, settings, max(2, round(share * trials)), trial, executor=thread)
    # More than was asked for may be there already.
    return [(setting, store.results(part, setting)) for setting in settings]


def write(found):
    """The page and its picture."""
    machine = (
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, NumPy {np.__version__}"
    )
    cost = [cell for part, cells in found.items() if part.startswith("costs") for cell in cells]
    picture = io.BytesIO()
    costs.figure(cost).savefig(picture, format="png", dpi=130)
    write_bytes_atomic(ROOT / "docs" / "images" / "estimators.png", picture.getvalue())
    write_text_atomic(ROOT / "docs" / "estimators.md", page.text(found, machine))
    print("Written to docs/estimators.md.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="run these parts and write no page")
    parser.add_argument("--share", type=float, default=1.0, help="of the trials to be there at least (default 1.0)")
    parser.add_argument("--store", default=str(ROOT / "estimators.sqlite"), help="where finished trials are kept")
    arguments = parser.parse_args()
    with Store(arguments.store, version=VERSION) as store:
        found = {part: run(store, part, arguments.share) for part in arguments.only or PARTS}
    if not arguments.only:
        write(found)


if __name__ == "__main__":
    main()
