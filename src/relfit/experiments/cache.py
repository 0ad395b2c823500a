"""The folder for downloads and trained models: the platform's cache folder, or the variable RELFIT_CACHE."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.files import write_bytes_atomic

VARIABLE = "RELFIT_CACHE"


def cache_folder(name: str) -> Path:
    """The folder of this name in the cache, made if it is not there."""
    folder = cache_root() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{VARIABLE}: cannot make the folder {str(folder)!r} ({error.strerror}); name one that can be written"
        ) from error
    return folder


def cache_root(platform: str = sys.platform, environment: Mapping[str, str] = os.environ) -> Path:
    """Where the platform keeps what can be fetched or computed again.

    >>> cache_root("linux", {"XDG_CACHE_HOME": "/caches"}).as_posix()
    '/caches/relfit'
    """
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE])
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "relfit" / "Cache"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "relfit"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relfit"


def digest(*parts: bytes) -> str:
    """A short SHA-256 of the parts, in this order."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:16]


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """An .npz file of plain arrays."""
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **dict(arrays))
    write_bytes_atomic(path, stream.getvalue())


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file; nothing in it is run."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
