"""Comma- and tab-separated numbers, compressed or not, with a line of names above them or without."""

from __future__ import annotations

import csv
import gzip
import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from relfit.compute.memory import require_room
from relfit.data.columns import Wanted, column_places, is_named, separated_by
from relfit.data.files.paths import suffix_of
from relfit.util.arrays import Array
from relfit.util.errors import InputError

Fields = list[str]

# A packed file of a few megabytes can hold one line of gigabytes, or as many blank lines.
LONGEST_LINE = 2**24
MOST_BLANKS = 100_000
_VALUES_BETWEEN_CHECKS = 2**20
# Rows after the first that are looked at for one like it: at most, and at least if it is to be called a header.
_MOST_OTHERS, _FEWEST_OTHERS = 100, 10
_HEADER_ONLY = "expected rows of numbers, got a header only"


def read_text(path: Path, wanted: Wanted | None) -> Array:
    """The rows (n, d) of the wanted columns; what the other columns hold does not matter."""
    with open_text(path) as text:
        rows, places, names = _table(path, text, wanted)
        values = _values(path, enumerate(rows), places, names)
    if not values:
        raise InputError(f"{path}: {_HEADER_ONLY}")
    return np.frombuffer(values).reshape(-1, len(places))


def text_parts(path: Path, wanted: Wanted | None, numbers: int) -> Iterator[Array]:
    """The rows of the wanted columns, at most so many numbers at a time."""
    with open_text(path) as text:
        rows, places, names = _table(path, text, wanted)
        numbered, size = enumerate(rows), max(1, numbers // len(places))
        values = _values(path, itertools.islice(numbered, size), places, names)
        if not values:
            raise InputError(f"{path}: {_HEADER_ONLY}")
        while values:
            yield np.frombuffer(values).reshape(-1, len(places))
            values = _values(path, itertools.islice(numbered, size), places, names)


def text_names(path: Path) -> Fields | None:
    """The names in the first line, None where it holds numbers."""
    with open_text(path) as text:
        first = next(read_fields(path, text), [])
    return first if first and _is_header(path, first) else None


def _table(path: Path, text: TextIO, wanted: Wanted | None) -> tuple[Iterator[Fields], Sequence[int], Fields | None]:
    """The rows of a table, which of their fields are wanted, and the names of all fields where it has them."""
    lines = read_fields(path, text)
    first = next(lines, [])
    if not first:
        raise InputError(f"{path}: expected rows of numbers, got an empty file or first line")
    places, header = _layout(path, first, wanted)
    rows = _rows(path, lines if header else itertools.chain([first], lines), first)
    if not header and len(first) > 1 and _counts(first):
        rows = _not_alone(path, rows)
    return rows, places, first if header else None


def _layout(path: Path, first: Fields, wanted: Wanted | None) -> tuple[Sequence[int], bool]:
    """Which fields of a line are wanted, and whether the first line holds names."""
    _refuse_counting(path, first)
    if wanted is None:
        return range(len(first)), _is_header(path, first)
    header = is_named(wanted, first) or _is_header(path, first)
    return column_places(path, wanted, first if header else None, len(first)), header


def _is_header(path: Path, first: Fields) -> bool:
    """Whether the first line holds names. A line of both could be a damaged row, so it is never guessed."""
    names = [field for field in first if not _is_number(field)]
    if len(names) not in (0, len(first)) or not all(map(str.strip, names)):
        raise InputError(
            f"{path}: expected a first line of names only or of numbers only, got {names[0]!r} among the others; "
            "a row index or a missing value has to go, or choose columns by name"
        )
    return bool(names)


def _refuse_counting(path: Path, first: Fields) -> None:
    """A frame without names is often saved with its column numbers on top, which are not data."""
    if len(first) > 2 and first == [str(k) for k in range(len(first))]:
        raise InputError(
            f"{path}: its first line counts 0, 1, 2, …: column numbers, not data; delete it, or save without a header"
        )


def _not_alone(path: Path, rows: Iterator[Fields]) -> Iterator[Fields]:
    """The rows, of which the first counts up by 1: refused as names (years, numbers from 1) if no other is like it.

    Rows of whole numbers may well begin with 1, 2. Where none of the next 100 rows holds whole numbers only, the first
    is written in another way than the data are.
    """
    first = next(rows)
    yield first
    others = 0
    for fields in rows:
        yield fields
        if all(map(_is_whole, fields)):
            yield from rows
            return
        others += 1
        if others == _MOST_OTHERS:
            break
    if others >= _FEWEST_OTHERS:
        start, following = (field.strip() for field in first[:2])
        raise InputError(
            f"{path}: its first line counts {start}, {following}, … above rows that are no whole numbers: column "
            f"names, not data; delete it, or save without a header; if it is a row, write {start}.0"
        )


def _counts(fields: Fields) -> bool:
    if not all(map(_is_whole, fields)):
        return False
    start = int(fields[0])
    return [int(field) for field in fields] == list(range(start, start + len(fields)))


def _is_whole(field: str) -> bool:
    """Whether the field is written as a whole number of a usual length."""
    return len(field) < 16 and field.strip().isdecimal()


def _rows(path: Path, lines: Iterator[Fields], first: Fields) -> Iterator[Fields]:
    """The rows, blank lines left out. With one column a blank line is a missing value, unless none follows."""
    number = blanks = 0
    count = len(first)
    for fields in lines:
        if not fields or (len(fields) == 1 and fields[0].isspace()):
            blanks += 1
            continue
        if len(fields) != count:
            came = f"{len(fields)} in row {number}{separated_by(first)}"
            raise InputError(f"{path}: expected {count} fields like the first line, got {came}")
        if blanks and count == 1 and number:
            raise InputError(f"{path}: expected a number in each line, got a blank one before row {number}")
        number, blanks = number + 1, 0
        yield fields


def _values(
    path: Path, rows: Iterable[tuple[int, Fields]], places: Sequence[int], names: Fields | None
) -> array[float]:
    whole = isinstance(places, range)
    values = array("d")
    every = max(1, _VALUES_BETWEEN_CHECKS // len(places))
    for number, fields in rows:
        if number and not number % every:
            require_room(path, len(values) * values.itemsize)  # as much again: it grows
        chosen = fields if whole else [fields[k] for k in places]
        try:
            # float() takes 1_000 for a number; in a table it is a name, or a slip.
            values.extend(map(float, chosen if "_" not in "".join(chosen) else ["_"]))
        except ValueError:
            raise _not_a_number(path, number, fields, places, names) from None
    return values


def _not_a_number(path: Path, row: int, fields: Fields, places: Sequence[int], names: Fields | None) -> InputError:
    place = next(k for k in places if not _is_number(fields[k]))
    column = place if names is None else repr(names[place].strip())
    came = repr(fields[place][:40]) if fields[place].strip() else "a missing value"
    mend = separated_by(fields) or "; mend it or choose the columns of numbers"
    return InputError(f"{path}: expected numbers, got {came} in row {row}, column {column}{mend}")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field


def read_fields(path: Path, text: TextIO) -> Iterator[Fields]:
    """The fields of one line after the other."""
    return csv.reader(_lines(path, text), delimiter=separator_of(path), strict=True)


def _line(path: Path, text: TextIO) -> str:
    try:
        return text.readline(LONGEST_LINE + 1)
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected UTF-8 text, got other bytes; save it as UTF-8") from None


def _lines(path: Path, text: TextIO) -> Iterator[str]:
    blanks = 0
    while line := _line(path, text):
        blanks = blanks + 1 if line.isspace() else 0
        if blanks > MOST_BLANKS:
            raise InputError(f"{path}: expected rows, got over {MOST_BLANKS} blank lines one after the other")
        if len(line) > LONGEST_LINE:
            raise InputError(f"{path}: expected lines of at most {LONGEST_LINE} characters, got a longer one")
        yield line


def separator_of(path: Path) -> str:
    """What stands between the fields."""
    return "\t" if ".tsv" in suffix_of(path) else ","


def open_text(path: Path) -> TextIO:
    """The file as text, compressed or not."""
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")
