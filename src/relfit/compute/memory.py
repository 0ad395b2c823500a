"""Memory: the budget of a process, and the memory that is free.

A `Budget` limits the anonymous memory of the whole process, with a folder for files that are
mapped instead. `require_room` refuses a file that would not fit: a few bytes can claim to
hold terabytes, or be compressed from them.
"""

from __future__ import annotations

import os
import re
import reprlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relfit.util.errors import InputError
from relfit.util.files import temporary_folder

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)
# Bytes that an interpreter with NumPy and SciPy holds, for systems that do not say.
_UNKNOWN = 150_000_000
# The fraction of the remaining memory that the work may use: allocators keep some of what is
# freed.
_USABLE = 0.75
_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Budget:
    """The `total` bytes of anonymous memory that the process may hold, and the `folder` for
    what does not fit.
    """

    total: int
    folder: Path
    given: int | str | None = None

    def holds(self, more: int) -> bool:
        """True if so many bytes more than the process holds now are within the budget."""
        return held_bytes() + more <= self.total

    def working(self, kept: int, fewest: int, later: int = 0) -> int:
        """The bytes that the work itself may use, besides `kept` ones; refused if they are
        fewer than `fewest`.

        The line that refuses them names a budget that is enough `later`, too, when so many
        bytes are kept. They are a half, a quarter, … of the budget: the sizes of patches and
        blocks follow from them, and must be the same when a call resumes from a checkpoint
        in an interpreter that holds a few more pages.
        """
        held = held_bytes()
        available = int(_USABLE * (self.total - held - kept))
        if available < fewest:
            kept = max(kept, later)
            # A twentieth more: another process with the same libraries may hold some more
            # pages.
            enough = int(1.05 * (held + kept + fewest / _USABLE))
            got = repr(self.given) if isinstance(self.given, str) else f"{self.total} bytes"
            raise InputError(
                f"memory: expected at least {in_words(enough)} for these sizes (the process "
                f"itself holds "
                f"{in_words(held)}, numbers for every row take {in_words(kept)}), got {got}"
            )
        return max(
            fewest, next(self.total >> k for k in range(1, 64) if self.total >> k <= available)
        )


@contextmanager
def budget_of(memory: Any) -> Iterator[Budget]:
    """The budget with a folder of its own, which is removed at the end."""
    total = parse_memory(memory)
    with temporary_folder() as folder:
        yield Budget(total, folder, memory)


def parse_memory(memory: Any) -> int:
    """The number of bytes, given as an integer or as a text such as "500MB", "1.5 GB" or
    "2GiB".

    >>> parse_memory("1.5GB"), parse_memory("1 GiB"), parse_memory(10**9)
    (1500000000, 1073741824, 1000000000)
    """
    match = _SIZE.fullmatch(memory) if isinstance(memory, str) else None
    size = memory if isinstance(memory, int) and not isinstance(memory, bool) else 0
    if match is not None:
        size = int(float(match[1]) * _UNITS[(match[2] or "").lower()])
    if not 0 < size < 2**62:
        raise InputError(
            f'memory: expected a number of bytes or a size such as "2GB", got '
            f"{reprlib.repr(memory)}"
        )
    return size


def in_words(size: int) -> str:
    """A number of bytes in a suitable unit, rounded up.

    >>> in_words(123_456_789), in_words(2_100_000_000)
    ('124 MB', '2.1 GB')
    """
    return f"{-(-size // 10**6)} MB" if size < 10**9 else f"{-(-size // 10**7) / 100:g} GB"


def held_bytes() -> int:
    """The bytes of anonymous memory that the process holds now; its largest resident size
    where only that is known.

    Pages of mapped files are left out: the system drops them when it needs room.
    """
    try:
        fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return _peak()


def _peak() -> int:
    try:
        import resource
    except ImportError:
        return _UNKNOWN
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def require_room(
    path: object, size: float, remedy: str = "split or saved as .npy, which is read in place"
) -> None:
    """Refuse a file that needs more bytes than are free: the system would kill this process,
    or others, half-way.

    >>> require_room("a.npz", 10**6)
    """
    free = free_memory()
    if size > free:
        raise InputError(
            f"{path}: expected what fits into memory ({free / 1e9:.3g} GB free), got "
            f"{size / 1e9:.3g} GB once "
            f"unpacked; the file is damaged, or has to be {remedy}"
        )


def free_memory() -> float:
    """Bytes that can be allocated without swapping, or within a container's limit; infinity
    if the system is silent.
    """
    try:
        lines = dict(
            line.split(":", 1) for line in _MEMORY.read_text(encoding="ascii").splitlines()
        )
        free = 1024.0 * int(lines["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        try:
            free = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, OSError, ValueError):
            free = float("inf")
    try:
        limit, used = (
            int((_GROUP / name).read_text(encoding="ascii"))
            for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):
        return free
    return min(free, float(max(limit - used, 0)))
