"""The gate in words, and as a JUnit file for the dashboards of continuous integration."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from relfit.gate import Gate
from relfit.report import words
from relfit.report.table import show_pvalue, text
from relfit.result import Comparison

# What XML 1.0 cannot hold, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def gate_words(comparison: Comparison, gate: Gate) -> str:
    """One sentence: the model is significantly worse, or there is no evidence of it."""
    name = words.quoted(gate.name)
    whom = words.quoted(gate.against) if gate.fixed or gate.failed else "the best"
    than = f" by more than {comparison.margin:g}" if comparison.margin else ""
    if gate.failed:
        p = show_pvalue(gate.pvalue, comparison.alpha)
        return f"{name} is significantly worse than {whom}{than} (p-value {p}, level {comparison.alpha:g})"
    if gate.equivalent:
        return f"{name} is within {comparison.margin:g} of {whom}"
    return f"no evidence that {name} is worse than {whom}{than}"


def junit_xml(comparison: Comparison, gate: Gate | None = None) -> str:
    """A test suite with a case for each model, in the order of the table; the gated one fails if the gate does.

    Other models never fail: that a known weak one is worse must not stop a release. What was found about each is
    its standard output, the whole table that of the suite.

    >>> from relfit import JointEstimate, decide
    >>> from relfit.gate import judge
    >>> result = decide(JointEstimate(("old", "new"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))
    >>> ElementTree.fromstring(junit_xml(result, judge(result, "new"))).find("testsuite").attrib["failures"]
    '1'
    """
    failures = str(int(gate is not None and gate.failed))
    counts = {"tests": str(len(comparison.names)), "failures": failures, "errors": "0", "skipped": "0"}
    root = ElementTree.Element("testsuites", {"name": "relfit", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "relfit compare", "time": "0", **counts})
    for row in comparison.rows():
        name = _legal(words.visible(row["name"]))
        case = ElementTree.SubElement(suite, "testcase", {"classname": "relfit.compare", "name": name, "time": "0"})
        if gate is not None and gate.failed and row["name"] == gate.name:
            message = _legal(gate_words(comparison, gate))
            failure = ElementTree.SubElement(case, "failure", {"type": "worse", "message": message})
            failure.text = _legal(text(comparison))
        ElementTree.SubElement(case, "system-out").text = _about(comparison, row["name"])
    ElementTree.SubElement(suite, "system-out").text = _legal(text(comparison))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False)


def _about(comparison: Comparison, name: str) -> str:
    row = next(row for row in comparison.rows() if row["name"] == name)
    p = show_pvalue(row["adjusted_pvalue"], comparison.alpha)
    value = f"{words.measure_name(comparison)} {row['discrepancy']:.6g} ± {row['standard_error']:.2g}"
    return f"{row['verdict']}; {value}; difference to the best {row['difference']:.6g}; p-value {p}"


def _legal(shown: str) -> str:
    return _ILLEGAL.sub("\ufffd", shown)
