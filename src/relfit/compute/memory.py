"""Memory: the budget of a process, the memory that is free, and rows that do not fit.

A `Budget` limits the anonymous memory of the whole process, with a folder for files that are
mapped instead. Rows are arrays, those that do not fit into memory too: they are written once
to a .npy file and mapped from there. The system keeps in memory what is in use of a mapped
file and may drop it at any time; the process itself holds nothing of it. Other processes get
such rows as the path of their file.

`require_room` refuses a file that would not fit: a few bytes can claim to hold terabytes, or
be compressed from them.
"""

from __future__ import annotations

import mmap
import os
import re
import reprlib
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.util.arrays import PART_NUMBERS, Array, Rows, parts
from relfit.util.errors import InputError
from relfit.util.files import temporary_folder

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([kmgt])(i?))?b?\s*", re.IGNORECASE)
# Bytes that an interpreter with NumPy and SciPy holds, for systems that do not say.
_UNKNOWN = 150_000_000
# The fraction of the remaining memory that the work may use: allocators keep some of what is
# freed.
_USABLE = 0.75
_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
# The bytes before the numbers of a .npy file with two dimensions.
_HEADER = 128


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
        thousand = 1024 if match[3] else 1000
        size = int(float(match[1]) * thousand ** _UNITS[(match[2] or "").lower()])
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
        limit = int((_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return free
    return min(free, float(max(limit - used, 0)))


def spilled(blocks: Iterable[NDArray[Any]], folder: Path) -> Array:
    """The blocks of rows (·, d), one after the other, as a mapped array (n, d) of float64 in
    a new file in the folder.

    The header of the file is written last: a file that is not finished cannot be loaded.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spilled([np.ones((2, 1)), np.zeros((1, 1), "f4")], Path(folder)).tolist()
    [[1.0], [1.0], [0.0]]
    """
    count = 0
    width = 0
    with _new_file(folder) as (stream, path):
        for block in blocks:
            # What overflows is refused by the check of the values.
            with np.errstate(over="ignore", invalid="ignore"):
                rows = np.ascontiguousarray(block, np.float64)
            _write(stream, rows, folder)
            count += len(rows)
            width = rows.shape[1]
        _finish(stream, (count, width), folder)
    return _mapped(path)


def transposed(rows: Array, folder: Path) -> Array:
    """The columns of rows (n, d) as a mapped array (d, n), in which each of them is
    consecutive.
    """
    count, width = rows.shape
    with _new_file(folder) as (stream, path):
        for part in parts(rows.shape, 4 * PART_NUMBERS):
            for k, column in enumerate(np.ascontiguousarray(rows[part].T)):
                stream.seek(_HEADER + 8 * (k * count + part.start))
                _write(stream, column, folder)
        _finish(stream, (width, count), folder)
    return _mapped(path)


def some_rows(rows: Any, numbers: Rows, folder: Path | None) -> Any:
    """These rows of an array: in memory, or mapped from a new file in the folder."""
    if folder is None or not len(numbers):
        return rows[numbers]
    return spilled(
        (rows[numbers[part]] for part in parts((len(numbers), rows.shape[1]))), folder
    )


@contextmanager
def _new_file(folder: Path) -> Iterator[tuple[FileIO, Path]]:
    """A new file in the folder, with room for the header; it is removed on an error."""
    path = folder / f"{uuid.uuid4().hex}.npy"
    with _writing(folder):
        stream = open(path, "xb", buffering=0)  # noqa: SIM115
    try:
        with stream:
            stream.seek(_HEADER)
            yield stream, path
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _write(stream: FileIO, rows: Array, folder: Path) -> None:
    data = rows.reshape(-1).view(np.uint8).data
    done = 0
    with _writing(folder):
        while done < len(data):
            done += stream.write(data[done:])


def _finish(stream: FileIO, shape: tuple[int, int], folder: Path) -> None:
    with _writing(folder):
        stream.truncate(_HEADER + 8 * shape[0] * shape[1])
        stream.seek(0)
        header = {
            "descr": np.lib.format.dtype_to_descr(np.dtype(np.float64)),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(stream, header)


def _mapped(path: Path) -> Array:
    return np.asarray(np.load(path, mmap_mode="r"))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = f"cannot write rows to {folder} ({error.strerror})"
        raise InputError(f"TMPDIR: {why}; set it to a folder with more space") from None


def held_rows(blocks: Iterable[NDArray[Any]]) -> Array:
    """The blocks of rows (·, d), one after the other, in one array that grows: no row is
    held twice.

    >>> held_rows([np.ones((2, 1)), np.zeros((1, 1), "f4")]).tolist()
    [[1.0], [1.0], [0.0]]
    """
    rows = np.empty((0, 0))
    count = 0
    for block in blocks:
        if not count:
            rows = np.empty((0, block.shape[1]))
        end = count + len(block)
        if end > len(rows):
            # The system moves a large array without copying it.
            rows.resize((max(end, count + count // 8), rows.shape[1]), refcheck=False)
        rows[count:end] = block
        count = end
    rows.resize((count, rows.shape[1]), refcheck=False)
    return rows


@dataclass(frozen=True)
class MappedRows:
    """Where a mapped array of rows (n, d) is, for processes that see the same file.

    `stamp` is the file's size and modification time, by which a file that has changed since
    is noticed.
    """

    path: str
    offset: int
    shape: tuple[int, int]
    stamp: tuple[int, int]

    def open(self) -> Array:
        """The rows, mapped by this process."""
        try:
            stamp = _stamp(self.path)
        except OSError as error:
            raise InputError(f"{self.path}: can no longer be read ({error.strerror})") from None
        if stamp != self.stamp:
            raise InputError(f"{self.path}: was changed while it was being read; start again")
        return np.asarray(np.memmap(self.path, np.float64, "r", self.offset, self.shape))


def opened(rows: Any) -> Any:
    """Rows that another process sent: mapped if they are in a file."""
    return rows.open() if isinstance(rows, MappedRows) else rows


def mapped_rows(array: Any) -> MappedRows | None:
    """Where the rows of a float64 array are that is part of a mapped file; None for any
    other array.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(6.0).reshape(3, 2))
    ...     mapped_rows(np.load(f"{folder}/x.npy", mmap_mode="r")[1:]).open().tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """
    base = array
    while isinstance(base, np.ndarray) and not isinstance(base.base, mmap.mmap):
        base = base.base
    path = getattr(base, "filename", None)
    # Changes to a map of mode "c" do not reach the file.
    if path is None or base.mode == "c":
        return None
    if array.dtype != np.float64 or array.ndim != 2 or not array.flags.c_contiguous:
        return None
    place = str(Path(path).absolute())
    # The map begins at the page that holds its offset; views of it keep the map's own `offset`.
    start = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY
    first = array.ctypes.data - np.frombuffer(base.base, np.uint8).ctypes.data
    try:
        rows = MappedRows(place, int(start + first), array.shape, _stamp(place))
        ends = np.array([0, len(array) - 1])[: len(array)]
        # Another file may have taken the path since this one was mapped.
        return rows if np.array_equal(rows.open()[ends], array[ends]) else None
    except (OSError, ValueError, InputError):
        return None


def seen_here(rows: Iterable[MappedRows]) -> bool:
    """True if this process, on whatever machine, sees the same files unchanged."""
    try:
        return all(_stamp(part.path) == part.stamp for part in rows)
    except OSError:
        return False


def _stamp(path: str | os.PathLike[str]) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_size, status.st_mtime_ns
