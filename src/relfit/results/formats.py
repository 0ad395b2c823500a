"""The result for papers and spreadsheets: tables in LaTeX, Markdown and CSV, and a paragraph
on the methods.

The paragraph is true for the settings used, and followed by the references that it cites.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import SimpleNamespace
from typing import Any

from relfit.estimators import ESTIMATORS
from relfit.kernels.standard import Gaussian
from relfit.results.text import table
from relfit.results.verdicts import Verdicts
from relfit.results.words import CORRECTIONS, fill, group_words, measure_of, range_words
from relfit.stats.joint import SMALL_SAMPLE
from relfit.stats.tests import TESTS
from relfit.util.checks import check_choice
from relfit.util.text import plain_number, visible

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
    "∞": r"$\infty$",
}
_LOWERED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_POWER = re.compile(r"(<?)(-?[\d.]+)e([+-]?\d+)")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~])")
# [key; key] is a citation, (NAME [key; key]) one inside brackets.
_CITATION = re.compile(r"\[([a-z0-9; ]+)\]")
_INSIDE = re.compile(r"\((\w+) \[([a-z0-9; ]+)\]\)")
_FORMULA = "k(x, y) = exp(−‖x − y‖²/(2b²))"
_LATEX_FORMULA = r"$k(x, y) = \exp(-\|x - y\|^2/(2b^2))$"
_ROOT = (
    "Standard errors and truncation limits were computed for the square roots of the estimates."
)
_DEPENDENCE = {
    "shared": "The models' samples came from common random numbers or prompts, and the "
    "covariance allows for this.",
    "paired": "The models' samples were paired with the data {pairing}, and the covariance "
    "allows for this.",
    "chain": "The samples were Markov chains; standard errors are from batch means.",
}
_PRESETS = {
    "kid": "This is the kernel of the kernel inception distance [binkowski2018demystifying].",
    "cmmd": "Features were scaled to unit length, as in CMMD [jayasumana2024rethinking].",
}


def to_latex(comparison: Verdicts) -> str:
    r"""A ``tabular`` for the booktabs package, the best model in bold.

    >>> from relfit import JointEstimate, decide
    >>> joint = JointEstimate(("a_1", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]])
    >>> print(to_latex(decide(joint, test="relpsi")))
    % \usepackage{booktabs}
    \begin{tabular}{lrrrrrl}
    \toprule
    model & score & s.e. & $\Delta$ to best & 95\% bounds & p-value & verdict \\
    \midrule
    \textbf{a\_1} & 0.10 & 0.10 & --- & --- & --- & best observed \\
    b & 0.90 & 0.10 & 0.80 & 0.57 to 1.03 & $1.5 \cdot 10^{-8}$ & significantly worse \\
    \bottomrule
    \end{tabular}
    """
    cells = table(comparison, LONGEST_NAME)
    numbers = len(cells.titles) - 1 - cells.verdicts
    lines = []
    for kind, (name, *others) in zip(cells.kinds, cells.rows, strict=True):
        shown = rf"\textbf{{{latex_text(name)}}}" if kind == "best" else latex_text(name)
        verdicts = map(latex_text, others[numbers:])
        lines.append([shown, *map(_latex_number, others[:numbers]), *verdicts])
    title, *rows = (
        " & ".join(row) + r" \\" for row in (map(_latex_title, cells.titles), *lines)
    )
    columns = "l" + "r" * numbers + "l" * cells.verdicts
    head = [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{{columns}}}"]
    return "\n".join(
        [*head, r"\toprule", title, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
    )


def to_markdown(comparison: Verdicts) -> str:
    r"""A table as GitHub and most others read it, the best model in bold.

    >>> from relfit import JointEstimate, decide
    >>> print(
    ...     to_markdown(
    ...         decide(
    ...             JointEstimate(("a", "b|c"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]),
    ...             test="relpsi",
    ...         )
    ...     )
    ... )
    | model | score | s.e. | Δ to best | 95% bounds | p-value | verdict |
    | :--- | ---: | ---: | ---: | ---: | ---: | :--- |
    | **a** | 0.10 | 0.10 | — | — | — | best observed |
    | b\|c | 0.90 | 0.10 | 0.80 | 0.57 to 1.03 | 1.5e-8 | significantly worse |
    """
    cells = table(comparison, LONGEST_NAME)
    lines = []
    for kind, row in zip(("title", *cells.kinds), (cells.titles, *cells.rows), strict=True):
        name, *others = map(markdown_text, row)
        lines.append(" | ".join([f"**{name}**" if kind == "best" else name, *others]))
    numbers = len(cells.titles) - 1 - cells.verdicts
    lines.insert(1, " | ".join([":---", *["---:"] * numbers, *[":---"] * cells.verdicts]))
    return "\n".join(f"| {line} |" for line in lines)


def markdown_text(text: str) -> str:
    """The text with everything escaped that Markdown would take for a sign of its own."""
    return _MARKDOWN.sub(r"\\\1", visible(text))


def to_csv(comparison: Verdicts) -> str:
    """Every column of `rows()` with all digits, for programs; the status words are joined by
    semicolons.

    A name that a spreadsheet would run as a formula (it begins with =, +, -, @ or a tab)
    gets an apostrophe before it.

    >>> from relfit import JointEstimate, decide
    >>> table = to_csv(
    ...     decide(
    ...         JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"
    ...     )
    ... )
    >>> print(table.splitlines()[1])
    a,0.1,0.1,0.0,1.0,0.0,1.0,False,0.0,0.0,,,True,best observed,
    """
    rows = comparison.rows()
    lines: list[str] = []
    # With this end of a line, a cell that holds either of its characters is put in quotes.
    writer = csv.DictWriter(
        SimpleNamespace(write=lines.append), list(rows[0]), lineterminator="\r\n"
    )
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def _cell(value: Any) -> Any:
    text = "; ".join(value) if isinstance(value, tuple) else value
    formula = isinstance(text, str) and text.startswith(_FORMULA_STARTS)
    return f"'{text}" if formula else text


def latex_text(text: str) -> str:
    """The text with everything escaped that LaTeX would take for a command."""
    return "".join(_LATEX.get(c, c) for c in text)


def _latex_title(title: str) -> str:
    """The title of a column, its factor as mathematics: `s.e. (×10⁻³)`."""
    name, factor, power = title.partition(" (×10")
    if not factor:
        return latex_text(title)
    return rf"{latex_text(name)} ($\times 10^{{{power.rstrip(')').translate(_LOWERED)}}}$)"


def _latex_number(cell: str) -> str:
    power = _POWER.fullmatch(cell)
    if power is None:
        return latex_text(cell) if not cell.startswith("-") else f"${cell}$"
    less, digits, exponent = power.groups()
    times = "" if less and float(digits) == 1.0 else rf"{digits} \cdot "
    return rf"${less}{times}10^{{{int(exponent)}}}$"


@dataclass(frozen=True)
class Reference:
    """One paper, with its entry for BibTeX."""

    bibtex: str
    authors: tuple[str, ...]
    year: str
    title: str
    where: str

    @property
    def cited(self) -> str:
        """How it is cited in text: "Lim et al., 2019"."""
        names = [author.partition(",")[0] for author in self.authors]
        return f"{f'{names[0]} et al.' if len(names) > 2 else ' and '.join(names)}, {self.year}"

    def line(self) -> str:
        """The entry of a list of references."""
        *first, last = self.authors
        authors = f"{', '.join(first)} and {last}" if first else last
        return f"{authors} ({self.year}). {self.title}. {self.where}."


@cache
def references() -> dict[str, Reference]:
    """The papers of templates/references.bib by their keys.

    >>> references()["lim2019kernel"].cited
    'Lim et al., 2019'
    """
    text = (
        resources.files("relfit")
        .joinpath("report/templates/references.bib")
        .read_text(encoding="utf-8")
    )
    papers = {}
    for entry in text.strip().split("\n\n"):
        fields = dict(re.findall(r"^  (\w+) = \{+(.*?)\}+,$", entry, flags=re.MULTILINE))
        key = entry.partition("{")[2].partition(",")[0]
        authors = tuple(fields["author"].split(" and "))
        papers[key] = Reference(entry, authors, fields["year"], fields["title"], _where(fields))
    return papers


def _where(fields: dict[str, str]) -> str:
    """Where a paper appeared: "Biometrika 63(3), 573–580"."""
    if "eprint" in fields:
        return f"{fields['archiveprefix']}:{fields['eprint']}"
    where = fields.get("journal") or fields["booktitle"]
    where += f", {fields['series']}" if "series" in fields else ""
    where += f" {fields['volume']}" if "volume" in fields else ""
    where += f"({fields['number']})" if "number" in fields else ""
    return where + (f", {fields['pages'].replace('--', '–')}" if "pages" in fields else "")


def methods_text(comparison: Verdicts, cite: str = "text") -> str:
    r"""One paragraph, then the references it cites.

    `cite` is "text" for (Author, Year) and a list of references, "bibtex" for \citep
    commands and BibTeX entries.

    >>> from relfit import JointEstimate, decide
    >>> result = decide(
    ...     JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"
    ... )
    >>> methods_text(result).splitlines()[-1][:50]
    'Lim, J. N., Yamada, M., Schölkopf, B. and Jitkritt'
    """
    check_choice("cite", cite, ("text", "bibtex"))
    level = f"α = {comparison.alpha:g}"
    verdict = comparison.wording.worse.shown.format(**comparison.facts())
    error = f"Models with p ≤ {level} are called {verdict}."
    correction = CORRECTIONS.get(comparison.correction)
    if correction is not None:
        error = (
            f"P-values were adjusted by {correction.procedure}; models with an adjusted p ≤ "
            f"{level}, which bounds the {correction.rate.name}, are called {verdict}."
        )
    pairing = "row by row" if comparison.groups is None else "group by group"
    sentences = [
        _compared(comparison),
        _encoded(comparison),
        _kernel(comparison),
        _DEPENDENCE.get(comparison.dependence or "", "").format(pairing=pairing),
        fill(
            TESTS[comparison.test].words.methods,
            comparison,
            critical=_critical_values(comparison),
        ),
        _ROOT if comparison.test_scale == "root" else "",
        error,
        _software(comparison),
    ]
    text = " ".join(sentence for sentence in sentences if sentence)
    keys = dict.fromkeys(key for group in _CITATION.findall(text) for key in group.split("; "))
    papers = [references()[key] for key in keys]
    if cite == "bibtex":
        text = latex_text(text.replace(_FORMULA, "\0")).replace("\0", _LATEX_FORMULA)
        text = _INSIDE.sub(
            lambda match: (
                rf"({match[1]}; "
                rf"\citealp{{{match[2].replace('; ', ',')}}})"
            ),
            text,
        )
        text = _CITATION.sub(lambda match: rf"\citep{{{match[1].replace('; ', ',')}}}", text)
        return "\n\n".join([text, *(paper.bibtex for paper in papers)])
    text = _INSIDE.sub(lambda match: f"({match[1]}; {_cited(match[2])})", text)
    text = _CITATION.sub(lambda match: f"({_cited(match[1])})", text)
    return "\n".join([text, "", *sorted(paper.line() for paper in papers)])


def _encoded(comparison: Verdicts) -> str:
    """How columns were made into numbers."""
    encoding = comparison.encoding
    if encoding is None:
        return "Columns were not standardised." if comparison.unscaled else ""
    numbers = any(column.kind != "category" for column in encoding.columns)
    by = {
        "auto": "mean and standard deviation",
        "robust": "median and median absolute deviation",
    }.get(encoding.scale)
    scaled = (
        f"Numeric columns were standardised by the reference's {by}." if by and numbers else ""
    )
    if measure_of(comparison).kind == "densities":
        rows = "observations" if comparison.sizes and comparison.sizes[0] else "pooled draws"
        how = (
            "divided by a scale for each column"
            if encoding.root is None
            else f"whitened by a robust covariance of the {rows}"
        )
        scaled = f"Rows were {how}, and the scores transformed with them."
    apart = ", with the mean squared distance of standardised numbers" if by else ""
    categories = any(column.kind == "category" for column in encoding.columns)
    levels = (
        f"Levels of categorical columns were encoded as indicators{apart}."
        if categories
        else ""
    )
    return " ".join(part for part in (scaled, levels) if part)


def _cited(keys: str) -> str:
    return "; ".join(references()[key].cited for key in keys.split("; "))


def _compared(comparison: Verdicts) -> str:
    measure = measure_of(comparison)
    compared = f"We compared {len(comparison.names)} models{_rows(comparison)}"
    both = ", with its first- and second-order parts estimated separately"
    parts = both if comparison.variance == "second-order" else ""
    what = "items" if measure.kind == "values" else "rows"
    grouped = f", treating {what} of one group as dependent" if comparison.groups else ""
    if measure.kind == "values":
        taken = f", {comparison.design}" if comparison.design else ""
        by = (
            f"by a {measure.name} ({measure.better}){taken}, with the covariance of its "
            f"estimates"
        )
        return f"{compared} {by}{parts}{grouped}."
    estimator = ESTIMATORS.get(comparison.estimator or "") if measure.pairs else None
    how = None if estimator is None else estimator.words
    estimated = (
        f", using {how}" if how else f", {comparison.design}" if comparison.design else ""
    )
    if comparison.locations is not None:
        estimated = f", at {len(comparison.locations)} locations"
    covariance = (
        "the joint covariance of the estimates was estimated from the same observations"
    )
    return f"{compared} by {measure.methods}{estimated}; {covariance}{parts}{grouped}."


def _rows(comparison: Verdicts) -> str:
    """What the models were compared on: items with scores, or samples or densities against a
    reference.
    """
    if not comparison.sizes:
        return ""
    reference, *models = comparison.sizes
    drawn = range_words(models or [reference])
    if measure_of(comparison).kind == "values" and not models:
        return f" on {reference:,} items{group_words(comparison)}"
    if not reference:
        return f", each given by {drawn} draws, against a target density"
    test = TESTS[comparison.test].words
    source = f"each given by a sample of {drawn}" if models else "given by their densities"
    return f", {source}, against {reference:,} observations" + (
        f" used {test.rows}" if test.rows else ""
    )


def _kernel(comparison: Verdicts) -> str:
    kernel = comparison.kernel
    rule = ""
    if kernel is None:
        return ""
    if comparison.bandwidth_rule == "median":
        pooled = (
            "of the observations" if len(comparison.sizes or ()) == 1 else "of the pooled rows"
        )
        rule = f", the median distance {pooled} (at most 1000 of them)"
    elif comparison.bandwidth_rule == "selected":
        rule = (
            ", chosen for the largest separation of the models on rows that the test "
            "did not use"
        )
    described = f"{kernel.describe()}{rule}"
    if isinstance(kernel, Gaussian):
        described = (
            f"Gaussian kernel, bandwidth b = {plain_number(kernel.length)}{rule}, {_FORMULA}"
        )
    return f"The kernel was: {described}. {_PRESETS.get(comparison.preset or '', '')}".rstrip()


def _critical_values(comparison: Verdicts) -> str:
    """Where the best set's critical values came from: with few rows from Student's t
    distribution, if the result has their number.
    """
    counts = [count for count in comparison.groups or comparison.sizes or () if count > 0]
    few = counts and min(counts) < SMALL_SAMPLE
    return "simulated critical values" + (
        " (Student's t distribution for each difference)" if few else ""
    )


def _software(comparison: Verdicts) -> str:
    versions = dict(comparison.versions)
    version = versions.pop("relfit", None)
    if version is None:
        return ""
    names = {"numpy": "NumPy", "scipy": "SciPy", "python": "Python"}
    others = ", ".join(f"{names.get(name, name)} {number}" for name, number in versions.items())
    seed = "" if comparison.seed is None else f", seed {comparison.seed}"
    return f"Computations were done with relfit {version}{seed} ({others})."
