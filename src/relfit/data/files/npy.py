"""NumPy's own files: .npy is mapped into memory, .npz is read. Python objects in them are
pickles, and are refused.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.files.base import Format, Selection, one_of, take_columns
from relfit.util.errors import InputError

_ARRAY = b"\x93NUMPY"
_ARCHIVE = b"PK"
_PICKLE = (
    "is not a NumPy file, or holds Python objects (pickle), which relfit never loads; save a "
    "plain numeric array with "
    "numpy.save"
)
# The compression that NumPy writes. Other methods unpack far more at once than is asked for.
_COMPRESSION = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def _map_npy(path: Path) -> NDArray[Any]:
    """The array, mapped and read-only: its rows are read from the file when they are used,
    and are not held twice.
    """
    _check_start(
        path, _ARRAY, _ARCHIVE, "expected one array, got an archive; rename it to .npz"
    )
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        raise _refusal(path, error) from None


def _read_npz(selection: Selection) -> NDArray[Any]:
    path = selection.path
    _check_start(
        path, _ARCHIVE, _ARRAY, "expected an archive, got one array; rename it to .npy"
    )
    # Opened here, because np.load leaves the file of a damaged archive open.
    with path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        name = one_of(path, list(archive.files), selection.key)
        known = archive.zip.NameToInfo
        member = next(known[entry] for entry in (name, f"{name}.npy") if entry in known)
        if member.compress_type not in _COMPRESSION:
            got = f"{name!r} compressed by another method"
            raise InputError(
                f"{path}: expected an archive written by numpy.savez, got {got}; save it again"
            )
        # The size in the archive's directory is the most that is ever unpacked.
        require_room(path, member.file_size)
        try:
            array = np.asarray(archive[name])
        except ValueError as error:
            raise _refusal(path, error) from None
    return take_columns(selection, array)


def _largest_array(path: Path) -> int:
    if not zipfile.is_zipfile(path):
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return max((member.file_size for member in archive.infolist()), default=0)


def _check_start(path: Path, mark: bytes, other_mark: bytes, other: str) -> None:
    """Refuse a file that begins with the mark of the other kind, or with neither; an empty
    one is refused later.
    """
    with path.open("rb") as stream:
        start = stream.read(len(_ARRAY))
    if start and not start.startswith(mark):
        raise InputError(f"{path}: {other if start.startswith(other_mark) else _PICKLE}")


def _refusal(path: Path, error: ValueError) -> ValueError:
    objects = "pickle" in str(error) or "Python objects" in str(error)
    return InputError(f"{path}: {_PICKLE}") if objects else error


NPY = Format(
    (".npy",),
    lambda selection: take_columns(selection, _map_npy(selection.path)),
    unpacked_size=lambda _: 0,
)
NPZ = Format((".npz",), _read_npz, unpacked_size=_largest_array, several_arrays=True)
