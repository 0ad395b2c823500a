"""Tensors in .pt and .safetensors files. A .pt file is a pickle: only torch's reader of bare tensors opens it."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.files.paths import one_of
from relfit.inputs.files.pickles import check_pickle
from relfit.inputs.libraries import needed
from relfit.inputs.room import require_room
from relfit.inputs.tensors import is_tensor, tensor_array

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
