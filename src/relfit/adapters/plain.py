"""Any object with ``log_prob(x)``: by torch or JAX if it takes their arrays, otherwise by finite differences."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from relfit.gradients import LIBRARIES, gradient
from relfit.models import Density


def adapt(value: Any, dim: int) -> Density | None:
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
