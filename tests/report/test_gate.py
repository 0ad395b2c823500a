"""The gate: the verdict, a fixed pair, or a monitor; what the page, the result file and JUnit say of it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest
from refusals import refused
from scipy.special import ndtr

import relfit
from relfit.report.gate import Gate, ask, gate_markdown, judge, judge_monitor, judge_pair, junit_xml
from relfit.report.page import render_report
from relfit.results.scale import kind_of
from relfit.results.serial import as_json


def test_fixed_pairs_by_hand():
    """D = 0.3 − 0.1 = 0.2, s² = 0.01 + 0.01 − 2·0.005 = 0.01: z = 2, p = Φ(−2) = 0.0228; the best is neither."""
    covariance = 0.005 * np.ones((3, 3)) + 0.005 * np.eye(3)
    result = relfit.decide(relfit.JointEstimate(("best", "old", "new"), [0.0, 0.1, 0.3], covariance))
    gate = judge(result, "new", "old")
    assert gate.pvalue == pytest.approx(ndtr(-2.0), rel=1e-12)
    assert (gate.failed, gate.fixed, gate.against) == (True, True, "old")
    assert not judge(result, "old", "new").failed
    # Step-down tests two hypotheses: 100 (1.960 + 0.842)² = 785 items; and a gap of nothing needs any number.
    words = "new compared with the best; about 680 more items would decide"
    assert judge(two(0.1), "new").words == words
    words = "new compared with the best; about 520 more items would decide"
    assert judge(two(0.1, correction="none"), "new").words == words
    assert "more than 1,000,000 more items would be needed to decide without a margin" in judge(two(1e-4), "new").words
    assert judge(two(0.0), "new", "old").words == "new compared with old"
    assert judge(two(0.1, rows=None), "new").words == "new compared with the best"


# ── three answers ────────────────────────────────────────────────────────────────────────────────────────────────────


def two(gap, margin=0.0, rows=(100,), **options):
    """Old and new, whose difference has the standard error 0.1, as mean losses."""
    joint = relfit.JointEstimate(("old", "new"), [0.0, gap], 0.005 * np.eye(2), rows, measure="loss")
    return relfit.decide(joint, margin=margin, rng=0, **options)


@pytest.mark.parametrize(
    ("gap", "margin", "verdict", "words"),
    [
        (0.2, 0.0, "worse", "new is significantly worse than old (this pair only: p-value 0.024, α = 0.05)"),
        (-0.2, 0.0, "non-inferior", "new is non-inferior to old"),
        (0.1, 0.0, "inconclusive", "new compared with old; about 520 more items would decide"),
        (-0.1, 0.0, "inconclusive", "new compared with old; about 520 more items would decide"),
        (
            *(0.5, 0.3, "worse"),
            "new is significantly worse than old by more than 0.3 (this pair only: p-value 0.024, α = 0.05)",
        ),
        (0.1, 0.3, "non-inferior", "new is non-inferior to old within 0.3"),
        (0.2, 0.3, "inconclusive", "new compared with old (margin 0.3); about 520 more items would decide"),
    ],
)
def test_three_answers_of_a_fixed_pair_by_hand(gap, margin, verdict, words):
    """t = (gap − δ)/0.1 is 2, −2, ±1 with 99 degrees of freedom.

    One z of a hundred items needs 100 · (1.645 + 0.842)² = 619 for power 0.8.
    """
    gate = judge(two(gap, margin), "new", "old")
    assert (gate.verdict, gate.words) == (verdict, words)
    required = judge(two(gap, margin), "new", "old", require="non-inferior")
    assert required.verdict == verdict
    assert (gate.status, required.status) == {"worse": (1, 1), "non-inferior": (0, 0), "inconclusive": (0, 3)}[verdict]


@pytest.mark.parametrize("correction", ["none", "stepdown", "holm", "bonferroni", "bh", "by"])
@pytest.mark.parametrize("test", ["best-set", "relpsi", "carve"])
@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_table_and_gate_agree(correction, test, margin):
    """One rule: worse is `Comparison.worse`, with the correction in force, and non-inferior is what was shown."""
    if (test, correction) in (("relpsi", "stepdown"), ("carve", "stepdown")):
        return
    joint = relfit.JointEstimate(tuple("abcdef"), [0.0, 0.1, 0.19, 0.22, 0.3, 1.0], 0.005 * np.eye(6), (500,))
    result = relfit.decide(joint, test=test, correction=correction, margin=margin, rng=0)
    verdicts = {row["name"]: judge(result, row["name"]).verdict for row in result.rows()}
    for row in result.rows():
        assert (verdicts[row["name"]] == "worse") == row["worse"], row
        if verdicts[row["name"]] == "non-inferior":
            assert kind_of(row["verdict"]) in ("equal", "best")


def test_copies_are_called_so_and_show_nothing(rng):
    """Most often no new samples were drawn: that must not be an answer about the new model, at any margin."""
    data, a, b = (rng.normal(shift, 1, (60, 2)) for shift in (0.0, 0.0, 1.0))
    for models in ({"new": a, "old": a}, {"new": a, "old": a, "far": b}):
        for margin in (0.0, 5.0):
            result = relfit.compare(data, models, margin=margin, rng=0)
            assert judge(result, "new", "old").verdict == "inconclusive"
            assert judge(result, "new").verdict == judge(result, "old").verdict == "inconclusive"
    # Whichever of the two was given first, and whoever is best: the usual reason is that no new sample was drawn.
    data, a, b = (rng.normal(shift, 1, (60, 2)) for shift in (0.0, 0.0, 1.0))
    same = "new holds the same rows as production; draw new samples if it is a different model"
    for order in (("new", "production"), ("production", "new")):
        result = relfit.compare(data, {**dict.fromkeys(order, a), "far": b}, rng=0)
        assert judge(result, "new", "production").words == same
        assert judge(result, "new").words.endswith(same)
        assert "same rows" not in judge(result, "far", "new").words
        wide = relfit.compare(data, {**dict.fromkeys(order, a), "far": b}, margin=1.0, rng=0)
        assert judge(wide, "new", "production").words == same
    both = relfit.compare(data, {"best": a, "new": b, "production": b}, rng=0)
    assert judge(both, "new").words.startswith("new is significantly worse than best")


def test_equal_scores_need_a_margin_and_equal_densities_do_not(rng):
    """Equal scores on these items are no proof about other items; the same density is the same model."""
    scores = rng.random(50)
    right = (scores > 0.3).astype(float)
    # The score limit of 0/1 losses without discordant items is z²/(n + z²) = 0.051.
    for column, margin, verdict in (
        (scores, 0.0, "inconclusive"),
        (scores, 0.1, "inconclusive"),
        (right, 0.05, "inconclusive"),
        (right, 0.1, "non-inferior"),
    ):
        result = relfit.compare_losses({"new": column, "old": column}, margin=margin, higher_is_better=False)
        assert judge(result, "new", "old").verdict == judge(result, "new").verdict == verdict
    densities = {name: relfit.Density(score=lambda x: -x) for name in ("old", "new")}
    result = relfit.compare(rng.normal(size=(60, 2)), densities, rng=0)
    assert judge(result, "new", "old").verdict == "non-inferior"


@pytest.mark.parametrize("test", ["z", "relpsi"])
def test_the_gate_of_a_pair(rng, test):
    """RelPSI, given which model looks better, tests the reverse with half the level."""
    data, near, far = (rng.normal(shift, 1, (120, 2)) for shift in (0.0, 0.05, 0.8))
    pair = relfit.compare_pair(data, far, near, names=("far", "near"), test=test, rng=0)
    gate = judge_pair(pair)
    assert (gate.verdict, gate.status, gate.against) == ("worse", 1, "near")
    back = relfit.compare_pair(data, near, far, names=("near", "far"), test=test, rng=0)
    assert judge_pair(back).words == "near is non-inferior to far"
    alpha = (2.0 if test == "relpsi" else 1.0) * float(ndtr(back.statistic))
    for factor, verdict in ((1.01, "non-inferior"), (0.99, "inconclusive")):
        assert judge_pair(back.changed(alpha=factor * alpha)).verdict == verdict
    unclear = judge_pair(back.changed(difference=-0.1, standard_error=0.1), require="non-inferior")
    assert (unclear.verdict, unclear.status) == ("inconclusive", 3)
    assert "more rows per model would decide; without a margin" in unclear.words
    doubted = judge_pair(pair.changed(doubts=("rows depend on each other",)))
    assert (doubted.verdict, doubted.status, doubted.words) == ("error", 2, "gate: rows depend on each other")


def test_a_doubt_keeps_the_gate_from_answering_in_every_output():
    result = two(0.9).changed(doubts=("rows depend on each other; give groups",))
    gate = ask(result, "new")
    assert (gate.verdict, gate.status) == ("error", 2)
    sentence = "Gate without an answer: rows depend on each other; give groups."
    assert gate.sentence == gate.record()["sentence"] == sentence
    suite = _suite(junit_xml(result, gate))
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")
    assert suite.find(".//error").get("message") == sentence
    assert gate_markdown(result, gate).startswith("**Gate without an answer:** rows depend on each other; give groups.")
    assert sentence in _shown(render_report(result, gate=gate))[0]
    refused(lambda: relfit.assert_not_worse(result, "new"), "gate: rows depend on each other; give groups")
    # A doubt passes from the estimate to the result and its file; the verdicts stay, the gate raises an error.
    doubt = "rows depend on each other in this order"
    joint = relfit.JointEstimate(("old", "new"), [0.1, 0.9], 0.01 * np.eye(2), notes=(doubt,), doubts=(doubt,))
    result = relfit.Comparison.from_json(relfit.decide(joint).to_json())
    assert result.doubts == (doubt,)
    refused(lambda: judge(result, "new"), "gate: rows depend on each other in this order")


@pytest.mark.parametrize("bandwidth", [1e-6, 1e12])
def test_a_kernel_that_sees_nothing_gives_no_answer(rng, bandwidth):
    """Whoever is asked about, the model called best included; but a copy is its original whatever the kernel sees."""
    data, a = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    models = {"a": a, "far": rng.normal(3, 1, (40, 2)), "copy": a}
    result = relfit.compare(data, models, kernel=relfit.Gaussian(bandwidth), rng=0)
    for name, against in [("a", None), ("far", None), ("far", "a"), ("a", "far"), ("copy", "far")]:
        refused(lambda name=name, against=against: judge(result, name, against), "kernel: expected one that separates")
    assert not judge(result, "copy", "a").failed
    assert "This kernel has the same value on all pairs of rows" in str(result)
    pair = relfit.compare_pair(data, a, models["far"], kernel=relfit.Gaussian(bandwidth), rng=0)
    assert "This kernel has the same value on all pairs of rows" in str(pair)


def _suite(text):
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite"
    return suite


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
    assert "inconclusive" not in said
    assert said.startswith(
        "new is significantly worse than production (this pair only: p-value 0.045, α = 0.05); score 0.25 ± 0.1; "
    )
    assert said.endswith("; difference to production 0.24; p-value 0.045")
    assert cases["production"].find("system-out").text.startswith("inconclusive; ")
    assert suite.find("system-out").text == f"{gate.sentence}\n\n{result}"
    passed = _suite(junit_xml(result, judge(result, "production", "new")))
    said = passed.findall("testcase")[1].find("system-out").text
    assert said.startswith("production is non-inferior to new; ")


def _shown(page):
    """The text of the page's header, and its title."""
    header = re.search(r"<header>(.*?)</header>", page, flags=re.S)[1]
    return unescape(re.sub(r"<[^>]+>", "", header)), unescape(re.search(r"<title>(.*?)</title>", page)[1])


