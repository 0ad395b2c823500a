"""A progress bar, by default on terminals only and for work that takes more than two
seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, TypeVar

from relfit.util.errors import InputError

Progress = Callable[[int, int], None]
Block = TypeVar("Block", bound=Sized)
# Seconds without a bar, and between two states of it.
_QUIET_SECONDS = 2.0
_BETWEEN = 0.1


@contextmanager
def reporting(progress: Any, description: str) -> Iterator[Progress | None]:
    """The function of (done, total) that `progress` asks for, or None.

    None shows a bar on a terminal after two seconds, True shows it at once, False never; a
    function is used as it is.
    """
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield None
    elif progress is None or progress is True:
        bar = _Bar(description, 0.0 if progress else _QUIET_SECONDS)
        try:
            yield bar
        finally:
            bar.stop()
    elif callable(progress):
        yield progress
    else:
        raise InputError(
            f"progress: expected None, True, False or a function, got {progress!r}"
        )


def counted(progress: Progress | None, what: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """Pass blocks of rows on, and show how many rows were read; a function of (done, total)
    is not called: no total.
    """
    done = 0
    for block in blocks:
        done += len(block)
        if isinstance(progress, _Bar):
            progress.show(f"reading {what}: {done:,} rows", None, None)
        yield block


def in_turn(progress: Progress | None, *sizes: int) -> list[Progress | None]:
    """For each of several pieces of work of these sizes, the function that reports it as a
    part of the whole.

    >>> first, second = in_turn(lambda done, total: print(done, "of", total), 10, 30)
    >>> first(1, 2), second(1, 2)
    5 of 40
    25 of 40
    (None, None)
    """

    def part(before: int, size: int) -> Progress | None:
        return progress and (
            lambda done, total: progress(before + size * done // max(total, 1), sum(sizes))
        )

    return [part(end - size, size) for size, end in zip(sizes, accumulate(sizes), strict=True)]


class _Bar:
    """A bar that appears when it is first called after `quiet` seconds."""

    def __init__(self, description: str, quiet: float) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        self._description = description
        self._bar = Bar(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(description, total=None)
        self._next = time.monotonic() + quiet

    def __call__(self, done: int, total: int) -> None:
        self.show(self._description, done, total)

    def show(self, description: str, done: int | None, total: int | None) -> None:
        from rich.markup import escape

        now = time.monotonic()
        last = self._bar.live.is_started and done is not None and done == total
        if now < self._next and not last:
            return
        self._next = now + _BETWEEN
        self._bar.start()
        self._bar.update(
            self._task, description=escape(description), completed=done, total=total
        )

    def stop(self) -> None:
        if self._bar.live.is_started:
            self._bar.stop()
