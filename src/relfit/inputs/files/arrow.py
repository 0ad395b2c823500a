"""Parquet, Feather and Arrow files, by pyarrow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.arrow import arrow_rows, not_numbers
from relfit.inputs.columns import Wanted, column_places, refuse_not_numbers
from relfit.inputs.libraries import needed

Array = NDArray[np.float64]

# Before this version a file could make pyarrow unpickle what it held (CVE-2023-47248).
_OLDEST = (14, 0, 1)


def read_parquet(path: Path, wanted: Wanted | None) -> Array:
    """The wanted columns, row group by row group: besides the result only a part of the file is in memory."""
    needed(path, "pyarrow", _OLDEST)
    parquet = needed(path, "pyarrow.parquet", ())
    with parquet.ParquetFile(os.fspath(path), memory_map=True) as file:
        names = _names(path, file.schema_arrow, wanted)
        return arrow_rows(path, names, file.iter_batches(columns=names), file.metadata.num_rows)


def read_arrow(path: Path, wanted: Wanted | None) -> Array:
    """The wanted columns of an Arrow file (Feather is one) or stream."""
    pyarrow = needed(path, "pyarrow", _OLDEST)
    ipc = needed(path, "pyarrow.ipc", ())
    with pyarrow.memory_map(os.fspath(path)) as source:
        schema = _opened(ipc, source).schema
        names = _names(path, schema, wanted)
        fields = [schema.get_field_index(name) for name in names]
        table = _opened(ipc, source, ipc.IpcReadOptions(included_fields=fields)).read_all()
        return arrow_rows(path, names, table.to_batches(), table.num_rows)


def _opened(ipc: Any, source: Any, options: Any = None) -> Any:
    source.seek(0)
    start = source.read(6)
    source.seek(0)
    return (ipc.open_file if start == b"ARROW1" else ipc.open_stream)(source, options=options)


def _names(path: Path, schema: Any, wanted: Wanted | None) -> list[str]:
    names = list(schema.names)
    chosen = names if wanted is None else [names[k] for k in column_places(path, wanted, names, len(names))]
    twice = next((name for name in chosen if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: expected columns of different names, got {names.count(twice)} called {twice!r}")
    refuse_not_numbers(path, not_numbers(schema, chosen), "choose the columns of numbers (columns=, --columns)")
    return chosen
