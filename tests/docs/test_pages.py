"""The examples of the pages and of the README run, and print what the pages show."""

import importlib.util
import re
from pathlib import Path

import pytest

import relfit

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages whose examples have a test of their own, which knows more about them.
ELSEWHERE = {
    "api/models.md": "docs/test_adapters_md.py",
    "decisions.md": "docs/test_decisions_md.py",
    "features.md": "features/test_docs_page.py",
    "files.md": "data/test_files_docs.py",
    "gate.md": "docs/test_report_md.py",
    "kernels.md": "docs/test_kernels_md.py",
    "report.md": "docs/test_report_md.py",
}


def _with_python(page):
    return "```python" in page.read_text(encoding="utf-8")


PAGES = [
    page
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    if _with_python(page) and not (page.is_relative_to(DOCS) and page.relative_to(DOCS).as_posix() in ELSEWHERE)
]


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("run_pages", ROOT / "scripts" / "run_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _words(text):
    """The text without its numbers and spaces: other versions of a library may round or align otherwise."""
    return re.sub(r"[-+]?<?\d[\d.e-]*|\s+", " ", text).split()


def _missing(page):
    names = re.findall(r"^(?:import|from) (\w+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return sorted({name for name in names if importlib.util.find_spec(name) is None})


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_examples_run_and_print_what_the_page_shows(page, runner, tmp_path, monkeypatch):
    missing = _missing(page)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    again = runner.run_page(text)
    if "import torch" in text:  # a network is not trained to the same weights on every machine
        return
    assert _words(again) == _words(text)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_no_output_is_missing(page):
    assert "```text\n```" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items(), ids=list(ELSEWHERE))
def test_the_other_pages_are_tested_where_this_file_says(page, test):
    assert _with_python(DOCS / page)
    assert Path(page).name in (ROOT / "tests" / test).read_text(encoding="utf-8")


def test_pictures_of_the_guides_are_there():
    for page in (DOCS / "guides").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        saved = re.findall(r'savefig\("([\w-]+\.png)"', text)
        assert saved
        for name in saved:
            assert f"](../images/pages/{name})" in text
            assert (DOCS / "images" / "pages" / name).stat().st_size > 5_000


def test_every_public_name_is_in_the_reference():
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    documented = set(re.findall(r"^\.\. auto\w+:: (\w+)", pages, flags=re.MULTILINE))
    assert set(relfit.__all__) - {"__version__"} <= documented


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_pages_outside_docs_lead_somewhere(name):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []
