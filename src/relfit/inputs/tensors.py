"""Tensors and lazy arrays of other libraries as NumPy arrays, recognised without importing those libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.libraries import loaded


def computed(argument: str, value: Any) -> Any:
    """What a dask collection stands for, computed; anything else as it is."""
    dask = loaded("dask")
    if dask is None or not dask.is_dask_collection(value):
        return value
    try:
        return value.compute()
    except Exception as error:
        # The graph runs the user's code, which may raise anything.
        raise InputError(
            f"{argument}: the dask {type(value).__name__} cannot be computed ({type(error).__name__}: {error})"
        ) from error


def is_tensor(value: Any) -> bool:
    """Whether the value is a torch tensor."""
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_array(tensor: Any) -> NDArray[Any]:
    """A torch tensor as an array: without its gradient, on the CPU, dense; bfloat16 and float8 as float32."""
    tensor = tensor.detach()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    if tensor.is_floating_point() and str(tensor.dtype) not in ("torch.float16", "torch.float32", "torch.float64"):
        tensor = tensor.float()
    return np.asarray(tensor.cpu().numpy(force=True))


def exchanged(value: Any) -> NDArray[Any]:
    """An object with ``__dlpack__``, copied to the CPU where it lives elsewhere."""
    try:
        return np.from_dlpack(value, device="cpu")
    except TypeError:
        # NumPy before 2.1, or a library that implements the first version of the protocol.
        return np.from_dlpack(value)
