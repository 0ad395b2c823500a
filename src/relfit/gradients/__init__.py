"""Gradients of log densities, and functions that live in another array library, as functions of NumPy rows.

A function belongs to a library: "torch", "jax" or None (plain NumPy). Nothing here is imported until a
function of that library is met.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from relfit.errors import InputError
from relfit.gradients import finite

RowFunction = Callable[..., Any]

LIBRARIES = ("torch", "jax")


def library_of(function: Any) -> str | None:
    """The library a function certainly belongs to: torch modules and their methods, `jax.jit` functions."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    owner = getattr(function, "__self__", function)
    if torch is not None and isinstance(owner, torch.nn.Module):
        return "torch"
    if jax is not None and isinstance(function, jax.stages.Wrapped):
        return "jax"
    return None


def values(function: RowFunction, library: str | None) -> RowFunction:
    """The function on NumPy rows."""
    return function if library is None else _module(library).values(function)


def gradient(log_prob: RowFunction, library: str | None) -> RowFunction:
    """∇ log p on NumPy rows: automatic differentiation in the library, finite differences without one."""
    if library is None:
        return lambda x: finite.gradient(log_prob, x)
    return _module(library).gradient(log_prob)  # type: ignore[no-any-return]


def _module(library: str) -> Any:
    try:
        import_module(library)
        return import_module(f"relfit.gradients.{library}")
    except ImportError:
        raise InputError(f'autodiff="{library}": {library} is not installed; pip install {library}') from None
