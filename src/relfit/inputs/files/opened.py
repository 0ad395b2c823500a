"""Files opened but not read: rows that stay where they are, or go once, in parts, into a file where they can stay."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.columns import Wanted, column_places, wanted_columns
from relfit.inputs.files import read_rows
from relfit.inputs.files.arrow import ipc_parts, parquet_parts
from relfit.inputs.files.npy import read_npy
from relfit.inputs.files.paths import check_file, damage_told, split_key
from relfit.inputs.files.text import text_parts
from relfit.inputs.files.zarr import zarr_parts
from relfit.memory import Budget, in_words
from relfit.stored import PART_NUMBERS, CastRows, LazyRows, StoredRows, bare_rows, kept_type, parts, written_rows

_TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
# Files that have to be read whole may take this share of the budget.
_WHOLE = 8


@dataclass(frozen=True)
class FileRows:
    """The rows of a file, or some of its columns, as `read_rows` names them; nothing of it is read yet."""

    source: str
    columns: Any = None


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


def as_file(value: Any) -> FileRows | None:
    """The value as a file, if it is one or the name of one."""
    if isinstance(value, str | os.PathLike):
        return FileRows(os.fsdecode(value))
    return value if isinstance(value, FileRows) else None
