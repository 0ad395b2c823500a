"""Numeric arrays from files. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import gzip
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError

SUFFIXES = (".npy", ".npz", ".csv", ".csv.gz")
_UNREADABLE = (ValueError, OSError, EOFError, KeyError, SyntaxError, zipfile.BadZipFile, zlib.error)


def read_rows(source: str | os.PathLike[str]) -> NDArray[Any]:
    """The array in a .npy, .npz or .csv(.gz) file. One array of several in an archive: ``file.npz:name``."""
    path, key = _split_key(source)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: expected a file, got a folder or device")
    reader = _readers().get(_suffix(path))
    if reader is None:
        raise InputError(f"{path}: expected a file ending in {', '.join(SUFFIXES)}, got {path.suffix or 'no ending'!r}")
    if key is not None and _suffix(path) != ".npz":
        raise InputError(f"{path}:{key}: only .npz archives hold named arrays")
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
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    return stem if key is None else f"{stem}:{key}"


def _readers() -> dict[str, Callable[[Path, str | None], NDArray[Any]]]:
    return {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".csv.gz": _read_csv}


def _split_key(source: str | os.PathLike[str]) -> tuple[Path, str | None]:
    text = os.fspath(source)
    head, separator, key = text.rpartition(":")
    if separator and head.lower().endswith(".npz") and not Path(text).exists():
        return Path(head), key
    return Path(text), None


def _suffix(path: Path) -> str:
    name = path.name.lower()
    return ".csv.gz" if name.endswith(".csv.gz") else path.suffix.lower()


def _read_npy(path: Path, _key: str | None) -> NDArray[Any]:
    array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path}: expected one array, got an archive; rename it to .npz")
    return array


def _read_npz(path: Path, key: str | None) -> NDArray[Any]:
    with np.load(path, allow_pickle=False) as archive:
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
        first = next(csv.reader([text.readline()]), [])
        if not first:
            raise InputError(f"{path}: expected rows of numbers, got an empty file or first line")
        header = not all(_is_number(field) for field in first)
        if not header:
            text.seek(0)
        array = np.loadtxt(text, delimiter=",", ndmin=2, comments=None, quotechar='"')
    if array.size == 0:
        raise InputError(f"{path}: expected rows of numbers, got a header only")
    return array


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
    if "pickle" in text or "Object arrays" in text:
        return "holds Python objects (pickle), which relfit never loads; save a plain numeric array with numpy.save"
    return f"cannot be read; truncated, damaged or not what its ending says ({text[:160] or type(error).__name__})"
