"""What a candidate can be: a sample of rows, or a density known through its score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError

Array = NDArray[np.float64]

# Scores are asked for in batches, so that a model's own temporaries stay bounded.
SCORE_BATCH = 65_536


@dataclass(frozen=True)
class Sample:
    """A model given by its sample: an array of n rows and d columns (a 1-d array is n × 1)."""

    x: Any


@dataclass(frozen=True)
class Density:
    """A model given by a density known up to a constant.

    Args:
        score: function from rows (n, d) to the gradient of the log density at each row (n, d).
        log_prob: function from rows (n, d) to log densities (n,), up to a constant. Without `score`
            the gradient is taken by central finite differences (2d evaluations).
        dim: the number of columns d, checked against the data where given.

    >>> standard_normal = Density(score=lambda x: -x, dim=2)
    >>> standard_normal.scores(np.array([[1.0, 2.0]]))
    array([[-1., -2.]])
    """

    score: Callable[[Array], Any] | None = None
    log_prob: Callable[[Array], Any] | None = None
    dim: int | None = None

    def __post_init__(self) -> None:
        if self.score is None and self.log_prob is None:
            raise InputError("Density: expected score= or log_prob=, got neither")
        for name, function in (("score", self.score), ("log_prob", self.log_prob)):
            if function is not None and not callable(function):
                raise InputError(f"Density: expected {name} to be callable, got {type(function).__name__}")

    def scores(self, x: Array) -> Array:
        """The gradient of the log density at every row of x (n, d)."""
        function = self.score if self.score is not None else self._finite_differences
        parts = [_checked(function(rows), rows) for rows in _batches(x)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _finite_differences(self, x: Array) -> Array:
        step = np.cbrt(np.finfo(float).eps) * np.maximum(np.abs(x).max(axis=0, initial=0.0), 1e-3)
        columns = []
        for k, h in enumerate(step):
            ahead, behind = x.copy(), x.copy()
            ahead[:, k] += h
            behind[:, k] -= h
            columns.append((self._log_probs(ahead) - self._log_probs(behind)) / (ahead[:, k] - behind[:, k]))
        return np.stack(columns, axis=1)

    def _log_probs(self, x: Array) -> Array:
        assert self.log_prob is not None  # noqa: S101  (checked when the value was made)
        values = np.asarray(self.log_prob(x), dtype=float)
        if values.shape != (len(x),):
            raise InputError(f"log_prob: expected shape ({len(x)},), got {values.shape}")
        return values


def _batches(x: Array) -> list[Array]:
    return [x[a : a + SCORE_BATCH] for a in range(0, len(x), SCORE_BATCH)]


def _checked(raw: Any, x: Array) -> Array:
    scores = np.asarray(raw, dtype=float)
    if scores.shape != x.shape:
        raise InputError(f"score: expected shape {x.shape} like the rows, got {scores.shape}")
    bad = ~np.isfinite(scores).all(axis=1)
    if bad.any():
        raise InputError(
            f"score: expected finite values, got NaN or infinity at {int(bad.sum())} of {len(x)} rows "
            f"(first: row {int(bad.argmax())}); KSD needs a positive density wherever there are data"
        )
    return scores
