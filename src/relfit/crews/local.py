"""What happens where a worker is: the backend it has, and the work on one patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relfit.backends import Backend, Block, BlockSums, NumpyBackend, Points, TileKernel
from relfit.patches import Measure, Patch, Sums, Work, sums_here
from relfit.tiles import Runtime

Array = NDArray[np.float64]
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
        from relfit.backends.triton_backend import TritonBackend

        return TritonBackend("cuda:0")
    from relfit.backends.torch_backend import TorchBackend

    return TorchBackend("cuda:0", precision)


# How much larger the patches of devices are in each direction: a thousand times as quick, they would wait for work.
DEVICE_SCALE = 32


def has_cuda() -> bool:
    """Whether there is a CUDA device that torch can use. torch is only loaded where the machine has a driver."""
    if not Path("/proc/driver/nvidia/version").exists():
        return False
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def patch_sums(measure: Measure, sources: Sequence[Any], patch: Patch, backend: Backend, memory: int) -> Sums:
    """One patch, on one core of this machine or on its device."""
    work = Work(measure, tuple(sources), (patch,))
    return next(sums_here(work, Runtime(backend, memory=memory, threads=1))).on_host()


def sources_for(work: Work, patch: Patch, sources: Sequence[Any]) -> list[Any]:
    """The sources that a patch needs, in their places; None in the others'."""
    needed = work.measure.needs(patch)
    return [source if k in needed else None for k, source in enumerate(sources)]
