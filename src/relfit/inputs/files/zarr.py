"""Zarr arrays: a folder or a .zip, by zarr. The store is local; no address is followed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.columns import Wanted, column_places
from relfit.inputs.files.paths import one_of
from relfit.inputs.libraries import needed

_OLDEST = (3,)
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
    storage = needed(path, "zarr", _OLDEST).storage
    store = storage.LocalStore(path, read_only=True) if path.is_dir() else storage.ZipStore(path, mode="r")
    with warnings.catch_warnings(), store:
        warnings.simplefilter("ignore")
        array = _array(path, store, key)
        _refuse_codecs(path, array)
        if array.dtype.kind not in "biuf":
            raise InputError(f"{path}: expected numbers, got an array of {array.dtype}")
        if wanted is None or array.ndim != 2:
            return np.asarray(array[...])
        return np.asarray(array.oindex[:, column_places(path, wanted, None, array.shape[1])])


def _array(path: Path, store: Any, key: str | None) -> Any:
    zarr = needed(path, "zarr", _OLDEST)
    node = zarr.open(store, mode="r")
    if isinstance(node, zarr.Array):
        if key is not None:
            raise InputError(f"{path}: expected a group with an array called {key!r}, got a single array")
        return node
    arrays = {name: member for name, member in node.members(max_depth=None) if isinstance(member, zarr.Array)}
    return arrays[one_of(path, list(arrays), key)]


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
