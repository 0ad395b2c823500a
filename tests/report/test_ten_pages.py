"""Ten pages of real comparisons: nothing on them contradicts anything else, and they work in a browser."""

from __future__ import annotations

import pytest

from relfit.results.scale import KINDS
from tools.pages import CASES, WIDTHS, check, write


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ten")
    return {name: write(name, folder) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_nothing_on_the_page_contradicts_anything_else(ten, name):
    result, gate, page = ten[name]
    check(result, gate, page.read_text(encoding="utf-8"))


def test_all_kinds_occur_and_a_contradiction_is_found(ten):
    assert {kind for result, _, _ in ten.values() for kind in result.kinds} == {*KINDS}
    # A verdict, an interval, a pair, the sentence or a count that says something else does not pass.
    result, gate, page = ten["fifty"]
    html = page.read_text(encoding="utf-8")
    found = result.kinds.count("weak")
    low, high = result.verdict_intervals()[result.kinds.index("weak")]
    assert low > 0.0
    changes = [
        ('<tr class="weak" role="row" data-model="8">', '<tr class="open" role="row" data-model="8">'),
        (f"{low:.3f} to {high:.3f}", f"0.000 to {high:.3f}"),
        ('<td class="weak">', '<td class="inconclusive">'),
        ("Worse (unadjusted): ", "Inconclusive: "),
        (f"{found} worse (unadjusted)", f"{found - 1} worse (unadjusted)"),
    ]
    for old, new in changes:
        assert old in html, old
        changed = html.replace(old, new)
        with pytest.raises(AssertionError):
            check(result, gate, changed)


@pytest.mark.parametrize("name", CASES)
def test_pages_fit_at_every_width_and_axe_finds_nothing(ten, browser, axe, name):
    for width in WIDTHS:
        for dark in (False, True):
            browser.open(ten[name][2], width, dark=dark)
            assert browser.run("document.documentElement.scrollWidth") <= width
            # Both looks, and both layouts.
            if (width, dark) in ((WIDTHS[0], True), (WIDTHS[-1], False)):
                assert axe(browser) == [], (width, dark)


def shown(browser, table=".models"):
    return browser.run(
        f"[...document.querySelectorAll('{table} tbody tr')].filter(r => !r.hidden && r.offsetHeight).map("
        "r => r.cells[0].textContent.trim())"
    )


def test_tables_are_sorted_and_filtered(ten, browser):
    result, _, page = ten["fifty"]
    names = [row["name"] for row in result.rows()]
    browser.open(page)
    assert shown(browser) == names
    click = "[...document.querySelectorAll('.models .sort')].find(b => b.textContent.startsWith('{}')).click()"
    browser.run(click.format("mean score"))
    score = dict(zip(result.names, result.discrepancy.tolist(), strict=True))
    assert [score[name] for name in shown(browser)] == sorted(score.values())
    assert browser.run("document.querySelector('.models [aria-sort]').textContent") == "mean score"
    browser.run(click.format("mean score"))
    assert [score[name] for name in shown(browser)] == sorted(score.values(), reverse=True)
    browser.run(
        "{const i = document.querySelector('.filter input');"
        " i.value = 'CHECKPOINT 1000'; i.dispatchEvent(new Event('input'))}"
    )
    kept = [name for name in names if "checkpoint 1000" in name]
    assert len(kept) == 2
    assert shown(browser) == kept
    assert browser.run("document.querySelector('.filter output').textContent") == "2 of 50 models"
    # The pictures and the pairs show the same models.
    assert len(shown(browser, ".forest")) == 2 * 2 + 2  # and the axes
    assert len(shown(browser, ".cells")) == 2
    browser.run(
        "{const i = document.querySelector('.filter input'); i.value = ''; i.dispatchEvent(new Event('input'));"
        " const s = document.querySelector('.filter select'); s.value = 'weak'; s.dispatchEvent(new Event('change'))}"
    )
    assert len(shown(browser)) == result.kinds.count("weak") > 0


def test_without_scripts_everything_is_there(ten, browser):
    result, _, page = ten["fifty"]
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.run("document.querySelectorAll('.sort, .filter, .copy').length") == 0
    assert len(shown(browser)) == len(result.names)
