"""A paragraph for the methods section of a paper, true for the settings used."""

from __future__ import annotations

import re

from relfit.kernels.standard import Gaussian
from relfit.report import words
from relfit.report.formats import latex_text
from relfit.report.recall import preset_of
from relfit.report.references import REFERENCES
from relfit.results.comparison import Comparison
from relfit.stats.maxt import SMALL_SAMPLE
from relfit.util.checks import check_choice

# [key; key] is a citation, (NAME [key; key]) one inside brackets.
_CITATION = re.compile(r"\[([a-z0-9; ]+)\]")
_INSIDE = re.compile(r"\((\w+) \[([a-z0-9; ]+)\]\)")
_FORMULA = "k(x, y) = exp(−‖x − y‖²/(2b²))"
_LATEX_FORMULA = r"$k(x, y) = \exp(-\|x - y\|^2/(2b^2))$"
_MEASURES = {
    "mmd": "the squared maximum mean discrepancy (MMD [gretton2012kernel])",
    "ksd": "the squared kernel Stein discrepancy (KSD [liu2016kernelized; chwialkowski2016kernel])",
    "ume": "the unnormalised mean embedding statistic (UME [jitkrittum2018informative])",
    "nystroem": "the squared maximum mean discrepancy (MMD [gretton2012kernel]) in its Nyström approximation",
    "fssd": "the finite set Stein discrepancy (FSSD [jitkrittum2017linear])",
}
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
    "independent": "",
    "shared": "The models' samples came from common random numbers or prompts, and the covariance allows for it.",
    "paired": "The models' samples were paired with the data {pairing}, and the covariance allows for it.",
    "chain": "The samples were Markov chains; standard errors are from batch means.",
}
_PRESETS = {
    "kid": "This is the kernel inception distance's kernel [binkowski2018demystifying].",
    "cmmd": "Features were scaled to unit length, as in CMMD [jayasumana2024rethinking].",
}


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
    sentences = [_what(comparison), _kernel(comparison), _dependence(comparison), _test(comparison), _error(comparison)]
    text = " ".join(sentence for sentence in [*sentences, _software(comparison)] if sentence)
    keys = list(dict.fromkeys(key for group in _CITATION.findall(text) for key in group.split("; ")))
    cited = [REFERENCES[key] for key in keys]
    if cite == "bibtex":
        escaped = latex_text(text.replace(_FORMULA, "\0")).replace("\0", _LATEX_FORMULA)
        return "\n\n".join([_with_commands(escaped), *(item.bibtex() for item in cited)])
    return "\n".join([_with_names(text), "", *sorted(item.line() for item in cited)])


def _what(comparison: Comparison) -> str:
    count = len(comparison.names)
    if comparison.measure not in _MEASURES:
        given = f"{_items(comparison)} by a {words.measure_name(comparison)}, smaller being better"
        return f"We compared {count} models{given}, with the covariance of its estimates{_variance(comparison)}."
    against = _rows(comparison)
    how = _ESTIMATORS.get(comparison.estimator or "")
    estimated = f", using {how}" if how and comparison.measure in ("mmd", "ksd") else _locations(comparison)
    return (
        f"We compared {count} models{against} by {_MEASURES[comparison.measure]}{estimated}; the joint covariance of "
        f"the estimates was estimated from the same observations{_variance(comparison)}."
    )


def _variance(comparison: Comparison) -> str:
    corrected = ", with its second-order part counted once" if comparison.variance == "corrected" else ""
    what = "rows" if comparison.measure in _MEASURES else "items"
    grouped = f", {what} of one group being taken for dependent" if comparison.groups else ""
    return corrected + grouped


def _locations(comparison: Comparison) -> str:
    return "" if comparison.locations is None else f", at {len(comparison.locations)} locations"


def _items(comparison: Comparison) -> str:
    """On how many items scores were taken; those of samples against a reference are told as for a discrepancy."""
    if comparison.sizes and len(comparison.sizes) == 1:
        return f" on {comparison.sizes[0]} items{words.group_words(comparison)}"
    return _rows(comparison)


def _rows(comparison: Comparison) -> str:
    if not comparison.sizes:
        return ""
    reference, *models = comparison.sizes
    low, high = min(models, default=reference), max(models, default=reference)
    drawn = f"{low}" if low == high else f"{low} to {high}"
    if not reference:
        return f", each given by {drawn} draws, against a target density"
    share = " used for testing" if comparison.test == "relmulti" else ""
    if not models:
        return f", given by their densities, against {reference} observations{share}"
    return f", each given by a sample of {drawn}, against {reference} observations{share}"


