"""Numeric arrays from files. Nothing is ever unpickled, and no library is imported that the
file does not need.

A format is one file in this folder that defines a `Format`, and one entry in `FORMATS`: the
readers here, reading under a memory budget (`relfit.data.arrays.spilled_rows`) and the
command line follow. CONTRIBUTING.md has the recipe.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from relfit.data.files.arrays import NPY, NPZ, PT, SAFETENSORS, ZARR
from relfit.data.files.arrow import ARROW, PARQUET
from relfit.data.files.base import Format, Selection, check_plain, parse_columns, reading
from relfit.data.files.text import TEXT
from relfit.util.errors import InputError
from relfit.util.text import listed

FORMATS: tuple[Format, ...] = (NPY, NPZ, TEXT, PARQUET, ARROW, PT, SAFETENSORS, ZARR)
SUFFIXES = tuple(suffix for format in FORMATS for suffix in format.suffixes)
_SEVERAL_ARRAYS = tuple(
    suffix for format in FORMATS if format.several_arrays for suffix in format.suffixes
)


@dataclass(frozen=True)
class FileRows:
    """The rows of a file, or some of its columns, with the arguments of `read_rows`; nothing
    has been read yet.
    """

    source: str
    columns: Any = None


def as_file(value: Any) -> FileRows | None:
    """The value as a file, if it is one or the name of one."""
    if isinstance(value, str | os.PathLike):
        return FileRows(os.fsdecode(value))
    return value if isinstance(value, FileRows) else None


def read_rows(source: str | os.PathLike[str], *, columns: Any = None) -> NDArray[Any]:
    """The array in a file with one of the `SUFFIXES`, or one of its arrays, selected as
    ``file.npz:name``.

    Args:
        source: the file. A .npy file is mapped into memory, read-only.
        columns: the columns: names if the file has them, numbers counted from 0, and ranges
            such as "3-10" that include both ends; as a sequence, or as one text such as
            "a,b,3-10". None selects all columns.
    """
    format, selection = find_file(source, columns)
    with reading(selection.path):
        return format.read(selection)


def read_names(source: str | os.PathLike[str]) -> list[str] | None:
    """The names of all columns of a file; None if they have no names. No row is read."""
    format, selection = find_file(source)
    if format.names is None:
        return None
    with reading(selection.path):
        return format.names(selection.path)


def find_file(
    source: str | os.PathLike[str], columns: Any = None, others: tuple[str, ...] = ()
) -> tuple[Format, Selection]:
    """The format of an existing file and what to read from it; a file of no known format is
    refused.

    `others` are endings that the caller reads itself, for the message.
    """
    path, key = split_key(source)
    selection = Selection(path, key, parse_columns(columns))
    # Path.exists raises for long names.
    format = format_of(path) if os.path.exists(path) else None  # noqa: PTH110
    if not os.path.isdir(path):  # noqa: PTH112
        check_plain(path)
    elif format is None or format.is_folder is None:
        held = sorted(os.listdir(path))  # noqa: PTH208
        shown = listed(held, most=3, quote=repr) if held else "nothing in it"
        raise InputError(
            f"{path}: expected a file, or a folder of Parquet files or of a Zarr array, got a "
            f"folder with {shown}; "
            f"relfit features {path} makes rows of a folder of images or texts"
        )
    if format is None:
        ending = repr(path.suffix) if path.suffix else "no ending"
        raise InputError(
            f"{path}: expected a file ending in {', '.join((*SUFFIXES, *others))}, got {ending}"
        )
    return format, selection


def format_of(path: Path) -> Format | None:
    """The format of a file, by its suffix, or of a folder, also by what it holds; None if it
    is unknown.
    """
    name = path.name.lower()
    folders = (format for format in FORMATS if format.is_folder and format.is_folder(path))
    files = (format for format in FORMATS if name.endswith(format.suffixes))
    return next(itertools.chain(folders, files), None)


def split_key(source: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The path, and the name of the array after a colon; None if there is none, as in a path
    that exists.
    """
    text = os.fsdecode(source)
    colons = [match.start() for match in re.finditer(":", text)]
    colons = [k for k in reversed(colons) if text[:k].lower().endswith(_SEVERAL_ARRAYS)]
    if not colons or os.path.exists(text):  # noqa: PTH110
        return Path(text), None
    existing = (k for k in colons if os.path.exists(text[:k]))  # noqa: PTH110
    cut = next(existing, colons[0])
    return Path(text[:cut]), text[cut + 1 :]


def name_of(source: str | os.PathLike[str]) -> str:
    """The name that a file gives to its model: without folder and suffix, but with the name
    of a selected array.
    """
    path, key = split_key(source)
    name = path.name
    lower = name.lower()
    suffixes = [each for each in SUFFIXES if lower.endswith(each) and lower != each]
    stem = name[: len(name) - len(max(suffixes, key=len, default=""))]
    return stem if key is None else f"{stem}:{key}"
