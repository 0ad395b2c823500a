"""The panel of columns and the layout of the page, as they are read."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relfit
from relfit.report.columns import LARGE_SHARE, bins

LONG = "organisation__gaussian-copula-synthesizer-with-a-long-name-v2.1"


@pytest.fixture(scope="module")
def tables():
    """A table of numbers, one of which follows from another, and a model with the right columns and the wrong joint."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)

    def draw():
        distance = np.exp(rng.normal(6.5, 0.6, 300))
        air_time = distance / 8 + rng.normal(0, 8, 300)
        return pandas.DataFrame({"month": rng.integers(1, 13, 300), "distance": distance, "air_time": air_time})

    data, same, shuffled = draw(), draw(), draw()
    shuffled["air_time"] = rng.permutation(shuffled["air_time"].to_numpy())
    return data, {LONG: same, "marginals": shuffled}


@pytest.fixture(scope="module")
def page(tables, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "tables.html"
    relfit.compare(*tables, rng=0).report(file, tables)
    return file


def test_whole_numbers_have_bins_of_their_own():
    """D44: months in twenty bins of equal width are combs. Edges lie between values, whatever their unit."""
    months = np.tile(np.arange(1.0, 13.0), 5)
    for unit, start in ((1.0, 0.0), (1 / 3.45, -1.9)):
        scaled = (months * unit) + start
        edges = bins(scaled, scaled.min(), scaled.max())
        assert np.histogram(scaled, edges)[0].tolist() == [5] * 12


def test_a_wrong_joint_is_marked(page):
    """D44: columns that are right by themselves had a share of 57%, marked nowhere."""
    text = page.read_text(encoding="utf-8")
    marked = re.findall(r'<span class="far">share (\d+)%: wrong together with other columns</span>', text)
    assert marked
    assert all(int(share) >= 100 * LARGE_SHARE for share in marked)
    assert re.search(r'<span class="">share \d+%</span>', text)
    assert "shares of at least 25% are marked" in text


def test_names_have_the_room_there_is(browser, page):
    """D44: a long name wrapped to three lines beside 300 free pixels."""
    browser.open(page, 1400)
    lines = (
        "[...document.querySelectorAll('{} tbody tr:nth-child(1) > th')]"
        ".map(t => {{const r = document.createRange(); r.selectNodeContents(t);"
        " const tops = [...r.getClientRects()].map(q => q.top).sort((a, b) => a - b);"
        " return tops.filter((top, i) => i === 0 || top - tops[i - 1] > 8).length}})"
    )
    assert max(browser.run(lines.format(".models"))) <= 2
    assert max(browser.run(lines.format(".cells:not(.multiples)"))) == 1
    assert max(browser.run(lines.format(".forest"))) <= 2
