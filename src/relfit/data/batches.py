"""Rows that arrive in batches, in memory or, under a budget of memory, in a file that grows
with every batch.

Batches come from generators and other objects that can be iterated, from torch's data
loaders and data sets, from Hugging Face's and pyarrow's data sets. They are arrays or
tensors of rows, or data frames, which together are a table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from numpy.typing import NDArray

from relfit.compute.memory import Budget, held_rows, spilled
from relfit.data.arrays import batch_rows, checked_rows, refuse_sparse
from relfit.data.tables import is_table, table_in_parts
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance
from relfit.util.progress import Progress, counted

# The rows that a data set of another library is asked for at once.
_BATCH_ROWS = 4096
# What an object has that is a model, or a value to be computed, even if it can be iterated.
_OTHERWISE = ("log_prob", "sample", "__call__", "__array__", "__dlpack__", "__dask_graph__")


def gathered(
    argument: str,
    value: Any,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> tuple[Any, str | None]:
    """The rows of something that yields them, and a note if it yields more or rows one by
    one; anything else as it is.

    Of tuples, as data sets with labels yield them, the first part is taken. With a budget of
    memory, no more than a batch is held: the rows are mapped from a file in its folder, as a
    `Table` where they are data frames.
    """
    refuse_sparse(argument, value)
    found = _items(value)
    if found is None:
        return value, None
    items, single = found
    most = 1
    count = 0
    lengths: set[int | None] = set()

    def taken() -> Iterator[Any]:
        nonlocal most, count
        for item in items:
            if isinstance(item, tuple | list):
                most = max(most, len(item))
                item = item[0] if item else item
            count += 1
            # Two different lengths are as good as many.
            if len(lengths) < 2:
                lengths.add(len(item) if getattr(item, "ndim", 0) == 1 else None)
            yield item

    stream = taken()
    try:
        first = next(stream)
    except StopIteration:
        raise InputError(
            f"{argument}: expected rows, but {type(value).__name__} yields none; has it been "
            f"used up? An object with "
            "__iter__ can be read more than once"
        ) from None
    stream = itertools.chain([first], stream)
    if is_table(argument, first):
        rows: Any = table_in_parts(argument, stream, budget, progress)
    else:
        blocks = counted(progress, argument, _blocks(argument, stream, single))
        rows = (
            held_rows(blocks)
            if budget is None
            else checked_rows(argument, spilled(blocks, budget.folder))
        )
    if most > 1:
        return (
            rows,
            f"{argument}: the first of the {most} parts of each item was taken as its row",
        )
    length = next(iter(lengths)) if len(lengths) == 1 and not single else None
    if length is None or not 1 < length < count:
        return rows, None
    return rows, (
        f"{argument}: {count} batches of {length} numbers were read as {count * length} rows "
        f"of one column; if each "
        f"batch is one row, yield arrays of shape (n, {length})"
    )


def _items(value: Any) -> tuple[Iterable[Any], bool] | None:
    """What yields the rows, and True if each item is a single row; None for a value that is
    no source of rows.
    """
    if is_instance(value, "datasets", "Dataset", "IterableDataset"):
        return value.with_format("arrow").iter(_BATCH_ROWS), False
    if is_instance(value, "pyarrow.dataset", "Dataset"):
        # As little as possible is read ahead.
        ahead = {"batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
        return value.to_batches(batch_size=_BATCH_ROWS, **ahead), False
    if is_instance(value, "torch.utils.data", "IterableDataset"):
        return value, True
    if is_instance(value, "torch.utils.data", "Dataset"):
        return (value[k] for k in range(len(value))), True
    other = isinstance(value, Mapping | Set | bytes | bytearray | type) or any(
        hasattr(value, name) for name in _OTHERWISE
    )
    return (
        (value, False)
        if isinstance(value, Iterator) or (isinstance(value, Iterable) and not other)
        else None
    )


def _blocks(argument: str, items: Iterable[Any], single: bool) -> Iterator[NDArray[Any]]:
    """The rows of all items, which must have the same columns."""
    width: int | None = None
    for item in items:
        for block in batch_rows(argument, item, single=single):
            if width is not None and block.shape[1] != width:
                came = f"batches of unlike shapes ({width} columns, then {block.shape[1]})"
                raise InputError(
                    f"{argument}: expected batches of rows with the same columns, got {came}"
                )
            width = block.shape[1]
            yield block
