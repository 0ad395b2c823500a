"""The gate: the verdict, or a fixed pair; and the JUnit file, read by an XML parser."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from refusals import refused
from scipy.special import ndtr

import relfit
from relfit.gate import judge
from relfit.report.gate import gate_words, junit_xml


def test_without_against_it_is_the_verdict(make):
    result = make([0.0, 0.1, 5.0], correction="by")
    for row in result.rows():
        gate = judge(result, row["name"])
        assert (gate.failed, gate.pvalue, gate.against) == (row["worse"], row["adjusted_pvalue"], "m1")


def test_a_fixed_pair_by_hand():
    """D = 0.3 − 0.1 = 0.2, s² = 0.01 + 0.01 − 2·0.005 = 0.01: z = 2, p = Φ(−2) = 0.0228; the best is neither."""
    covariance = 0.005 * np.ones((3, 3)) + 0.005 * np.eye(3)
    result = relfit.decide(relfit.JointEstimate(("best", "old", "new"), [0.0, 0.1, 0.3], covariance))
    gate = judge(result, "new", "old")
    assert gate.pvalue == pytest.approx(ndtr(-2.0), rel=1e-12)
    assert (gate.failed, gate.fixed, gate.against) == (True, True, "old")
    assert not judge(result, "old", "new").failed


def test_a_fixed_pair_is_compare_pair(rng):
    data, models = rng.normal(size=(80, 2)), [rng.normal(m, 1, (80, 2)) for m in (0.0, 0.3, 0.2)]
    result = relfit.compare(data, dict(zip("abc", models, strict=True)), rng=0)
    kernel = result.kernel
    pair = relfit.compare_pair(data, models[1], models[2], kernel=kernel, rng=0)
    assert judge(result, "b", "c").pvalue == pytest.approx(pair.pvalue, rel=1e-9)


def test_a_margin_is_kept():
    joint = relfit.JointEstimate(("old", "new"), [0.1, 0.4], 0.0001 * np.eye(2))
    assert judge(relfit.decide(joint), "new", "old").failed
    wide = judge(relfit.decide(joint, margin=0.5), "new", "old")
    assert not wide.failed
    assert wide.equivalent
    assert "within 0.5 of old" in gate_words(relfit.decide(joint, margin=0.5), wide)


def test_copies_pass(rng):
    data, a = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    result = relfit.compare(data, {"a": a, "copy": a, "b": rng.normal(1, 1, (40, 2))}, rng=0)
    assert not judge(result, "copy", "a").failed
    assert judge(result, "copy", "a").pvalue == 1.0


@pytest.mark.parametrize("bandwidth", [1e-6, 1e12])
def test_a_kernel_that_sees_nothing_gives_no_answer(rng, bandwidth):
    """Whoever is asked about, the model called best included; but a copy is its original whatever the kernel sees."""
    data, a = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    models = {"a": a, "far": rng.normal(3, 1, (40, 2)), "copy": a}
    result = relfit.compare(data, models, kernel=relfit.Gaussian(bandwidth), rng=0)
    for name, against in [("a", None), ("far", None), ("far", "a"), ("a", "far"), ("copy", "far")]:
        refused(lambda name=name, against=against: judge(result, name, against), "kernel: expected one that can tell")
    assert not judge(result, "copy", "a").failed
    assert "cannot be told apart with this kernel" in str(result)
    pair = relfit.compare_pair(data, a, models["far"], kernel=relfit.Gaussian(bandwidth), rng=0)
    assert "cannot be told apart with this kernel" in str(pair)


def test_scores_without_variance_are_no_blind_kernel():
    """No kernel: equal scores that never vary are equal."""
    result = relfit.decide(relfit.JointEstimate(("a", "b"), [1.0, 1.0], np.zeros((2, 2))))
    assert not judge(result, "b").failed
    assert "kernel" not in str(result)


def test_names_must_be_models(make):
    result = make([0.0, 1.0])
    refused(lambda: judge(result, "m3"), "name: expected the name of a model, got 'm3'")
    refused(lambda: judge(result, "m1", "m3"), "against: expected the name of a model, got 'm3'")
    refused(lambda: judge(result, "m1", "m1"), "another model")


def _suite(text):
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite"
    return suite


def test_one_case_for_each_model_and_only_the_gated_one_fails(make):
    result = make([0.0, 5.0, 6.0], names=["a", "b", "c"])
    suite = _suite(junit_xml(result, judge(result, "b")))
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["a", "b", "c"]
    assert [case.find("failure") is not None for case in cases] == [False, True, False]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    failure = cases[1].find("failure")
    assert failure.get("message") == gate_words(result, judge(result, "b"))
    assert "significantly worse than a (p-value" in failure.get("message")
    assert str(result) in failure.text
    assert "worse" in cases[2].find("system-out").text


def test_a_gate_that_passes_fails_nothing(make):
    result = make([0.0, 5.0])
    for gate in (None, judge(result, "m1"), judge(result, "m1", "m2")):
        suite = _suite(junit_xml(result, gate))
        assert suite.get("failures") == "0"
        assert suite.find(".//failure") is None


def test_any_name_makes_well_formed_xml(odd):
    gate = judge(odd, odd.names[5])
    suite = _suite(junit_xml(odd, gate))
    names = [case.get("name") for case in suite.findall("testcase")]
    assert "<script>alert(1)</script>" in names
    assert "two\\nlines" in names
    assert len(names) == len(odd.names)


def test_characters_that_xml_cannot_hold(make):
    result = make([0.0, 5.0], names=["a\ufffe\x00", "b"])
    assert _suite(junit_xml(result, judge(result, "b"))).find("testcase").get("name") == "a\ufffd\\x00"
