"""Optional libraries: looked up where their objects are recognised, imported only where their files are read."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relfit.util.errors import InputError

if TYPE_CHECKING:
    pass


def loaded(name: str) -> Any:
    """The library if something has imported it already; without that, no object of it can exist.

    >>> loaded("a library nobody has") is None
    True
    """
    return sys.modules.get(name)


def needed(where: object, library: str, oldest: tuple[int, ...]) -> Any:
    """The library, imported; absent or older than `oldest`, one line says what to install."""
    wanted, package = ".".join(map(str, oldest)), library.partition(".")[0]
    try:
        module = importlib.import_module(library)
    except (ImportError, OSError):
        raise InputError(f"{where}: reading it needs {package}; install it with  pip install {package}") from None
    version = str(getattr(module, "__version__", wanted))
    if _numbers(version) < oldest:
        raise InputError(
            f"{where}: reading it safely needs {package} {wanted} or newer, got {version}; "
            f"install it with  pip install -U {package}"
        )
    return module


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.13.0+cpu" is (2, 13, 0), "3.1rc1" is (3,)."""
    parts = version.partition("+")[0].split(".")
    whole = next((k for k, part in enumerate(parts) if not part.isdecimal()), len(parts))
    return tuple(int(part) for part in parts[:whole])


# --------------------
# The plan of tiles and its reduction: every sum over a kernel matrix, without ever holding the matrix.
#
# A `Job` asks for the products of one kernel matrix with right-hand sides. Jobs are cut into blocks by a plan that
# depends on their sizes and the byte budget alone; blocks run on any `concurrent.futures` executor and are combined
# in the plan's order, so the answer is the same bits for any number of workers.


def usable_cores() -> int:
    """The number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# --------------------
# What happens where a worker is: the backend it has, and the work on one patch.


def has_cuda() -> bool:
    """Whether there is a CUDA device that torch can use. torch is only loaded where the machine has a driver."""
    if not Path("/proc/driver/nvidia/version").exists():
        return False
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
