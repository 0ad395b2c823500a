"""How far an experiment is: the bar of `relfit.progress` on a terminal, otherwise a line now and then, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relfit import progress as shared
from relfit.progress import Progress

LINE_SECONDS = 30.0  # between two lines where stderr is not a terminal


@contextmanager
def reporting(
    progress: Progress | bool | None, experiment: str, done: int, total: int
) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many more trials are stored."""
    if progress is None and not sys.stderr.isatty():
        yield _counting(_line_writer(experiment, done), done, total)
        return
    with shared.reporting(True if progress is None else progress, experiment) as update:
        if progress is None and update is not None:
            # What was stored before must not count as speed.
            update(done, total)
        yield _counting(update, done, total)


def _counting(report: Progress | None, done: int, total: int) -> Callable[[int], None]:
    counts = [done]

    def advance(count: int) -> None:
        counts[0] += count
        if report is not None:
            report(counts[0], total)

    return advance


def _line_writer(experiment: str, already: int) -> Progress:
    """Write a line when LINE_SECONDS have passed since the last one, and at the end."""
    start = last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < LINE_SECONDS and done < total:
            return
        last = now
        left = (now - start) * (total - done) / max(done - already, 1)
        line = f"{experiment}: {done}/{total} trials, {now - start:.0f} s so far, about {left:.0f} s left"
        print(line, file=sys.stderr, flush=True)

    return report
