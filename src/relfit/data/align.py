"""Columns that have names are compared by name: those of every model come in the order of the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from relfit.data.columns import listed, separated_by
from relfit.data.files import FileRows, as_file, read_names
from relfit.data.frames import frame_columns, frame_names
from relfit.data.models import Sample
from relfit.util.errors import InputError

Names = list[str]
Places = Sequence[int]

_MOST_NAMES = 3
_LONGEST_NAME = 40
_NO_CHOICE: Mapping[str | None, Places] = MappingProxyType({})


def aligned(
    reference: Any, models: Mapping[str, Any], data: Mapping[str | None, Places] = _NO_CHOICE
) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    """The reference and the models, columns of one name in one place, and a note on what had to be moved.

    Files with names, of which no columns were chosen, and frames have names; what has none is taken by position, and
    so are names that only count. Of the files in `data` (the reference by None) only those columns are taken.
    """
    given: dict[str | None, Any] = dict([(None, reference), *models.items()])
    names = {key: _names(value, data.get(key)) for key, value in given.items()}
    if names[None] is None:
        _refuse_two_orders(given, names)
    orders = {key: _order(key, value, names[key], names[None]) for key, value in given.items()}
    taken = {key: _taken(value, data.get(key), orders[key]) for key, value in given.items()}
    moved = [repr(key) for key, order in orders.items() if order is not None]
    note = f"columns of {listed(moved)} matched to those of the reference by name, not by position"
    return taken.pop(None), {name: taken[name] for name in models}, (note,) if moved else ()


def _names(value: Any, data: Places | None) -> Names | None:
    """The names of the columns that are data, None where they tell nothing: none there, chosen already, or repeated."""
    if isinstance(value, Sample):
        return _names(value.x, data)
    file = as_file(value)
    if file is not None and file.columns is not None:
        return None
    found = frame_names(value) if file is None else read_names(file.source)
    if found is None:
        return None
    found = [name.strip() for name in (found if data is None else [found[k] for k in data])]
    return found if len(set(found)) == len(found) else None


def _order(key: str | None, value: Any, names: Names | None, wanted: Names | None) -> Places | None:
    """Where each wanted column is among the names; None where all stay in their places."""
    if names is None or wanted is None or names == wanted:
        return None
    if set(names) == set(wanted):
        place = {name: k for k, name in enumerate(names)}
        return [place[name] for name in wanted]
    if _only_counts(names) or _only_counts(wanted):
        return None
    raise _different(key, value, names, wanted)


def _different(key: str | None, value: Any, names: Names, wanted: Names) -> InputError:
    """The refusal of columns with other names than the reference's."""
    here, there = set(names), set(wanted)
    missing, extra = [name for name in wanted if name not in here], [name for name in names if name not in there]
    said = ", ".join(f"{_shown(found)} {what}" for what, found in (("missing", missing), ("extra", extra)) if found)
    said += separated_by(names) or separated_by(wanted)
    mend = "choose some (--columns, columns=), or save without names" if as_file(value) else "or give bare arrays"
    return InputError(f"{_where(key, value)}: expected the reference's columns, got {said}; rename them, {mend}")


def _only_counts(names: Names) -> bool:
    """Whether the names are those that pandas or polars give to columns that have none."""
    return any(names == [f"{word}{k}" for k in range(len(names))] for word in ("", "column_"))


def _refuse_two_orders(given: Mapping[str | None, Any], names: Mapping[str | None, Names | None]) -> None:
    """By position one of two models with the same names in different orders is certainly wrong."""
    named = {key: found for key, found in names.items() if found is not None}
    first = next(iter(named), None)
    for key, found in named.items():
        if found != named[first] and set(found) == set(named[first]):
            one, other = _where(first, given[first]), _where(key, given[key])
            raise InputError(
                f"{other}: has the columns of {one} in another order, and the reference has no names to tell which is "
                "right; give the reference names, or all models one order"
            )


def _taken(value: Any, data: Places | None, order: Places | None) -> Any:
    places = data if order is None else order if data is None else [data[k] for k in order]
    if places is None:
        return value
    if isinstance(value, Sample):
        return Sample(_taken(value.x, data, order))
    file = as_file(value)
    return frame_columns(value, places) if file is None else FileRows(file.source, places)


def _where(key: str | None, value: Any) -> str:
    file = as_file(value)
    if file is not None:
        return file.source
    return "reference" if key is None else f"model {key!r}"


def _shown(names: Names) -> str:
    return listed([repr(name[:_LONGEST_NAME]) for name in names], _MOST_NAMES)
