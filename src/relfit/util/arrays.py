"""Arrays of any library: names for their types, and the functions of the library that an
array belongs to; and the random streams that everything seeded draws from.
"""

from __future__ import annotations

import hashlib
import reprlib
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.util.errors import InputError

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Seed = int | np.random.Generator | None


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


def make_seed(rng: Seed) -> int:
    """The whole number that all streams come from: `rng` itself, drawn from a Generator, or
    from fresh entropy.

    Drawn seeds are below 2⁵³, so that every reader of JSON keeps them exactly.
    """
    if rng is None:
        rng = np.random.default_rng()
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**53))
    if isinstance(rng, bool) or not isinstance(rng, int | np.integer) or rng < 0:
        raise InputError(
            f"rng: expected a non-negative whole number, a numpy Generator or None, got "
            f"{reprlib.repr(rng)}"
        )
    return int(rng)


def stream(seed: int, purpose: str, name: str = "") -> np.random.Generator:
    """An independent generator for one purpose and one model.

    The stream depends on the name and not on the position, so that the order of the models
    changes nothing.
    """
    digest = hashlib.blake2b(
        f"{purpose}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()
    words = np.frombuffer(digest, dtype="<u4")
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=tuple(int(w) for w in words))
    )
