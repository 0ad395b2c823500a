"""The gate: the verdict, or a fixed pair; what the page and the result file say of it; and the JUnit file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest
from refusals import refused
from scipy.special import ndtr

import relfit
from relfit.report.gate import Gate, gate_record, gate_sentence, gate_words, judge, junit_xml
from relfit.report.page import render_report
from relfit.results.serial import as_json


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


def test_the_best_set_names_the_model_that_beats_it():
    """a has the smallest estimate and a large error: c is worse than b, and nothing is known of c and a."""
    joint = relfit.JointEstimate(("a", "b", "c"), [0.0, 0.1, 0.2], np.diag([1.0, 1e-4, 1e-4]), (500,))
    result = relfit.decide(joint, rng=0)
    gate = judge(result, "c")
    assert (gate.failed, gate.against, gate.fixed) == (True, "b", False)
    assert "c is clearly worse than b (p-value" in gate_words(result, gate)
    assert judge(result, "b").against == "a"


def test_a_fixed_pair_is_compare_pair(rng):
    """With plain variances whatever the other models are, and by the law of both parts if there are no others."""
    data, models = rng.normal(size=(80, 2)), [rng.normal(m, 1, (80, 2)) for m in (0.0, 0.3, 0.2)]
    for kept, variance in (("abc", "projection"), ("bc", "auto")):
        given = {name: x for name, x in zip("abc", models, strict=True) if name in kept}
        result = relfit.compare(data, given, estimator=relfit.Complete(variance=variance), rng=0)
        options = {"kernel": result.kernel, "estimator": relfit.Complete(variance=variance)}
        pair = relfit.compare_pair(data, models[1], models[2], **options, rng=0)
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


def test_a_copy_is_called_one(rng):
    """Whichever of the two was given first, and whoever is best: the usual reason is that no new sample was drawn."""
    data, a, b = (rng.normal(shift, 1, (60, 2)) for shift in (0.0, 0.0, 1.0))
    same = "new holds the same rows as production; draw new samples if it is a different model"
    for order in (("new", "production"), ("production", "new")):
        result = relfit.compare(data, {**dict.fromkeys(order, a), "far": b}, rng=0)
        assert gate_words(result, judge(result, "new", "production")) == same
        assert gate_words(result, judge(result, "new")).endswith(same)
        assert "same rows" not in gate_words(result, judge(result, "far", "new"))
        wide = relfit.compare(data, {**dict.fromkeys(order, a), "far": b}, margin=1.0, rng=0)
        assert gate_words(wide, judge(wide, "new", "production")) == same
    both = relfit.compare(data, {"best": a, "new": b, "production": b}, rng=0)
    assert gate_words(both, judge(both, "new")).startswith("new is clearly worse than best")


def test_densities_that_are_copies_have_no_rows_to_speak_of(rng):
    densities = {name: relfit.Density(score=lambda x: -x) for name in ("production", "new")}
    result = relfit.compare(rng.normal(size=(60, 2)), densities, rng=0)
    assert gate_words(result, judge(result, "new", "production")) == "new is a duplicate of production"


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
    refused(lambda: judge(result, "m1", "m1"), "a model other than 'm1'")


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
    assert "clearly worse than a (p-value" in failure.get("message")
    assert str(result) in failure.text
    assert "worse" in cases[2].find("system-out").text


@pytest.fixture
def contrary(make):
    """The pair differs by 0.24, s = √2 · 0.1: z = 1.697, p = 0.045. RelPSI, given a near tie for best, sees nothing."""
    result = make([0.0, 0.01, 0.25], names=["best", "production", "new"])
    gate = judge(result, "new", "production")
    assert gate.failed
    assert not result.worse.any()
    return result, gate


def test_the_gated_case_speaks_in_the_gates_words(contrary):
    result, gate = contrary
    suite = _suite(junit_xml(result, gate))
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    said = cases["new"].find("system-out").text
    assert "no evidence" not in said
    assert said.startswith(
        "new is worse than production (this pair alone: p-value 0.045, level 0.05); score 0.25 ± 0.1; "
    )
    assert said.endswith("; difference to production 0.24; p-value 0.045")
    assert cases["production"].find("system-out").text.startswith("no evidence that it is worse; ")
    assert suite.find("system-out").text == f"{gate_sentence(result, gate)}\n\n{result}"
    passed = _suite(junit_xml(result, judge(result, "production", "new")))
    assert "no evidence that production is worse than new" in passed.findall("testcase")[1].find("system-out").text


def _shown(page):
    """The text of the page's header, and its title."""
    header = re.search(r"<header>(.*?)</header>", page, flags=re.S)[1]
    return unescape(re.sub(r"<[^>]+>", "", header)), unescape(re.search(r"<title>(.*?)</title>", page)[1])


def test_the_page_begins_with_the_gate(contrary):
    result, gate = contrary
    sentence = "Gate failed: new is worse than production (this pair alone: p-value 0.045, level 0.05)."
    header, title = _shown(render_report(result, gate=gate))
    assert sentence in title
    assert (
        header.index(sentence)
        < header.index("this one pair, which was named in advance")
        < header.index("has the smallest")
    )
    header, _ = _shown(render_report(result, gate=judge(result, "new")))
    assert "Gate passed: no evidence that new is worse than the best." in header
    assert "named in advance" not in header
    assert "Gate" not in render_report(result)


def test_names_in_the_gates_sentence_are_text(odd, tmp_path):
    gate = judge(odd, odd.names[5], odd.names[0])
    odd.report(tmp_path / "report.html", gate=gate)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<script") == 1
    assert gate_sentence(odd, gate) in _shown(page)[0]


def test_a_gate_of_another_result_is_refused(make):
    result = make([0.0, 1.0])
    refused(
        lambda: render_report(result, gate="failed"), "gate: expected what relfit.report.gate.judge answered", "got str"
    )
    other = Gate("m1", "m3", True, 0.01, True, None, "worse")
    refused(lambda: render_report(result, gate=other), "got that of another result")


def test_the_result_file_has_the_gate_and_reads_as_before(contrary):
    result, gate = contrary
    text = as_json({**result.to_dict(), "gate": gate_record(result, gate)})
    assert json.loads(text)["gate"] == {
        "model": "new",
        "against": "production",
        "verdict": "failed",
        "grade": "worse",
        "pvalue": pytest.approx(ndtr(-0.24 / np.sqrt(0.02)), rel=1e-12),
        "sentence": gate_sentence(result, gate),
    }
    assert relfit.Comparison.from_json(text).to_json() == result.to_json()


def test_where_the_data_give_no_answer_nothing_is_judged(rng):
    data, models = rng.normal(size=(40, 2)), {"a": rng.normal(size=(40, 2)), "far": rng.normal(3, 1, (40, 2))}
    blind = relfit.compare(data, models, kernel=relfit.Gaussian(1e-6), rng=0)
    with pytest.raises(relfit.RelfitError):
        judge(blind, "far", "a")
    assert judge(replace(blind, kernel=None), "far", "a") is not None


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
