"""Densities from the libraries people use, each recognised without importing its library.

An adapter is a function ``adapt(value, dim)`` that returns a `Density` if the value is of its library, None if it
is not, and raises `InputError` in one line if it is but cannot be used. It looks its library up in ``sys.modules``:
an object of a library that is not loaded cannot exist.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relfit.compute.rows import LazyRows
from relfit.data.adapters import functions, numpyro, pymc, scipy_stats, sklearn, stan, torch
from relfit.data.models import Density, Sample
from relfit.util.errors import InputError

_ADAPTERS = (
    sklearn.adapt,
    scipy_stats.adapt,
    stan.adapt,
    pymc.adapt,
    numpyro.adapt,
    torch.adapt,
    functions.adapt_jax,
    functions.adapt_object,
)


def adapt(value: Any, dim: int) -> Density | None:
    """The value as a density on R^dim, or None if no adapter knows it.

    >>> from scipy import stats
    >>> density = adapt(stats.norm(1.0, 2.0), dim=1)
    >>> density.scores(np.array([[5.0]]))
    array([[-1.]])
    >>> adapt(np.ones((3, 2)), dim=2) is None
    True
    """
    if isinstance(value, Density):
        return _checked(value, dim)
    if value is None or isinstance(value, Sample | LazyRows | np.ndarray | str | list | tuple | dict):
        return None
    for recognise in _ADAPTERS:
        density = recognise(value, dim)
        if density is not None:
            return _checked(density, dim)
    return None


def _checked(density: Density, dim: int) -> Density:
    if density.dim not in (None, dim):
        raise InputError(f"expected dimension {dim} like the data, got {density.dim}")
    return density
