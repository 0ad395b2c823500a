"""Any object with ``log_prob(x)``: by torch or JAX if it takes their arrays, otherwise by finite differences."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from relfit.data.autodiff import LIBRARIES, gradient
from relfit.data.models import Density
from relfit.util.errors import InputError


def adapt_object(value: Any, dim: int) -> Density | None:
    """An object with a method ``log_prob`` as a density; None for anything else, bare functions included.

    A bare function may be a log density, a score or a sampler; `Density` says which.
    """
    log_prob = getattr(value, "log_prob", None)
    if not callable(log_prob):
        return None
    library = next((name for name in LIBRARIES if _differentiates(name, log_prob, dim)), None)
    return Density(log_prob=log_prob, autodiff=library)


def _differentiates(library: str, log_prob: Callable[..., Any], dim: int) -> bool:
    """Whether the library, if it is loaded, can differentiate this function: found out at two rows of zeros."""
    if library not in sys.modules:
        return False
    try:
        gradient(log_prob, library)(np.zeros((2, dim)))
    except Exception:  # noqa: BLE001  (whatever a function does with arrays it was not written for)
        return False
    return True


# --------------------
# JAX: functions compiled by ``jax.jit`` that are log densities, by the shape of what they return.


def adapt_jax(value: Any, dim: int) -> Density | None:
    """A jitted function (n, d) → (n,) or (d,) → () as a log density; None for anything else.

    Other functions are ambiguous until they are wrapped: ``Density(log_prob=f, autodiff="jax")``.
    """
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(value, jax.stages.Wrapped):
        return None
    from relfit.data.autodiff_jax import is_log_density

    return Density(log_prob=value, autodiff="jax") if is_log_density(value, dim) else None


# --------------------
# Score networks s(x, σ), as trained by denoising score matching: a density at each noise level.


def at_level(network: Callable[..., Any], level: float) -> Density:
    """The network at one noise level σ, as the density of data + σ·noise.

    A torch module is called with a tensor of rows and a tensor (n,) filled with σ, in its own dtype and on its own
    device; any other callable with NumPy rows (n, d) and the number σ.

    >>> import numpy as np
    >>> standard = at_level(lambda x, sigma: -x / (1.0 + sigma**2), 2.0)
    >>> standard.scores(np.array([[5.0]]))
    array([[-1.]])
    """
    if not callable(network):
        raise InputError(f"expected a score network s(x, σ), got {type(network).__name__}")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(network, torch.nn.Module):
        return Density(score=lambda x: network(x, x.new_full((len(x),), level)), autodiff="torch")
    return Density(score=lambda x: network(x, level))
