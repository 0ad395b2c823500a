"""Kernels as frozen values: the table of those with a name, and kernels from names and from
JSON.

A new radial kernel is one class in `standard` and one line in `NAMED`. Its name on the
command line and in ``kernel=``, its JSON form and the laws that the tests check follow from
that line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relfit.kernels.base import Kernel, ScaledKernel, Sum
from relfit.kernels.composite import Collection, Decay, MultiScale, Select, Tilted
from relfit.kernels.custom import FunctionKernel, Recorded
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial, RationalQuadratic
from relfit.util.errors import InputError

# The kernels with a name, each with its default parameters.
NAMED: dict[str, ScaledKernel] = {
    "gaussian": Gaussian(),
    "imq": IMQ(),
    "matern12": Matern(0.5),
    "matern32": Matern(1.5),
    "matern52": Matern(2.5),
    "rational-quadratic": RationalQuadratic(),
    "multiscale": MultiScale(),
}
# Other libraries' names, for the error that says ours.
_OTHER_NAMES = {
    "rbf": "gaussian",
    "squared-exponential": "gaussian",
    "laplacian": "matern12",
    "rq": "rational-quadratic",
}
# The classes that JSON holds as their fields.
_CLASSES: dict[str, type[Kernel]] = {
    kind.__name__: kind for kind in (*map(type, NAMED.values()), Polynomial, Recorded)
}


def as_kernel(value: Any) -> Kernel | Select | None:
    """The meaning of ``kernel=``: a kernel, `Select` or None, a name in `NAMED` or "select",
    a function of two arrays of rows, or several kernels.

    >>> as_kernel("imq")
    IMQ(scale=1.0, exponent=-0.5)
    """
    if isinstance(value, str):
        if value in NAMED or value == "select":
            return Select() if value == "select" else NAMED[value]
        ours = _OTHER_NAMES.get(value.lower().replace("_", "-"))
        hint = f"; here it is called {ours}" if ours else ""
        raise InputError(
            f'kernel: expected {", ".join(NAMED)}, "select" or a relfit kernel, '
            f"got {value!r:.40}{hint}"
        )
    if isinstance(value, tuple | list):
        return Collection(tuple(_or_function(each) for each in value))
    if isinstance(value, Recorded):
        raise InputError(
            f"kernel: {value.words!r} was read from a file, which holds no functions and no "
            f"matrices; pass the kernel "
            "itself"
        )
    value = _or_function(value)
    if value is None or isinstance(value, Kernel | Select):
        return value
    raise InputError(
        f'kernel: expected a relfit kernel such as Gaussian() or IMQ(), or "select", got '
        f"{type(value).__name__}"
    )


def _or_function(value: Any) -> Any:
    """The value; a function of two arrays of rows as a kernel."""
    if isinstance(value, Kernel | Select | type) or not callable(value):
        return value
    return FunctionKernel(value, getattr(value, "__name__", "function"))


def kernel_from_dict(data: Mapping[str, Any]) -> Kernel:
    """The kernel that `Kernel.to_dict` described.

    >>> kernel_from_dict({"type": "Gaussian", "bandwidth": 2.0})
    Gaussian(bandwidth=2.0)
    """
    values = dict(data)
    name = values.pop("type", None)
    if name == "Sum":
        return Sum(tuple(kernel_from_dict(term) for term in values["terms"]))
    if name == "Collection":
        return Collection(tuple(kernel_from_dict(kernel) for kernel in values["kernels"]))
    if name == "Tilted":
        return Tilted(kernel_from_dict(values["kernel"]), Decay(**values["weight"]))
    if name not in _CLASSES:
        known = ", ".join(sorted([*_CLASSES, "Collection", "Sum", "Tilted"]))
        raise InputError(f"kernel: expected a type among {known}, got {name!r}")
    return _CLASSES[name](**values)
