"""Stan models, through pystan or BridgeStan, on their unconstrained parameters (the Jacobian included)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.models import Density

Array = NDArray[np.float64]


def adapt(value: Any, dim: int) -> Density | None:
    """A ``stan.model.Model`` or ``bridgestan.StanModel`` as a density of rows of unconstrained parameters."""
    pystan, bridgestan = sys.modules.get("stan.model"), sys.modules.get("bridgestan")
    if pystan is not None and isinstance(value, pystan.Model):
        return _pystan(value, dim)
    if bridgestan is not None and isinstance(value, bridgestan.StanModel):
        return _bridgestan(value)
    return None


def _pystan(model: Any, dim: int) -> Density:
    _check_dimension(model, dim)

    def score(x: Array) -> Array:
        return _outside_any_loop(
            lambda: _by_row(lambda row: model.grad_log_prob(row.tolist()), x, np.full(dim, np.nan))
        )

    def log_prob(x: Array) -> Array:
        return _outside_any_loop(lambda: _by_row(lambda row: model.log_prob(row.tolist()), x, -np.inf))

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


def _outside_any_loop(function: Callable[[], Array]) -> Array:
    # pystan starts an event loop for each call, which a notebook's own loop forbids in its thread.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def _check_dimension(model: Any, dim: int) -> None:
    def attempt() -> Array:
        try:
            model.log_prob([0.0] * dim)
        except RuntimeError as error:
            if "number of parameters" in str(error):
                names = ", ".join(model.param_names)
                raise InputError(
                    f"Stan model: expected rows of its unconstrained parameters ({names}), got {dim} columns; "
                    "model.unconstrain_pars turns draws into such rows"
                ) from None
        return np.zeros(0)

    _outside_any_loop(attempt)
