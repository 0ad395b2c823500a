"""Files of text: comma- and tab-separated values, compressed or not, with or without a line of
column names; and JSON, of one value or of one object on each line.

Columns are numbers, except for a column of labels, which may be text. The first line is a
header if none of its fields is a number. A first line of column numbers (0, 1, 2, … or
years) is refused rather than read as a row of data.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import held_rows, require_room
from relfit.data.files.base import (
    Format,
    Selection,
    check_plain,
    column_positions,
    reading,
    separator_hint,
)
from relfit.util.arrays import Array
from relfit.util.errors import InputError, way

Fields = list[str]

# A compressed file of a few megabytes can hold one line of gigabytes, or as many blank lines.
LONGEST_LINE = 2**24
MOST_BLANKS = 100_000
# The fields that are held as text at once.
_BLOCK_FIELDS = 2**15
_LABELS_BETWEEN_CHECKS = 4096
_BYTES_PER_LABEL = 100
# Texts that are held once each.
_MOST_KNOWN = 100_000
# What pandas calls a first column without a name.
UNNAMED = "Unnamed: 0"
# What pandas calls row numbers in the files that it writes.
ROW_NUMBERS = (UNNAMED, "__index_level_0__")
# What stands for a missing cell in a table whose cells may be missing.
_MISSING = {"", "na", "n/a", "nan", "null", "none"}
# After a first line that counts, the most rows that are searched for one like it, and the
# fewest that must follow before the line is called a header.
_MOST_OTHERS = 100
_FEWEST_OTHERS = 10


def _parts(selection: Selection, *, whole: bool) -> Iterator[Array]:
    """The selected columns in blocks of rows of numbers."""
    path = selection.path
    with _open_fields(path) as lines:
        rows, positions, names = _table(selection, lines)
        width = len(positions)
        done = 0
        while block := list(itertools.islice(rows, max(1, _BLOCK_FIELDS // width))):
            if whole:
                require_room(path, 8 * width * done)
            if not isinstance(positions, range):
                block = [[fields[k] for k in positions] for fields in block]
            yield _numbers(path, block, done, positions, names)
            done += len(block)
        if not done:
            raise InputError(f"{path}: expected rows of numbers, got a header only")


def _numbers(
    path: Path, rows: list[Fields], start: int, positions: Sequence[int], names: Fields | None
) -> Array:
    """The numbers in rows of fields, of which the first is row `start` of the file."""
    flat = list(itertools.chain.from_iterable(rows))
    # float() reads 1_000 as a number; in a table it is a name or a typing error.
    if "_" not in "".join(flat):
        with suppress(ValueError):
            return np.array(list(map(float, flat))).reshape(len(rows), -1)
    place = next(k for k, field in enumerate(flat) if not is_number(field))
    number, k = divmod(place, len(positions))
    column = positions[k] if names is None else repr(names[positions[k]].strip())
    field = repr(flat[place][:40]) if flat[place].strip() else "a missing value"
    hint = (
        separator_hint(rows[number])
        or f"; fix it, or select numeric columns ({way('--columns', 'columns=')})"
    )
    raise InputError(
        f"{path}: expected numbers, got {field} in row {start + number}, column {column}{hint}"
    )


def _names(path: Path) -> Fields | None:
    with _open_fields(path) as lines:
        first = _first(lines)
    return first if first and _is_header(path, first) else None


def _column_parts(
    selection: Selection, text: Collection[str]
) -> Iterator[list[tuple[str, NDArray[Any]]]]:
    """The columns below a line of names in blocks: numbers, or text where a cell is neither
    a number nor missing.
    """
    path = selection.path
    known: dict[str, str | None] = {}
    with _open_fields(path) as lines:
        first = _first(lines)
        if not first or all(map(is_number, first)):
            return
        positions = column_positions(selection, first, len(first))
        rows = _rows(path, lines, first)
        names = [first[k].strip() for k in positions]
        yield [(name, np.empty(0)) for name in names]
        while block := list(itertools.islice(rows, _LABELS_BETWEEN_CHECKS)):
            require_room(path, _LABELS_BETWEEN_CHECKS * _BYTES_PER_LABEL * len(first))
            if len(known) > _MOST_KNOWN:
                known.clear()
            yield [
                (name, _cells([fields[k] for fields in block], name in text, known))
                for name, k in zip(names, positions, strict=True)
            ]


def _cells(fields: Fields, as_text: bool, known: dict[str, str | None]) -> NDArray[Any]:
    """Numbers, or text if one of the cells is; equal texts are held once."""
    if not as_text:
        with suppress(ValueError):
            # What float() would take for a number, or round, is looked at cell by cell; so is
            # what is missing.
            if max(map(len, fields)) < 16 and "_" not in "".join(fields):
                return np.array(list(map(float, fields)))
        with suppress(ValueError):
            return np.array([_as_number(field) for field in fields])
    column = np.empty(len(fields), dtype=object)
    column[:] = [
        known[field] if field in known else known.setdefault(field, _as_text(field))
        for field in fields
    ]
    return column


def _as_text(field: str) -> str | None:
    text = field.strip()
    return None if text.lower() in _MISSING else text


def _as_number(field: str) -> float:
    if is_long_key(field):
        raise ValueError
    try:
        # float() reads 1_000 as a number; in a table it is a name or a typing error.
        return float(field) if "_" not in field else float("_")
    except ValueError:
        if len(field) < 9 and field.strip().lower() in _MISSING:
            return math.nan
        raise


def _table(
    selection: Selection, lines: Iterator[Fields]
) -> tuple[Iterator[Fields], Sequence[int], Fields | None]:
    """The rows of a table, the positions of the selected fields, and the names of all fields
    if it has a header.
    """
    path = selection.path
    first = _first(lines)
    if not first:
        raise InputError(f"{path}: expected rows of numbers, got an empty file or first line")
    if len(first) > 2 and _counts(first):
        # A data frame without names is often saved with column numbers.
        advice = "delete that line, or save without a header"
        raise InputError(
            f"{path}: its first line counts 0, 1, 2, …: these are column "
            f"numbers, not data; {advice}"
        )
    # A selected column such as 1990 that is a field of the first line, and not a position,
    # makes that line a header.
    selected = {choice.strip() for choice in selection.columns or () if isinstance(choice, str)}
    named = selected & {field.strip() for field in first} - {str(k) for k in range(len(first))}
    names = first if named or _is_header(path, first) else None
    if first[0] == UNNAMED and selection.columns is None:
        raise InputError(
            f"{path}: expected a name over every column of numbers, got none over the first; "
            f"are these row numbers? "
            f"Save without them (index=False), or select columns "
            f"({way('--columns', 'columns=')})"
        )
    positions = (
        range(len(first))
        if selection.columns is None
        else column_positions(selection, names, len(first))
    )
    rows = _rows(path, lines if names else itertools.chain([first], lines), first)
    if names is None and len(first) > 1 and all(map(_is_whole, first)):
        start = int(first[0])
        if list(map(int, first)) == list(range(start, start + len(first))):
            rows = _refuse_counting_header(path, rows)
    return rows, positions, names


def _first(lines: Iterator[Fields]) -> Fields:
    """The fields of the first line; a missing name over the first column, as pandas saves
    row numbers, is `UNNAMED`.
    """
    first = next(lines, [])
    others = first[1:]
    if not others or first[0].strip():
        return first
    named = all(field.strip() and not is_number(field) for field in others)
    return [UNNAMED, *others] if named or _counts(others) else first


def _counts(fields: Fields) -> bool:
    """True for 0, 1, 2, …: pandas numbers columns without names so."""
    return fields == [str(k) for k in range(len(fields))]


def _is_header(path: Path, first: Fields) -> bool:
    """True if the first line holds names. A line of names and numbers could be a damaged
    row, and is refused.
    """
    if first[0] == UNNAMED and _counts(first[1:]):
        return True
    names = [field for field in first if not is_number(field)]
    if len(names) not in (0, len(first)) or not all(map(str.strip, names)):
        raise InputError(
            f"{path}: expected a first line of names only or of numbers only, got "
            f"{names[0]!r} among other fields; "
            "remove a row index, fill in a missing value, or select columns by name"
        )
    return bool(names)


def _refuse_counting_header(path: Path, rows: Iterator[Fields]) -> Iterator[Fields]:
    """Pass the rows on, and refuse a first row that counts up by 1 (years, numbers from 1)
    if no other is like it.

    Rows of whole numbers may well begin with 1, 2. If none of the next 100 rows holds whole
    numbers only, then the first is not written as the data are.
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
            f"{path}: its first line counts {start}, {following}, … above rows that are not "
            f"whole numbers: these are "
            f"column names, not data; delete that line, or save without a header; if it is a "
            f"row, write {start}.0"
        )


