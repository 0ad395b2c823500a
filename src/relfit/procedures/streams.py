"""Random numbers that belong to a model and not to its place in the list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.inputs import stream

Array = NDArray[np.float64]

Source = np.random.Generator | Callable[[str | None], np.random.Generator]
"""A Generator, or a function from a model's name (None: the reference) to its own Generator."""


@dataclass(frozen=True)
class Streams:
    """One generator for the reference and one per model; they may all be the same one."""

    reference: np.random.Generator
    models: tuple[np.random.Generator, ...]


def streams(source: Source, names: Sequence[str]) -> Streams:
    """The generators of these models, in their order.

    With a function of the name the noise follows the models when they are permuted; a single Generator
    serves them in turn.
    """
    if isinstance(source, np.random.Generator):
        return Streams(source, (source,) * len(names))
    return Streams(source(None), tuple(source(name) for name in names))


def seeded(seed: int, test: str) -> Source:
    """The source a test draws from in a comparison with this seed: one stream per model name."""

    def source(name: str | None) -> np.random.Generator:
        return stream(seed, test, "reference" if name is None else f"model {name}")

    return source


def normal_draws(root: Array, models: Sequence[np.random.Generator], draws: int) -> Array:
    """(l, draws) columns of N(0, V), with `root` from `covariance_root`."""
    return np.asarray(root @ np.stack([rng.standard_normal(draws) for rng in models]))


def covariance_root(covariance: Array) -> Array:
    """A matrix A with A Aᵀ = V, which exists for singular V too: A = S C^½, V = S C S, S the standard errors.

    C^½ is the symmetric root of the correlations. A permutation P of the models turns A into P A Pᵀ, which
    no triangular root does: permuted noise gives permuted draws.

    >>> covariance_root(np.array([[4.0, 0.0], [0.0, 0.0]])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    scale = np.sqrt(np.diag(covariance))
    safe = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / safe / safe[:, None])
    return np.asarray(scale[:, None] * ((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T))
