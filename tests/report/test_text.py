"""The text of a result: aligned, honest about rounding, and the sentence never contradicts the rows."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

import relfit
from relfit.results.table import number_format
from relfit.results.text import show_pvalue, table
from relfit.results.words import alone_words, summary
from relfit.util.text import visible


def test_looks_as_documented(make):
    """Values by hand: m1 is best; m2's gap 0.02 is 0.14 s.e. of the difference (√2 · 0.1), m3's is 35."""
    shown = str(make([0.10, 0.12, 5.10], kernel=relfit.Gaussian(1.118), bandwidth_rule="median", sizes=(1000,) * 4))
    lines = shown.splitlines()
    assert lines[0] == (
        "RelPSI · score (smaller is better) · Gaussian kernel, bandwidth 1.12 (median) · n = 1,000 · α = 0.05"
    )
    assert lines[1] == "model  score  s.e.  Δ to best  p-value  verdict"
    assert lines[2] == "m1     0.10   0.10  —          —        best of the sample"
    assert re.fullmatch(r"m2     0\.12   0\.10  0\.02       0\.\d\d     no evidence that it is worse", lines[3])
    assert re.fullmatch(r"m3     5\.10   0\.10  5\.00       \S+ +clearly worse", lines[4])
    assert lines[5] == (
        "m1 has the smallest score (smaller is better); m3 is clearly worse; there is no evidence that m2 is worse."
    )
    assert len(lines) == 6


def test_names_are_aligned_and_stay_on_their_line(odd):
    """The p-value column starts at the same terminal cell in every row, whatever the name's width."""
    lines = str(odd).splitlines()
    at = cell_len(lines[1][: lines[1].index("p-value")])
    rows = table(odd).rows
    for line, row in zip(lines[2:], rows, strict=False):
        before = line[: line.rindex(row[4] + "  ")]
        assert cell_len(before) == at
    shown = str(odd)
    assert len(shown.splitlines()) == 2 + 12 + 1 + 1
    assert "two\\nlines" in shown
    assert "\x1b" not in shown
    assert "\\x1b[31mred" in shown
    assert "\\u202eevil" in shown
    assert "[bold]no markup[/bold]" in shown
    assert shown.splitlines()[-1] == "Note: a <b> note\\nof two lines"
    cut = next(line for line in shown.splitlines() if line.startswith("xxx"))
    assert "…" in cut
    assert "x" * 33 not in cut


@given(st.text(min_size=1, max_size=30))
def test_shown_names_are_one_printable_line(name):
    shown = visible(name)
    assert len(shown.splitlines()) == 1
    shown.encode("utf-8")
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)


@given(st.floats(0, 1), st.floats(1e-6, 0.5))
def test_a_shown_pvalue_is_on_the_side_of_the_level_where_the_pvalue_is(p, alpha):
    shown = show_pvalue(p, alpha)
    value = 0.0 if shown.startswith("<") else float(shown)
    assert (value <= alpha) == (p <= alpha)


def test_numbers_and_pvalues_by_hand():
    """Two digits of the largest s.e., at least one of the smallest and of a difference that decided."""
    assert number_format([0.0006, 0.0021], [0.0362])(0.03624) == "0.0362"
    assert number_format([0.1], [0.0], [0.0012])(0.0012) == "0.001"
    assert number_format([0.1], [0.0])(-0.001) == "0.00"
    assert number_format([], [3.0])(3.0) == "3"
    assert number_format([1e-9], [1.0])(1.0) == "1.00e+0"
    assert number_format([1.0], [1e12])(-1e12) == "-1.00e+12"
    for p, shown in (
        (0.312, "0.31"),
        (0.0499, "0.0499"),
        (0.0501, "0.0501"),
        (0.05, "0.050"),
        (0.049999, "0.049999"),
        (1.0, "1.0"),
        (0.00123, "0.0012"),
        (4.44e-5, "4.4e-5"),
        (2e-12, "2.0e-12"),
        (9.9e-13, "<1e-12"),
        (0.0, "<1e-12"),
    ):
        assert show_pvalue(p, 0.05) == shown


