"""Samples out of generators: functions of (n, rng), and objects of other libraries that can be sampled."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.adapters import adapt
from relfit.data.models import Density
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.random import Seed, make_seed, stream

Draw = Callable[[int, np.random.Generator], Any]

# Rows asked for at once: large enough for any generator's own batches, small enough to show progress.
DRAW_BATCH = 4096


@dataclass(frozen=True)
class Sampler:
    """A model given by a function ``draw(n, rng)`` that returns n new rows, from a numpy Generator.

    >>> normal = Sampler(lambda n, rng: rng.normal(size=(n, 2)))
    >>> normal.draw(3, np.random.default_rng(0)).shape
    (3, 2)
    """

    draw: Draw

    def __post_init__(self) -> None:
        if not callable(self.draw):
            raise InputError(f"Sampler: expected a function of (n, rng), got {type(self.draw).__name__}")


def sampler_of(value: Any) -> Sampler | None:
    """How to draw from the value, or None if nothing here knows how.

    A function counts as a sampler when it takes exactly two arguments, the number of rows and a Generator.
    """
    if isinstance(value, Sampler):
        return value
    for recognise in (_scipy, _sklearn, _numpyro, _torch, _named_method, _function):
        draw = recognise(value)
        if draw is not None:
            return Sampler(draw)
    return None


def is_sampler(value: Any) -> bool:
    """Whether the value can be nothing else: a `Sampler`, or a function of (n, rng)."""
    return isinstance(value, Sampler) or (inspect.isroutine(value) and _function(value) is not None)


def draw_rows(
    name: str,
    sampler: Sampler,
    n: int,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> Array:
    """n rows (n, d) of one model, asked for in batches; too few or too many rows are refused."""
    parts: list[NDArray[Any]] = []
    for start in range(0, n, DRAW_BATCH):
        wanted = min(DRAW_BATCH, n - start)
        rows = _host(sampler.draw(wanted, rng))
        if rows.ndim == 0 or len(rows) != wanted:
            came = len(rows) if rows.ndim else "a single number"
            raise InputError(f"model {name!r}: expected {wanted} rows from its sampler, got {came}")
        parts.append(rows)
        if progress is not None:
            progress(start + wanted, n)
    return np.concatenate(parts)


def _host(rows: Any) -> NDArray[Any]:
    if hasattr(rows, "detach"):
        rows = rows.detach().cpu()
    return np.asarray(rows)


def _module(name: str) -> Any:
    return sys.modules.get(name)


def _scipy(value: Any) -> Draw | None:
    stats = _module("scipy.stats")
    if stats is None:
        return None
    if isinstance(value, stats.gaussian_kde):
        return lambda n, rng: value.resample(n, seed=rng).T
    if type(value).__module__.startswith("scipy.stats") and hasattr(value, "rvs"):
        return lambda n, rng: np.asarray(value.rvs(size=n, random_state=rng)).reshape(n, -1)
    return None


def _sklearn(value: Any) -> Draw | None:
    if not type(value).__module__.startswith("sklearn.") or not hasattr(value, "sample"):
        return None

    def draw(n: int, rng: np.random.Generator) -> Any:
        seed = int(rng.integers(2**31))
        if "random_state" in inspect.signature(value.sample).parameters:
            return value.sample(n, random_state=seed)
        # Mixtures draw from their own random_state: a copy gets ours, the user's object stays as it is.
        own = copy.copy(value)
        own.random_state = seed
        rows, component = own.sample(n)
        # They come sorted by component, which a split or pairing by row must not see.
        return rows[rng.permutation(len(component))]

    return draw


def _torch(value: Any) -> Draw | None:
    torch = _module("torch")
    if torch is None:
        return None
    zuko = _module("zuko")
    if zuko is not None and isinstance(value, zuko.lazy.LazyDistribution):
        return lambda n, rng: _torch_draw(torch, value(), n, rng)
    if isinstance(value, torch.distributions.Distribution):
        return lambda n, rng: _torch_draw(torch, value, n, rng)
    return None


def _torch_draw(torch: Any, distribution: Any, n: int, rng: np.random.Generator) -> Any:
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(int(rng.integers(2**63)))
        return distribution.sample((n,)).reshape(n, -1)


def _numpyro(value: Any) -> Draw | None:
    numpyro = _module("numpyro.distributions")
    if numpyro is None or not isinstance(value, numpyro.Distribution):
        return None
    jax = _module("jax")

    def draw(n: int, rng: np.random.Generator) -> Any:
        key = jax.random.PRNGKey(int(rng.integers(2**31)))
        return np.asarray(value.sample(key, (n,))).reshape(n, -1)

    return draw


def _named_method(value: Any) -> Draw | None:
    method = getattr(value, "sample", None)
    # Arrays, frames and mappings have methods called sample that mean something else.
    if not callable(method) or isinstance(value, type | Mapping) or hasattr(value, "__array__"):
        return None
    if hasattr(value, "iloc") or hasattr(value, "__dataframe__"):
        return None
    required = _required_arguments(method)
    if required == 2:
        return lambda n, rng: method(n, rng)
    return (lambda n, _rng: method(n)) if required == 1 else None


def _function(value: Any) -> Draw | None:
    if not callable(value) or isinstance(value, type):
        return None
    return value if _required_arguments(value) == 2 else None


def _required_arguments(function: Any) -> int | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)


# --------------------
# Samples drawn once from models that are given as generators.

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
