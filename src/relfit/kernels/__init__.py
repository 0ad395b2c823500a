"""Kernels as frozen values, and the median bandwidth.

A radial kernel is ``k(x, y) = φ(r²)`` with ``r² = ‖x − y‖²``; it supplies φ, φ' and φ'' as functions of r².
MMD needs φ only, KSD needs φ' and ``r²φ''`` too. Kernels add: ``Gaussian(1.0) + IMQ()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relfit.kernels.base import Kernel, Sum
from relfit.kernels.choice import Collection
from relfit.kernels.composite import Decay, MultiScale, Tilted
from relfit.kernels.custom import Recorded
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial, RationalQuadratic
from relfit.util.errors import InputError

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
