"""A profile φ written for torch or jax, and its derivatives, as functions of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from relfit.errors import InputError

Profile = Callable[[Any], Any]

LIBRARIES = ("torch", "jax")


def derivative(profile: Profile, library: str, order: int) -> Profile:
    """φ (order 0), φ' or φ'' in float64; every element depends on its own argument only, so one gradient gives all."""
    if library not in LIBRARIES:
        raise InputError(f'autodiff of Radial: expected "torch", "jax" or None, got {library!r}')
    try:
        import_module(library)
    except ImportError:
        raise InputError(f'autodiff="{library}": {library} is not installed; pip install {library}') from None
    # A partial of a module's function can be sent to another process, a closure cannot.
    return partial(_of_torch if library == "torch" else _of_jax, profile, order)


def _of_torch(profile: Profile, order: int, u: Any) -> Any:
    import torch

    given = torch.as_tensor(u)
    with torch.enable_grad():
        point = given.detach().clone().requires_grad_()
        out = profile(point)
        for _ in range(order):
            out = torch.autograd.grad(out.sum(), point, create_graph=True)[0] if out.requires_grad else point * 0.0
    out = out.detach()
    return out if isinstance(u, torch.Tensor) else out.numpy()


def _of_jax(profile: Profile, order: int, u: Any) -> Any:
    import jax

    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else import_module("jax.experimental").enable_x64
    with enable(True):
        return np.asarray(_compiled(profile, order)(jax.numpy.asarray(u)))


@cache
def _compiled(profile: Profile, order: int) -> Profile:
    import jax

    function = profile
    for _ in range(order):
        function = _slope(function)
    return jax.jit(function)  # type: ignore[no-any-return]


def _slope(function: Profile) -> Profile:
    import jax

    return jax.grad(lambda u: function(u).sum())  # type: ignore[no-any-return]
