"""Changes of the whole process, such as the number of BLAS threads, that several threads may
ask for at a time.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class Shared:
    """A context manager for a change that overlapping callers share: made for the first,
    undone after the last.

    >>> from contextlib import nullcontext
    >>> change = Shared(lambda: print("made") or nullcontext())
    >>> with change, change:
    ...     print("inside")
    made
    inside
    """

    def __init__(self, change: Callable[[], AbstractContextManager[Any]]) -> None:
        self._change = change
        self._callers = 0
        self._made: AbstractContextManager[Any] | None = None
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            # Another thread may hold the lock at the moment of a fork, and is not there to
            # release it.
            os.register_at_fork(after_in_child=lambda: setattr(self, "_lock", threading.Lock()))

    def __enter__(self) -> None:
        with self._lock:
            if self._made is None:
                made = self._change()
                made.__enter__()
                self._made = made
            self._callers += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._callers -= 1
            if not self._callers and self._made is not None:
                made = self._made
                self._made = None
                made.__exit__(None, None, None)


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Python keeps one list of filters for all threads.
without_warnings = Shared(_without_warnings)
