"""A result in plain words: names as shown, the summary sentence, what was tested, which
error is controlled.

What is said about a test stands in its `words` (`relfit.stats.tests`), what is said about a
discrepancy in `MEASURES`. The texts are templates: ``{best}``, ``{margin}`` and so on are
filled in by `fill`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from relfit.kernels.composite import Collection
from relfit.kernels.standard import Polynomial
from relfit.results.scale import DISCOVERY, KINDS, is_worse, kind_of
from relfit.results.table import number_format
from relfit.results.verdicts import Answer, Verdicts
from relfit.stats.joint import JointEstimate
from relfit.stats.tests import TESTS, as_used
from relfit.stats.tests.base import Test
from relfit.util.text import listed, quoted, visible

# The order in which the answer has the verdicts, by their kinds.
_TOLD = ("best", "worse", "weak", "equal", "open")
# A confidence set names at most this many models.
_MOST_KEPT = 20
# The tests of a fixed pair.
_PAIR_TESTS = dict(
    relmmd="RelMMD",
    relksd="RelKSD",
    relume="RelUME",
    relfssd="RelFSSD",
    relloglik="Vuong's test",
)


@dataclass(frozen=True)
class WordsForMeasure:
    """What is said about one discrepancy.

    Attributes:
        name: as shown in headers and tables.
        kind: estimated from the models' "samples", "densities" or "likelihoods", or the
            "values" were given.
        pairs: True if it is a mean over pairs of rows, rather than taken at some locations.
        methods: what a methods section calls it; [key] cites a reference.
        larger: True if larger is better.
        unit: of its values, where it has one.
    """

    name: str
    kind: Literal["samples", "densities", "likelihoods", "values"] = "values"
    pairs: bool = False
    methods: str = ""
    larger: bool = False
    unit: str = ""

    @property
    def better(self) -> str:
        """Which direction is better."""
        return "larger is better" if self.larger else "smaller is better"

    @property
    def direction(self) -> str:
        """What must be said of a score and not of a discrepancy: somebody may have given
        accuracies.
        """
        return self.better if self.kind in ("values", "likelihoods") else ""

    @property
    def measured(self) -> str:
        """The name with its unit and direction, where these must be said."""
        unit = f" in {self.unit}" if self.unit else ""
        return f"{self.name}{unit} ({self.direction})" if self.direction else self.name


_MMD = "the squared maximum mean discrepancy (MMD [gretton2012kernel])"
_UME = "the unnormalised mean embedding statistic (UME [jitkrittum2018informative])"
_KSD = "the squared kernel Stein discrepancy (KSD [liu2016kernelized; chwialkowski2016kernel])"
_FSSD = "the finite set Stein discrepancy (FSSD [jitkrittum2017linear])"
_LOGLIK = (
    "the mean negative log-likelihood of the observations, which is the Kullback–Leibler "
    "divergence of the data from "
    "the model up to a constant that all models share [vuong1989likelihood]"
)
MEASURES = {
    "mmd": WordsForMeasure("MMD²", "samples", pairs=True, methods=_MMD),
    "ume": WordsForMeasure("UME²", "samples", methods=_UME),
    "ksd": WordsForMeasure("KSD²", "densities", pairs=True, methods=_KSD),
    "fssd": WordsForMeasure("FSSD²", "densities", methods=_FSSD),
    "loglik": WordsForMeasure(
        "mean −log p", "likelihoods", methods=_LOGLIK, unit="nats per row"
    ),
    "score": WordsForMeasure("score"),
    "loss": WordsForMeasure("mean loss"),
    "elpd": WordsForMeasure("elpd"),
}

# KID is the unbiased MMD² of its kernel. The published CMMD is multiplied by 1000, which relfit
# does not do.
PRESET_NAMES = {"kid": "KID", "cmmd": "CMMD/1000"}


@dataclass(frozen=True)
class ErrorRate:
    """The error rate that a correction controls; `error` and `frequency` are templates that
    say what that means, in probabilities and in numbers of cases.
    """

    name: str
    error: str
    frequency: str
    it: str = "it was"


FALSE_DISCOVERY = ErrorRate(
    "false discovery rate",
    "False discovery rate: on average at most {alpha} of the models declared worse are in fact "
    "as good as {opponent}{condition}.",
    "over many such comparisons, at most about {percent} of every 100 verdicts “worse (FDR)” "
    "are wrong",
    it="they were",
)
FAMILY_WISE = ErrorRate(
    "familywise error rate",
    "Familywise error rate: the probability that any model as good as {opponent} is declared "
    "worse is at most {alpha}.",
    "at most {percent} of 100 such comparisons contain even one wrong “significantly worse”",
)
FALSE_POSITIVE = ErrorRate(
    "",
    "{error}",
    "a model that is in fact as good as the best is called worse in at most {percent} of 100 "
    "such comparisons",
)
_AS_GOOD = (
    " “As good” here means worse by no more than the margin of {delta}. The probability of "
    "calling a model equivalent when it is not is at most {alpha} as well, {equivalence}."
)


@dataclass(frozen=True)
class Correction:
    """What is said about a correction for many models: its name, the procedure with [key] of
    a reference, the error rate, and under which condition that holds.
    """

    name: str
    procedure: str
    rate: ErrorRate
    condition: str = ""


CORRECTIONS = {
    "by": Correction(
        "Benjamini–Yekutieli adjustment",
        "the Benjamini–Yekutieli procedure [benjamini2001control]",
        FALSE_DISCOVERY,
    ),
    "bh": Correction(
        "Benjamini–Hochberg adjustment",
        "the Benjamini–Hochberg procedure [benjamini1995controlling]",
        FALSE_DISCOVERY,
        ", provided that the tests are positively dependent",
    ),
    "holm": Correction("Holm adjustment", "Holm's procedure [holm1979simple]", FAMILY_WISE),
    "bonferroni": Correction("Bonferroni adjustment", "Bonferroni's adjustment", FAMILY_WISE),
    "stepdown": Correction(
        "step-down",
        "a step-down procedure on the joint distribution of all statistics [romano2005exact]",
        FAMILY_WISE,
    ),
}
CORRECTION_NAMES = {key: correction.name for key, correction in CORRECTIONS.items()}
NO_CORRECTION = Correction("", "", FALSE_POSITIVE)
DEPENDENCE_NAMES = {
    "independent": "the samples are independent of each other",
    "shared": "the models share their random numbers or prompts",
    "paired": "the models' rows are paired with the reference rows",
    "chain": "the samples are Markov chains",
}


def measure_named(name: str) -> WordsForMeasure:
    """What is said about the discrepancy of this name; one that the table lacks is a score
    under its own name.
    """
    return MEASURES.get(name, WordsForMeasure(name))


def measure_of(result: Answer | JointEstimate) -> WordsForMeasure:
    """What is said about the result's discrepancy."""
    measure = measure_named(result.measure)
    if (
        not isinstance(result, JointEstimate)
        and result.preset in PRESET_NAMES
        and result.measure == "mmd"
    ):
        measure = replace(measure, name=PRESET_NAMES[result.preset])
    if not isinstance(result, Verdicts | JointEstimate) or not result.higher_is_better:
        return measure
    return replace(
        measure, larger=True, name="mean score" if result.measure == "loss" else measure.name
    )


