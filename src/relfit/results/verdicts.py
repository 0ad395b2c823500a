"""Verdicts: what was decided on each of several models, with every setting, and what follows
from it.

There is one decision on a model: `worse` is ``adjusted_pvalue ≤ alpha``, with the correction
that was asked for. Words, intervals and pairs show that decision and no other one
(`relfit.results.scale`). docs/decisions.md describes what it means for each test.
"""

from __future__ import annotations

import math
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from itertools import compress, repeat
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from relfit.data.encode import Encoding
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Collection
from relfit.results import serial
from relfit.results.scale import Scale, by_margin, is_worse, kind_of, scale_of
from relfit.results.serial import (
    VERSIONS,
    Attribute,
    Form,
    Record,
    derived,
    held,
    kept,
    maybe,
    of,
)
from relfit.stats.decision import Decision, differences
from relfit.stats.joint import JointEstimate, third_cumulants
from relfit.stats.maxt import law, seeded
from relfit.stats.pairs import Selection, pair_intervals, winner_interval
from relfit.stats.tests import TESTS, as_used
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.best_set import BestSet, upper_regret
from relfit.stats.truncnorm import selective_threshold
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.checks import check_level
from relfit.util.errors import InputError
from relfit.util.text import listed

# The level of a bound where 1 − alpha would be rounded to 1.
_MOST_CERTAIN = float(np.nextafter(1.0, 0.0))
# With more models than this, upper bounds of the table are by the union bound.
_MANY = 60


def words_of(decision: Decision, test: str, margin: float = 0.0) -> tuple[str, ...]:
    """The verdicts on the distinct models of a decision; models that are equal to the best one
    on these data have its verdict.

    >>> from relfit import JointEstimate, decide
    >>> result = decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3)))
    >>> words_of(result.decision, "best-set")
    ('best observed', 'inconclusive', 'significantly worse')
    """
    count = len(decision.worse)
    scale = scale_of(TESTS[test], decision.correction, count)
    best, equivalent, inconclusive, worse = (
        verdict.shown.format(**by_margin(margin)) for verdict in scale
    )
    shown: Any = np.full(count, inconclusive, dtype=object)
    if decision.equivalent is not None:
        shown[decision.equivalent] = equivalent
    shown[decision.worse] = worse
    shown[["indistinguishable" in status for status in decision.status]] = best
    shown[decision.best] = best
    return tuple(shown.tolist())


