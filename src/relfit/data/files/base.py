"""What all file formats share: the `Format` record, the selection of arrays and columns, and
checks of files.
"""

from __future__ import annotations

import contextlib
import csv
import os
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.util.arrays import two_dimensional
from relfit.util.errors import InputError
from relfit.util.files import note_read
from relfit.util.libraries import without_warnings
from relfit.util.text import listed

# The columns selected: a whole number is a position; text is a name, a position or a range of
# positions.
Columns = tuple[str | int, ...]

_MOST_NAMES = 8
# Separators of files whose suffix promises another one.
_SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'"}
_POSITIONS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class NoSuchColumn(InputError):
    """A column selected by a name that the table does not have."""


@dataclass(frozen=True)
class Selection:
    """What to read from a file: one array by its name (None: the only one), and columns of
    it (None: all).
    """

    path: Path
    key: str | None = None
    columns: Columns | None = None


@dataclass(frozen=True)
class Format:
    """A file format: the suffixes of its files and the functions that read them.

    Attributes:
        suffixes: the suffixes, in lower case.
        read: reads the selected array.
        names: reads the names of all columns but no rows, and returns None for a file
            without names; None for a format whose columns never have names.
        parts: reads the selected rows as consecutive blocks, and may hold the given number
            of bytes; None for a format that can only be read whole.
        column_parts: reads the selected columns with their names, text and missing cells
            among them, in consecutive parts, of which the first has no rows; nothing for a
            file without names. Text in the columns named stays text where all of a part
            looks like numbers. None for a format whose columns never have names.
        unpacked_size: the bytes of memory that the largest array in a file takes, 0 if it is
            mapped; None if they are at most the size of the file.
        is_folder: recognises a folder that holds this format, whatever its name; None for a
            format of plain files.
        several_arrays: True if one file can hold several arrays, of which one is selected as
            ``file.npz:name``.
    """

    suffixes: tuple[str, ...]
    read: Callable[[Selection], NDArray[Any]]
    names: Callable[[Path], list[str] | None] | None = None
    parts: Callable[[Selection, int], Iterator[NDArray[Any]]] | None = None
    column_parts: (
        Callable[[Selection, Collection[str]], Iterator[list[tuple[str, Any]]]] | None
    ) = None
    unpacked_size: Callable[[Path], int] | None = None
    is_folder: Callable[[Path], bool] | None = None
    several_arrays: bool = False


