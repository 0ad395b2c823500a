"""Fuzz one reader, guided by coverage. tools/fuzz/run.py starts it, once for every reader.

Findings, each kept as a file: an exception other than InputError, a crash, more than 5 seconds of processor time, more
than 500 MB of memory for one small file. The corpus is kept, so that a later run resumes where this one stopped.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

LONGEST = 5.0  # seconds of processor time for one file
MOST_MEMORY = 500 * 1024  # kilobytes that one file may add
FREE_MEMORY = 256 * 1024**2  # bytes that readers believe to be free
ADDRESS_SPACE = 8 * 1024**3  # memory may be reserved beyond that, but not used
LARGEST_FILE = 8192
RUNS_BETWEEN_REPORTS = 1000
WATCHED = (
    "relfit.data",
    "relfit.results",
    "relfit.kernels",
    "relfit.features.run",
    "relfit.paper.chicago",
)


@dataclass
class Loop:
    """The state of one run: what the fuzzer calls for every file."""

    target: Any
    scratch: Path
    place: Path
    runs: int
    seconds: float
    before: dict[str, Any]
    done: int = 0
    accepted: int = 0

    def __call__(self, data: bytes) -> None:
        """Read the bytes as a file; a finding ends the process, and the bytes are kept."""
        from tools.fuzz.targets import attempt

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # The timer counts processor time and kills the process, as code that hangs outside Python requires.
        (self.scratch / "last").write_bytes(data)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        try:
            self.accepted += attempt(self.target, data, self.scratch)
        except BaseException:
            self._found(data, traceback.format_exc())
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > MOST_MEMORY:
            self._found(data, f"{grown} kB of memory")
        self.done += 1
        if self.done >= self.runs or (self.done % 64 == 0 and time.process_time() >= self.seconds):
            self.write_progress()
            os._exit(0)
        if self.done % RUNS_BETWEEN_REPORTS == 0:
            self.write_progress()

    def write_progress(self) -> None:
        """Write the number of executions so far, including those of earlier runs."""
        counts = {"executions": self.done, "accepted": self.accepted, "seconds": round(time.process_time(), 1)}
        (self.place / "run.json").write_text(
            json.dumps({k: count + self.before.get(k, 0) for k, count in counts.items()})
        )

    def _found(self, data: bytes, why: str) -> None:
        self.write_progress()
        (self.place / "why.txt").write_text(why)
        print(why, file=sys.stderr)
        os._exit(1)


def main() -> None:
    """Fuzz until the runs or the seconds are used up, or there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10**6)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    target = _prepared(options.target)
    corpus = options.folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    progress = options.folder / "run.json"
    before = json.loads(progress.read_text()) if progress.exists() else {}
    loop = Loop(target, options.scratch, options.folder, options.runs, options.seconds, before)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    # The fuzzer's own limits by the clock are off: a run may be paused for minutes.
    limits = ["-timeout=1000000", "-report_slow_units=1000000", "-rss_limit_mb=0", "-verbosity=0", "-len_control=20"]
    places = [f"-max_len={LARGEST_FILE}", f"-artifact_prefix={options.folder}/", str(corpus)]
    atheris.Setup([sys.argv[0], *limits, *places], loop)
    atheris.Fuzz()


def _prepared(name: str) -> Any:
    """The target, with its modules and relfit's readers instrumented, and with little free memory."""
    from tools.fuzz.targets import TARGETS, attempt

    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as scratch:
        for seed in target.seeds():
            attempt(target, seed, Path(scratch))  # imports what the reader needs
    _instrument((*WATCHED, *target.watched))
    _limit_free_memory()
    warnings.simplefilter("ignore")
    return target


def _instrument(modules: tuple[str, ...]) -> None:
    """Count the branches of every function of these modules: that is what guides the mutations."""
    inside = tuple(f"{module}." for module in modules)
    for function in [each for each in gc.get_objects() if isinstance(each, types.FunctionType)]:
        if f"{function.__module__}.".startswith(inside):
            atheris.instrument_func(function)


def _limit_free_memory() -> None:
    from relfit.compute import memory

    memory.free_memory = lambda: FREE_MEMORY


if __name__ == "__main__":
    main()
