"""Arrays in files: NumPy's .npy and .npz, torch's .pt, .safetensors, and Zarr.

Python objects in NumPy's files are pickles, and are refused. A .pt file is a pickle. It is
opened only by torch's reader for plain tensors, and only after the instructions of the pickle
have been read, without following them, to see what they would call. torch's reader allows a
short list of functions, but some of these create gigabytes from a few bytes; a tensor, or a
dictionary of tensors, numbers and text, needs none of them. A Zarr store is local: no address
is followed.
"""

from __future__ import annotations

import math
import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.files.base import Format, Selection, column_positions, one_of, take_columns
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, needed

_ARRAY = b"\x93NUMPY"
_ARCHIVE = b"PK"
_PICKLE = (
    "is not a NumPy file, or holds Python objects (pickle), which relfit never loads; save a "
    "plain numeric array with numpy.save"
)
# The compression that NumPy writes. Other methods unpack far more at once than is asked for.
_COMPRESSION = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Before this version weights_only=True could be made to run code (CVE-2025-32434).
_OLDEST_TORCH = (2, 6)
_OLDEST_SAFETENSORS = (0, 4)
_OLDEST_ZARR = (3,)
_TORCH_TYPES = ("BF", "F8", "F6", "F4")  # the beginnings of the types that NumPy lacks
_HARMLESS = re.compile(
    r"collections OrderedDict|torch (?:[a-z]\w*|\w*Storage|Size)|torch\.storage "
    r"\w+Storage|torch\._utils _rebuild_\w+"
    r"|torch\.serialization _get_layout|torch\.nn\.parameter Parameter|torch\._tensor "
    r"_rebuild_from_type_v2"
)
_MOST_CHUNKS = 1_000_000
_MOST_GROUPS = 100
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
# Codecs that only move or compress bytes. Others may run code: numcodecs has one that
# unpickles.
_CODECS = {
    *("blosc", "bz2", "gzip", "lz4", "lzma", "pcodec", "zfpy", "zlib", "zstd"),
    *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *("bytes", "sharding_indexed", "transpose"),
}


# ── NumPy ─────────────────────────────────────────────────────────────────────────────────────


def _map_npy(selection: Selection) -> NDArray[Any]:
    """The array, mapped and read-only: its rows are read from the file when they are used,
    and are not held twice.
    """
    path = selection.path
    other = "expected one array, got an archive; rename it to .npz"
    _check_start(path, _ARRAY, _ARCHIVE, other)
    with _without_objects(path):
        return take_columns(selection, np.lib.format.open_memmap(path, mode="r"))


def _read_npz(selection: Selection) -> NDArray[Any]:
    path = selection.path
    other = "expected an archive, got one array; rename it to .npy"
    _check_start(path, _ARCHIVE, _ARRAY, other)
    # Opened here, because np.load leaves the file of a damaged archive open.
    with path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        name = one_of(path, list(archive.files), selection.key)
        known = archive.zip.NameToInfo
        member = known[name if name in known else f"{name}.npy"]
        if member.compress_type not in _COMPRESSION:
            got = f"{name!r} compressed by another method"
            raise InputError(
                f"{path}: expected an archive written by numpy.savez, got {got}; save it again"
            )
        # The size in the archive's directory is the most that is ever unpacked.
        require_room(path, member.file_size)
        with _without_objects(path):
            return take_columns(selection, np.asarray(archive[name]))


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


@contextmanager
def _without_objects(path: Path) -> Iterator[None]:
    """Refuse Python objects, which NumPy does not load, in one line."""
    try:
        yield
    except ValueError as error:
        if re.search("pickle|Python objects", str(error)):
            raise InputError(f"{path}: {_PICKLE}") from None
        raise


NPY = Format((".npy",), _map_npy, unpacked_size=lambda _: 0)
NPZ = Format((".npz",), _read_npz, unpacked_size=_largest_array, several_arrays=True)


# ── tensors ───────────────────────────────────────────────────────────────────────────────────


def is_tensor(value: Any) -> bool:
    """True for a torch tensor."""
    return is_instance(value, "torch", "Tensor")


def tensor_array(tensor: Any) -> NDArray[Any]:
    """A torch tensor as an array: without its gradient, on the CPU, dense; bfloat16 and
    float8 become float32.
    """
    tensor = tensor.detach()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    known = ("torch.float16", "torch.float32", "torch.float64")
    if tensor.is_floating_point() and str(tensor.dtype) not in known:
        tensor = tensor.float()
    return np.asarray(tensor.cpu().numpy(force=True))


def _read_pt(selection: Selection) -> NDArray[Any]:
    """The tensor that was saved, or one tensor of a dictionary."""
    path = selection.path
    key = selection.key
    torch = needed(path, "torch", _OLDEST_TORCH)
    _check_archive(path)
    # Without the check, torch would follow positions outside a sparse tensor, and the process
    # would crash.
    with torch.sparse.check_sparse_tensor_invariants(True):
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (pickle.UnpicklingError, RuntimeError) as error:
            if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error):
                raise _refusal(path) from None
            raise
    only = {"": content} if key is None else {}
    tensors = {
        str(name): value
        for name, value in (content if isinstance(content, dict) else only).items()
        if isinstance(name, str | int) and is_tensor(value)
    }
    if not tensors:
        what = (
            "a tensor or a dictionary of tensors"
            if key is None
            else f"a dictionary with a tensor called {key!r}"
        )
        raise InputError(
            f"{path}: expected {what}, got a {type(content).__name__} without tensors"
        )
    tensor = tensors[one_of(path, list(tensors), key)]
    # One stored number can stand for any number of equal ones, and a sparse tensor for a large
    # table of zeros.
    require_room(path, 8 * tensor.numel())
    return take_columns(selection, tensor_array(tensor))


