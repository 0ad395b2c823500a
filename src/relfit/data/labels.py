"""Labels that say which rows belong together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import require_room
from relfit.data.columns import column_places
from relfit.data.files import read_rows
from relfit.data.files.paths import check_file, damage_told, split_key
from relfit.data.files.text import open_text, read_fields
from relfit.util.errors import InputError
from relfit.util.libraries import needed


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


# --------------------
# Labels from files: the column of a table that says which group a row belongs to, numbers or text.

_TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_CHECKED_EVERY = 4096
_BYTES_PER_LABEL = 100
_ARROW = {".parquet": "pyarrow.parquet", ".feather": "pyarrow.feather"}


def read_labels(source: str | os.PathLike[str]) -> NDArray[Any]:
    """The labels in a file that holds nothing else: one column, with a name above it or without."""
    path, _ = split_key(source)
    if check_file(path) not in _TEXT:
        return np.asarray(read_rows(source))
    with damage_told(path):
        first, values = _column(path, None)
    if len(first) != 1:
        raise InputError(f"{path}: expected one label per line, got {len(first)} columns")
    # A name above numbers is no label; above text it cannot be told from one, and one group more is refused later.
    only_first_is_text = not _is_number(first[0]) and all(map(_is_number, values))
    return np.array(values if only_first_is_text else [*first, *values])


def split_labels(source: str | os.PathLike[str], column: str) -> tuple[NDArray[Any], list[int]]:
    """The labels in one column of a file, and the numbers of all other columns."""
    path, _ = split_key(source)
    suffix = check_file(path)
    with damage_told(path):
        if suffix in _TEXT:
            labels, place, count = _split_text(path, column)
        elif suffix in _ARROW:
            labels, place, count = _split_arrow(path, column, _ARROW[suffix])
        else:
            labels, place, count = _split_rows(path, column, np.asarray(read_rows(source)))
    return labels, [k for k in range(count) if k != place]


def _split_text(path: Path, column: str) -> tuple[NDArray[Any], int, int]:
    first, values = _column(path, column)
    if column not in (name.strip() for name in first):
        raise InputError(f"{path}: expected a first line of names with {column!r} among them, got {first[0]!r} …")
    return np.array(values), column_places(path, (column,), first, len(first))[0], len(first)


def _split_arrow(path: Path, column: str, library: str) -> tuple[NDArray[Any], int, int]:
    table = needed(path, library, ()).read_table(os.fspath(path), memory_map=True)
    place = column_places(path, (column,), table.column_names, table.num_columns)[0]
    require_room(path, table.num_rows * _BYTES_PER_LABEL)
    return np.array(table.column(place).to_pylist(), dtype=object), place, table.num_columns


def _split_rows(path: Path, column: str, rows: NDArray[Any]) -> tuple[NDArray[Any], int, int]:
    rows = rows[:, None] if rows.ndim == 1 else rows
    place = column_places(path, (column,), None, rows.shape[1])[0]
    return rows[:, place], place, rows.shape[1]


def _column(path: Path, column: str | None) -> tuple[list[str], list[str]]:
    """The first line, and what all others hold in the column of that name; None: in the only one."""
    values: list[str] = []
    with open_text(path) as text:
        lines = (line for line in read_fields(path, text) if line)
        first = next(lines, [])
        if not first:
            raise InputError(f"{path}: expected one label per line, got an empty file")
        place = 0 if column is None else column_places(path, (column,), first, len(first))[0]
        for number, line in enumerate(lines):
            if len(line) != len(first):
                raise InputError(f"{path}: expected {len(first)} fields like the first line, got {len(line)}")
            if number and not number % _CHECKED_EVERY:
                require_room(path, number * _BYTES_PER_LABEL)
            values.append(line[place])
    return first, values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
