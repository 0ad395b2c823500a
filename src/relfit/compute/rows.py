"""Rows that are not held as one float64 array but in a file, or in an array of another type; read a part at a time."""

from __future__ import annotations

import itertools
import mmap
import os
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError

# Numbers that are checked together: 4 MB, and a few temporaries of that size.
PART_NUMBERS = 2**19
# Rows of a file that are less than _GAP bytes apart are read together, at most _SPAN bytes at a time.
_GAP, _SPAN = 2**13, 2**20


class LazyRows:
    """The rows (n, d) of a sample; indexing by a slice or an array of row numbers gives those rows, as float64."""

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, int]:
            """(n, d)."""

    @abstractmethod
    def __getitem__(self, rows: slice | Rows) -> Array:
        """Those rows."""

    def __len__(self) -> int:
        return self.shape[0]


@dataclass(frozen=True)
class StoredRows(LazyRows):
    """The rows (n, d) of a C-ordered .npy file, or of bare numbers from `offset` on; indexing reads them.

    Nothing stays mapped between two reads, so that no more of the file is resident than was asked for. The value is
    small and can be sent to another process that sees the same file. `stamp` is the file's size and modification time,
    by which a file that has changed since is noticed.
    """

    path: str
    offset: int
    dtype: str
    shape: tuple[int, int]
    stamp: tuple[int, int]

    def __getitem__(self, rows: slice | Rows) -> Array:
        """A slice at once; rows in any order are read in the file's order, neighbours together.

        They are read, not mapped: a mapped file keeps whole pages, and those around them, resident for every row.
        """
        try:
            stamp = _stamp(self.path)
        except OSError as error:
            raise InputError(f"{self.path}: can no longer be read ({error.strerror})") from None
        if stamp != self.stamp:
            raise InputError(f"{self.path}: was changed while it was being read; start again")
        with open(self.path, "rb", buffering=0) as stream:
            if isinstance(rows, slice):
                start, stop, step = rows.indices(len(self))
                if step == 1:
                    return self._read(stream, start, max(stop, start)).astype(np.float64, copy=False)
                rows = np.arange(start, stop, step)
            order = np.argsort(rows, kind="stable")
            numbers = rows[order]
            if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < len(self):
                raise IndexError(f"row numbers {numbers[0]} to {numbers[-1]} of {len(self)} rows")
            out = np.empty((len(rows), self.shape[1]))
            for a, b in _spans(numbers, max(1, self._row_bytes)):
                first = int(numbers[a])
                out[order[a:b]] = self._read(stream, first, int(numbers[b - 1]) + 1)[numbers[a:b] - first]
            return out

    def _read(self, stream: FileIO, start: int, stop: int) -> NDArray[Any]:
        part = np.empty((stop - start, self.shape[1]), self.dtype)
        stream.seek(self.offset + start * self._row_bytes)
        buffer = part.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(buffer):
            count = stream.readinto(buffer[done:])
            if not count:
                raise InputError(f"{self.path}: ends before row {stop}; write it again")
            done += count
        return part

    @property
    def _row_bytes(self) -> int:
        return self.shape[1] * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)
class CastRows(LazyRows):
    """The rows of an array that is not float64 or not C-ordered; they are cast when they are asked for."""

    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape

    def __getitem__(self, rows: slice | Rows) -> Array:
        # A number too large for a double becomes infinite; the check of the values reports it.
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(self.array[rows], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class SomeRows(LazyRows):
    """Some of the rows of another `LazyRows`, by their numbers, in that order.

    >>> SomeRows(CastRows(np.arange(4)[:, None]), np.array([3, 1, 0]))[:2].tolist()
    [[3.0], [1.0]]
    """

    rows: LazyRows
    numbers: Rows

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.numbers), self.rows.shape[1]

    def __getitem__(self, rows: slice | Rows) -> Array:
        return self.rows[self.numbers[rows]]


def some_rows(rows: Any, numbers: Rows) -> Any:
    """These rows of an array, or of `LazyRows`, which are not read yet."""
    if isinstance(rows, SomeRows):
        return SomeRows(rows.rows, rows.numbers[numbers])
    return SomeRows(rows, numbers) if isinstance(rows, LazyRows) else rows[numbers]


