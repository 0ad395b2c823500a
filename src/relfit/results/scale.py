"""The scale of verdicts: how each one is worded, explained and drawn, in every output.

A result has four of them: one for the best model, one for a model within the margin, one for
a model about which nothing was shown, and one for a worse model, which depends on the error
rate that the adjusted p-values control.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from relfit.stats.decision import DISCOVERY_RATE, FAMILY_WISE
from relfit.stats.tests.base import Test


@dataclass(frozen=True)
class Verdict:
    """One verdict. Its texts are templates with {margin}, {delta}, {opponent}, {alpha} and
    {given}.

    Attributes:
        name: the words that it begins with.
        kind: its class on the page.
        mark: a sign for it, so that no reader needs the colours.
        shown: the verdict.
        legend: what it means.
        style: its style in the terminal.
        tint: the background behind it in a notebook, translucent for light and dark pages.
        colour, shape: its colour in pictures (of Okabe and Ito, which colour-blind readers can
            distinguish) and the marker of matplotlib.
        hollow: True if the marker is an outline.
    """

    name: str
    kind: str
    mark: str
    shown: str
    legend: str = ""
    style: str = ""
    tint: str = ""
    colour: str = ""
    shape: str = ""
    hollow: bool = False


BEST_OBSERVED = Verdict(
    "best observed",
    "best",
    "◆",
    shown="best observed",
    legend="Best observed: the {smallest} estimate. This is not a finding.",
    style="bold green",
    tint="rgba(46, 160, 67, 0.25);font-weight:bold",
    colour="#009E73",
    shape="D",
)
SELECTED = replace(
    BEST_OBSERVED,
    name="selected",
    shown="selected",
    legend="Selected: the model that the others are compared with. This is not a finding.",
)
EQUIVALENT = Verdict(
    "equivalent",
    "equal",
    "≈",
    shown="equivalent within {delta}",
    legend="Equivalent within {delta}: shown to be worse than the best by at most {delta}.",
    style="green",
    tint="rgba(46, 160, 67, 0.12)",
    colour="#009E73",
    shape="s",
)
NON_INFERIOR = replace(
    EQUIVALENT,
    name="non-inferior",
    shown="non-inferior within {delta}",
    legend="Non-inferior within {delta}: shown to be worse than {opponent} by at most {delta}.",
)
INCONCLUSIVE = Verdict(
    "inconclusive",
    "open",
    "○",
    shown="inconclusive",
    legend="Inconclusive: neither shown to be worse nor to be as good. This is not evidence "
    "of equality.",
    colour="#0072B2",
    shape="o",
    hollow=True,
)
SIGNIFICANTLY_WORSE = Verdict(
    "significantly worse",
    "worse",
    "▼",
    shown="significantly worse{margin}",
    legend="Significantly worse{margin}: the probability that any model as good as {opponent} "
    "gets this verdict is at most {alpha}{given} (familywise error rate).",
    style="bold red",
    tint="rgba(218, 54, 51, 0.25);font-weight:bold",
    colour="#D55E00",
    shape="v",
)
UNADJUSTED = Verdict(
    "worse",
    "weak",
    "▽",
    shown="worse{margin} (unadjusted)",
    legend="Worse{margin} (unadjusted): {error} This is without adjustment for the number of "
    "models.",
    style="red",
    tint="rgba(218, 54, 51, 0.12)",
    colour="#B87A00",
    shape="v",
    hollow=True,
)
DISCOVERY = replace(
    UNADJUSTED,
    shown="worse{margin} (FDR)",
    legend="Worse{margin} (FDR): the expected fraction of wrong verdicts among these is at "
    "most {alpha} (false discovery rate).",
)
SCALE = (
    BEST_OBSERVED,
    SELECTED,
    EQUIVALENT,
    NON_INFERIOR,
    INCONCLUSIVE,
    SIGNIFICANTLY_WORSE,
    UNADJUSTED,
    DISCOVERY,
)
# For each kind one of its verdicts, from the best kind to the worst.
KINDS = {
    verdict.kind: verdict
    for verdict in (BEST_OBSERVED, EQUIVALENT, INCONCLUSIVE, UNADJUSTED, SIGNIFICANTLY_WORSE)
}


class Scale(NamedTuple):
    """The four verdicts of one result."""

    best: Verdict
    equivalent: Verdict
    inconclusive: Verdict
    worse: Verdict


def scale_of(test: type[Test], correction: str, models: int) -> Scale:
    """The verdicts of a test of so many models with this correction of its p-values.

    >>> from relfit import BestSet
    >>> scale_of(BestSet, "stepdown", 3).worse.name, scale_of(BestSet, "none", 3).worse.shown
    ('significantly worse', 'worse{margin} (unadjusted)')
    """
    hypotheses = models if test.tests_best else models - 1
    worse = UNADJUSTED
    if correction in FAMILY_WISE or hypotheses <= 1:
        worse = SIGNIFICANTLY_WORSE
    elif correction in DISCOVERY_RATE:
        worse = DISCOVERY
    best = SELECTED if test.selects else BEST_OBSERVED
    equivalent = EQUIVALENT if test.tests_best else NON_INFERIOR
    return Scale(best, equivalent, INCONCLUSIVE, worse)


def by_margin(margin: float) -> dict[str, str]:
    """What templates of verdicts are filled in with for this margin.

    >>> SIGNIFICANTLY_WORSE.shown.format(**by_margin(0.01))
    'significantly worse by more than 0.01'
    """
    beyond = f" by more than {margin:g}" if margin else ""
    return {"margin": beyond, "delta": f"{margin:g}"}


def kind_of(verdict: str) -> str:
    """The kind of a verdict, from its words.

    >>> kind_of("significantly worse by more than 0.01"), kind_of("worse (FDR)")
    ('worse', 'weak')
    """
    return next(each.kind for each in SCALE if verdict.startswith(each.name))


def is_worse(verdict: str) -> bool:
    """True if this verdict says that the model is worse."""
    return kind_of(verdict) in ("worse", "weak")
