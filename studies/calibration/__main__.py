"""Simulate error rates, power and laws of every procedure and write docs/calibration/. Long, and resumable.

python -m studies.calibration [--trials 1000] [--workers 2 | --cluster ADDRESS] [--only levels]
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relfit.cli.workers import cluster_client
from relfit.paper.runner import run_trials
from relfit.paper.store import Store
from studies.calibration import averaging, corrected, levels, negative, order, pages, power, variance

ROOT = Path(__file__).parents[2]
VERSION = "1"  # raise it when a change of the code changes results: stored trials of another version are left alone
# Name in the store, settings, trial, and the share of --trials that this part needs.
PARTS: dict[str, tuple[str, Callable[[], Sequence[dict[str, Any]]], Callable[..., Any], float]] = {
    "levels": ("error-rates", levels.cells, levels.trial, 1.0),
    "variance": ("ksd-variance", variance.cells, variance.trial, 0.2),
    "power": ("power-splits", power.cells, power.trial, 0.3),
    "order": ("order", order.cells, order.trial, 0.02),
    "negative": ("negative-correlation", negative.cells, negative.trial, 0.08),
    "corrected": ("corrected-variance", corrected.cells, corrected.trial, 0.5),
    "averaging": ("averaging", averaging.cells, averaging.trial, 1.0),
}
# A tenth of the trials of every setting first: what is left is then known well, and a fault is seen early.
ROUNDS = (0.1, 1.0)


def run(store: Store, part: str, trials: int, workers: int | None, client: Any = None) -> pages.Found:
    """Run what is missing of one part."""
    name, cells, trial, share = PARTS[part]
    settings = cells()
    results: list[list[dict[str, Any]]] = []
    start = time.monotonic()
    for done in ROUNDS:
        count = max(1, round(done * share * trials))
        results = run_trials(store, name, settings, count, trial, workers=workers, executor=client)
        print(f"{part}: {done:.0%} of the trials after {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return list(zip(settings, results, strict=True))


def stored(store: Store, part: str) -> pages.Found:
    """What the store holds of one part, however many trials that are."""
    name, cells, _, _ = PARTS[part]
    return [(setting, results) for setting in cells() if (results := store.results(name, setting))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000, help="trials per setting of the levels (default 1000)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler, instead of processes here")
    parser.add_argument("--only", choices=PARTS, action="append", help="run these parts and write no page")
    parser.add_argument("--store", default=str(ROOT / "calibration.sqlite"), help="where finished trials are kept")
    parser.add_argument("--as-is", action="store_true", help="run nothing: the pages from the trials that are there")
    arguments = parser.parse_args()
    asked = arguments.trials, arguments.workers
    with Store(arguments.store, version=VERSION) as store, cluster_client(arguments.cluster) as client:
        found = {
            part: stored(store, part) if arguments.as_is else run(store, part, *asked, client)
            for part in arguments.only or PARTS
        }
    if arguments.only:
        return
    folder = ROOT / "docs" / "calibration"
    rows = pages.level_rows(found["levels"])
    pages.write_levels(folder, rows, found["levels"], found["variance"])
    pages.write_power(folder, found["power"], found["levels"])
    pages.write_laws(folder, found["order"], found["negative"], found["averaging"], found["levels"])
    pages.write_corrected(folder, found["corrected"])
    failed = sum(not row["kept"] for row in rows)
    print(f"{len(rows) - failed} of {len(rows)} levels kept. Pages written to docs/calibration/.")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
