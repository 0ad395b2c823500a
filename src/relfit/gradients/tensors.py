"""The tensors and modules that a torch function or object holds: they say in what dtype and where it works."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from types import FunctionType, MethodType
from typing import Any

# Tensors of a model lie near its surface; a long list that a function happens to mention is not searched.
_DEEPEST = 6
_MOST_ITEMS = 100


@dataclass(frozen=True)
class Held:
    """Every module held, and one floating-point tensor to be like (float64 on the CPU if there is none)."""

    modules: tuple[Any, ...]
    like: Any


def held_by(owner: Any) -> Held:
    """Look through an object: its attributes, containers, and what its functions close over."""
    import torch

    found = list(_walk(owner, _DEEPEST, set()))
    modules = {id(part): part for item in found if isinstance(item, torch.nn.Module) for part in item.modules()}
    tensors = [item for item in found if isinstance(item, torch.Tensor) and item.is_floating_point()]
    like = tensors[0] if tensors else torch.empty(0, dtype=torch.float64)
    return Held(tuple(modules.values()), like)


def _walk(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    import torch

    if depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, torch.nn.Module):
        yield value
        yield from value.parameters()
        yield from value.buffers()
    for part in _parts(value):
        yield from _walk(part, depth - 1, seen)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, MethodType):
        return [value.__self__]
    if isinstance(value, FunctionType):
        return _closed_over(value)
    if isinstance(value, Mapping):
        return list(islice(value.values(), _MOST_ITEMS))
    if isinstance(value, list | tuple):
        return list(value[:_MOST_ITEMS])
    if isinstance(value, type) or inspect.ismodule(value):
        return []
    return list(getattr(value, "__dict__", {}).values())


def _closed_over(function: FunctionType) -> list[Any]:
    try:
        names = inspect.getclosurevars(function)
    except ValueError:  # a name that has no value yet
        return []
    return [*names.nonlocals.values(), *names.globals.values()]
