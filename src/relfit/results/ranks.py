"""Ranks with their uncertainty, and who beats whom, for the models of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfit.results import serial
from relfit.results.distinct import distinct, places
from relfit.stats.decision import CORRECTIONS
from relfit.stats.maxt import seeded
from relfit.stats.ranks import pair_intervals, pairwise_matrix, rank_sets
from relfit.util.arrays import Array
from relfit.util.checks import check_choice

if TYPE_CHECKING:
    from relfit.results.comparison import Comparison


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranks:
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

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        return serial.as_dict(self)

    def to_json(self) -> str:
        """The dictionary as JSON text."""
        return serial.as_json(self.to_dict())

    def __str__(self) -> str:
        from relfit.report.text import ranks_text

        return ranks_text(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairMatrix:
    """Tests of "i is no worse than j" for all ordered pairs, (l, l) each; 1 and False on the diagonal.

    `worse` is ``adjusted_pvalue ≤ alpha``, adjusted over all l(l − 1) pairs by `correction`.
    """

    names: tuple[str, ...]
    pvalue: Array
    adjusted_pvalue: Array
    worse: NDArray[np.bool_]
    alpha: float
    correction: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        return serial.as_dict(self)

    def to_json(self) -> str:
        """The dictionary as JSON text."""
        return serial.as_json(self.to_dict())

    def __str__(self) -> str:
        from relfit.report.text import pairs_text

        return pairs_text(self)


def ranks(result: Comparison, level: float, simultaneous: bool) -> Ranks:
    """The ranks among all models; a copy ties with its original."""
    source = seeded(result.seed or 0, "ranks")
    sets = rank_sets(distinct(result), level, rng=source, simultaneous=simultaneous)
    at = places(result)
    worse, better = sets.worse[np.ix_(at, at)], sets.better[np.ix_(at, at)]
    return Ranks(
        names=result.names,
        lower=1 + worse.sum(axis=1),
        upper=len(at) - better.sum(axis=1),
        worse=worse,
        level=level,
        simultaneous=simultaneous,
    )


def pairs(result: Comparison, correction: str) -> PairMatrix:
    """Every ordered pair of models, copies counted once in the correction."""
    found = pairwise_matrix(distinct(result), result.alpha, check_choice("correction", correction, CORRECTIONS))
    at = np.ix_(places(result), places(result))
    return PairMatrix(
        names=result.names,
        pvalue=np.exp(found.log_pvalue[at]),
        adjusted_pvalue=found.adjusted_pvalue[at],
        worse=found.worse[at],
        alpha=result.alpha,
        correction=found.correction,
    )


def intervals(result: Comparison, level: float) -> Array:
    """(l, l, 2) intervals for all differences at once; a copy's are its original's."""
    source = seeded(result.seed or 0, "pairs")
    at = places(result)
    return pair_intervals(distinct(result), level, rng=source)[np.ix_(at, at)]
