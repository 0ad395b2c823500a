"""Comparison: which of several models are worse than the best."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from relfit.data.encode import Encoding
from relfit.kernels.base import Kernel
from relfit.results.pair import PairMatrix, Ranks
from relfit.results.serial import VERSIONS, Record, comparison_from, parsed
from relfit.stats.decision import PVALUE_CORRECTIONS, Decision, difference_variance
from relfit.stats.joint import NEAR_DEGENERATE, JointEstimate, third_cumulants
from relfit.stats.maxt import seeded
from relfit.stats.pairs import pair_intervals, pairwise_matrix, rank_sets
from relfit.stats.tests import TESTS
from relfit.stats.tests.base import Criteria, Test
from relfit.stats.truncnorm import selective_threshold
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.checks import check_choice, check_level
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic

if TYPE_CHECKING:
    import os

    import pandas


# Fields that an estimate and its result have in common.
_SHARED = (
    *("covariance", "sizes", "near_degeneracy", "second_order", "third", "groups", "yardstick"),
    *("higher_is_better", "design", "lags"),
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Comparison(Record):
    """Which of l models are worse than the best. Arrays are in the order the models were given.

    Attributes:
        names: model names.
        best, best_index: the model the others are tested against.
        discrepancy, standard_error, covariance: the estimates; for relmulti those from the testing rows.
        higher_is_better: True if `discrepancy` holds scores of which larger ones are better; otherwise smaller ones.
        difference, difference_standard_error: how much worse than the best a model is, and its standard error:
            D_i − D_best, or D_best − D_i where larger is better.
        pvalue, log_pvalue, adjusted_pvalue: of "no worse than the best", with a margin δ "no worse by more than
            δ"; 1 for the best, except in best-set.
        worse: the verdicts, ``adjusted_pvalue ≤ alpha``.
        margin, equivalent: δ, and which models are shown to be within δ: of the model they were tested against,
            in best-set of whichever is best. None without a margin.
        status: words per model, such as "tie" or "duplicate of NAME".
        impossible: models that give density 0 to some rows, and to how many. Their mean −log p is infinite: they are
            worse, and the others were compared without them. Their standard errors and covariances are written as 0.
        also: the comparisons of the same models by other discrepancies, each with verdicts of its own.
        truncation: (l, 2) limits of the selective test; None where it does not apply.
        near_degeneracy, second_order, third: (l,) and (l, l), as in `JointEstimate`: what plans and intervals need
            besides.
        projection: (l, l) the covariance by first-order theory, where `covariance` is that of the law with both parts.
        yardstick: how far two halves of the data are apart through sampling alone, in the units of the discrepancy:
            a measure for margins. None where it is not known, as for losses, a density as the reference, and
            estimators that do not use all pairs.
        warnings: sentences the reader should see.
        sizes: the reference's number of rows, then each model's where models have samples.
        groups: the numbers of groups those rows are in; None for independent rows.
        locations: (J, d), of UME, Nystroem and FSSD.
        inputs: a digest of the reference's rows and of each sample's, None for densities.
        plan: what decides the order of sums, and so their last digits: bytes for tiles, most rows of a patch.
        preset: "kid" or "cmmd" where one was used.
        copies: the name of every copy, and the model that it is a copy of.
        shared_rows: how many rows of a sample also occur in the reference, for samples that have some.
        design: how the means of losses were taken, such as "macro average over 30 strata"; None for plain means.
        lags: how far the items of a series depend on each other; None for independent items.
        encoding: how the columns were made into rows of numbers; None for plain arrays as they are.
        command: the arguments of `relfit` that made it, without its outputs; None where Python did.
    """

    names: tuple[str, ...]
    best: str
    best_index: int
    discrepancy: Array
    standard_error: Array
    covariance: Array
    difference: Array
    difference_standard_error: Array
    pvalue: Array
    log_pvalue: Array
    adjusted_pvalue: Array
    worse: NDArray[np.bool_]
    status: tuple[tuple[str, ...], ...]
    alpha: float
    test: str
    correction: str
    measure: str
    truncation: Array | None = None
    beaten_by: tuple[str | None, ...] | None = None
    confidence_set: tuple[str, ...] | None = None
    randomised: bool = False
    near_degeneracy: Array | None = None
    second_order: Array | None = None
    third: Array | None = None
    projection: Array | None = None
    warnings: tuple[str, ...] = ()
    kernel: Kernel | None = None
    bandwidth_rule: str | None = None
    estimator: str | None = None
    dependence: str | None = None
    select_fraction: float | None = None
    sizes: tuple[int, ...] | None = None
    seed: int | None = None
    backend: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    margin: float = 0.0
    equivalent: NDArray[np.bool_] | None = None
    groups: tuple[int, ...] | None = None
    pair_count: int | None = None
    block_count: int | None = None
    variance: str | None = None
    locations: Array | None = None
    inputs: dict[str, Any] | None = None
    plan: dict[str, int] | None = None
    preset: str | None = None
    copies: dict[str, str] = field(default_factory=dict)
    shared_rows: dict[str, int] = field(default_factory=dict)
    command: tuple[str, ...] | None = None
    yardstick: float | None = None
    higher_is_better: bool = False
    design: str | None = None
    lags: int | None = None
    impossible: dict[str, int] = field(default_factory=dict)
    also: tuple[Comparison, ...] = ()
    encoding: Encoding | None = None

    @property
    def estimates(self) -> Array:
        """(l,) the discrepancies with smaller ones better: those of scores with the sign changed."""
        return -self.discrepancy if self.higher_is_better else self.discrepancy

    @property
    def threshold(self) -> Array:
        """(l,) the difference to the best above which a model would be declared worse, before correction.

        For relpsi and relmulti D_i − D_best ≥ threshold exactly where the p-value is at most alpha. best-set and carve
        decide by simulation, and for them this is the threshold of a plain z test.
        """
        varies = self.difference_standard_error > 0.0
        s, delta = np.where(varies, self.difference_standard_error, 1.0), self.margin
        if self.truncation is None:
            cut = delta - s * ndtri(self.alpha)
        else:
            limits = self.truncation - delta
            cut = delta + selective_threshold(self.alpha, s, limits[:, 0], limits[:, 1])
        return np.where(varies, cut, np.where(self.log_pvalue < 0.0, -math.inf, math.inf))

    def confidence_interval(self, level: float = 0.95) -> Array:
        """(l, 2) two-sided intervals, each end missed by at most (1 − level)/2.

        relpsi and carve: for D_i − D_best given that `best` was selected, each with probability `level`; they can
        be infinite. relmulti: for D_i − D_best on the testing rows. best-set: for D_i − min_j D_j, whichever model is
        best; all hold together with probability `level`.
        """
        return np.stack(self._bounds((1.0 + check_level(level)) / 2.0), axis=1)

    def lower_bound(self, level: float = 0.95) -> Array:
        """(l,) one-sided lower bounds of what `confidence_interval` covers.

        In relpsi, relmulti and carve above the margin exactly where p < 1 − level. best-set: they hold together.
        """
        return self._bounds(check_level(level))[0]

    def upper_bound(self, level: float = 0.95) -> Array:
        """(l,) one-sided upper bounds of what `confidence_interval` covers; best-set: they hold together.

        A bound of at most δ shows that a model is no worse by more than δ.
        """
        return self._bounds(check_level(level))[1]

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

    def pair_intervals(self, level: float = 0.95) -> Array:
        """(l, l, 2) intervals for every difference D_i − D_j: all hold together with probability `level`.

        From V and normal draws, below 300 rows from Student's law.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3)))
        >>> result.pair_intervals()[2, 0].round(1).tolist()  # c − a
        [1.7, 2.3]
        """
        ends = pair_intervals(self.distinct(), check_level(level), rng=seeded(self.seed or 0, "pairs"))
        # Of two infinite numbers nothing is known of the difference.
        low = self._spread(ends[..., 0], math.inf, -math.inf)
        return np.stack([low, self._spread(ends[..., 1], math.inf, -math.inf, both=math.inf)], axis=2)

    def rows(self) -> list[dict[str, Any]]:
        """The one table every output is made from: the best model first, then from better to worse."""
        estimates = self.estimates
        order = sorted(range(len(self.names)), key=lambda i: (i != self.best_index, estimates[i], i))
        numbers = ("discrepancy", "standard_error", "difference", "pvalue", "log_pvalue", "adjusted_pvalue")
        return [
            {
                "name": self.names[i],
                **{key: float(getattr(self, key)[i]) for key in numbers},
                "worse": bool(self.worse[i]),
                "equivalent": None if self.equivalent is None else bool(self.equivalent[i]),
                "best": i == self.best_index,
                "verdict": self._verdict(i),
                **{f"verdict_{other.measure}": other._verdict(i) for other in self.also},
                "status": self.status[i],
            }
            for i in order
        ]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """The comparison that `to_dict` described; another schema number is refused."""
        return comparison_from(cls, data)

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """The comparison that `to_json` wrote."""
        return cls.from_dict(parsed(text))

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, indexed by model name (needs pandas)."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame: needs pandas; install it with  pip install pandas") from None
        return pandas.DataFrame(self.rows()).set_index("name")

    def to_latex(self) -> str:
        """The table for a paper, in LaTeX with booktabs."""
        from relfit.report.formats import to_latex

        return to_latex(self)

    def to_markdown(self) -> str:
        """The table in Markdown."""
        from relfit.report.formats import to_markdown

        return to_markdown(self)

    def to_csv(self) -> str:
        """The rows with all their digits as comma-separated values."""
        from relfit.report.formats import to_csv

        return to_csv(self)

    def methods_text(self, cite: str = "text") -> str:
        """A paragraph for a paper with its references, true for these settings; `cite` is "text" or "bibtex"."""
        from relfit.report.formats import methods_text

        return methods_text(self, cite)

    def plot(self, ax: Any = None, *, of: str = "discrepancy") -> Any:
        """A forest plot of the discrepancies, or ``of="difference"`` to the best; returns the matplotlib Axes."""
        from relfit.report.plots import forest

        return forest(self, ax, of=of)

    def plot_pairs(self, ax: Any = None) -> Any:
        """Who beats whom, as a grid; returns the Axes."""
        from relfit.report.plots import pairs_plot

        return pairs_plot(self, ax)

    def plot_witness(self, data: Any, name: str | None = None, ax: Any = None) -> Any:
        """Where a model (the one with the largest discrepancy) and the data differ; returns the Axes.

        `data` is the pair (reference, models) that was compared.
        """
        from relfit.report.plots import witness_plot

        return witness_plot(self, data, name, ax)

    def plot_power(self, ax: Any = None, *, power: float = 0.8, trials: int = 200) -> Any:
        """The chance of finding each model worse against the number of rows, for this test; returns the Axes."""
        from relfit.report.checks import own_plan
        from relfit.report.plots import power_curves

        return power_curves(own_plan(self, self.names, power=power, trials=trials), ax)

    def plot_bandwidths(self, data: Any, ax: Any = None) -> Any:
        """The differences and verdicts at several bandwidths; `data` is (reference, models). Returns the Axes."""
        from relfit.report.plots import bandwidths_plot

        return bandwidths_plot(self, data, ax)

    def report(
        self,
        path: str | os.PathLike[str],
        data: Any = None,
        *,
        items: Any = None,
        command: str | None = None,
        gate: Any = None,
    ) -> None:
        """Write a self-contained HTML report.

        Args:
            path: the file.
            data: the pair (reference, models) that was compared: adds where they differ, other bandwidths and more.
                Of `compare_losses`, its scores or a pair of them and a mapping of its other arguments, or what
                `read_evals` returned: adds the verdicts within each stratum, and items on which a worse model loses.
            items: for features of images or texts, the name of a model (or "reference") → a file, an image or a text
                for every row: adds the most and least typical ones.
            command: the command line to show as the way to repeat it.
            gate: what `relfit.report.gate.judge` answered: its sentence stands above everything else.
        """
        from relfit.report.page import render_report

        write_text_atomic(path, render_report(self, data, items=items, command=command, gate=gate))

    def originals(self) -> dict[str, str]:
        """For every model the one it stands for: itself, or the one it is a copy of."""
        return {name: self.copies.get(name, name) for name in self.names}

    def distinct(self, among: Collection[str] | None = None) -> JointEstimate:
        """The estimate of the distinct models, each once: copies are tested once and share their original's answer.

        `among` names the models that are of interest, by default all.
        """
        shared = {key: getattr(self, key) for key in _SHARED}
        every = JointEstimate(self.names, np.where(self._impossible(), 0.0, self.estimates), **shared)
        among = self.names if among is None else among
        kept = [i for i, name in enumerate(self.names) if name in among and name in self._distinct_names()]
        return every.at(kept, tuple(self.names[i] for i in kept))

    def pilot(self, among: Collection[str] | None = None) -> JointEstimate:
        """The same as `distinct` with plain V, which holds the second-order part twice: what a plan starts from."""
        joint = self.distinct(among)
        if self.projection is None:
            return joint
        kept = [self.names.index(name) for name in joint.names]
        return replace(joint, covariance=self.projection[np.ix_(kept, kept)])

    def indistinguishable(self, name: str) -> set[str]:
        """The other models that the kernel cannot tell from this one: neither D varies, and both are the same number.

        A kernel that takes one value on all pairs of rows leaves that behind. Copies are the same model, and not meant.
        """
        if self.kernel is None:
            return set()
        originals = self.originals()
        value = {other: (self.discrepancy[i], self.standard_error[i]) for i, other in enumerate(self.names)}
        if value[name][1] > 0.0:
            return set()
        return {other for other in self.names if value[other] == value[name] and originals[other] != originals[name]}

    @property
    def blind(self) -> bool:
        """True if the kernel can tell no model from any other."""
        others = self.indistinguishable(self.best)
        stand_for = self.originals().items()
        return bool(others) and all(name in others or original == self.best for name, original in stand_for)

    def _places(self) -> Rows:
        """(l,) the place of each model among the distinct ones: ``values[places]`` gives every copy its value.

        An impossible model has the place 0, and a value that must be replaced.
        """
        kept = self._distinct_names()
        places = [kept.index(name) if name in kept else 0 for name in self.originals().values()]
        return np.array(places, dtype=np.intp)

    def _distinct_names(self) -> list[str]:
        """The models that were estimated: not the copies, and not those that are impossible."""
        return [name for name in self.names if name not in self.copies and name not in self.impossible]

    def _spread(self, matrix: Any, above: Any, below: Any, both: Any = None) -> Any:
        """(l, l) of all models from that of the distinct ones.

        `above` is what an impossible model has beside a possible one, `below` the reverse, which two of them have too.
        """
        spread, out = matrix[np.ix_(self._places(), self._places())], self._impossible()
        spread[np.ix_(out, ~out)] = above
        spread[np.ix_(~out, out)] = below
        spread[np.ix_(out, out)] = below if both is None else both
        return spread

    def _impossible(self) -> Mask:
        return np.array([name in self.impossible for name in self.names])

    def _bounds(self, level: float) -> tuple[Array, Array]:
        """One-sided bounds of the test that made the comparison."""
        joint, places = self.distinct(), self._places()
        kept = [self.names.index(name) for name in joint.names]
        best = joint.names.index(self.copies.get(self.best, self.best))
        limits, seed = None if self.truncation is None else self.truncation[kept], self.seed or 0
        lower, upper = TESTS[self.test]().bounds(joint, level, best=best, truncation=limits, seed=seed)
        out = self._impossible()
        return np.where(out, math.inf, lower[places]), np.where(out, math.inf, upper[places])

    def _verdict(self, i: int) -> str:
        if i == self.best_index:
            return "selected as best" if TESTS[self.test].selects else "best of the sample"
        if self.worse[i]:
            return "worse" if not self.margin else f"worse by more than {self.margin:g}"
        if "indistinguishable" in self.status[i] or self.copies.get(self.names[i]) == self.best:
            return "the same as the best"
        if self.equivalent is None:
            return "no evidence that it is worse"
        return f"equivalent within {self.margin:g}" if self.equivalent[i] else "no evidence either way"


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
        **dict.fromkeys(("standard_error", "difference_standard_error", "pvalue", "adjusted_pvalue"), 0.0),
        "log_pvalue": -math.inf,
        "worse": True,
    }
    changes: dict[str, Any] = {key: wider(getattr(result, key), fill) for key, fill in fills.items()}
    changes |= {key: wider_matrix(getattr(result, key)) for key in ("covariance", "third")}
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
        **{key: getattr(every, key) for key in _SHARED},
        **{"measure": joint.measure, **record, **_of_law(every)},
    )
