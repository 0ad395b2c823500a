"""Numeric arrays from files. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import gzip
import itertools
import lzma
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError

SUFFIXES = (".npy", ".npz", ".csv", ".csv.gz")
# What NumPy, zipfile and csv raise at damaged files (RuntimeError: an encrypted archive).
_UNREADABLE = (
    *(ValueError, OSError, EOFError, KeyError, SyntaxError, MemoryError, OverflowError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, csv.Error),
)


def read_rows(source: str | os.PathLike[str]) -> NDArray[Any]:
    """The array in a .npy, .npz or .csv(.gz) file. One array of several in an archive: ``file.npz:name``."""
    path, key = _split_key(source)
    if not os.path.exists(path):  # noqa: PTH110  (Path.exists raises for names that are too long)
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: expected a file, got a folder or device")
    reader = _readers().get(_suffix(path))
    if reader is None:
        raise InputError(f"{path}: expected a file ending in {', '.join(SUFFIXES)}, got {path.suffix or 'no ending'!r}")
    try:
        return reader(path, key)
    except InputError:
        raise
    except _UNREADABLE as error:
        raise InputError(f"{path}: {_reason(error)}") from None


def name_of(source: str | os.PathLike[str]) -> str:
    """The model name a file gives: its file name without folder and ending (and the array's name, in archives)."""
    path, key = _split_key(source)
    stem = path.name
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if stem.lower().endswith(suffix) and len(stem) > len(suffix):
            stem = stem[: -len(suffix)]
            break
    return stem if key is None else f"{stem}:{key}"


def _readers() -> dict[str, Callable[[Path, str | None], NDArray[Any]]]:
    return {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".csv.gz": _read_csv}


def _split_key(source: str | os.PathLike[str]) -> tuple[Path, str | None]:
    text = os.fsdecode(source)
    cut = text.lower().rfind(".npz:")
    if cut < 0 or os.path.exists(text):  # noqa: PTH110
        return Path(text), None
    return Path(text[: cut + 4]), text[cut + 5 :]


def _suffix(path: Path) -> str:
    name = path.name.lower()
    return ".csv.gz" if name.endswith(".csv.gz") else path.suffix.lower()


def _read_npy(path: Path, _key: str | None) -> NDArray[Any]:
    with path.open("rb") as stream:
        array = np.load(stream, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: expected one array, got an archive; rename it to .npz")
    return array


def _read_npz(path: Path, key: str | None) -> NDArray[Any]:
    # Opened here, because np.load leaves a damaged archive's file open.
    with path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path}: expected an archive, got one array; rename it to .npy")
        names = list(archive.files)
        if key is None and len(names) != 1:
            held = ", ".join(names[:8]) or "none"
            raise InputError(f"{path}: expected one array, got {len(names)} ({held}); name one as {path.name}:NAME")
        if key is not None and key not in names:
            raise InputError(f"{path}: expected an array called {key!r}, got {', '.join(names[:8])}")
        return np.asarray(archive[names[0] if key is None else key])


def _read_csv(path: Path, _key: str | None) -> NDArray[Any]:
    with _open_text(path) as text:
        first = next(csv.reader(text), [])
        header = _is_header(path, first)
        start = next((line for line in text if line.strip()), None) if header else ",".join(first)
        if start is None:
            raise InputError(f"{path}: expected rows of numbers, got a header only")
        array = np.loadtxt(itertools.chain([start], text), delimiter=",", ndmin=2, comments=None, quotechar='"')
    if header and array.shape[1] != len(first):
        raise InputError(f"{path}: expected rows of {len(first)} fields like the header, got {array.shape[1]}")
    return array


def _is_header(path: Path, first: list[str]) -> bool:
    """Whether the first line holds names. A line of both could be a damaged row, so it is never guessed."""
    if not first:
        raise InputError(f"{path}: expected rows of numbers, got an empty file or first line")
    names = [field for field in first if not _is_number(field)]
    if len(names) not in (0, len(first)) or "" in names:
        raise InputError(
            f"{path}: expected a first line of names only or of numbers only, got {names[0]!r} among the others; "
            "a row index or a missing value has to go"
        )
    return bool(names)


def _open_text(path: Path) -> TextIO:
    if _suffix(path) == ".csv.gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "pickle" in text:
        # NumPy says so of every file without a header of its own, pickled or not.
        return (
            "is no NumPy file, or holds Python objects (pickle), which relfit never loads; save a plain numeric array "
            "with numpy.save"
        )
    return f"cannot be read; truncated, damaged or not what its ending says ({text[:160] or type(error).__name__})"
