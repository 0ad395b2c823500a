"""How far a model is from the data: squared MMD for samples, squared KSD for densities."""

from __future__ import annotations

from dataclasses import dataclass

from relfit.discrepancies.psi import Dependence, Estimates, Psi
from relfit.kernels import Kernel

__all__ = ["KSD", "MMD", "Dependence", "Estimates", "Psi"]


@dataclass(frozen=True)
class MMD:
    """Squared maximum mean discrepancy with this kernel (None: Gaussian, median bandwidth)."""

    kernel: Kernel | None = None


@dataclass(frozen=True)
class KSD:
    """Squared kernel Stein discrepancy with this kernel (None: Gaussian, median bandwidth)."""

    kernel: Kernel | None = None
