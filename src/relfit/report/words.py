"""A result in plain words: names as shown, the summary sentence, the error that is controlled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relfit.kernels.choice import Collection
from relfit.kernels.standard import Polynomial
from relfit.results.comparison import Comparison
from relfit.results.pair import PairComparison
from relfit.util.text import _MOST_NAMES, listed, quoted

TEST_NAMES = {
    "relpsi": "RelPSI",
    "relmulti": "RelMulti",
    "best-set": "best set",
    "carve": "carving",
    "relmmd": "RelMMD",
    "relksd": "RelKSD",
    "relume": "RelUME",
    "relnystroem": "RelMMD (Nyström)",
    "relfssd": "RelFSSD",
}
MEASURE_NAMES = {
    "mmd": "MMD²",
    "ksd": "KSD²",
    "ume": "UME²",
    "nystroem": "MMD² (Nyström)",
    "fssd": "FSSD²",
    "score": "score",
    "loss": "mean loss",
}
# Values that were given, and not estimated from rows.
GIVEN = ("score", "loss")
CORRECTION_NAMES = {
    "by": "Benjamini–Yekutieli correction",
    "bh": "Benjamini–Hochberg correction",
    "holm": "Holm correction",
    "bonferroni": "Bonferroni correction",
}
DEPENDENCE_NAMES = {
    "independent": "the samples are independent of each other",
    "shared": "the models share their random numbers or prompts",
    "paired": "the models' rows are paired with the reference rows",
    "chain": "the samples are Markov chains",
}


def measure_name(result: Comparison | PairComparison) -> str:
    """What the models are compared by: MMD², KSD², a score or a mean loss."""
    return MEASURE_NAMES.get(result.measure, result.measure)


def header(result: Comparison | PairComparison) -> str:
    """The settings in one line: test, measure, kernel, sizes, level, and what is not the default."""
    measure = _remarked(measure_name(result), _direction(result))
    parts = [TEST_NAMES.get(result.test, result.test), measure, kernel_words(result), size_words(result)]
    if result.estimator not in (None, "complete"):
        parts.append(f"{result.estimator} estimator")
    if result.dependence not in (None, "independent"):
        parts.append(f"{result.dependence} samples")
    if result.margin:
        parts.append(f"margin {result.margin:g}")
    if result.backend not in (None, "numpy"):
        parts.append(result.backend)
    parts.append(f"α = {result.alpha:g}")
    if isinstance(result, Comparison):
        parts.append(CORRECTION_NAMES.get(result.correction))
    return " · ".join(part for part in parts if part)


def kernel_words(result: Comparison | PairComparison) -> str | None:
    """The kernel, and whether its bandwidth is the median distance or it was selected on held-out rows."""
    if result.kernel is None:
        return None
    rule = result.bandwidth_rule
    return result.kernel.describe() + (f" ({rule})" if rule in ("median", "selected") else "")


def size_words(result: Comparison | PairComparison) -> str | None:
    """The numbers of rows; RelMulti's are those of the share it tests with."""
    if not result.sizes:
        return None
    reference, *models = result.sizes
    low, high = min(models, default=reference), max(models, default=reference)
    words = f"n = {reference}"
    if not reference:
        words = f"n = {low if low == high else f'{low} to {high}'} against a target density"
    elif low != reference or high != reference:
        words += f" reference rows, {low if low == high else f'{low} to {high}'} model rows"
    return words + group_words(result) + (" for testing" if result.test == "relmulti" else "")


def group_words(result: Comparison | PairComparison) -> str:
    """In how many groups the rows are, if they are: " in 80 groups"."""
    if not result.groups:
        return ""
    low, high = min(result.groups), max(result.groups)
    return f" in {low if low == high else f'{low} to {high}'} groups"


