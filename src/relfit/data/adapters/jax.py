"""JAX: NumPyro distributions, and functions compiled by ``jax.jit`` that are log densities."""

from __future__ import annotations

from typing import Any

import numpy as np

from relfit.data.adapters.torch import distribution_density
from relfit.data.autodiff import is_jax_log_density
from relfit.data.models import Density, Draw
from relfit.util.libraries import loaded


def density(value: Any, dim: int) -> Density | None:
    """A NumPyro distribution, or a jitted function (n, d) → (n,) or (d,) → (), as a density; None for any other value.

    Other functions are ambiguous until they are wrapped: ``Density(log_prob=f, autodiff="jax")``.
    """
    if _is_distribution(value):
        return distribution_density(lambda: value, dim, "jax")
    jax = loaded("jax")
    if jax is None or not isinstance(value, jax.stages.Wrapped) or not is_jax_log_density(value, dim):
        return None
    return Density(log_prob=value, autodiff="jax")


def sampler(value: Any) -> Draw | None:
    """Draws from a NumPyro distribution."""
    if not _is_distribution(value):
        return None

    def draw(n: int, rng: np.random.Generator) -> Any:
        key = loaded("jax").random.PRNGKey(int(rng.integers(2**31)))
        return np.asarray(value.sample(key, (n,))).reshape(n, -1)

    return draw


def _is_distribution(value: Any) -> bool:
    distributions = loaded("numpyro.distributions")
    return distributions is not None and isinstance(value, distributions.Distribution)
