"""A comparison problem with its true answer, and how its samples are drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from relfit.errors import InputError
from relfit.problems.distributions import Array, Distribution

Function = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Problem:
    """A reference, its candidate models, and the candidates that are truly best.

    `truth` maps "mmd" and "ksd" to the set of best models, or to None where it is not known; it holds for the
    kernels that the constructor names.

    >>> from relfit.problems import mean_shift_l10
    >>> problem = mean_shift_l10()
    >>> problem.dim, len(problem.models), sorted(problem.worse("mmd"))
    (10, 10, ['P10'])
    """

    name: str
    dim: int
    models: tuple[str, ...]
    reference: Distribution = field(repr=False)
    distributions: tuple[Distribution, ...] = field(repr=False)
    truth: Mapping[str, frozenset[str] | None] = field(repr=False)

    def distribution(self, name: str) -> Distribution:
        """The distribution of one model."""
        if name not in self.models:
            raise InputError(f"name: expected one of {', '.join(self.models)}; got {name!r}")
        return self.distributions[self.models.index(name)]

    def sample_reference(self, n: int, rng: np.random.Generator) -> Array:
        """(n, dim) draws of the reference."""
        return self.reference.sample(n, rng)

    def sample_model(self, name: str, n: int, rng: np.random.Generator) -> Array:
        """(n, dim) draws of one model."""
        return self.distribution(name).sample(n, rng)

    def score(self, name: str) -> Function:
        """The score x ↦ ∇ log p(x) of one model, (n, dim) to (n, dim)."""
        return self.distribution(name).score

    def log_density(self, name: str) -> Function:
        """The normalised log density of one model, (n, dim) to (n,)."""
        return self.distribution(name).log_density

    def best(self, discrepancy: str) -> frozenset[str] | None:
        """The models tied for best (I_−) under "mmd" or "ksd"; None where it is not known."""
        if discrepancy not in self.truth:
            raise InputError(f"discrepancy: expected one of {', '.join(self.truth)}; got {discrepancy!r}")
        return self.truth[discrepancy]

    def worse(self, discrepancy: str) -> frozenset[str] | None:
        """The models that are truly worse than the best (I_+); None where it is not known."""
        best = self.best(discrepancy)
        return None if best is None else frozenset(self.models) - best


def population_mmd(problem: Problem, bandwidth: float) -> Array:
    """MMD² of every model to the reference under exp(−r²/(2σ²)), exact: (l,), in the order given.

    >>> from relfit.problems import mean_shift_pair
    >>> values = population_mmd(mean_shift_pair(), bandwidth=3.0)
    >>> bool(values[0] == values[1])
    True
    """
    r = problem.reference.as_mixture()
    mixtures = [p.as_mixture() for p in problem.distributions]
    own = [p.mean_kernel(p, bandwidth) - 2.0 * p.mean_kernel(r, bandwidth) for p in mixtures]
    return np.array(own) + r.mean_kernel(r, bandwidth)


def stream(seed: int, name: str | None) -> np.random.Generator:
    """The random stream of one model, keyed by (seed, name); `None` is the reference.

    The key is a `SeedSequence` spawn key made of a word for this module and a hash of the name, so a stream
    depends neither on the place of the model in the list nor on the streams that other code makes of `seed`.
    """
    label = b"reference" if name is None else b"model:" + name.encode("utf-8")
    words = np.frombuffer(hashlib.sha256(b"relfit.problems/" + label).digest(), dtype="<u4")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(int(w) for w in words)))


def draw(problem: Problem, n: int, seed: int, sizes: Mapping[str, int] | None = None) -> tuple[Array, dict[str, Array]]:
    """Reference (n rows) and a sample of each model (n rows, or `sizes[name]`), from independent streams.

    The same seed gives models of the same name the same stream in every problem: curves over a parameter of
    the problem use common random numbers.

    >>> from relfit.problems import mean_shift_pair
    >>> reference, models = draw(mean_shift_pair(), 100, seed=1, sizes={"P2": 40})
    >>> reference.shape, models["P1"].shape, models["P2"].shape
    ((100, 10), (100, 10), (40, 10))
    """
    unknown = set(sizes or {}) - set(problem.models)
    if unknown:
        raise InputError(f"sizes: expected names of models; got {', '.join(sorted(unknown))}")
    counts = dict.fromkeys(problem.models, n) | dict(sizes or {})
    samples = {name: problem.sample_model(name, counts[name], stream(seed, name)) for name in problem.models}
    return problem.sample_reference(n, stream(seed, None)), samples