def test_the_page_begins_with_the_gate_of_its_result(contrary, make):
    result, gate = contrary
    sentence = "Gate failed: new is significantly worse than production (this pair only: p-value 0.045, α = 0.05)."
    header, title = _shown(render_report(result, gate=gate))
    assert sentence in title
    assert (
        header.index(sentence)
        < header.index("this one pair, which was named in advance")
        < header.index("has the smallest")
    )
    header, _ = _shown(render_report(result, gate=judge(result, "new")))
    assert "Gate inconclusive: new compared with the best." in header
    assert "named in advance" not in header
    assert "Gate" not in render_report(result)
    result = make([0.0, 1.0])
    refused(
        lambda: render_report(result, gate="failed"), "gate: expected what relfit.report.gate.judge answered", "got str"
    )
    other = Gate("m1", "m3", "worse", "m1 is worse than m3", 0.01, True, 0.0, False)
    refused(lambda: render_report(result, gate=other), "got that of another result")


def test_the_result_file_has_the_gate_and_reads_as_before(contrary):
    result, gate = contrary
    text = as_json({**result.to_dict(), "gate": gate.record()})
    assert json.loads(text)["gate"] == {
        "model": "new",
        "against": "production",
        "verdict": "worse",
        "required": False,
        "margin": 0.0,
        "pvalue": pytest.approx(ndtr(-0.24 / np.sqrt(0.02)), rel=1e-12),
        "sentence": gate.sentence,
    }
    assert relfit.Comparison.from_json(text).to_json() == result.to_json()