def _kernel(comparison: Comparison) -> str:
    if comparison.kernel is None:
        return ""
    rule = ", selected on rows held out of the test" if comparison.bandwidth_rule == "selected" else ""
    if comparison.bandwidth_rule == "median":
        pooled = "of the observations" if len(comparison.sizes or ()) == 1 else "of the pooled rows"
        rule = f", the median distance {pooled} (at most 1000 of them)"
    elif comparison.bandwidth_rule == "selected":
        rule = ", chosen for the largest separation of the models on rows that the test did not use"
    formula = f", {_FORMULA}" if isinstance(comparison.kernel, Gaussian) else ""
    described = comparison.kernel.describe().replace("bandwidth ", "bandwidth b = " if formula else "bandwidth ")
    preset = preset_of(comparison)
    return f"The kernel was: {described}{rule}{formula}." + (f" {_PRESETS[preset]}" if preset else "")


def _dependence(comparison: Comparison) -> str:
    pairing = "row by row" if comparison.groups is None else "group by group"
    return _DEPENDENCE.get(comparison.dependence or "", "").format(pairing=pairing)


def _test(comparison: Comparison) -> str:
    more = f" by more than {comparison.margin:g}" if comparison.margin else ""
    if comparison.test == "relmulti":
        share = comparison.select_fraction or 0.0
        return (
            f"A random {share:.0%} of the rows selected the model with the smallest discrepancy; on the other rows a "
            f"one-sided test was made for each other model of the hypothesis that it is no worse{more} than the "
            "selected one (RelMulti [lim2019kernel])."
        )
    if comparison.test == "best-set":
        whom = f"at least as good as every other one{words.under_every(comparison)}"
        hypothesis = f"worse{more} than no other one{words.under_every(comparison)}" if more else whom
        return (
            f"For each model we tested the hypothesis that it is {hypothesis} by the largest studentised difference, "
            f"with {_critical(comparison)} and moment selection [andrews2010inference]; the models not rejected form a "
            f"confidence set for the best{' within that margin' if more else ''} [hansen2011model]."
        )
    if comparison.test == "carve":
        return (
            "The model with the smallest discrepancy was selected after Gaussian noise with the covariance of the "
            f"estimates had been added; for each other model we tested the hypothesis that it is no worse{more} than "
            "the selected one, conditionally on that selection [fithian2014optimal; tian2018selective]."
        )
    return (
        "The model with the smallest value was selected, and for each other model we tested the hypothesis that it "
        f"is no worse{more} than the selected one, conditionally on that selection (RelPSI [lim2019kernel]), with "
        "p-values from a truncated normal distribution [lee2016exact]."
    )


def _critical(comparison: Comparison) -> str:
    """Where the best set's law came from: with few rows from two of them, as far as the result says how many."""
    counts = [count for count in comparison.groups or comparison.sizes or () if count > 0]
    if not counts or min(counts) >= SMALL_SAMPLE:
        return "simulated critical values"
    return "critical values from a bootstrap or from Student's law, whichever gave the larger p-value,"


def _error(comparison: Comparison) -> str:
    level = f"α = {comparison.alpha:g}"
    margin = getattr(comparison, "margin", None)
    by = f" by more than {margin:g}" if margin else ""
    if comparison.correction in _CORRECTIONS:
        rate = "false discovery rate" if comparison.correction in ("by", "bh") else "family-wise error rate"
        adjusted = _CORRECTIONS[comparison.correction]
        return f"P-values were {adjusted}; models were called worse{by} at level {level} of the {rate}."
    return f"Models were called worse{by} where p ≤ {level}, without adjustment for the number of models."


def _software(comparison: Comparison) -> str:
    versions = dict(comparison.versions)
    own = versions.pop("relfit", None)
    if own is None:
        return ""
    others = ", ".join(f"{_NAMES.get(name, name)} {number}" for name, number in versions.items())
    seed = "" if comparison.seed is None else f", seed {comparison.seed}"
    return f"Computations were done with relfit {own}{seed} ({others})."


_NAMES = {"numpy": "NumPy", "scipy": "SciPy", "python": "Python"}


def _with_names(text: str) -> str:
    inside = _INSIDE.sub(lambda found: f"({found[1]}; {_cited(found[2])})", text)
    return _CITATION.sub(lambda found: f"({_cited(found[1])})", inside)


def _with_commands(text: str) -> str:
    inside = _INSIDE.sub(lambda found: rf"({found[1]}; \citealp{{{found[2].replace('; ', ',')}}})", text)
    return _CITATION.sub(lambda found: rf"\citep{{{found[1].replace('; ', ',')}}}", inside)


def _cited(keys: str) -> str:
    return "; ".join(REFERENCES[key].cited for key in keys.split("; "))
