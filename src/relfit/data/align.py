"""Columns that have names are matched by name: those of every model are put into the order of the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from relfit.data.files import FileRows, as_file, read_names
from relfit.data.files.base import separator_hint
from relfit.data.frames import frame_columns, frame_names
from relfit.data.models import Sample
from relfit.util.errors import InputError
from relfit.util.text import listed

Names = list[str]
Positions = Sequence[int]

_MOST_NAMES = 4
_LONGEST_NAME = 40
_ALL_COLUMNS: Mapping[str | None, Positions] = MappingProxyType({})


def aligned(
    reference: Any, models: Mapping[str, Any], columns: Mapping[str | None, Positions] = _ALL_COLUMNS
) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    """The reference and the models with columns of the same name in the same position, and a note if any were moved.

    Data frames have names, and so have files with a header unless columns of them were selected. Anything else is
    matched by position, and so are names that only count. `columns` gives, for some files (the reference under None),
    the positions of the columns to use.
    """
    values: dict[str | None, Any] = dict([(None, reference), *models.items()])
    if all(isinstance(value, np.ndarray) for value in values.values()):
        return reference, dict(models), ()
    names = {key: _names(value, columns.get(key)) for key, value in values.items()}
    if names[None] is None:
        _refuse_two_orders(values, names)
    orders = {key: _order(key, value, names[key], names[None]) for key, value in values.items()}
    taken = {key: _taken(value, columns.get(key), orders[key]) for key, value in values.items()}
    moved = [str(key) for key, order in orders.items() if order is not None]
    reference, models = taken.pop(None), {name: taken[name] for name in models}
    if not moved:
        return reference, models, ()
    shown = listed(moved, most=8, quote=repr)
    return reference, models, (f"columns of {shown} were matched to those of the reference by name, not by position",)


def _names(value: Any, columns: Positions | None) -> Names | None:
    """The names of the columns in use; None if they have none, if some repeat, or if a file's columns were selected."""
    if isinstance(value, Sample):
        return _names(value.x, columns)
    file = as_file(value)
    if file is not None and file.columns is not None:
        return None
    names = frame_names(value) if file is None else read_names(file.source)
    if names is None:
        return None
    names = [name.strip() for name in (names if columns is None else [names[k] for k in columns])]
    return names if len(set(names)) == len(names) else None


def _order(key: str | None, value: Any, names: Names | None, expected: Names | None) -> Positions | None:
    """The position of each expected name among the names; None if all columns stay where they are."""
    if names is None or expected is None or names == expected:
        return None
    if set(names) == set(expected):
        position = {name: k for k, name in enumerate(names)}
        return [position[name] for name in expected]
    if _only_counts(names) or _only_counts(expected):
        return None
    raise _other_names(key, value, names, expected)


def _other_names(key: str | None, value: Any, names: Names, expected: Names) -> InputError:
    """The error for columns whose names are not those of the reference."""
    missing, extra = [name for name in expected if name not in names], [name for name in names if name not in expected]
    differences = ", ".join(f"{_shown(some)} {what}" for what, some in (("missing", missing), ("extra", extra)) if some)
    hint = separator_hint(names) or separator_hint(expected)
    advice = "select columns (--columns, columns=), or save without names" if as_file(value) else "or give plain arrays"
    return InputError(
        f"{_where(key, value)}: expected the reference's columns, got {differences}{hint}; rename them, {advice}"
    )


def _only_counts(names: Names) -> bool:
    """True for the names that pandas and polars give to columns without names."""
    return any(names == [f"{word}{k}" for k in range(len(names))] for word in ("", "column_"))


def _refuse_two_orders(values: Mapping[str | None, Any], names: Mapping[str | None, Names | None]) -> None:
    """Refuse models with the same names in different orders: matched by position, one of them is certainly wrong."""
    named = {key: columns for key, columns in names.items() if columns is not None}
    first = next(iter(named), None)
    for key, columns in named.items():
        if columns != named[first] and set(columns) == set(named[first]):
            raise InputError(
                f"{_where(key, values[key])}: has the columns of {_where(first, values[first])} in another order, and "
                "the reference has no names to show which is right; give the reference names, or all models one order"
            )


def _taken(value: Any, columns: Positions | None, order: Positions | None) -> Any:
    positions = columns if order is None else order if columns is None else [columns[k] for k in order]
    if positions is None:
        return value
    if isinstance(value, Sample):
        return Sample(_taken(value.x, columns, order))
    file = as_file(value)
    return frame_columns(value, positions) if file is None else FileRows(file.source, positions)


def _where(key: str | None, value: Any) -> str:
    file = as_file(value)
    if file is not None:
        return file.source
    return "reference" if key is None else f"model {key!r}"


def _shown(names: Names) -> str:
    return listed([name[:_LONGEST_NAME] for name in names], most=_MOST_NAMES, quote=repr)
