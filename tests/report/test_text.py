"""The text of a result: aligned, honest about rounding, and the sentence never contradicts the rows."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

import relfit
from relfit.results.scale import is_worse, kind_of
from relfit.results.table import number_format
from relfit.results.text import show_pvalue, styled, table
from relfit.results.words import summary
from relfit.util.text import visible


def test_looks_as_documented(make):
    """Values by hand: m1 is best; m2's gap 0.02 is 0.14 s.e. of the difference (√2 · 0.1), m3's is 35."""
    shown = str(make([0.10, 0.12, 5.10], kernel=relfit.Gaussian(1.118), bandwidth_rule="median", sizes=(1000,) * 4))
    lines = shown.splitlines()
    assert lines[0] == (
        "RelPSI · score (smaller is better) · Gaussian kernel, bandwidth 1.12 (median) · n = 1,000 · α = 0.05"
    )
    assert lines[1] == "model  score  s.e.  Δ to best  95% bounds     p-value  verdict"
    assert lines[2] == "m1     0.10   0.10  —          —              —        best observed"
    assert re.fullmatch(r"m2     0\.12   0\.10  0\.02       -\S+ to 0\.\d\d +0\.\d\d     inconclusive", lines[3])
    # The upper end is 5 + 1.645 · 0.1414 less what the near tie for best takes.
    assert re.fullmatch(r"m3     5\.10   0\.10  5\.00       3\.50 to 5\.17 +\S+ +worse \(unadjusted\)", lines[4])
    assert lines[5] == "m1 has the smallest score (smaller is better). Worse (unadjusted): m3. Inconclusive: m2."
    assert re.fullmatch(r"95% interval for the score of m1, adjusted for its selection: \S+ to \S+\.", lines[6])
    assert len(lines) == 7


def test_names_are_aligned_and_stay_on_their_line(odd):
    """The p-value column starts at the same terminal cell in every row, whatever the name's width."""
    lines = str(odd).splitlines()
    at = cell_len(lines[1][: lines[1].index("p-value")])
    rows = table(odd).rows
    for line, row in zip(lines[2:], rows, strict=False):
        before = line[: line.rindex(row[5] + "  ")]
        assert cell_len(before) == at
    shown = str(odd)
    # The header, the titles, the models, the answer, the best model's interval, and a note.
    assert len(shown.splitlines()) == 2 + 12 + 2 + 1
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
    assert lines[5] == "new\\n is significantly worse than old."
    swapped = str(relfit.compare_pair(data[0], data[2], data[1], rng=0))
    assert "Inconclusive: a compared with b." in swapped
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


def _named(sentence):
    """The names in a sentence, and how many more there are."""
    more = re.search(r"(\d+) more", sentence)
    return re.findall(r"\bm\d+\b", sentence), int(more[1]) if more else 0


@settings(max_examples=300, deadline=None)
@given(comparisons())
def test_the_sentence_agrees_with_the_rows(result):
    rows = result.rows()
    truth = {}
    for row in rows:
        if not row["best"]:
            also = "also " if kind_of(row["verdict"]) == "best" else ""
            truth.setdefault(f"{also}{row['verdict']}", []).append(row["name"])
    lead, *sentences = summary(result).removesuffix(".").split(". ")
    assert lead.split()[0] == result.best == rows[0]["name"]
    assert ("smallest" in lead) == (result.test == "relpsi")
    if result.test == "relpsi":
        assert rows[0]["discrepancy"] == min(r["discrepancy"] for r in rows)
    found = dict(sentence.split(": ") for sentence in sentences)
    assert {words[0].lower() + words[1:] for words in found} == {*truth}
    for words, names in truth.items():
        shown, more = _named(found[words[0].upper() + words[1:]])
        assert shown == names[: len(shown)]
        assert len(shown) + more == len(names)


@settings(max_examples=200, deadline=None)
@given(comparisons())
def test_the_table_agrees_with_the_rows(result):
    cells = table(result)
    for row, shown, kind in zip(result.rows(), cells.rows, cells.kinds, strict=True):
        assert shown[0] == row["name"]
        assert shown[-1].startswith(row["verdict"])
        assert kind == kind_of(row["verdict"])
        assert (kind in ("weak", "worse")) == row["worse"] == is_worse(row["verdict"])
        assert (shown[3] == "—") == row["best"]
        if row["worse"]:
            decisive = shown[-2]
            assert decisive.startswith("<") or float(decisive) <= result.alpha
            assert float(shown[3]) > 0.0


def test_a_narrow_terminal_leaves_columns_out():
    """The p-value goes first, then the standard error: names, bounds and verdicts always stay."""
    names = tuple(f"model-{k}" for k in range(10))
    joint = relfit.JointEstimate(names, 0.05 * np.arange(10), 0.001 * np.eye(10), (500,))
    result = relfit.decide(joint, rng=0)
    full = str(result).splitlines()[1]
    assert cell_len(full.rstrip()) <= 100
    titles = {}
    for width in (100, 80, 60):
        lines = styled(result, width).plain.splitlines()[1:12]
        assert max(map(cell_len, lines)) <= width
        titles[width] = re.split(r"\s{2,}", lines[0].strip())
    assert titles[100] == ["model", "score", "s.e.", "Δ to best", "95% bounds", "p-value", "adjusted p", "verdict"]
    assert titles[80] == ["model", "score", "Δ to best", "95% bounds", "adjusted p", "verdict"]
    assert titles[60] == ["model", "score", "95% bounds", "verdict"]
