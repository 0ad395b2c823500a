"""Finished cells with the lines around them, how numbers are written in a column, and all of
that as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from relfit.results.scale import KINDS
from relfit.util.text import visible

if TYPE_CHECKING:
    from rich.text import Text

GAP = "  "
LONGEST_NAME = 32
NOTHING = "—"
# Beyond this many decimals, or digits before the point, numbers are written with an exponent.
_MOST_DIGITS = 6
# Beyond this many decimals, numbers below a limit share a factor that stands in the titles.
_MOST_DECIMALS = 4
_SMALL = 0.1
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_STYLES = {kind: verdict.style for kind, verdict in KINDS.items()}


@dataclass(frozen=True)
class Table:
    """Finished cells. `kinds` has the kind of each row's verdict (`relfit.results.scale`).

    The last columns are verdicts: one for each discrepancy. Those in `words` hold text too,
    all others numbers. `marked` has the kind of other cells that are coloured, by row and
    column. `spare` are the columns that a narrow terminal leaves out, the first one first.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kinds: tuple[str, ...]
    verdicts: int = 1
    words: tuple[int, ...] = (0,)
    marked: Mapping[tuple[int, int], str] = field(default_factory=dict)
    spare: tuple[int, ...] = ()

    @classmethod
    def plain(cls, titles: Sequence[str], rows: Sequence[Sequence[str]], **more: Any) -> Table:
        """A table without verdicts."""
        cells = tuple(tuple(row) for row in rows)
        return cls(tuple(titles), cells, ("open",) * len(cells), verdicts=0, **more)


@dataclass(frozen=True)
class Display:
    """A result as it is shown, in a terminal and in a notebook.

    `lines` stand below the table, each with its kind: "note", "worse" or "" for a plain
    sentence. `also` holds the results of the same models by other discrepancies.
    """

    header: str
    table: Table
    lines: tuple[tuple[str, str], ...]
    also: tuple[Display, ...] = ()


def as_text(display: Display, width: int | None = None) -> Text:
    """The display with the verdicts coloured, its tables at most so wide if they can be;
    `plain` is the text alone.
    """
    table = display.table if width is None else fitted(display.table, width)
    out = headed_table(display.header, table)
    out.right_crop()
    for kind, line in display.lines:
        out.append("\n").append("Note: " if kind == "note" else "", style="yellow").append(
            line, _STYLES.get(kind, "")
        )
    for other in display.also:
        out.append("\n\n").append_text(as_text(other, width))
    return out


def fitted(table: Table, width: int) -> Table:
    """The table without as many of its spare columns as make it no wider than this.

    >>> wide = Table(
    ...     ("model", "value", "verdict"), (("a", "0.1", "fine"),), ("open",), spare=(1,)
    ... )
    >>> fitted(wide, 21).titles, fitted(wide, 20).titles
    (('model', 'value', 'verdict'), ('model', 'verdict'))
    """
    from rich.cells import cell_len

    columns = zip(table.titles, *table.rows, strict=True)
    widths = [len(GAP) + max(map(cell_len, column)) for column in columns]
    kept = list(range(len(widths)))
    for column in table.spare:
        if sum(widths[j] for j in kept) - len(GAP) > width:
            kept.remove(column)
    place = {j: k for k, j in enumerate(kept)}
    return replace(
        table,
        titles=tuple(table.titles[j] for j in kept),
        rows=tuple(tuple(row[j] for j in kept) for row in table.rows),
        words=tuple(place[j] for j in table.words if j in place),
        marked={(i, place[j]): kind for (i, j), kind in table.marked.items() if j in place},
        spare=tuple(place[j] for j in table.spare if j in place),
    )


def number_format(
    errors: Sequence[float], values: Sequence[float], decisive: Sequence[float] = ()
) -> Callable[[float], str]:
    """One way to write a column of numbers: the largest s.e. with two digits, the smallest
    with one.

    No number in `decisive` is rounded to 0.
    """
    errors = [e for e in errors if e > 0.0]
    if not errors:
        return lambda value: f"{value:.3g}".replace("inf", "∞")
    decimals = _decimals(errors, decisive)
    if decimals > _MOST_DIGITS or max(map(abs, (*values, *errors))) >= 10**_MOST_DIGITS:
        return lambda value: (
            f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e+").replace("inf", "∞")
        )

    def fixed(value: float) -> str:
        if not math.isfinite(value):
            return "∞" if value > 0.0 else "-∞"
        shown = f"{value:.{decimals}f}"
        return shown.lstrip("-") if float(shown) == 0.0 else shown

    return fixed


