"""What torch and NumPyro distributions share: batch and event shapes, and values outside the support."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relfit.data.autodiff import gradient, values
from relfit.data.models import Density
from relfit.util.arrays import Array
from relfit.util.errors import InputError


def columns(name: str, batch: Sequence[int], event: Sequence[int], dim: int, wrapper: str) -> bool:
    """Whether the distribution is of single numbers (so that rows are its only column); refuses what is no density."""
    batch, event = tuple(batch), tuple(event)
    single = not event and batch in ((), (1,)) and dim == 1
    if not single and (batch or event != (dim,)):
        hint = f"; {wrapper}(distribution, 1) makes one of independent columns" if batch and not event else ""
        raise InputError(
            f"{name}: expected one distribution of {dim} columns like the data, got batch shape {batch} and event "
            f"shape {event}{hint}"
        )
    return single


def within(inside: Callable[[Array], Any], log_prob: Callable[..., Any], library: str, dim: int) -> Density:
    """A density whose functions are called inside its support only: outside, log p is −inf and the score NaN.

    Left alone, some libraries raise there and others go on with the formula.
    """

    def restricted(function: Callable[[Array], Any], fill: float) -> Callable[[Array], Any]:
        def call(x: Array) -> Any:
            ok = np.asarray(inside(x), dtype=bool)
            if ok.all():
                return function(x)
            out = np.full(x.shape if np.isnan(fill) else len(x), fill)
            if ok.any():
                out[ok] = function(x[ok])
            return out

        return call

    score = restricted(gradient(log_prob, library), np.nan)
    return Density(score, restricted(values(log_prob, library), -np.inf), dim)
