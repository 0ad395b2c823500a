"""The table for papers and spreadsheets: LaTeX, Markdown, CSV."""

from __future__ import annotations

import csv
import io
import re

from relfit.report.text import Table, table
from relfit.results.comparison import Comparison
from relfit.util.text import visible

LONGEST_NAME = 80
_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "²": r"\textsuperscript{2}",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "—": "---",
    "–": "--",
    "−": "$-$",
    "‖": r"$\|$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "·": r"$\cdot$",
    "…": r"\dots{}",
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_POWER = re.compile(r"(<?)(-?[\d.]+)e([+-]?\d+)")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~])")


def to_latex(comparison: Comparison) -> str:
    r"""A ``tabular`` for the booktabs package, the best model in bold.

    >>> from relfit import JointEstimate, decide
    >>> print(to_latex(decide(JointEstimate(("a_1", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi")))
    % \usepackage{booktabs}
    \begin{tabular}{lrrrrl}
    \toprule
    model & score & s.e. & $\Delta$ to best & p-value & verdict \\
    \midrule
    \textbf{a\_1} & 0.10 & 0.10 & --- & --- & best of the sample \\
    b & 0.90 & 0.10 & 0.80 & $1.5 \cdot 10^{-8}$ & worse \\
    \bottomrule
    \end{tabular}
    """
    cells = table(comparison, LONGEST_NAME)
    lines = [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{{_alignment(cells, 'r', 'l')}}}", r"\toprule"]
    lines.append(_latex_row(list(map(latex_text, cells.titles))))
    lines.append(r"\midrule")
    for kind, row in zip(cells.kinds, cells.rows, strict=True):
        name, *numbers = row[:-1]
        shown = rf"\textbf{{{latex_text(name)}}}" if kind == "best" else latex_text(name)
        lines.append(_latex_row([shown, *map(_latex_number, numbers), latex_text(row[-1])]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def to_markdown(comparison: Comparison) -> str:
    r"""A table as GitHub and most others read it, the best model in bold.

    >>> from relfit import JointEstimate, decide
    >>> print(to_markdown(decide(JointEstimate(("a", "b|c"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi")))
    | model | score | s.e. | Δ to best | p-value | verdict |
    | :--- | ---: | ---: | ---: | ---: | :--- |
    | **a** | 0.10 | 0.10 | — | — | best of the sample |
    | b\|c | 0.90 | 0.10 | 0.80 | 1.5e-8 | worse |
    """
    cells = table(comparison, LONGEST_NAME)
    rule = _alignment(cells, "---: | ", ":--- | ").removesuffix(" | ")
    lines = [_markdown_row(map(_markdown_text, cells.titles)), f"| {rule} |"]
    for kind, row in zip(cells.kinds, cells.rows, strict=True):
        name, *others = map(_markdown_text, row)
        lines.append(_markdown_row([f"**{name}**" if kind == "best" else name, *others]))
    return "\n".join(lines)


def to_csv(comparison: Comparison) -> str:
    """Every column of `rows()` with all digits, for programs; the status words are joined by semicolons.

    A name that a spreadsheet would run as a formula (it begins with =, +, -, @ or a tab) gets an apostrophe before it.

    >>> from relfit import JointEstimate, decide
    >>> print(
    ...     to_csv(
    ...         decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi")
    ...     ).splitlines()[1]
    ... )
    a,0.1,0.1,0.0,1.0,0.0,1.0,False,,True,best of the sample,
    """
    rows = comparison.rows()
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv_cell(value) for key, value in row.items()})
    return out.getvalue()


def _csv_cell(value: object) -> object:
    text = "; ".join(value) if isinstance(value, tuple) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(_FORMULA) else text


def latex_text(text: str) -> str:
    """The text with everything escaped that LaTeX would take for a command."""
    return "".join(_LATEX.get(c, c) for c in text)


def _latex_number(cell: str) -> str:
    power = _POWER.fullmatch(cell)
    if power is None:
        return latex_text(cell) if not cell.startswith("-") else f"${cell}$"
    less, digits, exponent = power.groups()
    times = "" if less and float(digits) == 1.0 else rf"{digits} \cdot "
    return rf"${less}{times}10^{{{int(exponent)}}}$"


def _latex_row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _markdown_text(cell: str) -> str:
    return _MARKDOWN.sub(r"\\\1", visible(cell))


def _markdown_row(cells: object) -> str:
    return f"| {' | '.join(cells)} |"  # type: ignore[arg-type]


def _alignment(cells: Table, number: str, text: str) -> str:
    return text + number * (len(cells.titles) - 2) + text
