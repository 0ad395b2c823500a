"""How large a thing a file may become in memory: a few bytes can claim to hold terabytes, or be packed from them."""

from __future__ import annotations

import os
from pathlib import Path

from relfit.errors import InputError

_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def require_room(path: object, size: float) -> None:
    """Refuse what needs more bytes than are free: the system would kill the process, or others, half-way.

    >>> require_room("a.npz", 10**6)
    """
    free = free_memory()
    if size > free:
        raise InputError(
            f"{path}: expected what fits into memory ({free / 1e9:.3g} GB free), got {size / 1e9:.3g} GB once "
            "unpacked; it is damaged, or has to be cut or saved as .npy, which is read in place"
        )


def free_memory() -> float:
    """Bytes that can be had without swapping; infinity where the system does not say."""
    return min(_free_on_machine(), _free_in_group())


def _free_on_machine() -> float:
    try:
        lines = dict(line.split(":", 1) for line in _MEMORY.read_text(encoding="ascii").splitlines())
        return 1024.0 * int(lines["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        try:
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, OSError, ValueError):
            return float("inf")


def _free_in_group() -> float:
    """What a container's limit leaves."""
    try:
        most, used = (int((_GROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return float("inf")
    return float(max(most - used, 0))
