"""Densities and samplers from the libraries people use, recognised without importing these
libraries.

To add a library, write functions for its objects in this folder, and add them to `DENSITIES`
and `SAMPLERS`. They look their library up with `relfit.util.libraries.loaded`: if it has not
been imported, no object of it can exist.

Models are also given as generators: functions of (n, rng), and objects of other libraries
that can be sampled. `recognised_models` draws their rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.adapters.differentiable import (
    jax_density,
    jax_sampler,
    pymc_density,
    stan_density,
    torch_density,
    torch_sampler,
)
from relfit.data.adapters.scipy_sklearn import (
    scipy_density,
    scipy_mass,
    scipy_sampler,
    sklearn_bounded,
    sklearn_density,
    sklearn_sampler,
)
from relfit.data.autodiff import LIBRARIES, gradient
from relfit.data.models import Density, Draw, required_arguments
from relfit.util.arrays import Array
from relfit.util.checks import check_whole
from relfit.util.errors import InputError
from relfit.util.libraries import loaded
from relfit.util.progress import Progress
from relfit.util.random import Seed, make_seed, stream
from relfit.util.text import listed

# From a value and the number of columns to a density; None for a value of another library. An
# object of the library that cannot be used is refused in one line.
DENSITIES = (
    sklearn_density,
    scipy_density,
    stan_density,
    pymc_density,
    jax_density,
    torch_density,
)
# The same for densities that have no score, and which only their log densities can compare.
UNSMOOTH = (scipy_mass, sklearn_bounded)
# From a value to the function that draws rows from it; None for a value of another library.
SAMPLERS = (sklearn_sampler, scipy_sampler, jax_sampler, torch_sampler)


def adapt(value: Any, dim: int, *, likelihood: bool = False) -> Density | None:
    """The value as a density on R^dim, or None if it is not recognised; for the `likelihood`
    it needs no score.

    >>> from scipy import stats
    >>> density = adapt(stats.norm(1.0, 2.0), dim=1)
    >>> density.scores(np.array([[5.0]]))
    array([[-1.]])
    >>> adapt(np.ones((3, 2)), dim=2) is None
    True
    """
    if value is None or isinstance(value, np.ndarray | str | list | tuple | dict):
        return None
    recognisers = (*(UNSMOOTH if likelihood else ()), *DENSITIES, _log_prob_object)
    found = (recognise(value, dim) for recognise in recognisers)
    density = value if isinstance(value, Density) else next(filter(None, found), None)
    if density is not None and density.dim not in (None, dim):
        raise InputError(f"expected dimension {dim} like the data, got {density.dim}")
    return density


def _log_prob_object(value: Any, dim: int) -> Density | None:
    """Any object with a method ``log_prob``, differentiated by torch or JAX if it takes
    their arrays.

    A bare function is not recognised: it may be a log density, a score or a sampler, and
    `Density` says which.
    """
    log_prob = getattr(value, "log_prob", None)
    if not callable(log_prob):
        return None
    for library in LIBRARIES:
        if loaded(library) is not None:
            with suppress(
                Exception
            ):  # functions may raise anything for arrays they were not written for
                gradient(log_prob, library)(np.zeros((2, dim)))
                return Density(log_prob=log_prob, autodiff=library)
    return Density(log_prob=log_prob)


# ── generators ───────────────────────────────────────────────────────────────────────────

# The number of rows drawn at once: large enough for any generator's own batches, small enough
# to show progress.
DRAW_BATCH = 4096
# The number of rows drawn if no sample determines it.
DEFAULT_ROWS = 1000


@dataclass(frozen=True)
class Sampler:
    """A model given by a function ``draw(n, rng)`` that returns n new rows, from a numpy
    Generator.

    A function of n alone is taken, too; its random numbers are its own, and the seed does
    not reach them.

    >>> normal = Sampler(lambda n, rng: rng.normal(size=(n, 2)))
    >>> normal.draw(3, np.random.default_rng(0)).shape
    (3, 2)
    """

    draw: Draw

    def __post_init__(self) -> None:
        function: Any = self.draw
        if not callable(function):
            raise InputError(
                f"Sampler: expected a function of (n, rng), got {type(function).__name__}"
            )
        if not _accepts(function, 2):
            if not _accepts(function, 1):
                raise InputError(
                    "Sampler: expected a function of (n, rng) or of n, got one of other arguments"
                )
            object.__setattr__(self, "draw", lambda n, _rng: function(n))


def _accepts(function: Any, count: int) -> bool:
    """True if the function can be called with so many arguments, or does not tell."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def draw(models: Mapping[str, Any], n: int, *, rng: Seed = None) -> dict[str, NDArray[Any]]:
    """Draw n rows from every model: the very rows that `compare` draws for the same names
    and seed.

    Save them to use them again: the models are then plain samples.

    >>> from scipy import stats
    >>> rows = draw(
    ...     {"normal": stats.norm(), "uniform": lambda n, rng: rng.random((n, 1))}, 50, rng=1
    ... )
    >>> rows["normal"].shape, rows["uniform"].shape
    ((50, 1), (50, 1))
    """
    count = check_whole("n", n, 1)
    seed = make_seed(rng)
    return {name: _draw(name, value, count, seed, None) for name, value in models.items()}


