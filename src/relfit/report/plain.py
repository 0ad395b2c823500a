"""The same once more, for readers who have never met a p-value."""

from __future__ import annotations

from relfit.kernels import Polynomial
from relfit.report import words
from relfit.result import Comparison


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
    return [*words.caveats(comparison), *more]
