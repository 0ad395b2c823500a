"""Labels from files: the column of a table that says which group a row belongs to, numbers or text."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.columns import column_places
from relfit.inputs.files import read_rows
from relfit.inputs.files.paths import check_file, split_key
from relfit.inputs.files.text import open_text, separator_of
from relfit.inputs.libraries import needed

_TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_ARROW = {".parquet": "pyarrow.parquet", ".feather": "pyarrow.feather"}


def read_labels(source: str | os.PathLike[str]) -> NDArray[Any]:
    """The labels in a file that holds nothing else: one column, with a name above it or without."""
    path, _ = split_key(source)
    if check_file(path) not in _TEXT:
        return np.asarray(read_rows(source))
    lines = _lines(path)
    if {len(line) for line in lines} - {1}:
        raise InputError(f"{path}: expected one label per line, got {len(lines[0])} columns")
    values = [line[0] for line in lines]
    # A name above numbers is no label; above text it cannot be told from one, and one group more is refused later.
    return np.array(values[1:] if _only_first_is_text(values) else values)


def split_labels(source: str | os.PathLike[str], column: str) -> tuple[NDArray[Any], list[int]]:
    """The labels in one column of a file, and the numbers of all other columns."""
    path, _ = split_key(source)
    suffix = check_file(path)
    if suffix in _TEXT:
        first, *lines = _lines(path)
        place = column_places(path, (column,), first, len(first))[0]
        if column not in (name.strip() for name in first):
            raise InputError(f"{path}: expected a first line of names with {column!r} among them, got {first[0]!r} …")
        return np.array([line[place] for line in lines]), [k for k in range(len(first)) if k != place]
    if suffix in _ARROW:
        table = needed(path, _ARROW[suffix], ()).read_table(os.fspath(path))
        place = column_places(path, (column,), table.column_names, table.num_columns)[0]
        labels = np.array(table.column(place).to_pylist(), dtype=object)
        return labels, [k for k in range(table.num_columns) if k != place]
    rows = np.asarray(read_rows(source))
    rows = rows[:, None] if rows.ndim == 1 else rows
    place = column_places(path, (column,), None, rows.shape[1])[0]
    return rows[:, place], [k for k in range(rows.shape[1]) if k != place]


def _lines(path: Path) -> list[list[str]]:
    with open_text(path) as text:
        lines = [line for line in csv.reader(text, delimiter=separator_of(path), strict=True) if line]
    if not lines:
        raise InputError(f"{path}: expected one label per line, got an empty file")
    return lines


def _only_first_is_text(values: list[str]) -> bool:
    def is_number(text: str) -> bool:
        try:
            float(text)
        except ValueError:
            return False
        return True

    return not is_number(values[0]) and all(map(is_number, values[1:]))
