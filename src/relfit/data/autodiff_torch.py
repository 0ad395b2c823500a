"""The tensors and modules that a torch function or object holds: they say in what dtype and where it works."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.autodiff import first_line
from relfit.util.arrays import Array
from relfit.util.errors import InputError

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


# --------------------
# Functions of torch tensors as functions of NumPy rows, and their gradients by autograd.
#
# Works in the dtype and on the device of the model's own tensors, in evaluation mode, and leaves the model as it was:
# modes are restored and no parameter's ``.grad`` is touched.

RowFunction = Callable[..., Any]

# Networks hold many temporaries per row; rows go through in batches of this many.
BATCH = 8192


def values(function: RowFunction) -> RowFunction:
    """The function on NumPy rows, without gradients."""
    import torch

    def call(x: Array) -> NDArray[Any]:
        with torch.no_grad(), _evaluating(function):
            return _in_batches(lambda rows: _called(function, rows), x, function)

    return call


def gradient(log_prob: RowFunction) -> RowFunction:
    """∇ log p on NumPy rows: the rows are independent, so the gradient of the sum has every row's gradient."""
    import torch

    def slope(rows: Any) -> Any:
        rows = rows.requires_grad_()
        out = _called(log_prob, rows)
        if not isinstance(out, torch.Tensor) or tuple(out.shape) != (len(rows),):
            came = f"shape {tuple(out.shape)}" if isinstance(out, torch.Tensor) else f"a {type(out).__name__}"
            raise InputError(f"log_prob: expected a tensor of shape ({len(rows)},) for {len(rows)} rows, got {came}")
        grad = None
        if out.requires_grad:
            grad = _called(lambda x: torch.autograd.grad(out.sum(), x, allow_unused=True)[0], rows)
        if grad is None:
            raise InputError(
                "log_prob: expected a function of x that torch can differentiate, got one without a gradient; "
                "is it constant, or computed under no_grad or from detached tensors?"
            )
        return grad

    def call(x: Array) -> NDArray[Any]:
        with torch.inference_mode(False), torch.enable_grad(), _evaluating(log_prob):
            return _in_batches(slope, x, log_prob)

    return call


def _called(function: RowFunction, rows: Any) -> Any:
    try:
        return function(rows)
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        # Shapes, dtypes and devices that do not fit are reported by torch in one of these.
        where = f"{len(rows)} rows of {rows.dtype} on {rows.device}"
        raise InputError(f"the torch function failed on {where}: {first_line(error)}") from error


def _in_batches(function: RowFunction, x: Array, owner: RowFunction) -> NDArray[Any]:
    import torch

    like = held_by(owner).like
    parts = []
    for start in range(0, len(x), BATCH):
        rows = torch.tensor(x[start : start + BATCH], dtype=like.dtype, device=like.device)
        parts.append(_to_numpy(function(rows)))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _to_numpy(out: Any) -> Any:
    import torch

    if not isinstance(out, torch.Tensor):
        return np.asarray(out)
    out = out.detach().cpu()
    return (out.float() if out.dtype == torch.bfloat16 else out).numpy()


@contextmanager
def _evaluating(owner: RowFunction) -> Iterator[None]:
    """Evaluation mode for every module the function holds; each one's own mode comes back afterwards."""
    training = [module for module in held_by(owner).modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
