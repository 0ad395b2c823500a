"""Rows in memory, on a device or in a file, shifted to the centre a part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.stored import LazyRows, parts

Array = NDArray[np.float64]


def shifted(x: Any, centre: Array | float) -> Any:
    """x − c in float64, where x is."""
    if isinstance(x, np.ndarray):
        return x - centre
    there = x.double()
    return there if isinstance(centre, float) else there - there.new_tensor(centre)


def in_parts(x: Any, centre: Array | float) -> Iterator[Any]:
    """All rows, shifted; in one piece where they are in memory anyway."""
    cut = parts(x.shape) if isinstance(x, LazyRows) else [slice(None)]
    return (shifted(x[part], centre) for part in cut)