def recognised_models(
    models: Mapping[str, Any],
    dim: int,
    n: int,
    seed: int,
    *,
    all_samples: bool,
    any_rows: bool,
    as_densities: bool,
    likelihood: bool,
    progress: Progress | None,
) -> tuple[dict[str, Density], dict[str, Any], tuple[str, ...]]:
    """Models that are not plain rows: the densities among them, the others as rows, and a
    note if rows were drawn.

    Generators are drawn from. A density remains one unless all models must be samples:
    because MMD was asked for, because the reference is a density, or because another model
    is a generator or a sample (`any_rows`). With `as_densities`, a density that cannot be
    used is not drawn from instead; for the `likelihood` it needs no score.
    """
    densities: dict[str, Density] = {}
    samplers: set[str] = set()
    names_with: dict[str, list[str]] = {}
    for name, value in models.items():
        try:
            density = None if _is_sampler(value) else adapt(value, dim, likelihood=likelihood)
        except InputError as error:
            if as_densities or sampler_of(value) is None:
                raise InputError(f"model {name!r}: {error}") from None
            names_with.setdefault(str(error), []).append(name)
            density = None
        if density is not None:
            densities[name] = density
        elif sampler_of(value) is not None:
            samplers.add(name)
        elif value is None or callable(value):
            raise InputError(
                f"model {name!r}: expected an array, a file or a model, got "
                f"{type(value).__name__}; wrap a function as "
                "relfit.Density(score=...) or relfit.Density(log_prob=...); if f(n, rng) draws "
                "n rows, as relfit.Sampler(f)"
            )
    unusable = "; ".join(
        f"no density of {listed(names, quote=repr)} is used ({reason})"
        for reason, names in names_with.items()
    )
    has_rows = any_rows or len(densities) + len(samplers) < len(models)
    mixed = has_rows + bool(densities) + bool(samplers) > 1
    for name in densities if mixed else ():
        if sampler_of(models[name]) is None:
            advice = (
                unusable or "MMD and KSD values cannot be compared, so give rows drawn from it"
            )
            raise InputError(
                f"models: expected all samples or all densities, got both, and {name!r} is a "
                f"density that cannot be "
                f"sampled; {advice}"
            )
    if mixed or all_samples:
        samplers.update(densities)
    others = {name: value for name, value in models.items() if name not in densities}
    if not samplers:
        return densities, others, ()
    drawn = [name for name in models if name in samplers]
    rows = {name: _draw(name, models[name], n, seed, progress) for name in drawn}
    note = f"drew {n} rows from {', '.join(map(repr, drawn))} (seed {seed})"
    if unusable and not all_samples and not has_rows:
        note += f"; {unusable}"
    elif densities:
        note += (
            "; densities are compared by their samples here, as samples and densities "
            "cannot be mixed"
        )
    return {}, {**models, **rows}, (note,)


def columns_drawn(value: Any) -> int:
    """The number of columns of a generator's rows; 1 if it cannot be drawn from."""
    sampler = sampler_of(value)
    if sampler is None:
        return 1
    rows = draw_rows("", sampler, 1, np.random.default_rng(0))
    return 1 if rows.ndim < 2 else rows.shape[1]


def sampler_of(value: Any) -> Sampler | None:
    """The sampler that a value is or provides; None if rows cannot be drawn from it.

    A function is a sampler if it takes exactly two arguments, the number of rows and a
    Generator.
    """
    if isinstance(value, Sampler):
        return value
    functions = (recognise(value) for recognise in (*SAMPLERS, _sample_method, _function))
    return next((Sampler(function) for function in functions if function is not None), None)


def draw_rows(
    name: str,
    sampler: Sampler,
    n: int,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Array:
    """n rows (n, d) of one model, drawn in batches; a wrong number of rows is refused."""
    batches: list[NDArray[Any]] = []
    for start in range(0, n, DRAW_BATCH):
        count = min(DRAW_BATCH, n - start)
        drawn = sampler.draw(count, rng)
        rows = np.asarray(drawn.detach().cpu() if hasattr(drawn, "detach") else drawn)
        if rows.ndim == 0 or len(rows) != count:
            got = len(rows) if rows.ndim else "a single number"
            raise InputError(
                f"model {name!r}: expected {count} rows from its sampler, got {got}"
            )
        batches.append(rows)
        if progress is not None:
            progress(start + count, n)
    return np.concatenate(batches)


def _draw(name: str, value: Any, n: int, seed: int, progress: Progress | None) -> NDArray[Any]:
    sampler = sampler_of(value)
    if sampler is None:
        what = (
            "a density that cannot be sampled"
            if isinstance(value, Density)
            else type(value).__name__
        )
        advice = "give rows drawn from it, or Sampler(function of (n, rng))"
        raise InputError(
            f"model {name!r}: expected something to draw from, got {what}; {advice}"
        )
    return draw_rows(name, sampler, n, stream(seed, "draw", name), progress)


def _is_sampler(value: Any) -> bool:
    """True for what is drawn from even if it could be a density."""
    return isinstance(value, Sampler) or (
        inspect.isroutine(value) and _function(value) is not None
    )


def _sample_method(value: Any) -> Draw | None:
    method = getattr(value, "sample", None)
    # The method `sample` of arrays, frames and mappings means something else.
    is_table = any(hasattr(value, name) for name in ("__array__", "iloc", "__dataframe__"))
    if not callable(method) or isinstance(value, type | Mapping) or is_table:
        return None
    draws = {1: lambda n, _rng: method(n), 2: lambda n, rng: method(n, rng)}
    return draws.get(required_arguments(method) or 0)


def _function(value: Any) -> Draw | None:
    is_function = callable(value) and not isinstance(value, type)
    return value if is_function and required_arguments(value) == 2 else None
