"""Every public result shows itself: the same cells as text and in a notebook, numbers to the right, no array dumps."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import relfit
from relfit.results.scale import KINDS
from relfit.results.serial import Record
from relfit.results.text import display
from relfit.results.verdicts import Answer, Verdicts

HOSTILE = ("<script>alert(1)</script>", "two\nlines & more", '" onmouseover="x')
# Colours that a notebook page may have, light and dark, each with that of its letters.
PAGES = {"light": ((255, 255, 255), (17, 17, 17)), "dark": ((17, 17, 17), (225, 225, 225))}


class _Shown:
    """The tables of a notebook's view as rows of (cell, style); `tags` are all tags, `lines` the paragraphs."""

    def __init__(self, html):
        root = ElementTree.fromstring(html)
        assert all(set(each.attrib) <= {"style"} for each in root.iter())
        self.tags = {each.tag for each in root.iter()}
        self.lines = ["".join(each.itertext()) for each in root.iter("p")]
        self.tables = [
            [[("".join(cell.itertext()), cell.get("style")) for cell in row] for row in table.iter("tr")]
            for table in root.iter("table")
        ]


def _results(names):
    """One of each kind, of three models of which one is undecided and one worse."""
    rng = np.random.default_rng(3)
    data = rng.normal(size=(200, 2))
    models = {name: rng.normal(shift, 1.0, (200, 2)) for name, shift in zip(names, (0.0, 0.05, 1.0), strict=True)}
    joint = relfit.estimate(data, models, rng=0)
    comparison = relfit.compare(data, models, rng=0)
    pair = relfit.compare_pair(data, models[names[2]], models[names[0]], names=(names[2], names[0]), rng=0)
    monitor = relfit.Monitor(names, path=":memory:", higher_is_better=False)
    monitor.update(dict(zip(names, (np.full(60, level) for level in (0.1, 0.12, 0.9)), strict=True)), items=range(60))
    plan = relfit.plan(joint, tests=["best-set"], trials=100, rng=0)
    tables = [comparison.pairs(), comparison.ranks(), comparison.letters()]
    return [comparison, *tables, plan, joint, pair, monitor.result()]


@pytest.fixture(scope="module")
def plain():
    return _results(("good", "close", "far"))


def test_every_kind_is_its_table_as_text_and_in_a_notebook(plain):
    """A new kind of result is added to these tests, or this fails."""
    abstract = {Answer, Verdicts}
    kinds = {type(result) for result in plain}
    assert kinds == {*_below(Record), relfit.JointEstimate} - abstract
    for result in plain:
        assert repr(result) == str(result)
        lines = str(result).splitlines()
        shown = display(result)
        header = shown.header.splitlines()
        first = len(header)
        assert lines[:first] == header
        assert lines[first].split() == " ".join(shown.table.titles).split()
        assert len(lines) == first + 1 + len(shown.table.rows) + len(shown.lines)
        assert "array" not in str(result)
        assert not str(result).endswith("\n")
    for result in plain:
        shown, page = display(result), _Shown(result._repr_html_())
        (table,) = page.tables
        assert [cell for cell, _ in table[0]] == list(shown.table.titles)
        cells = [[cell.replace("−", "-") for cell, _ in row] for row in table[1:]]
        assert cells == [[cell.replace("−", "-") for cell in row] for row in shown.table.rows]
        said = [line.removeprefix("Note: ") for line in page.lines]
        assert said == [line for line in (shown.header, *(text for _, text in shown.lines)) if line]
        assert "class" not in result._repr_html_()
        assert len(result._repr_html_()) < 7000


def _below(kind):
    ours = [each for each in kind.__subclasses__() if each.__module__.startswith("relfit.")]
    return {kind for each in ours for kind in (each, *_below(each))}


def _luminance(colour):
    """WCAG 2: relative luminance of an sRGB colour."""
    parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return float(np.dot([0.2126, 0.7152, 0.0722], parts))


@pytest.mark.parametrize("page", PAGES)
def test_verdicts_can_be_read_on_light_and_dark_pages(page):
    """The letters keep the page's colour; the tint moves their background, at most to a contrast of 4.5."""
    behind, letters = PAGES[page]
    for tint in [verdict.tint for verdict in KINDS.values() if verdict.tint]:
        *colour, part = (float(number) for number in re.findall(r"[0-9.]+", tint)[:4])
        mixed = [part * c + (1.0 - part) * b for c, b in zip(colour, behind, strict=True)]
        low, high = sorted((_luminance(mixed), _luminance(letters)))
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_hostile_names_are_text_everywhere():
    for result in _results(HOSTILE):
        page = _Shown(result._repr_html_())
        assert page.tags <= {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
        (table,) = page.tables
        cells = {cell for row in table for cell, _ in row}
        # A plan has no line for the best model, and a pair has two models.
        shown = {name.replace("\n", "\\n") for name in HOSTILE}
        missing = 1 if isinstance(result, relfit.Plan | relfit.PairComparison) else 0
        assert len(shown - cells) == missing


def test_other_discrepancies_follow_with_their_own_tables():
    def normal(width):
        return relfit.Density(
            log_prob=lambda x: -0.5 * (x**2).sum(axis=1) / width**2 - np.log(2 * np.pi * width**2),
            score=lambda x: -x / width**2,
            normalised=True,
        )

    data = np.random.default_rng(0).normal(size=(200, 2))
    result = relfit.compare(data, {"right": normal(1.0), "wide": normal(2.0)}, discrepancy=["ksd", "loglik"], rng=0)
    page = _Shown(result._repr_html_())
    assert [table[0][1][0] for table in page.tables] == ["KSD²", "mean −log p"]
    for row in page.tables[0][1:]:
        assert re.search("background.*", row[-1][1])[0] == re.search("background.*", row[-2][1])[0]
    assert page.lines[-1] == str(result).splitlines()[-1]