def _is_whole(field: str) -> bool:
    """True if the field is written as a whole number of a usual length."""
    return len(field) < 16 and field.strip().isdecimal()


def _rows(path: Path, lines: Iterator[Fields], first: Fields) -> Iterator[Fields]:
    """The rows without blank lines. In a file of one column, a blank line between rows is a
    missing value.
    """
    number = 0
    blanks = 0
    count = len(first)
    for fields in lines:
        if not fields or (len(fields) == 1 and fields[0].isspace()):
            blanks += 1
            continue
        if len(fields) != count:
            got = f"{len(fields)} in row {number}{separator_hint(first)}"
            raise InputError(f"{path}: expected {count} fields like the first line, got {got}")
        if blanks and count == 1 and number:
            raise InputError(
                f"{path}: expected a number in each line, got a blank line before row {number}"
            )
        number = number + 1
        blanks = 0
        yield fields


def is_long_key(field: str) -> bool:
    """True for a whole number of 16 digits or more, a key that float64 would round."""
    return len(field) > 15 and field.strip().lstrip("+-").isdecimal()


def is_number(field: str) -> bool:
    """True if the field is written as a number."""
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field


@contextmanager
def _open_fields(path: Path) -> Iterator[Iterator[Fields]]:
    name = path.name.lower()
    with (
        gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        if name.endswith(".gz")
        else path.open(encoding="utf-8-sig", newline="")
    ) as text:
        yield csv.reader(
            _lines(path, text),
            delimiter="\t" if name.endswith((".tsv", ".tsv.gz")) else ",",
            strict=True,
        )


