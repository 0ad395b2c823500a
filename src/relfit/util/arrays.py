"""Arrays of any library: names for their types, and the functions of the library that an
array belongs to; and the parts of long ones that are worked on at once.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.util.errors import InputError

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
# Numbers that are worked on together: 4 MB, and a few temporaries of that size.
PART_NUMBERS = 2**19


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


def cuts(stop: int, size: int, start: int = 0) -> Iterator[slice]:
    """Consecutive slices of `size` rows; the last may be shorter.

    >>> list(cuts(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(a, min(a + size, stop)) for a in range(start, stop, size))


def parts(shape: tuple[int, ...], numbers: int | None = None) -> Iterator[slice]:
    """Consecutive slices of rows (n, d), each of at most `numbers` numbers (`PART_NUMBERS`),
    but at least one row.

    >>> list(parts((5, 100), 200))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    most = PART_NUMBERS if numbers is None else numbers
    return cuts(shape[0], max(1, most // max(1, shape[1])))


def is_mapped(array: Any) -> bool:
    """True for an array in a mapped file."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)
