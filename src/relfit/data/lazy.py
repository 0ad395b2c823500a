"""Files opened but not read: rows that stay where they are, or go once, in parts, into a file where they can stay."""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import Budget, in_words
from relfit.compute.rows import PART_NUMBERS, CastRows, LazyRows, StoredRows, bare_rows, kept_type, parts, written_rows
from relfit.data.arrays import LARGEST_VALUE, as_rows, non_finite_error, too_large_error
from relfit.data.columns import Wanted, column_places, wanted_columns
from relfit.data.files import FileRows, as_file, read_rows
from relfit.data.files.arrow import ipc_parts, parquet_parts
from relfit.data.files.npy import read_npy
from relfit.data.files.paths import check_file, damage_told, split_key
from relfit.data.files.text import text_parts
from relfit.data.files.zarr import zarr_parts
from relfit.data.models import Sample
from relfit.util.errors import InputError

_TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
# Files that have to be read whole may take this share of the budget.
_WHOLE = 8


def open_rows(file: FileRows, budget: Budget) -> LazyRows:
    """The rows of a file, never held as a whole: a C-ordered .npy is used in place, others are copied once."""
    path, key = split_key(file.source)
    wanted = wanted_columns(file.columns)
    suffix = check_file(path)
    with damage_told(path):
        if suffix == ".npy":
            return _opened_npy(path, wanted, budget)
        blocks = _blocks(path, suffix, key, wanted, budget)
        if blocks is not None:
            return written_rows(blocks, budget.folder)
        _refuse_large(path, suffix, budget)
    array = read_rows(file.source, columns=file.columns)
    return CastRows(_numbers(path, two_dimensional(path, array)))


def two_dimensional(where: object, array: Any) -> Any:
    """The array with its rows and columns; a 1-d array is n × 1, others are refused."""
    if array.ndim == 1:
        return array[:, None]
    if array.ndim != 2:
        raise InputError(
            f"{where}: expected rows and columns, got an array of shape {array.shape}; flatten each item to one row"
        )
    return array


def _blocks(
    path: Path, suffix: str, key: str | None, wanted: Wanted | None, budget: Budget
) -> Iterator[NDArray[Any]] | None:
    if suffix in _TEXT:
        return text_parts(path, wanted, PART_NUMBERS)
    if suffix == ".parquet":
        return parquet_parts(path, wanted, PART_NUMBERS)
    if suffix in (".feather", ".arrow"):
        return ipc_parts(path, wanted)
    return zarr_parts(path, key, wanted, budget.total // _WHOLE) if suffix in (".zarr", ".zip") else None


def _opened_npy(path: Path, wanted: Wanted | None, budget: Budget) -> StoredRows:
    mapped = _numbers(path, two_dimensional(path, read_npy(path, None)))
    places = None if wanted is None else column_places(path, wanted, None, mapped.shape[1])
    if not mapped.flags.c_contiguous:
        return written_rows(fortran_parts(path, mapped.dtype, mapped.shape, mapped.offset, places), budget.folder)
    rows = bare_rows(path, mapped.dtype, mapped.shape, mapped.offset)
    if places is None:
        return rows
    kept = kept_type(mapped.dtype)
    return written_rows((rows[part][:, places].astype(kept) for part in parts(rows.shape)), budget.folder)


def fortran_parts(
    path: Path | str, dtype: np.dtype[Any], shape: tuple[int, int], offset: int, places: Sequence[int] | None = None
) -> Iterator[NDArray[Any]]:
    """Parts of the rows of a file that holds one column after the other."""
    rows, columns = shape
    wanted = range(columns) if places is None else places
    with open(path, "rb") as stream:
        # A part of the rows lies in pieces all over the file: the fewer parts the better.
        for part in parts((rows, len(wanted)), 4 * PART_NUMBERS):
            block = np.empty((len(wanted), part.stop - part.start), dtype)
            for piece, k in zip(block, wanted, strict=True):
                stream.seek(offset + (k * rows + part.start) * dtype.itemsize)
                if stream.readinto(piece.view(np.uint8).data) != piece.nbytes:
                    raise InputError(f"{path}: ends before its last row; write it again")
            yield block.T


def _numbers(path: Path, array: Any) -> Any:
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path}: expected numbers, got dtype {array.dtype}; convert to float first")
    return array


