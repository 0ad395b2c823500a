"""Comparison: which of several models are worse than the best, shown, written and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from relfit.results.pair import PairMatrix, Ranks
from relfit.results.serial import also_written, comparison_from, parsed, plain, text_of
from relfit.results.table import LONGEST_NAME, Display
from relfit.results.verdicts import Method, Verdicts
from relfit.stats.decision import PVALUE_CORRECTIONS, Decision
from relfit.stats.joint import NEAR_DEGENERATE, JointEstimate, third_cumulants
from relfit.stats.maxt import seeded
from relfit.stats.pairs import pairwise_matrix, rank_sets
from relfit.stats.tests.base import Criteria, Test
from relfit.stats.winner import Selection, winner_interval
from relfit.util import attached
from relfit.util.checks import check_choice, check_level
from relfit.util.errors import InputError

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
        With probability 95%, all ranks lie in these sets.
        """
        source = seeded(self.seed or 0, "ranks")
        shown = rank_sets(
            self.estimate, check_level(level), rng=source, simultaneous=simultaneous
        )
        worse = self._spread(shown[0], True, False)
        better = self._spread(shown[1], False, True, False)
        lower = 1 + worse.sum(axis=1)
        upper = len(better) - better.sum(axis=1)
        return Ranks(
            names=self.names,
            lower=lower,
            upper=upper,
            worse=worse,
            level=level,
            simultaneous=simultaneous,
        )

    def best_interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval for the value of `best`, which allows for its selection.

        The best observed value is too good on average: of several equally good models the
        one with the most luck is the best observed. If `best` is the model with the smallest
        estimate, or was selected as its test does, then the interval misses its true value
        with probability at most 1 − level. With RelMulti other rows selected the model, and
        the interval is the ordinary one. Squared distances are at least 0, and so is their
        interval. ``stats/winner.py`` has the method.

        >>> from relfit import JointEstimate, decide
        >>> near = decide(JointEstimate(("a", "b"), [0.0, 0.1], 0.01 * np.eye(2)))
        >>> [round(end, 2) for end in near.best_interval()]
        [-0.2, 0.23]
        """
        return self._best_interval(1.0 - check_level(level))

    def pairs(self, correction: str = "holm") -> PairMatrix:
        """Who beats whom: one-sided tests of "i is no worse than j" for all ordered pairs,
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
            pvalue=self._spread(np.exp(log_p), 0.0, 1.0),
            adjusted_pvalue=self._spread(adjusted, 0.0, 1.0),
            worse=self._spread(worse, True, False),
            alpha=self.alpha,
            correction=used,
        )

    def _best_interval(self, error: float) -> tuple[float, float]:
        selection: Selection = "smallest"
        if self.select_fraction is not None:
            selection = "other rows"
        elif self.randomised:
            selection = "any"
        low, high = winner_interval(self.estimate, self.decision.best, error, selection)
        return (0.0 - high, 0.0 - low) if self.higher_is_better else (low, high)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form with the grades and the best model's interval at the level
        1 − alpha; ±infinity is written as the text "inf" or "-inf", and NaN as null.
        """
        interval = plain(self._best_interval(self.alpha))
        return {**super().to_dict(), "grade": list(self.grade), "best_interval": interval}

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
        from relfit.results.words import summary

        return summary(self)

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        from relfit.results.text import comparison_display

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
        from relfit.results.formats import to_latex

        return also_written(to_latex(self), path)

    def to_markdown(self, path: str | os.PathLike[str] | None = None) -> str:
        """The table in Markdown, which is also written to `path` if given."""
        from relfit.results.formats import to_markdown

        return also_written(to_markdown(self), path)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The rows with all their digits as comma-separated values, which are also written
        to `path` if given.
        """
        from relfit.results.formats import to_csv

        return also_written(to_csv(self), path)

    def methods_text(self, cite: str = "text") -> str:
        """A paragraph for a paper with its references, true for these settings; `cite` is
        "text" or "bibtex".
        """
        from relfit.results.formats import methods_text

        return methods_text(self, cite)

    def plot(self, ax: Any = None, *, of: str = "discrepancy") -> Any:
        """A forest plot of the discrepancies, or ``of="difference"`` to the best; returns
        the matplotlib Axes.
        """
        return attached("Comparison.plot")(self, ax, of=of)

    def plot_pairs(self, ax: Any = None) -> Any:
        """Who beats whom, as a grid; returns the Axes."""
        return attached("Comparison.plot_pairs")(self, ax)

    def plot_witness(self, data: Any, name: str | None = None, ax: Any = None) -> Any:
        """Where a model (the one with the largest discrepancy) and the data differ; returns
        the Axes.

        `data` is the pair (reference, models) that was compared.
        """
        return attached("Comparison.plot_witness")(self, data, name, ax)

    def plot_power(self, ax: Any = None, *, power: float = 0.8, trials: int = 200) -> Any:
        """The chance of finding each model worse against the number of rows, for this test;
        returns the Axes.
        """
        return attached("Comparison.plot_power")(self, ax, power=power, trials=trials)

    def plot_bandwidths(self, data: Any, ax: Any = None) -> Any:
        """The differences and verdicts at several bandwidths; `data` is (reference, models).
        Returns the Axes.
        """
        return attached("Comparison.plot_bandwidths")(self, data, ax)

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
        attached("Comparison.report")(
            self, path, data, items=items, command=command, gate=gate, title=title
        )


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
    used = {
        **(method or {}),
        **({} if law is None else {"variance": "second-order"}),
        "alpha": criteria.alpha,
        "margin": criteria.margin,
        "test": test.name,
        "select_fraction": test.split,
        "randomised": test.randomised,
    }
    return Comparison(
        names=names,
        # What only the decision needed is not kept.
        estimate=replace(joint, third=third_cumulants(joint), psi=None, close=None, notes=()),
        decision=decision,
        method=Method(**used),
        status=tuple(_status(name, joint, decision, copies, impossible) for name in names),
        copies=copies,
        impossible=impossible,
        first_order=None if law is None else law.first + 2.0 * law.second,
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