def summary(comparison: Comparison) -> str:
    """One sentence that says what `rows()` says.

    >>> from relfit import JointEstimate, decide
    >>> print(summary(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))))
    a has the smallest score (smaller is better); b is significantly worse.
    """
    if comparison.blind:
        return "The models cannot be told apart with this kernel: it takes one value on all pairs of rows."
    rows = comparison.rows()
    worse, same, open_ = grouped(rows)
    within = [row["name"] for row in rows if row["name"] in open_ and row["equivalent"]]
    open_ = [name for name in open_ if name not in within]
    than = f" by more than {comparison.margin:g}" if comparison.margin else ""
    clauses = []
    if same:
        clauses.append(f"{listed(same)} {'is' if len(same) == 1 else 'are'} the same as it")
    if worse:
        clauses.append(f"{listed(worse)} {'is' if len(worse) == 1 else 'are'} significantly worse{than}")
    if within:
        whom = "the best" if comparison.test == "best-set" else "it"
        many = "is" if len(within) == 1 else "are"
        clauses.append(f"{listed(within)} {many} equivalent to {whom} within {comparison.margin:g}")
    if open_ and comparison.margin:
        clauses.append(f"{listed(open_)} could be either: there are too few data to tell")
    elif open_:
        clauses.append(
            f"there is no evidence that {listed(open_, 'or')} {'are' if len(open_) > _MOST_NAMES else 'is'} worse"
        )
    joint = ", but " if open_ and len(clauses) == 1 else "; "
    return f"{_lead(comparison, rows[0])}{joint}{'; '.join(clauses)}."


def grouped(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[str], list[str]]:
    """The names of the others, in the rows' order: worse, the same as the best, undecided."""
    others = [row for row in rows if not row["best"]]
    worse = [row["name"] for row in others if row["worse"]]
    same = [row["name"] for row in others if row["verdict"] == "the same as the best"]
    return worse, same, [row["name"] for row in others if row["name"] not in {*worse, *same}]


def pair_summary(pair: PairComparison) -> str:
    """One sentence: is the first model worse than the second?"""
    a, b = (quoted(name) for name in pair.names)
    if "indistinguishable" in pair.status and pair.kernel is not None and pair.discrepancy == (0.0, 0.0):
        return f"{a} and {b} cannot be told apart with this kernel: it takes one value on all pairs of rows."
    if "indistinguishable" in pair.status:
        return f"{a} and {b} cannot be told apart: as far as these data go they are the same model."
    than = f" by more than {pair.margin:g}" if pair.margin else ""
    if pair.worse:
        return f"{a} is significantly worse than {b}{than}."
    if pair.equivalent:
        return f"{a} is equivalent to {b} within {pair.margin:g}, or better."
    if pair.margin:
        return f"It is open whether {a} is worse than {b}{than}: there are too few data to tell."
    measure = measure_name(pair)
    if pair.difference > 0.0:
        return f"There is no evidence that {a} is worse than {b}, though its {measure} is larger in this sample."
    same = "the two are equal" if pair.difference == 0.0 else f"its {measure} is the smaller one"
    return f"There is no evidence that {a} is worse than {b}: {same}."


def question(comparison: Comparison) -> str:
    """What was tested, in plain words."""
    what = f"Each model's distance from the data was estimated by its {measure_name(comparison)}, smaller is better."
    if comparison.measure in GIVEN:
        what = f"Each model has a {measure_name(comparison)}, smaller is better."
    if comparison.test == "relmulti":
        share = comparison.select_fraction or 0.0
        return (
            f"{what} A random {share:.0%} of the rows chose the best model; the other rows, which had no part in that "
            "choice, tested for each other model whether it is no worse than the chosen one."
        )
    if comparison.test == "best-set":
        return (
            f"{what} For each model it was tested whether it is as good as every other one{under_every(comparison)}, "
            "all at once; the models that pass form a confidence set for the best."
        )
    noise = "After noise as large as the estimates' own was added, the" if comparison.test == "carve" else "The"
    return (
        f"{what} {noise} model with the smallest value was chosen, and for each other model it was tested whether it "
        "is no worse than the chosen one. Choosing and testing use the same rows, and the p-values allow for that."
    )


def error_words(comparison: Comparison) -> str:
    """Which error is held at the level α, in plain words."""
    if not comparison.margin:
        return _error_words(comparison)
    apart = f"“As good” here means worse by no more than the margin of {comparison.margin:g}."
    held = "all of them together" if comparison.test == "best-set" else "held as that of “worse” is"
    return f"{_error_words(comparison)} {apart} The error of “equivalent” is at most {comparison.alpha:g} too, {held}."


def _error_words(comparison: Comparison) -> str:
    share = f"{100 * comparison.alpha:g}%"
    if comparison.correction in ("by", "bh"):
        when = ", provided that the tests are positively dependent" * (comparison.correction == "bh")
        return (
            f"False discovery rate: of the models declared worse, on average at most {share} are in truth as good as "
            f"{_opponent(comparison, 'they were')}{when}."
        )
    if comparison.correction in ("holm", "bonferroni"):
        return (
            f"Family-wise error rate: the chance that any model as good as {_opponent(comparison, 'it was')} is "
            f"declared worse is at most {share}."
        )
    if comparison.test == "best-set":
        return (
            f"Each model that is truly best{under_every(comparison)} is declared worse with probability at most "
            f"{share}: it is in the confidence set with probability at least {100 * (1.0 - comparison.alpha):g}%."
        )
    return (
        f"False positive rate: at most {share} of the models that are as good as the best are declared worse, "
        "on average."
    )


