"""Is this score the gradient of this log density, and can KSD use it on these data?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.adapters import adapt
from relfit.errors import InputError
from relfit.gradients import finite
from relfit.inputs import as_rows
from relfit.models import LARGEST_SCORE, Density, count_rows

Array = NDArray[np.float64]

# A score further off than this share of the typical score is called wrong.
_TOLERANCE = 1e-4
# Finite differences that disagree with themselves by more than this share can show nothing.
_TOO_ROUGH = 1e-2
# Numbers that the matrices of derivatives may hold.
_MOST_ENTRIES = 2_000_000
# A density this many powers of e below its top, as near to its edge as float64 can tell, vanishes there.
_VANISHED = 30.0
_REACH = (0.01, 0.1, 1.0, 3.0)


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


@dataclass(frozen=True)
class _Finding:
    message: str
    wrong: bool = False
    error: float | None = None


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
    scores = density.raw_scores(x)
    bad = ~(np.abs(scores) < LARGEST_SCORE).all(axis=1)
    findings = _at_rows("the score is NaN or infinite", bad, x)
    if density.log_prob is not None:
        no_density = ~np.isfinite(density.log_probs(x))
        findings += _at_rows("log_prob is not finite, so the support does not cover the data,", no_density, x)
        bad = bad | no_density
    good = np.flatnonzero(~bad)
    if len(good):
        some = good[:: -(-len(good) // max_rows)]
        findings += _derivatives(density, x[some], scores[some])
        findings += [] if density.log_prob is None else _edges(density, x[good])
    errors = [finding.error for finding in findings if finding.error is not None]
    return ScoreCheck(
        ok=not any(finding.wrong for finding in findings),
        messages=tuple(finding.message for finding in findings),
        largest_error=max(errors) if errors else None,
        n_rows=len(x),
        n_bad_rows=int(bad.sum()),
    )


def _at_rows(what: str, bad: NDArray[np.bool_], x: Array) -> list[_Finding]:
    return [_Finding(f"{what} at {count_rows(bad, x)}", wrong=True)] if bad.any() else []


def _derivatives(density: Density, x: Array, scores: Array) -> list[_Finding]:
    if density.log_prob is None:
        return [_symmetry(density, x)]
    if density.by_finite_differences:
        error = finite.error(density.log_probs, x)
        return [_Finding(f"the score is taken by finite differences, off by about {error:.0e} of the typical score")]
    slopes = finite.gradient(density.log_probs, x)
    doubt = np.abs(slopes - finite.gradient(density.log_probs, x, widen=2.0))
    sure = np.isfinite(doubt).all(axis=1)
    if not sure.any():
        return [_Finding("finite differences of log_prob leave its support, so the score could not be checked")]
    return [_agreement(scores[sure], slopes[sure], doubt[sure])]


def _agreement(scores: Array, slopes: Array, doubt: Array) -> _Finding:
    typical = np.sqrt(np.mean(slopes**2, axis=0))
    size = np.maximum(np.abs(slopes), np.where(typical > 0.0, typical, 1.0))
    if np.median(doubt / size) > _TOO_ROUGH:
        return _Finding(
            "finite differences of log_prob are too rough to check the score: they change by "
            f"{np.median(doubt / size):.0%} with the step; is it computed in low precision?"
        )
    off = np.abs(scores - slopes)
    error = float((off / size).max())
    wrong = off > _TOLERANCE * size + 10.0 * doubt
    if not wrong.any():
        message = f"the score is the gradient of log_prob: off by at most {error:.0e} of its size at {len(scores)} rows"
        return _Finding(message, error=error)
    factor = float((scores * slopes).sum() / (slopes**2).sum()) if slopes.any() else 0.0
    if factor and (np.abs(scores - factor * slopes) <= abs(factor) * (_TOLERANCE * size + 10.0 * doubt)).all():
        return _Finding(f"the score is {factor:.6g} times the gradient of log_prob", True, error)
    columns = ", ".join(str(k) for k in np.flatnonzero(wrong.any(axis=0))[:5])
    return _Finding(
        f"the score is not the gradient of log_prob at {int(wrong.any(axis=1).sum())} of {len(scores)} rows checked "
        f"(columns {columns}, counted from 0): off by up to {error:.2g} of its size",
        True,
        error,
    )


def _symmetry(density: Density, x: Array) -> _Finding:
    d = x.shape[1]
    if d == 1:
        return _Finding("in one dimension any score is a gradient; give log_prob= too, to have it checked")
    some = x[:: -(-len(x) * d * d // _MOST_ENTRIES)]
    jacobian = finite.jacobian(density.raw_scores, some)
    doubt = np.abs(jacobian - finite.jacobian(density.raw_scores, some, widen=2.0)).max(axis=(1, 2))
    skew = np.abs(jacobian - jacobian.transpose(0, 2, 1)).max(axis=(1, 2))
    typical = float(np.sqrt(np.mean(np.square(jacobian)))) or 1.0
    error = float((skew / typical).max())
    if (skew <= _TOLERANCE * d * typical + 10.0 * doubt).all():
        return _Finding(f"the Jacobian of the score is symmetric at {len(some)} rows, to {error:.0e}", error=error)
    return _Finding(
        f"the Jacobian of the score is not symmetric (by up to {error:.2g} of its size), so it is the gradient of no "
        "log density",
        True,
        error,
    )


def _edges(density: Density, x: Array) -> list[_Finding]:
    """Look for the end of the support along each axis, out from the row of highest density beyond the data."""
    log_probs = density.log_probs(x)
    top = x[log_probs.argmax()]
    span = np.maximum(np.ptp(x, axis=0), 1e-6 * np.abs(x).max() + 1e-300)
    findings = []
    for k, side in [(k, side) for k in range(x.shape[1]) for side in (-1.0, 1.0)]:
        extreme = x[:, k].max() if side > 0 else x[:, k].min()
        tried = extreme + side * span[k] * np.array(_REACH)
        gone = ~np.isfinite(density.log_probs(_moved(top, k, tried)))
        if gone.any():
            edge, height = _edge(density, top, k, float(tried[gone.argmax()]))
            findings.append(_edge_finding(k, edge, float(log_probs.max()) - height))
    return findings


def _edge(density: Density, top: Array, k: int, outside: float) -> tuple[float, float]:
    """Where along column k the density ends, and log p there, by bisection."""
    inside, height = float(top[k]), np.inf
    for _ in range(60):
        middle = 0.5 * (inside + outside)
        here = float(density.log_probs(_moved(top, k, np.array([middle])))[0])
        if np.isfinite(here):
            inside, height = middle, here
        else:
            outside = middle
    return inside, height


def _moved(row: Array, k: int, positions: Array) -> Array:
    rows = np.repeat(row[None], len(positions), axis=0)
    rows[:, k] = positions
    return rows


def _edge_finding(k: int, edge: float, drop: float) -> _Finding:
    where = f"the support ends near {edge:.6g} in column {k} (counted from 0)"
    if drop > _VANISHED:
        return _Finding(f"{where}; the density vanishes there, as KSD needs")
    return _Finding(
        f"{where} and the density does not vanish there, so the KSD of the true model is not 0; transform the data "
        "to the whole line, or compare samples by MMD",
        wrong=True,
    )
