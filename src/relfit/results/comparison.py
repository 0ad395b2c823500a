"""Comparison: which of several models are worse than the best, shown, written and read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfit.results.pair import PairMatrix, Ranks
from relfit.results.serial import VERSIONS, also_written, comparison_from, parsed, text_of
from relfit.results.table import LONGEST_NAME, Display
from relfit.results.verdicts import Verdicts, shared_fields
from relfit.stats.decision import PVALUE_CORRECTIONS, Decision, difference_variance
from relfit.stats.joint import NEAR_DEGENERATE, JointEstimate, third_cumulants
from relfit.stats.maxt import seeded
from relfit.stats.pairs import pairwise_matrix, rank_sets
from relfit.stats.tests.base import Criteria, Test
from relfit.util.arrays import Array
from relfit.util.attached import attached
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
        """Confidence sets for the models' ranks, 1 being the best: all hold together, or each by itself.

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
        shown = rank_sets(self.distinct(), check_level(level), rng=source, simultaneous=simultaneous)
        worse, better = self._spread(shown[0], True, False), self._spread(shown[1], False, True, False)
        lower, upper = 1 + worse.sum(axis=1), len(better) - better.sum(axis=1)
        return Ranks(names=self.names, lower=lower, upper=upper, worse=worse, level=level, simultaneous=simultaneous)

    def pairs(self, correction: str = "holm") -> PairMatrix:
        """Who beats whom: one-sided tests of "i is no worse than j" for all ordered pairs, at level alpha.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3)))
        >>> result.pairs().worse[2].tolist()  # c is worse than a and than b
        [True, True, False]
        """
        check_choice("correction", correction, PVALUE_CORRECTIONS)
        log_p, adjusted, worse, used = pairwise_matrix(self.distinct(), self.alpha, correction)
        return PairMatrix(
            names=self.names,
            pvalue=self._spread(np.exp(log_p), 0.0, 1.0),
            adjusted_pvalue=self._spread(adjusted, 0.0, 1.0),
            worse=self._spread(worse, True, False),
            alpha=self.alpha,
            correction=used,
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form with the grades; ±infinity is written as the text "inf" or "-inf", and NaN as null."""
        return {**super().to_dict(), "grade": list(self.grade)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """The comparison that `to_dict` described; another schema number is refused."""
        return comparison_from(cls, data)

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
            raise InputError("to_frame: needs pandas; install it with  pip install pandas") from None
        return pandas.DataFrame(self.rows()).set_index("name")

    def to_latex(self, path: str | os.PathLike[str] | None = None) -> str:
        """The table for a paper, in LaTeX with booktabs, which is also written to `path` if given."""
        from relfit.results.formats import to_latex

        return also_written(to_latex(self), path)

    def to_markdown(self, path: str | os.PathLike[str] | None = None) -> str:
        """The table in Markdown, which is also written to `path` if given."""
        from relfit.results.formats import to_markdown

        return also_written(to_markdown(self), path)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The rows with all their digits as comma-separated values, which are also written to `path` if given."""
        from relfit.results.formats import to_csv

        return also_written(to_csv(self), path)

    def methods_text(self, cite: str = "text") -> str:
        """A paragraph for a paper with its references, true for these settings; `cite` is "text" or "bibtex"."""
        from relfit.results.formats import methods_text

        return methods_text(self, cite)

    def plot(self, ax: Any = None, *, of: str = "discrepancy") -> Any:
        """A forest plot of the discrepancies, or ``of="difference"`` to the best; returns the matplotlib Axes."""
        return attached("Comparison.plot")(self, ax, of=of)

    def plot_pairs(self, ax: Any = None) -> Any:
        """Who beats whom, as a grid; returns the Axes."""
        return attached("Comparison.plot_pairs")(self, ax)

    def plot_witness(self, data: Any, name: str | None = None, ax: Any = None) -> Any:
        """Where a model (the one with the largest discrepancy) and the data differ; returns the Axes.

        `data` is the pair (reference, models) that was compared.
        """
        return attached("Comparison.plot_witness")(self, data, name, ax)

    def plot_power(self, ax: Any = None, *, power: float = 0.8, trials: int = 200) -> Any:
        """The chance of finding each model worse against the number of rows, for this test; returns the Axes."""
        return attached("Comparison.plot_power")(self, ax, power=power, trials=trials)

    def plot_bandwidths(self, data: Any, ax: Any = None) -> Any:
        """The differences and verdicts at several bandwidths; `data` is (reference, models). Returns the Axes."""
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
            data: the pair (reference, models) that was compared: adds where they differ, other bandwidths and more.
                Of `compare_losses`, what it was given: adds the verdicts within each stratum, and items on which a
                worse model loses.
            items: for features of images or texts, the name of a model (or "reference") → a file, an image or a text
                for every row: adds the most and least typical ones.
            command: the command line to show as the way to repeat it.
            gate: what `relfit.report.gate.judge` answered: its sentence stands above everything else.
            title: a heading for the page.
        """
        attached("Comparison.report")(self, path, data, items=items, command=command, gate=gate, title=title)


def with_impossible(
    result: Comparison, names: tuple[str, ...], impossible: Mapping[str, int], copies: Mapping[str, str]
) -> Comparison:
    """The result of all models, of which some give density 0 to so many rows: they are worse than all others."""
    if not impossible:
        return result
    place = [result.names.index(name) if name in result.names else len(result.names) for name in names]

    def wider(values: NDArray[Any], fill: Any) -> Any:
        return np.append(values, [fill], axis=0)[place]

    def wider_matrix(values: Array | None) -> Array | None:
        return None if values is None else np.pad(values, (0, 1))[np.ix_(place, place)]

    def words(name: str) -> tuple[str, ...]:
        copied = (f"duplicate of {copies[name]}",) if name in copies else ()
        return (*copied, "impossible rows")

    status = dict(zip(result.names, result.status, strict=True))
    beaters = None if result.beaten_by is None else dict(zip(result.names, result.beaten_by, strict=True))
    fills = {
        **dict.fromkeys(("discrepancy", "difference"), math.inf),
        **dict.fromkeys(("standard_error", "difference_standard_error"), 0.0),
        **dict.fromkeys(("pvalue", "adjusted_pvalue", "simultaneous_pvalue"), 0.0),
        "log_pvalue": -math.inf,
        "worse": True,
    }
    changes: dict[str, Any] = {key: wider(getattr(result, key), fill) for key, fill in fills.items()}
    changes |= {key: wider_matrix(getattr(result, key)) for key in ("covariance", "third", "freedom")}
    if result.truncation is not None:
        changes["truncation"] = wider(result.truncation, [-math.inf, math.inf])
    if result.equivalent is not None:
        changes["equivalent"] = wider(result.equivalent, False)
    if beaters is not None:
        changes["beaten_by"] = tuple(beaters.get(name, result.best) for name in names)
    return replace(
        result,
        names=names,
        best_index=names.index(result.best),
        status=tuple(status.get(name) or (words(name) if name in impossible else ()) for name in names),
        copies=dict(copies),
        impossible=dict(impossible),
        **changes,
    )


def _of_law(joint: JointEstimate) -> dict[str, Any]:
    """What a result records of the law with both parts."""
    law = joint.close
    return {} if law is None else {"variance": "second-order", "projection": law.first + 2.0 * law.second}


def comparison(
    joint: JointEstimate,
    decision: Decision,
    test: Test,
    criteria: Criteria,
    originals: Mapping[str, str] | None = None,
    **record: Any,
) -> Comparison:
    """The result of a decision on the distinct models.

    `originals` has every name given and the distinct model that it stands for: a copy gets its original's row.
    `record` holds the other fields of the result.
    """
    originals = originals or {name: name for name in joint.names}
    names, index = tuple(originals), [joint.names.index(original) for original in originals.values()]
    joint = replace(joint, third=third_cumulants(joint))
    every, beaters = joint.at(index, names), decision.beaten_by
    best = joint.names[decision.best]
    best_index = names.index(best)
    errors = np.array([difference_variance(joint.covariance, i, decision.best) ** 0.5 for i in range(len(joint.names))])
    status = []
    for (name, original), i in zip(originals.items(), index, strict=True):
        near = joint.near_degeneracy is not None and joint.near_degeneracy[i] > NEAR_DEGENERATE and joint.close is None
        copied = () if name == original else (f"duplicate of {original}",)
        status.append((*copied, *decision.status[i], *(("near-degenerate",) if near else ())))
    worse = decision.worse[index]
    names_of: dict[int | None, str] = dict(enumerate(joint.names))
    return Comparison(
        names=names,
        best=best,
        best_index=best_index,
        # Adding 0 turns −0 into 0.
        discrepancy=0.0 - every.values if joint.higher_is_better else every.values,
        standard_error=every.standard_error,
        difference=every.values - every.values[best_index],
        difference_standard_error=errors[index],
        pvalue=np.exp(decision.log_pvalue)[index],
        log_pvalue=decision.log_pvalue[index],
        adjusted_pvalue=decision.adjusted_pvalue[index],
        worse=worse,
        simultaneous_pvalue=decision.simultaneous_pvalue[index],
        status=tuple(status),
        alpha=criteria.alpha,
        test=test.name,
        correction=decision.correction,
        truncation=None if decision.truncation is None else decision.truncation[index],
        beaten_by=None if beaters is None else tuple(names_of.get(beaters[i]) for i in index),
        confidence_set=None if beaters is None else tuple(compress(names, ~worse)),
        randomised=test.randomised,
        select_fraction=test.split,
        versions=dict(VERSIONS),
        margin=criteria.margin,
        equivalent=None if decision.equivalent is None else decision.equivalent[index],
        copies={name: original for name, original in originals.items() if name != original},
        **shared_fields(every),
        **{"measure": joint.measure, **record, **_of_law(every)},
    )
