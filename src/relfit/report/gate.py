"""May this model be released? One question to a finished comparison, answered yes or no.

The answer in words, for the page and the result file, and as a JUnit file for the dashboards of continuous integration.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from relfit.report.formats import markdown_text, to_markdown
from relfit.report.text import NOTHING, is_tested, show_pvalue
from relfit.report.words import alone_words, header, measure_of, summary
from relfit.results.comparison import Comparison
from relfit.results.grade import CLEARLY_WORSE, EQUIVALENT, OPEN, SAME, WORSE
from relfit.stats.joint import JointEstimate
from relfit.stats.pairs import relative_z
from relfit.util.errors import InputError
from relfit.util.text import listed, quoted, visible

# What XML 1.0 cannot hold, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Gate:
    """The answer for one model, which fails only where it is worse than `against`, by the correction asked for.

    Attributes:
        name, against: the model, and the one it was compared with.
        failed: the answer.
        pvalue: of "no worse than `against`", in the best set of "as good as every other model"; adjusted where the
            comparison's p-values are.
        fixed: True if `against` was named beforehand (a one-sided z test of this pair alone). Otherwise it is the best
            model, and for one that the best set rejects the model that beats it.
        equivalent: True if the model was shown to be within the margin; None without one.
        grade: the model's grade in the comparison; of a fixed pair that of this one test, which is taken alone.
    """

    name: str
    against: str
    failed: bool
    pvalue: float
    fixed: bool
    equivalent: bool | None
    grade: str


def judge(comparison: Comparison, name: str, against: str | None = None) -> Gate:
    """The gate of one model, against the best or against a model named beforehand.

    Without `against` it is the comparison's verdict. With it the fixed hypothesis D_name ≤ D_against + margin is tested
    at the comparison's level: a one-sided z test on the same estimates, which no choice of a best model has touched.
    A kernel that cannot tell the models apart is refused.

    >>> from relfit import decide
    >>> result = decide(JointEstimate(("old", "new", "other"), [0.1, 0.9, 0.0], 0.01 * np.eye(3)))
    >>> judge(result, "new", "old").failed, judge(result, "old", "new").failed
    (True, False)
    """
    for argument, value in (("name", name), ("against", against)):
        if value is not None and value not in comparison.names:
            raise InputError(f"{argument}: expected the name of a model, got {value!r}")
    if against == name:
        raise InputError(f"against: expected a model other than {name!r}, got {against!r}")
    others, opponent = comparison.indistinguishable(name), against or comparison.best
    if comparison.kernel is not None and (others if opponent == name else opponent in others):
        # No data could have changed this answer: the kernel takes the same value on all pairs of rows.
        whom = "the other models" if opponent == name else repr(opponent)
        raise InputError(
            f"kernel: expected one that can tell {name!r} from {whom}, got {comparison.kernel.describe()}, which takes "
            "the same value on all their pairs of rows; choose a bandwidth near the median distance"
        )
    if against is None:
        row = next(row for row in comparison.rows() if row["name"] == name)
        # The best set shows only that some model is better: the opponent is the one that beats this one most clearly.
        beaters = dict(zip(comparison.names, comparison.beaten_by or (), strict=False))
        opponent, p = beaters.get(name) or opponent, row["adjusted_pvalue"]
        return Gate(name, opponent, row["worse"], p, False, row["equivalent"], row["grade"])
    originals = comparison.originals()
    if originals[name] == originals[against]:
        return Gate(name, against, False, 1.0, True, True if comparison.margin else None, SAME.name)
    if {name, against} & set(comparison.impossible):
        failed = name in comparison.impossible and against not in comparison.impossible
        equivalent, grade = not failed if comparison.margin else None, (WORSE if failed else OPEN).name
        return Gate(name, against, failed, 0.0 if failed else 1.0, True, equivalent, grade)
    at = [comparison.names.index(name), comparison.names.index(against)]
    pair = JointEstimate((name, against), comparison.estimates[at], comparison.covariance[np.ix_(at, at)])
    decision = relative_z(pair, comparison.alpha, comparison.margin)
    pvalue = math.exp(decision.log_pvalue)
    failed = pvalue <= comparison.alpha
    found = WORSE if failed else EQUIVALENT if decision.equivalent else OPEN
    return Gate(name, against, failed, pvalue, True, decision.equivalent, found.name)


def gate_words(comparison: Comparison, gate: Gate) -> str:
    """One sentence: the model is worse or clearly worse, or there is no evidence of it, or it is a copy."""
    name = quoted(gate.name)
    whom = quoted(gate.against) if gate.failed else _opponent(gate)
    than = f" by more than {comparison.margin:g}" if comparison.margin else ""
    p = show_pvalue(gate.pvalue, comparison.alpha)
    if gate.failed:
        worse = "clearly worse" if gate.grade == CLEARLY_WORSE.name else "worse"
        alone = f" {alone_words(comparison)}" if gate.grade == WORSE.name and not gate.fixed else ""
        pair = "this pair alone: " if gate.fixed else ""
        return f"{name} is {worse} than {whom}{than}{alone} ({pair}p-value {p}, level {comparison.alpha:g})"
    if gate.grade == WORSE.name:
        # A correction for all models was asked for, and the verdict does not hold with it.
        return (
            f"{name} is worse than {whom}{than} {alone_words(comparison)}, but not when all models are allowed for "
            f"(p-value {p}, level {comparison.alpha:g})"
        )
    passed = f"no evidence that {name} is worse than {whom}{than}"
    if gate.equivalent:
        passed = f"{name} is within {comparison.margin:g} of {whom}"
    # With a fixed opponent only a copy of that one counts.
    stand_for = comparison.originals()
    others = [gate.against] if gate.fixed else [other for other in comparison.names if other != gate.name]
    copied = [other for other in others if stand_for[other] == stand_for[gate.name]]
    if not copied:
        return passed
    # A copy has its rows in common, which new samples would change; a density has none.
    same = f"{name} holds the same rows as {listed(copied)}; draw new samples if it is a different model"
    if ((comparison.inputs or {}).get("models") or {}).get(gate.name) is None:
        same = f"{name} is a duplicate of {listed(copied)}"
    return same if gate.against in copied else f"{passed}, but {same}"


def gate_sentence(comparison: Comparison, gate: Gate) -> str:
    """The answer with its words, as the page, the result file and the JUnit file have it.

    >>> from relfit import decide
    >>> result = decide(JointEstimate(("old", "new"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))
    >>> gate_sentence(result, judge(result, "new", "old"))
    'Gate failed: new is worse than old (this pair alone: p-value 7.7e-9, level 0.05).'
    """
    return f"Gate {_verdict(gate)}: {gate_words(comparison, gate)}."


def gate_record(comparison: Comparison, gate: Gate) -> dict[str, Any]:
    """The gate as the result file has it."""
    sentence = gate_sentence(comparison, gate)
    shown = dict(model=gate.name, against=gate.against, verdict=_verdict(gate), grade=gate.grade)
    return dict(**shown, pvalue=gate.pvalue, sentence=sentence)


def gate_markdown(comparison: Comparison, gate: Gate | None = None) -> str:
    """The answer, the settings, the table and the notes, for the summary of a job or a comment on a pull request.

    >>> from relfit import decide
    >>> result = decide(JointEstimate(("old", "new"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))
    >>> print(gate_markdown(result, judge(result, "new")).splitlines()[0])
    **Gate failed:** new is clearly worse than old (p-value 7.7e-9, level 0.05).
    """
    answer = "" if gate is None else f"**Gate {_verdict(gate)}:** {markdown_text(gate_words(comparison, gate))}."
    notes = [f"Note: {markdown_text(note)}" for note in comparison.warnings]
    parts = [answer, to_markdown(comparison), markdown_text(summary(comparison)), *notes]
    parts.append(f"<sub>{markdown_text(header(comparison))}</sub>")
    # A name such as @team must not call anybody.
    return "\n\n".join(part for part in parts if part).replace("@", "&#64;") + "\n"


def assert_not_worse(comparison: Comparison, name: str, against: str | None = None) -> None:
    """For tests: raise AssertionError if this model is worse than the best one, or than `against`.

    The message has the answer, the table, and what to do next. `comparison` is what `relfit.compare` or
    `relfit.compare_losses` returned.

    >>> from relfit import decide
    >>> assert_not_worse(decide(JointEstimate(("old", "new"), [0.1, 0.2], 0.01 * np.eye(2))), "new")
    """
    __tracebackhide__ = True
    gate = judge(comparison, name, against)
    if not gate.failed:
        return
    gap = float(np.subtract(*(comparison.estimates[comparison.names.index(each)] for each in (name, gate.against))))
    advice = ["Look at where the models differ: comparison.report('report.html', data)."]
    if math.isfinite(gap):
        advice.append(f"If a difference of {gap:.2g} does not matter to you, compare with a margin above it.")
    advice.append(
        f"At alpha = {comparison.alpha:g}, up to one of {1 / comparison.alpha:.0f} models that are no worse fails; "
        "a test that runs daily wants a smaller alpha."
    )
    lines = [gate_sentence(comparison, gate), "", str(comparison), "", "What to do:"]
    raise AssertionError("\n".join([*lines, *(f"- {each}" for each in advice)]))


def junit_xml(comparison: Comparison, gate: Gate | None = None, seconds: float = 0.0) -> str:
    """A test suite with a case for each model, in the order of the table; the gated one fails if the gate does.

    Other models never fail: that a known weak one is worse must not stop a release. The standard output of a case says
    what was found about its model, for the gated one in the gate's words; that of the suite has the gate and the table.
    Models are compared together: each case has an equal share of the `seconds` it took.

    >>> from relfit import decide
    >>> result = decide(JointEstimate(("old", "new"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))
    >>> ElementTree.fromstring(junit_xml(result, judge(result, "new"))).find("testsuite").attrib["failures"]
    '1'
    """
    table = str(comparison)
    failures = str(int(gate is not None and gate.failed))
    counts = {"tests": str(len(comparison.names)), "failures": failures, "errors": "0", "skipped": "0"}
    root = ElementTree.Element("testsuites", {"name": "relfit", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "relfit compare", "time": f"{seconds:.3f}", **counts})
    timed = {"classname": "relfit.compare", "time": f"{seconds / len(comparison.names):.3f}"}
    for row in comparison.rows():
        name = _legal(visible(row["name"]))
        case = ElementTree.SubElement(suite, "testcase", {"name": name, **timed})
        gated = gate if gate is not None and row["name"] == gate.name else None
        if gated is not None and gated.failed:
            message = _legal(gate_words(comparison, gated))
            failure = ElementTree.SubElement(case, "failure", {"type": "worse", "message": message})
            failure.text = _legal(table)
        ElementTree.SubElement(case, "system-out").text = _legal(_about(comparison, row, gated))
    sentence = [] if gate is None else [gate_sentence(comparison, gate)]
    ElementTree.SubElement(suite, "system-out").text = _legal("\n\n".join([*sentence, table]))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False)


def _about(comparison: Comparison, row: dict[str, Any], gate: Gate | None) -> str:
    """What was found about a model; about the gated one beside the model that the gate compares it with."""
    value = f"{measure_of(comparison).name} {row['discrepancy']:.6g} ± {row['standard_error']:.2g}"
    if gate is None:
        gap = NOTHING if row["best"] else f"{row['difference']:.6g}"
        p = show_pvalue(row["adjusted_pvalue"], comparison.alpha) if is_tested(row) else NOTHING
        return f"{row['verdict']}; {value}; difference to the best {gap}; p-value {p}"
    own, other = (comparison.names.index(each) for each in (gate.name, gate.against))
    # Two infinite numbers have no difference.
    both = {gate.name, gate.against} <= set(comparison.impossible)
    difference = 0.0 if both else comparison.estimates[own] - comparison.estimates[other]
    found = f"difference to {_opponent(gate)} {difference:.6g}; p-value {show_pvalue(gate.pvalue, comparison.alpha)}"
    return f"{gate_words(comparison, gate)}; {value}; {found}"


def _verdict(gate: Gate) -> str:
    return "failed" if gate.failed else "passed"


def _opponent(gate: Gate) -> str:
    return quoted(gate.against) if gate.fixed else "the best"


def _legal(shown: str) -> str:
    return _ILLEGAL.sub("\ufffd", shown)
