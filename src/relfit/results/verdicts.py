"""Verdicts: what was decided on each of several models, with every setting, and what follows
from it.
"""

from __future__ import annotations

import math
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import compress
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from relfit.data.encode import Encoding
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Collection
from relfit.results import stored
from relfit.results.grade import (
    BEST,
    CLEARLY_WORSE,
    EQUIVALENT,
    OPEN,
    SAME,
    WORSE,
    decisive_pvalue,
    graded,
)
from relfit.results.serial import VERSIONS, Attribute, Record, derived, of
from relfit.results.stored import Form, held, kept
from relfit.stats.decision import DISCOVERY_RATE, Decision, difference_variance, differences
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import seeded
from relfit.stats.pairs import pair_intervals
from relfit.stats.tests import TESTS
from relfit.stats.tests.best_set import BestSet, decided_lower
from relfit.stats.truncnorm import selective_threshold
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.checks import check_level
from relfit.util.errors import InputError
from relfit.util.text import listed


@dataclass(frozen=True, kw_only=True)
class Method:
    """How models were compared. A field that is added here is written, read and, with a
    label, shown on the page.
    """

    alpha: float = held(stored.FRACTION, "level α", default=MISSING, first=True)
    test: str = held(stored.TEST, "test", default=MISSING, first=True)
    kernel: Kernel | None = held(stored.KERNEL, "kernel")
    bandwidth_rule: str | None = held(stored.MAYBE_WORD)
    estimator: str | None = held(stored.MAYBE_WORD, "estimator")
    dependence: str | None = held(stored.MAYBE_WORD, "dependence")
    margin: float = held(stored.NOT_NEGATIVE, "margin", default=0.0)
    pair_count: int | None = held(stored.MAYBE_COUNT, "pairs of rows")
    block_count: int | None = held(stored.MAYBE_COUNT, "blocks")
    landmark_count: int | None = held(stored.MAYBE_COUNT, "landmarks")
    variance: str | None = held(stored.MAYBE_WORD, "variance")
    locations: Array | None = held(stored.ROWS)
    preset: str | None = held(stored.MAYBE_WORD, "preset")
    select_fraction: float | None = held(
        stored.MAYBE_FRACTION, "fraction of rows for selection"
    )
    randomised: bool = held(stored.FLAG, default=False)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a result was made from, and by what."""

    seed: int | None = held(stored.MAYBE_COUNT, "seed")
    backend: str | None = held(stored.MAYBE_WORD, "backend")
    versions: dict[str, str] = held(stored.VERSIONS_BY_NAME, "versions", default=VERSIONS.copy)
    inputs: dict[str, Any] | None = held(stored.DIGESTS, "digests of the data")
    plan: dict[str, int] | None = held(stored.MAYBE_COUNTS_BY_NAME, "order of sums")
    encoding: Encoding | None = held(stored.ENCODING)
    unscaled: int | None = held(stored.MAYBE_COUNT)
    shared_rows: dict[str, int] = held(stored.COUNTS_BY_NAME, default=dict)
    command: tuple[str, ...] | None = held(stored.MAYBE_TEXTS)
    reference: str | None = held(stored.MAYBE_TEXT)


def each(path: str, form: Form, impossible: Any = 0.0, *, axes: int = 1) -> Any:
    """An attribute with an entry for each model, from an array of a part for the distinct
    ones: "decision.worse".
    """
    part, name = path.split(".")
    return Attribute(
        lambda r: r._every(getattr(getattr(r, part), name), impossible, axes),
        kept(form),
        (part, name, axes),
    )


def matrix(path: str, form: Form) -> Any:
    """An attribute with a row and a column for each model."""
    return each(path, form, axes=2)


class Attributes:
    """The attributes that a result has from its parts."""

    alpha: float = of("method")
    test: str = of("method")
    measure: str = of("estimate", stored.WORD)
    kernel: Kernel | None = of("method")
    bandwidth_rule: str | None = of("method")
    estimator: str | None = of("method")
    dependence: str | None = of("method")
    margin: float = of("method")
    pair_count: int | None = of("method")
    block_count: int | None = of("method")
    landmark_count: int | None = of("method")
    variance: str | None = of("method")
    locations: Array | None = of("method")
    preset: str | None = of("method")
    select_fraction: float | None = of("method")
    randomised: bool = of("method")
    seed: int | None = of("provenance")
    backend: str | None = of("provenance")
    versions: dict[str, str] = of("provenance")
    inputs: dict[str, Any] | None = of("provenance")
    plan: dict[str, int] | None = of("provenance")
    encoding: Encoding | None = of("provenance")
    unscaled: int | None = of("provenance")
    shared_rows: dict[str, int] = of("provenance")
    command: tuple[str, ...] | None = of("provenance")
    reference: str | None = of("provenance")
    sizes: tuple[int, ...] | None = of("estimate", stored.MAYBE_COUNTS, "rows")
    groups: tuple[int, ...] | None = of("estimate", stored.MAYBE_COUNTS)
    yardstick: float | None = of("estimate", stored.MAYBE_NOT_NEGATIVE)
    doubts: tuple[str, ...] = of("estimate", stored.TEXTS)


class OfModels:
    """The attributes of a result on several models: arrays have an entry for each model that
    was given.
    """

    best: str = derived(lambda r: r.estimate.names[r.decision.best], stored.NAME)
    best_index: int = derived(lambda r: r.names.index(r.best), stored.INDEX)
    sizes: tuple[int, ...] | None = derived(
        lambda r: _counted(r.estimate.sizes, r._places()), stored.MAYBE_COUNTS, "rows"
    )
    groups: tuple[int, ...] | None = derived(
        lambda r: _counted(r.estimate.groups, r._places()), stored.MAYBE_COUNTS
    )
    correction: str = of("decision", stored.WORD, "correction", first=True)
    higher_is_better: bool = of("estimate", stored.FLAG)
    binary: bool = of("estimate", stored.FLAG)
    design: str | None = of("estimate", stored.MAYBE_WORD, "how the means were taken")
    lags: int | None = of("estimate", stored.MAYBE_COUNT)
    unit: float = of("estimate", stored.POSITIVE)
    leading: tuple[str, ...] = of("estimate", stored.TEXTS)
    discrepancy: Array = derived(lambda r: r._every(r._scores(), math.inf), stored.ESTIMATED)
    standard_error: Array = derived(
        lambda r: r._every(r.estimate.standard_error), stored.ERRORS
    )
    covariance: Array = matrix("estimate.covariance", stored.MATRIX)
    difference: Array = derived(
        lambda r: r._every(r._differences(), math.inf), stored.ESTIMATED
    )
    difference_standard_error: Array = derived(
        lambda r: r._every(r._errors_of_differences()), stored.ERRORS
    )
    pvalue: Array = derived(lambda r: r._every(np.exp(r.decision.log_pvalue)), stored.PVALUES)
    log_pvalue: Array = each("decision.log_pvalue", stored.LOG_PVALUES, -math.inf)
    adjusted_pvalue: Array = each("decision.adjusted_pvalue", stored.PVALUES)
    worse: Mask = each("decision.worse", stored.FLAGS, True)
    simultaneous_pvalue: Array = each("decision.simultaneous_pvalue", stored.PVALUES)
    truncation: Array | None = each("decision.truncation", stored.LIMITS, (-math.inf, math.inf))
    equivalent: Mask | None = each("decision.equivalent", stored.MAYBE_FLAGS, False)
    beaten_by: tuple[str | None, ...] | None = derived(
        lambda r: r._beaters(), stored.NAMES_OR_NULL
    )
    confidence_set: tuple[str, ...] | None = derived(
        lambda r: r._confidence_set(), stored.MAYBE_TEXTS
    )
    near_degeneracy: Array | None = each("estimate.near_degeneracy", stored.VALUES)
    second_order: Array | None = matrix("estimate.second_order", stored.MAYBE_MATRIX)
    third: Array | None = matrix("estimate.third", stored.MAYBE_MATRIX)
    freedom: Array | None = matrix("estimate.freedom", stored.MAYBE_MATRIX)
    projection: Array | None = derived(
        lambda r: r._every(r.first_order, axes=2), stored.MAYBE_MATRIX
    )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Answer(Attributes, Record):
    """What the answers for several models and for a pair have in common; `Comparison` says
    what each attribute is.
    """

    names: tuple[str, ...] = held(stored.NAMES, default=MISSING)
    estimate: JointEstimate = held(default=MISSING, written=False)
    method: Method
    provenance: Provenance = field(default_factory=Provenance)
    warnings: tuple[str, ...] = held(stored.TEXTS, default=())

    PARTS: ClassVar[Mapping[str, Any]] = {"method": Method, "provenance": Provenance}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Verdicts(OfModels, Answer):
    """Which of l models are worse than the best. Arrays are in the order the models were given.

    Attributes:
        names: model names. best, best_index: the model the others are tested against.
        discrepancy, standard_error, covariance: the estimates; for relmulti those from the
        testing rows.
        binary: True if the scores are 0 or one other number, so that score intervals are used.
        higher_is_better: True if `discrepancy` holds scores of which larger ones are better;
        otherwise smaller ones. difference, difference_standard_error: how much worse than
        the best a model is, and its standard error: D_i − D_best, or D_best − D_i where
        larger is better.
        pvalue, log_pvalue, adjusted_pvalue: of "no worse than the best", with a margin δ "no
            worse by more than δ"; 1 for the best, except in best-set.
        worse: the verdicts with the correction that was asked for, ``adjusted_pvalue ≤ alpha``.
        simultaneous_pvalue: adjusted so that the verdicts on all models hold at once,
        whatever the correction is. margin, equivalent: δ, and which models are shown to be
        within δ: of the model they were tested against, in best-set of whichever is best.
        None without a margin.
        status: words per model, such as "tie" or "duplicate of NAME".
        impossible: models that give density 0 to some rows, and to how many. Their mean −log
            p is infinite: they are worse, and the others were compared without them. Their
            standard errors and covariances are written as 0.
        also: the comparisons of the same models by other discrepancies, each with verdicts of
            its own.
        truncation: (l, 2) limits of the selective test; None where it does not apply.
        near_degeneracy, second_order, third, freedom: (l,) and (l, l), as in
        `JointEstimate`: what plans and intervals need besides.
        projection: (l, l) the covariance by first-order theory, where `covariance` is that of
            the law with both parts.
        yardstick: how far two halves of the data are apart through sampling alone, in the
            units of the discrepancy: a measure for margins. None where it is not known, as
            for losses, a density as the reference, and estimators that do not use all pairs.
        warnings: sentences the reader should see.
        doubts: those of the `warnings` that make the verdicts unreliable, so that a gate does
            not answer.
        leading: those of the `warnings` that come before the verdicts, as they say what the
            numbers are made of.
        robust_to_bandwidth: for each model whether its verdict is the same at half and at
            twice the kernel's bandwidth, apart from "best" and "no evidence", which may
            change places. None where that was not computed: the kernel has no bandwidth, not
            all pairs of rows were used, or they would take one core more than two seconds.
        sizes: the reference's number of rows, then each model's where models have samples.
        groups: the numbers of groups those rows are in; None for independent rows.
        locations: (J, d), of UME and FSSD.
        inputs: a digest of the reference's rows and of each sample's, None for densities.
        plan: what decides the order of sums, and so their last digits: bytes for tiles, most
            rows of a patch.
        preset: "kid" or "cmmd" where one was used.
        copies: the name of every copy, and the model that it is a copy of.
        shared_rows: how many rows of a sample also occur in the reference, for samples that
            have some.
        design: how the means of losses were taken, such as "macro average over 30 strata"; None
            for plain means.
        lags: the lags in the covariance of a series; None for independent items.
        unit: 1, or the power of 2 in which very large or very small scores are measured:
            discrepancies, standard errors, differences, intervals and the margin are those
            of the scores divided by it.
        encoding: how the columns were made into rows of numbers; None for plain arrays as they
            are.
        unscaled: the number of columns of plain arrays, if their standard deviations differ
            by more than a half; else None.
        command: the arguments of `relfit` that made it, without its outputs; None where Python
            did.
        reference: what the data are called, such as the name of their file; None where that is
            not known.
    """

    decision: Decision = held(default=MISSING, written=False)
    status: tuple[tuple[str, ...], ...] = held(stored.WORD_LISTS, default=MISSING)
    copies: dict[str, str] = held(stored.NAMES_BY_NAME, default=dict)
    impossible: dict[str, int] = held(stored.COUNTS_BY_NAME, "rows of density 0", default=dict)
    first_order: Array | None = held(written=False)
    robust_to_bandwidth: tuple[bool, ...] | None = held(stored.FLAG_LIST)
    also: tuple[Verdicts, ...] = ()

    @classmethod
    def restored(cls, found: Mapping[str, Any]) -> Self:
        """The result whose file has these values."""
        names = found["names"]
        copies = found.get("copies", {})
        impossible = found.get("impossible", {})
        kept = [
            i for i, name in enumerate(names) if name not in copies and name not in impossible
        ]
        own = tuple(names[i] for i in kept)
        parts: dict[str, dict[str, Any]] = {"estimate": {}, "decision": {}}
        for name, attribute in cls.attributes().items():
            if attribute.source is not None and found.get(name) is not None:
                part, key, axes = attribute.source
                parts[part][key] = _taken(found[name], kept, axes)
        values = _taken(found["discrepancy"], kept, 1)
        estimate = JointEstimate(
            **parts["estimate"],
            names=own,
            values=0.0 - values if found.get("higher_is_better") else values,
            sizes=_counted(found.get("sizes"), kept),
            groups=_counted(found.get("groups"), kept),
        )
        beaters = found.get("beaten_by")
        if beaters is not None:
            beaters = tuple(None if beaters[i] is None else own.index(beaters[i]) for i in kept)
        status = tuple(found["status"][i] for i in kept)
        decision = Decision(
            **parts["decision"], best=own.index(found["best"]), status=status, beaten_by=beaters
        )
        made = {
            key: part(
                **{item.name: found[item.name] for item in fields(part) if item.name in found}
            )
            for key, part in cls.PARTS.items()
        }
        plain = ("names", "status", "copies", "impossible", "warnings", "robust_to_bandwidth")
        return cls(
            estimate=estimate,
            decision=decision,
            first_order=_taken(found.get("projection"), kept, 2),
            **{name: found[name] for name in plain if name in found},
            **made,
        )

    @property
    def grade(self) -> tuple[str, ...]:
        """The verdict on every model, on one scale (`relfit.results.grade`).

        "best", "same" (a copy of the best, or not to be told from it), "equivalent" within
        the margin, "no evidence", "worse" (taken alone) or "clearly worse" (for all models
        at once).

        >>> from relfit import JointEstimate, decide
        >>> decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3))).grade
        ('best', 'no evidence', 'clearly worse')
        """
        return graded(
            self.best_index,
            self._decisive(),
            self.simultaneous_pvalue,
            self.alpha,
            self.equivalent,
            self._same(),
        )

    @property
    def estimates(self) -> Array:
        """(l,) the discrepancies with smaller ones better: those of scores with the sign
        changed.
        """
        return -self.discrepancy if self.higher_is_better else self.discrepancy

    @property
    def threshold(self) -> Array:
        """(l,) the difference to the best above which a model would be declared worse,
        before correction.

        For relpsi and relmulti D_i − D_best ≥ threshold exactly where the p-value is at most
        alpha. best-set and carve decide by simulation, and for them this is the threshold of
        a plain z test.
        """
        varies = self.difference_standard_error > 0.0
        s = np.where(varies, self.difference_standard_error, 1.0)
        delta = self.margin
        if self.truncation is None:
            cut = delta - s * ndtri(self.alpha)
        else:
            limits = self.truncation - delta
            cut = delta + selective_threshold(self.alpha, s, limits[:, 0], limits[:, 1])
        return np.where(varies, cut, np.where(self.log_pvalue < 0.0, -math.inf, math.inf))

    def confidence_interval(self, level: float = 0.95) -> Array:
        """(l, 2) two-sided intervals, each end missed by at most (1 − level)/2.

        relpsi and carve: for D_i − D_best given that `best` was selected, each with
        probability `level`; they can be infinite. relmulti: for D_i − D_best on the testing
        rows. best-set: for D_i − min_j D_j, whichever model is best; all hold together with
        probability `level`.
        """
        return np.stack(self._bounds((1.0 + check_level(level)) / 2.0), axis=1)

    def lower_bound(self, level: float = 0.95) -> Array:
        """(l,) one-sided lower bounds of what `confidence_interval` covers.

        In relpsi, relmulti and carve above the margin exactly where p < 1 − level. best-set:
        they hold together.
        """
        return self._bounds(check_level(level))[0]

    def upper_bound(self, level: float = 0.95) -> Array:
        """(l,) one-sided upper bounds of what `confidence_interval` covers; best-set: they
        hold together.

        A bound of at most δ shows that a model is no worse by more than δ.
        """
        return self._bounds(check_level(level))[1]

    def graded_intervals(self) -> Array:
        """(l, 2) for every difference to the best, the interval that belongs to its grade.

        Each end is a one-sided bound at the level at which the verdict was decided, at least
        1 − alpha: the lower end is above the margin (0 without one) exactly where the model
        is worse or clearly worse, and for a clearly worse one allows for all models at once;
        the upper end is at most the margin exactly where it is equivalent. In best-set they
        are for D_i − min_j D_j, otherwise for D_i − D_best. With several kernels in one
        test, which no single difference decides, they are NaN.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b"), [0.0, 1.0], 0.02 * np.eye(2)))
        >>> result.graded_intervals().round(2).tolist()
        [[0.0, 0.0], [0.61, 1.33]]
        """
        if isinstance(self.kernel, Collection):
            return np.full((len(self.names), 2), math.nan)
        bad = np.isin(self.grade, (WORSE.name, CLEARLY_WORSE.name))
        lower, upper, margin = *self._graded_bounds(), self.margin
        # Beyond the last digits, which simulation leaves open, the verdict decides: what it
        # says has been shown.
        lower = np.where(
            bad, np.maximum(lower, np.nextafter(margin, math.inf)), np.minimum(lower, margin)
        )
        if self.equivalent is not None:
            above = np.maximum(upper, np.nextafter(margin, math.inf))
            upper = np.where(self.equivalent, np.minimum(upper, margin), above)
        same = self._same()
        out = self._impossible()
        if not TESTS[self.test].tests_best:
            same[self.best_index] = True
        ends = np.stack([lower, np.maximum(upper, lower)], axis=1)
        ends[same & ~self._impossible()] = 0.0
        ends[out] = math.inf
        return ends

    def graded_pairs(self) -> NDArray[np.str_]:
        """(l, l) what model i is to model j: "clearly worse", "worse", "better", "clearly
        better" or "no evidence".

        In best-set a row has the critical values of its model's verdict: i is worse than
        some j exactly where its grade says that it is worse. Other tests compare with the
        selected model only, and the other pairs are "not tested". `pairs` tests all of them
        together.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3)))
        >>> result.graded_pairs()[2].tolist()
        ['clearly worse', 'clearly worse', 'itself']
        """
        grades = np.array(self.grade)
        count = len(self.names)
        best = self.best_index
        bad = np.isin(grades, (WORSE.name, CLEARLY_WORSE.name))
        alone, clearly = np.zeros((2, count, count), dtype=bool)
        tested = np.zeros((count, count), dtype=bool)
        if self.test == BestSet.name and not isinstance(self.kernel, Collection):
            tested[:] = True
            alone, clearly = (
                self._spread(self._lower_pairs(p) > self.margin, True, False)
                for p in self._both()
            )
            # The pair that the verdict stands on is shown in any case.
            against = self._spread(self._ratios(), math.inf, -math.inf).argmax(axis=1)
        else:
            against = np.full(count, best)
            if self.beaten_by is not None:
                against = np.array(
                    [
                        best if name is None else self.names.index(name)
                        for name in self.beaten_by
                    ]
                )
            tested[:, best] = tested[best] = True
            tested[np.arange(count), against] = tested[against, np.arange(count)] = True
        alone[np.arange(count), against] = clearly[np.arange(count), against] = True
        alone = alone & bad[:, None]
        clearly = clearly & (grades == CLEARLY_WORSE.name)[:, None]
        alone |= clearly
        cells = np.where(tested, "no evidence", "not tested").astype("<U14")
        for shown, word in ((alone, ""), (clearly, "clearly ")):
            cells[shown.T] = f"{word}better"
            cells[shown] = f"{word}worse"
        np.fill_diagonal(cells, "itself")
        return cells

    def pair_intervals(self, level: float = 0.95) -> Array:
        """(l, l, 2) intervals for every difference D_i − D_j: all hold together with
        probability `level`.

        From V and normal draws, below 300 rows from Student's law.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3)))
        >>> result.pair_intervals()[2, 0].round(1).tolist()  # c − a
        [1.7, 2.3]
        """
        ends = pair_intervals(
            self.estimate, check_level(level), rng=seeded(self.seed or 0, "pairs")
        )
        # Of two infinite numbers nothing is known of the difference.
        low = self._spread(ends[..., 0], math.inf, -math.inf)
        return np.stack(
            [low, self._spread(ends[..., 1], math.inf, -math.inf, both=math.inf)], axis=2
        )

    def rows(self) -> list[dict[str, Any]]:
        """The one table every output is made from: the best model first, then from better to
        worse.
        """
        estimates = self.estimates
        order = sorted(
            range(len(self.names)), key=lambda i: (i != self.best_index, estimates[i], i)
        )
        numbers: tuple[str, ...] = (
            "discrepancy",
            "standard_error",
            "difference",
            "pvalue",
            "log_pvalue",
        )
        numbers = (*numbers, "adjusted_pvalue", "simultaneous_pvalue")
        grades = self.grade
        return [
            {
                "name": self.names[i],
                **{key: float(getattr(self, key)[i]) for key in numbers},
                "worse": bool(self.worse[i]),
                "grade": grades[i],
                "equivalent": None if self.equivalent is None else bool(self.equivalent[i]),
                "robust_to_bandwidth": None
                if self.robust_to_bandwidth is None
                else self.robust_to_bandwidth[i],
                "best": i == self.best_index,
                "verdict": self._verdict(i),
                **{f"verdict_{other.measure}": other._verdict(i) for other in self.also},
                "status": self.status[i],
            }
            for i in order
        ]

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The model's row of `rows()`.

        >>> from relfit import JointEstimate, decide
        >>> decide(JointEstimate(("a", "b"), [0.1, 0.9], 0.01 * np.eye(2)))["b"]["verdict"]
        'clearly worse'
        """
        if name not in self.names:
            expected = listed(self.names, "or")
            raise InputError(f"name: expected the name of a model ({expected}), got {name!r}")
        return next(row for row in self.rows() if row["name"] == name)

    def __iter__(self) -> Iterator[str]:
        """The names of the models, which are the keys."""
        return iter(self.names)

    def verdict(self, name: str) -> str:
        """The verdict on a model, in the words of the table."""
        return str(self[name]["verdict"])

    def originals(self) -> dict[str, str]:
        """For every model the one it stands for: itself, or the one it is a copy of."""
        return {name: self.copies.get(name, name) for name in self.names}

    def distinct(self, among: Names[str] | None = None) -> JointEstimate:
        """The estimate of the distinct models, each once: copies are tested once and share
        their original's answer.

        `among` names the models that are of interest, by default all.
        """
        if among is None:
            return self.estimate
        names = self.estimate.names
        kept = [i for i, name in enumerate(names) if name in among]
        return self.estimate.at(kept, tuple(names[i] for i in kept))

    def pilot(self, among: Names[str] | None = None) -> JointEstimate:
        """The same as `distinct` with plain V, which holds the second-order part twice: what
        a plan starts from.
        """
        joint = self.distinct(among)
        if self.first_order is None:
            return joint
        kept = [self.estimate.names.index(name) for name in joint.names]
        return replace(joint, covariance=self.first_order[np.ix_(kept, kept)])

    def indistinguishable(self, name: str) -> set[str]:
        """The other models that the kernel cannot tell from this one: neither D varies, and
        both are the same number.

        A kernel that takes one value on all pairs of rows leaves that behind. Copies are the
        same model, and not meant.
        """
        if self.kernel is None:
            return set()
        originals = self.originals()
        value = {
            other: (self.discrepancy[i], self.standard_error[i])
            for i, other in enumerate(self.names)
        }
        if value[name][1] > 0.0:
            return set()
        return {
            other
            for other in self.names
            if value[other] == value[name] and originals[other] != originals[name]
        }

    @property
    def blind(self) -> bool:
        """True if the kernel can tell no model from any other."""
        others = self.indistinguishable(self.best)
        stand_for = self.originals().items()
        return bool(others) and all(
            name in others or original == self.best for name, original in stand_for
        )

    def _places(self) -> Rows:
        """(l,) the place of each model among the distinct ones: ``values[places]`` gives
        every copy its value.

        An impossible model has the place 0, and a value that must be replaced.
        """
        place = {name: k for k, name in enumerate(self.estimate.names)}
        return np.array(
            [place.get(name, 0) for name in self.originals().values()], dtype=np.intp
        )

    def _given(self) -> list[int]:
        """The places of the distinct models among all that were given."""
        return [self.names.index(name) for name in self.estimate.names]

    def _every(self, values: Any, impossible: Any = 0.0, axes: int = 1) -> Any:
        """The entries of all models, from those of the distinct ones and that of an
        impossible one.
        """
        if values is None:
            return None
        if axes == 2:
            return self._spread(values, impossible, impossible)
        every = values[self._places()]
        every[self._impossible()] = impossible
        return every

    def _of_all(self, counts: str) -> tuple[int, ...] | None:
        return _counted(getattr(self.estimate, counts), self._places().tolist())

    def _scores(self) -> Array:
        # Adding 0 turns −0 into 0.
        return 0.0 - self.estimate.values if self.higher_is_better else self.estimate.values

    def _differences(self) -> Array:
        values = self.estimate.values
        return np.asarray(values - values[self.decision.best])

    def _errors_of_differences(self) -> Array:
        covariance = self.estimate.covariance
        best = self.decision.best
        return np.array(
            [difference_variance(covariance, i, best) ** 0.5 for i in range(len(covariance))]
        )

    def _beaters(self) -> tuple[str | None, ...] | None:
        """For each model the one that beats it; the best one beats those that are
        impossible.
        """
        if self.decision.beaten_by is None:
            return None
        names = [None if k is None else self.estimate.names[k] for k in self.decision.beaten_by]
        return tuple(
            self.best if out else names[k]
            for k, out in zip(self._places(), self._impossible(), strict=True)
        )

    def _confidence_set(self) -> tuple[str, ...] | None:
        return (
            None
            if self.decision.beaten_by is None
            else tuple(compress(self.names, ~self.worse))
        )

    def _spread(self, matrix: Any, above: Any, below: Any, both: Any = None) -> Any:
        """(l, l) of all models from that of the distinct ones.

        `above` is what an impossible model has beside a possible one, `below` the reverse,
        which two of them have too.
        """
        spread = matrix[np.ix_(self._places(), self._places())]
        out = self._impossible()
        spread[np.ix_(out, ~out)] = above
        spread[np.ix_(~out, out)] = below
        spread[np.ix_(out, out)] = below if both is None else both
        return spread

    def _impossible(self) -> Mask:
        return np.array([name in self.impossible for name in self.names])

    def _bounds(self, level: float | Array) -> tuple[Array, Array]:
        """One-sided bounds of the test that made the comparison, at one level or at one for
        each model.
        """
        places = self._places()
        limits = self.decision.truncation
        level = level if isinstance(level, float) else level[self._given()]
        test = TESTS[self.test]()
        best = self.decision.best
        lower, upper = test.bounds(
            self.estimate, level, best=best, truncation=limits, seed=self.seed or 0
        )
        out = self._impossible()
        return np.where(out, math.inf, lower[places]), np.where(out, math.inf, upper[places])

    def _verdict(self, i: int) -> str:
        grade = self.grade[i]
        than = f" by more than {self.margin:g}" if self.margin else ""
        alone = "" if self.correction in DISCOVERY_RATE else ", taken alone"
        return {
            BEST.name: "selected as best" if TESTS[self.test].selects else "best of the sample",
            SAME.name: "the same as the best",
            EQUIVALENT.name: f"equivalent within {self.margin:g}",
            OPEN.name: "no evidence either way"
            if self.margin
            else "no evidence that it is worse",
            WORSE.name: f"worse{than}{alone}",
            CLEARLY_WORSE.name: f"clearly worse{than}",
        }[grade]

    def _decisive(self) -> Array:
        """(l,) the p-values that decide between "worse" and "no evidence"."""
        return decisive_pvalue(self.pvalue, self.adjusted_pvalue, self.correction)

    def _same(self) -> Mask:
        """(l,) the other models that are the best one again."""
        originals = self.originals()
        return np.array(
            [
                i != self.best_index
                and ("indistinguishable" in self.status[i] or originals[name] == self.best)
                for i, name in enumerate(self.names)
            ]
        )

    def _both(self) -> tuple[Array, Array]:
        """(l,) the p-values that decide about "worse", and about "clearly worse"."""
        return self._decisive(), self.simultaneous_pvalue

    def _log(self, pvalue: Array) -> Array:
        """(l,) logs of these p-values; of those too small for that the models' own, times
        the number of pairs.
        """
        if np.array_equal(pvalue, self.pvalue):
            return self.log_pvalue
        least = 1e-290
        pairs = 2.0 * math.log(len(pvalue))
        return np.where(
            pvalue > least,
            np.log(np.maximum(pvalue, least)),
            np.minimum(self.log_pvalue + pairs, 0.0),
        )

    def _lower_pairs(self, pvalue: Array) -> Array:
        """Lower bounds for all differences of distinct models, at the level at which this
        p-value decides.
        """
        own = self.decision.log_pvalue
        return decided_lower(
            self.estimate, own, self._log(pvalue)[self._given()], self.alpha, self.margin
        )

    def _ratios(self) -> Array:
        pairs = differences(self.estimate, self.margin)
        return np.where(pairs.certain, math.inf, pairs.ratio)

    def _graded_bounds(self) -> tuple[Array, Array]:
        """(l,) lower and upper bounds, each at the level at which the model's grade was
        decided.
        """
        level = 1.0 - self.alpha
        places = self._places()
        clearly = np.array(self.grade) == CLEARLY_WORSE.name
        alone, at_once = self._both()
        if self.test == BestSet.name:
            rows = [
                self._lower_pairs(p).max(axis=1, initial=-math.inf)[places]
                for p in (alone, at_once)
            ]
            return np.maximum(np.where(clearly, rows[1], rows[0]), 0.0), self._bounds(level)[1]
        others = max(len(self.estimate.names) - 1, 1)
        known = self.pvalue > 1e-290
        decisive = np.where(clearly, at_once, alone)
        factor = np.divide(
            decisive, self.pvalue, out=np.full(len(known), float(others)), where=known
        )
        lower = self._bounds(1.0 - self.alpha / np.maximum(factor, 1.0))[0]
        times = (
            others * float(np.sum(1.0 / np.arange(1, others + 1)))
            if self.correction == "by"
            else others
        )
        error = self.difference_standard_error
        upper_level = 1.0 - self.alpha / (1.0 if self.correction == "none" else times)
        upper = self._bounds(upper_level)[1]
        # Equivalence asks the plain z test, too; and given a near tie, all of an interval can
        # lie below the estimate.
        plain = self.difference + (float(ndtri(upper_level)) * error if self.margin else 0.0)
        return lower, np.where(np.isfinite(plain), np.maximum(upper, plain), upper)


def _taken(values: Any, kept: list[int], axes: int) -> Any:
    """Of values with entries for all models those of the distinct ones; others as they are."""
    if values is None or axes == 0:
        return values
    return values[kept] if axes == 1 else values[np.ix_(kept, kept)]


def _counted(counts: tuple[int, ...] | None, models: Iterable[int]) -> tuple[int, ...] | None:
    """The reference's number of rows, then those of these models if models have samples."""
    return (
        counts
        if counts is None or len(counts) == 1
        else (counts[0], *(counts[1 + k] for k in models))
    )
