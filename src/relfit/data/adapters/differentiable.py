"""Models that their libraries differentiate: distributions of torch and NumPyro, zuko flows,
modules and jitted functions; Bayesian models of Stan (pystan, BridgeStan) and PyMC.

NumPyro copied the interface of torch's distributions, so that `_distribution` serves both.
Bayesian models are densities of their unconstrained parameters, the Jacobian included.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np

from relfit.data.autodiff import gradient, is_jax_log_density, values
from relfit.data.models import Density, Draw
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, loaded

# Distributions of NumPyro whose log_prob is not that of a density, and supports of fewer
# dimensions than columns.
_NOT_NORMALISED = ("ImproperUniform", "Delta", "MaskedDistribution", "Unit")
_SURFACES = ("simplex", "sphere", "zerosum")


def torch_density(value: Any, dim: int) -> Density | None:
    """A torch distribution, a zuko or nflows flow or a module with ``log_prob(x)`` as a
    density; None for other values.

    Each is called in its own dtype and on its own device.
    """
    name = type(value).__name__
    if is_instance(value, "torch.distributions", "Distribution"):
        return _distribution(lambda: value, dim, "torch")
    if is_instance(value, "zuko.lazy", "LazyDistribution"):
        flow = _distribution(value, dim, "torch")
        try:
            flow.log_probs(np.zeros((2, dim)))
        except InputError as error:
            raise InputError(
                f"{name}: expected a flow without context; if it needs one, give flow(c) "
                f"({error})"
            ) from None
        return flow
    if not is_instance(value, "torch.nn", "Module"):
        return None
    if not callable(getattr(value, "log_prob", None)):
        advice = "say what its output is with Density(log_prob=module) or Density(score=module)"
        raise InputError(
            f"{name}: expected a torch module with log_prob(x), got one without; {advice}"
        )
    # Flows of nflows are modules; of other modules nobody knows whether they are densities or
    # energies.
    normalised = (
        True if is_instance(value, "nflows.distributions.base", "Distribution") else None
    )
    return Density(log_prob=value.log_prob, autodiff="torch", normalised=normalised)


def torch_sampler(value: Any) -> Draw | None:
    """Draws from a torch distribution or a zuko flow; torch's own random state is left as it
    was.
    """
    is_flow = is_instance(value, "zuko.lazy", "LazyDistribution")
    if not is_flow and not is_instance(value, "torch.distributions", "Distribution"):
        return None

    def draw(n: int, rng: np.random.Generator) -> Any:
        torch = loaded("torch")
        distribution = value() if is_flow else value
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(int(rng.integers(2**63)))
            return distribution.sample((n,)).reshape(n, -1)

    return draw


def jax_density(value: Any, dim: int) -> Density | None:
    """A NumPyro distribution, or a jitted function (n, d) → (n,) or (d,) → (), as a density;
    None for any other value.

    Other functions are ambiguous until they are wrapped: ``Density(log_prob=f,
    autodiff="jax")``.
    """
    if is_instance(value, "numpyro.distributions", "Distribution"):
        return _distribution(lambda: value, dim, "jax")
    if is_instance(value, "jax.stages", "Wrapped") and is_jax_log_density(value, dim):
        return Density(log_prob=value, autodiff="jax")
    return None


def jax_sampler(value: Any) -> Draw | None:
    """Draws from a NumPyro distribution."""
    if not is_instance(value, "numpyro.distributions", "Distribution"):
        return None

    def draw(n: int, rng: np.random.Generator) -> Any:
        key = loaded("jax").random.PRNGKey(int(rng.integers(2**31)))
        return np.asarray(value.sample(key, (n,))).reshape(n, -1)

    return draw


def _distribution(make: Callable[[], Any], dim: int, library: str) -> Density:
    """The density of a torch or NumPyro distribution, whose functions are called inside its
    support only.

    Outside the support log p is −inf and the score NaN; the libraries themselves raise
    there, or evaluate the formula. The distribution is made anew for each call, so that the
    parameters of a flow are those of evaluation mode.
    """
    example = make()
    name = type(example).__name__
    batch = tuple(example.batch_shape)
    event = tuple(example.event_shape)
    single = not event and batch in ((), (1,)) and dim == 1
    if not single and (batch or event != (dim,)):
        wrapper = "torch" if library == "torch" else "numpyro"
        independent = f"; wrap it as {wrapper}.distributions.Independent(distribution, 1)"
        raise InputError(
            f"{name}: expected one distribution of {dim} columns like the data, got batch "
            f"shape {batch} and event "
            f"shape {event}{independent if batch and not event else ''}"
        )

    def log_prob(x: Any) -> Any:
        log_probs = make().log_prob(x)
        return log_probs[:, 0] if single else log_probs

    support = _support(example)
    normalised = _normalised(example)
    if support is None:
        return Density(log_prob=log_prob, dim=dim, autodiff=library, normalised=normalised)
    if support.is_discrete:
        raise InputError(
            f"{name}: expected a continuous distribution, got a discrete one; "
            f"use samples and MMD"
        )
    inside = values(lambda x: _inside(make(), x), library)

    def restricted(
        function: Callable[[Array], Any], x: Array, shape: tuple[int, ...], fill: float
    ) -> Any:
        """The function at rows inside the support, `fill` at the others."""
        mask = np.asarray(inside(x), dtype=bool)
        if mask.all():
            return function(x)
        out = np.full(shape, fill)
        if mask.any():
            out[mask] = function(x[mask])
        return out

    is_real = _constraint(example) in ("real", "realvector")
    slope = gradient(log_prob, library)
    log_density = values(log_prob, library)
    return Density(
        lambda x: restricted(slope, x, x.shape, np.nan),
        lambda x: restricted(log_density, x, (len(x),), -np.inf),
        dim,
        normalised=normalised,
        # The declared support of a transformed distribution is that of the last transform.
        support="whole" if is_real and not hasattr(example, "transforms") else None,
    )


def _inside(distribution: Any, x: Any) -> Any:
    """(n,) True for rows in the support; what transforms leave of the support of their base
    is checked there.
    """
    inside = distribution.support.check(x).reshape(len(x), -1).all(-1)
    transforms = getattr(distribution, "transforms", ())
    if not transforms or not all(map(_is_elementwise, transforms)):
        return inside
    for transform in reversed(transforms):
        x = transform.inv(x)
    return inside & _inside(distribution.base_dist, x)


def _is_elementwise(transform: Any) -> bool:
    """True for an invertible transform of each column by itself."""
    return not transform.domain.event_dim and getattr(transform, "bijective", True)


def _normalised(distribution: Any) -> bool | None:
    """Whether exp(log_prob) integrates to 1 over all columns; None where that is not known,
    as on a simplex.
    """
    inner: Any = distribution
    while inner is not None:
        if type(inner).__name__ in _NOT_NORMALISED:
            return False
        inner = getattr(inner, "base_dist", None)
    return None if _constraint(distribution) in _SURFACES else True


def _support(distribution: Any) -> Any:
    """The constraint that a distribution declares as its support, if it does."""
    with suppress(NotImplementedError):
        return distribution.support
    return None


def _constraint(distribution: Any) -> str:
    """The name of that constraint."""
    constraint = _support(distribution)
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    return type(constraint).__name__.strip("_").lower()


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
