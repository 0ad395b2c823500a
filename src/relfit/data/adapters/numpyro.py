"""NumPyro distributions, through ``jax.grad``."""

from __future__ import annotations

import sys
from typing import Any

from relfit.data.adapters.supports import columns, within
from relfit.data.autodiff import values
from relfit.data.models import Density
from relfit.util.errors import InputError


def adapt(value: Any, dim: int) -> Density | None:
    """A numpyro.distributions.Distribution as a density; None for anything else."""
    distributions = sys.modules.get("numpyro.distributions")
    if distributions is None or not isinstance(value, distributions.Distribution):
        return None
    name = type(value).__name__
    if value.support is not None and value.support.is_discrete:
        raise InputError(f"{name}: expected a continuous distribution, got a discrete one; use samples and MMD")
    flat = columns(name, value.batch_shape, value.event_shape, dim, "numpyro.distributions.Independent")

    def log_prob(x: Any) -> Any:
        out = value.log_prob(x)
        return out[:, 0] if flat else out

    def inside(x: Any) -> Any:
        ok = value.support(x)
        return ok[:, 0] if flat else ok

    if value.support is None:
        return Density(log_prob=log_prob, dim=dim, autodiff="jax")
    return within(values(inside, "jax"), log_prob, "jax", dim)