def _refuse_large(path: Path, suffix: str, budget: Budget) -> None:
    """Refuse what has to be read whole and is large; an archive's directory says how much it unpacks to."""
    size = path.stat().st_size
    if suffix == ".npz" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = max((member.file_size for member in archive.infolist()), default=0)
    if size > budget.total // _WHOLE:
        raise InputError(
            f"{path}: {suffix} is read whole, and its {in_words(size)} are too many for memory="
            f"{in_words(budget.total)}; save it as .npy, .parquet or .zarr"
        )


# --------------------
# Inputs under a budget of memory: none of them is held, copied or looked at as a whole.


def bounded_rows(argument: str, value: Any, budget: Budget) -> LazyRows:
    """The value as rows that are read a part at a time, checked like `as_rows`.

    Files and mapped arrays stay where they are, or go to the budget's folder; arrays in memory are the caller's, and
    are cast as they are used.
    """
    if isinstance(value, LazyRows):
        return value
    value = value.x if isinstance(value, Sample) else value
    rows = _opened(argument, value, budget)
    if not rows.shape[0] or not rows.shape[1]:
        raise InputError(f"{argument}: expected at least one row and one column, got shape {rows.shape}")
    _refuse_non_finite(argument, rows)
    return rows


def _opened(argument: str, value: Any, budget: Budget) -> LazyRows:
    file = as_file(value)
    if file is not None:
        return open_rows(file, budget)
    if isinstance(value, np.memmap) and value.dtype.kind in "biuf":
        mapped = _mapped(two_dimensional(argument, value), budget)
        if mapped is not None:
            return mapped
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return CastRows(two_dimensional(argument, value))
    return CastRows(as_rows(argument, value))


def _mapped(array: Any, budget: Budget) -> LazyRows | None:
    """A mapped array as the file it maps; None for one whose changes are its own, and never reach the file."""
    base = array._mmap
    if array.filename is None or base is None or array.mode == "c":
        return None
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    # Of a part of a mapped array NumPy keeps the whole one's offset; where its numbers lie tells its own.
    offset = start + array.__array_interface__["data"][0] - _address(base)
    if array.flags.c_contiguous:
        return bare_rows(array.filename, array.dtype, array.shape, offset)
    if array.flags.f_contiguous:
        return written_rows(fortran_parts(array.filename, array.dtype, array.shape, offset), budget.folder)
    return written_rows(_parts_of_mapped(array, base), budget.folder)


def _parts_of_mapped(array: Any, base: mmap.mmap) -> Iterator[NDArray[Any]]:
    for part in parts(array.shape):
        yield np.array(array[part])
        if hasattr(base, "madvise"):
            # What was touched would stay resident; the file keeps it.
            base.madvise(mmap.MADV_DONTNEED)


def _address(base: mmap.mmap) -> int:
    whole: NDArray[np.uint8] = np.frombuffer(base, np.uint8)
    return int(whole.__array_interface__["data"][0])


def _refuse_non_finite(argument: str, rows: LazyRows) -> None:
    bad = large = 0
    first_bad = first_large = -1
    for part in parts(rows.shape):
        block = rows[part]
        if block.min() > -LARGEST_VALUE and block.max() < LARGEST_VALUE:
            continue
        not_finite = ~np.isfinite(block).all(axis=1)
        too_large = (np.abs(block) >= LARGEST_VALUE).any(axis=1)
        first_bad = part.start + int(not_finite.argmax()) if not_finite.any() and not bad else first_bad
        first_large = part.start + int(too_large.argmax()) if too_large.any() and not large else first_large
        bad, large = bad + int(not_finite.sum()), large + int(too_large.sum())
    if bad:
        raise non_finite_error(argument, bad, len(rows), first_bad)
    if large:
        raise too_large_error(argument, large, len(rows), first_large)
