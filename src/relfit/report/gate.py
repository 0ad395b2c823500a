"""May this model be released? The three answers of a gate, as words, files and exit statuses.

*Worse*: the model is significantly worse. *Non-inferior*: it was shown that the model is no
worse, with a margin δ no worse by more than δ. *Inconclusive*: neither was shown. Tables, fixed
pairs and monitors each have a function that decides; all of them answer by `Gate.answered`.
Commands, JUnit, Markdown, JSON, pages and pytest all show one `Gate`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
from scipy.special import ndtr

from relfit.api import plan
from relfit.kernels.composite import Collection
from relfit.results.comparison import Comparison, PairComparison
from relfit.results.formats import markdown_text, to_markdown
from relfit.results.monitor import MonitorResult, counted_items, show_log_evalue
from relfit.results.scale import SIGNIFICANTLY_WORSE, kind_of
from relfit.results.table import NOTHING
from relfit.results.text import is_tested, show_pvalue
from relfit.results.words import (
    about,
    bandwidth_remark,
    below,
    header,
    measure_of,
    row_word,
    used_test,
)
from relfit.stats.decision import difference_variance, differences
from relfit.stats.pairs import impossible_pair, relative_test, reverse_log_pvalue
from relfit.stats.planning import Assumed
from relfit.stats.tests import TESTS
from relfit.stats.tests.base import Test
from relfit.stats.tests.best_set import BestSet
from relfit.stats.tests.relpsi import RelPSI
from relfit.util.checks import check_choice
from relfit.util.errors import InputError
from relfit.util.text import listed, quoted, visible

WORSE = "worse"
NON_INFERIOR = "non-inferior"
INCONCLUSIVE = "inconclusive"
# The data or the settings keep the gate from answering.
NO_ANSWER = "error"
# For each answer the exit status, the heading, and the kind of verdict whose style it has.
_OUTCOMES = {
    WORSE: (1, "failed", "worse"),
    NON_INFERIOR: (0, "passed", "best"),
    INCONCLUSIVE: (0, "inconclusive", "open"),
    NO_ANSWER: (2, "without an answer", "worse"),
}
# Larger numbers of items than this are no advice.
MOST_ITEMS = 1_000_000
# What XML 1.0 cannot hold, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Gate:
    """The answer about one model.

    Attributes:
        name: the model.
        against: the model it was compared with; None where it is any of the others (monitors).
        verdict: "worse", "non-inferior", "inconclusive", or "error" where there is no answer.
        words: the verdict as a sentence without a full stop.
        pvalue: of "no worse than `against`", in the best set of "as good as every other
            model"; adjusted where the comparison's p-values are. None for monitors and
            without an answer.
        fixed: True if `against` was named beforehand.
        margin: δ.
        required: True if non-inferiority is required, so that "inconclusive" fails.
    """

    name: str
    against: str | None
    verdict: str
    words: str
    pvalue: float | None
    fixed: bool
    margin: float
    required: bool

    @property
    def status(self) -> int:
        """The exit status: 0 passed, 1 worse, 2 no answer, 3 inconclusive but required."""
        if self.verdict == INCONCLUSIVE and self.required:
            return 3
        return _OUTCOMES[self.verdict][0]

    @property
    def failed(self) -> bool:
        """True if the model must not be released."""
        return self.status != 0

    @property
    def heading(self) -> str:
        """The answer in a few words."""
        required = " (non-inferiority is required)" if self.status == 3 else ""
        return f"Gate {_OUTCOMES[self.verdict][1]}{required}"

    @property
    def reason(self) -> str:
        """The words without the name of an argument in front."""
        return self.words.removeprefix("gate: ")

    @property
    def sentence(self) -> str:
        """The answer with its words, as every output has it."""
        return f"{self.heading}: {self.reason}."

    @property
    def kind(self) -> str:
        """The name of its style on a page."""
        return _OUTCOMES[self.verdict][2]

    def record(self) -> dict[str, Any]:
        """The gate as a result file has it."""
        kept = ("against", "verdict", "required", "margin", "pvalue", "sentence")
        return {"model": self.name, **{key: getattr(self, key) for key in kept}}

    def without_answer(self, why: str) -> Gate:
        """The gate where the data or the settings keep it from answering."""
        return replace(self, verdict=NO_ANSWER, words=why, pvalue=None)

    def doubtful(self, doubts: Sequence[str]) -> Gate:
        """The gate where the verdicts would not be reliable."""
        return self.without_answer(f"gate: {'; '.join(doubts)}")

    def answered(
        self,
        worse: bool,
        shown: bool,
        whom: str,
        *,
        evidence: str = "",
        otherwise: str = "",
        more: Callable[[], str] = str,
        said: str = SIGNIFICANTLY_WORSE.shown,
        remarks: Sequence[str] = (),
    ) -> Gate:
        """The gate with its verdict and its words, the same for every kind of result.

        Args:
            worse: whether the model was shown to be worse.
            shown: whether it was shown to be non-inferior.
            whom: the models it was compared with, in words.
            evidence: what stands behind "worse".
            otherwise: what stands behind "inconclusive".
            more: what an inconclusive answer adds, such as how many rows would decide.
            said: the verdict on a model that is worse, a template.
            remarks: what follows any answer.

        >>> asked = ask_gate(("old", "new"), "new", "old")
        >>> asked.answered(
        ...     False, False, "old", more=lambda: "about 300 more rows would decide"
        ... ).words
        'new compared with old; about 300 more rows would decide'
        """
        model = quoted(self.name)
        than = f" by more than {self.margin:g}" if self.margin else ""
        within = f" within {self.margin:g}" if self.margin else ""
        at_margin = f" (margin {self.margin:g})" if self.margin else ""
        everyone = whom.replace("any other", "every other")
        if worse:
            verdict = WORSE
            before, _, after = said.partition("{margin}")
            # "(unadjusted)" and the evidence share their brackets.
            brackets = f"{after}{evidence}".replace(") (", ", ")
            parts = [f"{model} is {before} than {whom}{than}{brackets}"]
        elif shown:
            verdict = NON_INFERIOR
            parts = [f"{model} is non-inferior to {everyone}{within}"]
        else:
            verdict = INCONCLUSIVE
            no_margin = (
                "without a margin only a model that is shown to be better is non-inferior"
            )
            parts = [
                f"{model} compared with {everyone}{at_margin}{otherwise}",
                more(),
                no_margin if self.required and not than else "",
            ]
        words = "; ".join(part for part in (*parts, *remarks) if part)
        return replace(self, verdict=verdict, words=words)


def ask_gate(
    names: Sequence[str],
    name: str,
    against: str | None = None,
    *,
    margin: float = 0.0,
    require: str | None = None,
    pvalue: float | None = None,
) -> Gate:
    """The gate of one of these models before its answer."""
    for argument, value in (("name", name), ("against", against)):
        if value is not None and value not in names:
            raise InputError(f"{argument}: expected the name of a model, got {value!r}")
    if against == name:
        raise InputError(f"against: expected a model other than {name!r}, got {against!r}")
    if require is not None:
        check_choice("require", require, (NON_INFERIOR,))
    required = require is not None
    return Gate(name, against, INCONCLUSIVE, "", pvalue, against is not None, margin, required)


def judge(
    comparison: Comparison, name: str, against: str | None = None, *, require: str | None = None
) -> Gate:
    """The gate of one model, against the best or against a model named beforehand.

    The rule, the same for every command. Without `against` the answer is the model's verdict in
    the table: "worse" where `Comparison.worse` is True, with the correction in force;
    "non-inferior" where `Comparison.equivalent` is True, without a margin where
    ``upper_bound(1 − alpha)`` is 0, which only the best set can show. Tests that select a model
    do not test it, so it is inconclusive. With `against` one-sided z tests of the hypotheses
    D_name ≤ D_against + δ and D_name ≥ D_against + δ decide, each at level alpha, from the same
    estimates. A sample with the rows of another one shows nothing about a new model.

    Args:
        comparison: what `relfit.compare`, `relfit.compare_losses` or `relfit.decide` returned.
        name: the model.
        against: another model, named before the data were seen.
        require: "non-inferior" if an inconclusive answer must not pass.

    Raises:
        InputError: for a comparison with `doubts`, and where the kernel cannot tell models
            apart.

    >>> from relfit import JointEstimate, decide
    >>> joint = JointEstimate(("old", "new", "other"), [0.1, 0.9, 0.0], 0.01 * np.eye(3))
    >>> result = decide(joint)
    >>> judge(result, "new", "old").verdict, judge(result, "old", "new").verdict
    ('worse', 'non-inferior')
    >>> judge(result, "old").verdict
    'inconclusive'
    """
    gate = ask(comparison, name, against, require=require)
    if gate.verdict == NO_ANSWER:
        raise InputError(gate.words)
    return gate


def ask(
    comparison: Comparison, name: str, against: str | None = None, *, require: str | None = None
) -> Gate:
    """As `judge`, but without an answer a gate of the verdict "error", for outputs to show."""
    asked = ask_gate(comparison.names, name, against, margin=comparison.margin, require=require)
    opponent = against or comparison.best
    asked = replace(asked, against=opponent)
    if comparison.doubts:
        return asked.doubtful(comparison.doubts)
    others = comparison.indistinguishable(name)
    if others if opponent == name else opponent in others:
        whom = "the other models" if opponent == name else repr(opponent)
        return _blind(asked, comparison.kernel, whom)
    return (_of_table if against is None else _of_pair)(comparison, asked, opponent)


def judge_pair(pair: PairComparison, *, require: str | None = None) -> Gate:
    """The gate of the first model against the second; without an answer of the verdict
    "error".
    """
    name, against = pair.names
    asked = ask_gate(
        pair.names, name, against, margin=pair.margin, require=require, pvalue=pair.pvalue
    )
    if pair.doubts:
        return asked.doubtful(pair.doubts)
    if "indistinguishable" in pair.status:
        if pair.kernel is not None and pair.discrepancy == (0.0, 0.0):
            return _blind(asked, pair.kernel, repr(against))
        if _is_sample(pair, name):
            return replace(asked, words=_same_rows(name, [against]))
    selective = pair.test == RelPSI.name
    # RelPSI's p-value for the reverse hypothesis is twice that of the z test.
    reverse = (2.0 if selective else 1.0) * float(ndtr(pair.statistic))
    depends = "this verdict depends on the bandwidth"
    test = RelPSI() if selective else BestSet()
    return asked.answered(
        pair.worse,
        bool(pair.equivalent if pair.margin else reverse <= pair.alpha),
        quoted(against),
        evidence=f" ({_evidence(pair.pvalue, pair.alpha)})",
        more=lambda: _more(pair.difference - pair.margin, pair.standard_error, pair, test),
        remarks=[depends] if pair.robust_to_bandwidth is False else [],
    )


def judge_monitor(
    result: MonitorResult,
    name: str,
    against: str | None = None,
    *,
    margin: float = 0.0,
    require: str | None = None,
    doubts: Sequence[str] = (),
) -> Gate:
    """The gate of one model, wrong at any look with probability at most alpha.

    Without a margin a model is worse once it is out, and it stays out; it is non-inferior
    once all others are out. Against a model that was named beforehand the e-values of this
    pair decide, after the last item. With a margin δ the limits for all pairs decide: worse
    where some lower limit is above δ, non-inferior where every upper limit is at most δ.
    `doubts` are reasons why the scores are not comparable: the verdict is then "error".
    """
    asked = ask_gate(result.names, name, against, margin=margin, require=require)
    if doubts:
        return asked.doubtful(doubts)
    own = result.names.index(name)
    others = [j for j in range(len(result.names)) if j != own]
    others = others if against is None else [result.names.index(against)]
    level = math.log(1.0 / result.alpha)
    since = ""
    if margin:
        beater = others[int(np.argmax(result.lower[own, others]))]
        low = float(result.lower[own, beater])
        high = float(result.upper[own, beater])
        worse = low > margin
        shown = bool((result.upper[own, others] <= margin).all())
        evidence = f"{100.0 * (1.0 - result.alpha):g}% limits {low:.3g} to {high:.3g}"
        # The distance of the limits shrinks like 1/√n.
        gap = abs((low + high) / 2.0 - margin)
        growth = ((high - low) / (2.0 * gap)) ** 2 if gap > 0.0 else math.inf
    else:
        if against is None:
            worse = bool(result.worse[own])
            shown = result.confidence_set == (name,)
            log_evalue = largest = float(result.log_peak[own])
            since = f" since item {result.out_after[own]}"
        else:
            log_evalue = float(result.log_pair_evalue[own, others[0]])
            reverse = float(result.log_pair_evalue[others[0], own])
            worse = log_evalue >= level
            shown = reverse >= level
            largest = max(log_evalue, reverse)
        evidence = f"e-value {show_log_evalue(log_evalue)}, α = {result.alpha:g}"
        # The logarithm of an e-value goes on growing as it has so far.
        growth = level / largest if largest > 0.0 else math.inf
    any_other = "another model" if worse else "any other model"
    more = result.items * (growth - 1.0)
    advice = ""
    if 1.0 <= more <= MOST_ITEMS:
        advice = f"at this rate about {about(more)} more items would decide"
    return asked.answered(
        worse,
        shown,
        any_other if against is None else quoted(against),
        evidence=f"{since} ({evidence})",
        otherwise=f", after {counted_items(result.items)}",
        more=lambda: advice,
    )


def _blind(asked: Gate, kernel: Any, whom: str) -> Gate:
    """The gate where no data could have changed the answer."""
    return asked.without_answer(
        f"kernel: expected one that separates {asked.name!r} from {whom}, got "
        f"{kernel.describe()}, which has the same value on all their pairs of rows; choose a "
        "bandwidth near the median distance"
    )


def _of_table(comparison: Comparison, asked: Gate, best: str) -> Gate:
    """The verdict of the table."""
    name = asked.name
    row = comparison[name]
    evidence = _evidence(row["adjusted_pvalue"], comparison.alpha)
    at_best = kind_of(row["verdict"]) == "best"
    worse = row["worse"]
    # The best set shows only that some model is better: the one that beats this one most
    # clearly.
    beaters = dict(zip(comparison.names, comparison.beaten_by or (), strict=False))
    opponent = beaters.get(name) or best
    copied = [] if worse else _copies(comparison, name)

    def more() -> str:
        if at_best and not TESTS[comparison.test].tests_best:
            return "it was selected as the best, and this test does not test the selected model"
        return _more_rows(comparison, name)

    asked = replace(asked, against=opponent, fixed=False, pvalue=row["adjusted_pvalue"])
    return asked.answered(
        worse,
        not worse and _is_shown(comparison, row, at_best),
        quoted(opponent) if worse else "any other model" if at_best else "the best",
        evidence=f" ({evidence})",
        more=more,
        said=comparison.wording.worse.shown,
        remarks=[
            _copy_words(comparison, name, copied) if copied else "",
            _bandwidth_words(comparison, [name]),
        ],
    )


def _is_shown(comparison: Comparison, row: dict[str, Any], at_best: bool) -> bool:
    """Whether the model is shown to be non-inferior to the best one, within the margin."""
    name = row["name"]
    untested = at_best and not TESTS[comparison.test].tests_best
    if untested or (_is_sample(comparison, name) and _copies(comparison, name)):
        return False
    if comparison.margin:
        return bool(row["equivalent"])
    if not at_best or isinstance(comparison.kernel, Collection):
        return False
    at = comparison.names.index(name)
    # Equal scores on these items prove nothing about others; an equal density is the same
    # model.
    equal = comparison.kinds.count("best") > 1 or "tie" in comparison.status[at]
    if equal and measure_of(comparison).kind == "values":
        return False
    return bool(comparison.upper_bound(1.0 - comparison.alpha)[at] <= 0.0)


def _of_pair(comparison: Comparison, asked: Gate, against: str) -> Gate:
    """The test of one pair that was named beforehand."""
    name = asked.name
    margin = asked.margin
    alpha = comparison.alpha
    asked = replace(asked, pvalue=1.0)
    if against in _copies(comparison, name):
        verdict = INCONCLUSIVE if _is_sample(comparison, name) else NON_INFERIOR
        return replace(asked, verdict=verdict, words=_copy_words(comparison, name, [against]))
    out = [each in comparison.impossible for each in (name, against)]
    if all(out):
        return asked.answered(False, False, quoted(against))
    if any(out):
        decision = impossible_pair(out[0], margin)
        shown = not out[0]
    else:
        originals = comparison.originals()
        models = [originals[each] for each in (name, against)]
        both = comparison.distinct(models)
        pair = both.at([both.names.index(each) for each in models], (name, against))
        decision = relative_test(pair, alpha, margin, comparison.seed or 0)
        shown = reverse_log_pvalue(pair, margin) <= math.log(alpha)
    pvalue = math.exp(decision.log_pvalue)
    gap = decision.difference - margin
    return replace(asked, pvalue=pvalue).answered(
        pvalue <= alpha,
        bool(shown),
        quoted(against),
        evidence=f" (this pair only: {_evidence(pvalue, alpha)})",
        more=lambda: _more(gap, decision.standard_error, comparison, BestSet()),
        remarks=[_bandwidth_words(comparison, [name, against])],
    )


def _bandwidth_words(comparison: Comparison, names: Sequence[str]) -> str:
    """A clause about the verdicts among these that change at half or twice the bandwidth."""
    changing = [name for name in names if bandwidth_remark(comparison[name])]
    if not changing:
        return ""
    many = len(changing) > 1
    verb = "depend" if many else "depends"
    return f"the verdict{'s' * many} on {listed(changing)} {verb} on the bandwidth"


def _copies(comparison: Comparison, name: str) -> list[str]:
    """The other models that are the same as this one."""
    original = comparison.originals()
    others = [other for other in comparison.names if other != name]
    return [other for other in others if original[other] == original[name]]


def _is_sample(result: Comparison | PairComparison, name: str) -> bool:
    """Whether this model is a sample whose rows were recorded; densities have none."""
    digests = (result.inputs or {}).get("models") or {}
    return digests.get(name) is not None


def _copy_words(comparison: Comparison, name: str, copied: Sequence[str]) -> str:
    if _is_sample(comparison, name):
        return _same_rows(name, copied)
    return f"{quoted(name)} is a duplicate of {listed(copied)}"


def _same_rows(name: str, others: Sequence[str]) -> str:
    same = f"{quoted(name)} holds the same rows as {listed(others)}"
    return f"{same}; draw new samples if it is a different model"


def _evidence(pvalue: float, alpha: float) -> str:
    return f"p-value {show_pvalue(pvalue, alpha)}, α = {alpha:g}"


# ── how many more rows would decide ───────────────────────────────────────────────────────────


def _more_rows(comparison: Comparison, name: str) -> str:
    """How many more rows the table would need for a model, from its largest (D_i − D_j −
    δ)/s_ij.

    Where that is positive the model would be shown to be worse than j, and where it is
    negative to be non-inferior. Tests other than the best set compare with the selected
    model only.
    """
    joint = comparison.distinct()
    original = comparison.originals()[name]
    several = isinstance(comparison.kernel, Collection)
    # With training runs or judges more items alone may not decide.
    if original not in joint.names or len(joint.names) < 2 or several or joint.components:
        return ""
    i = joint.names.index(original)
    j = joint.names.index(comparison.originals()[comparison.best])
    test = used_test(comparison)
    if test.tests_best:
        j = int(np.argmax(differences(joint, comparison.margin).ratio[i]))
    gap = float(joint.values[i] - joint.values[j]) - comparison.margin
    error = math.sqrt(difference_variance(joint.covariance, i, j))
    hypotheses = 1 if comparison.correction == "none" else len(joint.names)
    return _more(gap, error, comparison, test, hypotheses)


def _more(
    gap: float,
    error: float,
    result: Comparison | PairComparison,
    test: Test,
    hypotheses: int = 1,
) -> str:
    """About how many more rows would decide with probability 0.8, if the gap is what it
    looks like.

    The plan for two models with this gap, which is less the margin, and this standard error, at
    the level α over the number of hypotheses; "" where planning cannot tell.
    """
    rows = min((size for size in result.sizes or () if size > 0), default=0)
    if rows == 0 or not error > 0.0 or not 0.0 < abs(gap) < math.inf:
        return ""
    pilot = Assumed(abs(gap), standard_error=error / math.sqrt(2.0), n=rows)
    options: dict[str, Any] = {"correction": "none", "trials": 200, "rng": 0, "progress": False}
    forecast = plan(pilot, alpha=result.alpha / hypotheses, tests=test, **options)
    # A test that splits the rows has used more of them than the estimate was made from.
    more = forecast.forecasts[0].n_needed - rows / (1.0 - (test.split or 0.0))
    unit = row_word(result.measure)
    if math.isinf(more):
        without = "" if result.margin else " without a margin"
        return (
            f"more than {about(forecast.most)} more {unit} would be needed to decide{without}"
        )
    return f"about {about(more)} more {unit} would decide" if more >= 1.0 else ""


# ── outputs ───────────────────────────────────────────────────────────────────────────────────


def gate_markdown(comparison: Comparison, gate: Gate | None = None) -> str:
    """The answer, the settings, the table and the notes, for the summary of a job or a comment.

    >>> from relfit import JointEstimate, decide
    >>> result = decide(JointEstimate(("old", "new"), [0.1, 0.9], 0.01 * np.eye(2)))
    >>> print(gate_markdown(result, judge(result, "new")).splitlines()[0])
    **Gate failed:** new is significantly worse than old (p-value 1.5e-8, α = 0.05).
    """
    answer = ""
    if gate is not None:
        answer = f"**{gate.heading}:** {markdown_text(gate.reason)}."
    notes = [f"Note: {markdown_text(note)}" for note in comparison.warnings]
    sentences = "\n".join(markdown_text(sentence) for sentence in below(comparison))
    parts = [answer, to_markdown(comparison), sentences, *notes]
    parts.append(f"<sub>{markdown_text(header(comparison))}</sub>")
    # A name such as @team must not call anybody.
    return "\n\n".join(part for part in parts if part).replace("@", "&#64;") + "\n"


def assert_not_worse(
    comparison: Comparison, name: str, against: str | None = None, *, require: str | None = None
) -> None:
    """For tests: raise AssertionError if this model is worse than the best one, or than
    `against`.

    With ``require="non-inferior"`` also where the answer is inconclusive, for which the
    comparison needs a `margin`. The message has the answer, the table and what to do next.
    `comparison` is what `relfit.compare` or `relfit.compare_losses` returned; one whose
    verdicts are not reliable (`doubts`) raises InputError.

    >>> from relfit import JointEstimate, decide
    >>> joint = JointEstimate(("old", "new"), [0.1, 0.2], 0.01 * np.eye(2))
    >>> assert_not_worse(decide(joint), "new")
    """
    __tracebackhide__ = True
    check_passed(comparison, ask(comparison, name, against, require=require))


def check_passed(comparison: Comparison, gate: Gate) -> None:
    """Raise AssertionError if the gate failed, and InputError if it has no answer."""
    __tracebackhide__ = True
    if gate.verdict == NO_ANSWER:
        raise InputError(gate.words)
    if not gate.failed:
        return
    alpha = comparison.alpha
    advice = ["Look at where the models differ: comparison.report('report.html', data)."]
    if gate.verdict == WORSE:
        gap = _difference(comparison, gate)
        if math.isfinite(gap):
            margin = "compare with a margin above it"
            advice.append(f"If a difference of {gap:.2g} does not matter to you, {margin}.")
        advice.append(
            f"At alpha = {alpha:g}, up to one of {1 / alpha:.0f} models that are no "
            f"worse fails. Use a smaller alpha in a test that runs daily."
        )
    else:
        advice.append("Compare on more data, or with a larger margin, chosen before you look.")
    listed_advice = "\n".join(f"- {each}" for each in advice)
    raise AssertionError(f"{gate.sentence}\n\n{comparison}\n\nWhat to do:\n{listed_advice}")


def junit_xml(comparison: Comparison, gate: Gate | None = None, seconds: float = 0.0) -> str:
    """A test suite with a case for each model, in the order of the table.

    The gated case fails if the gate does, also if it is inconclusive where non-inferiority
    is required, because then the job fails; without an answer it is an error. Other models
    never
    fail: that a known weak one is worse must not stop a release. The standard output of a
    case has what was found about its model, for the gated one in the gate's words; that of
    the suite has the gate and the table. Each case has an equal fraction of the `seconds`
    that the comparison took.

    >>> from relfit import JointEstimate, decide
    >>> result = decide(JointEstimate(("old", "new"), [0.1, 0.9], 0.01 * np.eye(2)))
    >>> root = ElementTree.fromstring(junit_xml(result, judge(result, "new")))
    >>> root.find("testsuite").attrib["failures"]
    '1'
    """
    table = str(comparison)
    tag = ""
    if gate is not None and gate.failed:
        tag = "error" if gate.verdict == NO_ANSWER else "failure"
    counts = {
        "tests": str(len(comparison.names)),
        "failures": str(int(tag == "failure")),
        "errors": str(int(tag == "error")),
        "skipped": "0",
    }
    command = _legal(visible((comparison.command or ("compare",))[0]))
    root = ElementTree.Element("testsuites", {"name": "relfit", **counts})
    named = {"name": f"relfit {command}", "time": f"{seconds:.3f}", **counts}
    suite = ElementTree.SubElement(root, "testsuite", named)
    timed = {"classname": f"relfit.{command}", "time": f"{seconds / len(comparison.names):.3f}"}
    for row in comparison.rows():
        case = ElementTree.SubElement(
            suite, "testcase", {"name": _legal(visible(row["name"])), **timed}
        )
        gated = gate if gate is not None and row["name"] == gate.name else None
        if gated is not None and tag:
            why = {"type": gated.verdict, "message": _legal(gated.sentence)}
            ElementTree.SubElement(case, tag, why).text = _legal(table)
        ElementTree.SubElement(case, "system-out").text = _legal(_about(comparison, row, gated))
    said = table if gate is None else f"{gate.sentence}\n\n{table}"
    ElementTree.SubElement(suite, "system-out").text = _legal(said)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False)


def _about(comparison: Comparison, row: dict[str, Any], gate: Gate | None) -> str:
    """What was found about a model; about the gated one, compared with the gate's opponent."""
    alpha = comparison.alpha
    error = f"{row['standard_error']:.2g}"
    value = f"{measure_of(comparison).name} {row['discrepancy']:.6g} ± {error}"
    said = "; ".join([row["verdict"], *bandwidth_remark(row)]) if gate is None else gate.words
    whom = "the best"
    gap = NOTHING if row["best"] else f"{row['difference']:.6g}"
    p = show_pvalue(row["adjusted_pvalue"], alpha) if is_tested(row) else NOTHING
    if gate is not None and gate.pvalue is not None:
        whom = quoted(gate.against or "") if gate.fixed else whom
        gap = f"{_difference(comparison, gate):.6g}"
        p = show_pvalue(gate.pvalue, alpha)
    return f"{said}; {value}; difference to {whom} {gap}; p-value {p}"


def _difference(comparison: Comparison, gate: Gate) -> float:
    """D of the gated model less that of its opponent."""
    own, other = (comparison.names.index(str(each)) for each in (gate.name, gate.against))
    # Two infinite numbers have no difference.
    if {gate.name, gate.against} <= set(comparison.impossible):
        return 0.0
    return float(comparison.estimates[own] - comparison.estimates[other])


def _legal(shown: str) -> str:
    return _ILLEGAL.sub("\ufffd", shown)
