"""Draws of Bayesian models as ArviZ holds them: InferenceData, xarray's DataTree, or the
group `posterior` itself.

They are told by the names of their types: the classes differ from version to version of
these libraries.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.text import listed, visible

_WHOLE = ("InferenceData", "DataTree")
_GROUPS = ("Dataset", "DataTree")
_ORDER = ("chain", "draw")
Draws = tuple[list[str], Array]


def is_inference_data(value: Any) -> bool:
    """True for InferenceData or a DataTree, which hold groups such as `posterior` and
    `log_likelihood`.
    """
    return type(value).__name__ in _WHOLE and (
        hasattr(value, "posterior") or hasattr(value, "log_likelihood")
    )


def with_draws(values: Mapping[Any, Any]) -> tuple[dict[Any, Any], tuple[str, ...]]:
    """The reference (None) and the models, posteriors as rows with their columns in one
    order, and a note on these.

    There is no note if all columns are known by their names.
    """
    found = dict(values)
    posteriors = []
    first: tuple[str, list[str]] | None = None
    for key, value in values.items():
        argument = "reference" if key is None else f"model {key!r}"
        draws = _draws(argument, value)
        if draws is None:
            continue
        columns, rows = draws
        if first is None:
            first = argument, columns
        before, expected = first
        if sorted(columns) != sorted(expected):
            raise InputError(
                f"{argument}: expected the variables of {before} ({_shown(expected)}), got "
                f"{_shown(columns)}; select "
                "them, such as by posterior[['a', 'b']]"
            )
        found[key] = rows[:, [columns.index(name) for name in expected]]
        posteriors.append(key)
    if first is None or None in posteriors:
        return found, ()
    names = listed(list(map(str, posteriors)))
    return found, (
        f"the rows of {names} are posterior draws with the columns {_shown(first[1])}, in "
        f"this order; the reference "
        "must have the same columns, on the same scale",
    )


def _draws(argument: str, value: Any) -> Draws | None:
    """The names of the columns, and the draws of all chains as rows; None for anything else."""
    if is_inference_data(value):
        if not hasattr(value, "posterior"):
            raise InputError(
                f"{argument}: expected a group 'posterior', got "
                f"{type(value).__name__} without it"
            )
        value = value.posterior
    elif type(value).__name__ == "DataArray" and set(_ORDER) <= set(value.dims):
        value = value.to_dataset(name=value.name or "x")
    if type(value).__name__ not in _GROUPS or not hasattr(value, "data_vars"):
        return None
    columns: list[str] = []
    blocks: list[Array] = []
    for name, variable in value.data_vars.items():
        if not set(_ORDER) <= set(variable.dims):
            got = (
                listed([str(dim) for dim in variable.dims], quote=repr)
                if variable.dims
                else "none"
            )
            raise InputError(
                f"{argument}: expected the dimensions 'chain' and 'draw' of "
                f"{str(name)!r}, got {got}"
            )
        cells = np.asarray(variable.transpose(*_ORDER, ...).to_numpy())
        if cells.dtype.kind not in "biuf":
            raise InputError(
                f"{argument}: expected numbers in {str(name)!r}, got dtype {cells.dtype}"
            )
        chains, draws, *shape = cells.shape
        places = itertools.product(*map(range, shape))
        columns += [
            f"{name}[{', '.join(map(str, place))}]" if place else str(name) for place in places
        ]
        blocks.append(cells.reshape(chains * draws, -1).astype(np.float64))
    if not blocks:
        raise InputError(f"{argument}: expected variables in the posterior, got none")
    return columns, np.hstack(blocks)


def _shown(columns: list[str]) -> str:
    return listed([visible(name) for name in columns], most=6, quote=str)
