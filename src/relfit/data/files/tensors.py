"""Tensors in .pt and .safetensors files.

A .pt file is a pickle. It is opened only by torch's reader for plain tensors, and only after
the instructions of the pickle have been read, without following them, to see what they would
call. torch's reader allows a short list of functions, but some of these create gigabytes
from a few bytes; a tensor, or a dictionary of tensors, numbers and text, needs none of them.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.files.base import Format, Selection, one_of, take_columns
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, needed

# Before this version weights_only=True could be made to run code (CVE-2025-32434).
_OLDEST_TORCH = (2, 6)
_OLDEST_SAFETENSORS = (0, 4)
_NUMPY_TYPES = (
    "BOOL",
    "U8",
    "I8",
    "U16",
    "I16",
    "F16",
    "U32",
    "I32",
    "F32",
    "U64",
    "I64",
    "F64",
)
_HARMLESS = re.compile(
    r"collections OrderedDict|torch (?:[a-z]\w*|\w*Storage|Size)|torch\.storage "
    r"\w+Storage|torch\._utils _rebuild_\w+"
    r"|torch\.serialization _get_layout|torch\.nn\.parameter Parameter|torch\._tensor "
    r"_rebuild_from_type_v2"
)


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
    if tensor.is_floating_point() and str(tensor.dtype) not in (
        "torch.float16",
        "torch.float32",
        "torch.float64",
    ):
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
    only = [("", content)] if key is None else []
    items = content.items() if isinstance(content, dict) else only
    tensors = {
        str(name): value
        for name, value in items
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
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise _refusal(path)
        for name in archive.namelist():
            if name.endswith(".pkl"):
                with archive.open(name) as stream:
                    codes = (
                        (code.name, str(argument))
                        for code, argument, _ in pickletools.genops(stream)
                    )
                    if any(
                        code in ("STACK_GLOBAL", "INST")
                        or (code == "GLOBAL" and not _HARMLESS.fullmatch(argument))
                        for code, argument in codes
                    ):
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
        if file.get_slice(name).get_dtype() in _NUMPY_TYPES:
            return take_columns(selection, file.get_tensor(name))
    needed(path, "torch", _OLDEST_TORCH)
    with safetensors.safe_open(path, framework="pt") as file:
        return take_columns(selection, tensor_array(file.get_tensor(name)))


PT = Format((".pt",), _read_pt, several_arrays=True)
SAFETENSORS = Format((".safetensors",), _read_safetensors, several_arrays=True)
