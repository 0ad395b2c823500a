"""PyTorch: distributions, zuko flows and modules with log_prob, in their own dtype and on their own device.

NumPyro copied the interface of torch's distributions, so that `distribution_density` serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relfit.data.autodiff import gradient, values
from relfit.data.models import Density, Draw
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import loaded


def density(value: Any, dim: int) -> Density | None:
    """A torch distribution, a module with ``log_prob(x)`` or a zuko flow as a density; None for any other value."""
    torch, zuko = loaded("torch"), loaded("zuko")
    if torch is None:
        return None
    if isinstance(value, torch.distributions.Distribution):
        return distribution_density(lambda: value, dim, "torch")
    if zuko is not None and isinstance(value, zuko.lazy.LazyDistribution):
        return _flow(value, dim)
    return _module(value) if isinstance(value, torch.nn.Module) else None


def sampler(value: Any) -> Draw | None:
    """Draws from a torch distribution or a zuko flow; torch's own random state is left as it was."""
    torch, zuko = loaded("torch"), loaded("zuko")
    if torch is None:
        return None
    is_flow = zuko is not None and isinstance(value, zuko.lazy.LazyDistribution)
    if not is_flow and not isinstance(value, torch.distributions.Distribution):
        return None

    def draw(n: int, rng: np.random.Generator) -> Any:
        distribution = value() if is_flow else value
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(int(rng.integers(2**63)))
            return distribution.sample((n,)).reshape(n, -1)

    return draw


def _module(value: Any) -> Density:
    if not callable(getattr(value, "log_prob", None)):
        raise InputError(
            f"{type(value).__name__}: expected a torch module with log_prob(x), got one without; say what its output "
            "is with Density(log_prob=module) or Density(score=module)"
        )
    return Density(log_prob=value.log_prob, autodiff="torch")


def _flow(flow: Any, dim: int) -> Density:
    flow_density = distribution_density(flow, dim, "torch")
    try:
        flow_density.log_probs(np.zeros((2, dim)))
    except InputError as error:
        raise InputError(
            f"{type(flow).__name__}: expected a flow without context; if it needs one, give flow(c) ({error})"
        ) from None
    return flow_density


def distribution_density(make: Callable[[], Any], dim: int, library: str) -> Density:
    """The density of a torch or NumPyro distribution, whose functions are called inside its support only.

    Outside the support log p is −inf and the score NaN; the libraries themselves raise there, or evaluate the formula.
    The distribution is made anew for each call, so that the parameters of a flow are those of evaluation mode.
    """
    example = make()
    name, batch, event = type(example).__name__, tuple(example.batch_shape), tuple(example.event_shape)
    single = not event and batch in ((), (1,)) and dim == 1
    if not single and (batch or event != (dim,)):
        wrapper = "torch" if library == "torch" else "numpyro"
        independent = f"; {wrapper}.distributions.Independent(distribution, 1) makes the columns independent"
        raise InputError(
            f"{name}: expected one distribution of {dim} columns like the data, got batch shape {batch} and event "
            f"shape {event}{independent if batch and not event else ''}"
        )

    def log_prob(x: Any) -> Any:
        log_probs = make().log_prob(x)
        return log_probs[:, 0] if single else log_probs

    def is_inside(x: Any) -> Any:
        return make().support.check(x).reshape(len(x), -1).all(-1)

    support = _support(example)
    if support is None:
        return Density(log_prob=log_prob, dim=dim, autodiff=library)
    if support.is_discrete:
        raise InputError(f"{name}: expected a continuous distribution, got a discrete one; use samples and MMD")
    inside = values(is_inside, library)
    score = _restricted(inside, gradient(log_prob, library), np.nan)
    return Density(score, _restricted(inside, values(log_prob, library), -np.inf), dim)


def _restricted(
    inside: Callable[[Array], Any], function: Callable[[Array], Any], fill: float
) -> Callable[[Array], Any]:
    """The function at rows inside the support, `fill` at the others."""

    def call(x: Array) -> Any:
        mask = np.asarray(inside(x), dtype=bool)
        if mask.all():
            return function(x)
        out = np.full(x.shape if np.isnan(fill) else len(x), fill)
        if mask.any():
            out[mask] = function(x[mask])
        return out

    return call


def _support(distribution: Any) -> Any:
    try:
        return distribution.support
    except NotImplementedError:
        return None
