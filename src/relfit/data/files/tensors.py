"""Tensors in .pt and .safetensors files. A .pt file is a pickle: only torch's reader of bare tensors opens it."""

from __future__ import annotations

import pickle
import pickletools
import re
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.files.paths import one_of
from relfit.data.frames import is_tensor, tensor_array
from relfit.util.errors import InputError
from relfit.util.libraries import needed

# Before this version weights_only=True could be made to run code (CVE-2025-32434).
_OLDEST_TORCH = (2, 6)
_OLDEST_SAFETENSORS = (0, 4)
_NUMPY_KINDS = ("BOOL", "U8", "I8", "U16", "I16", "F16", "U32", "I32", "F32", "U64", "I64", "F64")


def read_pt(path: Path, key: str | None) -> NDArray[Any]:
    """The tensor that was saved, or one of a dictionary of tensors."""
    torch = needed(path, "torch", _OLDEST_TORCH)
    check_pickle(path)
    held = _weights(torch, path)
    if is_tensor(held) and key is None:
        return _array(path, held)
    tensors = {name: value for name, value in held.items() if is_tensor(value)} if isinstance(held, dict) else {}
    tensors = {str(name): value for name, value in tensors.items() if isinstance(name, str | int)}
    if not tensors:
        wanted = "a tensor or a dictionary of tensors" if key is None else f"a dictionary with a tensor called {key!r}"
        raise InputError(f"{path}: expected {wanted}, got a {type(held).__name__} with none")
    return _array(path, tensors[one_of(path, list(tensors), key)])


def read_safetensors(path: Path, key: str | None) -> NDArray[Any]:
    """One tensor of the file; types that NumPy lacks, such as bfloat16, come by way of torch."""
    safetensors = needed(path, "safetensors", _OLDEST_SAFETENSORS)
    with safetensors.safe_open(path, framework="numpy") as file:
        name = one_of(path, list(file.keys()), key)
        if file.get_slice(name).get_dtype() in _NUMPY_KINDS:
            array: NDArray[Any] = file.get_tensor(name)
            return array
    needed(path, "torch", _OLDEST_TORCH)
    with safetensors.safe_open(path, framework="pt") as file:
        return tensor_array(file.get_tensor(name))


def _array(path: Path, tensor: Any) -> NDArray[Any]:
    # One number can be shown as any number of equal ones, and none as a table of zeros.
    require_room(path, 8 * tensor.numel())
    return tensor_array(tensor)


def _weights(torch: Any, path: Path) -> Any:
    # Positions in a sparse tensor that lie outside it would be followed, and end the process.
    with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(True):
        warnings.simplefilter("ignore")
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (pickle.UnpicklingError, RuntimeError) as error:
            if not isinstance(error, pickle.UnpicklingError) and "weights_only" not in str(error):
                raise
    raise InputError(
        f"{path}: holds Python objects or code (pickle), which relfit never loads; save the tensor alone by torch.save"
    )


# --------------------
# What the pickle in a .pt file would call, found by reading its instructions and following none of them.
#
# torch's own reader of bare tensors calls a short list of functions only, but some of them make gigabytes out of a
# few bytes. A tensor, or a dictionary of tensors, numbers and text, needs none of those.

_HARMLESS = re.compile(
    r"collections OrderedDict|torch (?:[a-z]\w*|\w*Storage|Size)|torch\.storage \w+Storage|torch\._utils _rebuild_\w+"
    r"|torch\.serialization _get_layout|torch\.nn\.parameter Parameter|torch\._tensor _rebuild_from_type_v2"
)


def check_pickle(path: Path) -> None:
    """Refuse a file in torch's old format, that is packed (torch packs nothing), or that names what no tensor needs."""
    if not zipfile.is_zipfile(path):
        # The old format can name tensors that it does not hold; torch then gives whatever was in memory.
        raise InputError(
            f"{path}: truncated, damaged or a bare pickle, such as torch before 1.6 wrote and relfit never loads; load "
            "it there and save the tensor again by torch.save"
        )
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise _refusal(path)
        for name in archive.namelist():
            if name.endswith(".pkl"):
                with archive.open(name) as stream:
                    _check(path, stream)


def _check(path: Path, stream: IO[bytes]) -> None:
    for code, argument, _ in pickletools.genops(stream):
        if code.name in ("STACK_GLOBAL", "INST") or (code.name == "GLOBAL" and not _HARMLESS.fullmatch(str(argument))):
            raise _refusal(path)


def _refusal(path: Path) -> InputError:
    return InputError(
        f"{path}: holds Python objects or code (pickle), which relfit never loads, or is packed; save the tensor alone "
        "by torch.save"
    )
