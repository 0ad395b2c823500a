"""Other libraries and the machine: what is loaded, what must be installed, how many cores and
whether there is CUDA; and changes of the whole process that threads share, such as the number
of BLAS threads.

Objects of an optional library are recognised with `loaded`, which imports nothing; the
library is imported with `needed`, only where a file requires it.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from relfit.util.errors import InputError


def loaded(name: str) -> Any:
    """The library if it has been imported already, else None: without that, no object of the
    library can exist.
    """
    return sys.modules.get(name)


def is_instance(value: Any, module: str, *classes: str) -> bool:
    """True for an object of one of these classes of a library, which is not imported for that.

    >>> (
    ...     is_instance(3, "builtins", "str", "int"),
    ...     is_instance(3, "a library nobody has", "Array"),
    ... )
    (True, False)
    """
    library = loaded(module)
    return library is not None and isinstance(
        value, tuple(getattr(library, name) for name in classes)
    )


def needed(where: object, library: str, oldest: tuple[int, ...]) -> Any:
    """Import the library; raises one line that says what to install if it is missing or
    older than `oldest`.
    """
    oldest_text = ".".join(map(str, oldest))
    package = library.partition(".")[0]
    try:
        module = importlib.import_module(library)
    except (ImportError, OSError):
        raise InputError(
            f"{where}: reading it needs {package}; install it with  pip install {package}"
        ) from None
    version = str(getattr(module, "__version__", oldest_text))
    # The leading numbers: "2.13.0+cpu" is (2, 13, 0), "3.1rc1" is (3,).
    if tuple(map(int, takewhile(str.isdecimal, version.partition("+")[0].split(".")))) < oldest:
        advice = f"install it with  pip install -U {package}"
        raise InputError(
            f"{where}: reading it safely needs {package} {oldest_text} or newer, "
            f"got {version}; {advice}"
        )
    return module


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Files that drivers of CUDA devices leave: NVIDIA's on Linux, Windows' for Linux, AMD's.
_DRIVERS = ("/proc/driver/nvidia/version", "/dev/dxg", "/dev/kfd")


def has_cuda() -> bool:
    """True if torch can use a CUDA device. torch, which is slow to load, is imported only if
    there may be a driver.
    """
    if sys.platform != "win32" and not any(Path(driver).exists() for driver in _DRIVERS):
        return False
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


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
