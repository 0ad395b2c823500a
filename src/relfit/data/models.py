"""What a model can be: a sample of rows, or a density known through its score; and scores of
densities at rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import spilled
from relfit.data.autodiff import LIBRARIES, finite_error, gradient, library_of, real, values
from relfit.util.arrays import Array, Mask, is_mapped, parts
from relfit.util.checks import check_choice, check_whole
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance

Floats = NDArray[np.floating[Any]]
# A function of (n, rng) that returns n new rows.
Draw = Callable[[int, np.random.Generator], Any]

# The number of rows at which scores are evaluated at once, so that a model's own temporary
# arrays stay bounded.
SCORE_BATCH = 65_536
# Products of two scores, and sums of them, must stay within float64.
LARGEST_SCORE = 1e100
# The most rows without a score at which the log density is evaluated too, to explain why.
_MOST_EXPLAINED = 1000
# The number of rows at which the error of finite differences is estimated.
_ERROR_ROWS = 64
_POSITIVE = "KSD needs a positive density wherever there are data"


class OutsideSupport(InputError):
    """There are data at which a density is 0."""


@dataclass(frozen=True)
class Sample:
    """A model given by its sample: an array of n rows and d columns (a 1-d array is n × 1)."""

    x: Any


@dataclass(frozen=True)
class Density:
    """A model given by a density known up to a constant.

    Args:
        score: function from rows (n, d) to the gradient of the log density at each row (n, d).
        log_prob: function from rows (n, d) to log densities (n,), up to a constant. Without
            `score` its gradient is taken: by `autodiff`, or else by finite differences (4d
            evaluations per row), which the result then says, with an estimate of their
            error.
        dim: the number of columns d; if given, it is checked against the data.
        autodiff: "torch" or "jax" if the functions take and return arrays of that library;
            log_prob is then differentiated by it. None is NumPy. Torch modules and `jax.jit`
            functions are recognised without it.
        normalised: True if exp(log_prob) integrates to 1, as the log-likelihood needs it;
            False if a constant is missing; None if that is not known.
        support: "whole" for a density that is positive everywhere; "discrete" for one of whole
            numbers or other points, a probability mass function; None to search for its edges.

    A density of y given covariates x has a log_prob of two arguments, y (n, d) and x (n, p):
    the log-likelihood takes the covariates as ``compare(..., given=x)``.

    >>> standard_normal = Density(score=lambda x: -x, dim=2)
    >>> standard_normal.scores(np.array([[1.0, 2.0]]))
    array([[-1., -2.]])
    """

    score: Callable[..., Any] | None = None
    log_prob: Callable[..., Any] | None = None
    dim: int | None = None
    autodiff: str | None = field(default=None, kw_only=True)
    normalised: bool | None = field(default=None, kw_only=True)
    support: Literal["whole", "discrete"] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.score is None and self.log_prob is None:
            raise InputError("Density: expected score= or log_prob=, got neither")
        for name, function in (("score", self.score), ("log_prob", self.log_prob)):
            if function is not None and not callable(function):
                raise InputError(
                    f"Density: expected {name} to be callable, got {type(function).__name__}"
                )
        if self.dim is not None:
            check_whole("Density: dim", self.dim, 1)
        if self.autodiff is not None:
            check_choice("Density: autodiff", self.autodiff, LIBRARIES)
        if not (self.normalised is None or isinstance(self.normalised, bool | np.bool_)):
            raise InputError(
                f"Density: expected normalised to be True, False or None, got "
                f"{self.normalised!r}"
            )

    def scores(self, x: Array) -> Array:
        """The gradient of the log density at every row of x (n, d)."""
        scores = self.raw_scores(x).astype(np.float64, copy=False)
        self.refuse_rows(not_finite(scores), x)
        return scores

    def raw_scores(self, x: Array) -> Floats:
        """`scores` in the precision in which they were computed, including NaN and
        infinities.
        """
        # Each batch is a copy: a function that works in place must not change the data of the
        # other models.
        return np.concatenate(
            [
                real("score", self._score_function(rows.copy()), rows.shape)
                for rows in _batches(x)
            ]
        )

    def log_probs(self, x: Array) -> Floats:
        """The log density at every row of x (n,), up to a constant, in its own precision;
        −inf outside the support.
        """
        if self._log_prob_function is None:
            raise InputError("Density: expected log_prob=, got a score only")
        function = self._log_prob_function
        return np.concatenate(
            [real("log_prob", function(rows.copy()), (len(rows),)) for rows in _batches(x)]
        )

    def notes(self, x: Array) -> tuple[str, ...]:
        """What a reader should know about the scores at x; refuses data at which the log
        density is not finite.
        """
        if self.log_prob is not None:
            log_probs = self.log_probs(x)
            bad = ~np.isfinite(log_probs)
            if bad.any():
                raise OutsideSupport(
                    f"log_prob: expected finite values, got {log_probs[bad][0]:g} at "
                    f"{count_rows(bad, x)}; {_POSITIVE}"
                )
        rows = x[:: max(1, len(x) // _ERROR_ROWS)]
        if self.by_finite_differences:
            error = finite_error(self.log_probs, rows)
            return (
                f"scores by finite differences of log_prob, off by about {error:.0e} of "
                f"the typical score",
            )
        dtype = self.raw_scores(rows[:1]).dtype
        if dtype.itemsize >= 8:
            return ()
        return (f"scores computed in {dtype}, to about {np.finfo(dtype).precision} digits",)

    @property
    def conditional(self) -> bool:
        """True if log_prob is a function of y and of covariates x."""
        return self.log_prob is not None and required_arguments(self.log_prob) == 2

    def on_joined(self, dim: int) -> Density:
        """The density as a function of rows (y, x): the first `dim` columns are y, the
        others its covariates.
        """
        function = self.log_prob
        conditional = self.conditional
        if function is None:
            return self

        def log_prob(rows: Any) -> Any:
            y = rows[..., :dim]
            x = rows[..., dim:]
            return function(y, x) if conditional else function(y)

        return Density(
            log_prob=log_prob,
            autodiff=self._library(function),
            normalised=self.normalised,
            support=self.support,
        )

    @property
    def by_finite_differences(self) -> bool:
        """True if the score is taken by finite differences of log_prob."""
        return self.score is None and self._library(self.log_prob) is None

    @cached_property
    def _score_function(self) -> Callable[[Array], Any]:
        if self.score is not None:
            return values(self.score, self._library(self.score))
        assert self.log_prob is not None  # noqa: S101  (checked when the value was made)
        return gradient(self.log_prob, self._library(self.log_prob))

    @cached_property
    def _log_prob_function(self) -> Callable[[Array], Any] | None:
        return (
            None
            if self.log_prob is None
            else values(self.log_prob, self._library(self.log_prob))
        )

    def _library(self, function: Any) -> str | None:
        return self.autodiff if self.autodiff is not None else library_of(function)

    def refuse_rows(self, bad: Mask, x: Array) -> None:
        """Refuse the data if there are rows at which the scores are `bad` (n,)."""
        if not bad.any():
            return
        some = x[np.flatnonzero(bad)[:_MOST_EXPLAINED]]
        outside = self.log_prob is not None and not np.isfinite(self.log_probs(some)).all()
        where = f"{count_rows(bad, x)}{', where log_prob is not finite' if outside else ''}"
        error = OutsideSupport if outside else InputError
        raise error(
            f"score: expected finite values, got NaN or infinity at {where}; {_POSITIVE}"
        )


def required_arguments(function: Any) -> int | None:
    """The number of arguments without a default that a function takes by position; None if
    it does not say.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)


