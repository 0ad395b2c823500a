"""Scores against finite differences of the log density, and Jacobians of scores that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data import autodiff as finite
from relfit.data.adapters import adapt
from relfit.data.arrays import as_rows
from relfit.data.models import Density, count_rows, not_finite
from relfit.util.arrays import Array, Mask
from relfit.util.errors import InputError

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
        error = finite.finite_error(density.log_probs, x)
        return Finding(f"the score is taken by finite differences, off by about {error:.0e} of the typical score")
    tolerance = _tolerance(density.log_probs(x[:1]).dtype)
    return _finding(
        lambda rows, widen: finite.finite_gradient(density.log_probs, x[rows], widen=widen), scores, tolerance
    )


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


# --------------------
# Where the support of a density ends, beyond the data along each axis.

LogProbs = Callable[[Array], NDArray[Any]]

# How far beyond the data to look, in spans of the column.
_REACH = (0.01, 0.1, 1.0, 3.0)
_HALVINGS = 60


@dataclass(frozen=True)
class Edge:
    """The support ends at `place` in this column; log p there lies `drop` below its highest value at the data."""

    column: int
    place: float
    drop: float


def edges(log_prob: LogProbs, x: Array, log_probs: NDArray[Any]) -> list[Edge]:
    """Look along both ways of each axis from the row of highest density, and halve the way to where log p ends.

    >>> half_line = lambda x: np.where(x[:, 0] > 2.0, -x[:, 0], -np.inf)
    >>> x = np.array([[3.0], [4.0], [6.0]])
    >>> [(edge.column, round(edge.place, 6), round(edge.drop, 6)) for edge in edges(half_line, x, half_line(x))]
    [(0, 2.0, -1.0)]
    """
    d = x.shape[1]
    top = x[log_probs.argmax()]
    columns = np.repeat(np.arange(d), 2)
    span = np.ptp(x, axis=0)
    span = np.where(span > 0.0, span, np.abs(top) + 1.0)
    ends = np.stack([x.min(axis=0), x.max(axis=0)], axis=1).ravel()
    ways = np.tile([-1.0, 1.0], d) * span[columns]
    outside = np.full(2 * d, np.nan)
    for reach in _REACH:
        places = ends + reach * ways
        gone = ~np.isfinite(log_prob(_moved(top, columns, places)))
        outside = np.where(np.isnan(outside) & gone, places, outside)
    found = ~np.isnan(outside)
    if not found.any():
        return []
    columns = columns[found]
    places, heights = _halved(log_prob, top, columns, outside[found])
    drops = float(log_probs.max()) - heights
    unit = 1e-9 * span[columns]
    places = np.round(places / unit) * unit + 0.0
    return [Edge(int(k), float(place), float(drop)) for k, place, drop in zip(columns, places, drops, strict=True)]


def _halved(log_prob: LogProbs, top: Array, columns: NDArray[np.intp], outside: Array) -> tuple[Array, Array]:
    inside = top[columns]
    heights = np.full(len(columns), float(log_prob(top[None])[0]))
    for _ in range(_HALVINGS):
        middle = 0.5 * (inside + outside)
        here = log_prob(_moved(top, columns, middle)).astype(np.float64)
        in_support = np.isfinite(here)
        inside, outside = np.where(in_support, middle, inside), np.where(in_support, outside, middle)
        heights = np.where(in_support, here, heights)
    return inside, heights


def _moved(row: Array, columns: NDArray[np.intp], places: Array) -> Array:
    """Copies of the row, each with one column moved to its place."""
    rows = np.repeat(row[None], len(columns), axis=0)
    rows[np.arange(len(columns)), columns] = places
    return rows


# --------------------
# Is this score the gradient of this log density, and can KSD use it on these data?

# A density this many powers of e below its top, as near to its edge as float64 can tell, vanishes there.
_VANISHED = 30.0
_MOST_PLACES = 4


@dataclass(frozen=True)
class ScoreCheck:
    """What `check_score` found; ``print`` it.

    Attributes:
        ok: whether nothing wrong was found.
        messages: what was found, in sentences.
        largest_error: the largest difference between score and gradient (or, without log_prob, between the two
            halves of the Jacobian), relative to the typical size; None if it could not be measured.
        n_rows: the number of rows of data.
        n_bad_rows: rows at which the score or the log density is not finite.
    """

    ok: bool
    messages: tuple[str, ...]
    largest_error: float | None
    n_rows: int
    n_bad_rows: int

    def __str__(self) -> str:
        head = "score check: nothing wrong found" if self.ok else "score check: KSD cannot rely on this density here"
        return "\n".join([head, *(f"- {message}" for message in self.messages)])


def check_score(density: Any, x: Any, *, max_rows: int = 200) -> ScoreCheck:
    """Check a density on data: its score against finite differences of log_prob, and its support.

    Args:
        density: a `Density`, or any object that `compare` takes as one.
        x: the data, (n, d). Finite values are checked at all rows, derivatives at `max_rows` of them.
        max_rows: the number of rows, evenly spaced, at which derivatives are taken.

    KSD needs a positive density wherever there are data, and one that vanishes at the edges of its support, if
    it has any. A score without log_prob is a gradient only if its Jacobian is symmetric.

    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> print(check_score(Density(score=lambda x: x, log_prob=lambda x: -0.5 * (x**2).sum(axis=1)), x))
    score check: KSD cannot rely on this density here
    - the score is -1 times the gradient of log_prob
    """
    rows = as_rows("x", x)
    if not isinstance(max_rows, int | np.integer) or max_rows < 1:
        raise InputError(f"max_rows: expected a positive whole number, got {max_rows!r}")
    known = adapt(density, rows.shape[1])
    if known is None:
        raise InputError(
            f"density: expected a Density or a model with a log density, got {type(density).__name__}; "
            "wrap a function as Density(score=...) or Density(log_prob=...)"
        )
    return _check(known, rows, int(max_rows))


def _check(density: Density, x: Array, max_rows: int) -> ScoreCheck:
    scores = density.raw_scores(x).astype(np.float64)
    log_probs = None if density.log_prob is None else density.log_probs(x)
    outside = np.zeros(len(x), dtype=bool) if log_probs is None else ~np.isfinite(log_probs)
    bad = not_finite(scores) | outside
    findings = [
        *_at_rows("log_prob is not finite, so the support does not cover the data,", outside, x),
        *_at_rows("the score is NaN or infinite", bad & ~outside, x),
    ]
    good = np.flatnonzero(~bad)
    if len(good):
        some = good[:: -(-len(good) // max_rows)]
        if log_probs is None:
            findings.append(symmetry_finding(density, x[some]))
        else:
            findings.append(gradient_finding(density, x[some], scores[some]))
            findings += _edge_findings(density, x[good], log_probs[good])
    errors = [finding.error for finding in findings if finding.error is not None]
    return ScoreCheck(
        ok=not any(finding.wrong for finding in findings),
        messages=tuple(finding.message for finding in findings),
        largest_error=max(errors) if errors else None,
        n_rows=len(x),
        n_bad_rows=int(bad.sum()),
    )


def _at_rows(what: str, bad: NDArray[np.bool_], x: Array) -> list[Finding]:
    return [Finding(f"{what} at {count_rows(bad, x)}", wrong=True)] if bad.any() else []


def _edge_findings(density: Density, x: Array, log_probs: NDArray[Any]) -> list[Finding]:
    found = edges(density.log_probs, x, log_probs)
    alive = [edge for edge in found if edge.drop < _VANISHED]
    dead = [edge for edge in found if edge.drop >= _VANISHED]
    findings = []
    if dead:
        findings.append(Finding(f"the support ends at {_places(dead)}; the density vanishes there, as KSD needs"))
    if alive:
        findings.append(
            Finding(
                f"the support ends at {_places(alive)} and the density does not vanish there, so the KSD of the true "
                "model is not 0; transform the data to the whole line, or compare samples by MMD",
                wrong=True,
            )
        )
    return findings


def _places(edges: list[Edge]) -> str:
    shown = [f"{edge.place:.6g} in column {edge.column}" for edge in edges[:_MOST_PLACES]]
    more = f" and {len(edges) - _MOST_PLACES} more places" if len(edges) > _MOST_PLACES else ""
    return ", ".join(shown) + more
