"""Score networks s(x, σ), as trained by denoising score matching: a density at each noise level."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from relfit.errors import InputError
from relfit.models import Density


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
