"""Rows that arrive in batches: generators, torch's data loaders and data sets, data sets with `to_pandas`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from relfit.data.frames import is_tensor, tensor_array
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance


def gathered(argument: str, value: Any) -> tuple[Any, str | None]:
    """The rows of something that yields them, and a note if it yields more; anything else as it is.

    Batches are arrays or tensors of rows. Of tuples, as data sets with labels yield them, the first is taken.
    """
    if is_instance(value, "datasets", "Dataset"):
        return value.to_pandas(), None
    items: Iterable[Any]
    if isinstance(value, Iterator) or is_instance(value, "torch.utils.data", "DataLoader"):
        items, batches = value, True
    elif is_instance(value, "torch.utils.data", "Dataset"):
        items, batches = (value[k] for k in range(len(value))), False
    else:
        return value, None
    rows, others = [], 0
    for item in items:
        if isinstance(item, tuple | list):
            others = max(others, len(item) - 1)
            item = item[0] if item else item
        array = tensor_array(item) if is_tensor(item) else np.asarray(item)
        rows.append(array if batches else array[None])
    if not rows:
        raise InputError(f"{argument}: expected rows, but {type(value).__name__} yields none; has it been used up?")
    shapes = {array.shape[1:] for array in rows}
    if len(shapes) > 1 or rows[0].ndim == 0:
        came = "single numbers" if rows[0].ndim == 0 else "batches of unlike shapes"
        raise InputError(f"{argument}: expected batches of rows with the same columns, got {came}")
    note = f"{argument}: the first of the {others + 1} parts of each item was taken as its row" if others else None
    return np.concatenate(rows), note
