"""Arrays of any library: names for their types, and the functions of the library they belong to."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


def host(array: Any) -> Array:
    """A backend's float64 array as a NumPy array."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.detach().cpu().numpy())


def library(t: Any) -> Any:
    """The functions (exp, sqrt, where, …) for the array library t belongs to: φ is written once for all of them."""
    name = type(t).__module__.partition(".")[0]
    if name in ("torch", "cupy"):
        return sys.modules[name]
    return sys.modules["jax.numpy"] if name in ("jax", "jaxlib") else np
