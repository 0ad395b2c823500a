"""PyMC models, through their compiled log density and gradient, on their unconstrained value variables."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from relfit.data.models import Density
from relfit.util.arrays import Array
from relfit.util.libraries import loaded


def density(value: Any, dim: int) -> Density | None:
    """A ``pymc.Model`` as a density of its value variables, flattened in the order of ``model.value_vars``."""
    pymc = loaded("pymc")
    if pymc is None or not isinstance(value, pymc.Model):
        return None
    size = sum(np.size(part) for part in value.initial_point().values())

    @cache
    def compiled() -> Any:
        function = value.logp_dlogp_function(ravel_inputs=True)
        function.set_extra_values({})
        return function

    def score(x: Array) -> Array:
        return np.array([compiled()(row)[1] for row in x], dtype=np.float64)

    def log_prob(x: Array) -> Array:
        return np.array([float(compiled()(row)[0]) for row in x])

    return Density(score, log_prob, int(size))
