"""Stan models, through pystan or BridgeStan, on their unconstrained parameters (the Jacobian included)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from relfit.data.models import Density
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import loaded


def density(value: Any, dim: int) -> Density | None:
    """A ``stan.model.Model`` or ``bridgestan.StanModel`` as a density of rows of unconstrained parameters."""
    pystan, bridgestan = loaded("stan.model"), loaded("bridgestan")
    if pystan is not None and isinstance(value, pystan.Model):
        return _pystan(value, dim)
    if bridgestan is not None and isinstance(value, bridgestan.StanModel):
        return _bridgestan(value)
    return None


def _pystan(model: Any, dim: int) -> Density:
    _refuse_other_columns(model, dim)

    def score(x: Array) -> Array:
        return _by_row(lambda row: _call_pystan(model.grad_log_prob, row), x, np.full(dim, np.nan))

    def log_prob(x: Array) -> Array:
        return _by_row(lambda row: _call_pystan(model.log_prob, row), x, -np.inf)

    return Density(score, log_prob, dim)


def _bridgestan(model: Any) -> Density:
    dim = int(model.param_unc_num())

    def score(x: Array) -> Array:
        return _by_row(lambda row: model.log_density_gradient(row)[1], x, np.full(dim, np.nan))

    return Density(score, lambda x: _by_row(model.log_density, x, -np.inf), dim)


def _by_row(function: Callable[[Array], Any], x: Array, rejected: Any) -> Array:
    """The function applied row by row; `rejected` where Stan rejects the parameters, because the density is 0 there."""

    def one(row: Array) -> Any:
        try:
            return function(row)
        except RuntimeError:
            return rejected

    return np.array([one(row) for row in np.ascontiguousarray(x)], dtype=np.float64)


def _call_pystan(function: Callable[[list[float]], Any], row: Array) -> Any:
    """One call of pystan, refused where it would fail for reasons other than the row."""
    if threading.current_thread() is not threading.main_thread():
        # Stan keeps its derivatives in the memory of the thread that loaded it, and crashes the process in any other.
        raise InputError("Stan model: pystan works in the main thread only; call relfit from there")
    if _in_event_loop():
        raise InputError(
            "Stan model: pystan cannot run inside another event loop, such as a notebook's; "
            "install it with  pip install nest-asyncio  and run nest_asyncio.apply() first"
        )
    return function(row.tolist())


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return not hasattr(asyncio, "_nest_patched")


def _refuse_other_columns(model: Any, dim: int) -> None:
    try:
        _call_pystan(model.log_prob, np.zeros(dim))
    except RuntimeError as error:
        if "number of parameters" in str(error):
            names = ", ".join(model.param_names)
            raise InputError(
                f"Stan model: expected rows of its unconstrained parameters ({names}), got {dim} columns; "
                "model.unconstrain_pars turns draws into such rows"
            ) from None