def name_of_test(test: str) -> str:
    """The test as shown."""
    return TESTS[test].words.name if test in TESTS else _PAIR_TESTS.get(test, "pair test")


def used_test(comparison: Verdicts) -> Test:
    """The test of a comparison, with its options."""
    return as_used(comparison.test, comparison.test_scale, comparison.select_fraction)


def fill(template: str, comparison: Verdicts, **more: str) -> str:
    """A template of a test's `words` with what this result says."""
    measure = measure_of(comparison)
    remarks = [measure.direction] if measure.direction else []
    if "tie" in comparison.status[comparison.best_index]:
        remarks.append("a tie")
    fraction = comparison.select_fraction
    facts = {
        "best": quoted(comparison.best),
        "measure": measure.name,
        "smallest": "largest" if measure.larger else "smallest",
        "remarks": f" ({'; '.join(remarks)})" if remarks else "",
        "fraction": "part" if fraction is None else f"{fraction:.0%}",
        "seed": str(comparison.seed),
        "kernels": " under every kernel" if isinstance(comparison.kernel, Collection) else "",
    }
    return template.format(**{**comparison.facts(), **facts, **more})


def header(result: Answer) -> str:
    """The settings in one line: test, discrepancy, kernel, sizes, level, and what is not the
    default.
    """
    parts = [
        name_of_test(result.test),
        measure_of(result).measured,
        kernel_words(result),
        size_words(result),
        column_words(result),
        None if result.test_scale is None else f"{result.test_scale} scale",
        result.design if isinstance(result, Verdicts) else None,
        None if result.estimator in (None, "complete") else f"{result.estimator} estimator",
        None if result.dependence in (None, "independent") else f"{result.dependence} samples",
        f"margin {result.margin:g}" if result.margin else None,
        None if result.backend == "numpy" else result.backend,
        f"α = {result.alpha:g}",
        CORRECTION_NAMES.get(result.correction) if isinstance(result, Verdicts) else None,
    ]
    return " · ".join(part for part in parts if part)


