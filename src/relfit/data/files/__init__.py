"""Numeric arrays from files. Nothing is ever unpickled, and no library is imported that the file does not need."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.columns import Wanted, column_places, wanted_columns
from relfit.data.files.arrow import arrow_names, parquet_names, read_arrow, read_parquet
from relfit.data.files.npy import read_npy, read_npz
from relfit.data.files.paths import check_file, damage_told, split_key
from relfit.data.files.tensors import read_pt, read_safetensors
from relfit.data.files.text import read_text, text_names
from relfit.data.files.zarr import read_zarr
from relfit.util.errors import InputError

_TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_TABLES = {
    **dict.fromkeys(_TEXT, read_text),
    **{".parquet": read_parquet, ".feather": read_arrow, ".arrow": read_arrow},
}
_NAMES: dict[str, Callable[[Path], list[str] | None]] = {
    **dict.fromkeys(_TEXT, text_names),
    **{".parquet": parquet_names, ".feather": arrow_names, ".arrow": arrow_names},
}
_ARRAYS = {".npy": read_npy, ".npz": read_npz, ".pt": read_pt, ".safetensors": read_safetensors}


def read_rows(source: str | os.PathLike[str], *, columns: Any = None) -> NDArray[Any]:
    """The array in a file of one of the `SUFFIXES`. One array of several in it: ``file.npz:name``.

    Args:
        source: the file. A .npy file is mapped into memory, read-only.
        columns: which ones: names where the file has them, 0-based numbers, ranges "3-10" with both ends; as a
            sequence or as one text "a,b,3-10". None is all of them.
    """
    path, key = split_key(source)
    wanted = wanted_columns(columns)
    suffix = check_file(path)
    with damage_told(path):
        return _read(path, suffix, key, wanted)


def read_names(source: str | os.PathLike[str]) -> list[str] | None:
    """The names of all columns of a file, of which no row is read; None where they have none."""
    path, _ = split_key(source)
    suffix = check_file(path)
    if suffix not in _NAMES:
        return None
    with damage_told(path):
        return _NAMES[suffix](path)


def _read(path: Path, suffix: str, key: str | None, wanted: Wanted | None) -> NDArray[Any]:
    if suffix in _TABLES:
        return _TABLES[suffix](path, wanted)
    if suffix in (".zarr", ".zip"):
        array = read_zarr(path, key, wanted)
        return array if array.ndim == 2 else _chosen(path, array, wanted)
    return _chosen(path, _ARRAYS[suffix](path, key), wanted)


def _chosen(path: Path, array: NDArray[Any], wanted: Wanted | None) -> NDArray[Any]:
    if wanted is None:
        return array
    rows = array[:, None] if array.ndim == 1 else array
    if rows.ndim != 2:
        raise InputError(f"{path}: columns: expected rows and columns to choose from, got shape {array.shape}")
    # np.take and not rows[:, places]: it returns rows in C order, which need no copy later.
    return np.take(np.asarray(rows), column_places(path, wanted, None, rows.shape[1]), axis=1)


# --------------------
# Files opened but not read: rows that stay where they are, or go once, in parts, into a file where they can stay.


@dataclass(frozen=True)
class FileRows:
    """The rows of a file, or some of its columns, as `read_rows` names them; nothing of it is read yet."""

    source: str
    columns: Any = None


def as_file(value: Any) -> FileRows | None:
    """The value as a file, if it is one or the name of one."""
    if isinstance(value, str | os.PathLike):
        return FileRows(os.fsdecode(value))
    return value if isinstance(value, FileRows) else None
