"""Kernels as frozen values, and the median bandwidth.

A radial kernel is ``k(x, y) = φ(r²)`` with ``r² = ‖x − y‖²``; it supplies φ, φ' and φ'' as functions of r².
MMD needs φ only, KSD needs φ' and ``r²φ''`` too. Kernels add: ``Gaussian(1.0) + IMQ()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relfit.errors import InputError
from relfit.kernels.bandwidth import median_distance
from relfit.kernels.base import Kernel, library
from relfit.kernels.choice import Collection, Select, as_kernel, table_of
from relfit.kernels.polynomial import Polynomial
from relfit.kernels.precomputed import Precomputed
from relfit.kernels.profile import Radial
from relfit.kernels.radial import IMQ, Gaussian, Matern, RationalQuadratic
from relfit.kernels.recorded import Recorded
from relfit.kernels.sums import MultiScale, Squared, Sum
from relfit.kernels.tilt import Decay, Tilted

__all__ = [
    "IMQ",
    "Collection",
    "Decay",
    "Gaussian",
    "Kernel",
    "Matern",
    "MultiScale",
    "Polynomial",
    "Precomputed",
    "Radial",
    "RationalQuadratic",
    "Recorded",
    "Select",
    "Squared",
    "Sum",
    "Tilted",
    "as_kernel",
    "kernel_from_dict",
    "library",
    "median_distance",
    "table_of",
]

_KINDS: dict[str, type[Kernel]] = {
    kind.__name__: kind for kind in (Gaussian, IMQ, Matern, MultiScale, Polynomial, RationalQuadratic, Recorded)
}


def kernel_from_dict(data: Mapping[str, Any]) -> Kernel:
    """The kernel that ``to_dict`` described."""
    values = dict(data)
    kind = values.pop("type", None)
    if kind == "Sum":
        return Sum(tuple(kernel_from_dict(term) for term in values["terms"]))
    if kind == "Collection":
        return Collection(tuple(kernel_from_dict(kernel) for kernel in values["kernels"]))
    if kind == "Tilted":
        return Tilted(kernel_from_dict(values["kernel"]), Decay(**values["weight"]))
    if kind not in _KINDS:
        raise InputError(f"kernel: expected a type among {sorted(_KINDS)} or Sum, got {kind!r}")
    return _KINDS[kind](**values)
