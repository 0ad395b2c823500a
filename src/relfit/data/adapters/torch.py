"""PyTorch: distributions, flows and energy models with log_prob, in their own dtype and on their own device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from relfit.data.adapters.supports import columns, within
from relfit.data.autodiff import values
from relfit.data.models import Density
from relfit.util.errors import InputError


def adapt(value: Any, dim: int) -> Density | None:
    """A torch distribution, a module with ``log_prob(x)`` or a zuko flow as a density; None for anything else."""
    torch, zuko = sys.modules.get("torch"), sys.modules.get("zuko")
    if torch is None:
        return None
    if isinstance(value, torch.distributions.Distribution):
        return _distribution(lambda: value, dim)
    if zuko is not None and isinstance(value, zuko.lazy.LazyDistribution):
        return _flow(value, dim)
    return _module(value) if isinstance(value, torch.nn.Module) else None


def _module(value: Any) -> Density:
    if not callable(getattr(value, "log_prob", None)):
        raise InputError(
            f"{type(value).__name__}: expected a torch module with log_prob(x), got one without; say what its output "
            "is by Density(log_prob=module) or Density(score=module)"
        )
    return Density(log_prob=value.log_prob, autodiff="torch")


def _flow(flow: Any, dim: int) -> Density:
    density = _distribution(flow, dim)
    try:
        density.log_probs(np.zeros((2, dim)))
    except InputError as error:
        raise InputError(
            f"{type(flow).__name__}: expected a flow without context; if it needs one, give flow(c) ({error})"
        ) from None
    return density


def _distribution(made: Callable[[], Any], dim: int) -> Density:
    """A distribution, made anew for each call, so that a flow's parameters are seen in evaluation mode."""
    example = made()
    name = type(example).__name__
    flat = columns(name, example.batch_shape, example.event_shape, dim, "torch.distributions.Independent")

    def log_prob(x: Any) -> Any:
        out = made().log_prob(x)
        return out[:, 0] if flat else out

    def inside(x: Any) -> Any:
        return made().support.check(x).reshape(len(x), -1).all(-1)

    support = _support(example)
    if support is None:
        return Density(log_prob=log_prob, dim=dim, autodiff="torch")
    if support.is_discrete:
        raise InputError(f"{name}: expected a continuous distribution, got a discrete one; use samples and MMD")
    return within(values(inside, "torch"), log_prob, "torch", dim)


def _support(distribution: Any) -> Any:
    try:
        return distribution.support
    except NotImplementedError:
        return None
