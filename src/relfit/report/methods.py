"""A paragraph for the methods section of a paper, true for the settings used, and the references it cites."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from relfit.kernels.standard import Gaussian
from relfit.report.formats import latex_text
from relfit.report.words import fill, group_words, measure_of, range_words, words_of
from relfit.results.comparison import Comparison
from relfit.stats.maxt import SMALL_SAMPLE
from relfit.util.checks import check_choice

# [key; key] is a citation, (NAME [key; key]) one inside brackets.
_CITATION = re.compile(r"\[([a-z0-9; ]+)\]")
_INSIDE = re.compile(r"\((\w+) \[([a-z0-9; ]+)\]\)")
_FORMULA = "k(x, y) = exp(−‖x − y‖²/(2b²))"
_LATEX_FORMULA = r"$k(x, y) = \exp(-\|x - y\|^2/(2b^2))$"
_ESTIMATORS = {
    "complete": "the unbiased estimate over all pairs of observations",
    "linear": "the linear-time estimate over disjoint pairs of observations",
    "incomplete": "an incomplete U-statistic [blom1976incomplete]",
    "block": "an average over blocks of observations [zaremba2013btest]",
}
_CORRECTIONS = {
    "by": "adjusted by the Benjamini–Yekutieli procedure [benjamini2001control]",
    "bh": "adjusted by the Benjamini–Hochberg procedure [benjamini1995controlling]",
    "holm": "adjusted by Holm's procedure [holm1979simple]",
    "bonferroni": "adjusted by Bonferroni's correction",
}
_DEPENDENCE = {
    "shared": "The models' samples came from common random numbers or prompts, and the covariance allows for this.",
    "paired": "The models' samples were paired with the data {pairing}, and the covariance allows for this.",
    "chain": "The samples were Markov chains; standard errors are from batch means.",
}
_PRESETS = {
    "kid": "This is the kernel of the kernel inception distance [binkowski2018demystifying].",
    "cmmd": "Features were scaled to unit length, as in CMMD [jayasumana2024rethinking].",
}
_SOFTWARE = {"numpy": "NumPy", "scipy": "SciPy", "python": "Python"}


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
    text = resources.files("relfit").joinpath("report/templates/references.bib").read_text(encoding="utf-8")
    papers = {}
    for entry in text.strip().split("\n\n"):
        fields = dict(re.findall(r"^  (\w+) = \{+(.*?)\}+,$", entry, flags=re.MULTILINE))
        authors = tuple(fields["author"].split(" and "))
        key = entry.partition("{")[2].partition(",")[0]
        papers[key] = Reference(entry, authors, fields["year"], fields["title"], fields["note"])
    return papers


def methods_text(comparison: Comparison, cite: str = "text") -> str:
    r"""One paragraph, then the references it cites.

    Args:
        comparison: the result.
        cite: "text" for (Author, Year) and a list of references, "bibtex" for \citep commands and BibTeX entries.

    >>> from relfit import JointEstimate, decide
    >>> result = decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi")
    >>> methods_text(result).splitlines()[-1][:50]
    'Lim, J. N., Yamada, M., Schölkopf, B. and Jitkritt'
    """
    check_choice("cite", cite, ("text", "bibtex"))
    sentences = [_compared(comparison), _kernel(comparison), _dependence(comparison)]
    sentences += [fill(words_of(comparison).methods, comparison, critical=_critical_values(comparison))]
    sentences += [_error(comparison), _software(comparison)]
    text = " ".join(sentence for sentence in sentences if sentence)
    keys = list(dict.fromkeys(key for group in _CITATION.findall(text) for key in group.split("; ")))
    cited = [references()[key] for key in keys]
    if cite == "bibtex":
        escaped = latex_text(text.replace(_FORMULA, "\0")).replace("\0", _LATEX_FORMULA)
        return "\n\n".join([_with_commands(escaped), *(paper.bibtex for paper in cited)])
    return "\n".join([_with_names(text), "", *sorted(paper.line() for paper in cited)])


def _compared(comparison: Comparison) -> str:
    count, measure = len(comparison.names), measure_of(comparison)
    corrected = ", with its second-order part counted once" if comparison.variance == "corrected" else ""
    what = "items" if measure.kind == "values" else "rows"
    grouped = f", treating {what} of one group as dependent" if comparison.groups else ""
    if measure.kind == "values":
        by = f"{_items(comparison)} by a {measure.name} (smaller is better)"
        return f"We compared {count} models{by}, with the covariance of its estimates{corrected}{grouped}."
    how = _ESTIMATORS.get(comparison.estimator or "") if measure.pairs else None
    estimated = f", using {how}" if how else ""
    if comparison.locations is not None:
        estimated = f", at {len(comparison.locations)} locations"
    return (
        f"We compared {count} models{_rows(comparison)} by {measure.methods}{estimated}; the joint covariance of the "
        f"estimates was estimated from the same observations{corrected}{grouped}."
    )


def _items(comparison: Comparison) -> str:
    """On how many items scores were taken; samples against a reference are described as for a discrepancy."""
    if comparison.sizes and len(comparison.sizes) == 1:
        return f" on {comparison.sizes[0]} items{group_words(comparison)}"
    return _rows(comparison)


def _rows(comparison: Comparison) -> str:
    if not comparison.sizes:
        return ""
    reference, *models = comparison.sizes
    drawn = range_words(models or [reference])
    if not reference:
        return f", each given by {drawn} draws, against a target density"
    test = words_of(comparison)
    source = f"each given by a sample of {drawn}" if models else "given by their densities"
    return f", {source}, against {reference} observations" + (f" used {test.rows}" if test.rows else "")


def _kernel(comparison: Comparison) -> str:
    kernel = comparison.kernel
    if kernel is None:
        return ""
    rule = ""
    if comparison.bandwidth_rule == "median":
        pooled = "of the observations" if len(comparison.sizes or ()) == 1 else "of the pooled rows"
        rule = f", the median distance {pooled} (at most 1000 of them)"
    elif comparison.bandwidth_rule == "selected":
        rule = ", chosen for the largest separation of the models on rows that the test did not use"
    described = f"{kernel.describe()}{rule}"
    if isinstance(kernel, Gaussian):
        described = f"Gaussian kernel, bandwidth b = {kernel.length:.3g}{rule}, {_FORMULA}"
    return f"The kernel was: {described}. {_PRESETS.get(comparison.preset or '', '')}".rstrip()


def _dependence(comparison: Comparison) -> str:
    pairing = "row by row" if comparison.groups is None else "group by group"
    return _DEPENDENCE.get(comparison.dependence or "", "").format(pairing=pairing)


def _critical_values(comparison: Comparison) -> str:
    """Where the best set's critical values came from: with few rows from two laws, if the result says how many."""
    counts = [count for count in comparison.groups or comparison.sizes or () if count > 0]
    if not counts or min(counts) >= SMALL_SAMPLE:
        return "simulated critical values"
    return "critical values from a bootstrap or from Student's law, whichever gave the larger p-value,"