def reference_words(comparison: Verdicts) -> tuple[str, str] | None:
    """What the models were compared on, and how much of it there is: ("Reference",
    "human.npy, 1,000 rows").
    """
    scored = measure_of(comparison).kind == "values"
    rows = (comparison.sizes or (0,))[0]
    name = None if comparison.reference is None else visible(comparison.reference)
    if not rows:
        return ("Reference", name or "a target density") if comparison.sizes or name else None
    size = (
        f"{rows:,} {'items' if scored else 'rows'} {TESTS[comparison.test].words.rows}".rstrip()
    )
    size += f" in {comparison.groups[0]:,} groups" if comparison.groups else ""
    return "Items" if scored else "Reference", f"{name}, {size}" if name else size


def kernel_words(result: Answer) -> str | None:
    """The kernel, and whether its bandwidth is the median distance or it was selected on
    held-out rows.
    """
    if result.kernel is None:
        return None
    rule = result.bandwidth_rule
    return result.kernel.describe() + (f" ({rule})" if rule in ("median", "selected") else "")


def size_words(result: Answer | JointEstimate) -> str | None:
    """The numbers of rows; of a test that splits them those that it tests with."""
    if not result.sizes:
        return None
    reference, *models = result.sizes
    drawn = range_words(models or [reference])
    words = f"n = {reference:,}"
    if not reference:
        words = f"n = {drawn} against a target density"
    elif drawn != f"{reference:,}":
        words += f" reference rows, {drawn} model rows"
    test = TESTS.get("" if isinstance(result, JointEstimate) else result.test)
    rows = "" if test is None else test.words.rows
    return words + group_words(result) + (f" {rows}" if rows else "")


def column_words(result: Answer) -> str | None:
    """How many columns were scaled or, where that matters, left as they are, and how many
    are categories.
    """
    if result.encoding is None:
        return f"{result.unscaled} columns not standardised" if result.unscaled else None
    kinds = [column.kind for column in result.encoding.columns]
    categories = kinds.count("category")
    numbers = len(kinds) - categories
    source = "reference" if result.sizes and result.sizes[0] else "pooled draws"
    how = "standardised" if result.encoding.root is None else f"whitened by the {source}"
    parts = []
    if result.encoding.scale != "none":
        parts += [f"{numbers} column{'' if numbers == 1 else 's'} {how}"] if numbers else []
    elif numbers > 1 and measure_of(result).kind == "samples":
        parts.append(f"{numbers} columns not standardised")
    if categories:
        parts.append(f"{categories} categorical")
    return ", ".join(parts) or None


def group_words(result: Answer | JointEstimate) -> str:
    """In how many groups the rows are, if they are: " in 80 groups"."""
    return f" in {range_words(result.groups)} groups" if result.groups else ""


