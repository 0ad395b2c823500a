"""Kernels as frozen values, and the median bandwidth.

A radial kernel is ``k(x, y) = φ(r²)`` with ``r² = ‖x − y‖²``; it supplies φ, φ' and φ'' as functions of r².
MMD needs φ only, KSD needs φ' and ``r²φ''`` too. Kernels add: ``Gaussian(1.0) + IMQ()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relfit.errors import InputError
from relfit.kernels.bandwidth import median_distance
from relfit.kernels.base import Kernel
from relfit.kernels.polynomial import Polynomial
from relfit.kernels.radial import IMQ, Gaussian, Matern, RationalQuadratic
from relfit.kernels.sums import MultiScale, Sum

__all__ = [
    "IMQ",
    "Gaussian",
    "Kernel",
    "Matern",
    "MultiScale",
    "Polynomial",
    "RationalQuadratic",
    "Sum",
    "kernel_from_dict",
    "median_distance",
]

_KINDS: dict[str, type[Kernel]] = {
    kind.__name__: kind for kind in (Gaussian, IMQ, Matern, MultiScale, Polynomial, RationalQuadratic)
}


def kernel_from_dict(data: Mapping[str, Any]) -> Kernel:
    """The kernel that ``to_dict`` described."""
    values = dict(data)
    kind = values.pop("type", None)
    if kind == "Sum":
        return Sum(tuple(kernel_from_dict(term) for term in values["terms"]))
    if kind not in _KINDS:
        raise InputError(f"kernel: expected a type among {sorted(_KINDS)} or Sum, got {kind!r}")
    return _KINDS[kind](**values)
