"""Mutation check: sixty changes of one constant, sign or factor (mutants.toml), each of which a test must notice.

python -m tools.mutants [NAME...] [--list] [--again] [--docs docs/evidence/mutants.md]

Each mutation is made in a copy of the tree, and its tests run there until one fails. Results are kept in
build/mutants.json: a run that was stopped is resumed. A survivor, or a mutation whose file has changed, is tried again.
A mutation whose text no longer occurs exactly once stops the run before anything is tried.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from relfit.util.files import write_text_atomic

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("mutants.toml")
RESULTS = ROOT / "build" / "mutants.json"
LONGEST = 900.0
COPIED = ("src", "tests", "tools", "studies", "scripts", "docs", "examples", "pyproject.toml", "README.md")
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ANSWERS = "tests/answers"


@dataclass(frozen=True)
class Mutation:
    """A text of one file of src/relfit, what takes its place, and the tests that must notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def path(self):
        return Path("src", "relfit", self.file)


MUTATIONS = tuple(
    Mutation(**{**given, "tests": tuple(given.get("tests", [ANSWERS]))})
    for given in tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutation"]
)


def stale():
    """The mutations whose text does not occur exactly once, in words."""
    found = []
    for each in MUTATIONS:
        count = (ROOT / each.path).read_text(encoding="utf-8").count(each.old)
        if count != 1:
            found.append(f"{each.name}: {each.old!r} occurs {count} times in {each.path}, expected once")
    return found


def digest(mutation):
    """What decides the answer besides the tests: the mutation and its file."""
    text = (ROOT / mutation.path).read_bytes() + repr(mutation).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def copied(folder):
    """A copy of what the tests need, in a folder."""
    ignored = shutil.ignore_patterns("__pycache__", ".*", "site")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        elif source.exists():
            shutil.copy(source, folder / name)


def run_tests(folder, tests):
    """The status of pytest in the copy, and its last line; a run without end counts as one that failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, "no end"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, lines[0] if lines else (done.stdout + done.stderr).strip().rpartition("\n")[2]


def tried(mutation, folder):
    """Make the mutation in the copy, run its tests, and take it back."""
    path = folder / mutation.path
    text = path.read_text(encoding="utf-8")
    started = time.monotonic()
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        status, line = run_tests(folder, mutation.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    if status not in (0, 1):
        raise SystemExit(f"{mutation.name}: pytest could not run (status {status}): {line}")
    by = line.removeprefix("FAILED ").removeprefix("ERROR ").partition(" - ")[0]
    return {"caught": status == 1, "by": by if status else "", "seconds": round(time.monotonic() - started, 1)}


def results():
    """What earlier runs caught; survivors are tried again, as there may be a new test."""
    held = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    current = {each.name: digest(each) for each in MUTATIONS}
    return {name: row for name, row in held.items() if row["caught"] and current.get(name) == row["digest"]}


def page(found):
    """The page: what survived, and what caught the others."""
    survivors = [each for each in MUTATIONS if each.name in found and not found[each.name]["caught"]]
    lines = [
        "# Mutation check",
        "",
        "Written by `make mutants`. Each mutation of `tools/mutants.toml` changes one constant, sign or factor of",
        "stats, estimators or data in a copy of the tree, and its tests run until one fails. A mutation that no test",
        f"notices is a survivor. {len(found)} of {len(MUTATIONS)} mutations were tried, {len(survivors)} survived.",
        "",
        "## Survivors",
        "",
    ]
    lines += _table(survivors, lambda each: ", ".join(each.tests), "tests that ran") if survivors else ["None."]
    caught = [each for each in MUTATIONS if each.name in found and found[each.name]["caught"]]
    lines += ["", "## Caught", ""]
    lines += _table(caught, lambda each: f"`{found[each.name]['by']}`", "noticed by")
    left = [each.name for each in MUTATIONS if each.name not in found]
    if left:
        lines += ["", f"Not tried yet: {', '.join(left)}."]
    return "\n".join(lines) + "\n"


def _table(mutations, last, heading):
    rows = [f"| mutation | file | from | to | {heading} |", "| :--- | :--- | :--- | :--- | :--- |"]
    for each in mutations:
        cells = (each.name, each.file, f"`{each.old}`", f"`{each.new}`", last(each))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def main():
    """Try the mutations named, or all; status 1 if any survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations to try; all by default")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--again", action="store_true", help="try those again that have a result")
    parser.add_argument("--docs", type=Path, help="the page that is written")
    given = parser.parse_args()
    by_name = {each.name: each for each in MUTATIONS}
    if given.list:
        print("\n".join(by_name))
        return 0
    if unknown := [name for name in given.names if name not in by_name]:
        raise SystemExit(f"no such mutation: {', '.join(unknown)}; --list prints the names")
    if gone := stale():
        raise SystemExit("\n".join(gone))
    chosen = [by_name[name] for name in given.names] or list(MUTATIONS)
    found = results()
    waiting = [each for each in chosen if given.again or each.name not in found]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        tests = sorted({path for each in waiting for path in each.tests})
        status, line = run_tests(folder, tests) if tests else (0, "")
        if status:
            raise SystemExit(f"a test fails without a mutation: {line}")
        for mutation in waiting:
            found[mutation.name] = {**tried(mutation, folder), "digest": digest(mutation)}
            RESULTS.parent.mkdir(exist_ok=True)
            write_text_atomic(RESULTS, json.dumps(found, indent=1) + "\n")
            row = found[mutation.name]
            print(f"{mutation.name}: {'caught by ' + row['by'] if row['caught'] else 'SURVIVED'}", flush=True)
    if given.docs is not None:
        write_text_atomic(given.docs, page(found))
    survivors = [each.name for each in chosen if not found[each.name]["caught"]]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutations were caught")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