def range_words(counts: Sequence[int]) -> str:
    """The counts as one number, or from the smallest to the largest: "50 to 1,200"."""
    low = min(counts)
    high = max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def summary(comparison: Verdicts, labels: Mapping[str, str] | None = None) -> str:
    """The answer: the best model, then the models of every other verdict; `labels` are shorter
    names to use in it.

    >>> from relfit import JointEstimate, decide
    >>> print(
    ...     summary(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]])))
    ... )
    a has the smallest score (smaller is better). Significantly worse: b.
    """
    if comparison.blind:
        return (
            "This kernel has the same value on all pairs of rows, so it shows no difference "
            "between the models. Choose another kernel."
        )

    def quote(name: str) -> str:
        return quoted(name if labels is None else labels[name])

    lead = TESTS[comparison.test].words.lead
    sentences = [fill(lead, comparison, best=quote(comparison.best))]
    groups = grouped(comparison)
    for verdict in sorted(groups, key=lambda words: _TOLD.index(kind_of(words))):
        names = [name for name in groups[verdict] if name != comparison.best]
        if names:
            also = "also " if kind_of(verdict) == "best" else ""
            words = f"{also}{verdict}"
            sentences.append(f"{words[0].upper()}{words[1:]}: {listed(names, quote=quote)}")
    return f"{'. '.join(sentences)}."


def set_words(comparison: Verdicts) -> str | None:
    """The confidence set for the best model; None for a test that has none, and with a false
    discovery rate.

    >>> import numpy as np
    >>> from relfit import JointEstimate, decide
    >>> set_words(decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3))))
    '95% confidence set for the best model: a and b.'
    """
    kept = comparison.confidence_set
    if not kept or comparison.wording.worse is DISCOVERY:
        return None
    order = [row["name"] for row in comparison.rows() if row["name"] in kept]
    level = comparison.facts()["level"]
    return f"{level} confidence set for the best model: {listed(order, most=_MOST_KEPT)}."


def best_words(comparison: Verdicts) -> str | None:
    """The interval for the best model's value; None where that does not vary.

    >>> import numpy as np
    >>> from relfit import JointEstimate, decide
    >>> best_words(decide(JointEstimate(("a", "b", "c"), [0.0, 0.1, 2.0], 0.01 * np.eye(3))))
    '95% interval for the score of a, adjusted for its selection: -0.20 to 0.23.'
    """
    error = float(comparison.standard_error[comparison.best_index])
    interval = comparison.best_interval_at(comparison.alpha)
    if not error > 0.0 or not all(map(math.isfinite, interval)):
        return None
    number = number_format([error], interval)
    low, high = map(number, interval)
    of = f"{measure_of(comparison).name} of {quoted(comparison.best)}"
    adjusted = "" if TESTS[comparison.test].split else ", adjusted for its selection"
    level = comparison.facts()["level"]
    return f"{level} interval for the {of}{adjusted}: {low} to {high}."


def below(comparison: Verdicts) -> list[str]:
    """The sentences below the table: the answer, the confidence set for the best model, and the
    interval of the best model's value.
    """
    if comparison.blind:
        return [summary(comparison)]
    sentences = (summary(comparison), set_words(comparison), best_words(comparison))
    return [sentence for sentence in sentences if sentence]


def bandwidth_remark(row: dict[str, Any]) -> list[str]:
    """What is said beside a verdict that changes at half or twice the bandwidth; nothing
    beside others.
    """
    return ["depends on the bandwidth"] if row["robust_to_bandwidth"] is False else []


def grouped(comparison: Verdicts) -> dict[str, list[str]]:
    """The models of every verdict that occurs, in the table's order, by its words."""
    groups: dict[str, list[str]] = {}
    for row in comparison.rows():
        groups.setdefault(row["verdict"], []).append(row["name"])
    places = list(KINDS)
    ordered = sorted(groups, key=lambda verdict: places.index(kind_of(verdict)))
    return {verdict: groups[verdict] for verdict in ordered}


def counts(comparison: Verdicts) -> list[tuple[str, int, str]]:
    """How many models have each verdict that occurs: (kind, number, verdict)."""
    return [
        (kind_of(verdict), len(names), verdict)
        for verdict, names in grouped(comparison).items()
    ]


def headline(comparison: Verdicts) -> str:
    """The answer in numbers, which stays short with many models.

    >>> from relfit import JointEstimate, decide
    >>> headline(
    ...     decide(
    ...         JointEstimate(
    ...             ("a", "b", "c"), [0.0, 0.1, 2.0], [[0.01, 0, 0], [0, 0.01, 0], [0, 0, 0.01]]
    ...         )
    ...     )
    ... )
    '1 best observed, 1 inconclusive, 1 significantly worse'
    """
    return ", ".join(f"{count} {verdict}" for _, count, verdict in counts(comparison))


