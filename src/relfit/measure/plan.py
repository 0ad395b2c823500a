"""The settings one estimate is made with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relfit.discrepancies import Dependence
from relfit.discrepancies.groups import Groups
from relfit.discrepancies.locations import Locations
from relfit.kernels import Kernel
from relfit.tiles import Runtime


@dataclass(frozen=True)
class Plan:
    """The settings one estimate is made with.

    `pairs` and `blocks` belong to the incomplete and the block design (None: chosen from the sizes); `variance` is
    "projection" or "corrected"; `why` says how the estimator was chosen, where it was; `groups` says which rows belong
    together, None where none do; `locations` are those of UME and FSSD; scores that do not fit into memory are
    written into `folder`.
    """

    kernel: Kernel
    estimator: str
    dependence: Dependence
    seed: int
    runtime: Runtime
    shuffle: bool = True
    pairs: int | None = None
    blocks: int | None = None
    variance: str = "projection"
    why: str = ""
    groups: Groups | None = None
    locations: Locations | None = None
    folder: Path | None = None
