"""Results about pairs of models: is one given model worse than another, who beats whom, and
the ranks.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.results import serial, words
from relfit.results.serial import Record, derived, held, of
from relfit.results.table import (
    LONGEST_NAME,
    NOTHING,
    Display,
    Table,
    scaled_format,
    short_names,
)
from relfit.results.text import notes, show_pvalue
from relfit.results.verdicts import Answer
from relfit.stats.pairs import PairDecision
from relfit.util.arrays import Array
from relfit.util.text import quoted


class OfPair:
    """The attributes of a result on a pair of models."""

    difference: float = of("decision.difference", serial.NUMBER)
    standard_error: float = of("decision.standard_error", serial.NUMBER)
    threshold: float = of("decision.threshold", serial.NUMBER)
    log_pvalue: float = of("decision.log_pvalue", serial.NUMBER)
    status: tuple[str, ...] = of("decision.status", serial.TEXTS)
    truncation: tuple[float, float] | None = of("decision.truncation", serial.NUMBER)
    equivalent: bool | None = of("decision.equivalent", serial.FLAG)

    @derived(serial.NUMBER)
    def statistic(self: Any) -> float:
        value: float = self.decision.statistic(self.margin)
        return value

    @derived(serial.FRACTION)
    def pvalue(self: Any) -> float:
        return float(np.exp(self.log_pvalue))

    @derived(serial.FLAG)
    def worse(self: Any) -> bool:
        return bool(self.pvalue <= self.alpha)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PairComparison(OfPair, Answer):
    """Is model a worse than model b? A one-sided test of the fixed hypothesis "a is no worse
    than b".

    `difference` is D_a − D_b, `statistic` that less the `margin` δ over its standard error,
    `worse` is ``pvalue ≤ alpha``. With a margin the hypothesis is D_a ≤ D_b + δ, and
    `equivalent` says whether that was shown instead; it is None without one. `yardstick` and
    `doubts` are those of `Comparison`. `robust_to_bandwidth` says whether `worse` is the
    same at half and at twice the kernel's bandwidth; None where that was not computed.
    """

    decision: PairDecision = held(default=MISSING, written=False)
    discrepancy: tuple[float, float]
    robust_to_bandwidth: bool | None = None

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        """The answer to a fixed hypothesis "a is no worse than b"."""
        factor, number = scaled_format(
            [self.standard_error], [*self.discrepancy, self.difference], [self.difference]
        )
        names = short_names(self.names, longest_name)
        rows = list(zip(names, map(number, self.discrepancy), strict=True))
        p = show_pvalue(self.pvalue, self.alpha)
        p = p if p.startswith("<") else f"= {p}"
        times = factor.strip(" ()")
        difference, error = (
            f"{number(each)}{times}" for each in (self.difference, self.standard_error)
        )
        numbers = f"difference {difference}, s.e. {error}, p {p.replace('<', '< ')}"
        verdict = ("worse" if self.worse else "", pair_summary(self))
        cells = Table.plain(("model", f"{words.measure_of(self).name}{factor}"), rows)
        return Display(words.header(self), cells, (("", numbers), verdict, *notes(self)))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Ranks(Record):
    """Rank 1 is the best. Model i's rank is at least lower[i] and at most upper[i], (l,) each.

    `worse[i, j]`: i was shown to be worse than j, (l, l). `simultaneous`: all ranks are in
    their sets with probability `level`, or each is.
    """

    names: tuple[str, ...]
    lower: NDArray[np.intp]
    upper: NDArray[np.intp]
    worse: NDArray[np.bool_]
    level: float
    simultaneous: bool

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        """One line per model, the best ranks first, and what holds with which probability."""
        order = np.lexsort((self.upper, self.lower)).tolist()
        names = short_names(self.names, longest_name)
        shown = [words.range_words(ends) for ends in zip(self.lower, self.upper, strict=True)]
        cells = Table.plain(("model", "rank"), [(names[i], shown[i]) for i in order])
        lie = (
            "all ranks lie in these sets" if self.simultaneous else "each rank lies in its set"
        )
        return Display("", cells, (("", f"With probability {100.0 * self.level:g}%, {lie}."),))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PairMatrix(Record):
    """Tests of "i is no worse than j" for all ordered pairs, (l, l) each; 1 and False on the
    diagonal.

    `worse` is ``adjusted_pvalue ≤ alpha``, adjusted over all l(l − 1) pairs by `correction`.
    """

    names: tuple[str, ...]
    pvalue: Array
    adjusted_pvalue: Array
    worse: NDArray[np.bool_]
    alpha: float
    correction: str

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        """A matrix: the adjusted p-value of "the row's model is no worse than the column's",
        * where it is worse.
        """
        # The names are the titles of columns too.
        names = short_names(self.names, min(longest_name, LONGEST_NAME))
        rows = []
        for i, name in enumerate(names):
            cells = [
                NOTHING
                if i == j
                else show_pvalue(float(p), self.alpha) + "*" * int(self.worse[i, j])
                for j, p in enumerate(self.adjusted_pvalue[i])
            ]
            rows.append((name, *cells))
        correction = words.CORRECTION_NAMES.get(self.correction, "no correction")
        last = (
            f"p-values of “no worse than” by row and column; * worse at α = {self.alpha:g} "
            f"({correction})."
        )
        marked = {(int(i), int(j) + 1): "worse" for i, j in np.argwhere(self.worse)}
        return Display("", Table.plain(("", *names), rows, marked=marked), (("", last),))


def pair_summary(pair: PairComparison) -> str:
    """One sentence: is the first model worse than the second?"""
    a, b = (quoted(name) for name in pair.names)
    if (
        "indistinguishable" in pair.status
        and pair.kernel is not None
        and pair.discrepancy == (0.0, 0.0)
    ):
        return (
            f"{a} and {b} cannot be told apart with this kernel: it takes the same value "
            f"on all pairs of rows."
        )
    if "indistinguishable" in pair.status:
        return f"{a} and {b} cannot be told apart: on these data they are the same model."
    than = f" by more than {pair.margin:g}" if pair.margin else ""
    if pair.worse:
        return f"{a} is worse than {b}{than}."
    if pair.equivalent:
        return f"{a} is equivalent to {b} within {pair.margin:g}, or better."
    if pair.margin:
        return (
            f"It is undecided whether {a} is worse than {b}{than}: there are too few "
            f"data to tell."
        )
    measure = words.measure_of(pair).name
    if pair.difference > 0.0:
        return (
            f"There is no evidence that {a} is worse than {b}, though its {measure} is "
            f"larger in this sample."
        )
    same = "the two are equal" if pair.difference == 0.0 else f"its {measure} is smaller"
    return f"There is no evidence that {a} is worse than {b}: {same}."
