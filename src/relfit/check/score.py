"""Is this score the gradient of this log density, and can KSD use it on these data?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.adapters import adapt
from relfit.check.derivatives import Finding, gradient_finding, symmetry_finding
from relfit.check.edges import Edge, edges
from relfit.errors import InputError
from relfit.inputs import as_rows
from relfit.models import Density, count_rows, not_finite

Array = NDArray[np.float64]

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
