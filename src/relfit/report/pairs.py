"""Who beats whom: every model against every other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.result import Comparison

CORRECTION = "holm"


@dataclass(frozen=True)
class Pairs:
    """Models in the order of the table. `worse[i, j]`: i is significantly worse than j."""

    names: tuple[str, ...]
    worse: NDArray[np.bool_]

    def first(self, count: int) -> Pairs:
        """The grid of the first models of the table."""
        return Pairs(self.names[:count], self.worse[:count, :count])

    def cell(self, i: int, j: int) -> str:
        """What row i is to column j: "worse", "better", "open" or "same"."""
        if i == j:
            return "same"
        return "worse" if self.worse[i, j] else "better" if self.worse[j, i] else "open"


def who_beats_whom(comparison: Comparison) -> Pairs:
    """`Comparison.pairs` in the order of the table, adjusted together by Holm: no error with probability 1 − α.

    >>> from relfit import JointEstimate, decide
    >>> grid = who_beats_whom(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"))
    >>> grid.cell(0, 1), grid.cell(1, 0)
    ('better', 'worse')
    """
    found = comparison.pairs(CORRECTION)
    names = tuple(row["name"] for row in comparison.rows())
    at = [found.names.index(name) for name in names]
    return Pairs(names, found.worse[np.ix_(at, at)])