def verdict_names(comparison: Verdicts) -> dict[str, str]:
    """The words for each kind of verdict that this result can have, from the best kind to the
    worst.
    """
    names = {verdict.kind: verdict.shown for verdict in comparison.wording}
    if not comparison.margin:
        del names["equal"]
    return {kind: names[kind].format(**comparison.facts()) for kind in KINDS if kind in names}


def scale_words(comparison: Verdicts) -> list[tuple[str, str]]:
    """What each verdict that occurs means, (kind, sentence), for the legend of the page."""
    test = TESTS[comparison.test]
    selected = not test.tests_best and test.split is None
    facts = {
        "opponent": fill(test.words.opponent, comparison, it="it was"),
        "given": " (given which model was selected)" if selected else "",
        "error": fill(test.words.error, comparison),
    }
    return [
        (verdict.kind, fill(verdict.legend, comparison, **facts))
        for verdict in comparison.wording
        if verdict.kind in comparison.kinds
    ]


def disagreement(comparison: Verdicts) -> list[str]:
    """For a comparison by several discrepancies, a sentence for each of the others: where it
    disagrees, and why.
    """
    return [_disagreement(comparison, other) for other in comparison.also]


# Why densities and likelihoods disagree: a model that only one of the two finds worse.
_CAUSES = {
    "densities": "a model can have nearly the right heights and the wrong slopes, as rough "
    "densities do",
    "likelihoods": "a model can have nearly the right slopes and the wrong heights, as with "
    "wrong weights of separated modes, and wrong slopes can take more rows to find",
}


def _disagreement(first: Verdicts, second: Verdicts) -> str:
    measures = [measure_of(first), measure_of(second)]
    both = " and ".join(measure.name for measure in measures)
    one, other = (
        {row["name"] for row in each.rows() if is_worse(row["verdict"])}
        for each in (first, second)
    )
    only = [
        [name for name in first.names if name in names] for names in (one - other, other - one)
    ]
    if one == other:
        best = "" if first.best == second.best else ", but not on the best observed one"
        return f"{both} agree on which models are worse{best}."
    found = "; ".join(
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} worse by {measure.name} only"
        for names, measure in zip(only, measures, strict=True)
        if names
    )
    by_kind = {measure.kind: measure.name for measure in measures}
    if set(by_kind) != set(_CAUSES):
        return f"{both} disagree: {found}. They measure different things."
    found_by = {measure.kind for names, measure in zip(only, measures, strict=True) if names}
    causes = "; ".join(cause for kind, cause in _CAUSES.items() if kind in found_by)
    return (
        f"{both} disagree: {found}. {by_kind['densities']} compares the slopes of the log "
        f"densities where the data are, {by_kind['likelihoods']} their heights: {causes}."
    )


def yardstick(result: Answer) -> str | None:
    """How far two halves of the data are apart, to choose a margin by; None where it is not
    known.

    >>> from relfit import JointEstimate, decide
    >>> covariance = [[0.01, 0.0], [0.0, 0.01]]
    >>> joint = JointEstimate(("a", "b"), [0.1, 0.9], covariance, (100,), yardstick=0.04)
    >>> print(yardstick(decide(joint, margin=0.02)))
    Two random halves of the data (50 rows each) differ by about 0.04 in score before bias \
correction. The margin is 0.5 times this distance.
    """
    if not result.yardstick:
        return None
    counts, what = (result.groups, "groups") if result.groups else (result.sizes, "rows")
    part = TESTS[result.test].words.rows if result.test in TESTS else ""
    halves = (
        f" ({counts[0] // 2:,} {what} each{f' of those {part}' if part else ''})"
        if counts
        else ""
    )
    times = (
        f" The margin is {result.margin / result.yardstick:.2g} times this distance."
        if result.margin
        else ""
    )
    size = f"{result.yardstick:.2g}".replace("e-0", "e-")
    return (
        f"Two random halves of the data{halves} differ by about {size} in "
        f"{measure_of(result).name} before bias correction.{times}"
    )


