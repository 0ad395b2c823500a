"""Stan models, through pystan or BridgeStan, on their unconstrained parameters (the Jacobian included)."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from relfit.data.models import Density
from relfit.util.arrays import Array
from relfit.util.errors import InputError


def adapt(value: Any, dim: int) -> Density | None:
    """A ``stan.model.Model`` or ``bridgestan.StanModel`` as a density of rows of unconstrained parameters."""
    pystan, bridgestan = sys.modules.get("stan.model"), sys.modules.get("bridgestan")
    if pystan is not None and isinstance(value, pystan.Model):
        return _pystan(value, dim)
    if bridgestan is not None and isinstance(value, bridgestan.StanModel):
        return _bridgestan(value)
    return None


def _pystan(model: Any, dim: int) -> Density:
    _refuse_other_columns(model, dim)

    def score(x: Array) -> Array:
        return _by_row(lambda row: _asked(model.grad_log_prob, row), x, np.full(dim, np.nan))

    def log_prob(x: Array) -> Array:
        return _by_row(lambda row: _asked(model.log_prob, row), x, -np.inf)

    return Density(score, log_prob, dim)


def _bridgestan(model: Any) -> Density:
    dim = int(model.param_unc_num())

    def score(x: Array) -> Array:
        return _by_row(lambda row: model.log_density_gradient(row)[1], x, np.full(dim, np.nan))

    return Density(score, lambda x: _by_row(model.log_density, x, -np.inf), dim)


def _by_row(function: Callable[[Array], Any], x: Array, rejected: Any) -> Array:
    """The function row by row; where Stan rejects the parameters the density is 0."""

    def one(row: Array) -> Any:
        try:
            return function(row)
        except RuntimeError:
            return rejected

    return np.array([one(row) for row in np.ascontiguousarray(x)], dtype=np.float64)


def _asked(function: Callable[[list[float]], Any], row: Array) -> Any:
    """One call of pystan, refused where it would fail for reasons that are not in the row."""
    if threading.current_thread() is not threading.main_thread():
        # Stan keeps its derivatives in memory of the thread it was loaded in, and elsewhere ends the process.
        raise InputError("Stan model: pystan works in the main thread only; call relfit from there")
    if _inside_a_loop():
        raise InputError(
            "Stan model: pystan cannot run inside another event loop, such as a notebook's; "
            "pip install nest-asyncio and run nest_asyncio.apply() first"
        )
    return function(row.tolist())


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return not hasattr(asyncio, "_nest_patched")


def _refuse_other_columns(model: Any, dim: int) -> None:
    try:
        _asked(model.log_prob, np.zeros(dim))
    except RuntimeError as error:
        if "number of parameters" in str(error):
            names = ", ".join(model.param_names)
            raise InputError(
                f"Stan model: expected rows of its unconstrained parameters ({names}), got {dim} columns; "
                "model.unconstrain_pars turns draws into such rows"
            ) from None
