"""Densities and samplers from the libraries people use, recognised without importing these
libraries.

To add a library, write functions for its objects in this folder, and add them to `DENSITIES`
and `SAMPLERS`. They look their library up with `relfit.util.libraries.loaded`: if it has not
been imported, no object of it can exist.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from relfit.data.adapters.differentiable import (
    jax_density,
    jax_sampler,
    pymc_density,
    stan_density,
    torch_density,
    torch_sampler,
)
from relfit.data.adapters.scipy_sklearn import (
    scipy_density,
    scipy_mass,
    scipy_sampler,
    sklearn_bounded,
    sklearn_density,
    sklearn_sampler,
)
from relfit.data.autodiff import LIBRARIES, gradient
from relfit.data.models import Density
from relfit.util.errors import InputError
from relfit.util.libraries import loaded

# From a value and the number of columns to a density; None for a value of another library. An
# object of the library that cannot be used is refused in one line.
DENSITIES = (
    sklearn_density,
    scipy_density,
    stan_density,
    pymc_density,
    jax_density,
    torch_density,
)
# The same for densities that have no score, and which only their log densities can compare.
UNSMOOTH = (scipy_mass, sklearn_bounded)
# From a value to the function that draws rows from it; None for a value of another library.
SAMPLERS = (sklearn_sampler, scipy_sampler, jax_sampler, torch_sampler)


def adapt(value: Any, dim: int, *, likelihood: bool = False) -> Density | None:
    """The value as a density on R^dim, or None if it is not recognised; for the `likelihood`
    it needs no score.

    >>> from scipy import stats
    >>> density = adapt(stats.norm(1.0, 2.0), dim=1)
    >>> density.scores(np.array([[5.0]]))
    array([[-1.]])
    >>> adapt(np.ones((3, 2)), dim=2) is None
    True
    """
    if value is None or isinstance(value, np.ndarray | str | list | tuple | dict):
        return None
    recognisers = (*(UNSMOOTH if likelihood else ()), *DENSITIES, _log_prob_object)
    found = (recognise(value, dim) for recognise in recognisers)
    density = value if isinstance(value, Density) else next(filter(None, found), None)
    if density is not None and density.dim not in (None, dim):
        raise InputError(f"expected dimension {dim} like the data, got {density.dim}")
    return density


def _log_prob_object(value: Any, dim: int) -> Density | None:
    """Any object with a method ``log_prob``, differentiated by torch or JAX if it takes
    their arrays.

    A bare function is not recognised: it may be a log density, a score or a sampler, and
    `Density` says which.
    """
    log_prob = getattr(value, "log_prob", None)
    if not callable(log_prob):
        return None
    for library in LIBRARIES:
        if loaded(library) is not None:
            with suppress(
                Exception
            ):  # functions may raise anything for arrays they were not written for
                gradient(log_prob, library)(np.zeros((2, dim)))
                return Density(log_prob=log_prob, autodiff=library)
    return Density(log_prob=log_prob)
