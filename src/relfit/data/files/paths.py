"""Where a file's rows are: path, ending, and the name of one array of several (``file.npz:name``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from relfit.util.errors import InputError

SUFFIXES = (
    *(".npy", ".npz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".feather", ".arrow"),
    *(".pt", ".safetensors", ".zarr", ".zip"),
)
# Files that can hold several arrays.
_KEYED = (".npz", ".pt", ".safetensors", ".zarr", ".zip")
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")


def split_key(source: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """The path and the name of the array in it, None where there is none. A path that exists has none."""
    text = os.fsdecode(source)
    cuts = _cuts(text)
    if not cuts or os.path.exists(text):  # noqa: PTH110  (Path.exists raises for names that are too long)
        return Path(text), None
    cut = next((cut for cut in cuts if os.path.exists(text[:cut])), cuts[0])  # noqa: PTH110
    return Path(text[:cut]), text[cut + 1 :]


def suffix_of(path: Path) -> str:
    """The ending that says what a file holds, in lower case; ".zarr" for any folder that holds Zarr data."""
    if path.is_dir() and any((path / name).is_file() for name in _ZARR_FILES):
        return ".zarr"
    name = path.name.lower()
    return name[-7:] if name.endswith((".csv.gz", ".tsv.gz")) else path.suffix.lower()


def check_plain(path: Path) -> None:
    """Refuse what is not there, and what is no plain file: a device or a pipe might never end."""
    there = os.path.exists(path)  # noqa: PTH110
    if path.is_fifo() if there else str(path) == "-":
        raise InputError(f"{path}: pipes cannot be read; save to a file first")
    if not there:
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: expected a file, got a folder or device")


def check_file(path: Path) -> str:
    """The ending of a file that exists and can be read by its kind."""
    suffix = suffix_of(path) if os.path.exists(path) else ""  # noqa: PTH110  (as above)
    if not (suffix == ".zarr" and path.is_dir()):
        check_plain(path)
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a file ending in {', '.join(SUFFIXES)}, got {path.suffix or 'no ending'!r}")
    return suffix


@contextlib.contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """What a parser raises at a damaged file, which may be anything, as one line; a file that changes is refused."""
    try:
        before = _stamp(path)
        yield
        if _stamp(path) != before:
            raise InputError(f"{path}: was changed while it was being read; start again")
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  (parsers raise all sorts of things)
        text = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(f"{path}: cannot be read; truncated, damaged or not what its ending says ({text})") from None


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def name_of(source: str | os.PathLike[str]) -> str:
    """The model name a file gives: its file name without folder and ending (and the array's name, in archives)."""
    path, key = split_key(source)
    stem = path.name
    for suffix in sorted([".zarr.zip", *SUFFIXES], key=len, reverse=True):
        if stem.lower().endswith(suffix) and len(stem) > len(suffix):
            stem = stem[: -len(suffix)]
            break
    return stem if key is None else f"{stem}:{key}"


def one_of(path: Path, names: Sequence[str], key: str | None) -> str:
    """The array asked for by its name, or the only one."""
    held = ", ".join(names[:8]) or "none"
    if key is None and len(names) != 1:
        raise InputError(f"{path}: expected one array, got {len(names)} ({held}); name one as {path.name}:NAME")
    if key is not None and key not in names:
        raise InputError(f"{path}: expected an array called {key!r}, got {held}")
    return names[0] if key is None else key


def _cuts(text: str) -> list[int]:
    """Where a colon follows an ending that may hold several arrays, the last first."""
    colons = [k for k, letter in enumerate(text) if letter == ":" and text[:k].lower().endswith(_KEYED)]
    return colons[::-1]
