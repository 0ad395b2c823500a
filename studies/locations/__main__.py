"""Simulate bias, variance, level and power of UME and FSSD and write docs/locations.md. Long, and resumable.

python -m studies.locations [--only truth] [--share 1.0] [--store locations.sqlite]
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from relfit.paper.runner import run_trials
from relfit.paper.store import Store
from relfit.util.files import write_text_atomic
from studies.estimators import memory
from studies.locations import levels, page, power, truth

ROOT = Path(__file__).parents[2]
VERSION = "1"  # raise it when a change of the code changes results: stored trials of another version are left alone


def memory_cells():
    """A million rows at locations."""
    return [cell for cell in memory.cells() if "discrepancy" in cell["options"]]


# Settings, trial, and the number of trials of each setting (of truth: of 100 replicates each).
PARTS = {
    "truth": (truth.cells, truth.trial, 100),
    "levels": (levels.cells, levels.trial, 1000),
    "levels, optimised": (levels.optimised_cells, levels.trial, 400),
    "many rows": (levels.large_cells, levels.trial, 200),
    "power": (power.cells, power.trial, 200),
    "memory": (memory_cells, memory.trial, 2),
}


def run(store, part, share):
    """(setting, results) of one part, after running what is missing of it; nothing is run for a share of 0."""
    cells, trial, trials = PARTS[part]
    settings = cells()
    if share == 0.0:
        return [(setting, list(store.by_seed(part, setting).values())) for setting in settings]
    with ThreadPoolExecutor(1) as thread:
        run_trials(store, part, settings, max(2, round(share * trials)), trial, executor=thread)
    # More than was asked for may be there already.
    return [(setting, store.results(part, setting)) for setting in settings]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="run these parts and write no page")
    parser.add_argument("--share", type=float, default=1.0, help="of the trials (default 1.0); 0: those already done")
    parser.add_argument("--store", default=str(ROOT / "locations.sqlite"), help="where finished trials are kept")
    arguments = parser.parse_args()
    with Store(arguments.store, version=VERSION) as store:
        found = {part: run(store, part, arguments.share) for part in arguments.only or PARTS}
    if not arguments.only:
        write_text_atomic(ROOT / "docs" / "locations.md", page.text(found))
        print("Written to docs/locations.md.")


if __name__ == "__main__":
    main()