def about(rows: float) -> str:
    """A number of rows to two digits.

    >>> about(5437.0), about(87.2), about(1_234_567.0)
    ('5,400', '87', '1,200,000')
    """
    digits = max(0, math.floor(math.log10(rows)) - 1)
    return f"{round(rows, -digits):,.0f}"


def row_word(measure: str) -> str:
    """What a sample size counts: rows of every sample, items, or rows."""
    if measure in MEASURES and MEASURES[measure].kind == "samples":
        return "rows per model"
    return "items" if measure in ("loss", "elpd") else "rows"


def question(comparison: Verdicts) -> str:
    """What was tested."""
    measure = measure_of(comparison)
    estimated = (
        f"Each model's distance from the data was estimated by its {measure.name}; "
        f"smaller is better."
    )
    if measure.kind == "values":
        estimated = f"Each model has a {measure.name}; {measure.better}."
    if measure.kind == "likelihoods":
        estimated = (
            f"Each model has a {measure.name} over the rows of the data, in {measure.unit}; "
            f"{measure.better}. "
            "Differences of it are differences of the Kullback–Leibler divergence of the data "
            "from the models."
        )
    return f"{estimated} {fill(TESTS[comparison.test].words.question, comparison)}"


def error_words(comparison: Verdicts) -> str:
    """Which error is held at the level α."""
    test = TESTS[comparison.test].words
    correction = CORRECTIONS.get(comparison.correction, NO_CORRECTION)
    error = correction.rate.error + (_AS_GOOD if comparison.margin else "")
    facts = {"it": correction.rate.it, "condition": correction.condition}
    for name in ("opponent", "error", "equivalence"):
        facts[name] = fill(getattr(test, name), comparison, **facts)
    return fill(error, comparison, **facts)


def in_other_words(comparison: Verdicts) -> list[str]:
    """What the error rate and the p-values mean, as frequencies, for readers who have never
    met a p-value.
    """
    rate = CORRECTIONS.get(comparison.correction, NO_CORRECTION).rate
    error = fill(rate.frequency, comparison)
    return [
        f"In other words: {error}. There is no guarantee that every worse model is found.",
        "A p-value is the probability that data speak against a model at least as strongly as "
        "these do, if in fact it "
        f"is no worse{TESTS[comparison.test].words.pvalue}. The smaller it is, the stronger "
        f"the evidence; it is not "
        "the probability that the model is as good.",
    ]


# What decides what counts as a difference, and what may rank the models differently; what a
# discrepancy cannot see.
_DECIDES = {
    "values": ("The {measure}", "another"),
    "likelihoods": ("The {measure}", "another discrepancy"),
}
_BLIND_SPOTS = {
    "densities": "A density with the right shape around each cluster of the data but with the "
    "wrong weights can pass for the right one.",
    "likelihoods": "A likelihood pays most for rows at which a model's density is very small: a "
    "few of them can decide, and a density that is too narrow loses more than one that is too "
    "wide.",
}


def caveats(comparison: Verdicts) -> list[str]:
    """What the answer does not say, with what this discrepancy cannot see."""
    kind = measure_of(comparison).kind
    scored = kind == "values"
    subject, other = _DECIDES.get(kind, ("The kernel", "another one, or another bandwidth,"))
    what = "items" if scored else "rows"
    independent = (
        f"independent groups of {what}" if comparison.groups else f"independent {what}"
    )
    if comparison.lags is not None:
        independent = "items of a series, whose dependence must fade,"
    holds = (
        f"The answer holds for {independent} that no model was fitted to: a model that has "
        f"seen them looks too good."
    )
    if scored and not comparison.sizes:
        holds = "The answer is only as good as the covariance that was given with the scores."
    sentences = [
        "“Inconclusive” does not mean “equally good”: more data can show a difference.",
        "The best of these models need not be good: all of them may be far from the data.",
        f"{fill(subject, comparison)} decides what counts as a difference: {other} may rank the "
        f"models differently.",
        holds,
    ]
    if kind in _BLIND_SPOTS:
        sentences.append(_BLIND_SPOTS[kind])
    if isinstance(comparison.kernel, Polynomial):
        sentences.append(
            "A polynomial kernel compares moments only: models with the same moments count as "
            "equal, however different they are."
        )
    return sentences