def at_level(network: Callable[..., Any], level: float) -> Density:
    """A score network s(x, σ) at one noise level σ, as the density of data + σ·noise.

    Networks trained by denoising score matching are such functions. A torch module is called
    with a tensor of rows and a tensor (n,) filled with σ, in its own dtype and on its own
    device; any other callable with NumPy rows (n, d) and the number σ.

    >>> standard = at_level(lambda x, sigma: -x / (1.0 + sigma**2), 2.0)
    >>> standard.scores(np.array([[5.0]]))
    array([[-1.]])
    """
    if not callable(network):
        raise InputError(f"expected a score network s(x, σ), got {type(network).__name__}")
    if is_instance(network, "torch.nn", "Module"):
        return Density(
            score=lambda x: network(x, x.new_full((len(x),), level)), autodiff="torch"
        )
    return Density(score=lambda x: network(x, level))


def scores_of(name: str, density: Density, rows: Array) -> Array:
    """The density's scores at these rows; errors name the model."""
    with naming(f"model {name!r}"):
        return density.scores(rows)


def stored_scores(name: str, density: Density, rows: Array, folder: Path) -> Array:
    """The density's scores at all rows, evaluated once, a part at a time, and mapped from a
    file in the folder.
    """
    with naming(f"model {name!r}"):
        return spilled(score_parts(density, rows), folder)


def score_parts(density: Density, rows: Array) -> Iterator[Array]:
    """The scores of one part of the rows after the other; refused at the end if some are not
    finite.
    """
    bad = np.zeros(len(rows), dtype=bool)
    for part in parts(rows.shape):
        scores = density.raw_scores(rows[part]).astype(np.float64, copy=False)
        bad[part] = not_finite(scores)
        yield scores
    density.refuse_rows(bad, rows)


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """Put the argument that an error is about in front of its message."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{argument}: {error}") from None


def _batches(x: Array) -> Iterator[Array]:
    if is_mapped(x):
        return (x[part] for part in parts(x.shape))
    return (x[a : a + SCORE_BATCH] for a in range(0, len(x), SCORE_BATCH))


def not_finite(scores: Floats) -> Mask:
    """(n,) True for a row of scores that holds NaN, infinity or a number too large to work
    with.
    """
    # Not `abs(scores) >= LARGEST_SCORE`: NaN must count too.
    return np.asarray(~(np.abs(scores) < LARGEST_SCORE).all(axis=1))


def count_rows(bad: Mask, x: Array) -> str:
    """The number of bad rows and the first of them, in words."""
    first = int(bad.argmax())
    where = ", ".join(f"{value:.4g}" for value in x[first, :4])
    where += ", …" if x.shape[1] > 4 else ""
    return f"{int(bad.sum())} of {len(x)} rows (first: row {first}, at {where})"
