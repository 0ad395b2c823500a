"""What a test of models is, and how to add one.

A test is a frozen dataclass with its options as fields. A new one is a subclass of `Test` in
a file of its own, and its name in the list of `relfit.stats.tests`; `compare`, `decide`,
`plan`, the command line, stored results and the report then know it. It needs a `name`, its
`words`, and two methods: `decide`, which gives the verdicts on one estimate, and
`log_pvalues`, which gives the p-values of many simulated estimates at once and is what
planning forecasts the power with. Everything else has a default that suits a test which
compares all models with the one of the smallest estimate.

A complete test, which ignores that the best model was selected on the same rows:

>>> from relfit.stats.decision import decided_against, gaps_to
>>> @dataclass(frozen=True)
... class Naive(Test):
...     name = "naive"
...     words = Words(
...         name="plain z tests",
...         question="The smallest value was chosen, and every other one was compared with it.",
...         error="No error rate is controlled: the choice of the best model is ignored.",
...         methods="Each model was compared with the chosen one by a one-sided z test.",
...     )
...
...     def decide(self, joint, criteria, selection=None):
...         best = int(np.argmin(joint.values))
...         gaps = gaps_to(joint, best)
...         log_pvalue = gaps.z_log_pvalues(criteria.margin)[0]
...         log_equivalence = (
...             gaps.z_log_equivalence(criteria.margin)[0] if criteria.margin else None
...         )
...         correction = self.resolved_correction(criteria.correction, joint.covariance, best)
...         return decided_against(
...             gaps,
...             best,
...             log_pvalue,
...             log_equivalence,
...             alpha=criteria.alpha,
...             correction=correction,
...         )
...
...     def log_pvalues(self, trials, models, alpha, *, exact):
...         best = np.argmin(trials.values, axis=1)
...         return best, trials.covariances.gaps(trials.values, best).z_log_pvalues()[:, models]
>>> joint = JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3), (100,))
>>> Naive().decide(joint, Criteria(alpha=0.05)).worse.tolist()
[False, False, True]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from relfit.stats.decision import Covariances, Decision, Gaps, constant_word, gaps_to
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import Maxima
from relfit.stats.truncnorm import selective_lower_bound
from relfit.util.arrays import Array, Rows
from relfit.util.checks import checked
from relfit.util.errors import InputError

# Texts that several tests share.
FALSE_POSITIVE_RATE = (
    "False positive rate: at most {alpha} of the models that are as good as the best are "
    "declared worse, on average."
)
SAME_ROWS = (
    "Selection and test use the same rows, and the p-values are conditional on the selection."
)
TO_BEST = "Each model's difference to {best}, with the interval that agrees with its verdict"
SELECTIVE = {
    "pvalue": ", given that these rows also chose the best model",
    "intervals": f"{TO_BEST}. It allows for the choice of the best and can be very long (an "
    f"arrow marks an end out of "
    "view).",
}


@dataclass(frozen=True)
class Words:
    """What is said about a test. The texts are templates, filled in by
    `relfit.results.words.fill`.

    Every text may hold {best}, {measure}, {smallest}, {remarks}, {fraction}, {seed},
    {alpha}, {level}, {margin}, {within} and {kernels}, `opponent` also {it}, and `methods`
    also {critical}.

    Attributes:
        name: as shown in headers and tables.
        question: what was tested.
        error: the error that is controlled without a correction for many models.
        methods: the sentence for a methods section; [key] cites a reference.
        lead: the first sentence of the summary.
        opponent: whom a model is tested against, in the sentences on corrected error rates.
        intervals: the caption of the intervals of the differences.
        pvalue: the condition under which p-values are computed.
        equivalent_to: whom a model is equivalent to within the margin.
        equivalence: how the error of "equivalent" is controlled.
        rows: what is added to the number of rows.
        line: the line style of its power curves.
    """

    name: str
    question: str
    error: str
    methods: str
    lead: str = "{best} has the {smallest} {measure}{remarks}"
    opponent: str = "the model {it} tested against"
    intervals: str = f"{TO_BEST}."
    pvalue: str = ""
    equivalent_to: str = "it"
    equivalence: str = "controlled in the same way"
    rows: str = ""
    line: str = "-"


@dataclass(frozen=True)
class Criteria:
    """What a test decides by.

    Attributes:
        alpha: the level.
        correction: one of `relfit.stats.decision.CORRECTIONS`; `Test.resolved_correction` says
            what "auto" is.
        margin: δ ≥ 0. With δ > 0 the hypothesis is "worse by at most δ", and
            `Decision.equivalent` is given.
        seed: for random numbers, which `relfit.stats.maxt.seeded` gives to each rank.
        draws_on: whether p-values near α get more draws.
    """

    alpha: float
    correction: str = "none"
    margin: float = 0.0
    seed: int = 0
    draws_on: bool = True


@dataclass(frozen=True)
class Noise:
    """Noise added to the estimates of several trials before a model is selected: N(0, V)
    with the V of each trial.

    `realised` (trials, l) selects. Further draws are ``scale · scaled + constant`` with
    `scale` (trials, l), `scaled` and `constant` (packs, draws, l); trial t uses the draws of
    pack t mod packs. Without a scale they are `constant`.
    """

    realised: Array
    constant: Array
    scaled: Array | None = None
    scale: Array | None = None

    def fresh(self, trials: Rows, pack: int, k: int | Rows) -> Array:
        """(trials, draws) of model k, or of one k for each trial; (1, draws) if these are
        the same in all trials.
        """
        constant = np.atleast_2d(self.constant[pack].T[k])
        if self.scale is None or self.scaled is None:
            return constant
        return np.asarray(self.scale[trials, k][:, None] * self.scaled[pack].T[k] + constant)


@dataclass(frozen=True)
class Trials:
    """Simulated estimates, which a test decides all at once.

    Attributes:
        values: (trials, l) estimates.
        covariances: the covariances that the test is given for them.
        rows: the number of rows behind every estimate, those that select included.
        selection: gives the (trials, l) estimates from the rows that select, for tests that
            split the rows.
        noise: gives the noise that is added to the estimates before the selection, for tests
            that carve.
        maxima: gives the law of the largest studentised difference, for tests of maxima.
    """

    values: Array
    covariances: Covariances
    rows: float
    selection: Callable[[], Array]
    noise: Callable[[], Noise]
    maxima: Callable[[], Maxima]


class Test(ABC):
    """A test of "model i is no worse than the best", for every model i. Subclasses are
    frozen dataclasses.

    Attributes:
        name: what the test is called in options, results and files.
        words: what results say about it.
        default_correction: the correction of the p-values unless another one is given.
        auto_correction: the correction that "auto" stands for, or "auto" where that depends on
            the estimate.
        tests_best: True if the best model is tested too, so that corrections count all l models
            and not l − 1.
        selects: True if the best model is not simply the one with the smallest estimate;
            its verdict is then "selected".
        randomised: True if another seed may select another model.
        draws: True if `decide` uses random numbers.
        both_parts: True if `prepared` counts both parts of the law once (`relfit.stats.close`).
        steps_down: True if `decide` knows the correction "stepdown".
        split: the fraction of the rows that selects the best model; None if the same rows
            select and test.
        scale: the scale of the estimates that the test works on; None where it has but one.
    """

    __test__ = False  # pytest collects classes with this name

    name: ClassVar[str]
    words: ClassVar[Words]
    default_correction: ClassVar[str] = "none"
    auto_correction: ClassVar[str] = "by"
    tests_best: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    randomised: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    both_parts: ClassVar[bool] = False
    steps_down: ClassVar[bool] = False
    # A test that splits the rows has a property here.
    split: float | None = None
    # A test with several scales has a field.
    scale: str | None = None

    def __new__(cls, *args: Any, **_options: Any) -> Self:
        """A test has options only: data are for `relfit.compare`."""
        if len(args) > len(getattr(cls, "__dataclass_fields__", args)):
            raise InputError(
                f"{cls.__name__}: is a test and uses no data itself; call "
                f"relfit.compare(reference, models, "
                f'test="{cls.name}")'
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        checked(self)

    @abstractmethod
    def decide(
        self, joint: JointEstimate, criteria: Criteria, selection: JointEstimate | None = None
    ) -> Decision:
        """The verdicts on one estimate.

        If the test splits the rows, `joint` is the estimate from the rows that test, and
        `selection` that from the rows that select.
        """

    def prepared(self, joint: JointEstimate) -> JointEstimate:
        """The estimate with the covariance that the test uses: plain V, or both parts of the
        law, each once.
        """
        law = joint.close
        values = joint.values
        if law is None or not self.both_parts:
            return joint if law is None else replace(joint, close=None)
        covariance = law.covariance(values)
        return replace(
            joint,
            covariance=covariance,
            third=law.third,
            follows=law.follows(values, covariance),
        )

    def gaps(self, joint: JointEstimate, best: int) -> Gaps:
        """The differences to the best model, with the standard errors that the test uses."""
        return gaps_to(joint, best)

    def implements(self, method: str) -> bool:
        """True if the test has this optional method: "decide_under_all" or
        "two_model_power".
        """
        return getattr(type(self), method) is not getattr(Test, method)

    def decide_under_all(
        self, joints: Sequence[JointEstimate], kernels: Sequence[str], criteria: Criteria
    ) -> tuple[JointEstimate, Decision]:
        """The mean of one estimate for each kernel, and the verdicts; `kernels` are their
        descriptions.

        A test without it takes one kernel only.
        """
        raise NotImplementedError

    @abstractmethod
    def log_pvalues(
        self, trials: Trials, models: list[int], alpha: float, *, exact: bool
    ) -> tuple[Rows, Array]:
        """The best model (trials,) and log p (trials, models) of simulated estimates,
        without a margin.

        p-values above `alpha` may be replaced by any others above it; unless `exact`, those
        below by any others below.
        """

    def two_model_power(self, signal: float, alpha: float, correction: str) -> float:
        """The probability that the worse one of two models is declared worse; `signal` is
        their gap over its s.e.

        A test without this closed form is simulated with two models, too.
        """
        raise NotImplementedError

    def bounds(
        self,
        joint: JointEstimate,
        level: float | Array,
        *,
        best: int,
        truncation: Array | None,
        seed: int,
    ) -> tuple[Array, Array]:
        """(l,) lower and (l,) upper confidence bounds for the differences to the best, each
        one-sided at this level.

        A test of differences to the selected model takes a level for each model, too; the
        best set takes one for all. `best`, `truncation` and `seed` are those of the
        decision. By default the bounds are those of the normal law of D_i − D_J, truncated
        to the limits where there are some. A difference without variance is known; one that
        is rounding lies between itself and 0.
        """
        gaps = self.gaps(joint, best)
        lower, upper = np.zeros((2, len(joint.names)))
        levels = np.broadcast_to(level, lower.shape).tolist()
        for i, (t, s) in enumerate(
            zip(gaps.gap[0].tolist(), gaps.error[0].tolist(), strict=True)
        ):
            if s > 0.0:
                low, high = (
                    (-math.inf, math.inf) if truncation is None else truncation[i].tolist()
                )
                lower[i] = selective_lower_bound(t, s, low, high, levels[i])
                upper[i] = -selective_lower_bound(-t, s, -high, -low, levels[i])
            elif constant_word(t, float(gaps.rounding[0, i])) == "deterministic":
                lower[i] = upper[i] = t
            else:
                lower[i], upper[i] = min(t, 0.0), max(t, 0.0)
        return lower, upper

    @classmethod
    def resolved_correction(cls, correction: str, covariance: Array, best: int) -> str:
        """The correction that is really applied; none for a single p-value. "auto" is BY,
        which needs no condition.
        """
        if len(covariance) <= 2:
            return "none"
        return cls.auto_correction if correction == "auto" else correction