@dataclass(frozen=True, kw_only=True)
class Method:
    """How models were compared. A field that is added here is written, read and, with a
    label, shown on the page.
    """

    alpha: float = held(serial.FRACTION, "level α", default=MISSING, first=True)
    test: str = held(serial.TEST, "test", default=MISSING, first=True)
    kernel: Kernel | None = held(serial.KERNEL, "kernel")
    bandwidth_rule: str | None = held(serial.WORD)
    estimator: str | None = held(serial.WORD, "estimator")
    dependence: str | None = held(serial.WORD, "dependence")
    margin: float = held(serial.NOT_NEGATIVE, "margin", default=0.0)
    pair_count: int | None = held(serial.COUNT, "pairs of rows")
    block_count: int | None = held(serial.COUNT, "blocks")
    landmark_count: int | None = held(serial.COUNT, "landmarks")
    variance: str | None = held(serial.WORD, "variance")
    locations: Array | None = held(serial.ROWS)
    preset: str | None = held(serial.WORD, "preset")
    select_fraction: float | None = held(serial.FRACTION, "fraction of rows for selection")
    test_scale: str | None = held(serial.WORD, "scale of the test")
    randomised: bool = held(serial.FLAG, default=False)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a result was made from, and by what."""

    seed: int | None = held(serial.COUNT, "seed")
    backend: str | None = held(serial.WORD, "backend")
    versions: dict[str, str] = held(serial.WORDS_BY_NAME, "versions", default=VERSIONS.copy)
    inputs: dict[str, Any] | None = held(serial.DIGESTS, "digests of the data")
    plan: dict[str, int] | None = held(serial.COUNTS_BY_NAME, "order of sums")
    encoding: Encoding | None = held(serial.ENCODING)
    unscaled: int | None = held(serial.COUNT)
    shared_rows: dict[str, int] = held(serial.COUNTS_BY_NAME, default=dict)
    command: tuple[str, ...] | None = held(serial.TEXTS)
    reference: str | None = held(serial.TEXT)


def each(path: str, form: Form, impossible: Any = 0.0, *, axes: int = 1) -> Any:
    """An attribute with an entry for each model, or with two axes for each pair, from an array
    for the distinct ones, such as "decision.worse".
    """
    distinct = attrgetter(path)

    def get(result: Any) -> Any:
        values = distinct(result)
        if values is None:
            return None
        return result._every(values, impossible, impossible, axes=axes)

    part, _, name = path.rpartition(".")
    return Attribute(get, kept(form), (part, name, axes))


class Attributes:
    """The attributes that a result has from its parts."""

    alpha: float = of("method.alpha")
    test: str = of("method.test")
    measure: str = of("estimate.measure", serial.WORD)
    kernel: Kernel | None = of("method.kernel")
    bandwidth_rule: str | None = of("method.bandwidth_rule")
    estimator: str | None = of("method.estimator")
    dependence: str | None = of("method.dependence")
    margin: float = of("method.margin")
    pair_count: int | None = of("method.pair_count")
    block_count: int | None = of("method.block_count")
    landmark_count: int | None = of("method.landmark_count")
    variance: str | None = of("method.variance")
    locations: Array | None = of("method.locations")
    preset: str | None = of("method.preset")
    select_fraction: float | None = of("method.select_fraction")
    test_scale: str | None = of("method.test_scale")
    randomised: bool = of("method.randomised")
    seed: int | None = of("provenance.seed")
    backend: str | None = of("provenance.backend")
    versions: dict[str, str] = of("provenance.versions")
    inputs: dict[str, Any] | None = of("provenance.inputs")
    plan: dict[str, int] | None = of("provenance.plan")
    encoding: Encoding | None = of("provenance.encoding")
    unscaled: int | None = of("provenance.unscaled")
    shared_rows: dict[str, int] = of("provenance.shared_rows")
    command: tuple[str, ...] | None = of("provenance.command")
    reference: str | None = of("provenance.reference")
    sizes: tuple[int, ...] | None = of("estimate.sizes", serial.SIZES, "rows")
    groups: tuple[int, ...] | None = of("estimate.groups", serial.SIZES)
    yardstick: float | None = of("estimate.yardstick", maybe(serial.NOT_NEGATIVE))
    doubts: tuple[str, ...] = of("estimate.doubts", serial.TEXTS)


class OfModels:
    """The attributes of a result on several models: arrays have an entry for each model that
    was given.
    """

    names: tuple[str, ...]
    estimate: JointEstimate
    decision: Decision
    copies: dict[str, str]
    impossible: dict[str, int]
    first_order: Array | None

    def originals(self) -> dict[str, str]:
        """For every model the one it stands for: itself, or the one it is a copy of."""
        return {name: self.copies.get(name, name) for name in self.names}

    @cached_property
    def _places(self) -> Rows:
        """(l,) the place of each model among the distinct ones: ``values[places]`` gives
        every copy its value.

        An impossible model has the place 0, and a value that must be replaced.
        """
        place = {name: k for k, name in enumerate(self.estimate.names)}
        return np.array([place.get(name, 0) for name in self.originals().values()])

    @cached_property
    def _impossible(self) -> Mask:
        return np.array([name in self.impossible for name in self.names])

    def _every(
        self, values: NDArray[Any], impossible: Any = 0.0, other: Any = 0.0, *, axes: int = 1
    ) -> NDArray[Any]:
        """The entries of all models, or with two axes of all pairs, from those of the distinct
        ones.

        An impossible model has `impossible`, beside a possible one; a pair whose second model
        is impossible has `other`.
        """
        every = values[np.ix_(*[self._places] * axes)]
        every[self._impossible] = impossible
        if axes == 2:
            every[:, self._impossible] = other
        return every

    @derived(serial.NAME)
    def best(self) -> str:
        return self.estimate.names[self.decision.best]

    @derived(serial.COUNT)
    def best_index(self) -> int:
        return self.names.index(self.best)

    @derived(serial.SIZES, "rows")
    def sizes(self) -> tuple[int, ...] | None:
        return _counted(self.estimate.sizes, self._places)

    @derived(serial.SIZES)
    def groups(self) -> tuple[int, ...] | None:
        return _counted(self.estimate.groups, self._places)

    correction: str = of("decision.correction", serial.WORD, "correction", first=True)
    higher_is_better: bool = of("estimate.higher_is_better", serial.FLAG)
    binary: bool = of("estimate.binary", serial.FLAG)
    design: str | None = of("estimate.design", maybe(serial.WORD), "how the means were taken")
    lags: int | None = of("estimate.lags", maybe(serial.COUNT))
    components: dict[str, float] | None = of(
        "estimate.components", maybe(serial.FRACTIONS_BY_NAME)
    )
    unit: float = of("estimate.unit", serial.POSITIVE)
    leading: tuple[str, ...] = of("estimate.leading", serial.TEXTS)

    @derived(serial.INFINITE)
    def discrepancy(self) -> Array:
        values = self.estimate.values
        # Adding 0 turns −0 into 0.
        return self._every(0.0 - values if self.higher_is_better else values, math.inf)

    @derived(serial.ERRORS)
    def standard_error(self) -> Array:
        return self._every(self.estimate.standard_error)

    covariance: Array = each("estimate.covariance", serial.MATRIX, axes=2)

    @derived(serial.INFINITE)
    def difference(self) -> Array:
        values = self.estimate.values
        return self._every(values - values[self.decision.best], math.inf)

    @derived(serial.ERRORS)
    def difference_standard_error(self: Any) -> Array:
        gaps = as_used(self.test, self.test_scale).gaps(self.estimate, self.decision.best)
        errors: Array = self._every(gaps.error[0])
        return errors

    @derived(serial.PVALUES)
    def pvalue(self) -> Array:
        return self._every(np.exp(self.decision.log_pvalue))

    log_pvalue: Array = each("decision.log_pvalue", serial.LOG_PVALUES, -math.inf)
    adjusted_pvalue: Array = each("decision.adjusted_pvalue", serial.PVALUES)
    worse: Mask = each("decision.worse", serial.FLAGS, True)
    simultaneous_pvalue: Array = each("decision.simultaneous_pvalue", serial.PVALUES)
    truncation: Array | None = each(
        "decision.truncation", maybe(serial.LIMITS), (-math.inf, math.inf)
    )
    equivalent: Mask | None = each("decision.equivalent", maybe(serial.FLAGS), False)
    decided_bounds: Array | None = each("decision.decided_bounds", maybe(serial.BOUNDS), axes=2)
    draws: int | None = of("decision.draws", maybe(serial.COUNT), "draws")

    @derived(serial.BEATERS)
    def beaten_by(self) -> tuple[str | None, ...] | None:
        """For each model the one that beats it; the best one beats those that are
        impossible.
        """
        if self.decision.beaten_by is None:
            return None
        names = [None if k is None else self.estimate.names[k] for k in self.decision.beaten_by]
        return tuple(
            self.best if out else names[k]
            for k, out in zip(self._places, self._impossible, strict=True)
        )

    @derived(maybe(serial.TEXTS))
    def confidence_set(self) -> tuple[str, ...] | None:
        kept = tuple(compress(self.names, ~self.worse))
        return None if self.decision.beaten_by is None else kept

    near_degeneracy: Array | None = each("estimate.near_degeneracy", maybe(serial.VALUES))
    second_order: Array | None = each("estimate.second_order", maybe(serial.MATRIX), axes=2)
    third: Array | None = each("estimate.third", maybe(serial.MATRIX), axes=2)
    freedom: Array | None = each("estimate.freedom", maybe(serial.MATRIX), axes=2)
    follows: Array | None = each("estimate.follows", maybe(serial.MATRIX), axes=2)

    projection: Array | None = each("first_order", maybe(serial.MATRIX), axes=2)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Answer(Attributes, Record):
    """What the answers for several models and for a pair have in common; `Comparison` says
    what each attribute is.
    """

    names: tuple[str, ...] = held(serial.NAMES, default=MISSING)
    estimate: JointEstimate = held(default=MISSING, written=False)
    method: Method
    provenance: Provenance = field(default_factory=Provenance)
    warnings: tuple[str, ...] = held(serial.TEXTS, default=())

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
        worse: the decision, ``adjusted_pvalue ≤ alpha``. verdicts: the decision in words.
        confidence_set: the models that are not worse, a confidence set for the best model;
            None for tests that have none.
        simultaneous_pvalue: adjusted for the familywise error rate, whatever the correction is.
        margin, equivalent: δ, and which models are shown to be within δ: of the model they were
            tested against, in best-set of whichever is best. None without a margin.
        status: words per model, such as "tie" or "duplicate of NAME".
        impossible: models that give density 0 to some rows, and to how many. Their mean −log
            p is infinite: they are worse, and the others were compared without them. Their
            standard errors and covariances are written as 0.
        also: the comparisons of the same models by other discrepancies, each with verdicts of
            its own.
        truncation: (l, 2) limits of the selective test; None where it does not apply.
        near_degeneracy, second_order, third, freedom, follows: (l,) and (l, l), as in
        `JointEstimate`: what plans and intervals need besides.
        decided_bounds: (l, l) in best-set, the lower bounds for D_i − D_j that belong to
            the verdicts, as in `Decision`. draws: the most draws made for a p-value.
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
            twice the kernel's bandwidth, apart from "best observed" and "inconclusive", which
            may change places. None where that was not computed: the kernel has no bandwidth, not
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
        components: the parts of the mean variance of the differences to the best model, by
            what they are due to: items, training runs, judges; None where only items matter.
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
    status: tuple[tuple[str, ...], ...] = held(serial.WORD_LISTS, default=MISSING)
    copies: dict[str, str] = held(serial.NAMES_BY_NAME, default=dict)
    impossible: dict[str, int] = held(serial.COUNTS_BY_NAME, "rows of density 0", default=dict)
    first_order: Array | None = held(written=False)
    robust_to_bandwidth: tuple[bool, ...] | None = held(serial.FLAG_LIST)
    also: tuple[Verdicts, ...] = ()

    @classmethod
    def restored(cls, found: Mapping[str, Any]) -> Self:
        """The result whose file has these values."""
        names = found["names"]
        left_out = {*found.get("copies", ()), *found.get("impossible", ())}
        kept = [i for i, name in enumerate(names) if name not in left_out]
        own = tuple(names[i] for i in kept)
        kinds = {"estimate": JointEstimate, "decision": Decision, **cls.PARTS}
        parts = {part: _present(kind, found) for part, kind in {"": cls, **cls.PARTS}.items()}
        values = found["discrepancy"][kept]
        parts["estimate"] = {
            "names": own,
            "values": 0.0 - values if found.get("higher_is_better") else values,
        }
        parts["decision"] = {
            "best": own.index(found["best"]),
            "status": tuple(found["status"][i] for i in kept),
        }
        for name, attribute in cls.attributes().items():
            if attribute.source is not None and found.get(name) is not None:
                part, key, axes = attribute.source
                value = found[name]
                parts[part][key] = value[np.ix_(*[kept] * axes)] if axes else value
        for name in ("sizes", "groups"):
            parts["estimate"][name] = _counted(found.get(name), kept)
        if found.get("beaten_by") is not None:
            beaters = [found["beaten_by"][i] for i in kept]
            parts["decision"]["beaten_by"] = tuple(
                None if name is None else own.index(name) for name in beaters
            )
        made: Any = {part: kind(**parts[part]) for part, kind in kinds.items()}
        return cls(**parts[""], **made)

    @property
    def wording(self) -> Scale:
        """The four verdicts that this result can have."""
        return scale_of(TESTS[self.test], self.correction, len(self.estimate.names))

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The verdict on every model, in the words of every output.

        "best observed" (with RelMulti and carving "selected"), "equivalent within δ" or
        "non-inferior within δ", "inconclusive", and "significantly worse", which is "worse
        (unadjusted)" with the correction "none" and "worse (FDR)" with "bh" or "by". With a
        margin it is "worse by more than δ". A copy has the verdict of its original.

        >>> from relfit import JointEstimate, decide
        >>> decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3))).verdicts
        ('best observed', 'inconclusive', 'significantly worse')
        """
        shown = words_of(self.decision, self.test, self.margin)
        distinct = dict(zip(self.estimate.names, shown, strict=True))
        # An impossible model is infinitely worse.
        worse = self.wording.worse.shown.format(**by_margin(self.margin))
        return tuple(distinct.get(original, worse) for original in self.originals().values())

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of every verdict: "best", "equal", "open", "weak" or "worse"."""
        return tuple(map(kind_of, self.verdicts))

    @property
    def _found(self) -> Mask:
        """(l,) the models with a verdict that says worse."""
        return np.array([is_worse(verdict) for verdict in self.verdicts])

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

    def verdict_intervals(self) -> Array:
        """(l, 2) for every difference to the best, the interval that agrees with its verdict.

        Each end is a one-sided bound at the level of the verdict, at least 1 − alpha: the
        lower end is above the margin (0 without one) exactly where the model is worse; the
        upper end is at most the margin exactly where it is equivalent or non-inferior. In
        best-set they are for D_i − min_j D_j, otherwise for D_i − D_best. With several
        kernels in one test, which no single difference decides, they are NaN.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b"), [0.0, 1.0], 0.02 * np.eye(2)))
        >>> result.verdict_intervals().round(2).tolist()
        [[0.0, 0.0], [0.61, 1.33]]
        """
        return self._verdict_intervals.copy()

    @cached_property
    def _verdict_intervals(self) -> Array:
        if isinstance(self.kernel, Collection):
            return np.full((len(self.names), 2), math.nan)
        lower, upper = self._verdict_bounds()
        # Beyond the last digits, which simulation leaves open, the verdict decides.
        margin = self.margin
        above = np.nextafter(margin, math.inf)
        lower = np.where(self._found, np.maximum(lower, above), np.minimum(lower, margin))
        if self.equivalent is not None:
            upper = np.where(
                self.equivalent, np.minimum(upper, margin), np.maximum(upper, above)
            )
        ends = np.stack([lower, np.maximum(upper, lower)], axis=1)
        if not TESTS[self.test].tests_best:
            ends[np.array(self.kinds) == "best"] = 0.0
        ends[self._impossible] = math.inf
        return ends

    def verdict_pairs(self) -> NDArray[np.str_]:
        """(l, l) what model i is to model j: "worse", "better", "inconclusive", "not tested"
        or "itself".

        In best-set a row has the critical values of its model's verdict: i is worse than
        some j exactly where its verdict says that it is worse. Other tests compare with the
        selected model only. `pairs` tests all pairs together.

        >>> from relfit import JointEstimate, decide
        >>> result = decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3)))
        >>> result.verdict_pairs()[2].tolist()
        ['worse', 'worse', 'itself']
        """
        count = len(self.names)
        rows = np.arange(count)
        if self.test == BestSet.name and not isinstance(self.kernel, Collection):
            cells = np.full((count, count), "inconclusive", dtype="<U14")
            lower = self._every(self._lower_pairs(), math.inf, -math.inf, axes=2)
            above = lower > self.margin
            # The pair that the verdict stands on is shown in any case.
            against = lower.argmax(axis=1)
        else:
            cells = np.full((count, count), "not tested", dtype="<U14")
            above = np.zeros((count, count), dtype=bool)
            beaters = self.beaten_by or (None,) * count
            against = np.array([self.names.index(name or self.best) for name in beaters])
            best = np.full(count, self.best_index)
            for other in (best, against):
                cells[rows, other] = cells[other, rows] = "inconclusive"
        above[rows, against] = True
        found = above & self._found[:, None]
        cells[found.T] = "better"
        cells[found] = "worse"
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
        lower = self._every(ends[..., 0], math.inf, -math.inf, axes=2)
        return np.stack([lower, 0.0 - lower.T], axis=2)

    def best_interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval for the value of `best`, which allows for its selection.

        The best observed value is too good on average: of several equally good models the
        one with the most luck is the best observed. If `best` is the model with the smallest
        estimate, or was selected as its test does, then the interval misses its true value
        with probability at most 1 − level. With RelMulti other rows selected the model, and
        the interval is the ordinary one. Squared distances are at least 0, and so is their
        interval. ``stats/pairs.py`` has the method.

        >>> from relfit import JointEstimate, decide
        >>> near = decide(JointEstimate(("a", "b"), [0.0, 0.1], 0.01 * np.eye(2)))
        >>> [round(end, 2) for end in near.best_interval()]
        [-0.2, 0.23]
        """
        return self.best_interval_at(1.0 - check_level(level))

    def best_interval_at(self, error: float) -> tuple[float, float]:
        """`best_interval` at the level 1 − error."""
        selection: Selection = "smallest"
        if self.select_fraction is not None:
            selection = "other rows"
        elif self.randomised:
            selection = "any"
        low, high = winner_interval(self.estimate, self.decision.best, error, selection)
        return (0.0 - high, 0.0 - low) if self.higher_is_better else (low, high)

    def rows(self) -> list[dict[str, Any]]:
        """The one table every output is made from: the best model first, then from better to
        worse.
        """
        arrays = (
            "discrepancy",
            "standard_error",
            "difference",
            "pvalue",
            "log_pvalue",
            "adjusted_pvalue",
            "worse",
        )
        lower, upper = self._verdict_intervals.T.tolist()
        columns: dict[str, Any] = {
            "name": self.names,
            **{key: getattr(self, key).tolist() for key in arrays},
            "lower": lower,
            "upper": upper,
            "equivalent": repeat(None) if self.equivalent is None else self.equivalent.tolist(),
            "robust_to_bandwidth": self.robust_to_bandwidth or repeat(None),
            "best": [name == self.best for name in self.names],
            "verdict": self.verdicts,
            **{f"verdict_{other.measure}": other.verdicts for other in self.also},
            "status": self.status,
        }
        rows = [
            dict(zip(columns, cells, strict=True))
            for cells in zip(*columns.values(), strict=False)
        ]
        sign = -1.0 if self.higher_is_better else 1.0
        return sorted(rows, key=lambda row: (not row["best"], sign * row["discrepancy"]))

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The model's row of `rows()`.

        >>> from relfit import JointEstimate, decide
        >>> decide(JointEstimate(("a", "b"), [0.1, 0.9], 0.01 * np.eye(2)))["b"]["verdict"]
        'significantly worse'
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

    def distinct(self, among: Names[str] | None = None) -> JointEstimate:
        """The estimate of the distinct models, each once: copies are tested once and share
        their original's answer.

        `among` names the models that are of interest, by default all.
        """
        return _among(self.estimate, among)

    def pilot(self, among: Names[str] | None = None) -> JointEstimate:
        """The same as `distinct` with plain V, which holds the second-order part twice: what
        a plan starts from.
        """
        plain = self.estimate
        if self.first_order is not None:
            plain = replace(plain, covariance=self.first_order)
        return _among(plain, among)

    def indistinguishable(self, name: str) -> set[str]:
        """The other models that the kernel cannot tell from this one: neither D varies, and
        both are the same number.

        A kernel that takes one value on all pairs of rows leaves that behind. Copies are the
        same model, and not meant.
        """
        i = self.names.index(name)
        if self.kernel is None or self.standard_error[i] > 0.0:
            return set()
        same = (self.discrepancy == self.discrepancy[i]) & (self.standard_error == 0.0)
        originals = self.originals()
        return {
            other for other in compress(self.names, same) if originals[other] != originals[name]
        }

    @property
    def blind(self) -> bool:
        """True if the kernel can tell no model from any other."""
        others = self.indistinguishable(self.best)
        return bool(others) and all(
            name in others or original == self.best
            for name, original in self.originals().items()
        )

    def _bounds(self, level: float | Array) -> tuple[Array, Array]:
        """One-sided bounds of the test that made the comparison, at one level or at one for
        each distinct model.
        """
        lower, upper = as_used(self.test, self.test_scale).bounds(
            self.estimate,
            level,
            best=self.decision.best,
            truncation=self.decision.truncation,
            seed=self.seed or 0,
        )
        return self._every(lower, math.inf), self._every(upper, math.inf)

    def facts(self) -> dict[str, str]:
        """What templates of texts about tests and verdicts are filled in with."""
        percent = f"{100 * self.alpha:g}"
        return {
            **by_margin(self.margin),
            "percent": percent,
            "alpha": f"{percent}%",
            "level": f"{100 * (1.0 - self.alpha):g}%",
            "within": " within that margin" if self.margin else "",
        }

    def _lower_pairs(self) -> Array:
        """Lower bounds for all differences of distinct models, at the level of the verdicts."""
        bounds = self.decision.decided_bounds
        count = len(self.estimate.names)
        return np.full((count, count), -math.inf) if bounds is None else bounds

    def _upper_regret(self) -> Array:
        """(l,) upper bounds for the difference to the best, whichever model that is: simulated,
        for many models by the union bound, which is hardly longer and takes no draws.
        """
        level = min(1.0 - self.alpha, _MOST_CERTAIN)
        joint = self.estimate
        if len(joint.names) <= _MANY:
            return self._bounds(level)[1]
        pairs = differences(joint)
        # Quantiles of too few draws are those of the union bound.
        one_draw = law(joint, pairs.error, seeded(0, self.test), 1)
        return self._every(upper_regret(joint, pairs, one_draw, level), math.inf)

    def _verdict_bounds(self) -> tuple[Array, Array]:
        """(l,) lower and upper bounds, each at the level of the model's verdict."""
        if self.test == BestSet.name:
            lower = np.maximum(self._lower_pairs().max(axis=1, initial=-math.inf), 0.0)
            return self._every(lower, math.inf), self._upper_regret()
        pvalue = np.exp(self.decision.log_pvalue)
        others = max(len(pvalue) - 1, 1)
        factor = np.full(len(pvalue), float(others))
        np.divide(self.decision.adjusted_pvalue, pvalue, out=factor, where=pvalue > 1e-290)
        levels = 1.0 - self.alpha / np.maximum(factor, 1.0)
        lower = self._bounds(np.minimum(levels, _MOST_CERTAIN))[0]
        times = 1.0 if self.correction == "none" else float(others)
        if self.correction == "by":
            times *= float(np.sum(1.0 / np.arange(1, others + 1)))
        level = min(1.0 - self.alpha / times, _MOST_CERTAIN)
        upper = self._bounds(level)[1]
        # Equivalence asks the plain z test, too; and given a near tie, all of an interval can
        # lie below the estimate.
        reach = float(ndtri(level)) * self.difference_standard_error if self.margin else 0.0
        return lower, np.maximum(upper, self.difference + reach)


def _present(kind: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those fields of a record that were found."""
    return {item.name: found[item.name] for item in fields(kind) if item.name in found}


def _among(joint: JointEstimate, names: Names[str] | None) -> JointEstimate:
    """The estimate of these models, by default of all."""
    if names is None:
        return joint
    kept = [i for i, name in enumerate(joint.names) if name in names]
    return joint.at(kept, tuple(joint.names[i] for i in kept))


def _counted(counts: tuple[int, ...] | None, models: Iterable[int]) -> tuple[int, ...] | None:
    """The reference's number of rows, then those of these models if models have samples."""
    if counts is None or len(counts) == 1:
        return counts
    return (counts[0], *(counts[1 + k] for k in models))


def recorded(
    joint: JointEstimate, criteria: Criteria, method: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """The estimate and the method of an answer, as fields of it."""
    variance = {} if joint.close is None else {"variance": "second-order"}
    used = {**method, **variance, "alpha": criteria.alpha, "margin": criteria.margin, **more}
    # What only the decision needed is not kept.
    kept = replace(joint, third=third_cumulants(joint), psi=None, close=None, notes=())
    return {"estimate": kept, "method": Method(**used)}
