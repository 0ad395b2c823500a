"""Densities that contradict themselves, noticed in passing before a comparison relies on their scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from relfit.check.derivatives import direction_finding
from relfit.models import Density
from relfit.stored import LazyRows

Array = NDArray[np.float64]

# At most so many rows are looked at.
_ROWS = 20


def score_warnings(densities: Mapping[str, Density], x: Array | LazyRows) -> tuple[str, ...]:
    """Which densities, by name, have both a score and a log density, and the score is not the latter's gradient.

    Looked at are evenly spaced rows of x (n, d), 20 at most, by some ten to thirty log densities each. A density that
    cannot be judged by these (it raises, leaves its support, is too rough for differences) is passed over in silence.

    >>> log_prob = lambda x: -0.5 * (x**2).sum(axis=1)
    >>> models = {"right": Density(lambda x: -x, log_prob), "wrong": Density(lambda x: x, log_prob)}
    >>> score_warnings(models, np.random.default_rng(0).normal(size=(100, 2)))[0].partition(";")[0]
    'wrong: the score is -1 times the gradient of log_prob'
    """
    both = {name: each for name, each in densities.items() if each.score is not None and each.log_prob is not None}
    if not both:
        return ()
    rows = x[:: max(1, -(-len(x) // _ROWS))]
    said: dict[str, list[str]] = {}
    for name, density in both.items():
        message = _contradiction(density, rows)
        if message is not None:
            said.setdefault(message, []).append(name)
    mend = "verdicts rest on the score, so mend one of the two (relfit.check_score says more)"
    return tuple(f"{', '.join(names)}: {message}; {mend}" for message, names in said.items())


def _contradiction(density: Density, x: Array) -> str | None:
    try:
        with np.errstate(all="ignore"):
            found = direction_finding(density, x)
    except Exception:  # noqa: BLE001  (a function that knows only the rows it was made for can raise anything)
        return None
    return found.message if found is not None and found.wrong else None
