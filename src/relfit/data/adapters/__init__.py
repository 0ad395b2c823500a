"""Densities and samplers from the libraries people use, recognised without importing these libraries.

To add an adapter, write one file in this folder with the functions of an `Adapter`, and add one line to `ADAPTERS`. The
functions look their library up with `relfit.util.libraries.loaded`: if it has not been imported, no object of it can
exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relfit.compute.rows import LazyRows
from relfit.data.adapters import jax, pymc, scipy_stats, sklearn, stan, torch
from relfit.data.autodiff import LIBRARIES, gradient
from relfit.data.models import Density, Draw, Sample
from relfit.util.errors import InputError
from relfit.util.libraries import loaded


@dataclass(frozen=True)
class Adapter:
    """The functions that recognise one library's objects; both return None for any other value.

    Attributes:
        density: from a value and the number of columns to a `Density`. Raises `InputError`, in one line, for an object
            of the library that cannot be used.
        sampler: from a value to the function that draws rows from it; None if the library's objects are not sampled.
    """

    density: Callable[[Any, int], Density | None]
    sampler: Callable[[Any], Draw | None] | None = None


ADAPTERS = (
    Adapter(sklearn.density, sklearn.sampler),
    Adapter(scipy_stats.density, scipy_stats.sampler),
    Adapter(stan.density),
    Adapter(pymc.density),
    Adapter(jax.density, jax.sampler),
    Adapter(torch.density, torch.sampler),
)


def adapt(value: Any, dim: int) -> Density | None:
    """The value as a density on R^dim, or None if it is not recognised.

    >>> from scipy import stats
    >>> density = adapt(stats.norm(1.0, 2.0), dim=1)
    >>> density.scores(np.array([[5.0]]))
    array([[-1.]])
    >>> adapt(np.ones((3, 2)), dim=2) is None
    True
    """
    if value is None or isinstance(value, Sample | LazyRows | np.ndarray | str | list | tuple | dict):
        return None
    density = value if isinstance(value, Density) else _recognised(value, dim)
    if density is not None and density.dim not in (None, dim):
        raise InputError(f"expected dimension {dim} like the data, got {density.dim}")
    return density


def _recognised(value: Any, dim: int) -> Density | None:
    for adapter in ADAPTERS:
        density = adapter.density(value, dim)
        if density is not None:
            return density
    return _log_prob_object(value, dim)


def _log_prob_object(value: Any, dim: int) -> Density | None:
    """Any object with a method ``log_prob``, differentiated by torch or JAX if it takes their arrays.

    A bare function is not recognised: it may be a log density, a score or a sampler, and `Density` says which.
    """
    log_prob = getattr(value, "log_prob", None)
    if not callable(log_prob):
        return None
    library = next((name for name in LIBRARIES if _differentiates(name, log_prob, dim)), None)
    return Density(log_prob=log_prob, autodiff=library)


def _differentiates(library: str, log_prob: Callable[..., Any], dim: int) -> bool:
    """True if the library is loaded and can differentiate this function, which is tried at two rows of zeros."""
    if loaded(library) is None:
        return False
    try:
        gradient(log_prob, library)(np.zeros((2, dim)))
    except Exception:  # noqa: BLE001  (functions may raise anything for arrays they were not written for)
        return False
    return True
