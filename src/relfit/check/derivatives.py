"""Scores against finite differences of the log density, and Jacobians of scores that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.gradients import finite
from relfit.models import Density, not_finite

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# Finite differences of log_prob at the rows that are true, with the step times a factor.
SlopesOf = Callable[[Mask, float], Array]

# A score further off than this share of the typical score is called wrong; float32 can show no less than the second.
_TOLERANCE = 1e-4
_LOW_TOLERANCE = 2e-2
# Finite differences that disagree with themselves by more than this share can show nothing.
_TOO_ROUGH = 1e-2
# The share of rows whose finite differences count as usual; the others may lie at kinks and edges.
_USUAL = 0.9
_NARROWER = (2.0**-5, 2.0**-10)
# Numbers that the Jacobians may hold.
_MOST_ENTRIES = 2_000_000


@dataclass(frozen=True)
class Finding:
    """One thing found, in words; `error` where it was measured."""

    message: str
    wrong: bool = False
    error: float | None = None


@dataclass(frozen=True)
class _Slopes:
    """Finite differences of log_prob, and how much they change when the step is doubled; both (n, d)."""

    values: Array
    changes: Array

    def size(self) -> Array:
        """What an error is relative to: the slope itself, or the typical one of its column where that is larger."""
        typical = np.sqrt(np.mean(self.values**2, axis=0))
        return np.maximum(np.abs(self.values), np.where(typical > 0.0, typical, 1.0))

    def usual_change(self) -> Array:
        return np.asarray(np.quantile(self.changes, _USUAL, axis=0))


def gradient_finding(density: Density, x: Array, scores: Array) -> Finding:
    """Whether the scores are the gradient of log_prob at the rows of x."""
    if density.by_finite_differences:
        error = finite.error(density.log_probs, x)
        return Finding(f"the score is taken by finite differences, off by about {error:.0e} of the typical score")
    tolerance = _tolerance(density.log_probs(x[:1]).dtype)
    return _finding(lambda rows, widen: finite.gradient(density.log_probs, x[rows], widen=widen), scores, tolerance)


def direction_finding(density: Density, x: Array) -> Finding | None:
    """`gradient_finding` along one direction per row, s·w against the slope of log_prob along w.

    w has random signs and the length of the column's scale in each column. It takes eight log densities per row and not
    8d, and a score that is wrong in any column is wrong along almost every w. None where there is nothing to go by.
    """
    log_probs, scores = density.log_probs(x), density.raw_scores(x)
    inside = np.isfinite(log_probs) & ~not_finite(scores)
    if not inside.any():
        return None
    x, scores = x[inside].astype(log_probs.dtype).astype(np.float64), scores[inside]
    epsilon, tolerance = float(np.finfo(log_probs.dtype).eps), _tolerance(log_probs.dtype, scores.dtype)
    steps = finite.steps_of(x, epsilon)
    # A step that the rows cannot resolve is another one than it should be, and so is the slope.
    if (tolerance * steps < 8.0 * epsilon * np.abs(x)).any():
        return None
    step = epsilon**0.25
    ways = np.random.default_rng(0).choice([-1.0, 1.0], x.shape) * (steps / step)

    def slopes_of(rows: Mask, widen: float) -> Array:
        return _along(density, x[rows], ways[rows], widen * step)[:, None]

    return _finding(slopes_of, (scores.astype(np.float64) * ways).sum(axis=1)[:, None], tolerance, by_column=False)


def _along(density: Density, x: Array, ways: Array, step: float) -> Array:
    """(n,) the slope of log_prob at each row along its way: central differences with one Richardson step."""
    moved = x + step * np.array([1.0, -1.0, 2.0, -2.0])[:, None, None] * ways
    f = density.log_probs(moved.reshape(-1, x.shape[1])).astype(np.float64).reshape(4, len(x))
    with np.errstate(invalid="ignore"):  # −inf − (−inf) outside the support comes out as NaN
        return np.asarray((8.0 * (f[0] - f[1]) - (f[2] - f[3])) / (12.0 * step))


def _tolerance(*types: np.dtype[Any]) -> float:
    return _TOLERANCE if min(kind.itemsize for kind in types) >= 8 else _LOW_TOLERANCE


def _finding(slopes_of: SlopesOf, scores: Array, tolerance: float, *, by_column: bool = True) -> Finding:
    slopes = _slopes(slopes_of, np.ones(len(scores), dtype=bool))
    sure = np.asarray(np.isfinite(slopes.changes).all(axis=1))
    if not sure.any():
        return Finding("finite differences of log_prob leave its support, so the score could not be checked")
    scores, slopes = scores[sure], _Slopes(slopes.values[sure], slopes.changes[sure])
    rough = float((slopes.usual_change() / slopes.size().mean(axis=0)).max())
    if rough > _TOO_ROUGH:
        return Finding(
            f"finite differences of log_prob change by {rough:.0%} with the step, too much to check the score by; try "
            "the model in float64"
        )
    slopes = _beside_kinks(lambda widen: _slopes(slopes_of, sure, widen), scores, slopes, tolerance)
    return _agreement(scores, slopes, tolerance, by_column)


def _slopes(slopes_of: SlopesOf, rows: Mask, widen: float = 1.0) -> _Slopes:
    values = slopes_of(rows, widen)
    return _Slopes(values, np.abs(values - slopes_of(rows, 2.0 * widen)))


def _beside_kinks(again: Callable[[float], _Slopes], scores: Array, slopes: _Slopes, tolerance: float) -> _Slopes:
    """The slopes, with smaller steps where they disagree: beside a kink only these stay on one side of it."""
    for widen in _NARROWER:
        off = np.abs(scores - slopes.values)
        if (off <= tolerance * slopes.size()).all():
            break
        nearer = again(widen)
        better = np.abs(scores - nearer.values) + nearer.changes < off + slopes.changes
        slopes = _Slopes(
            np.where(better, nearer.values, slopes.values), np.where(better, nearer.changes, slopes.changes)
        )
    return slopes


def _agreement(scores: Array, slopes: _Slopes, tolerance: float, by_column: bool) -> Finding:
    size = slopes.size()
    # One row's change may be small by chance.
    allowed = tolerance * size + 10.0 * np.maximum(slopes.usual_change(), slopes.changes)
    off = np.abs(scores - slopes.values)
    error = float((off / size).max())
    wrong = off > allowed
    if not wrong.any():
        message = f"the score is the gradient of log_prob: off by at most {error:.0e} of its size at {len(scores)} rows"
        return Finding(message, error=error)
    factor = float((scores * slopes.values).sum() / ((slopes.values**2).sum() or 1.0))
    if factor and (np.abs(scores - factor * slopes.values) <= max(1.0, abs(factor)) * allowed).all():
        return Finding(f"the score is {factor:.4g} times the gradient of log_prob", True, error)
    columns = ", ".join(str(k) for k in np.flatnonzero(wrong.any(axis=0))[:5])
    where = f" (columns {columns}, counted from 0)" if by_column else ""
    return Finding(
        f"the score is not the gradient of log_prob at {int(wrong.any(axis=1).sum())} of {len(scores)} rows checked"
        f"{where}: off by up to {error:.2g} of its size",
        True,
        error,
    )


def symmetry_finding(density: Density, x: Array) -> Finding:
    """Whether a score without log_prob is the gradient of anything: its Jacobian must be symmetric."""
    d = x.shape[1]
    if d == 1:
        return Finding("in one dimension any score is a gradient; give log_prob= too, to have it checked")
    some = x[:: -(-len(x) * d * d // _MOST_ENTRIES)]
    jacobian = finite.jacobian(density.raw_scores, some)
    change = np.abs(jacobian - finite.jacobian(density.raw_scores, some, widen=2.0)).max(axis=(1, 2))
    skew = np.abs(jacobian - jacobian.transpose(0, 2, 1)).max(axis=(1, 2))
    typical = float(np.sqrt(np.mean(np.square(jacobian)))) or 1.0
    error = float((skew / typical).max())
    if (skew <= _TOLERANCE * d * typical + 10.0 * np.maximum(change, np.quantile(change, _USUAL))).all():
        return Finding(f"the Jacobian of the score is symmetric at {len(some)} rows, to {error:.0e}", error=error)
    return Finding(
        f"the Jacobian of the score is not symmetric (by up to {error:.2g} of its size), so it is the gradient of no "
        "log density",
        True,
        error,
    )
