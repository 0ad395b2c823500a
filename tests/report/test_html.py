"""The report: one file that needs nothing, says what the rows say, and shows names as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import relfit
from relfit.errors import InputError
from relfit.report.html import notebook_table, render_report, write_report
from relfit.report.words import summary

VOID = {"meta", "br", "hr", "img", "input", "link"}


class _Page(HTMLParser):
    """Tags, attributes and the text of each element by tag; complains about tags that do not match."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.text, self.attributes = [], [], {}, []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
            self.text.setdefault(tag, []).append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.text[self.open[-1]][-1] += data


def test_says_what_the_rows_say(make):
    result = make([0.1, 0.2, 5.0], names=["claude", "llama", "gpt"], seed=7, warnings=("mind the gap",))
    page = _Page(render_report(result))
    assert page.text["h1"] == [summary(result)]
    verdicts = page.text["td"][5::6]
    assert verdicts == [row["verdict"] for row in result.rows()]
    assert page.text["td"][0::6] == [row["name"] for row in result.rows()]
    html = render_report(result)
    assert "mind the gap" in html
    assert "at most 5% of the models that are as good as the best are declared worse" in html
    assert dict(zip(page.text["dt"], page.text["dd"], strict=True))["seed"] == "7"
    assert "relfit 0" in dict(zip(page.text["dt"], page.text["dd"], strict=True))["versions"]
    assert page.tags.count("svg") == 1


def test_needs_nothing_from_outside(make):
    html = render_report(make(np.arange(10.0)))
    page = _Page(html)
    assert not {"script", "link", "img", "iframe", "object", "image", "foreignobject"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    references = [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "action")]
    assert all(value.startswith("#") for value in references)
    assert not re.findall(r"url\((?!#)|@import", html)
    assert "default-src 'none'" in html


def test_names_are_shown_as_text(odd):
    for html in (render_report(odd), notebook_table(odd)):
        page = _Page(html)
        assert "script" not in page.tags
        assert "b" not in page.tags
        assert "<script>alert(1)</script>" in page.text["td"]
        assert "two\\nlines" in page.text["td"]
        assert "\x1b" not in html
        assert "\u202e" not in html
        assert "a &lt;b&gt; note" in html


def test_same_comparison_same_file(make, tmp_path):
    result = make([0.1, 3.0])
    write_report(result, tmp_path / "a.html")
    result.report(tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html"]


def test_folder_must_exist(make, tmp_path):
    with pytest.raises(InputError, match="folder that exists") as caught:
        write_report(make([0.1, 3.0]), tmp_path / "no" / "report.html")
    assert "\n" not in str(caught.value)


def test_light_dark_and_narrow(make):
    html = render_report(make([0.1, 3.0]))
    assert "prefers-color-scheme: dark" in html
    assert "max-width: 44rem" in html
    assert 'name="viewport"' in html


def test_notebook_table_is_small(make):
    result = make([0.1, 3.0])
    assert result._repr_html_() == notebook_table(result)
    assert len(notebook_table(result)) < 2000
    assert summary(result) in notebook_table(result)


@pytest.mark.parametrize("test", ["relpsi", "relmulti"])
def test_real_comparisons(test):
    rng = np.random.default_rng(0)
    data = [rng.normal(shift, 1, (90, 2)) for shift in (0, 0, 0.2, 2)]
    result = relfit.compare(data[0], data[1:], test=test, rng=0)
    page = _Page(render_report(result))
    settings = dict(zip(page.text["dt"], page.text["dd"], strict=True))
    assert settings["kernel"].endswith("(median)")
    assert ("share of rows for selection" in settings) == (test == "relmulti")