def _check_archive(path: Path) -> None:
    """Refuse torch's old format, compressed archives (torch compresses nothing), and names
    that no tensor needs.
    """
    if not zipfile.is_zipfile(path):
        # The old format can name tensors that it does not hold; torch then returns whatever was
        # in memory.
        raise InputError(
            f"{path}: truncated, damaged or a bare pickle, such as torch before 1.6 wrote and "
            f"relfit never loads; load "
            "it there and save the tensor again with torch.save"
        )
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise _refusal(path)
            if not member.filename.endswith(".pkl"):
                continue
            with archive.open(member) as stream:
                for code, argument, _ in pickletools.genops(stream):
                    harmless = code.name != "GLOBAL" or _HARMLESS.fullmatch(str(argument))
                    if not harmless or code.name in ("STACK_GLOBAL", "INST"):
                        raise _refusal(path)


def _refusal(path: Path) -> InputError:
    return InputError(
        f"{path}: holds Python objects or code (pickle), which relfit never loads, or is "
        f"compressed; save the tensor "
        "alone with torch.save"
    )


def _read_safetensors(selection: Selection) -> NDArray[Any]:
    """One tensor of the file; types that NumPy lacks, such as bfloat16, are read through
    torch.
    """
    path = selection.path
    safetensors = needed(path, "safetensors", _OLDEST_SAFETENSORS)
    with safetensors.safe_open(path, framework="numpy") as file:
        name = one_of(path, list(file.keys()), selection.key)
        if not file.get_slice(name).get_dtype().startswith(_TORCH_TYPES):
            return take_columns(selection, file.get_tensor(name))
    needed(path, "torch", _OLDEST_TORCH)
    with safetensors.safe_open(path, framework="pt") as file:
        return take_columns(selection, tensor_array(file.get_tensor(name)))


PT = Format((".pt",), _read_pt, several_arrays=True)
SAFETENSORS = Format((".safetensors",), _read_safetensors, several_arrays=True)


# ── Zarr ──────────────────────────────────────────────────────────────────────────────────────


def _read_zarr(selection: Selection) -> NDArray[Any]:
    with _open_zarr(selection) as array:
        require_room(selection.path, math.prod(array.shape) * array.dtype.itemsize)
        return take_columns(selection, np.asarray(array[...]))


def _zarr_parts(selection: Selection, most_bytes: int) -> Iterator[NDArray[Any]]:
    """The selected rows, one row of chunks (or shards) at a time."""
    path = selection.path
    with _open_zarr(selection) as array:
        if array.ndim not in (1, 2):
            raise InputError(
                f"{path}: expected rows and columns, got an array of shape {array.shape}"
            )
        rows = (array.shards or array.chunks)[0]
        width = math.prod(array.shape[1:])
        # Three copies: the result, and a chunk or shard before and after it is unpacked.
        if 3 * rows * width * array.dtype.itemsize > most_bytes:
            raise InputError(
                f"{path}: expected chunks of fewer rows than {rows} for this "
                f"memory budget; store it again in smaller chunks"
            )
        positions = column_positions(selection, None, width)
        for start in range(0, array.shape[0], rows):
            block = np.asarray(array[start : start + rows]).reshape(-1, width)
            yield block if selection.columns is None else block[:, positions]


@contextmanager
def _open_zarr(selection: Selection) -> Iterator[Any]:
    path = selection.path
    zarr = needed(path, "zarr", _OLDEST_ZARR)
    storage = zarr.storage
    with (
        storage.LocalStore(path, read_only=True)
        if path.is_dir()
        else storage.ZipStore(path, mode="r") as store
    ):
        array = _selected_array(zarr, selection, store)
        metadata = array.metadata.to_dict()
        parts = [metadata.get(part) for part in ("filters", "compressor", "codecs")]
        unknown = min(set(_codec_names(parts)) - _CODECS, default=None)
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
    """The names of the codecs in Zarr's metadata: lists of codecs, which may contain others."""
    if isinstance(metadata, dict):
        yield str(metadata.get("id", metadata.get("name"))).lower().removeprefix("numcodecs.")
        inner = metadata.get("configuration")
        known = inner if isinstance(inner, dict) else {}
        metadata = [known.get("codecs"), known.get("index_codecs")]
    for part in metadata or ():
        yield from _codec_names(part)


def _is_zarr(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in _ZARR_FILES)


ZARR = Format(
    (".zarr", ".zarr.zip", ".zip"),
    _read_zarr,
    parts=_zarr_parts,
    is_folder=_is_zarr,
    several_arrays=True,
)
