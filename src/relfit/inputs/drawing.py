"""Samples drawn once from models that are given as generators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.adapters import adapt
from relfit.adapters.samplers import draw_rows, is_sampler, sampler_of
from relfit.errors import InputError
from relfit.inputs.options import Seed, make_seed, stream
from relfit.models import Density

Progress = Callable[[int, int], None]

# Rows drawn where no sample of the data says how many.
DEFAULT_ROWS = 1000


def draw(models: Mapping[str, Any], n: int, *, rng: Seed = None) -> dict[str, NDArray[Any]]:
    """Draw n rows from every model, the very rows `compare` draws for the same names and seed.

    Save them to use them again: the models are then plain samples.

    >>> from scipy import stats
    >>> rows = draw({"normal": stats.norm(), "uniform": lambda n, rng: rng.random((n, 1))}, 50, rng=1)
    >>> rows["normal"].shape, rows["uniform"].shape
    ((50, 1), (50, 1))
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"n: expected a positive whole number, got {n!r}")
    seed = make_seed(rng)
    return {name: _draw(name, value, int(n), seed) for name, value in models.items()}


def with_samples_drawn(
    named: Mapping[str, Any], dim: int, n: int, seed: int, *, all_samples: bool, progress: Progress | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The models with generators replaced by drawn rows, and a note that says so.

    A density stays one unless all must be samples: because MMD was asked for, because the reference is a
    density, or because another model is a sample.
    """
    kinds = {name: _kind(value, dim) for name, value in named.items()}
    mixed = all_samples or len(set(kinds.values())) > 1
    wanted = [name for name, kind in kinds.items() if kind == "sampler" or (kind == "density" and mixed)]
    if not wanted or "refused" in kinds.values():
        return dict(named), ()  # the check of a refused model gives the reason
    given = set(kinds.values())
    if len(given) > 1:
        stuck = [name for name in wanted if sampler_of(named[name]) is None]
        if stuck:
            raise InputError(
                f"models: expected all samples or all densities, got both, and {stuck[0]!r} is a density that cannot "
                "be sampled; MMD and KSD values cannot be compared, so give rows drawn from it"
            )
    drawn = {name: _draw(name, named[name], n, seed, progress) for name in wanted}
    note = f"drew {n} rows from {', '.join(repr(name) for name in wanted)} (seed {seed})"
    if "density" in kinds.values():
        note += "; densities are compared by their samples here, as samples and densities cannot be mixed"
    return {**named, **drawn}, (note,)


def columns_drawn(value: Any) -> int:
    """How many columns a generator's rows have; 1 if it cannot be drawn from."""
    sampler = sampler_of(value)
    if sampler is None:
        return 1
    rows = draw_rows("", sampler, 1, np.random.default_rng(0))
    return 1 if rows.ndim < 2 else rows.shape[1]


def _kind(value: Any, dim: int) -> str:
    if is_sampler(value):
        return "sampler"
    try:
        density = adapt(value, dim)
    except InputError:
        return "refused" if sampler_of(value) is None else "sampler"
    if density is not None:
        return "density"
    if sampler_of(value) is not None:
        return "sampler"
    return "refused" if value is None or callable(value) else "rows"


def _draw(name: str, value: Any, n: int, seed: int, progress: Progress | None = None) -> NDArray[Any]:
    sampler = sampler_of(value)
    if sampler is None:
        what = "a density that cannot be sampled" if isinstance(value, Density) else type(value).__name__
        raise InputError(
            f"model {name!r}: expected something to draw from, got {what}; give rows drawn from it, or "
            "Sampler(function of (n, rng))"
        )
    return draw_rows(name, sampler, n, stream(seed, "draw", name), progress)
