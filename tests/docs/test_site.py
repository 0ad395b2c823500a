"""The documentation builds without a warning, its links lead somewhere, searches find, and it needs no network."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
# Attributes whose file the browser fetches by itself; the others are followed by a reader.
FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
FOLLOWED = {("a", "href")}
SEARCHES = {
    "lm-evaluation-harness": "guides/evals",
    "leaderboard": "guides/evals",
    "tabular": "guides/tables",
    "FID": "guides/images-texts",
    "KID": "guides/images-texts",
    "diffusion": "guides/images-texts",
    "Diebold Mariano": "guides/forecasts",
    "LOO": "guides/bayesian",
    "PSIS": "guides/bayesian",
    "posterior": "guides/bayesian",
    "flow": "guides/flows",
    "latent": "guides/flows",
    "GPU": "scale",
    # D51
    "mlflow": "report",
    "wandb": "report",
    "WAIC": "guides/bayesian",
    "pairwise": "guides/images-texts",
    "precision recall": "guides/images-texts",
    "Elo": "guides/images-texts",
}


class _Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.targets, self.fetched, self.followed = {""}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag, name) == ("a", "name"):
                self.targets.add(value)
            if (tag, name) in FETCHED:
                self.fetched.append(value)
            elif (tag, name) in FOLLOWED:
                self.followed.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="sphinx is not installed")
    pytest.importorskip("myst_parser", reason="myst-parser is not installed")
    pytest.importorskip("furo", reason="furo is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    pages = (folder / "html").rglob("*.html")
    return {page: _Page(page.read_text(encoding="utf-8")) for page in pages}


def test_there_is_a_page_for_every_source_and_nothing_is_fetched_from_elsewhere(site):
    made = {page.name for page in site}
    assert {source.with_suffix(".html").name for source in (ROOT / "docs").rglob("*.md")} <= made
    asked = {link for found in site.values() for link in found.fetched if urlsplit(link).netloc}
    assert asked == set()
    styles = [text for page in site for text in page.parent.glob("_static/**/*.css")]
    assert not [style.name for style in styles if "@import" in style.read_text(encoding="utf-8")]


def test_links_within_the_site_lead_somewhere(site):
    broken = []
    for page, found in site.items():
        for link in found.followed + found.fetched:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchors = site[target].targets if target in site else {unquote(parts.fragment)}
            if not target.exists() or unquote(parts.fragment) not in anchors:
                broken.append((page.name, link))
    assert broken == []


@pytest.mark.parametrize(("words", "name"), SEARCHES.items(), ids=list(SEARCHES))
def test_a_search_finds_the_right_page_first(words, name, site, browser):
    """The site's own search, which sorts its answers with the best one last."""
    (page,) = (page for page in site if page.name == "search.html")
    browser.open(page)
    found = f"Search._performSearch(...Search._parseQuery({json.dumps(words)})).map(answer => answer[0])"
    assert browser.run(found)[-1] == name


def test_the_first_page_has_an_install_line_and_code():
    """D51: the landing page had a table of links."""
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert text.index("pip install relfit") < text.index("relfit.compare(") < text.index("| you have |")
    assert "```text\nbest set · " in text
