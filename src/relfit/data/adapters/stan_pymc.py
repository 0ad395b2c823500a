"""Bayesian models of Stan (pystan, BridgeStan) and PyMC, on their unconstrained parameters,
the Jacobian included.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from relfit.data.models import Density
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance


def stan_density(value: Any, dim: int) -> Density | None:
    """A ``stan.model.Model`` or ``bridgestan.StanModel`` as a density of rows of
    unconstrained parameters.

    pystan leaves out constants of ``~`` statements.
    """
    if is_instance(value, "stan.model", "Model"):
        try:
            _call_pystan(value.log_prob, np.zeros(dim))
        except RuntimeError as error:
            if "number of parameters" in str(error):
                raise InputError(
                    f"Stan model: expected rows of its unconstrained parameters "
                    f"({', '.join(value.param_names)}), got "
                    f"{dim} columns; model.unconstrain_pars turns draws into such rows"
                ) from None
        return _by_row(
            partial(_call_pystan, value.grad_log_prob),
            partial(_call_pystan, value.log_prob),
            dim,
            False,
        )
    if is_instance(value, "bridgestan", "StanModel"):
        # Every constant that the program has is kept; whether the whole then integrates to 1
        # only its author knows.
        log_density = partial(value.log_density, propto=False)
        return _by_row(
            lambda row: value.log_density_gradient(row)[1],
            log_density,
            int(value.param_unc_num()),
            None,
        )
    return None


def _by_row(
    score: Callable[[Array], Any],
    log_prob: Callable[[Array], Any],
    dim: int,
    normalised: bool | None,
) -> Density:
    """The density of functions of one row. Stan raises where it rejects the parameters: the
    density is 0 there.
    """

    def call(function: Callable[[Array], Any], x: Array, rejected: Any) -> Array:
        results = []
        for row in np.ascontiguousarray(x):
            try:
                results.append(function(row))
            except RuntimeError:
                results.append(rejected)
        return np.array(results, dtype=np.float64)

    return Density(
        lambda x: call(score, x, np.full(dim, np.nan)),
        lambda x: call(log_prob, x, -np.inf),
        dim,
        normalised=normalised,
    )


def _call_pystan(function: Callable[[list[float]], Any], row: Array) -> Any:
    """One call of pystan, refused where it would fail for reasons other than the row."""
    if threading.current_thread() is not threading.main_thread():
        # Stan keeps its derivatives in the memory of the thread that loaded it, and crashes the
        # process in any other.
        raise InputError(
            "Stan model: pystan works in the main thread only; call relfit from there"
        )
    if asyncio._get_running_loop() is not None and not hasattr(asyncio, "_nest_patched"):
        advice = "install it with  pip install nest-asyncio  and run nest_asyncio.apply() first"
        raise InputError(
            f"Stan model: pystan cannot run inside another event loop, such as a "
            f"notebook's; {advice}"
        )
    return function(row.tolist())


def pymc_density(value: Any, dim: int) -> Density | None:
    """A ``pymc.Model`` as a density of its value variables, flattened in the order of
    ``model.value_vars``.
    """
    if not is_instance(value, "pymc", "Model"):
        return None

    @cache
    def compiled() -> Any:
        function = value.logp_dlogp_function(ravel_inputs=True)
        function.set_extra_values({})
        return function

    return Density(
        lambda x: np.array([compiled()(row)[1] for row in x], dtype=np.float64),
        lambda x: np.array([float(compiled()(row)[0]) for row in x]),
        int(sum(np.size(part) for part in value.initial_point().values())),
    )
