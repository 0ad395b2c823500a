"""Zarr arrays: a folder or a .zip, by zarr. The store is local; no address is followed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.columns import Wanted, column_places
from relfit.data.files.paths import one_of
from relfit.util.errors import InputError
from relfit.util.libraries import needed

_OLDEST = (3,)
_MOST_CHUNKS = 1_000_000
_MOST_GROUPS = 100
# What only moves or packs bytes. Another codec may run code: numcodecs has one that unpickles.
_CODECS = frozenset(
    {
        *("blosc", "bz2", "gzip", "lz4", "lzma", "pcodec", "zfpy", "zlib", "zstd"),
        *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
        *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
        *("bytes", "sharding_indexed", "transpose"),
    }
)


def read_zarr(path: Path, key: str | None, wanted: Wanted | None) -> NDArray[Any]:
    """The array, or the wanted columns of it."""
    with _opened(path, key) as array:
        require_room(path, math.prod(array.shape) * array.dtype.itemsize)
        if wanted is None or array.ndim != 2:
            return np.asarray(array[...])
        return np.asarray(array.oindex[:, column_places(path, wanted, None, array.shape[1])])


def zarr_parts(path: Path, key: str | None, wanted: Wanted | None, most: int) -> Iterator[NDArray[Any]]:
    """The rows, or the wanted columns of them, a row of chunks at a time; it may have `most` bytes."""
    with _opened(path, key) as array:
        if array.ndim not in (1, 2):
            raise InputError(f"{path}: expected rows and columns, got an array of shape {array.shape}")
        rows, width = (array.shards or array.chunks)[0], math.prod(array.shape[1:])
        # What is read, and what a chunk or shard is unpacked from and to.
        if 3 * rows * width * array.dtype.itemsize > most:
            raise InputError(
                f"{path}: expected chunks of fewer rows than {rows} for this memory; store it again in smaller chunks"
            )
        places = None if wanted is None else column_places(path, wanted, None, width)
        for start in range(0, array.shape[0], rows):
            part = np.asarray(array[start : start + rows]).reshape(-1, width)
            yield part if places is None else part[:, places]


@contextmanager
def _opened(path: Path, key: str | None) -> Iterator[Any]:
    storage = needed(path, "zarr", _OLDEST).storage
    store = storage.LocalStore(path, read_only=True) if path.is_dir() else storage.ZipStore(path, mode="r")
    with warnings.catch_warnings(), store:
        warnings.simplefilter("ignore")
        array = _array(path, store, key)
        _refuse_codecs(path, array)
        if array.dtype.kind not in "biuf":
            raise InputError(f"{path}: expected numbers, got an array of {array.dtype}")
        _check_chunks(path, array)
        yield array


def _array(path: Path, store: Any, key: str | None) -> Any:
    zarr = needed(path, "zarr", _OLDEST)
    node = zarr.open(store, mode="r")
    if isinstance(node, zarr.Array):
        if key is not None:
            raise InputError(f"{path}: expected a group with an array called {key!r}, got a single array")
        return node
    arrays = _arrays(path, zarr, node)
    return arrays[one_of(path, list(arrays), key)]


def _arrays(path: Path, zarr: Any, group: Any) -> dict[str, Any]:
    """Every array by its path. Links can make a group its own member: they are not followed for ever."""
    found: dict[str, Any] = {}
    waiting = [("", group)]
    for _ in range(_MOST_GROUPS):
        if not waiting:
            return found
        above, group = waiting.pop(0)
        for name, member in group.members():
            if isinstance(member, zarr.Array):
                found[above + name] = member
            else:
                waiting.append((f"{above}{name}/", member))
    raise InputError(f"{path}: expected at most {_MOST_GROUPS} groups, got more; name the folder of the array itself")


def _check_chunks(path: Path, array: Any) -> None:
    """Chunks that are missing are filled in: a description alone can claim any size."""
    require_room(path, math.prod(array.chunks) * array.dtype.itemsize)
    count = math.prod(-(-length // part) for length, part in zip(array.shape, array.chunks, strict=True) if part)
    if count > _MOST_CHUNKS:
        raise InputError(f"{path}: expected at most {_MOST_CHUNKS} chunks, got {count}; save it in larger ones")


def _refuse_codecs(path: Path, array: Any) -> None:
    described = array.metadata.to_dict()
    found = {name for part in ("filters", "compressor", "codecs") for name in _codec_names(described.get(part))}
    strange = sorted(found - _CODECS)
    if strange:
        raise InputError(f"{path}: expected plain compression, got the codec {strange[0]!r}, which relfit never runs")


def _codec_names(described: Any) -> Iterator[str]:
    """Names of the codecs in Zarr's description of them: a list, a codec, or a codec with more inside."""
    if isinstance(described, dict):
        yield str(described.get("id", described.get("name"))).lower().removeprefix("numcodecs.")
        inside = described.get("configuration")
        described = [*inside.get("codecs", ()), *inside.get("index_codecs", ())] if isinstance(inside, dict) else ()
    for part in described or ():
        yield from _codec_names(part)
