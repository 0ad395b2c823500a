"""Which backend does the work: by name, or by where the data live, what is installed and how much there is to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, cast

from relfit.compute.backend import Backend, Block, BlockSums, Points, TileKernel
from relfit.compute.numpy_backend import NumpyBackend
from relfit.compute.triton_operands import fits
from relfit.util.arrays import Array
from relfit.util.errors import BackendUnavailable, InputError
from relfit.util.libraries import has_cuda

BACKENDS = ("auto", "numpy", "torch", "triton")
PRECISIONS = ("double", "single")

# Pairs that take two cores some twenty seconds: starting torch and a device costs less.
DEVICE_PAIRS = 20_000_000_000


@dataclass(frozen=True)
class Work:
    """What there is to do: the device the data live on (None: the host), pairs of rows, the kernel, the spread.

    `largest` gives the largest squared norm of the centred rows, in `dim` columns; it is only asked where the fused
    kernels might run. `sides` says whether the kernel matrix is multiplied with more than ones, as for KSD.
    """

    device: str | None
    pairs: int
    kernel: TileKernel
    largest: Callable[[], float]
    dim: int = 1
    sides: bool = False
    executor: bool = False


def chosen_backend(name: str, precision: str, work: Work) -> tuple[Backend, tuple[str, ...]]:
    """The backend for this work, and what the reader should be told about the choice.

    "numpy" and "torch" compute where the data live; "triton" on a CUDA device. "auto" stays where the data live too,
    unless they are on the host, there is a CUDA device, and so much to do that it pays. What the fused kernels cannot
    do to float32 accuracy is left to torch in float64.
    """
    if work.executor and name in ("torch", "triton"):
        raise InputError(
            f'executor: expected None with backend={name!r}, which has threads of its own, or backend="numpy"'
        )
    if name == "auto":
        name, work = _automatic(precision, work)
    if name == "numpy":
        return NumpyBackend(cast(Literal["double", "single"], precision)), ()
    _require("torch")
    if name == "triton":
        return _fused(work)
    from relfit.compute.torch_backend import TorchBackend

    return TorchBackend(work.device or "cpu", cast(Literal["double", "single"], precision)), ()


def _automatic(precision: str, work: Work) -> tuple[str, Work]:
    device = work.device
    if device is None and not work.executor and work.pairs >= DEVICE_PAIRS and _has("torch") and _cuda():
        device = "cuda:0"
    on_device = replace(work, device=device)
    if device is None:
        return "numpy", on_device
    if precision == "single" and _has("triton") and fits_fused(work):
        return "triton", on_device
    return "torch", on_device


def _fused(work: Work) -> tuple[Backend, tuple[str, ...]]:
    _require("triton")
    device = work.device or "cuda:0"
    if interpreted():
        device = "cpu"
    elif not _cuda():
        raise BackendUnavailable('backend: "triton" needs a CUDA device and torch sees none; use "auto" or "torch"')
    if fits_fused(work):
        from relfit.compute.triton_backend import TritonBackend

        return TritonBackend(device), ()
    from relfit.compute.torch_backend import TorchBackend

    note = "the fused kernels do not fit this kernel, or rows so far apart in its units; torch computed in float64"
    return TorchBackend(device), (note,)


def interpreted() -> bool:
    """Whether Triton's kernels run in its interpreter, on the CPU: slow, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def fits_fused(work: Work) -> bool:
    """Whether the fused kernels can do this work to float32 accuracy."""
    return fits(work.kernel, ("phi",), work.largest(), work.dim, sides=work.sides)


def _cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _has(library: str) -> bool:
    return find_spec(library) is not None


def _require(library: str) -> Any:
    if not _has(library):
        raise BackendUnavailable(
            f'backend: {library} is not installed; install it with  pip install {library}, or use backend="numpy"'
        )


# --------------------
# What happens where a worker is: the backend it has, and the work on one patch.

Precision = Literal["double", "single"]


@dataclass(frozen=True)
class LocalBackend:
    """The backend of whoever computes: on a CUDA device where there is one, NumPy elsewhere.

    `fused` says that Triton's kernels, in single precision, do for this kernel and these rows.
    """

    precision: Precision = "double"
    fused: bool = False
    threads: bool = True

    @property
    def there(self) -> Backend:
        """The backend here."""
        return _here(self.precision, self.fused)

    @property
    def name(self) -> str:
        """The name shown in results."""
        return NumpyBackend(self.precision).name

    def array(self, values: Array) -> Array:
        """See `Backend`."""
        return self.there.array(values)

    def block_rows(self, longest: int, sides: int, memory: int) -> int:
        """See `Backend`."""
        return self.there.block_rows(longest, sides, memory)

    def points(self, kernel: TileKernel, rows: Array) -> Points:
        """See `Backend`."""
        return self.there.points(kernel, rows)

    def block_sums(self, block: Block) -> BlockSums:
        """See `Backend`."""
        return self.there.block_sums(block)


@cache
def _here(precision: Precision, fused: bool) -> Backend:
    if not has_cuda():
        return NumpyBackend(precision)
    if fused and find_spec("triton") is not None:
        from relfit.compute.triton_backend import TritonBackend

        return TritonBackend("cuda:0")
    from relfit.compute.torch_backend import TorchBackend

    return TorchBackend("cuda:0", precision)


# How much larger the patches of devices are in each direction: a thousand times as quick, they would wait for work.
DEVICE_SCALE = 32
