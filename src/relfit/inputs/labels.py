"""Labels that say which rows belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError


def group_labels(argument: str, given: Any, rows: int) -> NDArray[Any]:
    """(rows,) labels, numbers or text: one per row, none missing.

    >>> group_labels("groups", ["a", "a", "b"], 3).tolist()
    ['a', 'a', 'b']
    """
    try:
        labels = np.asarray(given)
    except (TypeError, ValueError):
        labels = np.empty(())
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(f"{argument}: expected one label per row, got {_shape(given, labels)}")
    if len(labels) != rows:
        more = "; one more than rows: is the first a header?" if len(labels) == rows + 1 else ""
        raise InputError(f"{argument}: expected {rows} labels, one per row, got {len(labels)}{more}")
    if labels.dtype.kind == "O":
        missing = [k for k, label in enumerate(labels) if label is None or label != label]
        labels = labels if missing else labels.astype(str)
    else:
        missing = np.flatnonzero(np.isnan(labels)).tolist() if labels.dtype.kind == "f" else []
    if missing:
        raise InputError(f"{argument}: expected a label for every row, got none in row {missing[0]}")
    if labels.dtype.kind not in "biufUS":
        raise InputError(f"{argument}: expected numbers or text, got {labels.dtype}")
    return labels


def _shape(given: Any, labels: NDArray[Any]) -> str:
    return f"an array of shape {labels.shape}" if labels.ndim else type(given).__name__
