"""JAX: functions compiled by ``jax.jit`` that are log densities, by the shape of what they return."""

from __future__ import annotations

import sys
from typing import Any

from relfit.models import Density


def adapt(value: Any, dim: int) -> Density | None:
    """A jitted function (n, d) → (n,) or (d,) → () as a log density; None for anything else.

    Other functions are ambiguous until they are wrapped: ``Density(log_prob=f, autodiff="jax")``.
    """
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(value, jax.stages.Wrapped):
        return None
    from relfit.gradients.jax import is_log_density

    return Density(log_prob=value, autodiff="jax") if is_log_density(value, dim) else None