def test_pair_text():
    rng = np.random.default_rng(0)
    data = [rng.normal(shift, 1, (80, 2)) for shift in (0, 1.0, 0)]
    shown = str(relfit.compare_pair(*data, names=("new\n", "old"), rng=0))
    lines = shown.splitlines()
    assert lines[0].startswith("RelMMD · MMD² · Gaussian kernel, bandwidth ")
    assert lines[1] == "model  MMD²"
    assert lines[4].startswith("difference 0.")
    assert lines[5] == "new\\n is worse than old."
    swapped = str(relfit.compare_pair(data[0], data[2], data[1], rng=0))
    assert "There is no evidence that a is worse than b: its MMD² is smaller." in swapped
    assert "the same model" in str(relfit.compare_pair(data[0], data[1], data[1], rng=0))


@st.composite
def comparisons(draw):
    """Random estimates, some models equal or differing by a constant, any correction, either test's words."""
    count = draw(st.integers(2, 14))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    factor = rng.normal(size=(count, count)) * draw(st.sampled_from([0.0, 0.1, 1.0]))
    values = rng.normal(0, draw(st.sampled_from([0.1, 1.0, 10.0])), count)
    if draw(st.booleans()):
        values[1], factor[1] = values[0], factor[0]
    joint = relfit.JointEstimate(tuple(f"m{k}" for k in range(count)), values, factor @ factor.T)
    correction = draw(st.sampled_from(["none", "by", "holm"]))
    level = draw(st.sampled_from([0.01, 0.05, 0.3]))
    result = relfit.decide(joint, test="relpsi", alpha=level, correction=correction)
    if draw(st.booleans()):
        result = result.changed(test="relmulti", select_fraction=0.25)
    return result


def _said(clause, words):
    """The names before or after the words of a clause, and how many more there are."""
    names = re.findall(r"\bm\d+\b", clause.replace(words, ""))
    more = re.search(r"(\d+) more", clause)
    return set(names), int(more[1]) if more else 0


@settings(max_examples=300, deadline=None)
@given(comparisons())
def test_the_sentence_agrees_with_the_rows(result):
    rows = result.rows()
    truth = {
        "clearly worse": [r["name"] for r in rows if r["grade"] == "clearly worse"],
        alone_words(result): [r["name"] for r in rows if r["grade"] == "worse"],
        "the same as it": [r["name"] for r in rows if r["verdict"] == "the same as the best"],
        "no evidence": [r["name"] for r in rows if r["verdict"] == "no evidence that it is worse"],
    }
    sentence = summary(result)
    lead, *clauses = re.split(r"; |, but ", sentence)
    assert lead.split()[0] == result.best == rows[0]["name"]
    assert ("smallest" in lead) == (result.test == "relpsi")
    if result.test == "relpsi":
        assert rows[0]["discrepancy"] == min(r["discrepancy"] for r in rows)
    for words, names in truth.items():
        found = [clause for clause in clauses if words in clause]
        assert len(found) == bool(names)
        if names:
            shown, more = _said(found[0], words)
            assert shown <= set(names)
            assert len(shown) + more == len(names)
            assert shown == set(names[: len(shown)])
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0


@settings(max_examples=200, deadline=None)
@given(comparisons())
def test_the_table_agrees_with_the_rows(result):
    cells = table(result)
    for row, shown, kind in zip(result.rows(), cells.rows, cells.kinds, strict=True):
        assert shown[0] == row["name"]
        assert (kind == "worse") == (row["grade"] == "clearly worse") == shown[-1].startswith("clearly worse")
        assert (kind == "alone") == (row["grade"] == "worse") == shown[-1].startswith("worse")
        assert (kind == "best") == row["best"]
        # What was asked for is found, and with a correction for all models it is clear.
        assert not row["worse"] or kind in ("alone", "worse")
        if result.correction == "holm":
            assert row["worse"] == (kind == "worse")
        if row["worse"]:
            decisive = shown[-2]
            assert decisive.startswith("<") or float(decisive) <= result.alpha
            assert float(shown[3]) > 0.0