def test_any_name_makes_well_formed_xml(odd):
    gate = judge(odd, odd.names[5])
    suite = _suite(junit_xml(odd, gate))
    names = [case.get("name") for case in suite.findall("testcase")]
    assert "<script>alert(1)</script>" in names
    assert "two\\nlines" in names
    assert len(names) == len(odd.names)


def test_the_gate_has_the_verdict_of_the_table_with_each_correction():
    """D42: t = 1.9 of 100 items has p = 0.030, and with step-down over two hypotheses 0.060."""
    unadjusted = judge(two(0.19, correction="none"), "new")
    assert (unadjusted.verdict, unadjusted.status) == ("worse", 1)
    assert unadjusted.words == "new is worse than old (unadjusted, p-value 0.030, α = 0.05)"
    adjusted = two(0.19)
    assert adjusted.verdicts[1] == "inconclusive"
    gate = judge(adjusted, "new")
    assert (gate.verdict, gate.status) == ("inconclusive", 0)
    assert gate.pvalue == pytest.approx(0.060, abs=2e-3)
    assert gate.words.startswith("new compared with the best; about ")


@pytest.fixture
def result(tmp_path):
    rng = np.random.default_rng(0)
    new, old = (rng.random((2, 80)).T < [0.45, 0.30]).astype(float).T
    with relfit.Monitor(["new", "old"], path=tmp_path / "gate.sqlite", higher_is_better=False) as monitor:
        monitor.update({"new": new, "old": old}, items=range(80))
        return monitor.result()


def test_evidence_that_grows_and_limits_that_shrink_decide_after_more_items(result):
    """log e = 1 after 80 items: 1/α = 20 takes log 20 times as many, 80 · (2.996 − 1) ≈ 160 more."""
    evidence = replace(result, log_pair_evalue=np.array([[0.0, 1.0], [-1.0, 0.0]]))
    words = judge_monitor(evidence, "new", "old").words
    assert words == ("new compared with old, after 80 items; at this rate about 160 more items would decide")
    nothing = replace(result, log_pair_evalue=np.zeros((2, 2)))
    assert judge_monitor(nothing, "new", "old").words == "new compared with old, after 80 items"
    # Limits −.1 to .4, margin .05: half their distance .25 must shrink to .1, which takes 6.25 times as many items.
    limits = {"lower": np.array([[0.0, -0.1], [-0.4, 0.0]]), "upper": np.array([[0.0, 0.4], [0.1, 0.0]])}
    words = judge_monitor(replace(result, **limits), "new", "old", margin=0.05).words
    assert words.endswith("after 80 items; at this rate about 420 more items would decide")
    assert math.isclose(80 * (6.25 - 1.0), 420)
