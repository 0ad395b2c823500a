"""NumPy's own files: .npy is mapped into memory, .npz is read. Objects in them would be pickles and are refused."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.files.paths import one_of
from relfit.util.errors import InputError

_ARRAY, _ARCHIVE = b"\x93NUMPY", b"PK"
_PICKLE = (
    "is no NumPy file, or holds Python objects (pickle), which relfit never loads; save a plain numeric array with "
    "numpy.save"
)
# What NumPy writes. The others unpack far more at once than is asked for.
_PACKED_BY = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_npy(path: Path, _key: str | None) -> NDArray[Any]:
    """The array, mapped and read-only: rows come from the file when they are used, and are not held twice."""
    start = _start(path)
    if start.startswith(_ARCHIVE):
        raise InputError(f"{path}: expected one array, got an archive; rename it to .npz")
    if start and not start.startswith(_ARRAY):
        raise InputError(f"{path}: {_PICKLE}")
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        raise _refusal(path, error) from None


def read_npz(path: Path, key: str | None) -> NDArray[Any]:
    """One array of the archive."""
    start = _start(path)
    if start.startswith(_ARRAY):
        raise InputError(f"{path}: expected an archive, got one array; rename it to .npy")
    if start and not start.startswith(_ARCHIVE):
        raise InputError(f"{path}: {_PICKLE}")
    # Opened here, because np.load leaves a damaged archive's file open.
    with path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        name = one_of(path, list(archive.files), key)
        _check_packing(path, archive.zip, name)
        try:
            return np.asarray(archive[name])
        except ValueError as error:
            raise _refusal(path, error) from None


def _check_packing(path: Path, archive: zipfile.ZipFile, name: str) -> None:
    """No more is ever unpacked than the archive's directory says, so that this is the size to check."""
    member = next(archive.getinfo(entry) for entry in (name, f"{name}.npy") if entry in archive.NameToInfo)
    if member.compress_type not in _PACKED_BY:
        raise InputError(f"{path}: expected what numpy.savez writes, got {name!r} packed in another way; save it again")
    require_room(path, member.file_size)


def _start(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(len(_ARRAY))


def _refusal(path: Path, error: ValueError) -> ValueError:
    objects = "pickle" in str(error) or "Python objects" in str(error)
    return InputError(f"{path}: {_PICKLE}") if objects else error
