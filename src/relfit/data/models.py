"""What a candidate can be: a sample of rows, or a density known through its score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.rows import LazyRows, parts
from relfit.data import autodiff as finite
from relfit.data.autodiff import LIBRARIES, gradient, library_of, real, values
from relfit.util.arrays import Array
from relfit.util.errors import InputError

Floats = NDArray[np.floating[Any]]

# Scores are asked for in batches, so that a model's own temporaries stay bounded.
SCORE_BATCH = 65_536

# Products of two scores, and sums of them, must stay within float64.
LARGEST_SCORE = 1e100

_POSITIVE = "KSD needs a positive density wherever there are data"

# Rows without a score that are asked for their log density too, to say why.
_ASKED_AGAIN = 1000

# The error of finite differences is estimated at this many rows.
_ERROR_PROBE = 64


@dataclass(frozen=True)
class Sample:
    """A model given by its sample: an array of n rows and d columns (a 1-d array is n × 1)."""

    x: Any


@dataclass(frozen=True)
class Density:
    """A model given by a density known up to a constant.

    Args:
        score: function from rows (n, d) to the gradient of the log density at each row (n, d).
        log_prob: function from rows (n, d) to log densities (n,), up to a constant. Without `score` its
            gradient is taken: by `autodiff`, or else by finite differences (4d evaluations per row), which the
            result then says, with an estimate of their error.
        dim: the number of columns d, checked against the data where given.
        autodiff: "torch" or "jax" if the functions take and return arrays of that library; log_prob is then
            differentiated by it. None is NumPy; torch modules and `jax.jit` functions are known without it.

    >>> standard_normal = Density(score=lambda x: -x, dim=2)
    >>> standard_normal.scores(np.array([[1.0, 2.0]]))
    array([[-1., -2.]])
    """

    score: Callable[..., Any] | None = None
    log_prob: Callable[..., Any] | None = None
    dim: int | None = None
    autodiff: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.score is None and self.log_prob is None:
            raise InputError("Density: expected score= or log_prob=, got neither")
        for name, function in (("score", self.score), ("log_prob", self.log_prob)):
            if function is not None and not callable(function):
                raise InputError(f"Density: expected {name} to be callable, got {type(function).__name__}")
        if self.dim is not None and (not isinstance(self.dim, int | np.integer) or self.dim < 1):
            raise InputError(f"Density: expected dim to be a positive whole number, got {self.dim!r}")
        if self.autodiff not in (None, *LIBRARIES):
            raise InputError(f'Density: expected autodiff to be "torch", "jax" or None, got {self.autodiff!r}')

    def scores(self, x: Array) -> Array:
        """The gradient of the log density at every row of x (n, d)."""
        scores = self.raw_scores(x).astype(np.float64, copy=False)
        self.refuse_rows(not_finite(scores), x)
        return scores

    def raw_scores(self, x: Array) -> Floats:
        """`scores` in the precision they were computed in, NaN and infinities left in."""
        # A copy each: a function that works in place must not change the data under the other models.
        return _joined([real("score", self._score_function(rows.copy()), rows.shape) for rows in _batches(x)])

    def log_probs(self, x: Array | LazyRows) -> Floats:
        """The log density at every row of x (n,), up to a constant, in its own precision; −inf outside the support."""
        if self._log_prob_function is None:
            raise InputError("Density: expected log_prob=, got a score only")
        function = self._log_prob_function
        return _joined([real("log_prob", function(rows.copy()), (len(rows),)) for rows in _batches(x)])

    def notes(self, x: Array | LazyRows) -> tuple[str, ...]:
        """What a reader should know of the scores at x; refuses data at which the log density is not finite."""
        if self.log_prob is not None:
            self._refuse_no_density(self.log_probs(x), x)
        probe = x[:: max(1, len(x) // _ERROR_PROBE)]
        if self.by_finite_differences:
            error = finite.finite_error(self.log_probs, probe)
            return (f"scores by finite differences of log_prob, off by about {error:.0e} of the typical score",)
        dtype = self.raw_scores(probe[:1]).dtype
        return (
            () if dtype.itemsize >= 8 else (f"scores computed in {dtype}, to about {np.finfo(dtype).precision} digits",)
        )

    @property
    def by_finite_differences(self) -> bool:
        """Whether the score is taken by finite differences of log_prob."""
        return self.score is None and self._library(self.log_prob) is None

    @cached_property
    def _score_function(self) -> Callable[[Array], Any]:
        if self.score is not None:
            return values(self.score, self._library(self.score))
        assert self.log_prob is not None  # noqa: S101  (checked when the value was made)
        return gradient(self.log_prob, self._library(self.log_prob))

    @cached_property
    def _log_prob_function(self) -> Callable[[Array], Any] | None:
        return None if self.log_prob is None else values(self.log_prob, self._library(self.log_prob))

    def _library(self, function: Any) -> str | None:
        return self.autodiff if self.autodiff is not None else library_of(function)

    def refuse_rows(self, bad: NDArray[np.bool_], x: Array | LazyRows) -> None:
        """Refuse the data where the scores are `bad` (n,), if there are such rows."""
        if not bad.any():
            return
        some = x[np.flatnonzero(bad)[:_ASKED_AGAIN]]
        outside = self.log_prob is not None and not np.isfinite(self.log_probs(some)).all()
        where = f"{count_rows(bad, x)}{', where log_prob is not finite' if outside else ''}"
        raise InputError(f"score: expected finite values, got NaN or infinity at {where}; {_POSITIVE}")

    def _refuse_no_density(self, log_probs: Floats, x: Array | LazyRows) -> None:
        bad = ~np.isfinite(log_probs)
        if bad.any():
            raise InputError(
                f"log_prob: expected finite values, got {log_probs[bad][0]:g} at {count_rows(bad, x)}; {_POSITIVE}"
            )


def _batches(x: Array | LazyRows) -> Iterator[Array]:
    if isinstance(x, LazyRows):
        return (x[part] for part in parts(x.shape))
    return (x[a : a + SCORE_BATCH] for a in range(0, len(x), SCORE_BATCH))


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def not_finite(scores: Floats) -> NDArray[np.bool_]:
    """(n,) whether a row of scores holds NaN, infinity or a number too large to work with."""
    # Not `abs(scores) >= LARGEST_SCORE`: NaN has to fail too.
    return np.asarray(~(np.abs(scores) < LARGEST_SCORE).all(axis=1))


def count_rows(bad: NDArray[np.bool_], x: Array | LazyRows) -> str:
    """In words: how many rows are bad, and the first of them."""
    first = int(bad.argmax())
    where = ", ".join(f"{value:.4g}" for value in x[first : first + 1][0, :4]) + (", …" if x.shape[1] > 4 else "")
    return f"{int(bad.sum())} of {len(x)} rows (first: row {first}, at {where})"
