"""Is this score the gradient of this log density, and can KSD use it on these data?

Scores are compared with finite differences of the log density. A score without a log density
must have a symmetric Jacobian, or it is the gradient of nothing. Beyond the data, the edges
of the support are searched along each axis, because KSD needs a density that vanishes there.
`check_score` is the thorough check that a user asks for; `score_warnings` is a quick one
before a comparison relies on the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.adapters import adapt
from relfit.data.arrays import as_rows
from relfit.data.autodiff import finite_error, finite_gradient, jacobian, steps_of
from relfit.data.densities import Extent, edges
from relfit.data.models import Density, count_rows, not_finite
from relfit.util.arrays import Array, Mask
from relfit.util.checks import check_whole
from relfit.util.errors import InputError
from relfit.util.text import listed

# Finite differences of log_prob at the rows of the mask, with the step multiplied by a factor.
SlopesAt = Callable[[Mask, float], Array]

# A score is called wrong if its error is a larger fraction of the typical score; float32 can
# show errors above the second number only.
_TOLERANCE = 1e-4
_LOW_TOLERANCE = 2e-2
# Finite differences that change by a larger fraction with the step cannot show anything.
_TOO_ROUGH = 1e-2
# The fraction of rows at which finite differences count as usual; the others may lie at kinks
# and edges.
_USUAL = 0.9
_NARROWER = (2.0**-5, 2.0**-10)
# The most numbers that the Jacobians may hold.
_MOST_ENTRIES = 2_000_000
# The distances beyond the data at which the support is searched for its end, in units of the
# column's range.
_REACH = (0.01, 0.1, 1.0, 3.0)
_MOST_EDGES = 5
# What edges mean for KSD.
_EDGES = {
    "vanishes": "; the density vanishes there, as KSD needs",
    "far": "; the density does not vanish there, which KSD allows as long as no data are near",
    "harmful": ", and the density does not vanish there, so the KSD of the true model is "
    "not 0; transform the data to the whole line, or compare samples by MMD",
}
# The most rows at which `score_warnings` evaluates a density.
_WARNING_ROWS = 20


@dataclass(frozen=True, repr=False)
class ScoreCheck:
    """The findings of `check_score`; ``print`` it.

    Attributes:
        ok: True if nothing wrong was found.
        messages: the findings, in sentences.
        largest_error: the largest difference between score and gradient (or, without
            log_prob, between the Jacobian and its transpose), relative to the typical size;
            None if it could not be measured.
        n_rows: the number of rows of data.
        n_bad_rows: the number of rows at which the score or the log density is not finite.
    """

    ok: bool
    messages: tuple[str, ...]
    largest_error: float | None
    n_rows: int
    n_bad_rows: int

    def __repr__(self) -> str:
        head = (
            "score check: nothing wrong found"
            if self.ok
            else "score check: KSD cannot rely on this density here"
        )
        return "\n".join([head, *(f"- {message}" for message in self.messages)])


@dataclass(frozen=True)
class Finding:
    """One finding, in words; `error` if it was measured."""

    message: str
    wrong: bool = False
    error: float | None = None


def check_score(density: Any, x: Any, *, max_rows: int = 200) -> ScoreCheck:
    """Check a density on data: its score against finite differences of log_prob, and its
    support.

    Args:
        density: a `Density`, or any object that `compare` accepts as one.
        x: the data, (n, d). Finite values are checked at all rows, derivatives at `max_rows` of
            them.
        max_rows: the number of evenly spaced rows at which derivatives are taken.

    KSD needs a positive density wherever there are data, and one that vanishes at the edges
    of its support, if it has any. A score without log_prob is a gradient only if its
    Jacobian is symmetric.

    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> print(
    ...     check_score(
    ...         Density(score=lambda x: x, log_prob=lambda x: -0.5 * (x**2).sum(axis=1)), x
    ...     )
    ... )
    score check: KSD cannot rely on this density here
    - the score is -1 times the gradient of log_prob
    """
    rows = as_rows("x", x)
    check_whole("max_rows", max_rows, 1)
    adapted = adapt(density, rows.shape[1])
    if adapted is None:
        raise InputError(
            f"density: expected a Density or a model with a log density, got "
            f"{type(density).__name__}; "
            "wrap a function as Density(score=...) or Density(log_prob=...)"
        )
    return _check(adapted, rows, int(max_rows))


def score_warnings(densities: Mapping[str, Density], x: Array) -> tuple[str, ...]:
    """A warning about each named density whose score is not the gradient of its own log_prob.

    The densities have both, and are evaluated at evenly spaced rows of x (n, d), 20 at most,
    with ten to thirty log densities per row. There is no warning about a density that cannot
    be judged in this way: one that raises, leaves its support, or is too rough for finite
    differences.

    >>> log_prob = lambda x: -0.5 * (x**2).sum(axis=1)
    >>> models = {
    ...     "right": Density(lambda x: -x, log_prob),
    ...     "wrong": Density(lambda x: x, log_prob),
    ... }
    >>> score_warnings(models, np.random.default_rng(0).normal(size=(100, 2)))[0].partition(
    ...     ";"
    ... )[0]
    'wrong: the score is -1 times the gradient of log_prob'
    """
    rows = x[:: max(1, -(-len(x) // _WARNING_ROWS))]
    names_with: dict[str, list[str]] = {}
    for name, density in densities.items():
        try:
            with np.errstate(all="ignore"):
                finding = direction_finding(density, rows)
        # A function that accepts only the rows it was made for can raise anything.
        except Exception:  # noqa: BLE001, S112
            continue
        if finding is not None and finding.wrong:
            names_with.setdefault(finding.message, []).append(name)
    advice = (
        "verdicts rest on the score, so fix one of the two (relfit.check_score gives details)"
    )
    return tuple(
        f"{', '.join(names)}: {message}; {advice}" for message, names in names_with.items()
    )


def _check(density: Density, x: Array, max_rows: int) -> ScoreCheck:
    scores = density.raw_scores(x).astype(np.float64)
    log_probs = None if density.log_prob is None else density.log_probs(x)
    outside = np.zeros(len(x), dtype=bool) if log_probs is None else ~np.isfinite(log_probs)
    bad = not_finite(scores) | outside
    findings = [
        Finding(f"{what} at {count_rows(rows, x)}", wrong=True)
        for what, rows in (
            ("log_prob is not finite, so the support does not cover the data,", outside),
            ("the score is NaN or infinite", bad & ~outside),
        )
        if rows.any()
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
        largest_error=max(errors, default=None),
        n_rows=len(x),
        n_bad_rows=int(bad.sum()),
    )


def gradient_finding(density: Density, x: Array, scores: Array) -> Finding:
    """Compare the scores with the gradient of log_prob at the rows of x."""
    if density.by_finite_differences:
        error = finite_error(density.log_probs, x)
        return Finding(
            f"the score is taken by finite differences, off by about {error:.0e} "
            f"of the typical score"
        )
    return _finding(
        lambda rows, widen: finite_gradient(density.log_probs, x[rows], widen=widen),
        scores,
        _tolerance(density.log_probs(x[:1])),
        by_column=True,
    )


def direction_finding(density: Density, x: Array) -> Finding | None:
    """`gradient_finding` along one direction w per row: s·w against the slope of log_prob
    along w.

    In each column w has a random sign and the length of the column's scale. This takes eight
    log densities per row instead of 8d, and a score that is wrong in any column is wrong
    along almost every w. None if no row can be used.
    """
    log_probs = density.log_probs(x)
    scores = density.raw_scores(x)
    inside = np.isfinite(log_probs) & ~not_finite(scores)
    if not inside.any():
        return None
    x = x[inside].astype(log_probs.dtype).astype(np.float64)
    epsilon = float(np.finfo(log_probs.dtype).eps)
    tolerance = _tolerance(log_probs, scores)
    steps = steps_of(x, epsilon)
    # A step that the rows cannot resolve is rounded to another one, and so the slope is wrong.
    if (tolerance * steps < 8.0 * epsilon * np.abs(x)).any():
        return None
    step = epsilon**0.25
    directions = np.random.default_rng(0).choice([-1.0, 1.0], x.shape) * (steps / step)

    def slopes_at(rows: Mask, widen: float) -> Array:
        """(n, 1) the slope at each row along its direction: central differences with one
        Richardson step.
        """
        h = widen * step
        moved = x[rows] + h * np.array([1.0, -1.0, 2.0, -2.0])[:, None, None] * directions[rows]
        f = density.log_probs(moved.reshape(-1, x.shape[1])).astype(np.float64)
        f = f.reshape(4, -1, 1)
        with np.errstate(invalid="ignore"):  # −inf − (−inf), outside the support, gives NaN
            return np.asarray((8.0 * (f[0] - f[1]) - (f[2] - f[3])) / (12.0 * h))

    along = (scores[inside].astype(np.float64) * directions).sum(axis=1, keepdims=True)
    return _finding(slopes_at, along, tolerance, by_column=False)


def _tolerance(*values: NDArray[Any]) -> float:
    return _TOLERANCE if min(each.dtype.itemsize for each in values) >= 8 else _LOW_TOLERANCE


def _finding(
    slopes_at: SlopesAt, scores: Array, tolerance: float, *, by_column: bool
) -> Finding:
    """Compare the scores with the finite differences, at the rows where these are finite."""
    slopes, changes = _slopes(slopes_at, np.ones(len(scores), dtype=bool))
    usable = np.asarray(np.isfinite(changes).all(axis=1))
    if not usable.any():
        return Finding(
            "finite differences of log_prob leave its support, so the score could "
            "not be checked"
        )
    scores = scores[usable]
    slopes = slopes[usable]
    changes = changes[usable]
    rough = float((np.quantile(changes, _USUAL, axis=0) / _size(slopes).mean(axis=0)).max())
    if rough > _TOO_ROUGH:
        return Finding(
            f"finite differences of log_prob change by {rough:.0%} with the step, too much to "
            f"check the score; try "
            "the model in float64"
        )
    for widen in _NARROWER:
        # Beside a kink only smaller steps stay on one side of it.
        errors = np.abs(scores - slopes)
        if (errors <= tolerance * _size(slopes)).all():
            break
        near, near_changes = _slopes(slopes_at, usable, widen)
        better = np.abs(scores - near) + near_changes < errors + changes
        slopes = np.where(better, near, slopes)
        changes = np.where(better, near_changes, changes)
    size = _size(slopes)
    # The change at a single row may be small by chance.
    usual = np.quantile(changes, _USUAL, axis=0)
    allowed = tolerance * size + 10.0 * np.maximum(usual, changes)
    errors = np.abs(scores - slopes)
    error = float((errors / size).max())
    wrong = errors > allowed
    if not wrong.any():
        return Finding(
            f"the score is the gradient of log_prob: off by at most {error:.0e} of its "
            f"size at {len(scores)} rows",
            error=error,
        )
    factor = float((scores * slopes).sum() / ((slopes**2).sum() or 1.0))
    multiple = np.abs(scores - factor * slopes) <= max(1.0, abs(factor)) * allowed
    if factor and multiple.all():
        return Finding(f"the score is {factor:.4g} times the gradient of log_prob", True, error)
    columns = ", ".join(str(k) for k in np.flatnonzero(wrong.any(axis=0))[:5])
    where = f" (columns {columns}, counted from 0)" if by_column else ""
    rows = f"{int(wrong.any(axis=1).sum())} of {len(scores)} rows checked{where}"
    message = (
        f"the score is not the gradient of log_prob at {rows}: off by up to {error:.2g} "
        f"of its size"
    )
    return Finding(message, True, error)


def _slopes(slopes_at: SlopesAt, rows: Mask, widen: float = 1.0) -> tuple[Array, Array]:
    """Finite differences of log_prob, and how much they change when the step is doubled;
    both (n, d).
    """
    slopes = slopes_at(rows, widen)
    return slopes, np.abs(slopes - slopes_at(rows, 2.0 * widen))


def _size(slopes: Array) -> Array:
    """The size that errors are relative to: the slope, or the typical slope of its column if
    that is larger.
    """
    typical = np.sqrt(np.mean(slopes**2, axis=0))
    return np.maximum(np.abs(slopes), np.where(typical > 0.0, typical, 1.0))


def symmetry_finding(density: Density, x: Array) -> Finding:
    """Check that a score without log_prob can be a gradient: its Jacobian must be symmetric."""
    d = x.shape[1]
    if d == 1:
        return Finding(
            "in one dimension any score is a gradient; give log_prob= too, to have it checked"
        )
    some = x[:: -(-len(x) * d * d // _MOST_ENTRIES)]
    slopes = jacobian(density.raw_scores, some)
    change = np.abs(slopes - jacobian(density.raw_scores, some, widen=2.0)).max(axis=(1, 2))
    skew = np.abs(slopes - slopes.transpose(0, 2, 1)).max(axis=(1, 2))
    typical = float(np.sqrt(np.mean(slopes**2))) or 1.0
    error = float(skew.max() / typical)
    rough = np.maximum(change, np.quantile(change, _USUAL))
    if (skew <= _TOLERANCE * d * typical + 10.0 * rough).all():
        message = f"the Jacobian of the score is symmetric at {len(some)} rows, to {error:.0e}"
        return Finding(message, error=error)
    message = (
        f"the Jacobian of the score is not symmetric (by up to {error:.2g} of its "
        f"size), so the score is not the gradient of any log density"
    )
    return Finding(message, True, error)


def _edge_findings(density: Density, x: Array, log_probs: NDArray[Any]) -> list[Finding]:
    span = np.ptp(x, axis=0)
    span = np.where(span > 0.0, span, np.abs(x[0]) + 1.0)
    reaches = [reach * span for reach in _REACH]
    places: dict[str, list[str]] = {}
    for edge in edges(density.log_probs, x[log_probs.argmax()], Extent(x), reaches):
        kind = "vanishes" if edge.vanishes else "harmful" if edge.near else "far"
        places.setdefault(kind, []).append(f"{edge.position:.6g} in column {edge.column}")
    return [
        Finding(
            f"the support ends at {listed(places[kind], most=_MOST_EDGES, quote=str)}{meaning}",
            wrong=kind == "harmful",
        )
        for kind, meaning in _EDGES.items()
        if kind in places
    ]
