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

# Products of two scores, and sums of them, must stay within float64.
LARGEST_SCORE = 1e100


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
        if self.dim is not None and (not isinstance(self.dim, int | np.integer) or self.dim < 1):
            raise InputError(f"Density: expected dim to be a positive whole number, got {self.dim!r}")

    def scores(self, x: Array) -> Array:
        """The gradient of the log density at every row of x (n, d)."""
        function = self.score if self.score is not None else self._finite_differences
        # A copy each: a function that works in place must not change the data under the other models.
        parts = [_real("score", function(rows.copy()), rows.shape) for rows in _batches(x)]
        scores = np.concatenate(parts) if len(parts) > 1 else parts[0]
        _refuse_non_finite(scores, x)
        return scores

    def _finite_differences(self, x: Array) -> Array:
        columns = []
        for k, h in enumerate(_steps(x)):
            ahead, behind = x.copy(), x.copy()
            ahead[:, k] += h
            behind[:, k] -= h
            with np.errstate(invalid="ignore"):  # −inf − (−inf) outside the support, refused by the caller
                rise = self._log_probs(ahead) - self._log_probs(behind)
            columns.append(rise / (ahead[:, k] - behind[:, k]))
        return np.stack(columns, axis=1)

    def _log_probs(self, x: Array) -> Array:
        assert self.log_prob is not None  # noqa: S101  (checked when the value was made)
        return _real("log_prob", self.log_prob(x), (len(x),))


def _batches(x: Array) -> list[Array]:
    return [x[a : a + SCORE_BATCH] for a in range(0, len(x), SCORE_BATCH)]


def _steps(x: Array) -> Array:
    """Each column's step for central differences: ε^⅓ of its scale, and at least what x can resolve.

    The scale is the median distance to the median, which neither an offset nor an outlier moves; columns
    with an atom there fall back on their standard deviation, constant ones on their size.
    """
    median = np.median(np.abs(x - np.median(x, axis=0)), axis=0)
    size = np.maximum(np.abs(x).max(axis=0), 1e-3)
    deviation = x.std(axis=0)
    scale = np.where(median > 0.0, median, np.where(deviation > 1e-9 * size, deviation, size))
    return np.asarray(np.maximum(np.cbrt(np.finfo(float).eps) * scale, 4.0 * np.spacing(size)))


def _real(argument: str, raw: Any, shape: tuple[int, ...]) -> Array:
    """What a user's function returned, as float64 of this shape."""
    try:
        values = np.asarray(raw)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{argument}: expected an array, got a {type(raw).__name__} ({error})") from None
    if values.dtype.kind not in "biuf":
        raise InputError(f"{argument}: expected real numbers, got a {type(raw).__name__} of dtype {values.dtype}")
    if values.shape != shape:
        raise InputError(f"{argument}: expected shape {shape}, got {values.shape}")
    return values.astype(np.float64, copy=False)


def _refuse_non_finite(scores: Array, x: Array) -> None:
    # Not `abs(scores) >= LARGEST_SCORE`: NaN has to fail too.
    bad = ~(np.abs(scores) < LARGEST_SCORE).all(axis=1)
    if bad.any():
        first = int(bad.argmax())
        where = ", ".join(f"{value:.4g}" for value in x[first, :4]) + (", …" if x.shape[1] > 4 else "")
        raise InputError(
            f"score: expected finite values, got NaN or infinity at {int(bad.sum())} of {len(x)} rows "
            f"(first: row {first}, at {where}); KSD needs a positive density wherever there are data"
        )
