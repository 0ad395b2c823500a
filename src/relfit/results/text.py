"""What a comparison, and an estimate without a test, show: a line of settings, a table,
sentences and notes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from relfit.results import words
from relfit.results.scale import kind_of
from relfit.results.serial import Record
from relfit.results.table import (
    LONGEST_NAME,
    NOTHING,
    Display,
    Table,
    as_text,
    common_power,
    interval_words,
    scaled_format,
    short_names,
)
from relfit.results.verdicts import Answer, Verdicts
from relfit.stats.joint import JointEstimate
from relfit.util.text import visible

if TYPE_CHECKING:
    from rich.text import Text

SMALLEST_PVALUE = 1e-12
_HIDDEN_STATUS = {"near-degenerate"}
_STATUS = {
    "deterministic": "differs by a constant",
    "indistinguishable": "the same on these data",
}


def display(result: Record | JointEstimate, longest_name: int = LONGEST_NAME) -> Display:
    """What a result shows; names longer than `longest_name` are cut."""
    if isinstance(result, JointEstimate):
        return joint_display(result, longest_name)
    return result._display(longest_name)


def styled(result: Record | JointEstimate, width: int | None = None) -> Text:
    """The whole result as text, with the verdicts coloured, for a terminal of this width;
    `plain` is what `str` and `repr` give.
    """
    return as_text(display(result), width)


def shown(result: Record | JointEstimate) -> str:
    """The whole result as plain text."""
    return styled(result).plain


def comparison_display(comparison: Verdicts, longest_name: int = LONGEST_NAME) -> Display:
    """The verdicts on all models, and those by other discrepancies, each with a sentence on
    where they disagree.
    """
    first = [
        ("note", visible(note)) for note in comparison.warnings if note in comparison.leading
    ]
    below = [("", sentence) for sentence in words.below(comparison)]
    lines = (*first, *below, *notes(comparison, comparison.leading))
    also = []
    for other, sentence in zip(comparison.also, words.disagreement(comparison), strict=True):
        shown = comparison_display(other, longest_name)
        also.append(replace(shown, lines=(*shown.lines, ("", ""), ("", sentence))))
    return Display(
        words.header(comparison), table(comparison, longest_name), lines, tuple(also)
    )


def joint_display(joint: JointEstimate, longest_name: int = LONGEST_NAME) -> Display:
    """The estimates with their standard errors, and how far they depend on each other.

    >>> print(
    ...     as_text(
    ...         joint_display(
    ...             JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.005], [0.005, 0.01]], (50,))
    ...         )
    ...     )
    ... )
    estimates without a test · score (smaller is better) · n = 50
    model  score  s.e.
    a      0.10   0.10
    b      0.90   0.10
    The correlation of the two estimates is 0.50. relfit.decide tests which models are worse.
    """
    errors = joint.standard_error
    measure = words.measure_of(joint)
    # Adding 0 turns −0 into 0.
    values = 0.0 - joint.values if joint.higher_is_better else joint.values
    factor, number = scaled_format(errors.tolist(), values.tolist())
    names = short_names(joint.names, longest_name)
    rows = list(zip(names, map(number, values), map(number, errors), strict=True))
    header = (
        "estimates without a test",
        measure.measured,
        words.size_words(joint),
        joint.design,
    )
    titles = ("model", f"{measure.name}{factor}", f"s.e.{factor}")
    cells = Table.plain(titles, rows)
    lines = [("", f"{_correlations(joint)}relfit.decide tests which models are worse.")]
    lines += [("note", visible(note)) for note in joint.notes]
    return Display(" · ".join(part for part in header if part), cells, tuple(lines))


def _correlations(joint: JointEstimate) -> str:
    """A sentence on the correlations between the estimates that vary, if there are two of
    them.
    """
    varies = np.flatnonzero(joint.standard_error > 0.0)
    if len(varies) < 2:
        return ""
    scale = joint.standard_error[varies]
    found = (joint.covariance[np.ix_(varies, varies)] / np.outer(scale, scale))[
        np.triu_indices(len(varies), 1)
    ]
    # Adding 0 turns −0 into 0.
    low, high = (round(float(end), 2) + 0.0 for end in (found.min(), found.max()))
    if len(found) == 1:
        return f"The correlation of the two estimates is {low:.2f}. "
    return f"The correlations of the estimates are from {low:.2f} to {high:.2f}. "


def table(comparison: Verdicts, longest_name: int = LONGEST_NAME) -> Table:
    """The cells of the table, made from `rows()`."""
    rows = comparison.rows()
    values = [
        v for row in rows for v in (row["discrepancy"], row["difference"]) if math.isfinite(v)
    ]
    # A difference that decided something must not be shown as 0.
    decisive = [
        row["difference"] for row in rows if row["worse"] and math.isfinite(row["difference"])
    ]
    numbers = [row["standard_error"] for row in rows], values, decisive
    factor, number = scaled_format(*numbers)
    power = common_power(*numbers)
    best = comparison.wording.best.name.removesuffix(" observed")
    gap = f"below {best}" if comparison.higher_is_better else f"Δ to {best}"
    others = [{row["name"]: row for row in other.rows()} for other in comparison.also]
    columns = {
        "model": short_names([row["name"] for row in rows], longest_name),
        f"{words.measure_of(comparison).name}{factor}": [
            number(row["discrepancy"]) for row in rows
        ],
        f"s.e.{factor}": [
            number(row["standard_error"]) if math.isfinite(row["discrepancy"]) else NOTHING
            for row in rows
        ],
        f"{gap}{factor}": [
            NOTHING if row["best"] else number(row["difference"]) for row in rows
        ],
        f"{comparison.facts()['level']} bounds{factor}": [
            interval_words(row["lower"], row["upper"], comparison.margin, number, power)
            for row in rows
        ],
    }
    for title, key in (("p-value", "pvalue"), ("adjusted p", "adjusted_pvalue")):
        if key == "adjusted_pvalue" and comparison.correction == "none":
            continue
        columns[title] = [
            show_pvalue(row[key], comparison.alpha) if is_tested(row) else NOTHING
            for row in rows
        ]
    first = len(columns)
    # The order in which a narrow terminal leaves them out: the p-value, the standard error, the
    # adjusted p-value, the difference.
    spare = tuple(dict.fromkeys((5, 2, first - 1, 3)))
    columns["verdict"] = [_verdict(row, row["status"]) for row in rows]
    for other, by_name in zip(comparison.also, others, strict=True):
        columns[f"by {words.measure_of(other).name}"] = [
            _verdict(by_name[row["name"]]) for row in rows
        ]
    titles = list(columns)
    if others:
        titles[first] = f"by {words.measure_of(comparison).name}"
    marked = {
        (i, first + 1 + k): kind_of(by_name[row["name"]]["verdict"])
        for i, row in enumerate(rows)
        for k, by_name in enumerate(others)
    }
    cells = tuple(zip(*columns.values(), strict=True))
    kinds = tuple(kind_of(row["verdict"]) for row in rows)
    return Table(tuple(titles), cells, kinds, 1 + len(others), marked=marked, spare=spare)


def _verdict(row: dict[str, Any], status: Sequence[str] = ()) -> str:
    """The verdict with what is remarked on it in brackets."""
    remarks = [
        visible(_STATUS.get(word, word)) for word in status if word not in _HIDDEN_STATUS
    ]
    remarks += words.bandwidth_remark(row)
    return f"{row['verdict']} ({', '.join(remarks)})" if remarks else str(row["verdict"])


def is_tested(row: dict[str, Any]) -> bool:
    """True for a row of `rows()` with a p-value to show: those of all models but the best."""
    return not row["best"]


def show_pvalue(p: float, alpha: float) -> str:
    """Two significant digits, or as many as it takes not to round across the level.

    >>> show_pvalue(0.312, 0.05), show_pvalue(0.0502, 0.05), show_pvalue(3e-20, 0.05)
    ('0.31', '0.0502', '<1e-12')
    """
    if p < SMALLEST_PVALUE and p <= alpha:
        return "<1e-12"
    for digits in range(2, 18):
        shown = f"{p:#.{digits}g}"
        if np.sign(float(shown) - alpha) == np.sign(p - alpha):
            break
    return shown.replace("e-0", "e-")


def notes(result: Answer, leading: Collection[str] = ()) -> list[tuple[str, str]]:
    """The notes below the sentences, without those that came before the table's sentences."""
    return [("note", visible(note)) for note in result.warnings if note not in leading]