def check_plain(path: Path) -> None:
    """Refuse a path that does not exist or is not a plain file: reading a device or a pipe
    might never end.
    """
    exists = os.path.exists(path)  # noqa: PTH110  (Path.exists raises for names that are too long)
    if path.is_fifo() if exists else str(path) == "-":
        raise InputError(f"{path}: pipes cannot be read; save to a file first")
    if not exists and re.match(r"(https?|s3|gs|ftp|hf):/", str(path)):
        raise InputError(
            f"{path}: is an address on the internet, which relfit never reads; "
            f"download the file first"
        )
    if not exists:
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        raise InputError(
            f"{path}: expected a file, got a folder; relfit features {path} makes rows of a "
            f"folder of images or texts"
        )
    if not path.is_file():
        raise InputError(f"{path}: expected a file, got a device")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Report whatever a parser raises for a damaged file in one line, and refuse a file that
    changes meanwhile.

    The file is remembered as an input, which no result is written over.
    Warnings of the parsers are not shown: they are addressed to the author of the file.
    """
    try:
        before = path.stat()
        note_read(path)
        with without_warnings:
            yield
        after = path.stat()
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise InputError(f"{path}: was changed while it was being read; start again")
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  (parsers raise errors of any type)
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(
            f"{path}: cannot be read; it is truncated, damaged or not in the format of its "
            f"suffix ({reason})"
        ) from None


def one_of(path: Path, names: Sequence[str], key: str | None) -> str:
    """The name of the selected array, or of the only one."""
    held = listed(names, most=_MOST_NAMES, quote=str) if names else "none"
    if key is None and len(names) != 1:
        mark = "/" if path.is_dir() and path.suffix != ".zarr" else ":"
        raise InputError(
            f"{path}: expected one array, got {len(names)} ({held}); select one "
            f"as {path.name}{mark}NAME"
        )
    if key is not None and key not in names:
        raise InputError(f"{path}: expected an array called {key!r}, got {held}")
    return names[0] if key is None else key


def take_columns(selection: Selection, array: NDArray[Any]) -> NDArray[Any]:
    """The selected columns of an array without column names."""
    if selection.columns is None:
        return array
    rows = two_dimensional(f"{selection.path}: columns", array)
    # np.take and not rows[:, positions]: it returns rows in C order, which need no copy later.
    return np.take(np.asarray(rows), column_positions(selection, None, rows.shape[1]), axis=1)


def parse_columns(columns: Any) -> Columns | None:
    """The `columns` argument as a tuple: from text such as "a,b,3-10" or a sequence of names
    and numbers; None is all.

    >>> parse_columns('x, "y, first", 3-10')
    ('x', 'y, first', '3-10')
    """
    if columns is None:
        return None
    choices: list[Any] = [columns]
    if isinstance(columns, str):
        try:
            choices = [
                part.strip()
                for part in next(csv.reader([columns], skipinitialspace=True, strict=True), [])
            ]
        except csv.Error:
            choices = []
    elif isinstance(columns, Iterable):
        choices = list(columns)
    if not choices or not all(
        choice.strip()
        if isinstance(choice, str)
        else hasattr(choice, "__index__") and not isinstance(choice, bool)
        for choice in choices
    ):
        raise InputError(
            f'columns: expected names, numbers or ranges such as "a,b,3-10", got '
            f"{reprlib.repr(columns)}; "
            "put a name that contains a comma in double quotes"
        )
    return tuple(choice if isinstance(choice, str) else int(choice) for choice in choices)


def column_positions(
    selection: Selection, names: Sequence[str] | None, count: int
) -> list[int]:
    """The positions of the selected columns among `count`, in the order selected; `names` if
    the columns have names.

    >>> column_positions(Selection(Path("file.csv"), columns=("b", "0", 2)), ["a", "b", "c"], 3)
    [1, 0, 2]
    """
    path = selection.path
    if selection.columns is None:
        return list(range(count))
    by_name: dict[str, list[int]] = {}
    for k, name in enumerate(names or ()):
        by_name.setdefault(name.strip(), []).append(k)
    positions = [
        k for choice in selection.columns for k in _positions(path, choice, by_name, count)
    ]
    if len(set(positions)) < len(positions):
        twice = next(k for k in positions if positions.count(k) > 1)
        column = f"column {twice}" if names is None else repr(names[twice])
        raise InputError(f"{path}: expected each column once, but {column} is selected twice")
    return positions


def _positions(
    path: Path, choice: str | int, by_name: Mapping[str, list[int]], count: int
) -> Sequence[int]:
    positions = by_name.get(choice.strip(), []) if isinstance(choice, str) else []
    if len(positions) > 1:
        raise InputError(
            f"{path}: {len(positions)} columns are called {choice!r}; give the number of one "
            f"of them, counted from 0"
        )
    if positions:
        return positions
    if isinstance(choice, int):
        first = last = choice
    elif numbers := _POSITIONS.fullmatch(choice.strip()):
        first = int(numbers[1])
        last = int(numbers[2] or numbers[1])
    elif not by_name:
        raise NoSuchColumn(
            f"{path}: its columns have no names; give numbers from 0 to {count - 1} instead "
            f"of {choice!r}"
        )
    else:
        names = listed(list(by_name), most=_MOST_NAMES, quote=repr)
        raise NoSuchColumn(
            f"{path}: expected a column called {choice!r}, got "
            f"{names}{separator_hint(list(by_name))}"
        )
    if first > last:
        raise InputError(
            f"{path}: expected a range such as {last}-{first}, got {choice}, "
            f"which runs backwards"
        )
    if not 0 <= first <= last < count:
        raise InputError(f"{path}: expected columns from 0 to {count - 1}, got {choice}")
    return range(first, last + 1)


def separator_hint(fields: Sequence[str]) -> str:
    """A hint to append to an error if a line's only field looks like several fields with
    another separator.

    >>> separator_hint(["a;b"]), separator_hint(["a", "b"])
    ("; is it separated by ';'?", '')
    """
    separators = [
        shown
        for mark, shown in _SEPARATORS.items()
        if len(fields) == 1 and mark in fields[0].strip()
    ]
    return f"; is it separated by {separators[0]}?" if separators else ""


def refuse_not_numeric(
    where: object, columns: Sequence[tuple[str, str]], advice: str = "drop or convert them"
) -> None:
    """Refuse these columns, given as (name, type), which do not hold numbers; there may be
    none.
    """
    if columns:
        shown = listed(
            [f"{name!r} ({dtype})" for name, dtype in columns], most=_MOST_NAMES, quote=str
        )
        raise InputError(f"{where}: expected columns of numbers, got {shown}; {advice}")
