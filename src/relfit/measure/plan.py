"""The settings one estimate is made with."""

from __future__ import annotations

from dataclasses import dataclass

from relfit.discrepancies import Dependence
from relfit.kernels import Kernel
from relfit.tiles import Runtime


@dataclass(frozen=True)
class Plan:
    """The settings one estimate is made with."""

    kernel: Kernel
    estimator: str
    dependence: Dependence
    seed: int
    runtime: Runtime
    shuffle: bool = True
