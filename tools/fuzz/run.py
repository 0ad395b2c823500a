"""Fuzz every reader, one after the other, and write the table of docs/evidence/robustness.md: python -m tools.fuzz.run.

Each gets a million executions or ten minutes of processor time, whichever comes first, in turns. A run that was
stopped is resumed; a finished run is not repeated unless --again is given. The corpora in build/fuzz/ are kept, and the
next run begins with them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.fuzz.targets import TARGETS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BEGIN, END = "<!-- fuzz: begin -->\n", "<!-- fuzz: end -->\n"
RUNS, SECONDS = 10**6, 600.0
EMPTY = {"executions": 0, "accepted": 0, "seconds": 0.0, "findings": 0}


def main() -> int:
    """Run the targets named, or all; status 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--turn", type=float, default=60.0, help="seconds for one reader before the next has its turn")
    parser.add_argument("--again", action="store_true", help="count from nothing, also for those that are done")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--docs", type=Path, help="the page whose table is written")
    options = parser.parse_args()
    places = {name: options.folder / _slug(name) for name in TARGETS}
    chosen = options.targets or list(TARGETS)
    for name in chosen if options.again else ():
        (places[name] / "run.json").unlink(missing_ok=True)
    while waiting := [name for name in chosen if not _finished(_result(places[name]), options)]:
        for name in waiting:
            done = _result(places[name])
            left = min(options.turn, options.seconds - done["seconds"])
            fuzz(name, places[name], options.runs - done["executions"], left)
            print(f"{name}: {json.dumps(_result(places[name]))}", flush=True)
    if options.docs is not None:
        write_table(options.docs, {name: _result(place) for name, place in places.items()})
    return int(any(_result(places[name])["findings"] for name in chosen))


def fuzz(name: str, place: Path, runs: int, seconds: float) -> None:
    """One reader in a separate process; if the process fails, its last file is kept."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "why.txt").unlink(missing_ok=True)
    fast = Path("/dev/shm")  # a folder in memory, where there is one
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as scratch:
        command = [sys.executable, HERE / "harness.py", name, "--folder", place, "--scratch", scratch]
        limits = ["--runs", str(runs), "--seconds", str(seconds)]
        with (place / "log.txt").open("w") as log:
            status = subprocess.run([*command, *limits], stdout=log, stderr=log, check=False).returncode
        last = Path(scratch, "last")
        if status and last.exists():
            _keep(place, last.read_bytes(), status)
        elif status:
            raise SystemExit(f"{name}: the harness failed; see {place / 'log.txt'}")


def write_table(page: Path, results: dict[str, dict[str, Any]]) -> None:
    """Put the table between the two marks of the page."""
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    lines = ["| reader | executions | accepted | CPU seconds | findings open |", "| :--- | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {name} | {run['executions']:,} | {run['accepted']:,} | {run['seconds']:.0f} | {run['findings']} |"
        for name, run in results.items()
    ]
    done = sum(run["executions"] >= RUNS or run["seconds"] >= SECONDS - 1.0 for run in results.values())
    others = "" if done == len(results) else "; `make fuzz` resumes the others"
    lines += ["", f"{done} of {len(results)} readers are finished{others}."]
    page.write_text(head + BEGIN + "\n".join(lines) + "\n" + END + tail, encoding="utf-8")


def _keep(place: Path, data: bytes, status: int) -> None:
    why = place / "why.txt"
    reason = why.read_text() if why.exists() else f"ended by status {status}; see log.txt"
    name = hashlib.sha256(data).hexdigest()[:12]
    (place / "findings").mkdir(exist_ok=True)
    (place / "findings" / name).write_bytes(data)
    (place / "findings" / f"{name}.txt").write_text(reason)
    print(f"  FOUND {place / 'findings' / name}: {reason.strip().splitlines()[-1]}", flush=True)


def _result(place: Path) -> dict[str, Any]:
    """The progress that the harness wrote last, and the number of findings."""
    progress = place / "run.json"
    findings = list((place / "findings").glob("*.txt"))
    return {**EMPTY, **(json.loads(progress.read_text()) if progress.exists() else {}), "findings": len(findings)}


def _finished(result: dict[str, Any], options: argparse.Namespace) -> bool:
    """True if the run used up its limits, or has findings, which must be fixed first."""
    return bool(
        result["executions"] >= options.runs or result["seconds"] >= options.seconds - 1.0 or result["findings"]
    )


def _slug(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())
