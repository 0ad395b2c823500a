"""A progress bar, by default on terminals only and for work that takes more than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from relfit.util.errors import InputError

Progress = Callable[[int, int], None]
_QUIET_SECONDS = 2.0


@contextmanager
def reporting(progress: Any, description: str) -> Iterator[Progress | None]:
    """The function of (done, total) that `progress` asks for, or None.

    None shows a bar on a terminal after two seconds, True shows it at once, False never; a function is used as it is.
    """
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield None
    elif progress is None or progress is True:
        with _bar(description, 0.0 if progress else _QUIET_SECONDS) as update:
            yield update
    elif callable(progress):
        yield progress
    else:
        raise InputError(f"progress: expected None, True, False or a function, got {progress!r}")


@contextmanager
def _bar(description: str, quiet: float) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bar

    started = time.monotonic()
    bar = Bar(console=Console(stderr=True), transient=True)
    task = bar.add_task(description, total=None)

    def update(done: int, total: int) -> None:
        if not bar.live.is_started:
            if time.monotonic() - started < quiet:
                return
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()
