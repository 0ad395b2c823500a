"""How far an experiment is: a bar on a terminal, otherwise a line now and then; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]

LINE_SECONDS = 30.0  # between two lines where stderr is not a terminal


@contextmanager
def reporting(
    progress: Progress | bool | None, experiment: str, done: int, total: int
) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many more trials are stored."""
    if progress is False:
        yield lambda _: None
    elif callable(progress):
        yield _counting(progress, done, total)
    elif sys.stderr.isatty():
        with _bar(experiment, done, total) as advance:
            yield advance
    else:
        yield _counting(_line_writer(experiment, done), done, total)


def _counting(report: Progress, done: int, total: int) -> Callable[[int], None]:
    counts = [done]

    def advance(count: int) -> None:
        counts[0] += count
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


@contextmanager
def _bar(experiment: str, done: int, total: int) -> Iterator[Callable[[int], None]]:
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(experiment, total=total, completed=done)
        yield lambda count: bar.advance(task, count)
