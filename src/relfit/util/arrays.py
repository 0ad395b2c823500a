"""Arrays of any library: names for their types, and the functions of the library that an
array belongs to.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.util.errors import InputError

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


def host(array: Any) -> Array:
    """A backend's float64 array as a NumPy array."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.detach().cpu().numpy())


def library(t: Any) -> Any:
    """The module with exp, sqrt, where, … for the array t, so that a formula is written once
    for all libraries.

    >>> library(np.ones(2)) is np
    True
    """
    name = type(t).__module__.partition(".")[0]
    if name in ("torch", "cupy"):
        return sys.modules[name]
    return sys.modules["jax.numpy"] if name in ("jax", "jaxlib") else np


def medians(rows: Any) -> Any:
    """The median of every column of rows (n, d), where they are.

    >>> medians(np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 7.0], [9.0, 8.0]])).tolist()
    [3.0, 6.0]
    """
    if isinstance(rows, np.ndarray):
        return np.median(np.ascontiguousarray(rows.T), axis=1)
    ordered = rows.sort(dim=0).values
    return (ordered[(len(rows) - 1) // 2] + ordered[len(rows) // 2]) / 2.0


def extremes(array: Any) -> tuple[float, float]:
    """The smallest and the largest number; a device is asked once.

    >>> extremes(np.array([3.0, 1.0, 2.0]))
    (1.0, 3.0)
    """
    if isinstance(array, np.ndarray):
        return float(array.min()), float(array.max())
    low, high = library(array).stack(array.aminmax()).tolist()
    return low, high


def rounds_coarsely(low: float, high: float) -> bool:
    """True if float64 has fewer than 1024 whole numbers from `low` to `high`, and must round
    others to these.

    >>> rounds_coarsely(2**60, 2**60 + 99), rounds_coarsely(0, 2**60), rounds_coarsely(0, 99)
    (True, False, False)
    """
    largest = float(max(abs(low), abs(high)))
    return largest > 2**53 and high - low < 1024 * float(np.spacing(largest))


def two_dimensional(where: object, array: Any) -> Any:
    """The array as rows and columns; a 1-d array is n × 1, arrays of more dimensions are
    refused.
    """
    if array.ndim == 1:
        return array[:, None]
    if array.ndim != 2:
        shape = f"an array of shape {tuple(array.shape)}"
        raise InputError(
            f"{where}: expected rows and columns, got {shape}; flatten each item to one row"
        )
    return array


def numeric_rows(where: object, array: NDArray[Any]) -> Any:
    """The array as rows and columns of numbers, not converted; other types are refused."""
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"{where}: expected numbers, got dtype {array.dtype}; convert it to float first"
        )
    return two_dimensional(where, array)