def _lines(path: Path, text: TextIO) -> Iterator[str]:
    blanks = 0
    try:
        while line := text.readline(LONGEST_LINE + 1):
            blanks = blanks + 1 if line.isspace() else 0
            if blanks > MOST_BLANKS:
                raise InputError(
                    f"{path}: expected rows, got more than {MOST_BLANKS} blank "
                    f"lines in succession"
                )
            if len(line) > LONGEST_LINE:
                raise InputError(
                    f"{path}: expected lines of at most {LONGEST_LINE} "
                    f"characters, got a longer one"
                )
            yield line
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: expected UTF-8 text, got other bytes; save it as UTF-8"
        ) from None


TEXT = Format(
    (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    lambda selection: held_rows(_parts(selection, whole=True)),
    names=_names,
    parts=lambda selection, _most_bytes: _parts(selection, whole=False),
    column_parts=_column_parts,
)


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────

LONGEST_JSON_LINE = 2**26  # bytes


def read_json(path: Path) -> Any:
    """The contents of a JSON file."""
    check_plain(path)
    with reading(path):
        # Parsed, a text takes about ten times its length.
        require_room(path, 10 * path.stat().st_size)
        return _parsed(str(path), path.read_bytes())


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file with one object on each line, with the number of its line."""
    check_plain(path)
    with reading(path), open(path, "rb") as stream:
        number = 0
        while line := stream.readline(LONGEST_JSON_LINE + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(line) > LONGEST_JSON_LINE:
                size = f"at most {LONGEST_JSON_LINE >> 20} MiB in a line"
                raise InputError(f"{where}: expected {size}, got more; it is damaged")
            if line.strip():
                value = _parsed(where, line)
                if not isinstance(value, dict):
                    raise InputError(f"{where}: expected a JSON object, got {kind_of(value)}")
                yield number, value


def _parsed(where: str, data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:80]
        raise InputError(
            f"{where}: expected JSON, which is cut off or damaged here ({reason})"
        ) from None


def kind_of(value: Any) -> str:
    """What a value of JSON is, in words."""
    kinds = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")
