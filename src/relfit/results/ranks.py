"""Ranks with their uncertainty, and who beats whom, for the models of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.results.serial import Record
from relfit.util.arrays import Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranks(Record):
    """Rank 1 is the best. Model i's rank is at least lower[i] and at most upper[i], (l,) each.

    `worse[i, j]`: i was shown to be worse than j, (l, l). `simultaneous`: all ranks are in their sets with
    probability `level`, or each is.
    """

    names: tuple[str, ...]
    lower: NDArray[np.intp]
    upper: NDArray[np.intp]
    worse: NDArray[np.bool_]
    level: float
    simultaneous: bool

    def __str__(self) -> str:
        from relfit.report.text import ranks_text

        return ranks_text(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairMatrix(Record):
    """Tests of "i is no worse than j" for all ordered pairs, (l, l) each; 1 and False on the diagonal.

    `worse` is ``adjusted_pvalue ≤ alpha``, adjusted over all l(l − 1) pairs by `correction`.
    """

    names: tuple[str, ...]
    pvalue: Array
    adjusted_pvalue: Array
    worse: NDArray[np.bool_]
    alpha: float
    correction: str

    def __str__(self) -> str:
        from relfit.report.text import pairs_text

        return pairs_text(self)
