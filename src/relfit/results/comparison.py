"""Comparison: which of several models are worse than the best, shown, written and read.
PairComparison: the same about two models that were fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfit.results import formats, serial, words
from relfit.results.letters import letters_of
from relfit.results.scale import NON_INFERIOR, SIGNIFICANTLY_WORSE, by_margin
from relfit.results.serial import (
    Record,
    also_written,
    by_report,
    comparison_from,
    derived,
    held,
    of,
    parsed,
    plain,
    text_of,
)
from relfit.results.table import (
    LONGEST_NAME,
    NOTHING,
    Display,
    Table,
    scaled_format,
    short_names,
)
from relfit.results.text import comparison_display, notes, show_pvalue
from relfit.results.verdicts import Answer, Verdicts, recorded
from relfit.stats.decision import PVALUE_CORRECTIONS, Decision
from relfit.stats.joint import NEAR_DEGENERATE, JointEstimate
from relfit.stats.maxt import seeded
from relfit.stats.pairs import (
    PairDecision,
    pairwise_matrix,
    rank_sets,
)
from relfit.stats.tests.base import Criteria, Test
from relfit.util.arrays import Array
from relfit.util.checks import check_choice, check_level
from relfit.util.errors import InputError
from relfit.util.text import quoted

if TYPE_CHECKING:
    import os

    import pandas


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Comparison(Verdicts):  # noqa: D101 (that of the verdicts)
    __doc__ = Verdicts.__doc__

    also: tuple[Comparison, ...] = ()

    def ranks(self, level: float = 0.95, *, simultaneous: bool = True) -> Ranks:
        """Confidence sets for the models' ranks, 1 being the best: all hold together, or
        each by itself.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3)))
        >>> print(result.ranks())
        model  rank
        a      1 to 2
        b      1 to 2
        c      3
        95% simultaneous confidence sets for the ranks.
        """
        source = seeded(self.seed or 0, "ranks")
        worse, better = rank_sets(
            self.estimate, check_level(level), rng=source, simultaneous=simultaneous
        )
        worse = self._every(worse, True, False, axes=2)
        # Of j and i: "j is beaten by i".
        beaten = self._every(better.T, True, False, axes=2)
        return Ranks(
            names=self.names,
            lower=1 + worse.sum(axis=1),
            upper=len(beaten) - beaten.sum(axis=0),
            worse=worse,
            level=level,
            simultaneous=simultaneous,
        )

    def letters(self, level: float = 0.95) -> Letters:
        """Groups of models that the data do not separate: models with a letter in common.

        Two models are separated if one is worse by the simultaneous tests of `ranks`.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3)))
        >>> print(result.letters())
        model  groups
        a      a
        b      a
        c      b
        Models without a common letter are separated (familywise error 5%).
        """
        ranks = self.ranks(level)
        order = np.lexsort((ranks.upper, ranks.lower))
        apart = (ranks.worse | ranks.worse.T)[np.ix_(order, order)]
        return Letters(
            names=tuple(self.names[k] for k in order.tolist()),
            letters=tuple(letters_of(apart)),
            level=level,
        )

    def pairs(self, correction: str = "holm") -> PairMatrix:
        """All pairs of models: one-sided tests of "i is no worse than j" for all ordered pairs,
        at level alpha.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3)))
        >>> result.pairs().worse[2].tolist()  # c is worse than a and than b
        [True, True, False]
        """
        check_choice("correction", correction, PVALUE_CORRECTIONS)
        log_p, adjusted, worse, used = pairwise_matrix(self.estimate, self.alpha, correction)
        return PairMatrix(
            names=self.names,
            pvalue=self._every(np.exp(log_p), 0.0, 1.0, axes=2),
            adjusted_pvalue=self._every(adjusted, 0.0, 1.0, axes=2),
            worse=self._every(worse, True, False, axes=2),
            alpha=self.alpha,
            correction=used,
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form with the verdicts, their intervals, and the best model's interval at
        the level 1 − alpha; ±infinity is written as the text "inf" or "-inf", and NaN as null.
        """
        more = {
            "verdicts": self.verdicts,
            "verdict_intervals": self.verdict_intervals(),
            "best_interval": self.best_interval_at(self.alpha),
        }
        return {**super().to_dict(), **{name: plain(value) for name, value in more.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """The comparison that `to_dict` described; another schema number is refused."""
        restored: Comparison = comparison_from(cls, data)
        return restored

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Comparison:
        """The comparison that `to_json` wrote, from its text or its file."""
        return cls.from_dict(parsed(text_of(source)))

    def summary(self) -> str:
        """The answer in one sentence, as below the table."""
        return words.summary(self)

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        return comparison_display(self, longest_name)

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, indexed by model name (needs pandas)."""
        try:
            import pandas
        except ImportError:
            raise InputError(
                "to_frame: needs pandas; install it with  pip install pandas"
            ) from None
        return pandas.DataFrame(self.rows()).set_index("name")

    def to_latex(self, path: str | os.PathLike[str] | None = None) -> str:
        """The table for a paper, in LaTeX with booktabs, which is also written to `path` if
        given.
        """
        return also_written(formats.to_latex(self), path)

    def to_markdown(self, path: str | os.PathLike[str] | None = None) -> str:
        """The table in Markdown, which is also written to `path` if given."""
        return also_written(formats.to_markdown(self), path)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The rows with all their digits as comma-separated values, which are also written
        to `path` if given.
        """
        return also_written(formats.to_csv(self), path)

    def methods_text(self, cite: str = "text") -> str:
        """A paragraph for a paper with its references, true for these settings; `cite` is
        "text" or "bibtex".
        """
        return formats.methods_text(self, cite)

    @by_report
    def plot(self, ax: Any = None, *, of: str = "discrepancy") -> Any:
        """A forest plot of the discrepancies, or ``of="difference"`` to the best; returns
        the matplotlib Axes.
        """

    @by_report
    def plot_pairs(self, ax: Any = None) -> Any:
        """All pairs of models as a grid; returns the Axes."""

    @by_report
    def plot_witness(self, data: Any, name: str | None = None, ax: Any = None) -> Any:
        """Where a model (the one with the largest discrepancy) and the data differ; returns
        the Axes.

        `data` is the pair (reference, models) that was compared.
        """

    @by_report
    def plot_power(self, ax: Any = None, *, power: float = 0.8, trials: int = 200) -> Any:
        """The chance of finding each model worse against the number of rows, for this test;
        returns the Axes.
        """

    @by_report
    def plot_bandwidths(self, data: Any, ax: Any = None) -> Any:
        """The differences and verdicts at several bandwidths; `data` is (reference, models).
        Returns the Axes.
        """

    @by_report
    def report(
        self,
        path: str | os.PathLike[str],
        data: Any = None,
        *,
        items: Any = None,
        command: str | None = None,
        gate: Any = None,
        title: str | None = None,
    ) -> None:
        """Write a self-contained HTML report.

        Args:
            path: the file.
            data: the pair (reference, models) that was compared: adds where they differ,
                other bandwidths and more. Of `compare_losses`, what it was given: adds the
                verdicts within each stratum, and items on which a worse model loses.
            items: for features of images or texts, the name of a model (or "reference") → a
                file, an image or a text for every row: adds the most and least typical ones.
            command: the command line to show as the way to repeat it.
            gate: what `relfit.report.gate.judge` answered: its sentence stands above everything
                else.
            title: a heading for the page.
        """


def comparison(
    joint: JointEstimate,
    decision: Decision,
    test: Test,
    criteria: Criteria,
    *,
    names: tuple[str, ...] | None = None,
    copies: Mapping[str, str] | None = None,
    impossible: Mapping[str, int] | None = None,
    method: Mapping[str, Any] | None = None,
    **record: Any,
) -> Comparison:
    """The result of a decision on the distinct models, of which `names` has copies and
    impossible ones, too.

    `method` holds fields of `Method` besides those of the test, and `record` other fields of
    the result.
    """
    names = names or joint.names
    copies = dict(copies or {})
    impossible = dict(impossible or {})
    law = joint.close
    parts = recorded(
        joint,
        criteria,
        method or {},
        test=test.name,
        select_fraction=test.split,
        test_scale=None if test.scale == "published" else test.scale,
        randomised=test.randomised,
    )
    return Comparison(
        names=names,
        decision=decision,
        status=tuple(_status(name, joint, decision, copies, impossible) for name in names),
        copies=copies,
        impossible=impossible,
        first_order=None if law is None else law.first + 2.0 * law.second,
        **parts,
        **record,
    )


def _status(
    name: str,
    joint: JointEstimate,
    decision: Decision,
    copies: Mapping[str, str],
    impossible: Mapping[str, int],
) -> tuple[str, ...]:
    """The words for a model, its own and those of the model that it stands for."""
    original = copies.get(name, name)
    copied = () if original == name else (f"duplicate of {original}",)
    if name in impossible:
        return (*copied, "impossible rows")
    i = joint.names.index(original)
    near = joint.near_degeneracy
    degenerate = near is not None and near[i] > NEAR_DEGENERATE and joint.close is None
    return (*copied, *decision.status[i], *(("near-degenerate",) if degenerate else ()))


# ── a fixed pair ─────────────────────────────────────────────────────────────────────────────────


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
        level = f"{100.0 * self.level:g}%"
        last = f"{level} simultaneous confidence sets for the ranks."
        if not self.simultaneous:
            last = f"{level} confidence sets for the ranks, each for its own rank."
        return Display("", cells, (("", last),))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Letters(Record):
    """The models from better to worse, and the letters of the groups that each one is in."""

    names: tuple[str, ...]
    letters: tuple[str, ...]
    level: float

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        """One line per model."""
        names = short_names(self.names, longest_name)
        rows = list(zip(names, self.letters, strict=True))
        cells = Table.plain(("model", "groups"), rows, words=(0, 1))
        error = f"{100.0 * (1.0 - self.level):g}%"
        last = f"Models without a common letter are separated (familywise error {error})."
        return Display("", cells, (("", last),))


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
        name = words.CORRECTION_NAMES.get(self.correction, "unadjusted")
        significant = "worse" if self.correction == "none" else "significantly worse"
        last = (
            f"p-values of “no worse than” by row and column; * {significant} at "
            f"α = {self.alpha:g} ({name})."
        )
        marked = {(int(i), int(j) + 1): "worse" for i, j in np.argwhere(self.worse)}
        return Display("", Table.plain(("", *names), rows, marked=marked), (("", last),))


def pair_summary(pair: PairComparison) -> str:
    """One sentence with the verdict on the first model."""
    a, b = (quoted(name) for name in pair.names)
    if "indistinguishable" in pair.status:
        if pair.kernel is not None and pair.discrepancy == (0.0, 0.0):
            return (
                f"This kernel has the same value on all pairs of rows, so it shows no "
                f"difference between {a} and {b}. Choose another kernel."
            )
        return f"Inconclusive: {a} and {b} are the same model on these data."
    facts = by_margin(pair.margin)
    if pair.worse:
        return f"{a} is {SIGNIFICANTLY_WORSE.name} than {b}{facts['margin']}."
    if pair.equivalent:
        return f"{a} is {NON_INFERIOR.name} to {b} within {facts['delta']}."
    return f"Inconclusive: {a} compared with {b}."