def cuts(stop: int, size: int, start: int = 0) -> Iterator[slice]:
    """Consecutive slices of `size` rows; the last may be shorter.

    >>> list(cuts(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(a, min(a + size, stop)) for a in range(start, stop, size))


def parts(shape: tuple[int, ...], numbers: int | None = None) -> Iterator[slice]:
    """Consecutive slices of rows (n, d), each of at most `numbers` numbers (`PART_NUMBERS`), but at least one row.

    >>> list(parts((5, 100), 200))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return cuts(shape[0], max(1, (PART_NUMBERS if numbers is None else numbers) // max(1, shape[1])))


def bare_rows(path: str | os.PathLike[str], dtype: Any, shape: tuple[int, int], offset: int = 0) -> StoredRows:
    """The rows of a file that holds only numbers from `offset` on."""
    place = str(Path(path).absolute())
    return StoredRows(place, offset, np.dtype(dtype).str, shape, _stamp(place))


def mapped_rows(array: Any) -> StoredRows | None:
    """The rows of a float64 array that is part of a mapped file, by the file's path; None for any other array.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(6.0).reshape(3, 2))
    ...     rows = mapped_rows(np.load(f"{folder}/x.npy", mmap_mode="r")[1:])
    ...     rows.shape, rows[:1].tolist()
    ((2, 2), [[2.0, 3.0]])
    """
    base = array
    while isinstance(base, np.ndarray) and not isinstance(base.base, mmap.mmap):
        base = base.base
    path = getattr(base, "filename", None)
    if path is None or array.dtype != np.float64 or array.ndim != 2 or not array.flags.c_contiguous:
        return None
    try:
        rows = bare_rows(path, array.dtype, array.shape, map_offset(array, base.base, base.offset))
        ends = np.array([0, len(array) - 1])[: len(array)]
        # Another file may have taken the path since this one was mapped.
        return rows if np.array_equal(rows[ends], array[ends]) else None
    except (OSError, InputError):
        return None


def map_offset(array: Any, base: mmap.mmap, offset: int) -> int:
    """Where an array that is part of a mapped file begins in the file; views of the map keep the map's own `offset`."""
    # The map begins at the page that holds the offset.
    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    return int(start + array.ctypes.data - np.frombuffer(base, np.uint8).ctypes.data)


def written_rows(blocks: Iterable[NDArray[Any]], folder: Path) -> StoredRows:
    """Write blocks of rows (·, d), one after the other, to a new file in the folder, as the widest `kept_type`."""
    path = folder / f"{uuid.uuid4().hex}.rows"
    kind, width, rows = np.dtype(np.float64), 0, 0
    blocks = iter(blocks)
    with _writing(folder):
        path.touch(exist_ok=False)
    for block in blocks:
        came = kept_type(block.dtype)
        if not rows:
            kind, width = came, block.shape[1]
        elif came.itemsize > kind.itemsize:
            # float64 after float32: write once more, as float64, which is what indexing gives.
            before = bare_rows(path, kind, (rows, width))
            wider = written_rows(
                itertools.chain((before[part] for part in parts(before.shape)), [block], blocks), folder
            )
            path.unlink()
            return wider
        with _writing(folder), np.errstate(over="ignore"), path.open("ab") as stream:
            stream.write(np.ascontiguousarray(block, kind).data)
        rows += len(block)
    return bare_rows(path, kind, (rows, width))


def held_rows(blocks: Iterable[NDArray[Any]]) -> Array:
    """The blocks of rows (·, d), one after the other, in one array that grows: no row is held twice.

    >>> held_rows([np.ones((2, 1)), np.zeros((1, 1), "f4")]).tolist()
    [[1.0], [1.0], [0.0]]
    """
    rows, count = np.empty((0, 0)), 0
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


def joined(blocks: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """The blocks, small ones joined to their neighbours, so that few are written."""
    waiting: list[NDArray[Any]] = []
    size = 0
    for block in blocks:
        # A copy: whoever yields blocks may use their memory again.
        waiting.append(np.array(block))
        size += block.size
        if size >= PART_NUMBERS:
            yield np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
            waiting, size = [], 0
    if waiting:
        yield np.concatenate(waiting)


def written_columns(blocks: Iterable[NDArray[Any]], folder: Path, width: int = 1) -> list[StoredRows]:
    """Write blocks of rows (·, d), one after the other, to new files, one for each `width` columns."""
    paths: list[Path] = []
    columns: list[slice] = []
    count = 0
    for block in blocks:
        columns = list(cuts(block.shape[1], width))
        paths = paths or [folder / f"{uuid.uuid4().hex}.rows" for _ in columns]
        with _writing(folder):
            for path, some in zip(paths, columns, strict=True):
                with path.open("ab") as stream:
                    stream.write(np.ascontiguousarray(block[:, some], np.float64).data)
        count += len(block)
    return [
        bare_rows(path, np.float64, (count, some.stop - some.start)) for path, some in zip(paths, columns, strict=True)
    ]


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = f"cannot write rows to {folder} ({error.strerror})"
        raise InputError(f"TMPDIR: {why}; set it to a folder with more space") from None


def kept_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that numbers are written in: float32 if they have no more digits than that, float64 otherwise."""
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize <= 4 else np.dtype(np.float64)


def _spans(numbers: Rows, row_bytes: int) -> Iterator[tuple[int, int]]:
    """The ranges [a, b) of sorted row numbers to read together: without wide gaps, within one stretch of the file."""
    stretch = numbers // max(1, _SPAN // row_bytes)
    apart = (np.diff(numbers) * row_bytes > _GAP) & (np.diff(numbers) > 1)
    ends = (np.flatnonzero(apart | (np.diff(stretch) > 0)) + 1).tolist()
    return zip([0, *ends], [*ends, len(numbers)], strict=True) if len(numbers) else iter(())


def seen_here(rows: Iterable[StoredRows]) -> bool:
    """True if this process, on whatever machine, sees the same files unchanged."""
    try:
        return all(_stamp(part.path) == part.stamp for part in rows)
    except OSError:
        return False


def _stamp(path: str) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_size, status.st_mtime_ns
