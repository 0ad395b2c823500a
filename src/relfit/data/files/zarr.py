"""Zarr arrays in a folder or a .zip file, read by zarr. The store is local: no address is
followed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.files.base import Format, Selection, column_positions, one_of, take_columns
from relfit.util.errors import InputError
from relfit.util.libraries import needed

_OLDEST = (3,)
_MOST_CHUNKS = 1_000_000
_MOST_GROUPS = 100
_FOLDER_FILES = ("zarr.json", ".zarray", ".zgroup")
# Codecs that only move or compress bytes. Others may run code: numcodecs has one that
# unpickles.
_CODECS = {
    *("blosc", "bz2", "gzip", "lz4", "lzma", "pcodec", "zfpy", "zlib", "zstd"),
    *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *("bytes", "sharding_indexed", "transpose"),
}


def _read(selection: Selection) -> NDArray[Any]:
    with _open_array(selection) as array:
        require_room(selection.path, math.prod(array.shape) * array.dtype.itemsize)
        if selection.columns is None or array.ndim != 2:
            return take_columns(selection, np.asarray(array[...]))
        return np.asarray(array.oindex[:, column_positions(selection, None, array.shape[1])])


def _parts(selection: Selection, most_bytes: int) -> Iterator[NDArray[Any]]:
    """The selected rows, one row of chunks (or shards) at a time."""
    path = selection.path
    with _open_array(selection) as array:
        if array.ndim not in (1, 2):
            raise InputError(
                f"{path}: expected rows and columns, got an array of shape {array.shape}"
            )
        rows = (array.shards or array.chunks)[0]
        width = math.prod(array.shape[1:])
        # Three copies: the result, and a chunk or shard before and after it is unpacked.
        if 3 * rows * width * array.dtype.itemsize > most_bytes:
            advice = "store it again in smaller chunks"
            raise InputError(
                f"{path}: expected chunks of fewer rows than {rows} for this "
                f"memory budget; {advice}"
            )
        positions = column_positions(selection, None, width)
        for start in range(0, array.shape[0], rows):
            block = np.asarray(array[start : start + rows]).reshape(-1, width)
            yield block if selection.columns is None else block[:, positions]


@contextmanager
def _open_array(selection: Selection) -> Iterator[Any]:
    path = selection.path
    zarr = needed(path, "zarr", _OLDEST)
    storage = zarr.storage
    with (
        storage.LocalStore(path, read_only=True)
        if path.is_dir()
        else storage.ZipStore(path, mode="r") as store
    ):
        array = _selected_array(zarr, selection, store)
        metadata = array.metadata.to_dict()
        codecs = {
            name
            for part in ("filters", "compressor", "codecs")
            for name in _codec_names(metadata.get(part))
        }
        unknown = min(codecs - _CODECS, default=None)
        if unknown is not None:
            raise InputError(
                f"{path}: expected plain compression, got the codec {unknown!r}, "
                f"which relfit never runs"
            )
        if array.dtype.kind not in "biuf":
            raise InputError(f"{path}: expected numbers, got an array of {array.dtype}")
        # Missing chunks are filled in, so that metadata alone can claim any size and number of
        # them.
        require_room(path, math.prod(array.chunks) * array.dtype.itemsize)
        count = math.prod(
            -(-length // chunk)
            for length, chunk in zip(array.shape, array.chunks, strict=True)
            if chunk
        )
        if count > _MOST_CHUNKS:
            raise InputError(
                f"{path}: expected at most {_MOST_CHUNKS} chunks, got {count}; "
                f"save it in larger chunks"
            )
        yield array


def _selected_array(zarr: Any, selection: Selection, store: Any) -> Any:
    path = selection.path
    node = zarr.open(store, mode="r")
    if isinstance(node, zarr.Array):
        if selection.key is not None:
            raise InputError(
                f"{path}: expected a group with an array called "
                f"{selection.key!r}, got a single array"
            )
        return node
    arrays: dict[str, Any] = {}
    waiting = [("", node)]
    # The number of groups is limited, because links can make a group its own member.
    for _ in range(_MOST_GROUPS):
        if not waiting:
            return arrays[one_of(path, list(arrays), selection.key)]
        parent, group = waiting.pop(0)
        for name, member in group.members():
            if isinstance(member, zarr.Array):
                arrays[parent + name] = member
            else:
                waiting.append((f"{parent}{name}/", member))
    raise InputError(
        f"{path}: expected at most {_MOST_GROUPS} groups, got more; give the "
        f"folder of the array itself"
    )


def _codec_names(metadata: Any) -> Iterator[str]:
    """The names of the codecs in Zarr's metadata: a list of codecs, one codec, or one codec
    that contains others.
    """
    if isinstance(metadata, dict):
        yield str(metadata.get("id", metadata.get("name"))).lower().removeprefix("numcodecs.")
        inner = metadata.get("configuration")
        metadata = (
            [*inner.get("codecs", ()), *inner.get("index_codecs", ())]
            if isinstance(inner, dict)
            else ()
        )
    for part in metadata or ():
        yield from _codec_names(part)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in _FOLDER_FILES)


ZARR = Format(
    (".zarr", ".zarr.zip", ".zip"),
    _read,
    parts=_parts,
    is_folder=_is_folder,
    several_arrays=True,
)
