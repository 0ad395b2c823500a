"""Gradients of log densities, and functions that live in another array library, as functions of NumPy rows.

A function belongs to a library: "torch", "jax" or None (plain NumPy). Nothing here is imported until a
function of that library is met.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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


def values(function: RowFunction, library: str | None, owner: Any = None) -> RowFunction:
    """The function on NumPy rows; `owner` is the object whose dtype, device and mode count (torch)."""
    if library == "torch":
        return _torch().values(function, function if owner is None else owner)
    if library == "jax":
        return _jax().values(function)
    return function


def gradient(log_prob: RowFunction, library: str | None, owner: Any = None) -> RowFunction:
    """∇ log p on NumPy rows: automatic differentiation in the library, finite differences without one."""
    if library == "torch":
        return _torch().gradient(log_prob, log_prob if owner is None else owner)
    if library == "jax":
        return _jax().gradient(log_prob)
    return lambda x: finite.gradient(log_prob, x)


def _torch() -> Any:
    try:
        from relfit.gradients import torch
    except ImportError:
        raise InputError('autodiff="torch": needs PyTorch, which is not installed; pip install torch') from None
    return torch


def _jax() -> Any:
    try:
        from relfit.gradients import jax
    except ImportError:
        raise InputError('autodiff="jax": needs JAX, which is not installed; pip install jax') from None
    return jax
