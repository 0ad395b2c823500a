"""What every result shows: a line of settings, a table, sentences and notes; and all of that as text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from relfit.estimators.kernel import BARELY
from relfit.report import words
from relfit.results.comparison import Comparison
from relfit.results.pair import PairComparison, PairMatrix, Ranks
from relfit.results.plan import Plan
from relfit.stats.joint import JointEstimate
from relfit.stats.tests import TESTS
from relfit.util.text import visible

GAP = "  "
LONGEST_NAME = 32
SMALLEST_PVALUE = 1e-12
NOTHING = "—"
# Beyond this many decimals, or digits before the point, numbers are written with an exponent.
_MOST_DIGITS = 6
# Beyond this many decimals, numbers below a limit share a factor that stands in the titles.
_MOST_DECIMALS = 4
_SMALL = 0.1
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_HIDDEN_STATUS = {"indistinguishable", "near-degenerate"}
_STATUS = {"deterministic": "differs by a constant"}
_STYLES = {"best": "bold green", "same": "green", "equal": "green", "alone": "red", "worse": "bold red"}


@dataclass(frozen=True)
class Table:
    """Finished cells. `kinds` has the kind of each row's grade (`relfit.results.grade`).

    The last columns are verdicts: one for each discrepancy. Those in `words` hold text too, all others numbers.
    `marked` has the kind of other cells that are coloured, by row and column.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kinds: tuple[str, ...]
    verdicts: int = 1
    words: tuple[int, ...] = (0,)
    marked: Mapping[tuple[int, int], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Display:
    """A result as it is shown, in a terminal and in a notebook.

    `lines` stand below the table, each with its kind: "note", "worse" or "" for a plain sentence. `also` holds the
    results of the same models by other discrepancies.
    """

    header: str
    table: Table
    lines: tuple[tuple[str, str], ...]
    also: tuple[Display, ...] = ()


def as_text(display: Display) -> Text:
    """The display with the verdicts coloured; `plain` is the text alone."""
    out = headed_table(display.header, display.table)
    out.right_crop()
    for kind, line in display.lines:
        out.append("\n").append("Note: " if kind == "note" else "", style="yellow").append(line, _STYLES.get(kind, ""))
    for other in display.also:
        out.append("\n\n").append_text(as_text(other))
    return out


def comparison_display(comparison: Comparison, longest_name: int = LONGEST_NAME) -> Display:
    """The verdicts on all models, and those by other discrepancies, each with a sentence on where they disagree."""
    first = [("note", note) for note in map(visible, filter(_comes_first, comparison.warnings))]
    lines = (*first, ("", words.summary(comparison)), *_notes(comparison))
    also = []
    for other, sentence in zip(comparison.also, words.disagreement(comparison), strict=True):
        shown = comparison_display(other, longest_name)
        also.append(replace(shown, lines=(*shown.lines, ("", ""), ("", sentence))))
    return Display(words.header(comparison), table(comparison, longest_name), lines, tuple(also))


def _comes_first(note: str) -> bool:
    """A note that says what the numbers above it are made of: nearly one column alone."""
    return BARELY in note


def pair_display(pair: PairComparison, longest_name: int = LONGEST_NAME) -> Display:
    """The answer to a fixed hypothesis "a is no worse than b"."""
    factor, number = scaled_format([pair.standard_error], [*pair.discrepancy, pair.difference], [pair.difference])
    rows = tuple(zip(short_names(pair.names, longest_name), map(number, pair.discrepancy), strict=True))
    p = show_pvalue(pair.pvalue, pair.alpha)
    p = p if p.startswith("<") else f"= {p}"
    times = factor.strip(" ()")
    difference, error = (f"{number(each)}{times}" for each in (pair.difference, pair.standard_error))
    numbers = f"difference {difference}, s.e. {error}, p {p.replace('<', '< ')}"
    verdict = ("worse" if pair.worse else "", words.pair_summary(pair))
    cells = Table(("model", f"{words.measure_of(pair).name}{factor}"), rows, ("open", "open"), verdicts=0)
    return Display(words.header(pair), cells, (("", numbers), verdict, *_notes(pair)))


def joint_display(joint: JointEstimate, longest_name: int = LONGEST_NAME) -> Display:
    """The estimates with their standard errors, and how far they depend on each other.

    >>> print(as_text(joint_display(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.005], [0.005, 0.01]], (50,)))))
    estimates without a test · score (smaller is better) · n = 50
    model  score  s.e.
    a      0.10   0.10
    b      0.90   0.10
    The correlation of the two estimates is 0.50. relfit.decide tests which models are worse.
    """
    errors, measure = joint.standard_error, words.measure_of(joint)
    # Adding 0 turns −0 into 0.
    values = 0.0 - joint.values if joint.higher_is_better else joint.values
    factor, number = scaled_format(errors.tolist(), values.tolist())
    names = short_names(joint.names, longest_name)
    rows = tuple((name, number(v), number(e)) for name, v, e in zip(names, values, errors, strict=True))
    header = ("estimates without a test", measure.measured, words.size_words(joint), joint.design)
    titles = ("model", f"{measure.name}{factor}", f"s.e.{factor}")
    cells = Table(titles, rows, ("open",) * len(rows), verdicts=0)
    lines = [("", f"{_correlations(joint)}relfit.decide tests which models are worse.")]
    lines += [("note", visible(note)) for note in joint.notes]
    return Display(" · ".join(part for part in header if part), cells, tuple(lines))


def _correlations(joint: JointEstimate) -> str:
    """A sentence on the correlations between the estimates that vary, if there are two of them."""
    varies = np.flatnonzero(joint.standard_error > 0.0)
    if len(varies) < 2:
        return ""
    scale = joint.standard_error[varies]
    found = (joint.covariance[np.ix_(varies, varies)] / np.outer(scale, scale))[np.triu_indices(len(varies), 1)]
    # Adding 0 turns −0 into 0.
    low, high = (round(float(end), 2) + 0.0 for end in (found.min(), found.max()))
    if len(found) == 1:
        return f"The correlation of the two estimates is {low:.2f}. "
    return f"The correlations of the estimates are from {low:.2f} to {high:.2f}. "


def table(comparison: Comparison, longest_name: int = LONGEST_NAME) -> Table:
    """The cells of the table, made from `rows()`."""
    rows = comparison.rows()
    values = [v for row in rows for v in (row["discrepancy"], row["difference"]) if math.isfinite(v)]
    # A difference that decided something must not be shown as 0.
    decisive = [row["difference"] for row in rows if words.is_worse(row) and math.isfinite(row["difference"])]
    factor, number = scaled_format([row["standard_error"] for row in rows], values, decisive)
    gap = "below best" if comparison.higher_is_better else "Δ to best"
    measured = [f"{title}{factor}" for title in (words.measure_of(comparison).name, "s.e.", gap)]
    titles = ["model", *measured, "p-value", "verdict"]
    corrected = comparison.correction != "none"
    if corrected:
        titles.insert(5, "adjusted p")
    if comparison.also:
        titles[-1:] = [f"by {words.measure_of(each).name}" for each in (comparison, *comparison.also)]
    cells = []
    for row, name in zip(rows, short_names([row["name"] for row in rows], longest_name), strict=True):
        difference = NOTHING if row["best"] else number(row["difference"])
        pvalues = [row[key] for key in ("pvalue", "adjusted_pvalue")[: 1 + corrected]]
        tested = is_tested(row)
        shown = [show_pvalue(p, comparison.alpha) if tested else NOTHING for p in pvalues]
        remarks = [visible(_STATUS.get(word, word)) for word in row["status"] if word not in _HIDDEN_STATUS]
        remarks += words.bandwidth_remark(row)
        verdict = f"{row['verdict']} ({', '.join(remarks)})" if remarks else str(row["verdict"])
        error = number(row["standard_error"]) if math.isfinite(row["discrepancy"]) else NOTHING
        others = [_other_verdict(other, row["name"]) for other in comparison.also]
        cells.append((name, number(row["discrepancy"]), error, difference, *shown, verdict, *others))
    first = len(titles) - len(comparison.also)
    by_name = [{row["name"]: words.kind_of(row) for row in other.rows()} for other in comparison.also]
    marked = {(i, first + k): kind[row["name"]] for i, row in enumerate(rows) for k, kind in enumerate(by_name)}
    kinds = tuple(map(words.kind_of, rows))
    return Table(tuple(titles), tuple(cells), kinds, 1 + len(comparison.also), marked=marked)


def _other_verdict(other: Comparison, name: str) -> str:
    """The verdict on a model by another discrepancy."""
    row = next(row for row in other.rows() if row["name"] == name)
    remarks = words.bandwidth_remark(row)
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


def number_format(
    errors: Sequence[float], values: Sequence[float], decisive: Sequence[float] = ()
) -> Callable[[float], str]:
    """One way to write a column of numbers: the largest s.e. with two digits, the smallest with one.

    No number in `decisive` is rounded to 0.
    """
    errors = [e for e in errors if e > 0.0]
    if not errors:
        return lambda value: f"{value:.3g}".replace("inf", "∞")
    decimals = _decimals(errors, decisive)
    if decimals > _MOST_DIGITS or max(map(abs, (*values, *errors))) >= 10**_MOST_DIGITS:
        return lambda value: f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e+").replace("inf", "∞")

    def fixed(value: float) -> str:
        if not math.isfinite(value):
            return "∞" if value > 0.0 else "-∞"
        shown = f"{value:.{decimals}f}"
        return shown.lstrip("-") if float(shown) == 0.0 else shown

    return fixed


def scaled_format(
    errors: Sequence[float], values: Sequence[float], decisive: Sequence[float] = ()
) -> tuple[str, Callable[[float], str]]:
    """`number_format` of very small or very large numbers after division by a power of ten that titles name.

    >>> factor, number = scaled_format([0.000016], [-0.000005])
    >>> factor, number(-0.000005), number(0.000016)
    (' (×10⁻⁶)', '-5', '16')
    """
    power = common_power(errors, values, decisive)
    if power == 0:
        return "", number_format(errors, values, decisive)
    unit = 10.0**power
    parts = ([each / unit for each in numbers] for numbers in (errors, values, decisive))
    number = number_format(*parts)
    return factor_words(power), lambda value: number(value / unit)


def factor_words(power: int) -> str:
    """What a title says of numbers that were divided by 10**power: " (×10⁻³)"; nothing for power 0."""
    return f" (×10{str(power).translate(_RAISED)})" if power else ""


def common_power(errors: Sequence[float], values: Sequence[float], decisive: Sequence[float] = ()) -> int:
    """The power of ten, a multiple of 3, by which these numbers are divided; 0 where they can be read as they are."""
    errors = [error for error in errors if error > 0.0]
    if not errors:
        return 0
    largest = max(map(abs, (*values, *errors)))
    decimals = _decimals(errors, decisive)
    small = decimals > _MOST_DECIMALS and largest < _SMALL
    if not small and largest < 10**_MOST_DIGITS:
        return 0
    first = 3 * math.floor(math.log10(largest) / 3.0)
    for power in (first, first - 3):
        unit = 10.0 ** max(power, -300)
        if _decimals([e / unit for e in errors], [d / unit for d in decisive]) <= _MOST_DIGITS and power > -300:
            return power
    return 0


def _decimals(errors: Sequence[float], decisive: Sequence[float] = ()) -> int:
    """The decimals with which the largest error has two digits, the smallest one, and no `decisive` number is 0."""
    smallest = min([*errors, *(abs(value) for value in decisive if value)])
    largest_power = math.floor(math.log10(max(errors)))
    smallest_power = math.floor(math.log10(smallest))
    return max(0, 1 - largest_power, -smallest_power)


def short_names(names: Sequence[str], longest: int = LONGEST_NAME) -> list[str]:
    """The names in printable form, long ones cut in the middle, but never so that two look alike."""
    whole = [visible(name) for name in names]
    while True:
        shown = [_shorten(name, longest) for name in whole]
        if len(set(shown)) == len(set(whole)):
            return shown
        longest *= 2


def _shorten(name: str, longest: int) -> str:
    if cell_len(name) <= longest:
        return name
    head = set_cell_size(name, (longest - 1) // 2).rstrip()
    tail = set_cell_size(name[::-1], longest // 2)[::-1].lstrip()
    return f"{head}…{tail}"


def headed_table(header: str, cells: Table) -> Text:
    """A line of settings and an aligned table, with the verdicts coloured."""
    out = Text(f"{header}\n" if header else "")
    names, *others = zip(*cells.rows, strict=True)
    rows = list(zip(names, *map(_points_aligned, others), strict=True))
    first, *lines = _padded([cells.titles, *rows])
    out.append(GAP.join(first).rstrip() + "\n", style="bold")
    for line, row, kind in zip(lines, rows, cells.kinds, strict=True):
        start = len(out) + len(GAP.join([*line[: len(line) - cells.verdicts], ""]))
        out.append(GAP.join(line).rstrip() + "\n")
        if kind in _STYLES and cells.verdicts:
            out.stylize(_STYLES[kind], start, start + len(row[-cells.verdicts]))
    return out


def _points_aligned(column: Sequence[str]) -> list[str]:
    """Fixed-point numbers get their points below each other; other cells stay as they are."""
    heads = [cell.partition(".")[0] if re.fullmatch(r"-?[0-9]+\.?[0-9]*", cell) else "" for cell in column]
    most = max(map(len, heads))
    return [" " * (most - len(head)) + cell if head else cell for head, cell in zip(heads, column, strict=True)]


def _padded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The cells with spaces that make those of a column equally wide."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [[cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)] for row in rows]


def _notes(result: Comparison | PairComparison) -> list[tuple[str, str]]:
    """The lines below the sentence."""
    # Without a margin to choose, it would be read as noise in the numbers above it.
    yardstick = words.yardstick(result) if result.margin else None
    # A pair has no line of its own for what comes first.
    later = [note for note in result.warnings if isinstance(result, PairComparison) or not _comes_first(note)]
    return [*([] if yardstick is None else [("", yardstick)]), *(("note", visible(note)) for note in later)]


def ranks_display(ranks: Ranks, longest_name: int = LONGEST_NAME) -> Display:
    """One line per model, the best ranks first, and what holds with which probability."""
    order = np.lexsort((ranks.upper, ranks.lower)).tolist()
    names = short_names(ranks.names, longest_name)
    shown = [words.range_words(ends) for ends in zip(ranks.lower, ranks.upper, strict=True)]
    cells = Table(("model", "rank"), tuple((names[i], shown[i]) for i in order), ("open",) * len(order), verdicts=0)
    lie = "all ranks lie in these sets" if ranks.simultaneous else "each rank lies in its set"
    return Display("", cells, (("", f"With probability {100.0 * ranks.level:g}%, {lie}."),))


def pairs_display(pairs: PairMatrix, longest_name: int = LONGEST_NAME) -> Display:
    """A matrix: the adjusted p-value of "the row's model is no worse than the column's", * where it is worse."""
    # The names are the titles of columns too.
    names = short_names(pairs.names, min(longest_name, LONGEST_NAME))
    rows = []
    for i, name in enumerate(names):
        cells = [
            NOTHING if i == j else show_pvalue(float(p), pairs.alpha) + "*" * int(pairs.worse[i, j])
            for j, p in enumerate(pairs.adjusted_pvalue[i])
        ]
        rows.append((name, *cells))
    correction = words.CORRECTION_NAMES.get(pairs.correction, "no correction")
    last = f"p-values of “no worse than” by row and column; * worse at α = {pairs.alpha:g} ({correction})."
    marked = {(int(i), int(j) + 1): "worse" for i, j in np.argwhere(pairs.worse)}
    matrix = Table(("", *names), tuple(rows), ("open",) * len(rows), verdicts=0, marked=marked)
    return Display("", matrix, (("", last),))


def plan_display(plan: Plan, longest_name: int = LONGEST_NAME) -> Display:
    """The answer in one sentence, the settings, a table with a line per model and test, and the notes.

    >>> from relfit import Assumed, plan
    >>> print(as_text(plan_display(plan(Assumed(0.01, standard_error=0.01, n=500)))))
    About 6,200 rows tell m1 from best.
    rows for power 0.8 · α = 0.05 · assumed gaps, standard errors of 500 rows · closed forms
    model  test      gap   rows  power at 500  detectable gap at 500
    m1     best set  0.01  6183  0.17          0.0352
    """
    source = f"{'pilot' if plan.measured else 'assumed gaps, standard errors'} of {plan.pilot_n} rows"
    method = f"simulation, {plan.trials} trials" if plan.method == "simulation" else plan.method
    corrected = [
        f"{words.name_of_test(test)}: {words.CORRECTION_NAMES.get(correction, correction)}"
        for test, correction in zip(plan.tests, plan.corrections, strict=True)
        if correction != "none" and (len(plan.names) > 2 or TESTS[test].tests_best)
    ]
    header = [f"rows for power {plan.target_power:g}", f"α = {plan.alpha:g}", source, method, *corrected]
    names = dict(zip(plan.names, short_names(plan.names, longest_name), strict=True))
    ranged = any(row["n_range"] is not None for row in plan.rows())
    unit = words.gap_unit(plan)[0]
    titles = ["model", "test", f"gap{unit}", "rows", *(["16–84%"] if ranged else []), f"power at {plan.n}"]
    rows = tuple(tuple(_plan_cells(plan, row, names[row["name"]], ranged)) for row in plan.rows())
    kinds = ("open",) * len(rows)
    cells = Table((*titles, f"detectable gap at {plan.n}"), rows, kinds, verdicts=0, words=(0, 1))
    halves = []
    if plan.yardstick:
        apart = f"about {plan.yardstick:.2g} apart{unit}"
        halves.append(("", f"Sampling noise puts two halves of the pilot's data {apart}."))
    notes = (*halves, *(("note", visible(note)) for note in plan.notes))
    return Display(f"{words.plan_answer(plan)}\n{' · '.join(header)}", cells, notes)


def _plan_cells(plan: Plan, row: dict[str, Any], name: str, ranged: bool) -> list[str]:
    def shown(rows: float) -> str:
        return f"{rows:.0f}" if math.isfinite(rows) else f"more than {plan.most}"

    rows = shown(row["n_needed"])
    if math.isfinite(row["n_error"]) and row["n_error"] >= 0.5:
        rows += f" ± {math.ceil(row['n_error'])}"
    elif row["n_needed"] == plan.fewest[plan.tests.index(row["test"])]:
        rows += " (minimum)"
    # Both ends are often the same number.
    ends = " to ".join(dict.fromkeys(map(shown, row["n_range"]))) if row["n_range"] is not None else NOTHING
    times = words.gap_unit(plan)[1]
    error = times * row["gap_standard_error"]
    gap = f"{times * row['gap']:.3g}" + (f" ± {error:.2g}" if error > 0.0 else "")
    detectable = f"{times * row['detectable_gap']:.3g}" if math.isfinite(row["detectable_gap"]) else "none"
    if row["detectable_gap"] == 0.0:
        # The difference to the best does not vary: the pilot says nothing about what other data would show.
        detectable = NOTHING
    power = f"{row['power']:.2f}"
    return [name, words.name_of_test(row["test"]), gap, rows, *([ends] if ranged else []), power, detectable]