def scaled_format(
    errors: Sequence[float], values: Sequence[float], decisive: Sequence[float] = ()
) -> tuple[str, Callable[[float], str]]:
    """`number_format` of very small or very large numbers after division by a power of ten
    that titles name.

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


def interval_words(
    low: float, high: float, line: float, number: Callable[[float], str], power: int = 0
) -> str:
    """An interval of numbers written by `number` after division by 10**`power`; a dash where
    there is none.

    Its ends have as many digits as it takes not to round them onto or across the line.

    >>> interval_words(0.004, math.inf, 0.0, "{:.2f}".format)
    '0.004 to ∞'
    """
    if not low < high:
        return NOTHING
    unit = 10.0**power
    ends = []
    for end in (low, high):
        if not math.isfinite(end):
            ends.append("∞" if end > 0 else "-∞")
            continue
        shown = number(end)
        for digits in range(1, 18):
            if _side(float(shown) * unit, line) == _side(end, line):
                break
            shown = f"{end / unit:.{digits}g}"
        ends.append(shown)
    return " to ".join(ends)


def _side(value: float, line: float) -> int:
    """On which side of the line the value is: −1, 0 or 1."""
    return int(value > line) - int(value < line)


def factor_words(power: int) -> str:
    """What a title says of numbers that were divided by 10**power: " (×10⁻³)"; nothing for
    power 0.
    """
    return f" (×10{str(power).translate(_RAISED)})" if power else ""


def common_power(
    errors: Sequence[float], values: Sequence[float], decisive: Sequence[float] = ()
) -> int:
    """The power of ten, a multiple of 3, by which these numbers are divided; 0 where they
    can be read as they are.
    """
    errors = [error for error in errors if error > 0.0]
    if not errors:
        return 0
    largest = max(map(abs, (*values, *errors)))
    small = _decimals(errors, decisive) > _MOST_DECIMALS and largest < _SMALL
    if not small and largest < 10**_MOST_DIGITS:
        return 0
    first = 3 * math.floor(math.log10(largest) / 3.0)
    for power in (first, first - 3):
        scaled = ([each / 10.0**power for each in part] for part in (errors, decisive))
        if power > -300 and _decimals(*scaled) <= _MOST_DIGITS:
            return power
    return 0


def _decimals(errors: Sequence[float], decisive: Sequence[float] = ()) -> int:
    """The decimals with which the largest error has two digits, the smallest one, and no
    `decisive` number is 0.
    """
    smallest = min([*errors, *(abs(value) for value in decisive if value)])
    largest_power = math.floor(math.log10(max(errors)))
    smallest_power = math.floor(math.log10(smallest))
    return max(0, 1 - largest_power, -smallest_power)


def short_names(names: Sequence[str], longest: int = LONGEST_NAME) -> list[str]:
    """The names in printable form, long ones cut in the middle, but never so that two look
    alike.
    """
    whole = [visible(name) for name in names]
    while True:
        shown = [_shorten(name, longest) for name in whole]
        if len(set(shown)) == len(set(whole)):
            return shown
        longest *= 2


def _shorten(name: str, longest: int) -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(name) <= longest:
        return name
    head = set_cell_size(name, (longest - 1) // 2).rstrip()
    tail = set_cell_size(name[::-1], longest // 2)[::-1].lstrip()
    return f"{head}…{tail}"


def headed_table(header: str, cells: Table) -> Text:
    """A line of settings and an aligned table, with the verdicts coloured."""
    from rich.text import Text

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
    heads = [
        cell.partition(".")[0] if re.fullmatch(r"-?[0-9]+\.?[0-9]*", cell) else ""
        for cell in column
    ]
    most = max(map(len, heads))
    return [
        " " * (most - len(head)) + cell if head else cell
        for head, cell in zip(heads, column, strict=True)
    ]


def _padded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The cells with spaces that make those of a column equally wide."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        for row in rows
    ]
