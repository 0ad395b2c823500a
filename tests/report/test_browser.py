"""The page in a real browser: layout, print, names as text, no requests, no errors, axe."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relfit

QUIET = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports with every panel: ten models in ten columns, odd names in two, densities, and a bare one."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    data = rng.normal(size=(300, 10))
    ten = {f"model-{k}": rng.normal(size=(300, 10)) + (0.5 if k < 6 else 0.9) * np.eye(10)[k] for k in range(10)}
    relfit.compare(data, ten, rng=0).report(folder / "ten.html", (data, ten), command="relfit compare a.npy b.npy")
    names = [
        "<script>document.title='hacked'</script>",
        "<img src=x onerror=alert(1)>",
        "&amp;",
        "x" * 120,
        "\u202eevil",
    ]
    flat = rng.normal(size=(150, 2))
    odd = {name: rng.normal(0.2 * k, 1, (150, 2)) for k, name in enumerate(names)}
    texts = {"reference": ["<b>bold</b>"] * 150, names[0]: [np.zeros((4, 4))] * 150}
    relfit.compare(flat, odd, rng=0, test="best-set").report(folder / "odd.html", (flat, odd), items=texts)
    scores = {f"shift {m}": relfit.Density(score=lambda x, m=m: m - x, dim=1) for m in (0.0, 0.2, 0.8)}
    line = rng.normal(size=(150, 1))
    relfit.compare(line, scores, rng=0, test="carve").report(folder / "ksd.html", (line, scores))
    joint = relfit.JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]])
    relfit.decide(joint).report(folder / "bare.html")
    strata = np.repeat(["arithmetic", "a_task_with_a_very_long_name_that_must_be_broken", "<b>"], [60, 60, 12])
    right = (rng.random((132, 8)) < np.linspace(0.9, 0.3, 8)).astype(float)
    options = {"names": [f"organisation__model-{k}" for k in range(8)], "strata": strata, "higher_is_better": True}
    scores = relfit.scores(right, **options)
    relfit.compare_losses(scores, rng=0).report(folder / "scores.html", scores)
    return folder


PAGES = ("ten", "odd", "ksd", "bare", "scores")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("name", PAGES)
def test_the_page_fits_and_is_quiet(browser, pages, name, width, dark):
    """Nothing wider than the window, no request but the file itself, not a word on the console."""
    browser.open(pages / f"{name}.html", width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    methods = [event.get("method") for event in browser.events]
    assert methods.count("Network.requestWillBeSent") == 1 + browser.run(
        "[...document.images].length ? new Set([...document.images].map(i => i.src)).size : 0"
    )
    assert not [event for event in browser.events if event.get("method") in QUIET]
    assert browser.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 24, 28)" if dark else "rgb(255, 255, 255)"
    )


@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("name", ["ten", "scores"])
def test_nothing_overlaps_or_leaves_its_place(browser, pages, name, width):
    """Letters of table cells and headings stay inside their boxes, and no two cells of a row overlap."""
    browser.open(pages / f"{name}.html", width)
    outside = """
    [...document.querySelectorAll('h1, h2, th, td, figcaption, dd, li, summary')].filter(e => {
      const box = e.getBoundingClientRect();
      return box.width > 2 && !e.closest('.hidden, .scroll') && (box.right > innerWidth + 1 || box.left < -1);
    }).map(e => e.textContent)
    """
    assert browser.run(outside) == []
    overlapping = """
    [...document.querySelectorAll('tr')].flatMap(row => {
      const boxes = [...row.children].map(c => c.getBoundingClientRect()).filter(b => b.width > 2 && b.height > 2);
      const shared = (a, b, low, high) => Math.min(a[high], b[high]) - Math.max(a[low], b[low]) > 1;
      return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(
        b => shared(a, b, 'left', 'right') && shared(a, b, 'top', 'bottom'))).map(() => row.textContent);
    })
    """
    assert browser.run(overlapping) == []
    sizes = (
        "[...document.querySelectorAll('main :is(p, td, th, li)')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(browser.run(sizes)) >= 12.0


def test_the_marks_stand_where_the_numbers_say(browser, pages):
    """The forest's marks are in the order of the discrepancies, and the best one stands on the dashed line."""
    browser.open(pages / "ten.html", 1600)
    places = browser.run(
        "[...document.querySelectorAll('.forest')[0].querySelectorAll('tbody tr:not([aria-hidden])')].map(row => {"
        " const mark = row.querySelector('svg.bar > svg:last-of-type').getBoundingClientRect();"
        " return mark.left + mark.width / 2; })"
    )
    assert len(places) == 10
    assert places == sorted(places)
    line = browser.run("document.querySelector('.forest .zero').getBoundingClientRect().left")
    assert places[0] == pytest.approx(line, abs=1.5)


def test_ten_models_print_on_four_pages_and_the_keyboard_reaches_everything(browser, pages):
    browser.open(pages / "ten.html", 1600)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) <= 4
    browser.open(pages / "ten.html", 240)
    scrolling = (
        "[...document.querySelectorAll('*')].filter(e => e.scrollWidth > e.clientWidth + 1 &&"
        " getComputedStyle(e).overflowX === 'auto')"
    )
    assert browser.run(f"{scrolling}.length") >= 1
    assert browser.run(f"{scrolling}.every(e => e.tabIndex === 0)")
    assert browser.run("[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")
    assert browser.run("document.querySelector('details > summary') !== null")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(browser, axe, pages, name, dark):
    browser.open(pages / f"{name}.html", 360 if dark else 1600, dark=dark)
    assert axe(browser) == []