def _error(comparison: Comparison) -> str:
    called = f"called worse{fill('{margin}', comparison)}"
    if comparison.correction in _CORRECTIONS:
        rate = "false discovery rate" if comparison.correction in ("by", "bh") else "family-wise error rate"
        adjusted = _CORRECTIONS[comparison.correction]
        return f"P-values were {adjusted}; models were {called} at level α = {comparison.alpha:g} of the {rate}."
    return f"Models were {called} where p ≤ α = {comparison.alpha:g}, without adjustment for the number of models."


def _software(comparison: Comparison) -> str:
    versions = dict(comparison.versions)
    version = versions.pop("relfit", None)
    if version is None:
        return ""
    others = ", ".join(f"{_SOFTWARE.get(name, name)} {number}" for name, number in versions.items())
    seed = "" if comparison.seed is None else f", seed {comparison.seed}"
    return f"Computations were done with relfit {version}{seed} ({others})."


def _with_names(text: str) -> str:
    inside = _INSIDE.sub(lambda match: f"({match[1]}; {_cited(match[2])})", text)
    return _CITATION.sub(lambda match: f"({_cited(match[1])})", inside)


def _with_commands(text: str) -> str:
    inside = _INSIDE.sub(lambda match: rf"({match[1]}; \citealp{{{match[2].replace('; ', ',')}}})", text)
    return _CITATION.sub(lambda match: rf"\citep{{{match[1].replace('; ', ',')}}}", inside)


def _cited(keys: str) -> str:
    return "; ".join(references()[key].cited for key in keys.split("; "))
