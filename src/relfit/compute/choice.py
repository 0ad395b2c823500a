"""The choice of a backend: by name, or by where the data live, what is installed and how much there is to compute."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import cast

from relfit.compute.backend import Backend, NumpyBackend, Precision
from relfit.kernels.base import Kernel
from relfit.util.errors import BackendUnavailable, InputError
from relfit.util.libraries import has_cuda

BACKENDS = ("auto", "numpy", "torch", "triton")
PRECISIONS = ("double", "single")

# Pairs that take two cores about twenty seconds: longer than it takes to start torch and a device.
DEVICE_PAIRS = 20_000_000_000


@dataclass(frozen=True)
class Workload:
    """What there is to compute: the device that the data live on (None: the host), the pairs of rows, the kernel.

    `largest` gives the largest squared norm of the centred rows, which have `dim` columns; it is only called if the
    fused kernels might be used. `sides` is True if the kernel matrix is multiplied with more than ones, as for KSD, and
    `executor` if the user gave one.
    """

    device: str | None
    pairs: int
    kernel: Kernel
    largest: Callable[[], float]
    dim: int = 1
    sides: bool = False
    executor: bool = False


def chosen_backend(name: str, precision: str, workload: Workload) -> tuple[Backend, tuple[str, ...]]:
    """The backend for this workload, and notes about the choice for the reader.

    "numpy" and "torch" compute where the data live; "triton" on a CUDA device. "auto" also stays where the data live,
    unless they are on the host, there is a CUDA device, and there is enough to compute to make up for the transfer.
    What the fused kernels cannot compute to float32 accuracy is left to torch in float64.
    """
    if workload.executor and name in ("torch", "triton"):
        raise InputError(
            f"executor: cannot be combined with backend={name!r}, which has its own threads; leave it out or use "
            'backend="numpy"'
        )
    device = workload.device
    if name == "auto":
        if device is None and not workload.executor and workload.pairs >= DEVICE_PAIRS and has_cuda():
            device = "cuda:0"
        if device is None:
            name = "numpy"
        else:
            name = "triton" if precision == "single" and _has("triton") and fits_fused(workload) else "torch"
    if name == "numpy":
        return NumpyBackend(cast(Precision, precision)), ()
    _require("torch")
    from relfit.compute.torch_backend import TorchBackend

    if name == "torch":
        return TorchBackend(device or "cpu", cast(Precision, precision)), ()
    device = _fused_device(device)
    if fits_fused(workload):
        from relfit.compute.triton_backend import TritonBackend

        return TritonBackend(device), ()
    note = "the fused kernels do not fit this kernel, or rows so far apart in its units; torch computed in float64"
    return TorchBackend(device), (note,)


def _fused_device(device: str | None) -> str:
    """The device for the fused kernels."""
    _require("triton")
    if interpreted():
        return "cpu"
    if not has_cuda():
        raise BackendUnavailable('backend: "triton" needs a CUDA device and torch sees none; use "auto" or "torch"')
    return device or "cuda:0"


def interpreted() -> bool:
    """True if Triton's kernels run in its interpreter, on the CPU: slow, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def fits_fused(workload: Workload) -> bool:
    """True if the fused kernels can compute this workload to float32 accuracy."""
    from relfit.compute.triton_backend import fits

    return fits(workload.kernel, ("phi",), workload.largest(), workload.dim, sides=workload.sides)


def _has(library: str) -> bool:
    return find_spec(library) is not None


def _require(library: str) -> None:
    if not _has(library):
        raise BackendUnavailable(
            f'backend: {library} is not installed; install it with  pip install {library}, or use backend="numpy"'
        )


@dataclass(frozen=True)
class LocalBackend(NumpyBackend):
    """The backend of the worker that computes: its CUDA device if it has one, NumPy otherwise.

    `fused` says that Triton's kernels, in single precision, fit this kernel and these rows.
    """

    fused: bool = False

    def here(self) -> Backend:
        """The backend of this process."""
        return _local(self.precision, self.fused)


@cache
def _local(precision: Precision, fused: bool) -> Backend:
    if not has_cuda():
        return NumpyBackend(precision)
    if fused and _has("triton"):
        from relfit.compute.triton_backend import TritonBackend

        return TritonBackend("cuda:0")
    from relfit.compute.torch_backend import TorchBackend

    return TorchBackend("cuda:0", precision)
