"""How far a model is from the data: squared MMD or UME for samples, squared KSD or FSSD for densities."""

from __future__ import annotations

from dataclasses import dataclass

from relfit.discrepancies.psi import Dependence, Estimates, Psi
from relfit.discrepancies.values import AT_LOCATIONS, FSSD, UME, AtLocations, Nystroem
from relfit.kernels import Kernel

__all__ = [
    "AT_LOCATIONS",
    "FSSD",
    "KSD",
    "MMD",
    "UME",
    "AtLocations",
    "Dependence",
    "Estimates",
    "Nystroem",
    "Psi",
]


@dataclass(frozen=True)
class MMD:
    """Squared maximum mean discrepancy with this kernel (None: Gaussian, median bandwidth)."""

    kernel: Kernel | None = None


@dataclass(frozen=True)
class KSD:
    """Squared kernel Stein discrepancy with this kernel (None: Gaussian, median bandwidth)."""

    kernel: Kernel | None = None
