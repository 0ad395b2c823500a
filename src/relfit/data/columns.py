"""Which columns of a table: by name, by 0-based number or by a range of numbers; and what is wrong with a column."""

from __future__ import annotations

import csv
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relfit.util.errors import InputError

# A text is a name, a number or a range; a whole number is always a position.
Wanted = tuple[str | int, ...]

_MOST_NAMES = 8
# What stands between fields in files that are not what their ending says.
_SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'"}
_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class NoSuchColumn(InputError):
    """A column asked for by its name that a table does not have."""


def wanted_columns(columns: Any) -> Wanted | None:
    """The `columns` argument as a tuple: a text such as "a,b,3-10", or a sequence of names and numbers; None is all.

    >>> wanted_columns('x, "y, first", 3-10')
    ('x', 'y, first', '3-10')
    """
    if columns is None:
        return None
    if isinstance(columns, str):
        columns = _split(columns)
    whole = isinstance(columns, int) and not isinstance(columns, bool)
    chosen = [columns] if whole else list(columns) if isinstance(columns, Iterable) else []
    if not chosen or not all(_is_choice(choice) for choice in chosen):
        raise InputError(
            f'columns: expected names, numbers or ranges such as "a,b,3-10", got {reprlib.repr(columns)}; '
            "a name with a comma goes in double quotes"
        )
    return tuple(choice if isinstance(choice, str) else int(choice) for choice in chosen)


def column_places(where: object, wanted: Wanted, names: Sequence[str] | None, count: int) -> list[int]:
    """The positions of the wanted columns among `count`, in the order wanted; `names` where the file has them.

    >>> column_places("file", ("b", "0", 2), ["a", "b", "c"], 3)
    [1, 0, 2]
    """
    named: dict[str, list[int]] = {}
    for k, name in enumerate(names or ()):
        named.setdefault(name.strip(), []).append(k)
    places = [k for choice in wanted for k in _places(where, choice, named, count)]
    if len(set(places)) < len(places):
        twice = next(k for k in places if places.count(k) > 1)
        raise InputError(f"{where}: expected each column once, got {_shown(twice, names)} twice in the choice")
    return places


def is_named(wanted: Wanted, first: Sequence[str]) -> bool:
    """Whether one of the wanted columns can only be a name in this first line of a file, and no position.

    >>> is_named(("1990", "1991"), ["country", "1990", "1991"]), is_named(("1", "2"), ["a", "1", "2"])
    (True, False)
    """
    fields = {field.strip() for field in first}
    texts = [choice.strip() for choice in wanted if isinstance(choice, str)]
    return any(text in fields and text not in map(str, range(len(first))) for text in texts)


def refuse_not_numbers(where: object, columns: Sequence[tuple[str, str]], mend: str) -> None:
    """Refuse columns, given as (name, type), that hold no numbers."""
    if columns:
        shown = listed([f"{name!r} ({kind})" for name, kind in columns])
        raise InputError(f"{where}: expected columns of numbers, got {shown}; {mend}")


def refuse_nulls(where: object, nulls: Mapping[str, int]) -> None:
    """Refuse missing values, counted by column."""
    found = [f"{count} in {name!r}" for name, count in nulls.items() if count]
    if found:
        raise InputError(f"{where}: expected complete columns, got nulls: {listed(found)}; fill or drop them")


def _split(text: str) -> list[str]:
    try:
        return [part.strip() for part in next(csv.reader([text], skipinitialspace=True, strict=True), [])]
    except csv.Error:
        return []


def _is_choice(choice: Any) -> bool:
    if isinstance(choice, str):
        return bool(choice.strip())
    return hasattr(choice, "__index__") and not isinstance(choice, bool)


def _places(where: object, choice: str | int, named: Mapping[str, list[int]], count: int) -> range | list[int]:
    if isinstance(choice, int):
        return _range(where, str(choice), choice, choice, count)
    found = named.get(choice.strip(), [])
    if len(found) > 1:
        raise InputError(f"{where}: {len(found)} columns are called {choice!r}; choose by number, from 0")
    numbers = _NUMBERS.fullmatch(choice.strip())
    if found or numbers is None:
        return found or _no_such_column(where, choice, named, count)
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    return _range(where, choice, first, last, count)


def _range(where: object, choice: str, first: int, last: int, count: int) -> range:
    if first > last:
        raise InputError(f"{where}: expected a range such as {last}-{first}, got {choice}, which runs backwards")
    if not 0 <= first <= last < count:
        raise InputError(f"{where}: expected columns from 0 to {count - 1}, got {choice}")
    return range(first, last + 1)


def _no_such_column(where: object, choice: str, named: Mapping[str, list[int]], count: int) -> list[int]:
    if not named:
        raise NoSuchColumn(f"{where}: its columns have no names; choose by number, 0 to {count - 1}, got {choice!r}")
    found = listed([repr(name) for name in named])
    raise NoSuchColumn(f"{where}: expected a column called {choice!r}, got {found}{separated_by(list(named))}")


def _shown(place: int, names: Sequence[str] | None) -> str:
    return f"column {place}" if names is None else repr(names[place])


def listed(words: Sequence[str], most: int = _MOST_NAMES) -> str:
    """The words, cut short where there are many.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


def separated_by(fields: Sequence[str]) -> str:
    """What to add to a refusal where a line's only field looks like several.

    >>> separated_by(["a;b"]), separated_by(["a", "b"])
    ("; separated by ';'?", '')
    """
    marks = [said for mark, said in _SEPARATORS.items() if len(fields) == 1 and mark in fields[0].strip()]
    return f"; separated by {marks[0]}?" if marks else ""