def _opponent(comparison: Comparison, who: str) -> str:
    """What a model is held against: in the best set every other one, otherwise the selected one."""
    if comparison.test == "best-set":
        return f"the best{under_every(comparison)}"
    return f"the model {who} tested against"


def under_every(comparison: Comparison) -> str:
    """The words that several kernels in one test add to "best"."""
    return " under every kernel" if isinstance(comparison.kernel, Collection) else ""


def caveats(comparison: Comparison) -> list[str]:
    """What the answer does not say."""
    says = [
        "“No evidence that it is worse” does not mean “as good”: more data may yet tell the models apart.",
        "The best of these models need not be good: all of them may be far from the data.",
    ]
    if comparison.measure in GIVEN:
        return [
            *says,
            f"The {comparison.measure} decides what counts as a difference: another may order the models otherwise.",
            _held_for(comparison, "items") if comparison.sizes else _GIVEN_COVARIANCE,
        ]
    return [
        *says,
        "The kernel decides what counts as a difference: another one, or another bandwidth, may order them otherwise.",
        _held_for(comparison, "rows"),
    ]


_GIVEN_COVARIANCE = "It holds as far as the covariance that was given with the scores does."


def _held_for(comparison: Comparison, what: str) -> str:
    independent = f"independent groups of {what}" if comparison.groups else f"independent {what}"
    return f"It holds for {independent} that no model was fitted to: a model that has seen them looks too good."


def _lead(comparison: Comparison, best: dict[str, Any]) -> str:
    name = quoted(best["name"])
    if comparison.test == "relmulti":
        share = comparison.select_fraction
        return f"{name} was selected as best" + (f" on {share:.0%} of the rows" if share else "")
    if comparison.test == "carve":
        return f"{name} was selected as best by a randomised choice (seed {comparison.seed})"
    tied = ["a tie"] if "tie" in best["status"] else []
    return _remarked(f"{name} has the smallest {measure_name(comparison)}", [*_direction(comparison), *tied])


def _direction(result: Comparison | PairComparison) -> list[str]:
    """What must be said of a score and not of a discrepancy: somebody may have given accuracies."""
    return ["smaller is better"] if result.measure in GIVEN else []


def _remarked(said: str, remarks: Sequence[str]) -> str:
    return f"{said} ({'; '.join(remarks)})" if remarks else said


# --------------------
# The same once more, for readers who have never met a p-value.


def in_other_words(comparison: Comparison) -> list[str]:
    """What the error rate and the p-values mean, as frequencies."""
    return [_error(comparison), _pvalue(comparison)]


def _error(comparison: Comparison) -> str:
    share = f"{100 * comparison.alpha:g}"
    if comparison.correction in ("by", "bh"):
        return (
            f"In other words: over many such comparisons, at most about {share} of every 100 verdicts “worse” are "
            "mistaken. Nothing is promised about models that are worse and were not found."
        )
    if comparison.correction in ("holm", "bonferroni"):
        return (
            f"In other words: at most {share} of 100 such comparisons contain even one mistaken “worse”. Nothing is "
            "promised about models that are worse and were not found."
        )
    return (
        f"In other words: a model that is in truth as good as the best is called worse in at most {share} of 100 such "
        "comparisons. Nothing is promised about models that are worse and were not found."
    )


def _pvalue(comparison: Comparison) -> str:
    given = (
        ", allowing for the fact that the same rows chose the best" if comparison.test in ("relpsi", "carve") else ""
    )
    return (
        "A p-value is the chance of data that speak against a model at least as strongly as these if it were no worse"
        f"{given}. The smaller, the stronger the evidence; it is not the probability that the model is as good."
    )


def not_said(comparison: Comparison) -> list[str]:
    """What the answer does not say, with what this discrepancy cannot see."""
    more = []
    if comparison.measure in ("ksd", "fssd"):
        more.append(
            "A density with the right shape around each group of the data but wrong weights may pass for right."
        )
    if isinstance(comparison.kernel, Polynomial):
        more.append("A polynomial kernel sees moments only: models that agree in those are level, however different.")
    return [*caveats(comparison), *more]
