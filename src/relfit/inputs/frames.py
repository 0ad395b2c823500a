"""Data frames as arrays: pandas, polars and Arrow tables, recognised without importing those libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.inputs.arrow import arrow_rows, not_numbers
from relfit.inputs.columns import refuse_not_numbers, refuse_nulls
from relfit.inputs.libraries import loaded

Array = NDArray[np.float64]

_MEND = "drop or convert them"


def frame_array(argument: str, value: Any) -> Array | None:
    """A frame or series of numbers as an array; None for anything that is neither."""
    for convert in (_pandas, _polars, _arrow):
        array = convert(argument, value)
        if array is not None:
            return array
    return None


def frame_names(value: Any) -> list[str] | None:
    """The names of a frame's columns; None for anything that is none. What a series is called is no column's name."""
    polars, pyarrow = loaded("polars"), loaded("pyarrow")
    if polars is not None and isinstance(value, polars.DataFrame | polars.LazyFrame):
        return list(value.lazy().collect_schema().names())
    if pyarrow is not None and isinstance(value, pyarrow.Table | pyarrow.RecordBatch):
        return list(value.schema.names)
    return list(map(str, value.columns)) if _is_pandas(value) else None


def frame_columns(value: Any, places: Sequence[int]) -> Any:
    """The frame with these of its columns, in this order. Names are known to differ."""
    if _is_pandas(value):
        return value.iloc[:, list(places)]
    names = frame_names(value) or []
    return value.select([names[k] for k in places])


def _is_pandas(value: Any) -> bool:
    """Whether the value is a frame of pandas, or of dask, which has the same columns."""
    libraries = (loaded("pandas"), loaded("dask.dataframe"))
    return any(library is not None and isinstance(value, library.DataFrame) for library in libraries)


def _pandas(argument: str, value: Any) -> Array | None:
    pandas = loaded("pandas")
    if pandas is None or not isinstance(value, pandas.DataFrame | pandas.Series):
        return None
    frame = value.to_frame() if isinstance(value, pandas.Series) else value
    kinds = list(zip(frame.columns, frame.dtypes, strict=True))
    wrong = [(str(name), str(kind)) for name, kind in kinds if getattr(kind, "kind", "O") not in "biuf"]
    refuse_not_numbers(argument, wrong, _MEND)
    if all(isinstance(kind, np.dtype) for _, kind in kinds):
        return np.asarray(frame.to_numpy(dtype=np.float64))
    # Nullable types: what is missing becomes NaN, which the check of the rows counts.
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))


def _polars(argument: str, value: Any) -> Array | None:
    polars = loaded("polars")
    if polars is None or not isinstance(value, polars.DataFrame | polars.LazyFrame | polars.Series):
        return None
    frame = value.to_frame() if isinstance(value, polars.Series) else value.lazy().collect()
    kinds = frame.schema.items()
    wrong = [(name, str(kind)) for name, kind in kinds if not (kind.is_numeric() or kind == polars.Boolean)]
    refuse_not_numbers(argument, wrong, _MEND)
    refuse_nulls(argument, {column.name: column.null_count() for column in frame.get_columns()})
    return np.asarray(frame.cast(polars.Float64).to_numpy(order="c"))


def _arrow(argument: str, value: Any) -> Array | None:
    pyarrow = loaded("pyarrow")
    if pyarrow is None or not isinstance(value, pyarrow.Table | pyarrow.RecordBatch):
        return None
    table = pyarrow.Table.from_batches([value]) if isinstance(value, pyarrow.RecordBatch) else value
    if len(set(table.column_names)) < table.num_columns:
        # Columns of one name would be taken for each other.
        table = table.rename_columns([f"{k}: {name}" for k, name in enumerate(table.column_names)])
    refuse_not_numbers(argument, not_numbers(table.schema, table.column_names), _MEND)
    return arrow_rows(argument, table.column_names, table.to_batches(), table.num_rows)
