"""The report: one file that needs nothing, says what the rows say, and shows names as text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import relfit
from relfit.data.load import load
from relfit.report.page import render_report
from relfit.results.words import summary

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
    html = render_report(result)
    page = _Page(html)
    assert "".join(page.text["span"][:6]) == "◆1 best observed○1 inconclusive▽1 worse (unadjusted)"
    assert summary(result) in page.text["p"]
    assert page.text["title"] == ["relfit: 1 best observed, 1 inconclusive, 1 worse (unadjusted)"]
    body = html[html.index('<table class="models') :]
    table = _Page(body[: body.index("</table>") + len("</table>")])
    assert [text.strip() for text in table.text["td"][5::6]] == [row["verdict"] for row in result.rows()]
    assert table.text["th"][7:] == [row["name"] for row in result.rows()]
    assert "mind the gap" in html
    assert "at most 5% of the models that are as good as the best are declared worse" in html
    settings = dict(zip(page.text["dt"], page.text["dd"], strict=True))
    assert settings["seed"] == "7"
    assert "relfit 0" in settings["versions"]


def test_needs_nothing_from_outside(make):
    html = render_report(make(np.arange(10.0)))
    page = _Page(html)
    assert not {"link", "img", "iframe", "object", "image", "foreignobject"} & set(page.tags)
    # One script, its own, and the policy of the page lets no other one run.
    digest = base64.b64encode(hashlib.sha256(page.text["script"][0].encode()).digest()).decode()
    assert page.tags.count("script") == 1
    assert f"script-src 'sha256-{digest}'" in html
    assert len(page.text["script"][0]) < 5000
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    references = [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "action")]
    assert all(value.startswith("#") for value in references)
    assert not re.findall(r"url\((?!#)|@import|https?://", html)
    assert "default-src 'none'" in html


def test_with_data_every_panel_is_there(rng, tmp_path):
    data = rng.normal(size=(120, 2))
    models = {"a": rng.normal(size=(120, 2)), "b": rng.normal(0.3, 1, (120, 2)), "c": rng.normal(1, 1, (120, 2))}
    result = relfit.compare(data, models, rng=0)
    result.report(tmp_path / "page.html", (data, models), command="relfit compare x <y>")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = _Page(html)
    assert "Where the models and the data differ" in page.text["h2"]
    assert "The verdicts at other bandwidths" in page.text["h3"]
    assert "relfit compare x &lt;y&gt;" in html
    assert page.text["figcaption"].count("c") == 1
    assert len(html) < 1_000_000
    bare = render_report(result)
    assert "Where the models and the data differ" not in bare
    assert "made without the data" in bare


def test_the_page_loads_its_data_once_or_not_at_all(rng, monkeypatch):
    data, models = rng.normal(size=(60, 2)), {"a": rng.normal(size=(60, 2)), "b": rng.normal(1, 1, (60, 2))}
    result = relfit.compare(data, models, rng=0)
    loaded = load(data, models)
    calls = []
    monkeypatch.setattr("relfit.report.recall.load", lambda *args, **options: calls.append(1) or load(*args, **options))
    monkeypatch.setattr("relfit.settings.resolve.load", lambda *_, **__: pytest.fail("compared again"))
    html = render_report(result, (data, models))
    assert len(calls) == 1
    assert render_report(result, loaded) == html
    assert len(calls) == 1
    # Every id is there once, and every link has one.
    page = _Page(html)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = [value[1:] for name, value in page.attributes if name == "href"]
    named = [part for name, value in page.attributes if name == "aria-labelledby" for part in value.split()]
    assert {*links, *named} <= set(ids)
